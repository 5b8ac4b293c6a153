"""Figures from small arrays: a panel each, named axes, and the numbers they claim to show."""

import numpy as np
import pytest

from partialbayes.plots import _style as style
from reproduction.figures import scores, synthetic
from reproduction.figures.records import (
    Boundaries,
    Clouds,
    Curves,
    Flow,
    Novelty,
    Traces,
    add_records,
    load_records,
    save_records,
)
from reproduction.figures.style import method_style
from reproduction.figures.write import write_figures
from reproduction.tables.aggregate import Difference, Row

METHODS = ["MAP-HMC", "OHSMC", "SGSMC-HMC", "SWAG", "VB", "MAP"]
RNG = np.random.default_rng(0)
FIRST, SECOND = np.linspace(-4.0, 4.0, 81), np.linspace(-4.0, 4.0, 91)
BENT = SECOND[:, None] + 0.5 * np.square(FIRST)
DENSITY = np.exp(-np.square(FIRST) - 20.0 * np.square(BENT))

TRACES = Traces({"OHSMC": np.linspace(0.1, 1.0, 200), "MC": np.linspace(0.1, 0.9, 3)}, 1.25)
CLOUDS = Clouds(FIRST, SECOND, DENSITY, {name: RNG.normal(size=(20, 2)) for name in METHODS})
FLOW = Flow(np.array([0, 1, 20]), np.array([0.1, 0.5, 1.0]), RNG.normal(size=(3, 20, 2)))


def curves(wild=1.0):
    grid = np.linspace(-6, 6, 30)
    samples = {name: wild * RNG.normal(size=(4, 30)) for name in METHODS}
    return Curves(grid, np.sin(grid), samples, RNG.uniform(-6, 6, 10), RNG.normal(size=10))


def boundaries():
    across, up = np.linspace(-1.5, 2.5, 9), np.linspace(-1.0, 1.5, 8)
    slope = 1.0 / (1.0 + np.exp(-2.0 * np.add.outer(up, across)))
    samples = {name: np.stack([slope, slope**2]).astype(np.float16) for name in METHODS}
    samples["VB"] = np.full((2, 8, 9), 0.9, np.float16)  # no boundary at all
    return Boundaries(across, up, samples, RNG.normal(size=(10, 2)), np.arange(10) % 2)


def visible(figure):
    figure.draw_without_rendering()
    return [ax for ax in figure.axes if ax.get_visible()]


def named(axes):
    """Every column has a name below it and every row one at its left."""
    return (
        {ax.get_subplotspec().colspan.start for ax in axes if ax.get_xlabel()}
        == {ax.get_subplotspec().colspan.start for ax in axes}
    ) and {ax.get_subplotspec().rowspan.start for ax in axes if ax.get_ylabel()} == {
        ax.get_subplotspec().rowspan.start for ax in axes
    }


def test_traces_show_both_values():
    (ax,) = visible(synthetic.parameter_traces(TRACES))
    labels = [text.get_text() for text in ax.get_legend().texts]
    assert labels == ["OHSMC", "MC", "exact maximum, these data 1.25", "the data were drawn at 1"]
    levels = [line.get_ydata()[0] for line in ax.lines if len(set(line.get_ydata())) == 1]
    assert {1.0, 1.25} <= set(levels)
    assert named([ax])


PANELS = {
    "posterior": (lambda: synthetic.crescent_posterior(CLOUDS), METHODS),
    "curves": (lambda: synthetic.predictive_curves(curves()), METHODS),
    "lines": (lambda: synthetic.decision_lines(boundaries()), METHODS),
    "flow": (
        lambda: synthetic.particle_flow(FLOW, CLOUDS),
        ["epoch 0, ψ = 0.10", "epoch 1, ψ = 0.50", "epoch 20, ψ = 1.00"],
    ),
    "flow alone": (
        lambda: synthetic.particle_flow(FLOW),
        ["epoch 0, ψ = 0.10", "epoch 1, ψ = 0.50", "epoch 20, ψ = 1.00"],
    ),
    "novelty": (
        lambda: scores.mutual_information(
            Novelty(
                {name: np.array([0.0, 0.1, 0.2]) for name in METHODS},
                {name: np.array([0.15, 0.3]) for name in METHODS},
            )
        ),
        METHODS,
    ),
}


