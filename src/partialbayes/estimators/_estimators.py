"""scikit-learn's face of the library: a table in, calibrated predictions out."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.multiclass import check_classification_targets

from partialbayes._engine.settings import Run
from partialbayes.estimators._base import PartialBNN
from partialbayes.estimators._checks import lock_of, require_settings, weights_of
from partialbayes.estimators._inputs import pair_of
from partialbayes.estimators._out_of_fold import OutOfFold
from partialbayes.prediction._conformal import Spread, centered_intervals, class_sets, intervals


class PartialBNNRegressor(RegressorMixin, PartialBNN):  # type: ignore[misc]
    """Regression on a table, with intervals that know what they do not know.

    By default groups of small networks are cross-fitted: each group leaves out one fold of the rows, so
    that every row is predicted by networks that have not seen it (``oof_predictive_``). Their noise has
    heavy tails, depends on the row, and is corrected on these predictions; the mixture of all groups
    predicts. X is an array, or a data frame (or dictionary of columns) with categories, booleans, dates
    and gaps: what its columns are is learned from the training rows and kept in ``schema_``.

    Args:
        hidden_layer_sizes: Widths of the hidden layers; (128, 128) by default, (50, 50) by another
            method than "crossfit".
        method: How to train: "crossfit", a name that ``partialbayes methods`` lists, such as "ohsmc" or
            "map_estimate+nuts"; or a function from the model to an algorithm.
        effort: How much "crossfit" does: "fast", "default" or "best" set steps and folds by the size of
            the table, unless they are set here; or seconds to spend on it, compilation apart.
        stochastic: Which weights are random, for the other methods: "last" (layer, the default),
            "first", "biases", "all", or any selection of the library (a glob such as
            ``"layers/1/**"``, a `Subset`, a predicate).
        num_particles: Samples of the random weights: members of each group (2, or 4 on small tables),
            200 by another method.
        n_folds: How many folds "crossfit" divides the rows into: 8 by default, 16 where rows are few.
        max_iter: How often to go through the rows; by ``effort`` by default, and as often as makes 2000
            steps by another method.
        batch_size: Rows in a step, of each member: 16, or 32 on large tables and by another method.
        learning_rate: Of Adam; 0.005 by default, 0.01 by another method.
        weight_decay: By "crossfit" a decoupled decay of the shared weights, 0.01. By another method the
            precision of a normal prior on the weights that are not random: by default the number of
            columns, at most 10.
        log_targets: Whether to train on the logarithms of the targets: for positive ones that spread
            over magnitudes, such as prices. All predictions stay in the targets' own units. None lets
            "crossfit" choose by the out-of-fold density of a short run, where targets are positive and
            skewed; another method takes it for False.
        validation_fraction: By another method: share of the rows held out to stop early; 0 for none.
        n_iter_no_change: By another method: epochs without a better score on those rows before training
            stops; None for never.
        window_size: Rows that `partial_fit` remembers.
        n_replays: Steps on remembered rows in each `partial_fit`; fewer are cheaper and learn slower.
        random_state: Seed.
        n_jobs: 1 to train the two halves of the groups of "crossfit" one after the other; by default,
            and with any other number, they train at once on two cores. The results are the same.
        verbose: Whether to show a progress bar.

    Attributes:
        oof_predictive_: Predictions of the training rows, each by members that did not see it: mean,
            std, quantile, interval, cdf, log_density. None where there were too few rows for two folds.
        oof_score_: R² of these means.
        posterior_: The posterior; ``predictive`` gives predictions as the library has them.
        model_: The model it is of.
        history_: Losses by step; ``validation_nlpd`` is that of the rows out of fold.

    Example:
        >>> import numpy as np, partialbayes as pb
        >>> x = np.linspace(-1, 1, 60)[:, None]
        >>> model = pb.PartialBNNRegressor((8,), max_iter=40, random_state=0).fit(x, 2 * x[:, 0])
        >>> mean, std = model.predict(x, return_std=True)
        >>> low, high = model.predict_interval(x, 0.9)
        >>> mean.shape, bool((low < high).all())
        ((60,), True)
    """

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        run: Run | None = None,
        schema: Any = None,
    ) -> Any:
        """Train on rows X and targets y.

        Args:
            X: An array, or a table of columns.
            y: Targets, numbers; a column for each where there are several.
            sample_weight: How much each row counts; 0 leaves it out, 2 is as good as twice.
            groups: Rows with the same label stay in one fold; rows with equal inputs and targets do so
                anyway.
            run: That of `partialbayes.fit`.
            schema: What is known of the columns; learned by default.
        """
        require_settings(self)
        with lock_of(self):
            X, y = pair_of(  # noqa: N806
                self, X, y, reset=True, schema=schema, multi_output=True, y_numeric=True
            )
            weights = weights_of(sample_weight, X)
            return self._fit(X, np.asarray(y, float), weights, groups, run)

    def _score_of(self, predictive: OutOfFold, targets: Any) -> float:
        mean = predictive.mean
        known = np.isfinite(mean).reshape(len(mean), -1).all(axis=1)
        return float(r2_score(targets.reshape(mean.shape)[known], mean[known]))

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:  # noqa: N803
        """Go on with new rows, in time that does not depend on how many were seen before.

        Threads take turns. Rows that would leave the posterior NaN or infinite are refused; it is kept.

        Args:
            X: New rows; the first set the scales of inputs and targets, so let them be some tens.
            y: Their targets.
            sample_weight: How often each row counts; a fraction is the probability of once more.
        """
        require_settings(self)
        with lock_of(self):
            first = not hasattr(self, "posterior_")
            X, y = pair_of(self, X, y, reset=first, multi_output=True, y_numeric=True)  # noqa: N806
            return self._partial_fit(X, np.asarray(y, float), weights_of(sample_weight, X), first)

    def predict(self, X: Any, return_std: bool = False, quantiles: Any = None) -> Any:  # noqa: N803
        """Predictive means, their standard deviations if asked for, or quantiles.

        Args:
            X: Rows.
            return_std: Whether to return ``(means, standard deviations)``.
            quantiles: Levels; what `predict_quantiles` gives is returned instead. For a `Pipeline`,
                which passes arguments on to ``predict`` alone.
        """
        if quantiles is not None:
            return self.predict_quantiles(X, quantiles)
        predictive = self.predictive(X)
        mean = np.asarray(predictive.mean, float)
        return (mean, np.asarray(predictive.std, float)) if return_std else mean

    def predict_quantiles(self, X: Any, levels: Any = (0.05, 0.5, 0.95)) -> Any:  # noqa: N803
        """Quantiles of the targets, one column per level.

        Args:
            X: Rows.
            levels: Between 0 and 1.
        """
        quantiles = self.predictive(X).quantile(np.atleast_1d(levels))
        return np.moveaxis(np.asarray(quantiles, float), 0, -1)

    def predict_interval(
        self,
        X: Any,  # noqa: N803
        coverage: float = 0.9,
        method: str = "bayesian",
    ) -> tuple[Any, Any]:
        """Lower and upper ends of intervals that hold the target with this probability.

        Args:
            X: Rows.
            coverage: Between 0 and 1.
            method: "bayesian" for the central interval of the predictive distribution; "conformal" for
                one by the out-of-fold errors in units of the predicted standard deviation, whatever
                their distribution, which holds at least 1 − 2 (1 − coverage) of new rows by theory
                (CV+); "centered" for a narrower one around the mean, by the same errors, with a coverage
                nearer to the one asked for and no theorem.
        """
        if method in ("conformal", "centered"):
            conformity = self._require_conformity()
            make = intervals if method == "conformal" else centered_intervals
            low, high = make(Spread(*self._of_folds(X)), conformity, coverage)
            return (np.exp(low), np.exp(high)) if self.target_scale_.log else (low, high)
        if method != "bayesian":
            raise ValueError(f'method must be "bayesian", "conformal" or "centered", not {method!r}.')
        low, high = self.predictive(X).interval(coverage)
        return np.asarray(low, float), np.asarray(high, float)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class PartialBNNClassifier(ClassifierMixin, PartialBNN):  # type: ignore[misc]
    """Classification of a table's rows, with calibrated probabilities; labels may be anything.

    X is what `PartialBNNRegressor` takes.

    Args:
        hidden_layer_sizes: As for `PartialBNNRegressor`, like all the others.
        method: How to train.
        effort: How long "crossfit" trains.
        stochastic: Which weights are random, for the other methods.
        num_particles: Samples of the random weights.
        n_folds: How many folds "crossfit" divides the rows into.
        max_iter: How often to go through the rows.
        batch_size: Rows in a step.
        learning_rate: Of Adam; 0.002 by default, 0.003 by another method than "crossfit".
        weight_decay: By "crossfit" a decoupled decay, 0.01; by another method the precision of a normal
            prior on the weights that are not random, 1 by default.
        log_targets: For `PartialBNNRegressor` alone.
        validation_fraction: By another method: share of the rows held out to stop early; 0 for none.
        n_iter_no_change: By another method: epochs without a better score on those rows before training
            stops; None for never.
        window_size: Rows that `partial_fit` remembers.
        n_replays: Steps on remembered rows in each `partial_fit`; fewer are cheaper and learn slower.
        random_state: Seed.
        n_jobs: 1 to use one core.
        verbose: Whether to show a progress bar.

    Attributes:
        classes_: The labels.
        oof_predictive_: As for `PartialBNNRegressor`; ``probabilities`` are those of the classes.
        oof_score_: Accuracy of these predictions.

    Example:
        >>> import numpy as np, partialbayes as pb
        >>> x = np.linspace(-1, 1, 60)[:, None]
        >>> label = np.where(x[:, 0] > 0, "right", "left")
        >>> model = pb.PartialBNNClassifier((8,), max_iter=40, random_state=0).fit(x, label)
        >>> model.predict(x[[0, -1]])
        array(['left', 'right'], dtype='<U5')
        >>> model.predict_proba(x).shape
        (60, 2)
    """

    _rate = 0.003
    _group_rate = 0.002
    _most_decay = 1.0

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        run: Run | None = None,
        schema: Any = None,
    ) -> Any:
        """Train on rows X and labels y.

        Args:
            X: An array, or a table of columns.
            y: Labels of any kind.
            sample_weight: How much each row counts; 0 leaves it out, 2 is as good as twice.
            groups: Rows with the same label stay in one fold; rows with equal inputs and targets do so
                anyway.
            run: That of `partialbayes.fit`.
            schema: What is known of the columns; learned by default.
        """
        require_settings(self)
        with lock_of(self):
            X, y = pair_of(self, X, y, reset=True, schema=schema)  # noqa: N806
            check_classification_targets(y)
            weights = weights_of(sample_weight, X)
            self.classes_, labels = np.unique(y, return_inverse=True)
            self._require_classes()
            return self._fit(X, labels, weights, groups, run)

    def _score_of(self, predictive: OutOfFold, targets: Any) -> float:
        probabilities = predictive.probabilities
        known = np.isfinite(probabilities).all(axis=1)
        return float(np.mean(probabilities[known].argmax(axis=1) == targets[known]))

    def partial_fit(
        self,
        X: Any,  # noqa: N803
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
    ) -> Any:
        """Go on with new rows, in time that does not depend on how many were seen before.

        Args:
            X: New rows; the first set the scales of the inputs, so let them be some tens at least.
            y: Their labels.
            classes: All labels there will be; needed at the first call unless `fit` came before.
            sample_weight: How often each row counts; a fraction is the probability of once more.

        Threads take turns. Rows that would leave the posterior NaN or infinite are refused; it is kept.
        """
        require_settings(self)
        with lock_of(self):
            return self._checked_partial_fit(X, y, classes, sample_weight)

    def _checked_partial_fit(self, X: Any, y: Any, classes: Any, sample_weight: Any) -> Any:  # noqa: N803
        first = not hasattr(self, "posterior_")
        X, y = pair_of(self, X, y, reset=first)  # noqa: N806
        if first:
            if classes is None:
                raise ValueError("classes must be passed on the first call to partial_fit.")
            self.classes_ = np.unique(classes)
            self._require_classes()
        elif classes is not None and not np.array_equal(self.classes_, np.unique(classes)):
            raise ValueError(
                f"classes {classes!r} is not the same as on the last call to partial_fit, "
                f"{self.classes_!r}."
            )
        places = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        if np.any(self.classes_[places] != y):
            unknown = np.asarray(y)[self.classes_[places] != y].tolist()[0]
            raise ValueError(f"y holds {unknown!r}, which is none of the classes.")
        return self._partial_fit(X, places, weights_of(sample_weight, X), first)

    def _require_classes(self) -> None:
        if len(self.classes_) < 2:
            raise ValueError(
                f"a classifier needs at least two classes, but y holds only one class, "
                f"{self.classes_[:1].tolist()[0]!r}."
            )

    def _head(self, targets: Any) -> tuple[str, int]:
        count = len(self.classes_)
        return ("bernoulli", 1) if count == 2 else ("categorical", count)

    def predict_proba(self, X: Any) -> Float[np.ndarray, "row class"]:  # noqa: N803
        """Probability of each class, in the order of ``classes_``."""
        probabilities = np.asarray(self.predictive(X).probabilities, float)
        return probabilities / probabilities.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> Any:  # noqa: N803
        """The most probable class of each row."""
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(axis=1)]

    def predict_set(self, X: Any, coverage: float = 0.9) -> Bool[np.ndarray, "row class"]:  # noqa: N803
        """Which classes are in a set that holds the label with this probability (conformal, CV+).

        Args:
            X: Rows.
            coverage: Between 0 and 1.

        Returns:
            One row for each of X, one column for each of ``classes_``; a set may be empty, where no
            class is as probable as that of most training rows.
        """
        conformity = self._require_conformity()
        probabilities, _ = self._of_folds(X)
        if probabilities.ndim == 2:
            probabilities = np.stack([1.0 - probabilities, probabilities], axis=-1)
        return class_sets(probabilities, conformity, coverage)
