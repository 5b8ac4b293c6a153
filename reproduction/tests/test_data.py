"""The data sets: found where they should be, the right ones, never half written. Nothing downloads."""

import gzip
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from tests.published import FOLDER, needs_data

from reproduction import data
from reproduction.data import (
    DamagedDataError,
    MissingDataError,
    checksums,
    locate,
    mnist_images,
    openml,
    uci_tables,
)

TOY_COUNTS = (30, 20, 10)


def refuse(table):
    raise OSError("no network in tests")


@pytest.fixture(autouse=True)
def nowhere(monkeypatch, tmp_path):
    """An empty cache, no folder in the environment, no network."""
    monkeypatch.delenv(locate.DATA_VARIABLE, raising=False)
    monkeypatch.setenv(locate.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(openml, "fetch", refuse)
    return tmp_path / "cache"


def fetching(monkeypatch, fetched):
    """Lets the download return this table, and counts the downloads."""
    asked = []
    monkeypatch.setattr(openml, "fetch", lambda table: (asked.append(table), fetched)[1])
    return asked


def known(monkeypatch, name, table):
    """Makes the table one of the known ones."""
    regression = table.classes is None
    of_target = (
        tuple(float(f(table.targets)) for f in (np.mean, np.min, np.max))
        if regression
        else tuple(np.bincount(table.targets).tolist())
    )
    entry = checksums.Facts(
        "regression" if regression else "classification",
        *table.inputs.shape,
        table.classes,
        "no file has this checksum",
        of_target,
        uci_tables._fingerprint(table),
    )
    monkeypatch.setitem(checksums.UCI, name, entry)
    monkeypatch.setitem(openml.TABLES, name, {"data_id": 0})


@pytest.fixture
def toy():
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat([0, 1, 2], TOY_COUNTS))
    inputs = np.column_stack([rng.normal(size=60) + labels, rng.integers(1, 5, 60), rng.normal(size=60)])
    return uci_tables.Table("toy", inputs, labels, 3)


def as_openml(table):
    """The same table as OpenML may have it: texts, constant and left-out columns, spelled classes."""
    columns = {
        "id": np.arange(len(table.targets)),
        "a": table.inputs[:, 0],
        "still": np.ones(len(table.targets)),
        "rank": table.inputs[:, 1].astype(int).astype(str).astype(object),
        "cooling_load": table.inputs[:, 2] ** 2,
        "b": table.inputs[:, 2],
    }
    target = table.targets
    if table.classes is not None:
        target = np.array(["'build wind'", "zinc", "arsenic"], object)[target]
    return openml.Fetched(columns, target)


@needs_data
def test_the_published_tables_are_read_as_they_are():
    for name, known_facts in data.UCI.items():
        table = data.uci(name, FOLDER)
        assert table.inputs.shape == (known_facts.rows, known_facts.features)
        assert table.inputs.dtype == np.float64
        assert table.targets.dtype == (np.float64 if table.classes is None else np.int64)
        assert table.classes == known_facts.classes
        # What a download must satisfy, the published file does.
        assert uci_tables._verify(table, known_facts, "the file") is table
    np.testing.assert_array_equal(
        data.uci("yacht", FOLDER).inputs[0], [-2.3, 0.568, 4.78, 3.99, 3.17, 0.125]
    )


@needs_data
def test_the_standard_splits():
    for name in ("boston", "power", "yacht"):
        rows = data.UCI[name].rows
        splits = data.uci_splits(name, FOLDER)
        assert len(splits) == 20
        assert all(abs(len(split) - 0.1 * rows) <= 1 for split in splits)
        assert all(len(set(split.tolist())) == len(split) for split in splits)


