"""The paper's experiments: as declared there, run whole and small, taken up again when stopped."""

import csv
import json
import math
import os
import shutil
import signal
from dataclasses import replace

import jax
import numpy as np
import pytest
from tests.published import FOLDER, needs_data

import partialbayes as pb
from partialbayes._engine.monitor import Monitor
from reproduction import data
from reproduction.experiments import crescent, mnist, problems, tabular
from reproduction.experiments.experiment import Experiment, Task
from reproduction.experiments.result_folder import ResultFolder
from reproduction.experiments.settings import MOONS, REGRESSION, REGRESSION_SETS, UCI
from reproduction.figures.records import Traces, load_records
from reproduction.registry import EXPERIMENTS
from reproduction.run import RESULTS, draw_results, reproduce


def read(folder):
    with (folder / "per_run.csv").open() as file:
        return list(csv.DictReader(file))


def test_the_settings_are_the_papers():
    """The paper's settings, by hand: hidden widths, stochastic layer, batch, rate, epochs, repeats."""

    def numbers(setting):
        return (
            *(setting.hidden, setting.stochastic, setting.batch_size, setting.rate),
            *(setting.epochs, setting.repeats, setting.num_particles),
        )

    (regression,), (moons,) = REGRESSION["paper"], MOONS["paper"]
    assert numbers(regression) == ((20, 10), 1, 20, 0.01, 200, 100, 1000)
    assert numbers(moons) == ((100, 20, 5), 2, 20, 0.01, 100, 100, 1000)
    for setting in (regression, moons):
        assert (setting.walk_variance, setting.metropolis_variance) == (0.01, 0.05)
        assert (setting.swag.num_steps, setting.swag.rank, setting.noise) == (200, 100, "fixed")
        assert (setting.ou_time, setting.vb_samples) == (None, 100)
    uci = {setting.dataset: setting for setting in UCI["paper"]}
    assert set(uci) == set(data.UCI) - {"wine_red", "protein"}  # which others report on
    for name, setting in uci.items():
        batch_size = 20 if name in ("yacht", "ionosphere", "glass") else 50
        epochs = 200 if data.UCI[name].classes is None else 100
        assert numbers(setting) == ((50, 20, 5), 2, batch_size, 0.01, epochs, 10, 1000)
        assert (setting.ou_time, setting.swag.rank, setting.walk_variance) == (0.1, 50, 0.01)
        assert "MAP-HMC" in setting.methods
    hmc = regression.hmc
    assert (hmc.step_size, hmc.num_leapfrog_steps, hmc.num_warmup, hmc.num_draws) == (
        0.01,
        100,
        2000,
        1000,
    )
    images = mnist.MnistSetting()
    assert (images.train_rows, images.validation_rows, images.test_rows) == (50_000, 10_000, 10_000)
    assert (images.batch_size, images.rate, images.epochs) == (100, 0.002, 10)
    assert (images.num_particles, images.swag.num_steps, images.swag.rank) == (100, 50, 100)
    points = crescent.CrescentSetting()
    assert (points.rows, points.batch_size, points.epochs, points.start) == (100, 10, 200, 0.1)
    assert (points.rate, points.decay, points.walk_variance) == (0.1, 0.96, 0.001)
    assert (points.metropolis_variance, points.monte_carlo_samples) == (0.001, 10_000)
    assert (points.swag.num_steps, points.swag.rank) == (100 * 10, 20)


def test_baselines_of_the_best_track_get_the_same_noise_and_budget():
    for name in ("regression", "moons", "uci"):
        for setting in EXPERIMENTS[name].settings["best"]:
            assert setting.noise in ("learned", "student_t")
            assert setting.prior == ("standard" if name == "regression" else "fan_in")
            rivals = {"VB", "SWAG"} if setting.dataset not in REGRESSION_SETS else set()
            assert {"OHSMC", "MAP", "Deep ensemble"} | rivals <= set(setting.methods)


@needs_data
@pytest.mark.parametrize("dataset", ["yacht", "glass"])
def test_the_papers_split_is_scaled_by_its_training_rows_alone(dataset):
    (setting,) = (s for s in UCI["paper"] if s.dataset == dataset)
    table = data.uci(dataset, FOLDER)
    run = problems.pose_table(setting, FOLDER).run(3)
    sizes = [len(targets) for _, targets in (run.train, run.validation, run.test)]
    rows = len(table.targets)
    assert sum(sizes) == rows
    np.testing.assert_allclose(np.array(sizes) / rows, [0.6, 0.3, 0.1], atol=1 / rows)
    np.testing.assert_allclose(run.train[0].mean(axis=0), 0.0, atol=1e-5)
    assert abs(run.test[0].mean(axis=0)).max() > 1e-3  # scaled by others' statistics
    if table.classes is None:
        assert abs(run.train[1].mean()) < 1e-5 < abs(run.test[1].mean())


