"""Estimators that last: copied between processes, saved, loaded and exported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from partialbayes.estimators._build import Settings, build_algorithm
from partialbayes.io._export import export
from partialbayes.io._model_folder import load, save


class PersistentEstimator(BaseEstimator):  # type: ignore[misc]
    """An estimator whose functions are built again from its settings, and whose numbers are kept."""

    def __getstate__(self) -> dict[str, Any]:
        """For copies between processes (``n_jobs``): functions stay behind and are built again."""
        state = dict(super().__getstate__())
        for name in ("algorithm_", "model_"):
            state.pop(name, None)
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
        check_is_fitted(self, "posterior_")
        params = self.get_params()
        params["random_state"] = self.random_state if isinstance(self.random_state, int) else None
        params["hidden_layer_sizes"] = [int(size) for size in self.hidden_layer_sizes]
        for name in ("method", "stochastic"):
            if not isinstance(params[name], str):
                raise ValueError(
                    f"{name} is not a name, so it cannot be written down; save the model itself by "
                    "pb.save(path, estimator.model_, estimator.posterior_)."
                )
        classes = getattr(self, "classes_", None)
        metadata = {
            "estimator": type(self).__name__,
            "params": params,
            "settings": self._settings._asdict(),
            "input_shift": self.input_shift_.tolist(),
            "input_scale": self.input_scale_.tolist(),
            "feature_names": getattr(self, "feature_names_in_", np.zeros(0)).tolist(),
            "classes": None if classes is None else classes.tolist(),
            "notes": notes,
        }
        save(
            path,
            self.model_,
            self.posterior_,
            history=getattr(self, "history_", None),
            target_scale=self.target_scale_,
            metadata=metadata,
            overwrite=overwrite,
        )

    @classmethod
    def load(cls, path: str | Path) -> Any:
        """Read an estimator that `save` wrote, ready to predict or to go on by `partial_fit`."""
        saved = load(path)
        metadata = saved.metadata
        if metadata.get("estimator") != cls.__name__:
            raise ValueError(
                f"{path} holds a {metadata.get('estimator') or 'model'}, not a {cls.__name__}."
            )
        estimator = cls(**metadata["params"])
        estimator.input_shift_ = np.asarray(metadata["input_shift"])
        estimator.input_scale_ = np.asarray(metadata["input_scale"])
        estimator.n_features_in_ = len(estimator.input_shift_)
        if metadata["feature_names"]:
            estimator.feature_names_in_ = np.asarray(metadata["feature_names"], dtype=object)
        if metadata["classes"] is not None:
            estimator.classes_ = np.asarray(metadata["classes"])
        estimator.target_scale_ = saved.target_scale
        settings = metadata["settings"]
        estimator._settings = Settings(**{**settings, "sizes": tuple(settings["sizes"])})
        estimator.algorithm_ = build_algorithm(estimator._settings)
        estimator.model_, estimator.posterior_ = estimator.algorithm_.model, saved.posterior
        if saved.history is not None:
            estimator.history_ = saved.history
        estimator._seed, estimator._recent, estimator._online = 0, None, None
        return estimator

    def export(self, path: str | Path) -> None:
        """Write a predictor for raw rows that runs with JAX alone; see `partialbayes.export`."""
        check_is_fitted(self, "posterior_")
        shift, scale = (
            jnp.asarray(part, jnp.float32)[None] for part in (self.input_shift_, self.input_scale_)
        )
        example = np.zeros((1, self.n_features_in_), np.float32)
        export(
            path,
            self.model_,
            self.posterior_,
            example,
            target_scale=self.target_scale_,
            prepare=lambda inputs: (inputs - shift) / scale,
        )
