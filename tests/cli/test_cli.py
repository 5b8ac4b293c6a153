"""The command line: end to end by subprocess, and a sentence for whatever is wrong."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from partialbayes.cli._main import main
from partialbayes.errors import TrainingDivergedError

ROOT = Path(__file__).parents[2]


def houses(rows=160):
    """Numbers, categories and gaps in both."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "size": rng.normal(100, 20, rows),
            "rooms": rng.integers(1, 6, rows),
            "town": rng.choice(["Oslo", "Bergen"], rows),
        }
    )
    frame["price"] = 3 * frame["size"] + 50.0 * (frame["town"] == "Oslo") + rng.normal(0, 5, rows)
    frame.loc[::9, "size"] = np.nan
    frame.loc[::11, "town"] = None
    return frame


def run(folder, *arguments):
    command = [sys.executable, "-m", "partialbayes", *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with tables and a trained model in it."""
    folder = tmp_path_factory.mktemp("houses")
    frame = houses()
    frame.to_csv(folder / "houses.csv", index=False)
    frame.drop(columns="price")[:20].to_parquet(folder / "new.parquet")
    shown = run(folder, "fit", "houses.csv", "--target", "price", "--out", "model", "--epochs", "80")
    assert shown.returncode == 0, shown.stderr
    assert shown.stderr == ""
    assert "regression, because price takes 160 different numbers" in shown.stdout
    assert "step 400 of 400" in shown.stdout  # plain lines where there is no terminal
    assert "the model is in model." in shown.stdout
    return folder


def test_predict_and_evaluate(folder, capsys):
    shown = run(folder, "predict", "model", "new.parquet", "--out", "predictions.csv")
    assert (shown.returncode, shown.stderr) == (0, "")
    predictions = pd.read_csv(folder / "predictions.csv")
    assert list(predictions) == ["mean", "std", "low", "high", "epistemic_std"]
    truth = houses()["price"][:20]
    assert np.corrcoef(predictions["mean"], truth)[0, 1] > 0.7
    assert np.all(predictions["low"] < predictions["high"])
    assert main(["evaluate", str(folder / "model"), str(folder / "houses.csv")]) == 0
    assert "coverage of 90 % intervals" in capsys.readouterr().out
    files = {file.name for file in folder.iterdir()}
    assert not any(name.endswith(("checkpoint", "part")) for name in files), files


def test_classification_from_the_first_to_the_last(folder, capsys):
    frame = houses()
    frame["dear"] = np.where(frame.pop("price") > 320, "yes", "no")
    frame.to_csv(folder / "dear.csv", index=False)
    arguments = ["fit", folder / "dear.csv", "--target", "dear", "--out", folder / "kinds"]
    assert main([*map(str, arguments), "--epochs", "20", "--method", "map_estimate"]) == 0
    assert "classification, because dear holds labels" in capsys.readouterr().out
    out = folder / "kinds.csv"
    assert main(["predict", str(folder / "kinds"), str(folder / "dear.csv"), "--out", str(out)]) == 0
    columns = ["prediction", "probability_no", "probability_yes", "entropy", "epistemic"]
    assert list(pd.read_csv(out)) == columns
    assert main(["evaluate", str(folder / "kinds"), str(folder / "dear.csv")]) == 0
    assert "accuracy" in capsys.readouterr().out


def changed(folder, name, **columns):
    frame = houses()[:5].astype(object)
    for column, value in columns.items():
        if value is None:
            frame = frame.drop(columns=column)
        else:
            frame.loc[3, column] = value
    frame.to_csv(folder / name, index=False)
    return str(folder / name)


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"town": "Rome"}, "column 'town' holds the category 'Rome', which was not there in training"),
        ({"rooms": None}, "there is no column 'rooms'; the table has 'size', 'town', 'price'."),
        ({"size": "big"}, "column 'size' should hold numbers, but row 4 holds 'big'."),
    ],
)
def test_tables_that_do_not_fit_the_model(folder, capsys, table, sentence):
    path = changed(folder, "wrong.csv", **table)
    out = folder / "never.csv"
    assert main(["predict", str(folder / "model"), path, "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("partialbayes: ")
    assert sentence in error
    assert len(error.splitlines()) == 1
    assert not out.exists()


def test_what_cannot_be_trained_on(folder, capsys):
    (folder / "empty.csv").write_text("")
    (folder / "header.csv").write_text("a,b\n")
    (folder / "binary.parquet").write_bytes(b"\x00\x01nonsense")
    text = changed(folder, "text.csv", size="big")
    good = str(folder / "houses.csv")
    for arguments, sentence in (
        ([good, "--target", "prise"], "there is no target column 'prise'; the table has 'size'"),
        ([text, "--target", "price"], "column 'size' should hold numbers, but row 4 holds 'big'"),
        ([str(folder / "empty.csv"), "--target", "a"], "empty.csv is empty."),
        ([str(folder / "header.csv"), "--target", "a"], "header.csv has no rows."),
        ([str(folder / "binary.parquet"), "--target", "a"], "cannot be read as a table"),
        ([str(folder / "absent.csv"), "--target", "a"], "there is no file"),
        ([good, "--target", "price", "--method", "magic"], "method must be one of ohsmc"),
        ([good, "--target", "price", "--stochastic", "layers/7/*"], "matches no weight"),
        ([good, "--target", "price", "--epochs", "0"], "epochs must be a whole number"),
    ):
        assert main(["fit", *arguments, "--out", str(folder / "never")]) == 2, arguments
        error = capsys.readouterr().err
        assert sentence in error
        assert len(error.splitlines()) == 1
        assert not [file.name for file in folder.iterdir() if "never" in file.name]
    assert main(["fit", good, "--target", "price", "--out", str(folder / "model")]) == 2
    assert "there is something at" in capsys.readouterr().err


def test_training_that_diverges_ends_with_a_sentence(folder, capsys, monkeypatch):
    def diverges(*arguments, **others):
        raise TrainingDivergedError(3, None, "Look at the scale.", "no evaluation gave a finite score.")

    monkeypatch.setattr("partialbayes.estimators._base.fit", diverges)
    arguments = [str(folder / "houses.csv"), "--target", "price", "--out", str(folder / "never")]
    assert main(["fit", *arguments]) == 1
    error = capsys.readouterr().err
    assert error == "partialbayes: no evaluation gave a finite score. Look at the scale.\n"
    assert not (folder / "never").exists()


def test_models_that_cannot_be_read(folder, tmp_path, capsys):
    data = str(folder / "houses.csv")
    assert main(["evaluate", str(tmp_path / "absent"), data]) == 2
    assert "does not exist: there is no model.json" in capsys.readouterr().err
    (tmp_path / "model.json").write_text("{")
    assert main(["evaluate", str(tmp_path), data]) == 2
    assert "not readable as JSON" in capsys.readouterr().err
    assert main(["evaluate"]) == 2


def test_stopped_runs_are_resumed(folder, capsys, monkeypatch):
    """What a Ctrl-C leaves behind is taken up by --resume, to the same model."""
    import partialbayes as pb
    from partialbayes.cli import _commands as commands

    arguments = ["fit", str(folder / "houses.csv"), "--target", "price", "--epochs", "80", "--out"]
    out = folder / "resumed"

    def interrupt():
        def callback(progress):
            if progress.begin > 0:
                os.kill(os.getpid(), 2)

        return callback

    with monkeypatch.context() as patch:
        patch.setattr(commands, "_lines", interrupt)
        assert main([*arguments, str(out)]) == 130
    assert "go on by --resume" in capsys.readouterr().err
    assert not out.exists()
    assert main([*arguments, str(out)]) == 2
    assert "unfinished run" in capsys.readouterr().err
    assert main([*arguments, str(out), "--resume"]) == 0
    assert not out.with_name("resumed.checkpoint").exists()
    straight, resumed = (pb.load(folder / name).posterior for name in ("model", "resumed"))
    np.testing.assert_array_equal(straight.particles.values, resumed.particles.values)


def test_a_file_that_cannot_be_written_is_one_sentence(folder, tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("")
    arguments = ["report", folder / "model", folder / "houses.csv", "--out", file / "page.html"]
    assert main([*map(str, arguments)]) == 2
    assert capsys.readouterr().err.startswith(f"partialbayes: {file}")


def test_methods_and_help(capsys):
    assert main(["methods"]) == 0
    listed = capsys.readouterr().out
    for name in ("ohsmc", "map_estimate", "swag", "nuts", "laplace"):
        assert f"  {name} " in listed
    assert main(["--help"]) == 0
    assert "partialbayes fit houses.csv --target price" in capsys.readouterr().out
