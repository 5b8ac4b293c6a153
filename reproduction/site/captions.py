"""What the page of all results says of its tracks and figures."""

from __future__ import annotations

TRACKS = {
    "paper": "The paper's settings; the noise of regressions has variance 1, and the targets of the UCI "
    "tables are standardized, also in the scores. RMSE, ECE and accuracy are given of the mixture of "
    "all particles and, as in the paper, of single particles, averaged.",
    "best": "What the methods can do: the noise is learned. Every method has the same model of the "
    "noise and the same rule of selection. The regression tables are split in the standard ways and "
    "scored in their own units; there a run goes to its end, with a prior of ψ whose scale, and a "
    "spread, are found on held-out training rows.",
    "gap": "The same on splits that leave out the middle third of the values of one column, a run for "
    "each column.",
}

_MISSING_LINE = "There is no colored line where the mixture is on one side of 1/2 all over."
CAPTIONS = {
    "traces": "ψ over training, of run 0. MAP-HMC, SWAG, SGSMC-HMC and OHSMC-refine are not drawn: "
    "their ψ is that of MAP, SGSMC and OHSMC.",
    "posterior": "Samples of φ, of run 0, on its posterior at the best ψ: the contours hold 50, 90 and "
    "99 %. Methods that learned another ψ have another posterior to sample.",
    "flow": "OHSMC's particles on their way, of run 0, on the posterior at the best ψ.",
    "curves": "What thirty particles drawn from each posterior predict, of run 0.",
    "curves_by_seed": "The same, of the first five runs. A curve far off is outside of the picture.",
    "boundaries": f"Where thirty particles drawn from each posterior put the boundary, of run 0. "
    f"{_MISSING_LINE}",
    "boundaries_by_seed": f"The same, of the first five runs. {_MISSING_LINE}",
    "nlpd": "Mean NLPD less OHSMC's: less the paper's figure where it has one, otherwise less ours, and "
    "then differences and errors are paired. A dot with a number is outside of the picture.",
    "mutual_information": "Mutual information of label and weights on test images, of run 0; at the "
    "left end what is 1e-7 or less.",
}
"""Captions of figures, by the name of their file."""
