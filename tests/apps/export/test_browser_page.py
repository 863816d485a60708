"""The exported page in headless Chromium: from disk, over http without its server, hostile text."""

from __future__ import annotations

import functools
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from nmt.apps.export.browser import export_browser, translate_script
from nmt.config.recipe import DecodeConfig
from nmt.data.lines import clean_line
from nmt.decoding.engine import ModelInfo
from nmt.decoding.translator import Translator
from nmt.store.model import Model
from nmt.text import unicode
from nmt.text.sentences import split_sentences
from tests.apps.export.pages import HARNESS, VARIANTS, script_of, words
from tests.apps.export.test_browser_engine import assert_equal, case_of
from tests.apps.export.test_browser_text import ABBREVIATIONS, texts
from tests.decoding.ctranslate2.cases import made, model_folder, pairs
from tests.run_cases import edit_model

pytestmark = pytest.mark.slow

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
if not (BROWSER and DRIVER):
    pytest.skip("needs the Debian packages chromium and chromium-driver", allow_module_level=True)

SECONDS = 60  # a busy machine
LINES = [line for line, _ in pairs()[:3]]
SHOWN = "return Array.from(document.querySelectorAll('#translation p'), (p) => p.textContent)"


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(executable_path=DRIVER))
    driver.set_script_timeout(SECONDS)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def translator() -> Translator:
    translator = made(words=words())
    translator.info = ModelInfo(DecodeConfig(max_len_offset=4, no_repeat_ngram=1))
    return translator


