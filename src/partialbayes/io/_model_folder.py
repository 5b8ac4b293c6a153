"""A trained model as a folder: safetensors for the numbers, JSON for the rest, nothing to execute.

    model.json              what the model is made of, the library's version, your own notes
    arrays.safetensors      ψ, the particles and their weights, the masks of φ, the history

The folder is written under another name and renamed, so it is there whole or not at all; the second
file holds the checksums of both.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from partialbayes._utils import recipes
from partialbayes._utils.checks import require_instance
from partialbayes.errors import CheckpointError
from partialbayes.io._pytree_file import read_file, save_tree
from partialbayes.model._partial_bnn import partial_bnn
from partialbayes.prediction._target_scale import TargetScale
from partialbayes.subsets._select import mask
from partialbayes.types import History, Likelihood, Model, Network, Particles, Posterior, PriorBuilder

DESCRIPTION = "model.json"
ARRAYS = "arrays.safetensors"
FORMAT = "partialbayes model"
VERSION = 2


class Saved(NamedTuple):
    """What `load` gives back.

    Attributes:
        model: The model, ready for `predict` or more training.
        posterior: ψ and the particles, to the same bits.
        history: What happened in training; None if it was not saved.
        target_scale: How targets were standardized; None if they were not.
        metadata: Your own notes.
    """

    model: Model
    posterior: Posterior
    history: History | None
    target_scale: TargetScale | None
    metadata: dict[str, Any]


def save(
    path: str | Path,
    model: Model,
    posterior: Posterior,
    *,
    history: History | None = None,
    target_scale: TargetScale | None = None,
    metadata: dict[str, Any] | None = None,
    overwrite: bool = False,
) -> None:
    """Write a trained model to a folder.

    Args:
        path: The folder to make. It appears whole or not at all.
        model: The model that was trained.
        posterior: From `fit`.
        history: ``trained.history``, to keep it too.
        target_scale: How the training targets were standardized, if they were.
        metadata: Anything JSON can hold, given back by `load`.
        overwrite: Whether to replace a model that is there already.

    Raises:
        CheckpointError: There is something at ``path`` already, or the disk refused.

    Example:
        >>> import tempfile, jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.gaussian())
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> trained = pb.fit(pb.map_estimate(model), (x, x), epochs=2, progress=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pb.save(folder + "/model", model, trained.posterior, metadata={"data": "a line"})
        ...     saved = pb.load(folder + "/model")
        >>> saved.metadata
        {'data': 'a line'}
    """
    require_instance("model", model, Model, "pass the model, then its posterior.")
    require_instance("posterior", posterior, Posterior, "pass trained.posterior.")
    weights = _weight_masks(model)
    description = {
        "format": FORMAT,
        "version": VERSION,
        "made_by": f"partialbayes {version('partialbayes')}",
        "recipes": {
            name: recipe and json.loads(recipe) for name, recipe in model.recipes._asdict().items()
        },
        "stochastic": {path: int(chosen.sum()) for path, chosen in weights.items() if chosen.any()},
        "num_particles": posterior.num_particles,
        "best_step": None if history is None else history.best_step,
        "metadata": metadata or {},
    }
    try:
        text = json.dumps(description, indent=1, ensure_ascii=False)
    except TypeError as error:
        raise ValueError(f"metadata must be something that JSON can hold; {error}.") from None
    tree = {
        "posterior": posterior,
        "masks": {path: chosen for path, chosen in weights.items() if chosen.any()},
        "history": {}
        if history is None
        else history._asdict() | {"best_step": np.int64(history.best_step)},
        "target_scale": {} if target_scale is None else jax.tree.map(np.asarray, target_scale._asdict()),
    }
    with new_folder(path, overwrite=overwrite) as temporary:
        (temporary / DESCRIPTION).write_text(text, encoding="utf-8")
        save_tree(temporary / ARRAYS, tree, {"description": _digest(text)})


def load(
    path: str | Path,
    *,
    network: Network | None = None,
    likelihood: Likelihood | None = None,
    prior: PriorBuilder | None = None,
) -> Saved:
    """Read a trained model from a folder.

    Args:
        path: The folder that `save` wrote.
        network: The network, if it is not one of this library's own; one that is passed is used
            in any case.
        likelihood: The same for the likelihood.
        prior: The same for the prior.

    Raises:
        CheckpointError: The folder is missing, damaged, altered, of something else or of a newer
            version; something must be passed in; or the network passed in does not fit: the
            message names the first weight that differs.

    Example:
        >>> import tempfile, jax.numpy as jnp, partialbayes as pb
        >>> params = {"trunk": jnp.ones((2, 3)), "head": jnp.ones((3, 1))}
        >>> network = pb.from_params(params, lambda p, x: jnp.tanh(x @ p["trunk"]) @ p["head"])
        >>> model = pb.partial_bnn(network, "head", pb.gaussian())
        >>> data = (jnp.ones((4, 2)), jnp.ones(4))
        >>> trained = pb.fit(pb.map_estimate(model), data, epochs=2, progress=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pb.save(folder + "/model", model, trained.posterior)
        ...     saved = pb.load(folder + "/model", network=network)
        >>> saved.model.split.dim
        3
    """
    folder = Path(path)
    description = read_description(folder)
    arrays, checks = read_file(folder / ARRAYS)
    if checks.get("description") != _digest((folder / DESCRIPTION).read_text(encoding="utf-8")):
        raise CheckpointError(
            f"{folder / DESCRIPTION} has been altered: its checksum does not match that in {ARRAYS}."
        )
    passed = {"network": network, "likelihood": likelihood, "prior": prior}
    parts = {
        name: _part(folder, name, value, description["recipes"].get(name))
        for name, value in passed.items()
    }
    masks = _under(arrays, "masks")
    _require_random_weights(folder, parts["network"], masks)
    model = partial_bnn(parts["network"], mask(masks), parts["likelihood"], parts["prior"])
    history = _under(arrays, "history")
    target_scale = _under(arrays, "target_scale")
    return Saved(
        model=model,
        posterior=_posterior(folder, model, _under(arrays, "posterior")),
        history=_history(history) if history else None,
        target_scale=TargetScale(**target_scale) if target_scale else None,
        metadata=description["metadata"],
    )


@contextmanager
def new_folder(folder: str | Path, *, overwrite: bool) -> Iterator[Path]:
    """A folder to fill, which takes its name only when the block ends well."""
    folder = Path(folder)
    require_free(folder, overwrite=overwrite, remedy="overwrite=True")
    temporary = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        yield temporary
        if folder.exists():
            # A folder cannot be renamed over another: the old one steps aside first.
            aside = temporary.with_name(temporary.name + ".old")
            os.replace(folder, aside)
            os.replace(temporary, folder)
            shutil.rmtree(aside, ignore_errors=True)
        else:
            os.replace(temporary, folder)
    except OSError as error:
        raise CheckpointError(
            f"the model could not be written to {folder} ({error.strerror or error}); nothing was "
            "changed. Free some space or choose another folder."
        ) from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def require_free(folder: Path, *, overwrite: bool, remedy: str) -> None:
    """Refuse a folder that holds something, unless it is a model that may be replaced."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not overwrite:
        raise CheckpointError(
            f"there is something at {folder} already; remove it, choose another name, or pass {remedy}."
        )
    if not (folder / DESCRIPTION).is_file():
        raise CheckpointError(f"{folder} is not a saved model, so it is not overwritten.")


def read_description(folder: Path) -> dict[str, Any]:
    """What the JSON file of a folder says, after checks of its format and version."""
    path = folder / DESCRIPTION
    if not path.is_file():
        kind = "is not a saved model" if folder.exists() else "does not exist"
        raise CheckpointError(f"{folder} {kind}: there is no {DESCRIPTION} in it.")
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} is not readable as JSON ({error}); it may be truncated."
        ) from None
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise CheckpointError(f"{path} is not the description of a partialbayes model.")
    version = description.get("version")
    if version != VERSION:
        older = isinstance(version, int) and version < VERSION
        remedy = "train and save it again" if older else "update partialbayes"
        raise CheckpointError(
            f"{folder} has version {version!r}, but this library reads version {VERSION}; {remedy}."
        )
    return description


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _weight_masks(model: Model) -> dict[str, Any]:
    """Which weights of the network are random; the likelihood's latents follow from it."""
    latents = {f"likelihood/{latent.name}" for latent in model.likelihood.latents}
    pairs = zip(model.split.leaves, model.split.masks, strict=True)
    return {leaf.path: chosen for leaf, chosen in pairs if leaf.path not in latents}


