"""Runs to tables: every digit, and what is said about runs that are missing, cut short or diverged."""

import json

import pytest

from reproduction.tables.aggregate import paired_differences, read_runs
from reproduction.tables.markdown import round_half_up
from reproduction.tables.published import DATASETS, METHODS, PAPER, published_score
from reproduction.tables.write import write_tables

HEADER = "dataset,method,repeat,metric,value\n"


def lines(dataset, method, metric, values):
    return "".join(f"{dataset},{method},{r},{metric},{value}\n" for r, value in enumerate(values))


def written(folder, text, experiment="moons", track="paper"):
    place = folder / experiment / track
    place.mkdir(parents=True, exist_ok=True)
    (place / "per_run.csv").write_text(HEADER + text)
    write_tables(place)
    return {name: (place / name).read_text() for name in ("table.csv", "differences.csv", "table.md")}


def body(text, dataset):
    """The section of one data set."""
    return text.split(f"## {dataset}\n\n")[1].split("\n\n## ")[0]


REGRESSION = (
    lines("regression", "VB", "rmse_particles", [1.5, 1.25, 1.0])
    + lines("regression", "VB", "nlpd", [2.0, 2.25, 2.5])
    + lines("regression", "OHSMC", "nlpd", [1.5, 1.25])
    + lines("regression", "OHSMC", "rmse_particles", [0.5, 0.75])
    + lines("regression", "OHSMC", "rmse", [0.0049, 0.0049])
    + lines("regression", "MAP", "nlpd", [1.25, 1.5])
    + lines("regression", "MAP", "rmse_particles", [1.0, 1.0])
)


def test_whole_tables(tmp_path):
    found = written(tmp_path, REGRESSION, "regression")
    assert found["table.csv"] == (
        "dataset,method,metric,mean,std,se,repeats,paper_mean,paper_std\n"
        "regression,OHSMC,nlpd,1.375,0.176777,0.125,2,1.49,0.07\n"
        "regression,OHSMC,rmse_particles,0.625,0.176777,0.125,2,0.53,0.07\n"
        "regression,OHSMC,rmse,0.0049,0,0,2,0.53,0.07\n"
        "regression,VB,nlpd,2.25,0.25,0.144338,3,2.13,0.15\n"
        "regression,VB,rmse_particles,1.25,0.25,0.144338,3,1.46,0.46\n"
        "regression,MAP,nlpd,1.375,0.176777,0.125,2,,\n"
        "regression,MAP,rmse_particles,1,0,0,2,,\n"
    )
    assert found["differences.csv"] == (
        "dataset,method,metric,mean,se,repeats,verdict,less\n"
        "regression,VB,nlpd,0.75,0.25,2,worse,OHSMC\n"
        "regression,VB,rmse_particles,0.75,0.25,2,worse,OHSMC\n"
        "regression,MAP,nlpd,0,0.25,2,tie,OHSMC\n"
        "regression,MAP,rmse_particles,0.375,0.125,2,worse,OHSMC\n"
    )
    head, section = found["table.md"].split("## regression\n\n")
    assert head.startswith("# regression: paper track\n\nMean (standard deviation) ± standard error")
    assert section == (
        "| method | NLPD | paper | RMSE of particles | paper |\n"
        "| :-- | --: | --: | --: | --: |\n"
        "| MAP-HMC | – | 1.53 (0.09) | – | 0.59 (0.11) |\n"
        "| OHSMC | **1.38 (0.18)** ± 0.125 | 1.49 (0.07) | **0.63 (0.18)** ± 0.125 | 0.53 (0.07) |\n"
        "| SGSMC-HMC | – | 1.65 (0.16) | – | 0.75 (0.14) |\n"
        "| SWAG | – | 1.71 (0.14) | – | 0.82 (0.16) |\n"
        "| VB | 2.25 (0.25) ± 0.144 | 2.13 (0.15) | 1.25 (0.25) ± 0.144 | 1.46 (0.46) |\n"
        "| MAP | **1.38 (0.18)** ± 0.125 | – | 1.00 (0.00) ± 0.000 | – |\n"
        "\n"
        "| method | RMSE |\n"
        "| :-- | --: |\n"
        "| OHSMC | **0.00 (0.00)** ± 0.000 |\n"
        "| VB | – |\n"
        "| MAP | – |\n"
        "\n"
        "Repeats differ: OHSMC 2, VB 3, MAP 2.\n"
        "\n"
        "| less OHSMC, paired | NLPD | RMSE of particles |\n"
        "| :-- | --: | --: |\n"
        "| VB | +0.750 ± 0.250, worse | +0.750 ± 0.250, worse |\n"
        "| MAP | +0.000 ± 0.250, tie | +0.375 ± 0.125, worse |\n"
    )


