"""The page: whole, self-contained, with what a reader wants to know, and safe with any text."""

import base64
import html.parser
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partialbayes as pb
from partialbayes._engine.diagnostics import findings
from partialbayes._utils.atomic import write_atomically
from tests.browser import image_widths, opened, sticks_out

X = np.linspace(-1, 1, 40)[:, None]
Y = 100.0 + 20.0 * np.sin(3 * X[:, 0])
SCALE = pb.prediction.TargetScale.of(Y)
MODEL = pb.partial_bnn(pb.mlp([1, 4, 1]), pb.subsets.layer(0), pb.gaussian(pb.learned(0.5)))
HOSTILE = "<script>document.title = 'taken'</script>\"'&"


def cloud(model):
    psi = model.init(jax.random.key(0)).psi
    values = model.sample_prior(jax.random.key(1), psi, 5)
    return pb.types.Posterior(psi, pb.types.Particles(values, jnp.full(5, -jnp.log(5.0))))


class Parser(html.parser.HTMLParser):
    """Notes every tag and every address on the page."""

    def __init__(self):
        super().__init__()
        self.tags, self.addresses = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href")]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    seen = pb.callbacks.Snapshots(every=4)
    data = (X, SCALE.apply(Y))
    trained = pb.fit(
        pb.ohsmc(MODEL, num_particles=20, kernel=pb.kernels.random_walk(0.01)),
        data,
        epochs=8,
        validation=data,
        run=pb.Run(callbacks=[seen]),
    )
    path = tmp_path_factory.mktemp("report") / "inner" / "report.html"
    notes = {"data": "a sine", HOSTILE: HOSTILE}
    given = pb.report(
        MODEL, trained, (X, Y), path, target_scale=SCALE, metadata=notes, snapshots=seen, title=HOSTILE
    )
    assert given == path
    return path


def test_one_file_that_needs_nothing(page):
    assert [file.name for file in page.parent.iterdir()] == ["report.html"]
    parser = Parser()
    parser.feed(page.read_text())
    assert "script" not in parser.tags
    assert all(address.startswith("data:") for address in parser.addresses)
    assert parser.tags.count("img") == 11
    for image in re.findall(r"base64,([^\"]+)\"", page.read_text()):
        assert base64.b64decode(image).startswith(b"\x89PNG")


def test_it_says_what_a_reader_wants_to_know(page):
    text = page.read_text()
    wanted = ("8 of 13", "a sine", "NLPD", "CRPS", "likelihood, variance", "On 40 rows", "of 8.", "R²")
    for words in wanted:
        assert words in text, words
    assert "&lt;script&gt;" in text


def test_classes_and_a_posterior_alone(tmp_path):
    model = pb.partial_bnn(pb.mlp([2, 4, 1]), pb.subsets.layer(0), pb.bernoulli())
    inputs = np.asarray(jax.random.normal(jax.random.key(2), (50, 2)))
    labels = (inputs[:, 0] > 0).astype(int)
    path = pb.report(model, cloud(model), (inputs, labels), tmp_path / "report.html", rows=30)
    text = path.read_text()
    for words in ("On 50 rows", "accuracy", "Decision boundary", "no record of the run", "class 1"):
        assert words in text, words
    # The rows of the confusion matrix are those of the classes.
    counts = [int(count) for count in re.findall(r'style="--share:[\d.]+">(\d+)<', text)]
    assert [sum(counts[:2]), sum(counts[2:])] == np.bincount(labels).tolist()


def test_what_a_reader_is_told_about_the_data(tmp_path):
    inputs = np.asarray(jax.random.normal(jax.random.key(2), (50, 2)))
    about = pb.reporting.About(
        target="price",
        facts={"trained on": "houses.csv"},
        columns=[("size", "number", "in m²"), ("id", "left out", "names the row")],
        notes=["two rows were odd"],
        rows="training",
        names=[f"house {row}" for row in range(50)],
        groups={"size": [0], "garden": [1]},
        baseline=pb.reporting.Baseline.of_numbers(inputs[:, 0]),
    )
    model = pb.partial_bnn(pb.mlp([2, 4, 1]), pb.subsets.layer(0), pb.gaussian())
    data = (inputs, inputs[:, 0])
    text = pb.report(model, cloud(model), data, tmp_path / "r.html", about=about).read_text()
    for words in (
        "A regression of price from 1 columns",
        'class="alarm"',
        "1 columns used, 1 left out",
        "two rows were odd",
        ">baseline<",
        ">garden<",
        "house 1",
    ):
        assert words in text, words
    assert text.index("Inside the method") > text.index("least sure")