@needs_data
def test_images_in_shades_of_gray_with_the_right_classes(monkeypatch):
    monkeypatch.setenv(locate.DATA_VARIABLE, str(FOLDER))
    loaded = data.fashion_mnist()
    assert loaded.train_inputs.shape == (60000, 28, 28, 1)
    assert loaded.test_inputs.shape == (10000, 28, 28, 1)
    assert loaded.train_inputs.dtype == np.float32
    assert loaded.train_inputs.min() == 0.0
    assert loaded.train_inputs.max() == 1.0
    assert np.bincount(loaded.test_targets).tolist() == [1000] * 10
    pixels = np.rint(255.0 * loaded.test_inputs[..., 0]).astype(np.uint8)
    labels = loaded.test_targets.astype(np.uint8)
    mnist_images._check(
        pixels, labels, checksums.IMAGES["fashion_mnist"]["t10k"], "fashion_mnist", "the file"
    )


@needs_data
@pytest.mark.parametrize("name", ["boston", "glass"])
def test_a_download_gives_the_published_table(name, monkeypatch):
    published = data.uci(name, FOLDER)
    columns = {f"column {j}": column for j, column in enumerate(published.inputs.T)}
    target = published.targets
    if name == "glass":
        target = np.array(["float", "'non-float'", "vehicle", "containers", "a", "0"], object)[target]
        columns["RI id"] = np.zeros(len(target))
    fetching(monkeypatch, openml.Fetched(columns, target))
    downloaded = data.uci(name, progress=False)
    np.testing.assert_array_equal(downloaded.inputs, published.inputs)
    np.testing.assert_array_equal(downloaded.targets, published.targets)


def test_a_download_is_turned_into_our_format_and_kept(monkeypatch, toy, nowhere):
    known(monkeypatch, "toy", toy)
    asked = fetching(monkeypatch, as_openml(toy))
    first = data.uci("toy", progress=False)
    again = data.uci("toy", progress=False)
    assert asked == [{"data_id": 0}]
    for table in (first, again):
        np.testing.assert_array_equal(table.inputs, toy.inputs)
        np.testing.assert_array_equal(table.targets, toy.targets)
        assert table.targets.dtype == np.int64
    assert [path.name for path in (nowhere / "uci").iterdir()] == ["toy.csv.gz"]
    content = gzip.decompress((nowhere / "uci" / "toy.csv.gz").read_bytes())
    assert content.startswith(b"x0,x1,x2,y\n")


def test_a_regression_is_downloaded_too(monkeypatch, toy):
    table = uci_tables.Table("toy", toy.inputs, toy.inputs[:, 0] ** 3, None)
    known(monkeypatch, "toy", table)
    fetching(monkeypatch, as_openml(table))
    np.testing.assert_array_equal(data.uci("toy", progress=False).targets, table.targets)


def without_row(table):
    return openml.Fetched({k: v[1:] for k, v in table.columns.items()}, table.target[1:])


def without_column(table):
    return openml.Fetched({k: v for k, v in table.columns.items() if k != "b"}, table.target)


def swapped(table):
    return openml.Fetched({k: table.columns[k] for k in ("b", "rank", "a")}, table.target)


def scaled(table):
    return openml.Fetched({**table.columns, "a": 2.0 * table.columns["a"]}, table.target)


def with_a_gap(table):
    return openml.Fetched(
        {**table.columns, "a": np.where(table.columns["a"] > 2, np.nan, 0.0)}, table.target
    )


def with_words(table):
    return openml.Fetched({**table.columns, "a": np.full(60, "much", object)}, table.target)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without_row, "has other classes"),
        (without_column, "60 rows and 2 features instead of 60 and 3"),
        (swapped, "columns differ in order"),
        (scaled, "columns differ in order"),
        (with_a_gap, "missing values"),
        (with_words, "not of numbers"),
    ],
)
def test_a_wrong_download_is_refused_and_not_kept(change, words, monkeypatch, toy, nowhere):
    known(monkeypatch, "toy", toy)
    fetching(monkeypatch, change(as_openml(toy)))
    with pytest.raises(DamagedDataError, match=f"the download of toy .*{words}"):
        data.uci("toy", progress=False)
    assert not nowhere.exists()


