"""The estimators for scikit-learn: tables in, calibrated predictions out."""

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
    """Regress on a table, with a calibrated predictive distribution for each row.

    By default, groups of small networks are cross-fitted. Each group leaves out one fold of the rows, so
    every row is predicted by members that have not seen it (``oof_predictive_``). Small tables also get
    a Gaussian process for each fold. The out-of-fold predictions set the noise and the weight of each
    group, and the mixture of all groups predicts.

    X is an array, a data frame or a dictionary of columns, with numbers, categories, booleans, dates and
    gaps. The estimator learns from the training rows what the columns are (``schema_``).

    Args:
        hidden_layer_sizes: Widths of the hidden layers. The default is (128, 128), or (50, 50) for other
            methods than "crossfit".
        method: How to train: "crossfit"; a name that ``partialbayes methods`` lists, such as "ohsmc" or
            "map_estimate+nuts"; or a function from a model to an algorithm.
        effort: How much work "crossfit" does. "fast", "default" and "best" set the steps and folds that
            you leave open, by the size of the table. A number is a budget in seconds, without
            compilation.
        stochastic: Which weights are random, for other methods than "crossfit": "last" (the default),
            "first", "biases", "all", or any selection such as the glob ``"layers/1/**"``.
        num_particles: Number of samples of the random weights. The default is 2 or 4 members in each
            group, or 200 for other methods.
        n_folds: Number of folds of "crossfit". The default is 8, or 16 for small tables.
        max_iter: Number of passes through the rows. By default ``effort`` decides, and other methods
            take 2000 steps.
        batch_size: Number of rows in a step, for each member, and at most all. The default is 16, or 32
            for large tables and other methods.
        learning_rate: Learning rate of Adam. The default is 0.005, or 0.01 for other methods.
        weight_decay: Decoupled decay of the shared weights; 0.01 by default. For other methods, the
            precision of a normal prior on the weights that are not random; by default the number of
            columns, at most 10.
        log_targets: Whether to train on the logarithms of the targets. Predictions stay in original
            units. None lets "crossfit" choose by the out-of-fold density of a short run, if the targets
            are positive and skewed; other methods take it for False.
        validation_fraction: Share of the rows that other methods hold out to stop early; 0 for none.
        n_iter_no_change: Number of epochs without a better held-out score after which other methods
            stop; None for never.
        window_size: Number of rows that `partial_fit` remembers.
        n_replays: Number of steps on remembered rows in each `partial_fit`. Fewer are cheaper and learn
            more slowly.
        random_state: Seed of the random numbers.
        n_jobs: Number of cores for "crossfit": 1, or 2 for any other value. Results are the same.
        verbose: Whether to show a progress bar.

    Attributes:
        oof_predictive_: Predictive distribution of the training rows, each by members that did not see
            it; None if there were too few rows for folds.
        oof_score_: R² of the out-of-fold means.
        posterior_: Posterior of the network's weights.
        model_: Model that the posterior belongs to.
        history_: Losses by step; ``validation_nlpd`` is that of the out-of-fold rows.

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
            y: Numbers; several targets have one column each.
            sample_weight: Weight of each row; 0 leaves it out, and 2 counts it twice.
            groups: A label for each row; rows with the same label stay in one fold, as equal rows do.
            run: Callbacks, progress and Ctrl-C, as for `partialbayes.fit`.
            schema: What the columns are; learned from the table by default.

        Returns:
            The fitted estimator.
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
        """Continue training with new rows, in a time that does not depend on the rows seen before.

        Threads take turns. Rows that would make the posterior NaN or infinite are refused, and the
        posterior is kept.

        Args:
            X: New rows. The first call sets the scales of inputs and targets: pass some tens of rows.
            y: Targets of the rows.
            sample_weight: Number of times each row counts; a fraction is the probability of once more.

        Returns:
            The estimator.
        """
        require_settings(self)
        with lock_of(self):
            first = not hasattr(self, "posterior_")
            X, y = pair_of(self, X, y, reset=first, multi_output=True, y_numeric=True)  # noqa: N806
            return self._partial_fit(X, np.asarray(y, float), weights_of(sample_weight, X), first)

    def predict(self, X: Any, return_std: bool = False, quantiles: Any = None) -> Any:  # noqa: N803
        """Predict the mean of each row, with its standard deviation or quantiles if asked for.

        Args:
            X: Rows.
            return_std: Whether to return standard deviations, too.
            quantiles: Levels of quantiles to return instead, as by `predict_quantiles`. A `Pipeline`
                passes arguments to ``predict`` only.

        Returns:
            Means; or ``(means, standard deviations)``; or quantiles, one column per level.
        """
        if quantiles is not None:
            return self.predict_quantiles(X, quantiles)
        predictive = self.predictive(X)
        mean = np.asarray(predictive.mean, float)
        return (mean, np.asarray(predictive.std, float)) if return_std else mean

    def predict_quantiles(self, X: Any, levels: Any = (0.05, 0.5, 0.95)) -> Any:  # noqa: N803
        """Predict quantiles of the target of each row.

        Args:
            X: Rows.
            levels: Levels between 0 and 1.

        Returns:
            Quantiles, one column per level.
        """
        quantiles = self.predictive(X).quantile(np.atleast_1d(levels))
        return np.moveaxis(np.asarray(quantiles, float), 0, -1)

    def predict_interval(
        self,
        X: Any,  # noqa: N803
        coverage: float = 0.9,
        method: str = "bayesian",
    ) -> tuple[Any, Any]:
        """Predict an interval that contains the target of each row with a given probability.

        Args:
            X: Rows.
            coverage: Probability between 0 and 1.
            method: "bayesian" for the central interval of the predictive distribution. "conformal" for
                an interval from the out-of-fold errors (CV+), which covers at least
                1 − 2 (1 − coverage) for any distribution of the errors. "centered" for a narrower one
                from the same errors, whose coverage is closer to the given one but has no guarantee.

        Returns:
            Lower and upper ends.
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
    """Classify the rows of a table, with calibrated probabilities; labels may be of any type.

    `PartialBNNRegressor` documents X and all arguments. The learning rate is 0.002 by default, or 0.003
    for other methods than "crossfit", whose weight decay is 1. ``log_targets`` is unused.

    Attributes:
        classes_: The labels, sorted.
        oof_predictive_: Predictive distribution of the training rows, each by members that did not see
            it; its ``probabilities`` are those of the classes.
        oof_score_: Accuracy of the out-of-fold predictions.

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
            sample_weight: Weight of each row; 0 leaves it out, and 2 counts it twice.
            groups: A label for each row; rows with the same label stay in one fold, as equal rows do.
            run: Callbacks, progress and Ctrl-C, as for `partialbayes.fit`.
            schema: What the columns are; learned from the table by default.

        Returns:
            The fitted estimator.
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
        """Continue training with new rows, in a time that does not depend on the rows seen before.

        Threads take turns. Rows that would make the posterior NaN or infinite are refused, and the
        posterior is kept.

        Args:
            X: New rows. The first call sets the scales of the inputs: pass some tens of rows.
            y: Labels of the rows.
            classes: All labels that can occur; required at the first call unless `fit` came before.
            sample_weight: Number of times each row counts; a fraction is the probability of once more.

        Returns:
            The estimator.
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
        """Predict the probability of each class.

        Args:
            X: Rows.

        Returns:
            One column per class, in the order of ``classes_``.
        """
        probabilities = np.asarray(self.predictive(X).probabilities, float)
        return probabilities / probabilities.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> Any:  # noqa: N803
        """Predict the most probable class of each row.

        Args:
            X: Rows.

        Returns:
            One label per row.
        """
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(axis=1)]

    def predict_set(self, X: Any, coverage: float = 0.9) -> Bool[np.ndarray, "row class"]:  # noqa: N803
        """Predict a set of classes that contains the label with a given probability (conformal, CV+).

        Args:
            X: Rows.
            coverage: Probability between 0 and 1.

        Returns:
            True for each class in the set of a row, in the order of ``classes_``. A set may be empty, if
            no class is as probable as that of most training rows.
        """
        conformity = self._require_conformity()
        probabilities, _ = self._of_folds(X)
        if probabilities.ndim == 2:
            probabilities = np.stack([1.0 - probabilities, probabilities], axis=-1)
        return class_sets(probabilities, conformity, coverage)
