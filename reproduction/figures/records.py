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
        epochs: When they were seen.
        psi: ψ then.
        particles: Draws of equal weight, then.
    """

    epochs: Int[AnyArray, " time"]
    psi: Float[AnyArray, " time"]
    particles: Float[AnyArray, "time sample 2"]


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


FIGURE_DATA = "figures.npz"
"""The file of records, beside the tables."""


def save_records(path: Path, records: Mapping[str, Mapping[int, Record]]) -> None:
    """Write records to an ``.npz`` file, atomically.

    Args:
        path: The file.
        records: By name, then by the number of the run.

    Example:
        >>> import pathlib, tempfile, numpy as np
        >>> from reproduction.figures.records import Traces, load_records, save_records
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "figures.npz"
        >>> save_records(path, {"traces": {0: Traces({"OHSMC": np.ones(3)}, 0.9)}})
        >>> load_records(path)["traces"][0].psi["OHSMC"]
        array([1., 1., 1.])
    """
    arrays: dict[str, Any] = {}
    for name, runs in records.items():
        for run, record in runs.items():
            for field, value in record._asdict().items():
                place = f"{name}/{run}/{type(record).__name__}/{field}"
                if isinstance(value, dict):
                    arrays |= {f"{place}/{method}": np.asarray(part) for method, part in value.items()}
                else:
                    arrays[place] = np.asarray(value)
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    write_atomically(path, content.getvalue(), mode=0o644)


def load_records(path: Path) -> dict[str, dict[int, Any]]:
    """Read what `save_records` wrote; nothing where there is no file.

    Args:
        path: The file.

    Returns:
        Records by name, then by the number of the run, in order.
    """
    fields: dict[tuple[str, int, str], dict[str, Any]] = {}
    if not path.exists():
        return {}
    with np.load(path, allow_pickle=False) as stored:
        for key in stored.files:
            name, run, kind, field, *method = key.split("/", 4)
            values = fields.setdefault((name, int(run), kind), {})
            if method:
                values.setdefault(field, {})[method[0]] = stored[key]
            else:
                values[field] = stored[key] if stored[key].ndim else stored[key].item()
    found: dict[str, dict[int, Any]] = {name: {} for name, *_ in fields}
    for (name, run, kind), values in sorted(fields.items(), key=lambda item: item[0][1]):
        found[name][run] = _KINDS[kind](**values)
    return found


def add_records(path: Path, run: int, records: Mapping[str, Record], order: Sequence[str]) -> None:
    """Add the records of one run, of one method or several, to those in a file.

    Args:
        path: The file.
        run: Its number.
        records: By name.
        order: The methods in the order of the table, which the panels are to have.
    """
    found = load_records(path)
    for name, record in records.items():
        before = found.setdefault(name, {}).get(run)
        fields = record._asdict()
        for field, value in fields.items():
            if isinstance(value, dict):
                both = (getattr(before, field) if before else {}) | value
                fields[field] = {method: both[method] for method in order if method in both}
        found[name][run] = type(record)(**fields)
    save_records(path, {name: dict(sorted(runs.items())) for name, runs in found.items()})