def _part(folder: Path, name: str, passed: Any, recipe: Any) -> Any:
    """The network, likelihood or prior: passed in, or made again from its recipe."""
    if passed is not None:
        return passed
    if recipe is None:
        raise CheckpointError(
            f"the {name} of {folder} is not one of this library's own: pass it in, "
            f"load(folder, {name}=...)."
        )
    try:
        return recipes.make(json.dumps(recipe))
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"the {name} of {folder} cannot be made again: {error}") from None


def _under(arrays: dict[str, Any], prefix: str) -> dict[str, Any]:
    start = prefix + "/"
    return {name[len(start) :]: array for name, array in arrays.items() if name.startswith(start)}


def _require_random_weights(folder: Path, network: Network, masks: dict[str, Any]) -> None:
    """Refuse a network whose random weights are not those that were saved, naming the first."""
    own = {name: leaf.shape for name, leaf in _named(jax.eval_shape(network.init, jax.random.key(0)))}
    for path, chosen in masks.items():
        if path not in own:
            raise CheckpointError(
                f"{folder} holds the random weight {path!r}, but the network has none of that name."
            )
        if own[path] != chosen.shape:
            raise CheckpointError(
                f"the weight {path!r} has shape {chosen.shape} in {folder}, but {own[path]} in the "
                "network."
            )


