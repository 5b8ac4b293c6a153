"""The page of all results: whole at any stage of a run, safe with any text, sorted as numbers are."""

import json
import struct
import zlib
from pathlib import Path

import pytest
from tests.browser import image_widths, opened, resize, sticks_out

from reproduction import site
from reproduction.site.index import write_index

HOSTILE = "<script>document.title = 'taken'</script>\"'&"
TABLE = """\
dataset,method,metric,mean,std,se,repeats,paper_mean,paper_std
moons,MC,nlpd,,,,0,,
moons,OHSMC,nlpd,9.5,0.07,0.007,100,0.28,0.07
moons,SWAG,nlpd,10.25,0.05,0.005,100,0.4,0.1
moons,VB,nlpd,-0.000012346,0.1,0.01,7,,
moons,OHSMC,accuracy,0.9,0.1,0.01,100,0.88,0.03
"""
DIFFERENCES = """\
dataset,method,metric,mean,se,repeats,verdict
moons,SWAG,nlpd,0.75,0.1,100,worse
moons,VB,nlpd,-9.5,5.1,7,tie
"""
RUN = {
    "command": f"python -m reproduction moons {HOSTILE}",
    "commit": "0123456789ab",
    "started": "2026-01-02T03:04:05+00:00",
    "finished": "2026-01-02T04:04:05+00:00",
    "seconds": 3600,
    "runs": 1,
}


def png(width=300, height=200):
    """A gray picture."""

    def chunk(kind, content):
        ending = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + ending

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\x80" * width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def fill(folder, table=TABLE):
    folder.mkdir(parents=True)
    (folder / "table.csv").write_text(table)
    (folder / "differences.csv").write_text(DIFFERENCES)
    (folder / "predictive_samples.png").write_bytes(png())
    (folder / "per_run.csv").write_text(
        "dataset,method,repeat,metric,value\nmoons,VB,0,nlpd,0.2\nmoons,VB,0,seconds,1.5\nmoons,VB,1,nl"
    )
    noted = {f"set {i}": {"note": "with few rows"} for i in range(2)}
    declared = {"moons": {"epochs": 100}, **noted}
    settings = {"experiment": "moons", "track": "paper", "declaration": declared}
    (folder / "settings.json").write_text(json.dumps({**settings, "runs": [RUN]}))


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    results = tmp_path_factory.mktemp("results")
    fill(results / "moons" / "paper")
    longer = TABLE + "".join(
        f"set {i},{HOSTILE},{metric},{i},,,3,,\n" for i in range(30) for metric in ("nlpd", "rmse")
    )
    fill(results / "uci" / "best", longer)
    return write_index(results)


def test_an_empty_folder_and_none(tmp_path):
    for results in (tmp_path, tmp_path / "none"):
        assert "No results yet" in write_index(results).read_text()


def test_a_run_in_progress(tmp_path):
    stages = {name: tmp_path / name / "paper" for name in ("begun", "moons", "drawing", "nothing")}
    for folder in stages.values():
        folder.mkdir(parents=True)
    (stages["begun"] / "settings.json").write_text(json.dumps({"declaration": {"a": 1}, "runs": []}))
    (stages["moons"] / "per_run.csv").write_text(
        "dataset,method,repeat,metric,value\nmoons,VB,0,seconds,1.5\nmoons,VB,1"
    )
    (stages["moons"] / "settings.json").write_text('{"runs": [')
    (stages["drawing"] / "whole.png").write_bytes(png())
    (stages["drawing"] / "half.png").write_bytes(png()[:-5])
    (stages["drawing"] / "table.csv").write_text("")
    (tmp_path / "index.html").write_text("before")
    text = write_index(tmp_path).read_text()
    for words in ("begun, paper track", "No run has finished yet", "1 run finished so far"):
        assert words in text, words
    assert text.count("<img") == 1
    assert "nothing" not in text.replace("nothing finished yet", "")
    # Experiments of the paper come first.
    assert text.index("moons, paper track") < text.index("begun, paper track")


def test_it_says_how_many_runs_no_command_tells_of(tmp_path):
    folder = tmp_path / "moons" / "paper"
    fill(folder)
    with (folder / "per_run.csv").open("w") as file:
        file.write("dataset,method,repeat,metric,value\n")
        file.writelines(f"moons,VB,{repeat},seconds,1.5\n" for repeat in range(3))
    (folder / "traces.png").write_bytes(png())
    text = write_index(tmp_path).read_text()
    assert "known to have made 1 of the 3 runs" in text
    assert "<figcaption>ψ over training, of run 0." in text


def test_it_says_where_the_numbers_come_from(page):
    text = page.read_text()
    for words in (
        *("0123456789ab", "python -m reproduction moons", "60 min in all", "2026-01-02 03:04:05 UTC"),
        *("negative log predictive density", 'alt="Predictive samples: figure of moons, paper track"'),
        *('href="#moons-paper"', 'id="moons-paper"', "&quot;epochs&quot;: 100", "0123456789ab, 1 run"),
        *('<a href="moons/paper/predictive_samples.png">', "set 0, set 1: with few rows"),
    ):
        assert words in text, words
    assert "known to have made" not in text
    assert "<script>document" not in text
    assert "http" not in text


def test_style_and_script_are_files_and_inside_the_page(page):
    text = page.read_text()
    for file in ("index.css", "index.js"):
        assert (Path(site.__file__).parent / file).read_text() in text
    assert "stylesheet" not in text
    assert "src=" not in text.replace('src="data:image/png;base64,', "")


COLUMN = """
const table = document.querySelectorAll("table.sortable")[arguments[0]];
return [...table.tBodies[0].rows].filter(row => row.getClientRects().length)
  .map(row => row.cells[arguments[1]].textContent);
"""


@pytest.mark.browser
def test_a_browser_sorts_filters_and_shows_it(page, tmp_path):
    with opened(page, tmp_path / "profile") as browser:
        from selenium.webdriver.common.by import By
        from selenium.webdriver.common.keys import Keys
        from selenium.webdriver.support.ui import Select

        assert browser.title == "partialbayes: results"
        tables = browser.find_elements(By.CSS_SELECTOR, "table.sortable")
        heads = tables[0].find_elements(By.TAG_NAME, "th")
        mean, method = heads[3], heads[1]

        def column(number, table=0):
            return browser.execute_script(COLUMN, table, number)

        # As numbers, not as texts; what is empty comes last, either way.
        button = mean.find_element(By.TAG_NAME, "button")
        button.click()
        assert column(3) == ["-1.235e-05", "0.9", "9.5", "10.25", ""]
        assert mean.get_attribute("aria-sort") == "ascending"
        button.click()
        assert column(3) == ["10.25", "9.5", "0.9", "-1.235e-05", ""]
        assert mean.get_attribute("aria-sort") == "descending"
        method.find_element(By.TAG_NAME, "button").send_keys(Keys.ENTER)
        assert column(1) == ["MC", "OHSMC", "OHSMC", "SWAG", "VB"]
        assert mean.get_attribute("aria-sort") is None

        # The data set is the same in all rows; the metric can be chosen.
        assert [head.text for head in heads if head.is_displayed()][:2] == ["method", "metric"]
        choice = Select(browser.find_elements(By.CSS_SELECTOR, ".filters select")[1])
        choice.select_by_value("accuracy")
        assert column(1) == ["OHSMC"]
        choice.select_by_value("")
        assert len(column(1)) == 5

        # A long table begins with one metric.
        assert column(2, table=2) == ["nlpd"] * 34

        assert min(image_widths(browser)) == 300
        for width in (1200, 400):
            resize(browser, width)
            assert not sticks_out(browser)