def test_the_lines_written_are_returned(tmp_path):
    found = written(tmp_path, REGRESSION, "regression")
    rows, differences = write_tables(tmp_path / "regression" / "paper")
    assert [",".join(row[:3]) for row in rows] == [
        ",".join(line.split(",")[:3]) for line in found["table.csv"].splitlines()[1:]
    ]
    assert (rows[0].mean, rows[0].paper_mean, rows[-1].paper_mean) == (1.375, 1.49, None)
    assert len(differences) == len(found["differences.csv"].splitlines()) - 1
    assert {one.reference for one in differences} == {"OHSMC"}


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [
        (0.125, 2, "0.13"),  # a half goes away from zero, though binary formatting gives 0.12
        (0.375, 2, "0.38"),
        (-0.125, 2, "-0.13"),
        (2.675, 2, "2.68"),  # in binary it is 2.67499…
        ((0.28 + 0.29) / 2, 2, "0.29"),
        (0.0049, 2, "0.00"),
        (0.005, 2, "0.01"),
        (-0.0001, 2, "0.00"),
        (0.999, 2, "1.00"),  # truncated it would be 0.99
        (12345678.5, 0, "12345679"),
        (0.02865, 4, "0.0287"),
    ],
)
def test_rounding(value, decimals, text):
    assert round_half_up(value, decimals) == text


def test_diverged_runs_are_counted_and_win_nothing(tmp_path):
    text = (
        lines("moons", "OHSMC", "nlpd", [0.3, 0.4, 0.5])
        + lines("moons", "SWAG", "nlpd", [0.1, "nan", "inf"])
        + lines("moons", "VB", "nlpd", ["nan", "nan", "nan"])
    )
    found = written(tmp_path, text)
    assert "moons,SWAG,nlpd,0.1,,,1,0.31,0.06\n" in found["table.csv"]
    assert "moons,VB,nlpd,,,,0,0.29,0.05\n" in found["table.csv"]
    section = body(found["table.md"], "moons")
    assert "| OHSMC | **0.40 (0.10)** ± 0.058 | 0.28 (0.07) |" in section
    assert "| SWAG † | 0.10 | 0.31 (0.06) |" in section
    assert "| VB † | diverged | 0.29 (0.05) |" in section
    assert "Repeats: 3. Diverged: SWAG 2 of 3, VB 3 of 3." in section
    assert "| SWAG † | -0.200, one run |" in section
    assert "moons,SWAG,nlpd,-0.2,,1,,OHSMC\n" in found["differences.csv"]
    assert "VB" not in found["differences.csv"]


