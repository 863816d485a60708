"""The report in headless Chromium: it draws every figure and fits a phone, without a request."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nmt.cli import report

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
CHROMIUM, DRIVER = (
    next(filter(None, map(shutil.which, names)), None)
    for names in (("chromium", "chromium-browser", "google-chrome"), ("chromedriver",))
)
pytestmark = [
    pytest.mark.skipif(
        not (CHROMIUM and DRIVER), reason="needs the Debian packages chromium and chromium-driver"
    ),
    pytest.mark.slow,
]
DRAWN = """
return [...document.querySelectorAll(".drawn")].filter(f => f.checkVisibility()).map(f => {
  const svg = f.querySelector("svg"), box = svg.getBoundingClientRect();
  return [f.getAttribute("aria-label"), box.width, box.height,
          svg.querySelectorAll("path, rect, use").length, svg.querySelectorAll("text").length];
});
"""
COLORS = """
const line = document.querySelector(".drawn path[style*='stroke: var(--series-1)']");
return [getComputedStyle(document.body).backgroundColor, getComputedStyle(line).stroke];
"""
VISIBLE = "return document.getElementById('outputs-2').checkVisibility()"
WIDTHS = "return [document.documentElement.scrollWidth, window.innerWidth]"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=DRIVER)
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


def show(browser: Any, page: Path, width: int = 1280, scheme: str = "light") -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    browser.get(page.as_uri())


@pytest.fixture(scope="module")
def pages(folder, several_sets) -> list[Path]:
    """A report of one run, one of two, and one of two with two test sets."""
    both = folder / "both.html"
    runs = [str(folder / name) for name in ("plain", "layernorm")]
    assert report.main([*runs, "-o", str(both), "--force"]) == 0
    return [folder / "plain" / "report.html", both, several_sets]


def test_every_figure_is_drawn_without_an_error_or_a_request(browser, pages):
    for page in pages:
        show(browser, page)
        browser.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
        figures = browser.execute_script(DRAWN)
        assert len(figures) >= 7
        for label, width, height, shapes, texts in figures:
            assert min(width, height) > 80, label
            assert shapes > 4, label
            assert texts > 4, label
        assert browser.get_log("browser") == []
        entries = browser.execute_script("return performance.getEntriesByType('resource').length")
        assert entries == 0


def test_a_link_to_a_closed_test_set_opens_it(browser, several_sets):
    show(browser, several_sets)
    assert not browser.execute_script(VISIBLE)
    browser.execute_script("document.querySelector(\"a[href='#outputs-2']\").click()")
    assert browser.execute_script(VISIBLE)


def test_dark_and_light_pages_differ_and_so_do_their_figures(browser, pages):
    found = []
    for scheme in ("light", "dark"):
        show(browser, pages[0], scheme=scheme)
        found.append(browser.execute_script(COLORS))
    (light, line), (dark, dark_line) = found
    assert light == "rgb(255, 255, 255)"
    assert dark != light
    assert dark_line != line


def test_a_phone_needs_no_horizontal_scrolling(browser, pages):
    for page in pages:
        show(browser, page, width=390)
        browser.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert browser.execute_script(WIDTHS) == [390, 390]
