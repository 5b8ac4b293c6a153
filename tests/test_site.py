"""The site builds without a warning, fetches nothing, and fits narrow and wide screens."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser import opened, resize, sticks_out

DOCS = Path(__file__).parents[1] / "docs"
MAIN_PAGES = ("index", "start", "idea", "gallery", "guides/from_other_libraries", "api/algorithms")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d"]
    built = subprocess.run(
        [*command, folder / "trees", DOCS, folder / "html"], capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    return folder / "html"


@pytest.mark.slow
def test_nothing_comes_from_elsewhere(site):
    fetched = re.compile(
        r"""<(?:script|img|iframe|source)[^>]*\ssrc="https?:|<link[^>]*\shref="https?:"""
    )
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    assert not [page for page in pages if fetched.search(page.read_text())]
    styles = "".join(sheet.read_text() for sheet in site.rglob("*.css"))
    assert not re.search(r"(?:url\(|@import )['\"]?https?:", styles)
    assert "<math" in (site / "idea.html").read_text()


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("width", [400, 1280])
def test_pages_fit_the_screen(site, width, tmp_path):
    with opened(site / "index.html", tmp_path / "profile") as browser:
        resize(browser, width)
        for page in MAIN_PAGES:
            for theme in ("light", "dark"):
                browser.get((site / f"{page}.html").as_uri())
                browser.execute_script(f"document.documentElement.dataset.theme = '{theme}'")
                assert not sticks_out(browser), (page, theme)