def test_a_line_cut_short_is_left_out(tmp_path):
    """Even one that can be read: 0.4 may have been 0.41."""
    whole = lines("moons", "OHSMC", "nlpd", [0.3, 0.5])
    found = written(tmp_path / "whole", whole)
    assert written(tmp_path / "cut", whole + "moons,OHSMC,2,nlpd,0.4") == found
    assert written(tmp_path / "more", whole + "moons,OH") == found
    assert "moons,OHSMC,nlpd,0.4,0.141421,0.1,2," in found["table.csv"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no finished run"),
        ("moons,OHSMC,0,nl\nmoons,OHSMC,1,nlpd,0.3\n", "line 2: 'moons,OHSMC,0,nl' is no value"),
        ("moons,OHSMC,0,nlpd,x\n", "line 2"),
        (
            lines("moons", "VB", "nlpd", [0.3, 0.4]) + "moons,VB,1,nlpd,0.4\n",
            "line 4: nlpd of moons, VB, repeat 1 is there twice",
        ),
    ],
)
def test_bad_files_are_refused(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        written(tmp_path, text)
    assert not (tmp_path / "moons" / "paper" / "table.csv").exists()
    path = tmp_path / "other.csv"
    path.write_text("dataset,method,value\n")
    with pytest.raises(ValueError, match="must begin with"):
        read_runs(path)


def test_differences_are_of_common_repeats(tmp_path):
    """The repeats of VB alone would turn its mean around."""
    path = tmp_path / "per_run.csv"
    text = lines("moons", "VB", "nlpd", [0.1, 0.2, 9.0, "nan"])
    text += (
        "moons,OHSMC,0,nlpd,0.2\nmoons,OHSMC,1,nlpd,0.31\nmoons,OHSMC,3,nlpd,0.1\nmoons,OHSMC,9,nlpd,0\n"
    )
    path.write_text(HEADER + text)
    (one,) = paired_differences(read_runs(path))
    assert one.repeats == 2
    assert one.mean == pytest.approx(-0.105)
    assert one.se == pytest.approx(0.005)
    assert one.verdict == "better"


def test_ensembles_are_compared_with_each_other_too(tmp_path):
    text = lines("yacht", "OHSMC", "nlpd", [0.5, 0.75])
    text += lines("yacht", "OHSMC-ensemble", "nlpd", [0.25, 0.5])
    text += lines("yacht", "Deep ensemble", "nlpd", [0.75, 0.5])
    found = written(tmp_path, text, "uci")
    assert found["differences.csv"].splitlines()[1:] == [
        "yacht,OHSMC-ensemble,nlpd,-0.25,0,2,better,OHSMC",
        "yacht,Deep ensemble,nlpd,0,0.25,2,tie,OHSMC",
        "yacht,Deep ensemble,nlpd,0.25,0.25,2,tie,OHSMC-ensemble",
    ]
    assert "| less OHSMC-ensemble, paired | NLPD |" in found["table.md"]


def test_the_note_of_a_setting_stands_above_its_table(tmp_path):
    folder = tmp_path / "moons" / "paper"
    folder.mkdir(parents=True)
    declared = {"declaration": {"moons": {"note": "Smaller than the paper's."}}}
    (folder / "settings.json").write_text(json.dumps(declared))
    found = written(tmp_path, lines("moons", "OHSMC", "nlpd", [0.2]), "moons")
    assert body(found["table.md"], "moons").startswith("Smaller than the paper's.\n\n| method")


@pytest.mark.parametrize(
    ("metric", "values", "verdict"),
    [
        ("nlpd", [0.0, 0.4], "tie"),  # one standard error
        ("nlpd", [0.1, 0.3], "worse"),  # two, which is not below two
        ("nlpd", [-0.1, -0.3], "better"),
        ("nlpd", [0.099, 0.301], "tie"),
        ("accuracy", [0.1, 0.3], "better"),
        ("auroc_mutual_information", [-0.1, -0.3], "worse"),
        ("coverage90", [0.91, 0.92], "better"),  # OHSMC's is 0
        ("psi_error", [-0.5, -0.6], "worse"),
        ("nlpd", [0.0, 0.0], "tie"),
    ],
)
def test_ties_and_directions(tmp_path, metric, values, verdict):
    path = tmp_path / "per_run.csv"
    # In units that are exact in binary, so that two standard errors are two.
    scaled = values if metric in ("coverage90", "psi_error") else [1280 * value for value in values]
    path.write_text(HEADER + lines("a", "OHSMC", metric, [0, 0]) + lines("a", "VB", metric, scaled))
    (one,) = paired_differences(read_runs(path))
    assert one.verdict == verdict


def test_best_is_highest_lowest_or_nearest(tmp_path):
    text = ""
    for method, accuracy, coverage, error, nlpd in (
        ("OHSMC", 0.9, 0.97, -0.25, 0.301),
        ("VB", 0.8, 0.85, 0.5, 0.299),
        ("MAP", 0.7, 0.5, -0.5, 0.35),
    ):
        values = {"accuracy": accuracy, "coverage90": coverage, "psi_error": error, "nlpd": nlpd}
        for metric, value in values.items():
            text += lines("new", method, metric, [value])
        text += lines("new", method, "psi", [1.0]) + lines("new", method, "seconds", [9.0])
    section = body(written(tmp_path, text, "new")["table.md"], "new")
    assert section.startswith(
        "| method | NLPD | coverage of 90 % | accuracy | ψ | error of ψ |\n"
        "| :-- | --: | --: | --: | --: | --: |\n"
        "| OHSMC | **0.30** | 0.97 | **0.90** | 1.00 | **-0.25** |\n"
        "| VB | **0.30** | **0.85** | 0.80 | 1.00 | 0.50 |\n"
        "| MAP | 0.35 | 0.50 | 0.70 | 1.00 | -0.50 |\n"
    )
    assert "| method | seconds |\n| :-- | --: |\n| OHSMC | 9.0 |\n" in section


def test_a_few_repeats_are_no_record(tmp_path):
    text = (
        lines("moons", "OHSMC", "nlpd", [0.3, 0.4, 0.5, 0.4])
        + lines("moons", "VB", "nlpd", [0.2, 0.3])
        + lines("moons", "SWAG", "nlpd", [0.1])
    )
    section = body(written(tmp_path, text)["table.md"], "moons")
    assert "| VB | **0.25 (0.07)** ± 0.050 |" in section
    assert "| SWAG | 0.10 | 0.31 (0.06) |" in section
    assert "Repeats differ: OHSMC 4, SWAG 1, VB 2." in section


def test_a_score_that_some_runs_lack_is_told_of(tmp_path):
    text = (
        lines("moons", "OHSMC", "nlpd", [0.3, 0.4, 0.5])
        + lines("moons", "OHSMC", "validation_nlpd", [0.3, 0.4, 0.5])
        + lines("moons", "SWAG", "nlpd", [0.1, 0.2, 0.3])
        + lines("moons", "SWAG", "validation_nlpd", [0.1, 0.2])
    )
    section = body(written(tmp_path, text)["table.md"], "moons")
    assert "Repeats: 3. Fewer have a validation NLPD: SWAG 2.\n" in section


def test_many_sets_begin_with_a_summary(tmp_path):
    text = (
        lines("glass", "OHSMC", "nlpd", [1.0, 1.0])
        + lines("boston", "OHSMC", "nlpd", [0.98, 1.0])
        + lines("yacht", "OHSMC", "nlpd", [0.99, 0.97])
        + lines("yacht", "VB", "nlpd", [0.93, 0.93])
        + lines("concrete", "OHSMC", "nlpd", [0.979, 0.979])  # the paper cuts
        + lines("energy", "VB", "nlpd", [0.93, 0.93])
        + lines("power", "OHSMC", "nlpd", [1.0, "nan"])
    )
    found = written(tmp_path, text, "uci")["table.md"]
    table = found.split("\n\n")[2]
    assert table == (
        "| data set | NLPD of OHSMC | paper | OHSMC against the paper | best of ours |\n"
        "| :-- | --: | --: | --: | --: |\n"
        "| boston | 0.99 (0.01) ± 0.010 | 1.00 (0.02) | within one standard error | OHSMC |\n"
        "| concrete | 0.98 (0.00) ± 0.000 | 0.97 (0.01) | within one standard error | OHSMC |\n"
        "| energy | – | – | – | VB |\n"
        "| yacht | 0.98 (0.01) ± 0.010 | 0.92 (0.00) | worse | VB |\n"
        "| power | 1.00 † | 0.94 (0.00) | worse | – |\n"
        "| glass | 1.00 (0.00) ± 0.000 | 1.13 (0.32) | better | OHSMC |"
    )
    assert "on 5 data sets: better on 1, within one standard error on 2, worse on 2." in found
    assert found.index("## boston") < found.index("## glass")  # as in the paper
    few = written(tmp_path / "few", lines("glass", "OHSMC", "nlpd", [1.0]), "uci")["table.md"]
    assert "data set |" not in few


def test_decimals_of_mnist(tmp_path):
    text = lines("mnist", "OHSMC", "nlpd", [0.02865, 0.02885])
    text += lines("mnist", "OHSMC", "accuracy_particles", [0.9902, 0.9904])
    section = body(written(tmp_path, text, "mnist")["table.md"], "mnist")
    assert "| **0.0288 (0.0001)** ± 0.00010 | 0.0287 (0.0024) |" in section
    assert "| **0.9903 (0.0001)** ± 0.00010 | 0.9902 (0.0007) |" in section


def test_best_track_of_uci_regression_stands_alone(tmp_path):
    """In the units of the data, where naval's errors are small, and the paper's are of other units."""
    text = lines("naval", "OHSMC", "rmse", [0.0011, 0.0013]) + lines("glass", "OHSMC", "nlpd", [1.0])
    found = written(tmp_path, text, "uci", "best")
    assert "naval,OHSMC,rmse,0.0012,0.000141421,0.0001,2,,\n" in found["table.csv"]
    assert body(found["table.md"], "naval").startswith(
        "| method | RMSE |\n| :-- | --: |\n| OHSMC | **0.0012 (0.0001)** ± 0.00010 |\n"
    )
    assert "glass,OHSMC,nlpd,1,,,1,1.13,0.32\n" in found["table.csv"]
    assert published_score("regression", "OHSMC", "rmse", "best") == (0.53, 0.07)


def test_the_papers_numbers():
    """Counts, sums by table, and those that are easy to mistake."""
    assert len(DATASETS) == 15
    assert set(METHODS) == {method for _, method, _ in PAPER}
    uci = set(DATASETS) - {"regression", "moons", "mnist"}
    assert len(PAPER) == 2 * 5 + 3 * 5 + (2 * 7 * 5 - 2) + 3 * 5 * 5 + 3 * 3
    sums = {}
    for (dataset, _, metric), figures in PAPER.items():
        if dataset in uci:
            before = sums.get(metric, (0.0, 0.0))
            sums[metric] = tuple(round(a + b, 2) for a, b in zip(before, figures, strict=True))
    # Added up from the source of the paper's appendix.
    assert sums == {
        "nlpd": (45.21, 6.16),
        "rmse": (9.55, 1.69),
        "ece": (2.72, 0.94),
        "accuracy": (20.65, 1.15),
    }
    assert published_score("naval", "SGSMC-HMC", "nlpd") is None
    assert published_score("yacht", "SGSMC-HMC", "rmse") == (0.18, 0.01)  # the main text has 0.17 (0.02)
    assert published_score("satellite", "SGSMC-HMC", "nlpd") == (0.84, 0.74)
    assert published_score("kin8nm", "SWAG", "rmse_particles") == (0.54, 0.27)
    assert published_score("breast_cancer", "VB", "accuracy_particles") == (0.96, 0.02)
    assert published_score("mnist", "OHSMC", "nlpd") == (0.0287, 0.0024)
    assert published_score("mnist", "SWAG", "ece") == (0.0117, 0.0043)
    assert published_score("mnist", "VB", "accuracy") == (0.9851, 0.0009)
    assert published_score("moons", "OHSMC", "brier") is None