@needs_data
def test_a_standard_split_keeps_its_test_rows_and_units():
    (setting,) = (s for s in UCI["best"] if s.dataset == "yacht")
    table, splits = data.uci("yacht", FOLDER), data.uci_splits("yacht", FOLDER)
    run = problems.pose_table(setting, FOLDER).run(7)
    np.testing.assert_array_equal(run.test[1], table.targets[splits[7]])
    seen = np.concatenate([run.train[1], run.validation[1]]) * run.target_scale.scale
    rest = np.delete(table.targets, splits[7])
    np.testing.assert_allclose(np.sort(seen + run.target_scale.shift), np.sort(rest), atol=1e-4)
    share = len(run.validation[1]) / len(rest)
    assert abs(share - setting.validation_share) < 0.01


@needs_data
def test_a_gap_is_the_middle_third_of_a_column():
    (setting,) = (s for s in UCI["gap"] if s.dataset == "yacht")
    problem = problems.pose_table(setting, FOLDER)
    runs = [problem.run(column) for column in range(setting.most_repeats)]
    for column, run in enumerate(runs):
        inside = run.test[0][:, column]
        seen = np.concatenate([run.train[0], run.validation[0]])[:, column]
        assert not ((seen > inside.min()) & (seen < inside.max())).any()
        assert abs(len(inside) - len(seen) / 2) <= 1
    assert len({len(run.test[1]) for run in runs}) == 1  # of one shape, for one program


def scores(value):
    return {"nlpd": value, "seconds": 1.0}


def opened(folder, *settings):
    return ResultFolder(folder, "moons", settings or MOONS["paper"])


@pytest.fixture
def results(tmp_path):
    return opened(tmp_path / "moons" / "paper")


def test_a_run_cut_off_while_it_was_written_is_not_there(results):
    results.append("moons", "OHSMC", 0, scores(0.3))
    results.append("moons", "OHSMC", 1, scores(0.4))
    text = results.file.read_bytes()
    for length in range(len(text) - len(b"moons,OHSMC,1,seconds,1\n"), len(text)):
        results.file.write_bytes(text[:length])
        assert results.finished() == {("moons", "OHSMC", 0)}
        results.append("moons", "OHSMC", 2, scores(0.5))
        values = [(row["repeat"], row["metric"]) for row in read(results.folder)]
        assert values == [("0", "nlpd"), ("0", "seconds"), ("2", "nlpd"), ("2", "seconds")]


def test_a_run_cut_off_is_in_no_table(results):
    results.append("moons", "OHSMC", 0, scores(0.3))
    with results.file.open("a") as file:
        file.write("moons,OHSMC,1,nlpd,99\n")
    opened(results.folder)
    assert {row["repeat"] for row in read(results.folder)} == {"0"}


def test_damaged_files_of_results_are_named(results):
    results.append("moons", "OHSMC", 0, scores(0.3))
    whole = results.file.read_text()
    results.file.write_text(whole.replace("OHSMC,0", "OHSMC,first"))
    with pytest.raises(ValueError, match=r"per_run\.csv has the line 'moons,OHSMC,first,seconds,1'"):
        opened(results.folder)
    results.file.write_text(whole)
    (results.folder / "settings.json").write_text("{")
    with pytest.raises(ValueError, match=r"settings\.json is damaged .* --out"):
        opened(results.folder)


def test_a_run_of_two_processes_is_written_once(results):
    for one in (results, opened(results.folder)):
        one.append("moons", "OHSMC", 0, scores(0.3))
        one.append("moons", "OHSMC", 1, scores(0.4))
    assert [row["repeat"] for row in read(results.folder)] == ["0", "0", "1", "1"]
    assert len(json.loads((results.folder / "settings.json").read_text())["runs"]) == 1