@pytest.mark.parametrize("name", PANELS)
def test_a_panel_each(name):
    draw, titles = PANELS[name]
    axes = visible(draw())
    assert [ax.get_title() for ax in axes] == titles
    assert all(ax.has_data() for ax in axes)
    assert named(axes)
    for ax, method in zip(axes, titles, strict=True):
        assert method not in METHODS or ax.title.get_color() == method_style(method).color


@pytest.mark.parametrize(
    ("draw", "make"),
    [
        (synthetic.predictive_curves_by_seed, curves),
        (synthetic.decision_lines_by_seed, boundaries),
    ],
)
def test_a_row_a_seed(draw, make):
    axes = visible(draw({run: make() for run in range(2)}))
    assert len(axes) == 2 * len(METHODS)
    assert [ax.get_title() for ax in axes[: len(METHODS)]] == METHODS
    assert named(axes)


def test_wild_curves_do_not_set_the_scale():
    axes = visible(synthetic.predictive_curves(curves(wild=1e6)))
    assert axes[0].get_ylim()[1] < 10.0


def test_auroc_is_in_the_panel():
    novelty = Novelty({"OHSMC": np.array([0.0, 0.1, 0.2])}, {"OHSMC": np.array([0.15, 0.3])})
    (ax,) = visible(scores.mutual_information(novelty))
    assert [text.get_text() for text in ax.texts] == ["AUROC 0.833"]  # 5 of 6 pairs in order


def row(dataset, method, mean, se, paper_mean):
    return Row(dataset, method, "nlpd", mean, None, se, 10, paper_mean, None)


def test_dots_are_differences_to_the_papers():
    rows = [
        row("boston", "OHSMC", 1.5, 0.25, 1.0),
        row("boston", "VB", 0.75, None, 1.01),
        row("glass", "OHSMC", 1.0, 0.1, 1.13),
        row("glass", "SWAG", None, None, 1.36),  # all its runs diverged
        row("satellite", "VB", 1.0, 0.1, 0.28),  # nothing to compare with
        Row("boston", "OHSMC", "rmse", 0.4, None, None, 1, 0.4, None),
    ]
    left, right = visible(scores.score_dots(rows))
    assert shown_dots(left) == [0.5, -0.25]
    assert [text.get_text() for text in left.get_yticklabels()] == ["boston"]
    assert [text.get_text() for text in right.get_yticklabels()] == ["glass"]
    assert left.get_xlabel() == "NLPD less the paper's OHSMC, ± standard error"
    with pytest.raises(ValueError, match="no row has a mean"):
        scores.score_dots(rows, metric="ece")


def shown_dots(ax):
    return [
        float(line.get_xdata()[0])
        for line in ax.lines
        if line.get_marker() not in ("None", None, "|", "") and len(line.get_xdata()) == 1
    ]


def test_dots_less_ours_are_paired():
    """Beside OHSMC itself, which has no error; one that ran seldom is hollow."""
    rows = [row("boston", method, 1.0, 0.5, None) for method in ("OHSMC", "VB", "MAP")]
    rows[2] = rows[2]._replace(repeats=4)
    differences = [
        Difference("boston", "VB", "nlpd", -0.25, 0.125, 10, "better", "OHSMC"),
        Difference("boston", "VB", "nlpd", 7.0, 0.125, 10, "worse", "OHSMC-ensemble"),
        Difference("boston", "MAP", "nlpd", 0.5, 0.25, 4, "tie", "OHSMC"),
    ]
    (ax,) = visible(scores.score_dots(rows, differences))
    assert ax.get_xlabel() == "NLPD less our OHSMC, ± standard error"
    assert shown_dots(ax) == [0.0, -0.25, 0.5]
    bars = [np.ptp(bar.get_segments()[0][:, 0]) for bar in ax.collections]
    assert bars == [0.0, 0.25, 0.5]
    hollow = [line.get_markerfacecolor() == "white" for line in ax.lines if len(line.get_xdata()) == 1]
    assert hollow == [False, False, True]
    assert ax.get_legend_handles_labels()[1] == ["OHSMC", "VB", "MAP", "few repeats"]


