"""What the figures are drawn from: small arrays, kept beside the tables so that pictures can be redrawn.

Where a field is a dictionary, it goes by the name of the method.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float, Int

from partialbayes._utils.atomic import write_atomically
from partialbayes.metrics._common import AnyArray


class Traces(NamedTuple):
    """Estimates of ψ of the crescent.

    Attributes:
        psi: At equally spaced steps of training.
        best: The maximizer of the evidence on the same data, ``Crescent.best_psi()``.
    """

    psi: dict[str, Float[AnyArray, " step"]]
    best: float


class Clouds(NamedTuple):
    """The posterior of the crescent.

    Attributes:
        first: Values of φ₀ of the grid.
        second: Values of φ₁ of the grid.
        density: On the grid, up to a factor: the exponential of ``Crescent.log_density``.
        samples: Draws of equal weight.
    """

    first: Float[AnyArray, " across"]
    second: Float[AnyArray, " up"]
    density: Float[AnyArray, "up across"]
    samples: dict[str, Float[AnyArray, "sample 2"]]


class Flow(NamedTuple):
    """How the particles of the crescent moved.

    Attributes:
        epochs: When they were looked at.
        psi: ψ then.
        particles: Draws of equal weight, then.
    """

    epochs: Int[AnyArray, " look"]
    psi: Float[AnyArray, " look"]
    particles: Float[AnyArray, "look sample 2"]


class Curves(NamedTuple):
    """One run of the synthetic regression.

    Attributes:
        grid: Inputs, in order.
        truth: The function there.
        samples: What single particles predict there.
        test_inputs: Of the test data.
        test_targets: Of the test data.
    """

    grid: Float[AnyArray, " point"]
    truth: Float[AnyArray, " point"]
    samples: dict[str, Float[AnyArray, "sample point"]]
    test_inputs: Float[AnyArray, " row"]
    test_targets: Float[AnyArray, " row"]


class Boundaries(NamedTuple):
    """One run of the two moons.

    Attributes:
        across: First coordinate of the grid.
        up: Second coordinate of the grid.
        samples: Probability of class one by single particles on the grid; half precision will do.
        test_inputs: Of the test data.
        test_labels: Of the test data.
    """

    across: Float[AnyArray, " across"]
    up: Float[AnyArray, " up"]
    samples: dict[str, Float[AnyArray, "sample up across"]]
    test_inputs: Float[AnyArray, "row 2"]
    test_labels: Int[AnyArray, " row"]


class Novelty(NamedTuple):
    """Mutual information of predictions on images that are, and are not, of the kind trained on.

    Attributes:
        known: On MNIST's test images.
        unknown: On Fashion-MNIST's.
    """

    known: dict[str, Float[AnyArray, " image"]]
    unknown: dict[str, Float[AnyArray, " other"]]


Record: TypeAlias = Traces | Clouds | Flow | Curves | Boundaries | Novelty
_KINDS: dict[str, Any] = {
    kind.__name__: kind for kind in (Traces, Clouds, Flow, Curves, Boundaries, Novelty)
}


def save_figure_data(path: Path, records: Mapping[str, Sequence[Record]]) -> None:
    """Write records to an ``.npz`` file, whole or not at all.

    Args:
        path: The file, such as ``figures.npz`` beside the tables.
        records: By a name, several of one kind each, such as runs of several seeds.

    Example:
        >>> import pathlib, tempfile, numpy as np
        >>> from reproduction.figures.records import Traces, load_figure_data, save_figure_data
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "figures.npz"
        >>> save_figure_data(path, {"traces": [Traces({"OHSMC": np.ones(3)}, 0.9)]})
        >>> load_figure_data(path)["traces"][0].psi["OHSMC"]
        array([1., 1., 1.])
    """
    arrays: dict[str, Any] = {}
    for name, several in records.items():
        for index, record in enumerate(several):
            for field, value in record._asdict().items():
                place = f"{name}/{index}/{type(record).__name__}/{field}"
                if isinstance(value, dict):
                    arrays |= {f"{place}/{key}": np.asarray(part) for key, part in value.items()}
                else:
                    arrays[place] = np.asarray(value)
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    write_atomically(path, content.getvalue(), mode=0o644)


def load_figure_data(path: Path) -> dict[str, list[Any]]:
    """The records of a file that `save_figure_data` wrote.

    Args:
        path: The file.
    """
    fields: dict[tuple[str, int, str], dict[str, Any]] = {}
    with np.load(path, allow_pickle=False) as stored:
        for key in stored.files:
            name, index, kind, field, *method = key.split("/", 4)
            values = fields.setdefault((name, int(index), kind), {})
            if method:
                values.setdefault(field, {})[method[0]] = stored[key]
            else:
                values[field] = stored[key] if stored[key].ndim else stored[key].item()
    found: dict[str, list[Any]] = {}
    for (name, _, kind), values in fields.items():  # in the order they were written
        found.setdefault(name, []).append(_KINDS[kind](**values))
    return found