def test_the_baseline_knows_the_training_targets():
    rng = np.random.default_rng(0)
    known, new = rng.normal(3.0, 2.0, 4000), rng.normal(3.0, 2.0, 4000)
    scores = pb.reporting.Baseline.of_numbers(known).scores(new)
    assert scores["rmse"] == pytest.approx(2.0, rel=0.05)
    assert scores["nlpd"] == pytest.approx(np.log(2.0) + 0.5 * np.log(2 * np.pi * np.e), abs=0.05)
    assert scores["crps"] == pytest.approx(2.0 / np.sqrt(np.pi), rel=0.05)  # of N(0, s²) under itself
    assert scores["coverage"] == pytest.approx(0.9, abs=0.02)
    assert scores["r2"] == pytest.approx(0.0, abs=0.01)
    logs = pb.reporting.Baseline.of_numbers(np.exp(known), log=True).scores(np.exp(new))
    assert logs["nlpd"] == pytest.approx(scores["nlpd"] + new.mean(), abs=0.01)
    labels = np.repeat([0, 1], [30, 70])
    classes = pb.reporting.Baseline.of_classes(labels, 2).scores(labels)
    assert classes["accuracy"] == 0.7
    assert classes["nlpd"] == pytest.approx(-(0.3 * np.log(0.3) + 0.7 * np.log(0.7)), abs=0.01)


def test_a_failed_report_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("before")
    with pytest.raises(ValueError, match="rows of inputs but 39 of targets"):
        pb.report(MODEL, cloud(MODEL), (X, Y[:-1]), path)
    monkeypatch.setattr("os.replace", lambda *names: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"half")
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    assert path.read_text() == "before"


def test_diagnostics_in_words():
    steps, none = np.arange(1, 11), np.zeros(0)
    ess = np.full(40, 50.0)
    ess[:25] = 2.0  # from the prior; how a run starts says nothing
    assert findings({"ess": ess}, 100, steps[:0], none) == []
    (text,) = findings({"ess": np.full(40, 2.0)}, 100, steps[:0], none)
    assert "In the last quarter of the run the median ESS was 2.0 of 100: a few particles" in text
    assert "Try a larger variance" in text
    (text,) = findings({"ess": np.r_[np.full(30, 50.0), np.full(10, 3.0)]}, 100, steps[:0], none)
    assert "3.0 of 100, and it was higher before" in text
    (text,) = findings({"acceptance": np.full(10, 0.02)}, 100, steps[:0], none)
    assert "accepted less than 2 %" in text
    (text,) = findings({"ancestors": np.full(10, 4.0)}, 100, steps[:0], none)
    assert "kept 4 of 100" in text
    loss = {"loss": np.linspace(9.0, 1.0, 400)}
    (text,) = findings(loss, 1, steps[:0], none)
    assert "The loss was still falling at the end" in text
    assert findings(loss, 1, steps[:1], np.ones(1)) == []  # rows out of fold are the better judge
    (text,) = findings({}, 1, steps, np.linspace(3, 1, 10))
    assert "still falling" in text
    (text,) = findings({}, 1, steps, np.linspace(1, 3, 10))
    assert "lowest at step 1 and rose by 2.00" in text
    assert findings({}, 1, steps, np.linspace(1.01, 1, 10)) == []  # a hair's breadth
    nan = np.asarray([np.nan] * 10)
    assert findings({"ess": ess * 0 + 50}, 100, steps, nan) == []


@pytest.mark.browser
def test_a_browser_opens_it(page, tmp_path):
    with opened(page, tmp_path / "profile") as browser:
        assert browser.title == HOSTILE
        widths = image_widths(browser)
        assert len(widths) == 11
        assert min(widths) > 100
        assert not sticks_out(browser)