def test_a_regression_with_another_target_is_refused(monkeypatch, toy):
    table = uci_tables.Table("toy", toy.inputs, toy.inputs[:, 0] ** 3, None)
    known(monkeypatch, "toy", table)
    fetching(monkeypatch, as_openml(table._replace(targets=table.targets + 1.0)))
    with pytest.raises(DamagedDataError, match="mean, smallest and largest target"):
        data.uci("toy", progress=False)


def test_an_interrupted_write_leaves_nothing(monkeypatch, toy, nowhere):
    known(monkeypatch, "toy", toy)
    fetching(monkeypatch, as_openml(toy))

    def stop(*names):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", stop)
        with pytest.raises(KeyboardInterrupt):
            data.uci("toy", progress=False)
    assert list((nowhere / "uci").iterdir()) == []
    assert data.uci("toy", progress=False).classes == 3


def small_images(monkeypatch):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (30, 28, 28), dtype=np.uint8)
    pixels[:, 0, 0] = 0  # a pixel that is always black is no column to drop
    labels = np.tile(np.arange(10, dtype=np.uint8), 3)
    entries = {}
    for part, rows in {"train": slice(0, 20), "t10k": slice(20, 30)}.items():
        counts = tuple(np.bincount(labels[rows]).tolist())
        entries[part] = checksums.ImageFacts("", "", counts, int(pixels[rows].sum(dtype=int)))
    monkeypatch.setitem(checksums.IMAGES, "mnist", entries)
    columns = {f"pixel{j}": column for j, column in enumerate(pixels.reshape(30, -1).T)}
    return pixels, labels, openml.Fetched(columns, labels.astype(str).astype(object))


def test_images_are_downloaded_once_and_kept_as_the_original_files(monkeypatch, nowhere):
    pixels, labels, fetched = small_images(monkeypatch)
    asked = fetching(monkeypatch, fetched)
    for _ in range(2):
        loaded = data.mnist(progress=False)
        np.testing.assert_array_equal(loaded.train_inputs[..., 0], pixels[:20] / np.float32(255.0))
        np.testing.assert_array_equal(loaded.test_targets, labels[20:])
    assert len(asked) == 1
    content = gzip.decompress((nowhere / "mnist" / "t10k-images-idx3-ubyte.gz").read_bytes())
    assert content[:16] == bytes([0, 0, 8, 3, 0, 0, 0, 10, 0, 0, 0, 28, 0, 0, 0, 28])
    (nowhere / "mnist" / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(content[:-1]))
    with pytest.raises(DamagedDataError, match=r"t10k-images-idx3-ubyte.gz is damaged: it is no IDX"):
        data.mnist(progress=False)


def test_wrong_images_are_refused(monkeypatch, nowhere):
    _, _, fetched = small_images(monkeypatch)
    test_first = {name: np.roll(column, 10) for name, column in fetched.columns.items()}
    fetching(monkeypatch, fetched._replace(columns=test_first))
    with pytest.raises(DamagedDataError, match="the download of mnist is not mnist"):
        data.mnist(progress=False)
    assert not nowhere.exists()


def test_absent_and_offline_is_one_sentence(monkeypatch, tmp_path, nowhere):
    with pytest.raises(MissingDataError) as caught:
        data.uci("yacht", progress=False)
    assert str(caught.value) == (
        f"yacht is not in {nowhere} and could not be downloaded (no network in tests): "
        f"put it in {nowhere} as uci/yacht.csv.gz."
    )
    elsewhere = tmp_path / "elsewhere"
    monkeypatch.setenv(locate.DATA_VARIABLE, str(elsewhere))
    with pytest.raises(MissingDataError, match=r"PARTIALBAYES_DATA is .*elsewhere, and there is no"):
        data.uci("yacht", progress=False)
    elsewhere.mkdir()
    with pytest.raises(FileNotFoundError, match=r"elsewhere as mnist/train-images-idx3-ubyte\.gz"):
        data.mnist(progress=False)
    for load in (lambda: data.uci_splits("yacht"), lambda: data.uci("power", progress=False)):
        with pytest.raises(
            MissingDataError, match=r"cannot be downloaded: put it in .*elsewhere as uci"
        ):
            load()


