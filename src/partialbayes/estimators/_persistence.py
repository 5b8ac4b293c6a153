"""Estimators that last: copied between processes, saved, loaded and exported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from partialbayes._utils.checks import require_non_negative, require_positive, require_positive_int
from partialbayes._utils.forks import require_not_forked
from partialbayes.errors import CheckpointError
from partialbayes.estimators._build import Settings, algorithm_for, build_algorithm
from partialbayes.estimators._checks import require_settings
from partialbayes.estimators._methods import CROSSFIT
from partialbayes.estimators._out_of_fold import OutOfFold
from partialbayes.estimators._recipe import Recipe
from partialbayes.estimators._schema import Schema
from partialbayes.io._export import export
from partialbayes.io._model_folder import Saved, load, save
from partialbayes.online import blank_state
from partialbayes.prediction._conformal import Conformity
from partialbayes.prediction._target_scale import lost_in_single_precision
from partialbayes.types import Batch, Posterior


class PersistentEstimator(BaseEstimator):  # type: ignore[misc]
    """An estimator whose functions are built again from its settings, and whose numbers are kept."""

    def __getstate__(self) -> dict[str, Any]:
        """For copies between processes (``n_jobs``): functions stay behind and are built again."""
        state = dict(super().__getstate__())
        for name in ("algorithm_", "model_"):
            state.pop(name, None)
        if state.get("oof_predictive_") is not None:
            state["oof_predictive_"] = replace(state["oof_predictive_"], model=None)
        follower = state.pop("_online", None)
        if follower is not None:
            key = np.asarray(jax.random.key_data(follower.key))
            state["_online"] = follower._replace(algorithm=None, key=key)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """The functions built again from the settings."""
        super().__setstate__(state)
        if "_settings" in state:
            self.algorithm_ = build_algorithm(self._settings)
            self.model_ = self.algorithm_.model
            if state.get("oof_predictive_") is not None:
                self.oof_predictive_ = replace(state["oof_predictive_"], model=self.model_)
            follower = state.get("_online")
            if follower is not None:
                key = jax.random.wrap_key_data(follower.key)
                self._online = follower._replace(algorithm=self.algorithm_, key=key)
            else:
                self._online = None

    def save(self, path: str | Path, *, overwrite: bool = False, notes: Any = None) -> None:
        """Write the fitted estimator to a folder, without pickle; `load` reads it back.

        Args:
            path: The folder to make.
            overwrite: Whether to replace a model that is there already.
            notes: Anything JSON can hold, to be kept with it.
        """
        require_not_forked()
        check_is_fitted(self, "posterior_")
        params = _without_numpy(self.get_params())
        if not isinstance(params["random_state"], int):
            params["random_state"] = None
        if self.hidden_layer_sizes is not None:
            params["hidden_layer_sizes"] = [int(size) for size in self.hidden_layer_sizes]
        for name in ("method", "stochastic"):
            if not isinstance(params[name], str | None):
                raise ValueError(
                    f"{name} is not a name, so it cannot be written down; save the model itself by "
                    "pb.save(path, estimator.model_, estimator.posterior_)."
                )
        classes = getattr(self, "classes_", None)
        stream = self._remembered()
        metadata = {
            "seed": int(self._seed),
            "seen": None if self._online is None else int(self._online.seen),
            "estimator": type(self).__name__,
            "params": params,
            "settings": _without_numpy(self._settings._asdict()),
            "input_shift": self.input_shift_.tolist(),
            "input_scale": self.input_scale_.tolist(),
            "schema": None if self.schema_ is None else self.schema_.to_json(),
            "num_columns": self.n_features_in_,
            "feature_names": getattr(self, "feature_names_in_", np.zeros(0)).tolist(),
            "classes": None if classes is None else classes.tolist(),
            "notes": notes,
        }
        if getattr(self, "oof_predictive_", None) is not None or getattr(self, "_conformity", None):
            conformity = self._require_conformity()
            metadata["conformity"] = {name: part.tolist() for name, part in conformity._asdict().items()}
            metadata["oof_score"] = self.oof_score_
        save(
            path,
            self.model_,
            self.posterior_,
            history=getattr(self, "history_", None),
            target_scale=self.target_scale_,
            metadata=metadata,
            extra=stream | self._folds_to_keep(),
            overwrite=overwrite,
        )

    @classmethod
    def load(cls, path: str | Path) -> Any:
        """Read an estimator that `save` wrote, ready to predict.

        `partial_fit` goes on as if it had never stopped: the rows it remembers are saved too.
        """
        saved = load(path)
        kind = saved.metadata.get("estimator")
        if kind != cls.__name__:
            raise ValueError(f"{path} holds a {kind or 'model'}, not a {cls.__name__}.")
        try:
            return _restored(cls, saved)
        except CheckpointError:
            raise
        except Exception as error:  # whatever it is, it is what the file says
            reason = f"{error}" if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            raise CheckpointError(f"{path} does not hold a whole {cls.__name__}: {reason}") from error

    def _remembered(self) -> dict[str, Any]:
        """What `partial_fit` goes on from: the state of the stream, or the last rows of `fit`."""
        if self._online is not None:
            leaves = jax.tree.leaves((self._online.state, self._online.memory))
            key = jax.random.key_data(self._online.key)
            return {"stream": {f"{place:04}": leaf for place, leaf in enumerate([key, *leaves])}}
        return {} if self._recent is None else {"recent": dict(zip("xy", self._recent, strict=True))}

    def _remember(self, extra: dict[str, Any], seen: int | None) -> None:
        """Take up what `_remembered` gave."""
        self._recent, self._online = None, None
        if "recent/x" in extra:
            self._recent = (extra["recent/x"], extra["recent/y"])
        if seen is None:
            return
        key, *leaves = (extra[name] for name in sorted(extra) if name.startswith("stream/"))
        inputs = jnp.zeros((1, len(self.input_shift_)), jnp.float32)
        targets = jnp.asarray(leaves[-3][:1])  # of the memory: inputs, targets, mask, scale
        like = Batch(inputs, targets, jnp.ones(1, bool), jnp.ones(()))
        blank = blank_state(self.algorithm_, like, self.window_size, self.posterior_, self._seed)
        structure = jax.tree.structure((blank.state, blank.memory))
        state, memory = jax.tree.unflatten(structure, [jnp.asarray(leaf) for leaf in leaves])
        self._online = blank._replace(
            state=state, memory=memory, seen=seen, key=jax.random.wrap_key_data(jnp.asarray(key))
        )

    def _folds_to_keep(self) -> dict[str, Any]:
        """Which fold each training row is in, and what one group's likelihood is."""
        if self._online is not None:  # the members have learned since
            return {}
        found, kept = getattr(self, "oof_predictive_", None), getattr(self, "_folds", None)
        if found is not None and np.array_equal(np.sort(found.source), np.arange(found.num_rows)):
            kept = (found.folds[np.argsort(found.source)], found.posterior.psi.likelihood)
        return {} if kept is None else {"out_of_fold": {"folds": kept[0], "likelihood": kept[1]}}

    def _take_folds(self, extra: dict[str, Any]) -> None:
        """Take up what `_folds_to_keep` gave."""
        self._folds: tuple[Any, Any] | None = None
        if "out_of_fold/folds" not in extra:
            return
        folds = np.asarray(extra["out_of_fold/folds"])
        count = self._settings.num_folds
        if folds.ndim != 1 or folds.dtype.kind not in "iu":
            raise ValueError("its folds are not one whole number per row.")
        if not np.array_equal(np.unique(folds), np.arange(count)):
            raise ValueError("its folds are not numbered from 0.")
        own, structure = jax.tree_util.tree_flatten_with_path(self.posterior_.psi.likelihood)
        leaves = []
        for path, leaf in own:
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            found = np.asarray(extra[f"out_of_fold/likelihood/{name}"])
            if (found.shape, found.dtype) != (leaf.shape, leaf.dtype) or not np.isfinite(found).all():
                raise ValueError(f"{name!r} out of fold is not like that of the posterior.")
            leaves.append(jnp.asarray(found))
        self._folds = folds, jax.tree.unflatten(structure, leaves)

    def _knows_folds(self, rows: int) -> bool:
        """Whether `_out_of_fold` can predict the training rows, if there are so many of them."""
        kept = getattr(self, "_folds", None)
        return self._online is None and kept is not None and len(kept[0]) == rows

    def _out_of_fold(self, inputs: Any, rows: Any) -> OutOfFold:
        """Predictions of training rows after `load`, each by the members that did not see it.

        Args:
            inputs: As the schema makes them of the table.
            rows: Their places among the training rows.
        """
        assert self._folds is not None
        folds, likelihood = self._folds
        psi = self.posterior_.psi._replace(likelihood=likelihood)
        return OutOfFold(
            self.model_,
            self.posterior_._replace(psi=psi),
            self._standardize(inputs),
            self.target_scale_,
            folds=folds[rows],
            source=np.arange(len(rows)),
            num_rows=len(rows),
            num_folds=int(folds.max()) + 1,
        )

    def export(self, path: str | Path) -> None:
        """Write a predictor for raw rows that runs with JAX alone; see `partialbayes.export`.

        Of a table, the rows are those that its ``schema_`` makes of it.
        """
        check_is_fitted(self, "posterior_")
        lost = lost_in_single_precision(self.input_shift_, self.input_scale_)
        if lost.any():
            raise ValueError(
                f"column {int(np.argmax(lost))} lies so far from 0 for its spread that an exported "
                "predictor, which takes inputs in single precision, cannot tell its values apart; train "
                "on inputs with that offset taken off."
            )
        shift, scale = (
            jnp.asarray(part, jnp.float32)[None] for part in (self.input_shift_, self.input_scale_)
        )
        example = np.zeros((1, len(self.input_shift_)), np.float32)
        export(
            path,
            self.model_,
            self.posterior_,
            example,
            target_scale=self.target_scale_,
            prepare=lambda inputs: (inputs - shift) / scale,
        )