def test_commands_that_begin_in_one_second_are_both_told_of(results, monkeypatch):
    monkeypatch.setattr("reproduction.experiments.result_folder._format_time", lambda seconds: "now")
    both = results, opened(results.folder)
    for repeat in (0, 1):
        for method, one in zip(("OHSMC", "MAP"), both, strict=True):
            monkeypatch.setattr("sys.argv", ["reproduction", method])
            one.append("moons", method, repeat, scores(0.3))
    runs = json.loads((results.folder / "settings.json").read_text())["runs"]
    assert [(run["command"].split()[-1], run["runs"]) for run in runs] == [("OHSMC", 2), ("MAP", 2)]


def test_runs_of_two_settings_do_not_come_into_one_table(results):
    changed = replace(MOONS["paper"][0], epochs=7)
    opened(results.folder, changed)  # no run is there yet
    results = opened(results.folder)
    results.append("moons", "OHSMC", 0, scores(0.3))
    with pytest.raises(ValueError, match=r"epochs=100, and this would add some with 7.*--out"):
        opened(results.folder, changed)
    more = replace(MOONS["paper"][0], repeats=3, methods=("MAP",), at_once=2)
    opened(results.folder, more)


def test_a_candidate_is_chosen_by_validation_in_each_run():
    model = pb.partial_bnn(pb.mlp([1, 3, 1]), "layers/0/**", pb.gaussian())
    x = np.linspace(-1.0, 1.0, 8, dtype=np.float32)[:, None]
    run = problems.Run((x, x), (x, x), (x, x))
    (setting,) = REGRESSION["paper"]
    setting = replace(setting, epochs=2, batch_size=4, evaluate_every=1)
    still, moving = (pb.map_estimate(model, optimizer=o) for o in (optax_sgd(0.0), optax_sgd(1e-2)))
    for pair in ((still, moving), (moving, still)):
        (kept,) = tabular.train(pair, setting, [run], [0])
        assert tabular.best_validation(kept) == min(
            tabular.best_validation(tabular.train((one,), setting, [run], [0])[0]) for one in pair
        )


def optax_sgd(rate):
    import optax

    return optax.sgd(rate)


def test_tiny_regression_goes_on_where_it_was(tmp_path):
    few = {"methods": ("OHSMC",), "jobs": 1, "quick": True, "progress": False, "out": tmp_path}
    folder = reproduce("regression", repeats=1, **few)
    before = read(folder)
    reproduce("regression", repeats=2, **few)
    after = read(folder)
    assert after[: len(before)] == before
    assert {row["repeat"] for row in after} == {"0", "1"}
    metrics = {row["metric"] for row in before}
    assert {"nlpd", "rmse", "rmse_particles", "crps", "coverage90", "validation_nlpd"} <= metrics
    with (folder / "table.csv").open() as file:
        (row,) = (row for row in csv.DictReader(file) if row["metric"] == "nlpd")
    assert (row["method"], row["repeats"], row["paper_mean"]) == ("OHSMC", "2", "1.49")
    runs = json.loads((folder / "settings.json").read_text())["runs"]
    assert len(runs) == 2
    assert all(run["commit"] and run["started"] and run["runs"] == 1 for run in runs)
    kept = load_records(folder / "figures.npz")["curves"]  # by the runs themselves, as they came
    assert {run: list(record.samples) for run, record in kept.items()} == {0: ["OHSMC"], 1: ["OHSMC"]}
    assert np.isfinite(kept[1].samples["OHSMC"]).all()
    assert (folder / "curves_by_seed.png").stat().st_size > 10_000
    assert "OHSMC" in (tmp_path / "index.html").read_text()