def test_a_folder_given_comes_before_the_cache_and_a_download(monkeypatch, toy, tmp_path):
    known(monkeypatch, "toy", toy)
    asked = fetching(monkeypatch, as_openml(toy))
    for folder in (tmp_path, None):  # the second time from the cache
        np.testing.assert_array_equal(data.uci("toy", folder, progress=False).targets, toy.targets)
    assert len(asked) == 1
    with pytest.raises(MissingDataError, match=rf"put it in {tmp_path} as uci_splits/yacht.txt.gz"):
        data.uci_splits("yacht", tmp_path)
    with pytest.raises(MissingDataError, match=r"given is .*typo, and there is no such folder"):
        data.mnist(tmp_path / "typo")


def test_damaged_files_are_named(monkeypatch, toy, nowhere, tmp_path):
    (tmp_path / "uci").mkdir()
    (tmp_path / "uci" / "yacht.csv.gz").write_bytes(gzip.compress(b"x0,y\n1,2\n"))
    with pytest.raises(DamagedDataError, match=r"yacht\.csv\.gz is damaged or another file"):
        data.uci("yacht", tmp_path)
    known(monkeypatch, "toy", toy)
    fetching(monkeypatch, as_openml(toy))
    data.uci("toy", progress=False)
    path = nowhere / "uci" / "toy.csv.gz"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DamagedDataError, match=r"toy\.csv\.gz is damaged and cannot be uncompressed"):
        data.uci("toy", progress=False)
    path.write_bytes(gzip.compress(b"x0,y\n1,two\n"))
    with pytest.raises(DamagedDataError, match=r"toy\.csv\.gz is damaged: it is no table"):
        data.uci("toy", progress=False)
    path.write_bytes(gzip.compress(b"x0,y\n"))
    with pytest.raises(DamagedDataError, match=r"toy\.csv\.gz is damaged: it has no rows"):
        data.uci("toy", progress=False)
    splits = tmp_path / "uci_splits"
    splits.mkdir()
    for content in (b"1 2\n", b"1 two\n", b"308\n" * 20, b"1 1\n" * 20, b"\n" * 20):
        (splits / "yacht.txt.gz").write_bytes(gzip.compress(content))
        with pytest.raises(DamagedDataError, match=r"yacht\.txt\.gz is damaged"):
            data.uci_splits("yacht", tmp_path)


@needs_data
@pytest.mark.parametrize("name", [name for name, one in checksums.UCI.items() if one.classes is None])
def test_splits_are_refused_where_the_rows_are_in_another_order(name, nowhere, tmp_path):
    """As they may be in a download; the check of the table itself does not mind."""
    lists, cached = Path("uci_splits") / f"{name}.txt.gz", nowhere / "uci" / f"{name}.csv.gz"
    (tmp_path / "lists" / "uci_splits").mkdir(parents=True)
    (tmp_path / "lists" / lists).write_bytes((FOLDER / lists).read_bytes())
    table = data.uci(name, FOLDER)
    cached.parent.mkdir(parents=True)
    cached.write_bytes(gzip.compress(uci_tables._encode(table)))
    assert len(data.uci_splits(name, tmp_path / "lists")) == checksums.standard_splits(name)
    order = np.arange(len(table.targets))
    order[[5, -9]] = order[[-9, 5]]
    shuffled = table._replace(inputs=table.inputs[order], targets=table.targets[order])
    cached.write_bytes(gzip.compress(uci_tables._encode(shuffled)))
    assert data.uci(name, tmp_path / "lists").name == name
    with pytest.raises(DamagedDataError, match=f"in another order than the standard splits of {name}"):
        data.uci_splits(name, tmp_path / "lists")


def test_unknown_names_are_refused():
    with pytest.raises(
        ValueError, match="there is no table 'bosten'; the tables are australian, boston"
    ):
        data.uci("bosten")
    with pytest.raises(ValueError, match="glass has no standard splits"):
        data.uci_splits("glass")