def _without_numpy(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields with numbers of NumPy, as a grid of settings has them, made Python's for JSON."""
    return {
        name: value.item() if isinstance(value, np.generic) else value for name, value in fields.items()
    }


def _restored(cls: Any, saved: Saved) -> Any:
    """The estimator of a folder, each part of it checked against the others."""
    metadata = saved.metadata
    params = _typed(metadata, "params", dict)
    if set(params) != set(cls._get_param_names()):
        raise ValueError("its params are not those of this version.")
    estimator = cls(**params)
    require_settings(estimator)
    shift, scale = (
        np.asarray(_typed(metadata, name, list), float) for name in ("input_shift", "input_scale")
    )
    if shift.ndim != 1 or shift.shape != scale.shape or not np.isfinite([shift, scale]).all():
        raise ValueError("input_shift and input_scale are not one finite number per column each.")
    if not (scale > 0).all():
        raise ValueError("input_scale is not positive.")
    estimator.input_shift_, estimator.input_scale_ = shift, scale
    estimator.n_features_in_ = _typed(metadata, "num_columns", int)
    schema = metadata.get("schema")
    estimator.schema_ = None if schema is None else Schema.from_json(schema)
    if schema is None and estimator.n_features_in_ != len(shift):
        raise ValueError("num_columns is not the number of columns.")
    names = _typed(metadata, "feature_names", list)
    if names:
        wrong = len(names) != estimator.n_features_in_
        if wrong or not all(isinstance(name, str) for name in names):
            raise ValueError("feature_names are not one name per column.")
        estimator.feature_names_in_ = np.asarray(names, dtype=object)
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in _typed(metadata, "settings", dict).items()
    }
    is_crossfit = params["method"] == CROSSFIT
    settings: Any = Recipe(**fields) if is_crossfit else Settings(**fields)
    require_positive("learning_rate", settings.learning_rate)
    require_non_negative("weight_decay", settings.weight_decay)
    _require_same(settings, params, len(shift))
    if is_crossfit:
        _require_groups(settings, saved.posterior)
    is_classifier = settings.is_classifier if is_crossfit else settings.likelihood != "gaussian"
    if is_classifier != estimator._is_classifier():
        kind = "that of a classifier" if is_crossfit else repr(settings.likelihood)
        raise ValueError(f"its likelihood is {kind}.")
    outputs = settings.sizes[-1]
    if is_crossfit and not estimator._is_classifier():
        outputs //= 2  # location and scale of each target
    if estimator._is_classifier():
        classes = np.asarray(_typed(metadata, "classes", list))
        if classes.ndim != 1 or len(classes) < 2 or not np.array_equal(classes, np.unique(classes)):
            raise ValueError("its classes are not different labels in order.")
        estimator.classes_ = classes
        likelihood, count = estimator._head(None)
        same = is_crossfit or likelihood == settings.likelihood
        if not same or outputs != count or saved.target_scale:
            raise ValueError(f"there are {len(classes)} classes, but the network is for another number.")
    elif saved.target_scale is None:
        raise ValueError("there is no target scale.")
    elif any(np.shape(part) not in ((), (outputs,)) for part in saved.target_scale[:2]):
        raise ValueError("there is not one target scale per output.")
    estimator.target_scale_ = saved.target_scale
    estimator._settings = settings
    estimator.algorithm_ = algorithm_for(settings, saved.model)
    estimator.model_, estimator.posterior_ = estimator.algorithm_.model, saved.posterior
    estimator.oof_predictive_ = None  # the training rows are not in the folder
    if (kept := metadata.get("conformity")) is not None:
        estimator._conformity = _conformity(kept, outputs, settings.num_folds)
        estimator._oof_score = _typed(metadata, "oof_score", float)
    if saved.history is not None:
        estimator.history_ = saved.history
    estimator._seed = _typed(metadata, "seed", int)
    estimator._remember(saved.extra, metadata.get("seen"))
    estimator._take_folds(saved.extra)
    return estimator


