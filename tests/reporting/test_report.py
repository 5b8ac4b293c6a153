"""The page: whole, self-contained, with what a reader wants to know, and safe with any text."""

import base64
import html.parser
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partialbayes as pb
from partialbayes._utils.atomic import write_atomically
from partialbayes.training._diagnostics import findings
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
        pb.ohsmc(MODEL, num_particles=20),
        data,
        epochs=8,
        validation=data,
        progress=False,
        callbacks=[seen],
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
    for words in ("8 of 13", "a sine", "nlpd", "crps", "likelihood, variance", "On 40 rows", "of 8."):
        assert words in text, words
    assert "&lt;script&gt;" in text


def test_classes_and_a_posterior_alone(tmp_path):
    model = pb.partial_bnn(pb.mlp([2, 4, 1]), pb.subsets.layer(0), pb.bernoulli())
    inputs = np.asarray(jax.random.normal(jax.random.key(2), (50, 2)))
    labels = (inputs[:, 0] > 0).astype(int)
    path = pb.report(model, cloud(model), (inputs, labels), tmp_path / "report.html", rows=30)
    text = path.read_text()
    for words in ("30 of them used", "accuracy", "Decision boundary", "no record of the run"):
        assert words in text, words


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
    ess = np.full(10, 50.0)
    assert findings({"ess": ess}, 100, steps[:0], none) == []
    ess[6:] = 3.0
    (text,) = findings({"ess": ess}, 100, steps[:0], none)
    assert "fell below 10 % at step 7, and was below it in 40 % of the steps (lowest 3.0 of 100)" in text
    assert "try a larger variance" in text
    (text,) = findings({"acceptance": np.full(10, 0.02)}, 100, steps[:0], none)
    assert "accepted less than 2 %" in text
    (text,) = findings({"ancestors": np.full(10, 4.0)}, 100, steps[:0], none)
    assert "kept 4 of 100" in text
    (text,) = findings({}, 1, steps, np.linspace(3, 1, 10))
    assert "still falling" in text
    (text,) = findings({}, 1, steps, np.linspace(1, 3, 10))
    assert "lowest at step 1 and rose by 2.00" in text
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
