"""scikit-learn's face of the library: a table in, calibrated predictions out."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from partialbayes.estimators._base import PartialBNN


class PartialBNNRegressor(RegressorMixin, PartialBNN):  # type: ignore[misc]
    """Regression on a table, with intervals that know what they do not know.

    A network of which part of the weights is random, with noise of a learned variance. Numbers only:
    encode categories first, as the command line does.

    Args:
        hidden_layer_sizes: Widths of the hidden layers.
        stochastic: Which weights are random: "last" (layer), "first", "biases", "all", or any
            selection of the library (a glob such as ``"layers/1/**"``, a `Subset`, a predicate).
        method: How to train: a name that ``partialbayes methods`` lists, such as "ohsmc" or
            "map_estimate+nuts"; or a function from the model to an algorithm.
        num_particles: Samples of the random weights.
        epochs: How often to go through the rows; as often as makes 2000 steps by default.
        batch_size: Rows in a step.
        learning_rate: Of Adam; 0.01 by default.
        weight_decay: Precision of a normal prior on the other weights. By default the number of
            columns, at most 10: curves and surfaces bend more than the answers of wide tables.
        validation_fraction: Share of the rows held out for early stopping; 0 for none.
        n_iter_no_change: Epochs without a better score on those rows before training stops; None for
            never.
        window_size: Rows that `partial_fit` remembers.
        n_replays: Steps on remembered rows in each `partial_fit`; fewer are cheaper and learn slower.
        random_state: Seed.
        verbose: Whether to show a progress bar.

    Example:
        >>> import numpy as np, partialbayes as pb
        >>> x = np.linspace(-1, 1, 60)[:, None]
        >>> model = pb.PartialBNNRegressor((8,), epochs=20, random_state=0).fit(x, 2 * x[:, 0])
        >>> mean, std = model.predict(x, return_std=True)
        >>> low, high = model.predict_interval(x, 0.9)
        >>> mean.shape, bool((low < high).all())
        ((60,), True)
    """

    def fit(self, X: Any, y: Any, **running: Any) -> Any:  # noqa: N803
        """Train on rows X, targets y. ``checkpoint``, ``resume``, ``callbacks`` are those of `fit`."""
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)  # noqa: N806
        return self._fit(X, np.asarray(y, float), **running)

    def partial_fit(self, X: Any, y: Any) -> Any:  # noqa: N803
        """Go on with new rows, in time that does not depend on how many were seen before.

        The first rows set the scales of inputs and targets, so let them be some tens at least.
        """
        first = not hasattr(self, "posterior_")
        X, y = validate_data(  # noqa: N806
            self, X, y, reset=first, dtype=np.float64, multi_output=True, y_numeric=True
        )
        return self._partial_fit(X, np.asarray(y, float), first)

    def predict(self, X: Any, return_std: bool = False) -> Any:  # noqa: N803
        """Predictive means, and their standard deviations if asked for."""
        predictive, rows = self._padded_predictive(X)
        mean = np.asarray(predictive.mean, float)[:rows]
        return (mean, np.asarray(predictive.std, float)[:rows]) if return_std else mean

    def predict_interval(self, X: Any, coverage: float = 0.9) -> tuple[Any, Any]:  # noqa: N803
        """Lower and upper ends of the central interval of this probability."""
        predictive, rows = self._padded_predictive(X)
        low, high = predictive.interval(coverage)
        return np.asarray(low, float)[:rows], np.asarray(high, float)[:rows]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class PartialBNNClassifier(ClassifierMixin, PartialBNN):  # type: ignore[misc]
    """Classification of a table's rows, with calibrated probabilities; labels may be anything.

    Args:
        hidden_layer_sizes: As for `PartialBNNRegressor`, like all the others.
        stochastic: Which weights are random.
        method: How to train.
        num_particles: Samples of the random weights.
        epochs: How often to go through the rows; as often as makes 2000 steps by default.
        batch_size: Rows in a step.
        learning_rate: Of Adam; 0.003 by default.
        weight_decay: Precision of a normal prior on the other weights; 1 by default.
        validation_fraction: Share of the rows held out for early stopping; 0 for none.
        n_iter_no_change: Epochs without a better score on those rows before training stops; None for
            never.
        window_size: Rows that `partial_fit` remembers.
        n_replays: Steps on remembered rows in each `partial_fit`; fewer are cheaper and learn slower.
        random_state: Seed.
        verbose: Whether to show a progress bar.

    Example:
        >>> import numpy as np, partialbayes as pb
        >>> x = np.linspace(-1, 1, 60)[:, None]
        >>> label = np.where(x[:, 0] > 0, "right", "left")
        >>> model = pb.PartialBNNClassifier((8,), epochs=30, random_state=0).fit(x, label)
        >>> model.predict(x[[0, -1]])
        array(['left', 'right'], dtype='<U5')
        >>> model.predict_proba(x).shape
        (60, 2)
    """

    _rate = 0.003
    _most_decay = 1.0

    def fit(self, X: Any, y: Any, **running: Any) -> Any:  # noqa: N803
        """Train on rows X and labels y. ``checkpoint``, ``resume``, ``callbacks`` are those of `fit`."""
        X, y = validate_data(self, X, y, dtype=np.float64)  # noqa: N806
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        self._require_classes()
        return self._fit(X, labels, **running)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Any:  # noqa: N803
        """Go on with new rows, in time that does not depend on how many were seen before.

        Args:
            X: New rows; the first set the scales of the inputs, so let them be some tens at least.
            y: Their labels.
            classes: All labels there will be; needed at the first call unless `fit` came before.
        """
        first = not hasattr(self, "posterior_")
        X, y = validate_data(self, X, y, reset=first, dtype=np.float64)  # noqa: N806
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
            unknown = np.asarray(y)[self.classes_[places] != y][0]
            raise ValueError(f"y holds {unknown!r}, which is none of the classes.")
        return self._partial_fit(X, places, first)

    def _require_classes(self) -> None:
        if len(self.classes_) < 2:
            raise ValueError(
                f"a classifier needs at least two classes, but y holds only one class, "
                f"{self.classes_[0]!r}."
            )

    def _head(self, targets: Any) -> tuple[str, int]:
        count = len(self.classes_)
        return ("bernoulli", 1) if count == 2 else ("categorical", count)

    def predict_proba(self, X: Any) -> Float[np.ndarray, "row class"]:  # noqa: N803
        """Probability of each class, in the order of ``classes_``."""
        predictive, rows = self._padded_predictive(X)
        probabilities = np.asarray(predictive.probabilities, float)[:rows]
        return probabilities / probabilities.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> Any:  # noqa: N803
        """The most probable class of each row."""
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(axis=1)]