def test_an_interrupted_run_is_not_written_down(tmp_path, monkeypatch):
    after_piece = Monitor.after_piece

    def struck(*arguments):
        os.kill(os.getpid(), signal.SIGINT)
        return after_piece(*arguments)

    monkeypatch.setattr(Monitor, "after_piece", struck)
    few = {"methods": ("MAP",), "jobs": 1, "quick": True, "progress": False, "out": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        reproduce("moons", repeats=1, **few)
    assert not (tmp_path / "moons" / "paper" / "per_run.csv").exists()


def test_tiny_moons_by_a_method_of_two_stages(tmp_path):
    folder = reproduce("moons", methods=("SWAG",), jobs=1, quick=True, progress=False, out=tmp_path)
    values = {row["metric"]: float(row["value"]) for row in read(folder)}
    assert 0.0 < values["nlpd"] < 2.0
    assert 0.0 <= values["ece"] <= 1.0
    assert (folder / "boundaries.png").stat().st_size > 10_000


def test_tiny_crescent(tmp_path):
    folder = reproduce("crescent", methods=("OHSMC",), quick=True, progress=False, out=tmp_path)
    values = {row["metric"]: float(row["value"]) for row in read(folder)}
    assert values["psi_error"] == pytest.approx(abs(values["psi"] - values["best_psi"]), abs=1e-5)
    assert 0.0 < values["ks_phi0"] < 1.0
    for name in ("traces", "posterior", "flow"):
        assert (folder / f"{name}.png").stat().st_size > 10_000


@needs_data
@pytest.mark.parametrize("track", ["paper", "best", "gap"])
def test_tiny_uci(tmp_path, track):
    folder = reproduce(
        "uci",
        track=track,
        repeats=1,
        methods=("MAP",),
        datasets=("yacht",),
        data_dir=FOLDER,
        jobs=1,
        quick=True,
        progress=False,
        out=tmp_path,
    )
    values = {row["metric"]: float(row["value"]) for row in read(folder)}
    assert np.isfinite(list(values.values())).all()
    # Residuary resistances are up to 62; scaled ones a few units.
    assert (values["rmse"] > 3.0) == (track != "paper")


@needs_data
def test_tiny_mnist(tmp_path):
    folder = reproduce(
        "mnist", methods=("MAP",), data_dir=FOLDER, quick=True, progress=False, out=tmp_path
    )
    values = {row["metric"]: float(row["value"]) for row in read(folder)}
    assert 0.0 <= values["accuracy"] <= 1.0
    assert 1.0 < values["nlpd"] < 4.0
    assert values["auroc_mutual_information"] == 0.5  # one particle knows nothing of itself
    assert not list(folder.glob("*.checkpoint"))
    assert set(values) == {*mnist.SCORES, "seconds"}


@needs_data
def test_a_diverged_run_of_mnist_is_no_end(tmp_path, monkeypatch):
    changes = {**mnist.MnistSetting.quick_changes, "rate": 1e30, "repeats": 2}
    monkeypatch.setattr(mnist.MnistSetting, "quick_changes", changes)
    arguments = {"methods": ("MAP",), "data_dir": FOLDER, "quick": True, "progress": False}
    folder = reproduce("mnist", **arguments, out=tmp_path)
    runs = [row for row in read(folder) if row["metric"] == "nlpd"]
    # Each in a process of its own, so in either order.
    assert sorted((row["repeat"], row["value"]) for row in runs) == [("0", "nan"), ("1", "nan")]
    assert not list(folder.glob("*.checkpoint"))
    assert "Diverged: MAP 2 of 2." in (folder / "table.md").read_text()


@pytest.mark.parametrize("method", ["MAP", "SWAG"])
def test_a_run_of_mnist_that_diverged_late_keeps_its_best_posterior(tmp_path, monkeypatch, method):
    """Unless a second stage was to follow, which is then missing."""
    kept = pb.results.Fit(None, None, {})

    def diverges(*arguments, **others):
        raise pb.errors.TrainingDivergedError(12, kept, "", "it diverged.")

    monkeypatch.setattr(mnist, "fit", diverges)
    model = pb.partial_bnn(pb.mlp([1, 2, 1]), "layers/0/*", pb.gaussian())
    setting = mnist.MnistSetting().quick()
    trainer = mnist.make_algorithm(method, model, setting)
    task = Task(setting, method, (0,), tmp_path)
    found = mnist.train_run(trainer, task, (None, None), (None, None))
    assert found is (kept if method == "MAP" else None)


def test_distances_to_the_crescent_are_small_for_exact_draws_and_large_for_others():
    oracle, psi = crescent.draw_data(crescent.CrescentSetting(), 0)
    draws = 3.0 * jax.random.uniform(jax.random.key(0), (100_000, 2), minval=-1.3, maxval=1.3)
    weights = np.exp(np.asarray(oracle.log_density(psi, draws), float))
    assert max(oracle.distances(psi, draws, weights)) < 0.02
    assert min(oracle.distances(psi, draws, np.ones(len(draws)))) > 0.1


class Constant(Experiment):
    """The least that an experiment needs."""

    def train(self, task):
        return [task.repeats[0]]

    def score(self, task, trained):
        return {"nlpd": float(trained) if task.method == "OHSMC" else math.nan}

    def collect_records(self, task, trained):
        return {"traces": Traces({task.method: np.ones(3)}, float(trained))}


def test_a_new_experiment_is_one_object(tmp_path, monkeypatch):
    setting = replace(MOONS["paper"][0], dataset="constant", methods=("OHSMC", "MAP"), repeats=3)
    monkeypatch.setitem(
        EXPERIMENTS, "constant", Constant("constant", "a test", {"paper": (setting,)}, 2)
    )
    folder = reproduce("constant", out=tmp_path, jobs=1, progress=False)
    values = [(row["method"], row["value"]) for row in read(folder) if row["metric"] == "nlpd"]
    runs = [(method, value) for value in "012" for method in ("OHSMC", "MAP")]
    assert values == [(method, value if method == "OHSMC" else "nan") for method, value in runs]
    kept = load_records(folder / "figures.npz")["traces"]  # of the first two runs that did not diverge
    assert {run: list(record.psi) for run, record in kept.items()} == {0: ["OHSMC"], 1: ["OHSMC"]}
    assert "constant, paper track" in (tmp_path / "index.html").read_text()
    assert (folder / "traces.png").exists()


@pytest.mark.parametrize(
    ("name", "track"), [(name, track) for name, one in EXPERIMENTS.items() for track in one.settings]
)
def test_what_is_in_the_repository_can_be_continued(tmp_path, name, track):
    """Its runs were made by the settings of today, and what its figures show is there."""
    kept, folder = RESULTS / name / track, tmp_path / name / track
    folder.mkdir(parents=True)
    for file in ("per_run.csv", "settings.json"):
        shutil.copy(kept / file, folder)
    experiment = EXPERIMENTS[name]
    settings = tuple(setting.small() for setting in experiment.settings[track])
    done = ResultFolder(folder, name, settings).finished()
    assert len(done) >= len(experiment.methods(track))
    assert (folder / "per_run.csv").read_bytes() == (kept / "per_run.csv").read_bytes()
    for records in load_records(kept / "figures.npz").values():
        assert list(records) == list(range(len(records)))
        for record in records.values():
            methods = [list(value) for value in record if isinstance(value, dict)]
            assert all(set(own) <= set(experiment.methods(track)) for own in methods)


def test_results_are_drawn_again_without_training(tmp_path, monkeypatch):
    kept = RESULTS / "crescent" / "paper"
    folder = tmp_path / "crescent" / "paper"
    folder.mkdir(parents=True)
    for file in ("per_run.csv", "settings.json", "figures.npz"):
        shutil.copy(kept / file, folder)
    monkeypatch.setattr(Experiment, "run", None)
    assert draw_results(tmp_path) == tmp_path / "index.html"
    for name in ("table.csv", "differences.csv", "table.md"):
        assert (folder / name).read_text() == (kept / name).read_text(), name
    assert {path.stem for path in folder.glob("*.png")} == {"traces", "posterior", "flow"}
    assert (tmp_path / "index.html").read_text().count("<img") == 3
    with pytest.raises(ValueError, match="there are no results in"):
        draw_results(tmp_path / "crescent")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "nothing"}, "experiment must be one of crescent, regression"),
        ({"name": "mnist", "track": "best"}, "tracks of mnist are paper; there is no best"),
        ({"name": "moons", "repeats": 0}, "repeats must be"),
        ({"name": "uci", "track": "best", "repeats": 21}, "protein have 5 splits"),
        ({"name": "moons", "jobs": 0}, "jobs must be"),
        ({"name": "moons", "methods": ("HMC",)}, "methods of moons in the paper track are OHSMC"),
        ({"name": "moons", "methods": ("Deep ensemble",)}, "there is no Deep ensemble"),
        ({"name": "crescent", "methods": ("OHSMC", "HMC")}, "methods of crescent .* there is no HMC"),
        ({"name": "mnist", "methods": ("MAP", "HMC")}, "OHSMC, SWAG, VB, MAP; there is no HMC"),
        ({"name": "moons", "datasets": ("yacht",)}, "there is no yacht"),
        ({"name": "crescent", "datasets": ("yacht",)}, "datasets of crescent are crescent"),
    ],
)
def test_wrong_arguments_leave_nothing_behind(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        reproduce(**arguments, out=tmp_path / "out", quick=True, progress=False)
    with pytest.raises(data.MissingDataError, match="nowhere, and there is no such folder"):
        reproduce("moons", data_dir=tmp_path / "nowhere", out=tmp_path / "out", quick=True)
    assert not list(tmp_path.iterdir())
