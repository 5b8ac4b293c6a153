"""What the two estimators share: scales, held-out rows, training, streaming, prediction.

Inputs and targets are standardized inside, by statistics of the training rows alone. A part of the
rows is held out, and the posterior with the best predictive density on it is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from partialbayes.errors import TrainingDivergedError
from partialbayes.estimators import _methods as methods
from partialbayes.estimators._build import Settings, build_algorithm
from partialbayes.estimators._persistence import PersistentEstimator
from partialbayes.model._batch import pad_to, padded_size
from partialbayes.online import blank_state, start, update
from partialbayes.prediction._predict import predict
from partialbayes.prediction._predictive import Predictive
from partialbayes.prediction._target_scale import TargetScale
from partialbayes.training._fit import fit
from partialbayes.types import Algorithm, Batch, Posterior

_STEPS = 2000  # of a fit, unless epochs are given
_FEWEST_EPOCHS = 20
_FEWEST_ROWS = 20  # below this nothing is held out
_ENOUGH_ROWS = 500  # of a stream, for the full weight decay and all the replays
_REPLAYED = 128  # rows in a replay
_PREDICTED = 64  # rows at least in a call of the predictor, so that few shapes are compiled


class PartialBNN(PersistentEstimator):
    """What the two estimators share."""

    _rate = 0.01
    _most_decay = 10.0  # real targets tell more about the weights than labels do

    def __init__(
        self,
        hidden_layer_sizes: Sequence[int] = (50, 50),
        *,
        stochastic: Any = "last",
        method: methods.Method = "ohsmc",
        num_particles: int = 200,
        epochs: int | None = None,
        batch_size: int = 32,
        learning_rate: float | None = None,
        weight_decay: float | None = None,
        validation_fraction: float = 0.15,
        n_iter_no_change: int | None = 50,
        window_size: int = 1000,
        n_replays: int = 60,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.stochastic = stochastic
        self.method = method
        self.num_particles = num_particles
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.window_size = window_size
        self.n_replays = n_replays
        self.random_state = random_state
        self.verbose = verbose

    def _fit(self, inputs: Any, targets: Any, **running: Any) -> Any:
        """Train on checked arrays; targets are numbers, or classes numbered from 0.

        ``running`` is for `fit`: checkpoint, resume, callbacks.
        """
        if not 0.0 <= self.validation_fraction < 1.0:
            raise ValueError(
                f"validation_fraction must be at least 0 and below 1, not {self.validation_fraction!r}."
            )
        random = check_random_state(self.random_state)
        seed = int(random.randint(2**31 - 1))
        train, held_out = self._divide(targets, seed)
        self._set_scales(inputs[train], targets[train])
        self.algorithm_ = self._algorithm(inputs.shape[1], targets)
        self.model_ = self.algorithm_.model
        data = self._batch(inputs[train], targets[train])
        batches = self._num_batches(data)
        epochs = self.epochs
        if epochs is None:
            epochs = max(_FEWEST_EPOCHS, -(-_STEPS // batches))
        validation = None if held_out is None else self._batch(inputs[held_out], targets[held_out])
        try:
            trained = fit(
                self.algorithm_,
                data,
                epochs=epochs,
                batch_size=-(-data.mask.shape[0] // batches),
                validation=validation,
                patience=None if validation is None else self.n_iter_no_change,
                key=seed,
                progress=self.verbose,
                **running,
            )
        except TrainingDivergedError as error:
            if error.fit is None:
                raise
            trained = error.fit
        self.posterior_, self.history_ = trained.posterior, trained.history
        self.reports_, self.interrupted_ = trained.reports, trained.interrupted
        self.n_iter_ = -(-self.history_.best_step // batches)
        self._seed = seed
        recent = slice(-self.window_size, None)
        self._recent: Any = (self._standardize(inputs[recent]), self._in_units(targets[recent]))
        self._online: Any = None
        return self

    def _partial_fit(self, inputs: Any, targets: Any, first: bool) -> Any:
        if first:
            self._set_scales(inputs, targets)
            # The whole decay would hold the weights at zero while few rows speak against it.
            self.algorithm_ = self._algorithm(inputs.shape[1], targets, share_of_decay=0.1)
            self.model_ = self.algorithm_.model
            self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            self._online, self._recent = None, None
        new = self._batch(inputs, targets)
        if self._online is None:
            posterior: Posterior | None = getattr(self, "posterior_", None)
            if posterior is not None and self._recent is not None:
                self._online = start(
                    self.algorithm_,
                    self._recent,
                    window_size=self.window_size,
                    posterior=posterior,
                    key=self._seed,
                )
            else:
                self._online = blank_state(self.algorithm_, new, self.window_size, posterior, self._seed)
        enough = self._online.seen + len(inputs) >= _ENOUGH_ROWS
        if enough and self._online.seen < _ENOUGH_ROWS:
            self.algorithm_ = self._algorithm(inputs.shape[1], targets)
            self.model_ = self.algorithm_.model
            self._online = self._online._replace(algorithm=self.algorithm_)
        # Few rows, replayed often, would be learned by heart.
        replays = self.n_replays if enough else min(self.n_replays, 10)
        self._online, infos = update(
            self._online, new, num_replays=replays, batch_size=max(self.batch_size, _REPLAYED)
        )
        self.posterior_ = self._online.posterior
        self.stream_info_ = {name: np.asarray(values) for name, values in infos.items()}
        return self

    def _num_batches(self, data: Batch) -> int:
        """⌈N/M⌉ by the shape, as long as no batch of the rows that count is empty."""
        return min(-(-data.mask.shape[0] // self.batch_size), int(data.mask.sum()))

    def _divide(self, targets: Any, seed: int) -> tuple[Any, Any]:
        """Rows to train on, and rows to hold out (None if there are too few)."""
        rows = np.arange(len(targets))
        if self.validation_fraction == 0.0 or len(rows) < _FEWEST_ROWS:
            return rows, None
        classes = targets if self._is_classifier() and np.bincount(targets).min() > 1 else None
        size = max(round(self.validation_fraction * len(rows)), 1)
        if classes is not None and size < len(np.unique(classes)):
            classes = None
        train, held_out = train_test_split(rows, test_size=size, random_state=seed, stratify=classes)
        return np.sort(train), np.sort(held_out)

    def _is_classifier(self) -> bool:
        return isinstance(self, ClassifierMixin)

    def _set_scales(self, inputs: Any, targets: Any) -> None:
        spread = inputs.std(axis=0)
        self.input_shift_ = inputs.mean(axis=0)
        self.input_scale_ = np.where(spread > 0, spread, 1.0)
        self.target_scale_ = None if self._is_classifier() else TargetScale.of(targets)

    def _algorithm(self, num_features: int, targets: Any, share_of_decay: float = 1.0) -> Algorithm:
        methods.require_method(self.method)
        likelihood, num_outputs = self._head(targets)
        # Ten learns nothing but the mean from a hundred rows of a sine.
        by_default = min(self._most_decay, float(num_features))
        decay = by_default if self.weight_decay is None else self.weight_decay
        self._settings = Settings(
            sizes=(num_features, *(int(size) for size in self.hidden_layer_sizes), num_outputs),
            likelihood=likelihood,
            stochastic=self.stochastic,
            method=self.method,
            num_particles=self.num_particles,
            learning_rate=self._rate if self.learning_rate is None else self.learning_rate,
            weight_decay=share_of_decay * decay,
        )
        return build_algorithm(self._settings)

    def _head(self, targets: Any) -> tuple[str, int]:
        return "gaussian", 1 if targets.ndim == 1 else targets.shape[1]

    def _standardize(self, inputs: Any) -> Any:
        return ((inputs - self.input_shift_) / self.input_scale_).astype(np.float32)

    def _in_units(self, targets: Any) -> Any:
        if self.target_scale_ is None:
            return targets.astype(np.int32)
        return self.target_scale_.apply(targets).astype(np.float32)

    def _batch(self, inputs: Any, targets: Any) -> Batch:
        rows = len(inputs)
        batch = Batch(
            self._standardize(inputs),
            self._in_units(targets),
            jnp.asarray(np.ones(rows, bool)),
            jnp.ones(()),
        )
        return pad_to(batch, padded_size(rows))

    def _checked(self, inputs: Any) -> Any:
        check_is_fitted(self, "posterior_")
        return validate_data(self, inputs, reset=False, dtype=np.float64)

    def _padded_predictive(self, inputs: Any) -> tuple[Predictive, int]:
        """The predictive at more rows than asked for, and how many were."""
        checked = self._standardize(self._checked(inputs))
        rows = len(checked)
        size = max(_PREDICTED, padded_size(rows))
        padded = np.concatenate([checked, np.repeat(checked[-1:], size - rows, axis=0)])
        return predict(self.model_, self.posterior_, padded, target_scale=self.target_scale_), rows

    def predictive(self, X: Any) -> Predictive:  # noqa: N803
        """The whole predictive distribution at the rows of X; see `Predictive`."""
        inputs = self._standardize(self._checked(X))
        return predict(self.model_, self.posterior_, inputs, target_scale=self.target_scale_)

    def sample_posterior(self, X: Any, n_samples: int = 100, random_state: Any = 0) -> Any:  # noqa: N803
        """Draws of the function from the posterior: what the network computes at X, draw by draw.

        Args:
            X: Rows to evaluate the function at.
            n_samples: Number of draws, the leading axis of the result.
            random_state: Of the draws.

        Returns:
            Expected targets, or class probabilities, shape (n_samples, rows, …). For draws with
            noise use ``predictive(X).sample(key, n_samples)``.
        """
        predictive, rows = self._padded_predictive(X)
        components = predictive.components()
        weights = np.exp(np.asarray(components.log_weights, float))
        random = check_random_state(random_state)
        chosen = random.choice(len(weights), size=n_samples, p=weights / weights.sum())
        return np.asarray(components.mean)[chosen, :rows]