def _conformity(kept: dict[str, Any], outputs: int, num_folds: int) -> Conformity:
    """The scores for conformal intervals, checked."""
    scores, folds = (np.asarray(kept[name]) for name in Conformity._fields)
    if folds.ndim != 1 or folds.dtype.kind != "i" or not np.isin(folds, np.arange(num_folds)).all():
        raise ValueError("the folds of its scores are not numbered from 0.")
    if scores.dtype.kind != "f" or scores.shape not in (folds.shape, (*folds.shape, outputs)):
        raise ValueError("its scores are not one number per fold.")
    if not (scores >= 0.0).all() or not np.isfinite(scores).all():
        raise ValueError("its scores are negative, NaN or infinite in places.")
    return Conformity(scores, folds)


def _require_same(settings: Any, params: dict[str, Any], num_inputs: int) -> None:
    """Refuse settings that are not those of the params, as far as these say."""
    given = {
        "sizes": params["hidden_layer_sizes"],
        **{name: params[name] for name in ("stochastic", "method", "num_particles")},
    }
    own = settings._asdict() | {"sizes": list(settings.sizes[1:-1])}
    differs = any(own.get(name, value) != value for name, value in given.items() if value is not None)
    if differs or settings.sizes[0] != num_inputs:
        raise ValueError("its settings are of another network than its params.")


def _require_groups(recipe: Recipe, posterior: Posterior) -> None:
    """Refuse a recipe that does not describe the groups and kernel machines of a posterior."""
    for name in ("num_particles", "num_folds"):
        require_positive_int(name, getattr(recipe, name), "it is that of the posterior.")
    machines = posterior.psi.network.get("kernel/weights")
    num_centers = 0 if machines is None else machines.shape[1]
    shape = (recipe.num_folds * recipe.num_views, recipe.num_particles)
    if recipe.num_centers != num_centers or posterior.particles.log_weights.shape != shape:
        raise ValueError("its settings are of other groups than its posterior.")


def _typed(fields: dict[str, Any], name: str, kind: type) -> Any:
    """A field of a kind."""
    if not isinstance(fields.get(name), kind):
        raise ValueError(f"{name!r} is not what was written there.")
    return fields[name]
