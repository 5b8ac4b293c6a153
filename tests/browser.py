"""A headless Chromium for the tests of pages; they are skipped where there is none."""

import shutil
from contextlib import contextmanager

import pytest

FLAGS = """headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking
disable-component-update disable-sync"""


@contextmanager
def opened(page, profile):
    """A browser with the page open, which complained of nothing."""
    webdriver = pytest.importorskip("selenium.webdriver")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and driver):
        pytest.skip("no chromium and chromedriver here")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in FLAGS.split():
        options.add_argument(f"--{flag}")
    options.add_argument(f"--user-data-dir={profile}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options, webdriver.ChromeService(driver))
    try:
        browser.get(page.as_uri())
        assert complaints(browser) == []
        yield browser
        assert complaints(browser) == []
    finally:
        browser.quit()


def complaints(browser):
    """Warnings and errors since the last look."""
    return [entry for entry in browser.get_log("browser") if entry["level"] != "INFO"]


def resize(browser, width, height=900):
    """A window of this size inside; real windows have a least width."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def image_widths(browser):
    """Of every picture, as far as it is really shown."""
    return browser.execute_script(
        "return [...document.images].map(i => Math.min(i.naturalWidth, i.clientWidth))"
    )


def sticks_out(browser):
    """Whether the page is wider than the window."""
    return browser.execute_script(
        "return document.documentElement.scrollWidth > document.documentElement.clientWidth"
    )
