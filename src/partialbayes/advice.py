"""What came of trying which weights should be random: a table, and the rule that picks from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from partialbayes.subsets import Subset

MAP = "none (MAP)"


class Candidate(NamedTuple):
    """What came of one subset.

    Attributes:
        name: What it is called.
        subset: The weights, for `partial_bnn`; None where no weight was random.
        dim: How many weights.
        nlpd: Negative log predictive density on the held-out rows; lower is better.
        standard_error: Of it, over the held-out rows.
        behind: How far its NLPD is above that of the best candidate.
        behind_error: Standard error of that difference, row by row.
        log_evidence: Of the training rows at the trained ψ, from an exact posterior as in `refine`;
            NaN for MAP, and where it was not reached.
        seconds: What it took here: its share of the training, and its own exact posterior.

    Example:
        >>> import partialbayes as pb
        >>> pb.Candidate("biases", pb.subsets.biases(), 31, 1.2, 0.1, 0.0, 0.0, -99.0, 3.0).dim
        31
    """

    name: str
    subset: Subset | None
    dim: int
    nlpd: float
    standard_error: float
    behind: float
    behind_error: float
    log_evidence: float
    seconds: float


class Advice(NamedTuple):
    """What `advise` found; printing it gives a Markdown table.

    Attributes:
        rows: Every candidate, the best NLPD first, and MAP for comparison.
        recommended: The candidate with the fewest weights whose NLPD is within one standard error
            of the best, difference taken row by row.

    Example:
        >>> import partialbayes as pb
        >>> row = pb.Candidate("biases", pb.subsets.biases(), 31, 1.2, 0.1, 0.0, 0.0, -99.0, 3.0)
        >>> pb.Advice((row,), row).recommended.name
        'biases'
    """

    rows: tuple[Candidate, ...]
    recommended: Candidate

    def __str__(self) -> str:
        lines = [
            "| random weights | d | held-out NLPD | behind the best | log evidence | seconds |",
            "| --- | ---: | ---: | ---: | ---: | ---: |",
        ]
        for row in self.rows:
            name = f"**{row.name}**" if row is self.recommended else row.name
            evidence = f"{row.log_evidence:.1f}" if np.isfinite(row.log_evidence) else "–"
            lines.append(
                f"| {name} | {row.dim} | {row.nlpd:.4f} ± {row.standard_error:.4f} "
                f"| {row.behind:+.4f} ± {row.behind_error:.4f} | {evidence} | {row.seconds:.1f} |"
            )
        fewest = f"{self.recommended.name}: the fewest weights within one standard error of the best."
        (alone,) = (row for row in self.rows if row.subset is None)
        if alone.behind <= alone.behind_error:
            fewest += " MAP, with no random weight at all, is within it too."
        return "\n".join([*lines, "", f"Recommended: {fewest}"])


def compared(
    named: Sequence[tuple[str, Subset | None, int]],
    losses: Float[np.ndarray, "candidate example"],
    evidences: Sequence[float],
    seconds: Sequence[float],
) -> Advice:
    """The table of all that was tried, from the negative log-densities of the held-out rows."""
    nlpd = losses.mean(axis=1)
    random = np.array([subset is not None for _, subset, _ in named])
    usable = random & np.isfinite(nlpd)
    if not usable.any():
        raise RuntimeError(
            "no candidate gave a finite NLPD: training diverged for all of them. Scale inputs and "
            "targets, or pass an optimizer with a smaller learning rate."
        )
    best = int(np.argmin(np.where(usable, nlpd, np.inf)))
    gaps = losses - losses[best]
    root = np.sqrt(losses.shape[1])
    errors, gap_errors = losses.std(axis=1, ddof=1) / root, gaps.std(axis=1, ddof=1) / root
    rows = [
        Candidate(
            name,
            subset,
            dim,
            float(nlpd[index]),
            float(errors[index]),
            float(gaps[index].mean()),
            float(gap_errors[index]),
            float(evidences[index]),
            float(seconds[index]),
        )
        for index, (name, subset, dim) in enumerate(named)
    ]
    good = [
        row for row, fine in zip(rows, usable, strict=True) if fine and row.behind <= row.behind_error
    ]
    recommended = min(good, key=lambda row: (row.dim, row.nlpd))
    ordered = sorted(rows, key=lambda row: (not np.isfinite(row.nlpd), row.nlpd))
    return Advice(tuple(ordered), recommended)