def test_a_dot_far_off_stands_at_the_edge_with_its_number():
    methods = ("OHSMC", "VB", "MAP", "SWAG", "MAP-HMC", "SGSMC-HMC", "Deep ensemble")
    rows = [row("boston", method, 1.0, 0.1, None) for method in methods]
    differences = [
        Difference("boston", method, "nlpd", value, 0.01, 10, "worse", "OHSMC")
        for method, value in zip(methods[1:], (0.1, -0.1, 5.8, 0.1, -0.1, 0.1), strict=True)
    ]
    (ax,) = visible(scores.score_dots(rows, differences))
    assert [text.get_text().strip() for text in ax.texts] == ["+5.80"]
    assert 0.1 < ax.get_xlim()[1] < 0.5


def test_methods_look_different():
    names = ["OHSMC", "OHSMC-refine", "OHSMC-ensemble", "MAP", "Deep ensemble", "MAP-Laplace"]
    names += ["MAP-HMC", "SGSMC-HMC", "SWAG", "VB", "MC", "MC-evidence", "SMC", "OHSMC-forgetting"]
    assert len({method_style(name).color for name in names}) == len(names)
    assert method_style("a new one").color == style.SOFT


def test_a_run_without_a_method_leaves_its_panel_empty():
    few = curves()._replace(samples={"OHSMC": RNG.normal(size=(4, 30))})
    figure = synthetic.predictive_curves_by_seed({0: curves(), 3: few})
    last = figure.axes[-len(METHODS) :]
    assert [ax.axison for ax in last] == [method == "OHSMC" for method in METHODS]
    assert last[0].get_ylabel() == "run 3\ny"


def same(one, other):
    for ours, theirs in zip(one, other, strict=True):
        if isinstance(ours, dict):
            assert list(ours) == list(theirs)
            assert all(np.array_equal(ours[key], theirs[key]) for key in ours)
        else:
            assert np.array_equal(ours, theirs)


def test_records_come_back(tmp_path):
    records = {
        "traces": {0: TRACES},
        "clouds": {0: CLOUDS},
        "flow": {0: FLOW},
        "curves": {run: curves() for run in range(12)},  # so that 10 does not come before 2
        "moons": {0: boundaries()},
    }
    path = tmp_path / "figures.npz"
    assert load_records(path) == {}
    save_records(path, records)
    back = load_records(path)
    assert list(back) == list(records)
    for name, runs in records.items():
        assert list(back[name]) == list(runs)
        for run, one in runs.items():
            assert type(back[name][run]) is type(one)
            same(one, back[name][run])
    assert visible(synthetic.parameter_traces(back["traces"][0]))


def test_records_of_methods_come_together_in_the_order_of_the_table(tmp_path):
    path, whole = tmp_path / "figures.npz", curves()
    for run, method in ((1, "VB"), (1, "OHSMC"), (0, "VB"), (0, "MAP"), (1, "MAP"), (0, "OHSMC")):
        one = whole._replace(samples={method: whole.samples[method]})
        add_records(path, run, {"curves": one}, METHODS)
    add_records(path, 0, {"traces": TRACES}, ["OHSMC", "MC"])
    found = load_records(path)
    assert list(found) == ["curves", "traces"]
    assert list(found["curves"]) == [0, 1]
    for one in found["curves"].values():
        same(whole._replace(samples={name: whole.samples[name] for name in ("OHSMC", "VB", "MAP")}), one)


def test_a_folder_is_drawn(tmp_path):
    """What there is data for, and nothing else."""
    assert write_figures(tmp_path) == []
    records = {"traces": {0: TRACES}, "curves": {0: curves(), 1: curves()}}
    save_records(tmp_path / "figures.npz", records)
    rows = [row(name, "OHSMC", 1.0, None, 1.0) for name in ("boston", "energy", "glass")]
    written = write_figures(tmp_path, rows)
    names = ["traces.png", "curves.png", "curves_by_seed.png", "nlpd.png"]
    assert [path.name for path in written] == names
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)
