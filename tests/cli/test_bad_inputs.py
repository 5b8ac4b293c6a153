"""Sixty things that are wrong, and the sentence for each: nothing is trained, written or left behind."""

import json

import numpy as np
import pandas as pd
import pytest

from partialbayes.cli._main import main

ROWS = 40
NUMBERS = np.random.default_rng(0).normal(size=ROWS)


def csv(**columns):
    """A table of forty rows, whose columns are x and y unless they are said to be others."""
    table = {"x": NUMBERS, "y": NUMBERS + 1.0} | columns
    return pd.DataFrame({name: column for name, column in table.items() if column is not None}).to_csv(
        index=False
    )


GOOD = csv()
FIT = ["fit", "table.csv", "--target", "y", "--out", "never"]
# What is in the file, the arguments, and the sentence.
OF_FIT = {
    "no file": (None, FIT, "there is no file table.csv"),
    "a folder": (None, ["fit", ".", *FIT[2:]], "is a folder, not a table"),
    "an empty file": ("", FIT, "table.csv is empty"),
    "blanks": ("  \n\n", FIT, "nothing but white space"),
    "a header alone": ("x,y\n", FIT, "has no rows below its header"),
    "bytes": (b"\x00\x01\x02\xff" * 9, FIT, "is not text, and cannot be read as a table"),
    "a Parquet file by another name": (b"PAR1xxxx", FIT, "is a Parquet file; name it .parquet"),
    "an archive": (b"PK\x03\x04xxxx", FIT, "perhaps an Excel file; name it .xlsx"),
    "a PDF": (b"%PDF-1.4", FIT, "is a PDF, and not a table"),
    "gzip by another name": (b"\x1f\x8bxxxx", FIT, "packed by gzip; name it .csv.gz"),
    "a quote without end": (
        'x,y\n"1,2\n3,4\n',
        FIT,
        "a quotation mark in row 1 of table.csv is never closed",
    ),
    "more cells than names": ("x,y\n1,2,3\n4,5,6\n", FIT, "more cells than its header"),
    "a line too long": ("x,y\n1,2\n3,4,5\n", FIT, "cannot be read as a table (Error tokenizing data"),
    "no such encoding": (GOOD, [*FIT, "--encoding", "utf-99"], "there is no encoding 'utf-99'"),
    "the wrong encoding": (
        "x,y\nä,1\n".encode("cp1252"),
        [*FIT, "--encoding", "utf-8"],
        "cannot be read as utf-8",
    ),
    "an odd decimal mark": (GOOD, [*FIT, "--decimal", "x"], "decimal must be '.' or ','"),
    "no such target": (
        GOOD,
        ["fit", "table.csv", "--target", "z", "--out", "never"],
        "there is no target column 'z'; the table has 'x', 'y'",
    ),
    "the wrong separator": (
        GOOD,
        [*FIT, "--sep", ";"],
        "there is no target column 'y'; the table has 'x,y'",
    ),
    "a target without values": (csv(y=[""] * ROWS), FIT, "only 0 of 40 rows have a value of 'y'"),
    "one row with a target": (csv(y=[1.0] + [""] * (ROWS - 1)), FIT, "only 1 of 40 rows have a value"),
    "a constant number": (
        csv(y=[2.5] * ROWS),
        FIT,
        "the target 'y' is 2.5 in every row; there is nothing to learn",
    ),
    "a constant label": (csv(y=["a"] * ROWS), FIT, "the target 'y' is 'a' in every row"),
    "names as target": (
        csv(y=[f"name {row}" for row in range(ROWS)]),
        FIT,
        "has 40 classes in 40 rows: nearly every row has its own",
    ),
    "dates as target": (
        csv(y=[f"2024-01-{1 + row % 28:02}" for row in range(ROWS)]),
        FIT,
        "these are dates; predict a number of days instead",
    ),
    "numbers with words between": (
        csv(y=[f"{row}.5" if row % 3 == 0 else f"about {row}" for row in range(ROWS)]),
        FIT,
        "looks like a column of numbers with something else in it, such as 'about 1'",
    ),
    "amounts as classes": (
        csv(),
        [*FIT, "--task", "classification"],
        "these look like amounts; --task regression",
    ),
    "labels as numbers": (
        csv(y=["a", "b"] * 20),
        [*FIT, "--task", "regression"],
        "the target 'y' should hold numbers, but row 1 holds 'a'",
    ),
    "a word among numbers": (
        csv(y=[*NUMBERS[:-1], "none yet"]),
        FIT,
        "the target 'y' should hold numbers, but row 40 holds 'none yet'",
    ),
    "two units in the target": (
        csv(y=[f"{row} m" if row % 2 else f"{row} ft" for row in range(ROWS)]),
        FIT,
        "mixes units ('ft', 'm'); bring it to one of them",
    ),
    "a target beyond reach": (
        csv(y=[*NUMBERS[:-1], 1e300]),
        FIT,
        "column 'y' holds 1e+300, which is too large to compute with",
    ),
    "an infinite target": (
        csv(y=[*NUMBERS[:-1], np.inf]),
        FIT,
        "column 'y' holds an infinite number in row 40",
    ),
    "an input beyond reach": (csv(x=[*NUMBERS[:-1], 1e300]), FIT, "column 'x' holds 1e+300"),
    "an infinite input": (
        csv(x=[*NUMBERS[:-1], -np.inf]),
        FIT,
        "column 'x' holds an infinite number in row 40",
    ),
    "half numbers, half words": (
        csv(x=[row if row % 4 else f"word {row}" for row in range(ROWS)]),
        FIT,
        "column 'x' should hold numbers, but row 1 holds 'word 0'; --categorical",
    ),
    "nothing but the target": (csv(x=None), FIT, "no column is left to predict from, the target aside"),
    "nothing but a constant": (
        csv(x=[1] * ROWS),
        FIT,
        "no column is left to predict from: 'x' is '1' in every row",
    ),
    "nothing but names": (
        csv(x=[f"name {row}" for row in range(ROWS)]),
        FIT,
        "'x' holds 40 different texts, most of them once",
    ),
    "all dropped": (GOOD, [*FIT, "--drop", "x"], "no column is left to predict from: 'x' as asked for"),
    "no such column to drop": (GOOD, [*FIT, "--drop", "z"], "drop: there is no column 'z'"),
    "no such columns": (
        GOOD,
        [*FIT, "--columns", "x", "w", "v"],
        "columns: there is no column 'w' and 1 more",
    ),
    "no such category": (GOOD, [*FIT, "--categorical", "z"], "categorical: there is no column 'z'"),
    "no such method": (GOOD, [*FIT, "--method", "magic"], "method must be crossfit or one of ohsmc"),
    "no such weights": (
        GOOD,
        [*FIT, "--method", "ohsmc", "--stochastic", "layers/7/*"],
        "matches no weight",
    ),
    "no epochs": (GOOD, [*FIT, "--max-iter", "0"], "max_iter must be a whole number of at least 1"),
    "no batch": (GOOD, [*FIT, "--batch-size", "0"], "batch_size must be a whole number of at least 1"),
    "no particles": (
        GOOD,
        [*FIT, "--num-particles", "0"],
        "num_particles must be a whole number of at least 1",
    ),
    "no learning": (GOOD, [*FIT, "--learning-rate", "-1"], "learning_rate must be positive"),
    "no width": (GOOD, [*FIT, "--hidden-layer-sizes", "0"], "hidden_layer_sizes"),
    "all rows held out": (GOOD, [*FIT, "--validation-fraction", "0.999"], "validation_fraction"),
    "logarithms of negatives": (
        GOOD,
        [*FIT, "--log-targets", "True"],
        "--log-targets: y is not positive in every row",
    ),
    "JSON of something else": ('{"a": 1', ["fit", "table.json", *FIT[2:]], "is not a table as JSON"),
    "JSON with lists": (
        '[{"x": [1], "y": 2}]',
        ["fit", "table.json", *FIT[2:]],
        "column 'x' of table.json holds lists or objects",
    ),
    "an Excel file that is none": ("x,y\n1,2\n", ["fit", "table.xlsx", *FIT[2:]], "table.xlsx"),
    "a place that cannot be": (GOOD, [*FIT[:-1], "file/model"], "file/model cannot be written"),
    "a place that is taken": (GOOD, [*FIT[:-1], "model"], "model exists already"),
    "something else to overwrite": (
        GOOD,
        [*FIT[:-1], "kept", "--overwrite"],
        "kept is not a saved model, so it is not overwritten",
    ),
}
OF_OTHERS = {
    "no model": (["evaluate", "nowhere", "good.csv"], "nowhere does not exist: there is no model.json"),
    "a damaged model": (["evaluate", "damaged", "good.csv"], "not readable as JSON"),
    "a model from Python": (["evaluate", "python", "good.csv"], "was not written by the command line"),
    "a column less": (
        ["predict", "model", "less.csv", "--out", "never.csv"],
        "there is no column 'x' and 1 more; the table has 'y'",
    ),
    "no target to score": (["evaluate", "model", "inputs.csv"], "there is no target column 'y'"),
    "strictly, another category": (
        ["predict", "model", "town.csv", "--out", "never.csv", "--strict"],
        "holds the category 'Rome', which was not there in training (known: 'Bergen', 'Oslo')",
    ),
    "strictly, a word": (
        ["predict", "model", "word.csv", "--out", "never.csv", "--strict"],
        "column 'x' should hold numbers, but row 2 holds 'big'",
    ),
    "no such column to keep": (
        ["predict", "model", "good.csv", "--out", "never.csv", "--keep", "z"],
        "--keep: there is no column 'z'",
    ),
    "certainty": (
        ["predict", "model", "good.csv", "--out", "never.csv", "--coverage", "1"],
        "--coverage must lie between 0 and 1",
    ),
    "predictions nowhere": (
        ["predict", "model", "good.csv", "--out", "file/never.csv"],
        "--out file/never.csv cannot be written",
    ),
    "a page nowhere": (
        ["report", "model", "good.csv", "--out", "file/never.html"],
        "--out file/never.html cannot be written",
    ),
    "the training table is gone": (
        ["report", "model", "--out", "never.html"],
        "no longer exists; name a table to score on",
    ),
    "no unfinished run but one there is": (
        ["fit", "good.csv", "--target", "y", "--out", "half"],
        "there is an unfinished run at half.checkpoint",
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small model, and tables that do not fit it."""
    folder = tmp_path_factory.mktemp("bad")
    frame = pd.DataFrame({"x": NUMBERS, "town": ["Oslo", "Bergen"] * (ROWS // 2), "y": NUMBERS * 2})
    frame.to_csv(folder / "train.csv", index=False)
    small = ["--method", "ohsmc", "--hidden-layer-sizes", "4", "--max-iter", "2"]
    arguments = ["fit", folder / "train.csv", "--target", "y", "--out", folder / "model", *small]
    assert main([*map(str, arguments)]) == 0
    (folder / "train.csv").rename(folder / "good.csv")
    frame.drop(columns=["x", "town"]).to_csv(folder / "less.csv", index=False)
    frame.drop(columns="y").to_csv(folder / "inputs.csv", index=False)
    frame.astype(object).replace("Oslo", "Rome").to_csv(folder / "town.csv", index=False)
    frame.astype(object).assign(x=["1", "big"] * (ROWS // 2)).to_csv(folder / "word.csv", index=False)
    for name in ("damaged", "python", "kept"):
        (folder / name).mkdir()
    (folder / "damaged" / "model.json").write_text("{")
    foreign = json.loads((folder / "model" / "model.json").read_text()) | {"metadata": {}}
    (folder / "python" / "model.json").write_text(json.dumps(foreign))
    (folder / "kept" / "letter.txt").write_text("dear")
    for name in ("file", "half.checkpoint"):
        (folder / name).write_text("")
    return folder


def refused(folder, arguments, sentence, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    before = sorted(path.name for path in folder.rglob("*"))
    capsys.readouterr()
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("partialbayes: ")
    assert sentence in error
    assert len(error.splitlines()) == 1
    assert "np." not in error
    assert sorted(path.name for path in folder.rglob("*")) == before


@pytest.mark.parametrize("case", OF_FIT)
def test_what_cannot_be_trained_on(case, folder, capsys, monkeypatch):
    content, arguments, sentence = OF_FIT[case]
    path = folder / arguments[1]
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    try:
        refused(folder, arguments, sentence, capsys, monkeypatch)
    finally:
        if content is not None:
            path.unlink()


@pytest.mark.parametrize("case", OF_OTHERS)
def test_what_a_model_cannot_do(case, folder, capsys, monkeypatch):
    refused(folder, *OF_OTHERS[case], capsys, monkeypatch)


def test_there_are_sixty():
    assert len(OF_FIT) + len(OF_OTHERS) >= 60


@pytest.mark.parametrize(
    "arguments", [["evaluate"], ["fit"], ["no such command"], ["fit", "a.csv", "--max-iter", "x"]]
)
def test_arguments_that_do_not_parse(arguments, capsys):
    assert main(arguments) == 2
