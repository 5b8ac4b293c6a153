"""The command line: end to end by subprocess, and a sentence for whatever is wrong."""

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import partialbayes
from partialbayes.cli._main import main
from partialbayes.cli._terminal import kept_programs
from partialbayes.errors import TrainingDivergedError
from tests.io.test_model_folder import forge

ROOT = Path(__file__).parents[2]
OHSMC = ("--method", "ohsmc", "--max-iter", "80")


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
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "PARTIALBAYES_CACHE": ""}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with tables and a trained model in it."""
    folder = tmp_path_factory.mktemp("houses")
    frame = houses()
    frame.insert(0, "id", range(500, 500 + len(frame)))
    frame.to_csv(folder / "houses.csv", index=False)
    frame.drop(columns="price")[:20].to_parquet(folder / "new.parquet")
    shown = run(folder, "fit", "houses.csv", "--target", "price", "--out", "model", *OHSMC)
    assert shown.returncode == 0, shown.stderr
    assert shown.stderr == ""
    assert "regression, because price takes 160 different numbers" in shown.stdout
    assert re.search(r"^step \d+ of 400$", shown.stdout, re.M)  # plain lines where there is no terminal
    assert "the model is in model." in shown.stdout
    return folder


def test_predict_and_evaluate(folder, capsys):
    shown = run(folder, "predict", "model", "new.parquet", "--out", "predictions.csv", "--keep", "town")
    assert (shown.returncode, shown.stderr) == (0, "")
    predictions = pd.read_csv(folder / "predictions.csv", keep_default_na=False)
    columns = ["id", "town", "mean", "median", "std", "low", "high", "epistemic_std"]
    assert list(predictions) == columns
    assert predictions["id"].tolist() == list(range(500, 520))
    truth = houses()["price"][:20]
    assert np.corrcoef(predictions["mean"], truth)[0, 1] > 0.7
    assert np.all(predictions["low"] < predictions["high"])
    assert "e" not in (folder / "predictions.csv").read_text().split("\n", 1)[1].replace("Bergen", "")
    assert main(["evaluate", str(folder / "model"), str(folder / "houses.csv")]) == 0
    shown = capsys.readouterr().out
    for words in ("coverage of 90 % intervals", "baseline", "R²", "lower is better", "held out from"):
        assert words in shown, words
    files = {file.name for file in folder.iterdir()}
    assert not any(name.endswith(("checkpoint", "part")) for name in files), files


def test_scores_as_json_and_the_report_agree(folder, capsys):
    data = str(folder / "houses.csv")
    assert main(["evaluate", str(folder / "model"), data, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["rows"], found["rows_are"], found["task"]) == (24, "held out", "regression")
    assert found["scores"]["rmse"] < found["baseline"]["rmse"]
    page = folder / "page.html"
    assert main(["report", str(folder / "model"), data, "--out", str(page)]) == 0
    text = page.read_text()
    assert f">{found['scores']['r2']:.4f}<" in text
    assert "24 rows that were held out" in text
    assert 'class="alarm"' not in text
    for words in ("1 left out", "names the row", "Which columns matter", "The rows it is least sure of"):
        assert words in text, words
    # The training table is the default.
    assert main(["report", str(folder / "model"), "--out", str(page)]) == 0
    assert "24 rows that were held out" in page.read_text()


def test_the_training_table_is_scored_out_of_fold(folder, capsys):
    data, out = str(folder / "houses.csv"), str(folder / "crossfit")
    settings = ["--max-iter", "3", "--n-folds", "3", "--hidden-layer-sizes", "8"]
    assert main(["fit", data, "--target", "price", "--out", out, *settings]) == 0
    told = re.search(r"members that have not seen them: R² (\S+)\.\n", capsys.readouterr().out)[1]
    assert main(["evaluate", out, data, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["rows"], found["rows_are"]) == (160, "out of fold")
    assert f"{found['scores']['r2']:.3f}" == told
    page = folder / "out_of_fold.html"
    assert main(["report", out, "--out", str(page)]) == 0
    assert (
        "the 160 rows of training, each predicted by members that have not seen it" in page.read_text()
    )
    assert f">{found['scores']['r2']:.4f}<" in page.read_text()
    written = {}
    for option in ([], ["--conformal"]):
        table = folder / "intervals.csv"
        assert main(["predict", out, data, "--out", str(table), "--coverage", "0.8", *option]) == 0
        written[bool(option)] = pd.read_csv(table)
    assert written[True]["mean"].equals(written[False]["mean"])
    assert not written[True]["low"].equals(written[False]["low"])
    inside = written[True]["low"].le(houses()["price"]) & written[True]["high"].ge(houses()["price"])
    assert 0.6 < inside.mean() < 1.0
    refused = ["predict", str(folder / "model"), data, "--out", str(table), "--conformal"]
    assert main(refused) != 0
    assert "--conformal: conformal predictions need out-of-fold scores" in capsys.readouterr().err


def test_what_is_new_is_predicted_with_a_note(folder, capsys):
    table = changed(folder, "odd.csv", town="Rome", size="big")
    out = folder / "odd_predictions.csv"
    assert main(["predict", str(folder / "model"), table, "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "a category that was not there in training in 1 row ('Rome')" in shown
    assert "should hold numbers but does not in 1 row (row 4: 'big')" in shown
    assert pd.read_csv(out)["row"].tolist() == [1, 2, 3, 4, 5]


def test_classification_from_the_first_to_the_last(folder, capsys):
    frame = houses()
    frame["dear"] = np.where(frame.pop("price") > 320, "yes", "no")
    frame.to_csv(folder / "dear.csv", index=False)
    arguments = ["fit", folder / "dear.csv", "--target", "dear", "--out", folder / "kinds"]
    assert main([*map(str, arguments), "--max-iter", "20", "--method", "map_estimate"]) == 0
    assert "classification, because dear holds labels" in capsys.readouterr().out
    out = folder / "kinds.csv"
    assert main(["predict", str(folder / "kinds"), str(folder / "dear.csv"), "--out", str(out)]) == 0
    columns = ["row", "prediction", "probability_no", "probability_yes", "entropy", "epistemic"]
    assert list(pd.read_csv(out)) == columns
    assert main(["evaluate", str(folder / "kinds"), str(folder / "dear.csv")]) == 0
    assert "accuracy" in capsys.readouterr().out
    small = ["--max-iter", "3", "--n-folds", "3", "--hidden-layer-sizes", "8"]
    assert main([*map(str, arguments[:5]), str(folder / "sets"), *small]) == 0
    assert main(["predict", str(folder / "sets"), str(folder / "dear.csv"), "--out", str(out),
                 "--conformal"]) == 0  # fmt: skip
    sets = pd.read_csv(out, keep_default_na=False)["set"]
    assert set(sets) <= {"", "no", "yes", "no, yes"}
    assert (
        np.mean([label in held.split(", ") for label, held in zip(frame["dear"], sets, strict=True)])
        > 0.7
    )


def changed(folder, name, **columns):
    frame = houses()[:5].astype(object)
    for column, value in columns.items():
        if value is None:
            frame = frame.drop(columns=column)
        else:
            frame.loc[3, column] = value
    frame.to_csv(folder / name, index=False)
    return str(folder / name)


def test_training_that_diverges_ends_with_a_sentence(folder, capsys, monkeypatch):
    def diverges(*arguments, **others):
        raise TrainingDivergedError(3, None, "Look at the scale.", "no evaluation gave a finite score.")

    monkeypatch.setattr("partialbayes.estimators._base.fit", diverges)
    arguments = [str(folder / "houses.csv"), "--target", "price", "--out", str(folder / "never")]
    assert main(["fit", *arguments, "--method", "ohsmc"]) == 1
    error = capsys.readouterr().err
    assert error == "partialbayes: no evaluation gave a finite score. Look at the scale.\n"
    assert not (folder / "never").exists()


def test_stopped_runs_are_resumed(folder, capsys, monkeypatch):
    """What a Ctrl-C leaves behind is a model, and is taken up by --resume, to the same end."""
    import partialbayes as pb
    from partialbayes.cli import _fit as commands

    arguments = ["fit", str(folder / "houses.csv"), "--target", "price", *OHSMC, "--out"]
    out = folder / "resumed"

    def interrupt():
        def callback(progress):
            if progress.begin > 0:
                os.kill(os.getpid(), 2)

        return callback

    with monkeypatch.context() as patch:
        patch.setattr(commands, "_lines", interrupt)
        assert main([*arguments, str(out)]) == 130
    assert "the best model so far" in capsys.readouterr().err
    assert main(["evaluate", str(out), str(folder / "houses.csv")]) == 0  # it can be used
    others = [argument.replace("80", "70") for argument in arguments]
    assert main([*others, str(out), "--resume"]) == 2
    assert "the plan (epochs, batch_size, validation, until) differs" in capsys.readouterr().err
    assert main([*arguments, str(out), "--resume"]) == 0
    assert not out.with_name("resumed.checkpoint").exists()
    straight, resumed = (pb.load(folder / name).posterior for name in ("model", "resumed"))
    np.testing.assert_array_equal(straight.particles.values, resumed.particles.values)


def test_methods_and_help(capsys):
    assert main(["methods"]) == 0
    listed = capsys.readouterr().out
    for name in ("ohsmc", "map_estimate", "swag", "nuts", "laplace"):
        assert f"  {name} " in listed
    assert main(["--help"]) == 0
    assert "partialbayes fit houses.csv --target price" in capsys.readouterr().out
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"partialbayes {partialbayes.__version__}\n"
    assert main(["predict", "--help"]) == 0
    assert "MODEL TABLE" in capsys.readouterr().out


def test_what_the_estimator_has_the_command_line_has(capsys):
    assert main(["fit", "--help"]) == 0
    shown = capsys.readouterr().out
    own = set(inspect.signature(partialbayes.PartialBNNRegressor).parameters)
    for name in own - {"random_state", "verbose", "window_size", "n_replays"}:
        assert f"--{name.replace('_', '-')}" in shown, name
    assert {"--seed", "--drop", "--categorical", "--columns", "--sep", "--decimal"} <= set(shown.split())


def test_models_obey_the_umask(folder):
    mode = (folder / "model").stat().st_mode & 0o777
    mask = os.umask(0o022)
    os.umask(mask)
    assert mode == 0o777 & ~mask
    for file in (folder / "model").iterdir():
        assert file.stat().st_mode & 0o777 == 0o666 & ~mask


def test_compiled_programs_are_kept(tmp_path, monkeypatch, folder):
    """A second call of the same command compiles nothing that the first has."""
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("PARTIALBAYES_CACHE", str(tmp_path / "cache"))
    with kept_programs():
        jax.jit(lambda x: x * 3.0 + 41.0)(jnp.arange(5.0))
    (programs,) = (tmp_path / "cache").iterdir()
    assert any(file.name.startswith("jit") for file in programs.iterdir())
    assert programs.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr("partialbayes.cli._terminal._MOST_BYTES", 0)
    with kept_programs():
        assert not [file for file in programs.iterdir() if file.stat().st_size > 0]
    monkeypatch.setenv("PARTIALBAYES_CACHE", "")
    with kept_programs():
        pass
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PARTIALBAYES_CACHE", str(tmp_path / "file"))
    with kept_programs():  # a folder that cannot be made is done without
        pass


def test_skewed_targets_are_learned_as_logarithms(tmp_path, capsys):
    rng = np.random.default_rng(1)
    x = rng.normal(size=80)
    price = np.exp(1.5 * x + 0.2 * rng.normal(size=80)) * 1e5
    pd.DataFrame({"x": x, "price": price}).to_csv(tmp_path / "t.csv", index=False)
    small = [
        "--hidden-layer-sizes",
        "8",
        "--num-particles",
        "30",
        "--method",
        "ohsmc",
        "--max-iter",
        "150",
    ]
    arguments = ["fit", tmp_path / "t.csv", "--target", "price", "--out", tmp_path / "m", *small]
    assert main([*map(str, arguments)]) == 0
    assert "its logarithm is learned" in capsys.readouterr().out
    arguments = ["predict", tmp_path / "m", tmp_path / "t.csv", "--out", tmp_path / "p.csv"]
    assert main([*map(str, arguments), "--coverage", "0.999"]) == 0
    found = pd.read_csv(tmp_path / "p.csv")
    assert (found["low"] > 0).all()
    assert np.corrcoef(np.log(found["median"]), np.log(price))[0, 1] > 0.9


@pytest.mark.parametrize(
    "change",
    [
        lambda notes: notes.pop("target"),
        lambda notes: notes.update(target=7),
        lambda notes: notes["target"].update(color="red"),
        lambda notes: notes.pop("digest"),
        lambda notes: notes.update(held_out="x"),
        lambda notes: notes.update(baseline=7),
        lambda notes: notes["baseline"].update(quantiles=["x"] * 3),
        lambda notes: notes["baseline"].update(quantiles=[]),
        lambda notes: notes["baseline"].update(color="red"),
    ],
)
def test_a_crafted_model_is_one_sentence(folder, tmp_path, capsys, change):
    shutil.copytree(folder / "model", tmp_path / "model")
    forge(tmp_path / "model", lambda description: change(description["metadata"]["notes"]))
    arguments = ["evaluate", tmp_path / "model", folder / "houses.csv"]
    assert main([*map(str, arguments)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("partialbayes: ")
    assert len(error.splitlines()) == 1


def test_a_place_that_cannot_be_written_is_found_before_training(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("partialbayes.estimators._base.fit", None)
    (tmp_path / "file").write_text("")
    arguments = ["fit", folder / "houses.csv", "--target", "price", "--out", tmp_path / "file" / "model"]
    assert main([*map(str, arguments)]) == 2
    assert capsys.readouterr().err.startswith(f"partialbayes: {tmp_path / 'file' / 'model'} cannot be")