def _named(tree: PyTree) -> list[tuple[str, Any]]:
    with_paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [(jax.tree_util.keystr(path, simple=True, separator="/"), leaf) for path, leaf in with_paths]


def _posterior(folder: Path, model: Model, arrays: dict[str, Any]) -> Posterior:
    particles = Particles(arrays["particles/values"], arrays["particles/log_weights"])
    members = particles.log_weights.shape[:-1]
    like = jax.eval_shape(lambda key: model.init(key).psi, jax.random.key(0))
    named = {f"psi/{name}": leaf for name, leaf in _named(like)}
    saved = {name: array for name, array in arrays.items() if name.startswith("psi/")}
    for name in [*named, *saved]:
        weight = name.removeprefix("psi/").removeprefix("network/")
        if name not in saved:
            raise CheckpointError(f"{folder} holds no weight {weight!r}, which the model has.")
        if name not in named:
            raise CheckpointError(
                f"{folder} holds the weight {weight!r}, which the model does not have."
            )
        shape, wanted = saved[name].shape, (*members, *named[name].shape)
        if (shape, saved[name].dtype) != (wanted, named[name].dtype):
            raise CheckpointError(
                f"the weight {weight!r} is {saved[name].dtype}{list(shape)} in {folder}, but "
                f"{named[name].dtype}{list(wanted)} in the model."
            )
    if particles.values.shape[-1] != model.split.dim:
        raise CheckpointError(
            f"the particles in {folder} have {particles.values.shape[-1]} numbers each, but φ of the "
            f"model has {model.split.dim}: another likelihood."
        )
    psi = jax.tree.unflatten(jax.tree.structure(like), [jnp.asarray(saved[name]) for name in named])
    return Posterior(psi, jax.tree.map(jnp.asarray, particles))


def _history(arrays: dict[str, Any]) -> History:
    return History(
        metrics=_under(arrays, "metrics"),
        eval_steps=arrays["eval_steps"],
        validation_nlpd=arrays["validation_nlpd"],
        best_step=int(arrays["best_step"]),
    )