@pytest.fixture(scope="module")
def model(translator: Translator, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model of two directions, which differ by their source language."""
    folder = model_folder(translator, tmp_path_factory.mktemp("page") / "model")
    languages = [{"src": src, "tgt": "en", "tag": None, "tgt_tag": None} for src in ("gl", "ar")]
    edit_model(folder, directions=languages)
    return folder


@pytest.fixture(scope="module")
def page(model: Path) -> Path:
    export_browser(Model.open(model), model.parent / "web", "fp32", force=False)
    return model.parent / "web"


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


class Opened:
    """The page in the browser."""

    def __init__(self, driver: Any, address: str, width: int = 1280, scheme: str = "light") -> None:
        self.driver = driver
        driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        feature = {"name": "prefers-color-scheme", "value": scheme}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        driver.get(address)
        until(lambda: self.text("#status") == "Ready." or self.text("#message"))

    def js(self, code: str, *arguments: Any) -> Any:
        return self.driver.execute_script(code, *arguments)

    def find(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def text(self, selector: str) -> str:
        return self.js("return document.querySelector(arguments[0]).textContent", selector)

    def paste(self, text: str) -> None:
        """Put text with any characters into the page."""
        self.js(
            "const area = document.querySelector('#text'); area.value = JSON.parse(arguments[0]);"
            "area.dispatchEvent(new Event('input'))",
            json.dumps(text),
        )

    def is_done(self) -> bool:
        return self.js(
            "return !document.querySelector('#translation').classList.contains('stale') && "
            "document.querySelector('#stop').hidden && !document.querySelector('#copy').disabled"
        )

    def translation(self, expected: list[str]) -> bool:
        return self.is_done() and self.js(SHOWN) == expected


def test_the_engine_and_the_text_are_those_of_python(driver, tmp_path):
    variants = VARIANTS[::3]
    models = [made(seed, words(), **keys) for seed, keys in enumerate(variants)]
    cases = [case_of(t, script_of(t, tmp_path / str(n))) for n, t in enumerate(models)]
    clean = [clean_line(line) for line in texts(2000, seed=4)]
    normal = [unicode.normalize(line, "clean") for line in clean]
    cases += [
        {"name": "normalize", "lines": clean, "args": ["clean"]},
        {"name": "splitSentences", "lines": normal, "args": ["sk", ABBREVIATIONS]},
        {"script": cases[0]["script"], "lines": clean},
    ]
    (tmp_path / "translate.js").write_text(translate_script(), "utf-8")
    (tmp_path / "engine.js").write_text(HARNESS.read_text("utf-8"), "utf-8")
    (tmp_path / "cases.js").write_text(f"const CASES = {json.dumps(cases)};", "utf-8")
    scripts = "".join(f"<script src={n}.js></script>" for n in ("translate", "engine", "cases"))
    (tmp_path / "cases.html").write_text(f"<!doctype html><meta charset=utf-8>{scripts}", "utf-8")
    driver.get((tmp_path / "cases.html").as_uri())
    *results, cleaned, split, pieces = json.loads(
        driver.execute_async_script(
            "const done = arguments[0];"
            "runCases(nmt, CASES).then((found) => done(JSON.stringify(found)), (e) => done(`${e}`))"
        )
    )
    for translator, result in zip(models, results, strict=True):
        assert_equal(translator, result)
    assert cleaned == normal
    assert split == [split_sentences(line, "sk", ABBREVIATIONS) for line in normal]
    assert pieces == [models[0].codec.source_pieces(line) for line in clean]


def test_from_disk_it_translates_without_a_request(driver, page, translator):
    driver.get_log("performance")
    opened = Opened(driver, (page / "index.html").as_uri())
    assert opened.text("#message") == ""
    opened.find("#text").send_keys(LINES[0], "\n\n", LINES[1])
    expected = translator.translate([LINES[0], "", LINES[1]])
    until(lambda: opened.translation(expected))
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    addresses = {
        event["params"]["request"]["url"].partition(":")[0]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    }
    assert addresses <= {"file", "blob", "data"}
    assert driver.get_log("browser") == []


def test_unlikely_words_are_underlined(driver, page):
    opened = Opened(driver, (page / "index.html").as_uri())
    opened.paste(LINES[2])
    until(opened.is_done)
    marked = opened.js(
        "return Array.from(document.querySelectorAll('#translation span'), "
        "(s) => [s.className, s.title])"
    )
    assert marked
    assert all(
        name == ("low" if int(title.split()[1]) < 20 else "medium") for name, title in marked
    )


def test_without_its_server_it_opens_and_translates(driver, page, translator):
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(page))
    handler.log_message = lambda *_: None  # type: ignore[attr-defined]
    with ThreadingHTTPServer(("localhost", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://localhost:{server.server_port}/"
        Opened(driver, address)
        driver.execute_async_script("navigator.serviceWorker.ready.then(() => arguments[0]())")
        server.shutdown()
    opened = Opened(driver, address)
    opened.paste(LINES[0])
    expected = translator.translate(LINES[:1])
    until(lambda: opened.translation(expected))


def test_hostile_text_never_becomes_markup_and_the_page_answers(driver, page):
    opened = Opened(driver, (page / "index.html").as_uri())
    opened.find("#text").click()
    driver.execute_cdp_cmd("Input.insertText", {"text": "a" * 1_000_000})
    assert "100,000" in opened.text("#message")
    assert opened.js("return document.querySelector('#text').value") == ""
    error = driver.execute_async_script(
        "nmt.translate(['a'.repeat(1e6)]).then(arguments[0], (e) => arguments[0](e.message))"
    )
    assert "100,000" in error
    bad = ["<img src=x onerror=alert(1)>", "\ud800 a \udfff", "\u202eab \u05d0\u05d1", "__proto__"]
    opened.paste("\n".join(bad))
    until(opened.is_done)
    assert opened.text("#message") == ""
    assert len(opened.js(SHOWN)) == len(bad)
    assert opened.js("return document.querySelectorAll('#translation :not(p, span)').length") == 0
    opened.paste("\n".join(f"{LINES[0]} {number}" for number in range(10_000)))
    until(lambda: "of 10000" in opened.text("#status"))
    opened.find("#stop").click()
    assert opened.text("#status") == "Stopped."
    opened.paste(LINES[0])
    until(opened.is_done)
    assert len(opened.js(SHOWN)) == 1


def test_names_keyboard_directions_phone_and_dark_mode(driver, page):
    colors, keys = [], webdriver.common.keys.Keys
    for width, scheme in ((1280, "light"), (360, "dark")):
        opened = Opened(driver, (page / "index.html").as_uri(), width, scheme)
        opened.paste("a" * 300 + " b")
        until(opened.is_done)
        assert opened.js("return document.documentElement.scrollWidth") <= width
        colors.append(opened.js("return getComputedStyle(document.body).backgroundColor"))
    assert colors[0] != colors[1]
    assert [
        option.text for option in driver.find_elements("css selector", "#direction option")
    ] == ["galego → English", "العربية → English"]
    for selector, name in (("#text", "galego"), ("#translation", "English"), ("#copy", "Copy")):
        assert opened.find(selector).accessible_name == name
    opened.paste("")
    opened.find("#direction").send_keys(keys.ARROW_DOWN)
    until(lambda: opened.find("#text").accessible_name == "العربية")
    assert opened.find("#text").get_attribute("lang") == "ar"
    seen = []
    for _ in range(5):
        driver.switch_to.active_element.send_keys(keys.TAB)
        seen.append(driver.switch_to.active_element.get_attribute("id"))
    assert seen[:3] == ["clear", "text", "translation"]


def test_a_folder_without_the_model_says_what_is_missing(driver, page, tmp_path):
    shutil.copy(page / "index.html", tmp_path)
    assert "model.js" in Opened(driver, (tmp_path / "index.html").as_uri()).text("#message")