def test_a_bar_unless_switched_off(monkeypatch, toy, capsys, nowhere):
    known(monkeypatch, "toy", toy)
    fetching(monkeypatch, as_openml(toy))
    data.uci("toy", progress=False)
    assert capsys.readouterr().err == ""
    (nowhere / "uci" / "toy.csv.gz").unlink()
    data.uci("toy")
    assert capsys.readouterr().err == ""  # no terminal
    (nowhere / "uci" / "toy.csv.gz").unlink()
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    data.uci("toy")
    assert "toy: downloading" in capsys.readouterr().err


def test_the_cache_follows_the_system(monkeypatch, tmp_path):
    monkeypatch.delenv(locate.CACHE_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    monkeypatch.setattr("sys.platform", "linux")
    assert data.cache_folder() == tmp_path / "partialbayes"
    monkeypatch.setattr("sys.platform", "darwin")
    assert data.cache_folder().parts[-3:] == ("Library", "Caches", "partialbayes")
    monkeypatch.setattr("sys.platform", "win32")
    assert data.cache_folder() == tmp_path / "local" / "partialbayes"


def test_scikit_learn_is_asked_for_a_frame(monkeypatch):
    pandas = pytest.importorskip("pandas")
    datasets = pytest.importorskip("sklearn.datasets")
    frame = pandas.DataFrame({"y": [1.0, 2.0], "a": pandas.Categorical(["3", "4"]), "b": [5, 6]})
    asked = {}

    class Answer:
        target_names = ("y",)

    Answer.frame = frame

    def answer(**arguments):
        asked.update(arguments)
        return Answer

    monkeypatch.undo()
    monkeypatch.setattr(datasets, "fetch_openml", answer)
    fetched = openml.fetch({"data_id": 7})
    assert asked["data_id"] == 7
    assert list(fetched.columns) == ["a", "b"]
    np.testing.assert_array_equal(openml.stack_inputs(fetched, "it"), [[3.0, 5.0], [4.0, 6.0]])
    np.testing.assert_array_equal(fetched.target, [1.0, 2.0])
    monkeypatch.setattr(Answer, "target_names", [])
    assert list(openml.fetch({"data_id": 7}).columns) == ["y", "a"]


def test_the_wave_has_unit_noise_about_its_function():
    inputs, targets = data.wave(jax.random.key(0), rows=4000)
    assert inputs.shape == targets.shape == (4000, 1)
    x = np.asarray(inputs)
    assert -6.0 <= x.min() < -5.9
    assert 5.9 < x.max() <= 6.0
    residuals = np.asarray(targets) - x * np.sin(x * np.tanh(x))
    assert abs(residuals.mean()) < 4 / np.sqrt(4000)
    assert abs(residuals.var() - 1.0) < 4 * np.sqrt(2 / 4000)
    np.testing.assert_allclose(data.wave_function(inputs), x * np.sin(x * np.tanh(x)), atol=1e-4)


def test_the_crescent_depends_on_psi_as_its_model_says():
    inputs, targets = data.crescent(jax.random.key(1), rows=4000, psi=2.0)
    assert inputs.shape == (4000, 1)
    assert targets.shape == (4000,)
    assert abs(float(targets.mean()) - 2.0) < 4 / np.sqrt(4000)
    assert abs(float(targets.var()) - 1.0) < 4 * np.sqrt(2 / 4000)


def test_moons_are_scikit_learns():
    make_moons = pytest.importorskip("sklearn.datasets").make_moons
    inputs, labels = data.moons(3, rows=40)
    wanted, classes = make_moons(40, noise=0.3, random_state=3)
    np.testing.assert_allclose(inputs, wanted, rtol=1e-6)
    np.testing.assert_array_equal(labels, classes)
    assert (inputs.dtype, labels.dtype) == (np.float32, np.int32)


def test_importing_brings_no_scikit_learn_along():
    code = (
        "import sys, reproduction.data; sys.exit(any(n in sys.modules for n in ('sklearn', 'pandas')))"
    )
    environment = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0
