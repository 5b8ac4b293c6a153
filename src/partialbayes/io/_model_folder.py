"""Save a trained model as a folder: safetensors for arrays, JSON for the rest, no executable code.

    model.json              the parts of the model, the library's version, the user's metadata
    arrays.safetensors      ψ, the particles and their weights, the masks of φ, the history

The second file holds the checksums of both. A new folder is written atomically: under a temporary name,
then renamed. A model that replaces another is written into the same folder. Its arrays get the other of
two file names, and then a new ``model.json``, which names the valid arrays, is renamed over the old one.
If the process is killed at any time, one of the two models is intact.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from partialbayes._utils.atomic import (
    flush_folder,
    hold_lock,
    is_unfinished,
    require_writable,
    umask,
    unfinished_folder,
    write_atomically,
)
from partialbayes._utils.checks import require_instance
from partialbayes._utils.forks import require_not_forked
from partialbayes.errors import CheckpointError
from partialbayes.io._parts import (
    history_of,
    is_reordered,
    part_of,
    posterior_of,
    require_sound,
    require_weights,
    target_scale_of,
    under,
    with_frozen,
)
from partialbayes.io._pytree_file import read_file, save_tree
from partialbayes.model._partial_bnn import partial_bnn
from partialbayes.prediction._predict import as_posterior
from partialbayes.prediction._target_scale import TargetScale
from partialbayes.results import Fit, History
from partialbayes.subsets._select import glob, mask
from partialbayes.types import Likelihood, Model, Network, Posterior, PriorBuilder

DESCRIPTION = "model.json"
ARRAYS = ("arrays.safetensors", "arrays.2.safetensors")
FORMAT = "partialbayes model"
VERSION = 4
_FLATTENED = 3  # the version in which φ was in the order of flattening


class Saved(NamedTuple):
    """A saved model, as `load` returns it.

    Attributes:
        model: The model, ready for `predict` or more training.
        posterior: ψ and the particles, bit for bit as saved.
        history: The training history; None if it was not saved.
        target_scale: The scaling of the targets; None if they were not standardized.
        metadata: The ``metadata`` passed to `save`.
        extra: The ``extra`` arrays passed to `save`, by path.
    """

    model: Model
    posterior: Posterior
    history: History | None
    target_scale: TargetScale | None
    metadata: dict[str, Any]
    extra: dict[str, Any]


def save(
    path: str | Path,
    model: Model,
    posterior: Posterior | Fit,
    *,
    history: History | None = None,
    target_scale: TargetScale | None = None,
    metadata: dict[str, Any] | None = None,
    extra: PyTree = None,
    overwrite: bool = False,
) -> None:
    """Write a trained model to a folder.

    Args:
        path: The folder to create. It is written atomically.
        model: The trained model.
        posterior: The result of `fit`, or its posterior.
        history: The training history to store. Defaults to that of a `Fit`.
        target_scale: The scaling of the training targets, if they were standardized.
        metadata: A dictionary of JSON values to store.
        extra: A pytree of arrays to store. `load` returns them by path.
        overwrite: Whether to replace an existing model. The old model stays intact until the new one
            is complete. A folder that contains other files is never overwritten.

    Raises:
        CheckpointError: ``path`` already exists, the posterior is NaN or infinite, or the folder could
            not be written.

    Example:
        >>> import tempfile, jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.gaussian())
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> trained = pb.fit(pb.map_estimate(model), (x, x), epochs=2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pb.save(folder + "/model", model, trained.posterior, metadata={"data": "a line"})
        ...     saved = pb.load(folder + "/model")
        >>> saved.metadata
        {'data': 'a line'}
    """
    require_not_forked()
    require_instance("model", model, Model, "pass the model, then its posterior.")
    if isinstance(posterior, Fit) and history is None:
        history = posterior.history
    posterior = as_posterior(posterior)
    require_sound(posterior, "the posterior")
    weights = _weight_masks(model)
    description = {
        "format": FORMAT,
        "version": VERSION,
        "arrays": ARRAYS[0],
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
        json.dumps(description)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"metadata must contain only JSON values: {error}.") from None
    tree = {
        "posterior": posterior,
        "masks": {path: chosen for path, chosen in weights.items() if chosen.any()},
        "history": _as_arrays(history)
        | ({} if history is None else {"departure": _as_arrays(history.departure)}),
        "frozen": dict(model.split.frozen),
        "target_scale": _as_arrays(target_scale),
        "extra": extra,
    }

    def write(folder: Path, arrays: str) -> None:
        """Write the arrays, then the description that refers to them."""
        text = json.dumps(description | {"arrays": arrays}, indent=1, ensure_ascii=False)
        save_tree(folder / arrays, tree, {"description": _digest(text)})
        # The umask decides who may read a model, as for any other file.
        (folder / arrays).chmod(0o666 & ~umask())
        write_atomically(folder / DESCRIPTION, text.encode(), mode=0o666)

    _write(Path(path), write, overwrite=overwrite)


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
        network: A network to use instead of the saved one. Required if the network was not built by
            this library.
        likelihood: A likelihood to use instead of the saved one. Required if it was not built by this
            library.
        prior: A prior to use instead of the saved one. Required if it was not built by this library.

    Returns:
        The model, its posterior, and everything else that was saved.

    Raises:
        CheckpointError: The folder is missing, damaged, altered, not a model or of a newer version; a
            part must be passed; or the passed network does not fit. The message names the first
            weight that differs.

    Example:
        >>> import tempfile, jax.numpy as jnp, partialbayes as pb
        >>> params = {"trunk": jnp.ones((2, 3)), "head": jnp.ones((3, 1))}
        >>> network = pb.from_params(params, lambda p, x: jnp.tanh(x @ p["trunk"]) @ p["head"])
        >>> model = pb.partial_bnn(network, "head", pb.gaussian())
        >>> data = (jnp.ones((4, 2)), jnp.ones(4))
        >>> trained = pb.fit(pb.map_estimate(model), data, epochs=2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pb.save(folder + "/model", model, trained.posterior)
        ...     saved = pb.load(folder + "/model", network=network)
        >>> saved.model.split.dim
        3
    """
    require_not_forked()
    folder = Path(path)
    description, arrays = _read(folder)
    passed = {"network": network, "likelihood": likelihood, "prior": prior}
    parts = {
        name: part_of(folder, name, value, description["recipes"].get(name))
        for name, value in passed.items()
    }
    masks, frozen = under(arrays, "masks"), under(arrays, "frozen")
    require_weights(folder, parts["network"], masks, frozen, under(arrays, "posterior"))
    try:
        model = partial_bnn(
            with_frozen(parts["network"], masks, frozen),
            mask(masks),
            parts["likelihood"],
            parts["prior"],
            freeze=glob(*frozen) if frozen else None,
        )
        jax.eval_shape(model.init, jax.random.key(0))
    except Exception as error:  # whatever a part raises, the file is the cause
        raise CheckpointError(
            f"the model in {folder} cannot be rebuilt: {type(error).__name__}: {error}"
        ) from error
    if description["version"] == _FLATTENED and is_reordered(parts["network"], model):
        raise CheckpointError(
            f"{folder} has version {_FLATTENED}, in which the order of the random weights of this "
            "network was different; train and save it again."
        )
    posterior = posterior_of(folder, model, under(arrays, "posterior"))
    if description["num_particles"] != posterior.num_particles:
        raise CheckpointError(
            f"{folder} holds {posterior.num_particles} particles, but {DESCRIPTION} has "
            f"num_particles={description['num_particles']!r}."
        )
    return Saved(
        model=model,
        posterior=posterior,
        history=history_of(folder, under(arrays, "history")),
        target_scale=target_scale_of(folder, under(arrays, "target_scale")),
        metadata=description["metadata"],
        extra=under(arrays, "extra"),
    )


def _as_arrays(record: Any) -> dict[str, Any]:
    """Convert a NamedTuple to a dictionary of arrays; None is empty."""
    return {} if record is None else jax.tree.map(np.asarray, record._asdict())


def _write(folder: Path, write: Callable[[Path, str], None], *, overwrite: bool) -> None:
    """Write a model to a new folder, or replace the model in an existing one."""
    target = Path(os.path.realpath(folder))  # a link to a folder stays a link
    try:
        require_free(target, overwrite=overwrite, remedy="overwrite=True")
        if not _holds_something(target):
            with unfinished_folder(target) as temporary:
                write(temporary, ARRAYS[0])
                temporary.chmod(0o777 & ~umask())
                try:
                    os.replace(temporary, target)
                except OSError as error:
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                        raise
                else:
                    flush_folder(target.parent)
                    return
            # Another thread or process was faster.
            require_free(target, overwrite=overwrite, remedy="overwrite=True")
        with hold_lock(target):
            used = _parsed(target).get("arrays")
            unused = ARRAYS[1] if used == ARRAYS[0] else ARRAYS[0]
            try:
                write(target, unused)
            except BaseException:
                if _parsed(target).get("arrays") == used:
                    (target / unused).unlink(missing_ok=True)
                raise
            for name in {*ARRAYS} - {unused}:
                with suppress(OSError):
                    (target / name).unlink(missing_ok=True)
    except (OSError, CheckpointError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError):
            raise
        raise CheckpointError(
            f"the model could not be written to {folder} ({cause.strerror or cause}); nothing was "
            "changed. Free some space or choose another folder."
        ) from cause


def require_free(folder: Path, *, overwrite: bool, remedy: str) -> None:
    """Refuse a folder that cannot be written, or that contains anything but a model to replace."""
    try:
        require_writable(folder)
    except OSError as error:
        raise CheckpointError(
            f"{folder} cannot be written ({error.strerror}); choose another folder."
        ) from None
    if not _holds_something(folder):
        return
    if not overwrite:
        raise CheckpointError(
            f"{folder} exists already; remove it, choose another name, or pass {remedy}."
        )
    if not folder.is_dir() or _parsed(folder).get("format") != FORMAT:
        raise CheckpointError(f"{folder} is not a saved model, so it is not overwritten.")
    ours = (DESCRIPTION, *ARRAYS)
    for entry in sorted(folder.iterdir()):
        if entry.name not in ours and not any(is_unfinished(folder / own, entry.name) for own in ours):
            raise CheckpointError(
                f"{folder} holds {entry.name!r} beside the model, so it is not overwritten; move that "
                "file, or choose another folder."
            )


def _holds_something(folder: Path) -> bool:
    return folder.exists() and not (folder.is_dir() and not any(folder.iterdir()))


def _parsed(folder: Path) -> dict[str, Any]:
    """Read the description in a folder without checks; return {} if it cannot be read."""
    try:
        description = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return description if isinstance(description, dict) else {}


def read_description(folder: Path) -> dict[str, Any]:
    """Read the JSON description of a folder, and check its format and version."""
    return _described(folder, _text(folder))


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the description and the arrays of a folder, and check that they belong together."""
    text = _text(folder)
    try:
        description = _described(folder, text)
        arrays, checks = read_file(folder / description["arrays"])
        if checks.get("description") != _digest(text):
            raise CheckpointError(
                f"{folder / DESCRIPTION} has been altered: its checksum does not match that in "
                f"{description['arrays']}."
            )
    except CheckpointError:
        if _text(folder) != text:  # replaced while it was read
            return _read(folder)
        raise
    return description, arrays


def _text(folder: Path) -> str:
    path = folder / DESCRIPTION
    if not os.path.isfile(path):
        kind = "is not a saved model" if os.path.exists(folder) else "does not exist"
        raise CheckpointError(f"{folder} {kind}: there is no {DESCRIPTION} in it.")
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} is not readable as text ({error}).") from None


def _described(folder: Path, text: str) -> dict[str, Any]:
    path = folder / DESCRIPTION
    try:
        description = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path} is not readable as JSON ({error}); it may be truncated."
        ) from None
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise CheckpointError(f"{path} is not the description of a partialbayes model.")
    version = description.get("version")
    if version not in (_FLATTENED, VERSION):
        older = isinstance(version, int) and version < VERSION
        remedy = "train and save it again" if older else "update partialbayes"
        raise CheckpointError(
            f"{folder} has version {version!r:.40}, but this library reads version {VERSION}; {remedy}."
        )
    wanted = {"recipes": dict, "num_particles": int, "metadata": dict, "arrays": str}
    for name, kind in wanted.items():
        if not isinstance(description.get(name), kind):
            raise CheckpointError(f"{path} has been altered: {name!r} is missing or of the wrong type.")
    if description["arrays"] not in ARRAYS:
        raise CheckpointError(f"{path} has been altered: it names no file of arrays.")
    return description


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _weight_masks(model: Model) -> dict[str, Any]:
    """Return masks of the network's random weights, without the latents of the likelihood."""
    latents = {f"likelihood/{latent.name}" for latent in model.likelihood.latents}
    pairs = zip(model.split.leaves, model.split.masks, strict=True)
    return {leaf.path: chosen for leaf, chosen in pairs if leaf.path not in latents}
