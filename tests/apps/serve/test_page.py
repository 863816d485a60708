"""The page in headless Chromium: what a person sees and does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tests.apps.serve.conftest  # noqa: F401, skips without the extra
from nmt.apps.serve.app import Service
from nmt.apps.serve.corrections import CorrectionsFile
from nmt.apps.serve.limits import Refused
from nmt.apps.serve.server import Server, listen
from nmt.config.entries import Direction, Directions
from nmt.data.corrections import read_corrections
from nmt.decoding.codec import Translation
from nmt.text.languages import language_name
from tests.apps.serve.conftest import KEY, LIMITS, both_ways
from tests.decoding.untrained import LINES, untrained

pytestmark = pytest.mark.slow

webdriver = pytest.importorskip("selenium.webdriver", reason="the extra test is not installed")
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
if not (BROWSER and DRIVER):
    pytest.skip("Chromium or chromedriver is not installed", allow_module_level=True)

SECONDS = 20
SOURCE, TARGET = "كلب أبيض", "الكلب الأبيض يأكل"


class Page:
    """The page of a service, open in the browser."""

    def __init__(self, driver: Any, port: int, service: Service) -> None:
        self.driver, self.address = driver, f"http://localhost:{port}/"
        self.service = service
        self.driver.get(self.address)

    def find(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def all(self, selector: str) -> list[Any]:
        return self.driver.find_elements("css selector", selector)

    def texts(self, selector: str) -> list[str]:
        return [one.text for one in self.all(selector)]

    def lines(self, panel: int = 0) -> list[str]:
        return self.js(
            "return [...document.querySelectorAll('.box')[arguments[0]]"
            ".querySelectorAll('.line')].map((line) => line.textContent)",
            panel,
        )

    def js(self, code: str, *arguments: Any) -> Any:
        return self.driver.execute_script(code, *arguments)

    def type(self, text: str) -> None:
        self.find("#text").send_keys(text)

    def choose(self, selector: str, option: str) -> None:
        self.js(
            "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('change'))",
            self.find(selector),
            option,
        )

    def until(self, condition: Callable[[], Any], what: str = "") -> None:
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < deadline, what
            time.sleep(0.02)


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@contextlib.contextmanager
def opened(driver: Any, service: Service) -> Iterator[Page]:
    """Serve in a thread, and open the page; no request of it leaves this machine."""
    listening = listen("127.0.0.1", 0)
    server = Server(service)
    thread = threading.Thread(
        target=lambda: asyncio.run(server.serve(sockets=[listening])), daemon=True
    )
    thread.start()
    page = Page(driver, listening.getsockname()[1], service)
    yield page
    page.js("localStorage.clear(); sessionStorage.clear()")
    driver.get("about:blank")  # a page could still send a request
    server.should_exit = True
    thread.join()
    service.close()
    events = [json.loads(one["message"])["message"] for one in driver.get_log("performance")]
    requested = {
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    }
    assert requested
    assert {url for url in requested if not url.startswith((page.address, "data:"))} == set()


def without_errors(page: Page) -> Iterator[Page]:
    """Wait for the page of a server without a key; afterwards the console has no error."""
    page.until(lambda: page.all(".box"))
    yield page
    assert [one for one in page.driver.get_log("browser") if one["level"] == "SEVERE"] == []


@pytest.fixture
def page(driver: Any) -> Iterator[Page]:
    """Two models."""
    models = {"one": untrained(), "two": untrained(5)}
    with opened(driver, Service(models, LIMITS)) as page:
        yield from without_errors(page)


@pytest.fixture
def both(driver: Any, tmp_path: Path) -> Iterator[Page]:
    """A model, one that calls itself its reverse, and a file of corrections."""
    corrections = CorrectionsFile(tmp_path / "corrections.tsv")
    with opened(driver, Service(both_ways(), LIMITS, corrections=corrections)) as page:
        yield from without_errors(page)


def type_and_wait(page: Page, line: str) -> None:
    """Type a line, and wait until both models show its translation, not that of a part of it."""
    page.type(line)
    expected = [untrained().translate([line]), untrained(5).translate([line])]
    page.until(lambda: [page.lines(0), page.lines(1)] == expected)


def test_text_is_translated_as_one_types_by_both_models(page: Page) -> None:
    text = [LINES[0], "", LINES[1]]
    page.type("\n".join(text))
    expected = [untrained().translate(text), untrained(5).translate(text)]
    page.until(lambda: [page.lines(0), page.lines(1)] == expected)
    names = f"{language_name('gl')} → {language_name('en')}"
    assert page.texts("section h2") == ["Text", names, names]
    assert page.texts("section select") == ["one\ntwo"] * 2 or page.all("section select")
    page.find("#clear").click()
    page.until(lambda: [page.lines(0), page.lines(1)] == [[], []])


def test_requests_wait_until_typing_pauses_and_old_answers_are_dropped(page: Page) -> None:
    translator = page.service.models["one"].translator
    asked: list[str] = []
    stream = translator.stream

    def slow(lines: list[str], **options: Any) -> Any:
        asked.append(lines[0])
        if lines[0] == "pan":
            time.sleep(1)
        return stream(lines, **options)

    translator.stream = slow
    page.choose("section:nth-of-type(3) select", "two")
    page.type("pan")
    page.until(lambda: asked)
    page.type(" branco")
    (expected,) = untrained().translate(["pan branco"])
    page.until(lambda: page.lines() == [expected])
    time.sleep(0.5)
    assert page.lines() == [expected]
    assert len(asked) < len("pan branco") / 2


def test_alternatives_are_those_of_the_search_and_can_be_taken(page):
    page.choose("#count", "3")
    page.type(LINES[0])
    ((best, *others),) = untrained().n_best(LINES[:1], 3)
    more = "section:nth-of-type(2) .more"
    page.until(lambda: page.texts(f"{more} li") == [one.text for one in others])
    assert page.lines() == [best.text]
    page.all(f"{more} button")[1].click()
    assert page.lines() == [others[1].text]
    assert page.texts(f"{more} li") == [best.text, others[0].text]
    assert copy(page) == others[1].text


def copy(page: Page) -> str | None:
    """Press Copy of the first model; return what it copied, or None."""
    return page.js(
        "window.copied = null;"
        "navigator.clipboard.writeText = async (text) => { window.copied = text; };"
        "document.querySelector('.copy').click();"
        "return window.copied"
    )


@contextlib.contextmanager
def too_slow(page: Page) -> Iterator[None]:
    """A time in which each request is refused."""

    def refuse(*_: Any) -> None:
        raise Refused(504, "timeout", "took longer than 30 seconds", "send fewer lines")

    with pytest.MonkeyPatch.context() as patch:
        for model in page.service.models.values():
            patch.setattr(model, "submit", refuse)
        yield
    page.driver.get_log("browser")  # the refused requests are in it


def test_an_error_is_on_the_screen_and_goes_with_its_text(page: Page) -> None:
    """While it is shown, and while no translation of the text is there, nothing is copied."""
    page.js("document.querySelector('#text').value = arguments[0]", "pan\n" * 100)
    with too_slow(page):
        page.type("a")
        page.until(lambda: "took too long" in page.find("#message").text)
        top, bottom = page.js(
            "const box = document.querySelector('#message').getBoundingClientRect();"
            "return [box.top, innerHeight - box.bottom]"
        )
        assert top >= 0
        assert bottom >= 0
        assert page.all(".box.stale")
        assert copy(page) is None
        page.js("document.querySelector('#clear').click()")
        assert page.find("#message").text == ""
        assert not page.all(".box.stale")
        page.type("a")
        page.until(lambda: "took too long" in page.find("#message").text)
    page.js("document.querySelector('#clear').click()")
    type_and_wait(page, LINES[0])
    assert page.find("#message").text == ""
    page.until(lambda: copy(page) == untrained().translate(LINES[:1])[0])
    page.type(" x")  # no translation of it yet
    assert copy(page) is None
    expected = untrained().translate([f"{LINES[0]} x"])
    page.until(lambda: copy(page) == expected[0])


def test_more_lines_than_a_request_may_have_are_sent_in_several(page: Page) -> None:
    lines = [f"{line} {n}" for n in range(2) for line in LINES[:5]]
    page.js("document.querySelector('#text').value = arguments[0]", "\n".join(lines[:-1]))
    page.type(f"\n{lines[-1]}")
    expected = untrained().translate(lines)
    page.until(lambda: page.lines() == expected)
    assert page.find("#message").text == ""
    page.until(lambda: copy(page) == "\n".join(expected))


def test_a_reload_keeps_the_text(page: Page) -> None:
    type_and_wait(page, LINES[0])
    page.driver.refresh()
    page.until(lambda: page.all(".box") and page.lines() == untrained().translate(LINES[:1]))
    assert page.find("#text").get_attribute("value") == LINES[0]


def test_text_that_the_model_cannot_know_has_a_warning(page):
    for text, warning in (
        (f"{LINES[0]}\n{SOURCE}", "Line 2: mostly in another script"),
        ("QXWZ QXWZ", "does not know most of this text"),
    ):
        page.type(text)
        page.until(lambda warning=warning: warning in page.find(".warning").text)
        page.find("#clear").click()
        page.until(lambda: page.find(".warning").text == "")
    page.type(LINES[0])
    page.until(lambda: page.lines() == untrained().translate(LINES[:1]))
    assert page.find(".warning").text == ""
    page.find("#clear").click()
    page.type(SOURCE)
    page.until(lambda: all(page.texts(".warning")))
    page.js("window.fetch = () => new Promise(() => {})")  # no answer comes
    page.type(" pan")
    assert page.texts(".warning") == ["", ""]


def test_uncertain_words_are_marked_and_their_source_is_shown(page: Page) -> None:
    type_and_wait(page, LINES[0])
    ((best,),) = untrained().n_best(LINES[:1], 1, align=True)
    marked = page.all("section:nth-of-type(2) .word.low, section:nth-of-type(2) .word.medium")
    assert marked
    assert re.fullmatch(r"probability \d+ %", marked[0].get_attribute("title"))
    page.find("#confidence").click()
    assert not page.all(".box .word.low")
    webdriver.ActionChains(page.driver).move_to_element(page.all(".box .word")[0]).perform()
    linked = {i for i, j in best.alignment if j == 0}
    page.until(lambda: page.texts(".back mark"))
    assert page.js(
        "return [...document.querySelectorAll('.back mark')].map((m) => m.textContent)"
    ) == [word for i, word in enumerate(LINES[0].split()) if i in linked]
    assert page.js("return document.querySelector('.back').textContent") == LINES[0] + "\n"


def test_the_keyboard_reaches_every_word(page: Page) -> None:
    keys = webdriver.Keys
    type_and_wait(page, LINES[0])
    page.type(keys.TAB)
    page.js("document.querySelector('.box').focus()")
    active = page.driver.switch_to.active_element
    count = len(page.all("section:nth-of-type(2) .word"))
    seen = []
    for _ in range(count):
        active.send_keys(keys.ARROW_RIGHT)
        (on,) = page.all(".word.on")
        seen.append(on.id)
    assert len(set(seen)) == count
    active.send_keys(keys.ARROW_LEFT)
    assert page.find(".word.on").id == seen[-2]
    active.send_keys(keys.TAB)
    assert not page.all(".word.on")


def test_scripts_from_right_to_left_are_shown_so(page: Page) -> None:
    translator = page.service.models["one"].translator
    pieces = TARGET.split()
    best = Translation(pieces, TARGET, -1.0, -1.0, True)
    translator.stream = lambda lines, **options: iter([[best]] * len(lines))
    translator.codec.tgt = "ar"
    page.type(SOURCE)
    page.until(lambda: page.lines() == [TARGET])
    assert page.find(".box").get_attribute("lang") == "ar"
    for selector in ("#text", ".box .line"):
        assert page.js("return arguments[0].matches(':dir(rtl)')", page.find(selector))
    left, right = page.js(
        "const line = document.querySelector('.box .line').getBoundingClientRect();"
        "const range = document.createRange();"
        "range.selectNodeContents(document.querySelector('.box .line'));"
        "const text = range.getBoundingClientRect();"
        "return [text.left - line.left, line.right - text.right]"
    )
    assert right < left


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_a_phone_in_light_and_dark(page: Page, scheme: str) -> None:
    page.driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 360, "height": 700, "deviceScaleFactor": 1, "mobile": True},
    )
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    try:
        page.type("x" * 50)
        page.until(lambda: page.lines() != [])
        assert page.js("return document.documentElement.scrollWidth") <= 360
        sections = page.all("section")
        assert sections[1].rect["y"] > sections[0].rect["y"] + sections[0].rect["height"] - 1
        red = int(
            page.js("return getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]")
        )
        assert (red < 60) == (scheme == "dark")
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_line_over_the_limit_is_translated_in_parts(page: Page) -> None:
    """At the ends of sentences, between words, and within a word that is over the limit itself."""
    sentences, words = f"O {LINES[0]}. A {LINES[1]}. ", "Pan " + "pan " * 29
    page.js("document.querySelector('#text').value = arguments[0]", sentences + words)
    page.type(f"\n{'a' * 130}")
    parts = [[sentences, words[:60], words[60:]], ["a" * 60, "a" * 60, "a" * 10]]
    expected = [" ".join(untrained().translate(of_line)) for of_line in parts]
    page.until(lambda: page.lines() == expected, str((page.lines(), expected)))
    assert page.find("#message").text == ""
    highlighted = page.js(
        "const words = document.querySelector('.box .line').querySelectorAll('.word');"
        "words[words.length - 1].dispatchEvent(new PointerEvent('pointerover', {bubbles: true}));"
        "return document.querySelector('.back mark').previousSibling.textContent"
    )
    assert len(highlighted) >= len(sentences) + 60


def test_the_language_of_a_tag_is_chosen_by_its_name(driver: Any) -> None:
    translator, other = (untrained(tgt_tags=["<es>", "<formal>"]) for _ in range(2))
    spanish = Direction("gl", "es", None, "<es>")
    translator.codec.directions = Directions("gl", "en", (Direction("gl", "en"), spanish))
    expected = other.translate(["pan"], tgt_tag="<es>")
    with opened(driver, Service({"one": translator}, LIMITS)) as page:
        page.until(lambda: page.all(".box"))
        assert page.texts(".target option") == [
            language_name("en"), language_name("es"), f"{language_name('en')} <formal>"
        ]  # fmt: skip
        page.choose(".target", "<es>")
        page.type("pan")
        page.until(lambda: page.lines() == expected)


def test_a_service_without_a_reverse_model_and_corrections_offers_neither(page):
    page.type(f"{LINES[4]}\n{LINES[0]}")
    page.until(lambda: page.find("#length").text == "19 characters", page.find("#length").text)
    page.until(lambda: len(page.lines(0)) == 2)
    assert not page.find("#swap").is_displayed()
    assert not page.all(".suggest")
    page.find("footer a").click()  # the description of the API
    page.until(lambda: "POST /translate" in page.texts("h2"))
    assert "n_best" in page.find("main").text


def test_a_key_is_asked_for_and_kept_in_this_tab_only(driver: Any) -> None:
    with opened(driver, Service({"one": untrained()}, LIMITS, KEY)) as page:
        page.until(lambda: page.find("#login").is_displayed())
        page.find("#key").send_keys(KEY, webdriver.Keys.ENTER)
        page.until(lambda: page.all(".box"))
        page.type("pan")
        page.until(lambda: page.lines() == untrained().translate(["pan"]))
        assert page.js("return [localStorage.length, document.cookie]") == [0, ""]
        assert KEY not in page.driver.current_url
        driver.get_log("browser")


def test_languages_are_swapped_with_the_text_and_its_translation(both: Page) -> None:
    page = both
    (there,) = untrained().translate(LINES[:1])
    page.type(LINES[0])
    page.until(lambda: page.lines() == [there])
    assert len(page.all(".box")) == 1, "the reverse model has no panel of its own"
    page.find("#swap").click()
    page.until(lambda: page.lines() == untrained(5).translate([there]))
    assert page.find("#text").get_attribute("value") == there
    gl, en = language_name("gl"), language_name("en")
    assert page.texts("section h2") == ["Text", f"{en} → {gl}"]
    assert page.find("#text").get_attribute("lang") == "en"
    page.find("#swap").click()
    assert page.texts("section h2") == ["Text", f"{gl} → {en}"]


def test_the_history_is_kept_in_the_browser_if_its_user_wants_it(both: Page) -> None:
    page = both

    def entries() -> list[str]:
        return page.js(
            "return [...document.querySelectorAll('#history li button')]"
            ".map((button) => button.firstChild.textContent.trim())"
        )

    page.type("pan")
    page.until(lambda: page.lines() == untrained().translate(["pan"]))
    assert page.js("return localStorage.length") == 0
    page.find("#history summary").click()
    page.find("#keep").click()
    assert entries() == ["pan"]
    page.type(" branco")  # the same text, while it is typed
    page.until(lambda: entries() == ["pan branco"])
    page.find("#clear").click()
    page.type(LINES[1])
    page.until(lambda: entries() == [LINES[1], "pan branco"])
    page.driver.refresh()
    page.until(lambda: page.all(".box") and len(entries()) == 2)
    page.find("#history summary").click()
    page.js("document.querySelectorAll('#history li button')[1].click()")  # the list may be new
    page.until(lambda: page.lines() == untrained().translate(["pan branco"]))
    status = page.find("section:nth-of-type(2) > .status:last-child").text
    assert re.fullmatch(r"Translated in \d+\.\d s\..*", status)
    page.find("#forget").click()
    assert entries() == []
    page.find("#keep").click()
    assert page.js("return localStorage.length") == 0


def test_a_better_translation_can_be_suggested(both: Page, tmp_path: Path) -> None:
    page = both
    (shown,) = untrained().translate(LINES[:1])
    page.type(LINES[0])
    page.until(lambda: page.lines() == [shown])
    page.find(".suggest").click()
    area = page.find(".correct textarea")
    assert area.get_attribute("value") == shown
    area.clear()
    area.send_keys("the dog drinks water", webdriver.Keys.ARROW_LEFT, webdriver.Keys.ENTER)
    page.until(lambda: page.lines() == ["the dog drinks water"])
    page.until(lambda: "stored" in page.find("section:nth-of-type(2) > .status:last-child").text)
    file = tmp_path / "corrections.tsv"
    assert list(read_corrections(file, ("gl", "en"))) == [(LINES[0], "the dog drinks water")]
    assert f"\t{shown}\t" in file.read_text()
    assert copy(page) == "the dog drinks water"


def test_a_file_is_translated_and_can_be_downloaded(page: Page, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"{LINES[0]}\n{LINES[4]}\n")
    page.js(
        "const make = URL.createObjectURL;"
        "URL.createObjectURL = (blob) => {"
        "  blob.text().then((text) => { window.downloaded = text; }); return make(blob); }"
    )
    page.find("#file").send_keys(str(tmp_path / "a.txt"))
    page.until(lambda: page.all("#files a"), "no link")
    link = page.find("#files a")
    assert link.get_attribute("download") == "a.txt"
    expected = "".join(f"{line}\n" for line in untrained().translate([LINES[0], LINES[4]]))
    page.until(lambda: page.js("return window.downloaded") == expected)
    assert page.texts("#files li .status") == [f"{page.texts('section h2')[1]} Download"]


def test_a_dropped_file_that_cannot_be_translated_says_why(page: Page) -> None:
    page.js(
        "const files = new DataTransfer();"
        "files.items.add(new File(['x'], 'a.xyz'));"
        "files.items.add(new File(['x'.repeat(arguments[0] + 1)], 'b.txt'));"
        "document.dispatchEvent(new DragEvent('drop', {dataTransfer: files, cancelable: true}))",
        LIMITS.file,
    )
    page.until(lambda: len(page.all("#files .error")) == 2)
    assert "are allowed" in page.texts("#files .error")[0]
    assert "cannot be translated" in page.texts("#files .error")[1]
    page.driver.get_log("browser")  # the refused request is in it


def test_terms_of_the_glossary_are_in_the_translation(both: Page) -> None:
    """They stay in the browser, and belong to the direction."""
    page = both
    (with_term,) = untrained().translate(["pan branco"], glossary=[("pan", "sea")])
    assert "sea" in with_term
    page.find("#glossary summary").click()
    page.find("#terms").send_keys("pan = sea\ncan")
    page.until(lambda: page.find("#glossary .status").text == "This line has no translation: can")
    page.find("#text").send_keys("pan branco")
    page.until(lambda: page.lines() == [with_term])
    page.find("#swap").click()
    assert page.find("#terms").get_attribute("value") == ""
    page.driver.refresh()
    page.until(lambda: page.all(".box") and page.find("#terms").get_attribute("value"))
    page.find("#glossary summary").click()
    page.find("#terms").clear()
    page.js("document.querySelector('#terms').dispatchEvent(new Event('input'))")
    assert page.js("return localStorage.length") == 0
    expected = untrained().translate([page.find("#text").get_attribute("value")])
    page.until(lambda: page.lines() == expected)
