"""What the two estimators share: scales, held-out rows, training, streaming, prediction.

Inputs and targets are standardized inside, by statistics of the training rows alone. By default groups
of members are cross-fitted, and every row is held out from one group (`_crossfit`). With any other
method a part of the rows is held out, and the posterior with the best density on it is kept.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from partialbayes._engine.interrupts import uninterrupted
from partialbayes._engine.settings import Run, Validation
from partialbayes._utils.warn import warn
from partialbayes.errors import TrainingDivergedError, TrainingInterrupted
from partialbayes.estimators import _crossfit as crossfit
from partialbayes.estimators import _methods as methods
from partialbayes.estimators._build import Settings, build_algorithm
from partialbayes.estimators._checks import labels_of
from partialbayes.estimators._folds import make_folds
from partialbayes.estimators._inputs import inputs_of
from partialbayes.estimators._out_of_fold import OutOfFold, without_log
from partialbayes.estimators._persistence import PersistentEstimator
from partialbayes.estimators._recipe import (
    Recipe,
    Schedule,
    bins_for,
    centers_for,
    folds_for,
    members_for,
    numeric_columns,
    schedule_for,
)
from partialbayes.estimators._stacking import of_one_fold
from partialbayes.estimators._target import has_long_tail
from partialbayes.model._batch import pad_to, padded_size
from partialbayes.model._partial_bnn import noise_of
from partialbayes.online import blank_state, start, update
from partialbayes.prediction._conformal import Conformity
from partialbayes.prediction._input_scale import InputScale, standardize
from partialbayes.prediction._predict import predict
from partialbayes.prediction._predictive import Predictive
from partialbayes.prediction._target_scale import TargetScale
from partialbayes.results import Fit, History
from partialbayes.training._fit import fit
from partialbayes.types import Algorithm, Batch, Posterior

_STEPS = 2000  # of a fit by another method, unless max_iter is given
_BATCH = 32  # by another method, as these:
_HIDDEN = (50, 50)
_PARTICLES = 200
_FEWEST_EPOCHS = 20
_FEWEST_ROWS = 20  # below this nothing is held out
_ENOUGH_ROWS = 500  # of a stream, for the full weight decay and all the replays
_WIDE = 1000  # columns; with more of them steps are shorter
_REPLAYED = 128  # rows in a replay
_TRIAL = 0.2  # share of the steps by which to choose between targets and their logarithms
_LARGEST = 1e100  # target; the squares of what is predicted stay finite
_MOST_COPIES = 10  # of a row on average, by whole sample weights


class PartialBNN(PersistentEstimator):
    """What the two estimators share."""

    _rate = 0.01
    _group_rate = 0.005
    _most_decay = 10.0  # real targets tell more about the weights than labels do
    target_scale_: Any

    def __init__(
        self,
        hidden_layer_sizes: Sequence[int] | None = None,
        *,
        method: methods.Method = "crossfit",
        effort: str | float = "default",
        stochastic: Any = None,
        num_particles: int | None = None,
        n_folds: int | None = None,
        max_iter: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        weight_decay: float | None = None,
        log_targets: bool | None = None,
        validation_fraction: float = 0.15,
        n_iter_no_change: int | None = 50,
        window_size: int = 1000,
        n_replays: int = 60,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.method = method
        self.effort = effort
        self.stochastic = stochastic
        self.num_particles = num_particles
        self.n_folds = n_folds
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.log_targets = log_targets
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.window_size = window_size
        self.n_replays = n_replays
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    @uninterrupted()
    def _fit(self, inputs: Any, targets: Any, sample_weight: Any, groups: Any, run: Run | None) -> Any:
        """Train on checked arrays; targets are numbers, or classes numbered from 0."""
        run = Run() if run is None else run
        if run.progress is None:
            run = run._replace(progress=self.verbose)
        if self._is_crossfit():
            return self._fit_groups(inputs, targets, sample_weight, groups, run)
        if sample_weight is not None or groups is not None:
            raise ValueError(
                f'sample_weight and groups need method="crossfit", and this is {self.method!r}.'
            )
        return self._fit_once(inputs, targets, run)

    def _is_crossfit(self) -> bool:
        return isinstance(self.method, str) and self.method == "crossfit"

    def _fit_groups(self, inputs: Any, targets: Any, sample_weight: Any, groups: Any, run: Run) -> Any:
        """Cross-fit; it is over in minutes, so ``checkpoint`` is not written."""
        if run.resume:
            raise ValueError('method="crossfit" writes no checkpoint to resume from; train anew.')
        if self.stochastic is not None:
            raise ValueError(
                'stochastic is what method="crossfit" says itself (factors, biases and heads); for '
                'another part choose another method, such as method="ohsmc".'
            )
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        num_rows, given, came = len(inputs), targets, inputs
        source, weights = _canonical_rows(inputs, targets, sample_weight)
        groups = None if groups is None else labels_of(groups, num_rows)[source]
        inputs, targets = inputs[source], targets[source]
        if targets.ndim == 2 and targets.shape[1] == 1:
            targets = targets[:, 0]
        self._set_scales(inputs, targets)
        if self.n_folds is not None and self.n_folds > num_rows:
            raise ValueError(
                f"n_folds={self.n_folds} is more than there are rows (n_samples={num_rows})."
            )
        recipe = self._recipe(inputs, targets)
        if weights is None:
            size = (len(inputs), inputs.shape[1])
            centers = centers_for(*size, self.effort)
            recipe = recipe._replace(num_centers=centers)
        schedule = self._schedule(len(inputs))
        folds = make_folds(inputs, targets, recipe.num_folds, groups, recipe.is_classifier, seed)
        self._settings: Any = recipe
        self.algorithm_ = build_algorithm(recipe)
        self.model_ = self.algorithm_.model
        standardized = self._standardize(inputs)

        def train(schedule: Schedule, run: Run, recipe: Recipe = recipe) -> crossfit.Trained:
            return crossfit.train(
                recipe,
                schedule,
                standardized,
                self._in_units(targets),
                folds,
                weights,
                jax.random.key(seed),
                run=run,
                n_jobs=2 if self.n_jobs is None else self.n_jobs,
            )

        trained = None
        if self._may_take_logs(targets):
            networks = functools.partial(train, recipe=recipe._replace(num_centers=0))
            trained, schedule = self._choose_target_scale(targets, schedule, run, networks)
        trained = train(schedule, run) if trained is None else trained
        in_units = self._in_units(targets)
        stacked = trained.stacked
        self.posterior_, self.interrupted_, self.reports_ = stacked.posterior, trained.interrupted, ()
        passes = len(trained.losses) * schedule.batch_size / max(int(folds.counts.max()), 1)
        self.n_iter_ = max(1, int(passes))
        steps = len(trained.losses)
        known = [] if np.isnan(stacked.nlpd) else [stacked.nlpd]
        at = np.full(len(known), steps)
        self.history_ = History({"loss": trained.losses}, at, np.array(known), steps)
        self.oof_predictive_: OutOfFold | None = None
        self._oof_score: float | None = None
        self._conformity: Conformity | None = None
        self._targets = given
        if known:
            self.oof_predictive_ = OutOfFold(
                self.model_,
                of_one_fold(stacked.posterior),
                standardized,
                self.target_scale_,
                folds=folds.of_row,
                source=source,
                num_rows=num_rows,
                num_folds=recipe.num_folds,
            )
        self._seed, self._online = seed, None
        recent = slice(-self.window_size, None)
        last = given[recent].reshape(-1, *in_units.shape[1:])
        self._recent: Any = (self._standardize(came[recent]), self._in_units(last))
        if trained.interrupted and run.on_interrupt == "raise":
            so_far = Fit(self.posterior_, self.history_, noise_of(self.model_, self.posterior_))
            raise TrainingInterrupted(steps, schedule.num_steps or steps, so_far)
        return self

    def _may_take_logs(self, targets: Any) -> bool:
        return not self._is_classifier() and self.log_targets is None and has_long_tail(targets)

    def _choose_target_scale(
        self, targets: Any, schedule: Schedule, run: Run, train: Any
    ) -> tuple[crossfit.Trained | None, Schedule]:
        """Take logarithms where a short run has the better out-of-fold density by them.

        Returns:
            What was trained if that was interrupted, and the schedule that is left.
        """
        quiet = run._replace(progress=False, callbacks=())
        found = []
        for log in (False, True):
            self.target_scale_ = TargetScale.of(targets, log)
            trial = train(schedule.times(_TRIAL), quiet)
            if trial.interrupted:
                return trial, schedule
            # Densities in the targets' own units: by dz/dy = 1 / scale, or 1 / (y scale).
            nlpd = trial.stacked.nlpd + np.log(self.target_scale_.scale) + log * np.mean(np.log(targets))
            found.append((float(nlpd), log))
        self.target_scale_ = TargetScale.of(targets, found[1] < found[0])
        return None, schedule if schedule.seconds is None else schedule.times(1.0 - 2.0 * _TRIAL)

    def _recipe(self, inputs: Any, targets: Any) -> Recipe:
        likelihood, num_outputs = self._head(targets)
        is_classifier = likelihood != "gaussian"
        hidden = (128, 128) if self.hidden_layer_sizes is None else self.hidden_layer_sizes
        numeric = numeric_columns(inputs)
        num_bins = bins_for(len(inputs), len(numeric), is_classifier)
        return Recipe(
            sizes=(
                inputs.shape[1],
                *(int(size) for size in hidden),
                num_outputs if is_classifier else 2 * num_outputs,
            ),
            is_classifier=is_classifier,
            numeric=numeric,
            num_bins=num_bins,
            num_centers=0,
            num_particles=members_for(len(inputs), num_bins, is_classifier)
            if self.num_particles is None
            else int(self.num_particles),
            num_folds=folds_for(len(inputs), self.effort) if self.n_folds is None else int(self.n_folds),
            learning_rate=self._group_rate if self.learning_rate is None else self.learning_rate,
            weight_decay=0.01 if self.weight_decay is None else self.weight_decay,
        )

    def _schedule(self, rows: int) -> Schedule:
        schedule = schedule_for(rows, self.effort, self._is_classifier())
        if self.batch_size is not None:
            schedule = schedule._replace(batch_size=min(int(self.batch_size), rows))
        if self.max_iter is not None:
            steps = -(-int(self.max_iter) * rows // schedule.batch_size)
            schedule = schedule._replace(num_steps=steps, seconds=None)
        return schedule

    def _fit_once(self, inputs: Any, targets: Any, run: Run) -> Any:
        random = check_random_state(self.random_state)
        seed = int(random.randint(2**31 - 1))
        train, held_out = self._divide(targets, seed)
        self._set_scales(inputs[train], targets[train])
        self.algorithm_ = self._algorithm(inputs, targets)
        self.model_ = self.algorithm_.model
        data = self._batch(inputs[train], targets[train])
        batches = self._num_batches(data)
        epochs = self.max_iter
        if epochs is None:
            epochs = max(_FEWEST_EPOCHS, -(-_STEPS // batches))
        validation = None
        if held_out is not None:
            rows = self._batch(inputs[held_out], targets[held_out])
            validation = Validation(rows, patience=self.n_iter_no_change)
        run = Run() if run is None else run
        if run.progress is None:
            run = run._replace(progress=self.verbose)
        try:
            trained = fit(
                self.algorithm_,
                data,
                epochs=epochs,
                batch_size=-(-data.mask.shape[0] // batches),
                validation=validation,
                key=seed,
                run=run,
            )
        except TrainingDivergedError as error:
            if error.fit is None:
                raise
            warn(str(error), ConvergenceWarning)
            trained = error.fit
        self.posterior_, self.history_ = trained.posterior, trained.history
        self.reports_, self.interrupted_ = trained.reports, trained.interrupted
        self.n_iter_ = -(-self.history_.best_step // batches)
        self._seed = seed
        recent = slice(-self.window_size, None)
        self._recent = (self._standardize(inputs[recent]), self._in_units(targets[recent]))
        self._online = None
        return self

    def _partial_fit(self, inputs: Any, targets: Any, weights: Any, first: bool) -> Any:
        online = None if first else self._online
        if weights is not None:
            seen = 0 if online is None else online.seen
            copies = _copies(weights, np.random.default_rng([0 if first else self._seed, seen]))
            if not copies.any():
                return self
            inputs, targets = np.repeat(inputs, copies, axis=0), np.repeat(targets, copies, axis=0)
        if first:
            self._set_scales(inputs, targets)
            # The whole decay would hold the weights at zero while few rows speak against it.
            self.algorithm_ = self._algorithm(inputs, targets, share_of_decay=0.1)
            self.model_ = self.algorithm_.model
            self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            self._recent = None
        new, settings = self._batch(inputs, targets), self._settings
        if online is None:
            posterior: Posterior | None = getattr(self, "posterior_", None)
            algorithm = self.algorithm_
            if isinstance(settings, Recipe) and posterior is not None:
                settings, posterior = crossfit.without_machines(settings, posterior)
                algorithm = build_algorithm(settings)
            if posterior is not None and self._recent is not None:
                online = start(
                    algorithm,
                    self._recent,
                    window_size=self.window_size,
                    posterior=posterior,
                    key=self._seed,
                )
            else:
                online = blank_state(algorithm, new, self.window_size, posterior, self._seed)
        enough = online.seen + len(inputs) >= _ENOUGH_ROWS
        if enough and online.seen < _ENOUGH_ROWS and not isinstance(settings, Recipe):
            online = online._replace(algorithm=self._algorithm(inputs, targets))
        # Few rows, replayed often, would be learned by heart.
        replays = self.n_replays if enough else min(self.n_replays, 10)
        # What is refused changes nothing: the new state is taken whole, at the end.
        self._online, infos = update(
            online, new, num_replays=replays, batch_size=max(self._rows_in_batch(), _REPLAYED)
        )
        self._leave_out_machines(settings)
        self.algorithm_, self.model_ = self._online.algorithm, self._online.algorithm.model
        self.posterior_ = self._online.posterior
        self.stream_info_ = {name: np.asarray(values) for name, values in infos.items()}
        return self

    def _leave_out_machines(self, settings: Any) -> None:
        """Let what is known of the training rows be that of the groups that train on."""
        if settings == self._settings:
            return
        out_of_fold = getattr(self, "oof_predictive_", None)
        if out_of_fold is not None:
            _, posterior = crossfit.without_machines(self._settings, out_of_fold.posterior)
            model = build_algorithm(settings).model
            self.oof_predictive_ = replace(out_of_fold, model=model, posterior=posterior)
            self._conformity = self._oof_score = None
        self._settings = settings

    def _num_batches(self, data: Batch) -> int:
        """⌈N/M⌉ by the shape, as long as no batch of the rows that count is empty.

        One for a method that is for all rows at once, and ten or more for one that must not have them.
        """
        wants = self.algorithm_.wants
        if wants == "all rows":
            return 1
        fewest = 10 if wants == "batches" else 1
        batches = max(-(-data.mask.shape[0] // self._rows_in_batch()), fewest)
        return min(batches, int(data.mask.sum()))

    def _rows_in_batch(self) -> int:
        return _BATCH if self.batch_size is None else self.batch_size

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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _set_scales(self, inputs: Any, targets: Any) -> None:
        largest = 0.0 if self._is_classifier() else float(np.max(np.abs(targets)))
        if largest > _LARGEST:
            raise ValueError(
                f"y holds {largest:.3g}, which is too large to compute with; use another unit."
            )
        robust = self._is_crossfit()
        self.input_shift_, self.input_scale_ = InputScale.of(inputs, robust=robust)
        self.target_scale_ = None
        if not self._is_classifier():
            self.target_scale_ = TargetScale.of(targets, bool(self.log_targets))

    def _algorithm(self, inputs: Any, targets: Any, share_of_decay: float = 1.0) -> Algorithm:
        if self._is_crossfit():
            if not isinstance(getattr(self, "_settings", None), Recipe):
                self._settings = self._recipe(inputs, targets)
            return build_algorithm(self._settings)
        num_features = inputs.shape[1]
        likelihood, num_outputs = self._head(targets)
        # Ten learns nothing but the mean from a hundred rows of a sine.
        by_default = min(self._most_decay, float(num_features))
        decay = by_default if self.weight_decay is None else self.weight_decay
        # A step of Adam moves every weight alike, and so a unit by as much as there are columns.
        rate = self._rate * min(1.0, _WIDE / num_features)
        hidden = _HIDDEN if self.hidden_layer_sizes is None else self.hidden_layer_sizes
        self._settings = Settings(
            sizes=(num_features, *(int(size) for size in hidden), num_outputs),
            likelihood=likelihood,
            stochastic="last" if self.stochastic is None else self.stochastic,
            method=self.method,
            num_particles=_PARTICLES if self.num_particles is None else self.num_particles,
            learning_rate=rate if self.learning_rate is None else self.learning_rate,
            weight_decay=share_of_decay * decay,
        )
        return build_algorithm(self._settings)

    def _head(self, targets: Any) -> tuple[str, int]:
        return "gaussian", 1 if targets.ndim == 1 else targets.shape[1]

    def _standardize(self, inputs: Any) -> Any:
        return InputScale(self.input_shift_, self.input_scale_).apply(inputs)

    def _in_units(self, targets: Any) -> Any:
        if self.target_scale_ is None:
            return targets.astype(np.int32)
        shift, scale, log = self.target_scale_
        return standardize("y", np.log(targets) if log else targets, shift, scale)

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
        return inputs_of(self, inputs, reset=False)

    def predictive(self, X: Any) -> Predictive:  # noqa: N803
        """The whole predictive distribution at the rows of X; see `Predictive`."""
        inputs = self._standardize(self._checked(X))
        return predict(self.model_, self.posterior_, inputs, target_scale=self.target_scale_)

    def predict_dist(self, X: Any) -> Predictive:  # noqa: N803
        """The predictive distribution of each row: mean, std, quantile, cdf, log_density, sample.

        The same as `predictive`, by the name that other estimators have for it.

        Args:
            X: Rows.
        """
        return self.predictive(X)

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
        components = self.predictive(X).components()
        weights = np.exp(np.asarray(components.log_weights, float))
        random = check_random_state(random_state)
        chosen = random.choice(len(weights), size=n_samples, p=weights / weights.sum())
        return np.asarray(components.mean)[chosen]

    @property
    def oof_score_(self) -> float:
        """R², or accuracy, of the training rows, each predicted by members that did not see it."""
        score: float | None = getattr(self, "_oof_score", None)
        if score is None:
            predictive = getattr(self, "oof_predictive_", None)
            if predictive is None:
                raise AttributeError("oof_score_ is there after fit by crossfit, if there were folds.")
            score = self._score_of(predictive, self._targets)
            self._oof_score = score
        return score

    def _score_of(self, predictive: OutOfFold, targets: Any) -> float:
        raise NotImplementedError

    def _require_conformity(self) -> Conformity:
        check_is_fitted(self, "posterior_")
        predictive = getattr(self, "oof_predictive_", None)
        conformity: Conformity | None = getattr(self, "_conformity", None)
        if conformity is None and predictive is not None:
            conformity = self._conformity = predictive.conformity(self._targets, self._seed)
        if conformity is None:
            raise ValueError(
                'conformal predictions need out-of-fold scores, which method="crossfit" keeps where '
                "there are rows enough for folds; or use conformal_interval on rows of your own."
            )
        return conformity

    def _of_folds(self, inputs: Any) -> tuple[Any, Any]:
        """What the groups of each fold predict: means (or class probabilities), standard deviations.

        Where logarithms were trained on, these are predictions of them.
        """
        standardized = self._standardize(self._checked(inputs))
        # As the scores were made: by the groups of one fold, before their mixture is sharpened.
        posterior = of_one_fold(self.posterior_)
        scale = without_log(self.target_scale_)
        each = predict(self.model_, posterior, standardized, target_scale=scale).components()
        recipe = self._settings
        shape = (recipe.num_views, recipe.num_folds, recipe.num_particles)
        mean, variance = (
            np.asarray(part, float).reshape(*shape, *part.shape[1:])
            for part in (each.mean, each.variance)
        )
        weights = np.exp(np.asarray(each.log_weights, float)).reshape(shape)[:, 0]
        weights /= weights.sum()
        middle = np.einsum("vm,vfm...->f...", weights, mean)
        square = np.einsum(
            "vm,vfm...->f...", weights, variance + np.square(mean - middle[None, :, None])
        )
        return middle, np.sqrt(square)


def _canonical_rows(inputs: Any, targets: Any, sample_weight: Any) -> tuple[Any, Any]:
    """Rows in an order that does not depend on the one they came in, and their weights.

    A row of weight zero is left out, and one of weight 2 is there twice: whole weights are repetitions.
    Others are returned, for the rows to be drawn by.
    """
    table = np.column_stack([inputs, np.asarray(targets, float).reshape(len(inputs), -1)])
    order = np.lexsort(table.T[::-1])
    if sample_weight is None:
        return order, None
    weights = np.asarray(sample_weight, float)[order]
    order, weights = order[weights > 0], weights[weights > 0]
    if np.all(weights == np.round(weights)) and weights.sum() <= _MOST_COPIES * len(order):
        return np.repeat(order, weights.astype(int)), None
    return order, weights


def _copies(weights: Any, random: Any) -> Any:
    """How often each row is taken: its weight on average, and exactly where all weights are whole."""
    return np.diff(np.floor(np.cumsum(weights) + random.random()), prepend=0.0).astype(int)
