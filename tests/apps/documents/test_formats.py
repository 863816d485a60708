"""Each format: what is not text stays, markup goes with its words, and bad files are refused."""

from __future__ import annotations

import html
import io
import itertools
import json
import re
import tracemalloc
import zipfile
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import pytest

from nmt.apps.documents import job as job_module
from nmt.apps.documents.document import Nowhere, translate_bytes
from nmt.apps.documents.formats import FORMATS, format_of, xml
from nmt.apps.documents.job import Job, Reading, Report
from nmt.apps.documents.lines import Translate, from_function
from nmt.errors import UserError
from tests.apps.documents.samples import PO, TEXTS, all_documents
from tests.apps.documents.translators import Reversing, same, upper

pytest.importorskip("markdown_it")
DOCUMENTS = all_documents()
LANGS = ("en", "it")


def translated(name: str, data: bytes, translate: Translate | None = None, **options: Any) -> str:
    """Return the text of a translated document; of an archive, that of its main file."""
    return content(name, run(name, data, translate, **options)[0])


def run(
    name: str, data: bytes, translate: Translate | None = None, **options: Any
) -> tuple[bytes, Report]:
    translate = translate or from_function(upper)
    return translate_bytes(data, name, LANGS, translate, Reading(**options))


def content(name: str, data: bytes) -> str:
    if not zipfile.is_zipfile(io.BytesIO(data)):
        return data.decode()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        part = "word/document.xml" if name.endswith(".docx") else "content.xml"
        return archive.read(part).decode()


def skeleton(name: str, data: bytes) -> Any:
    """Return all of a document that is not text, in its order."""
    if zipfile.is_zipfile(io.BytesIO(data)):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return [(i.filename, i.compress_type, archive.read(i)) for i in archive.infolist()]
    return data


def test_every_suffix_has_a_format_and_a_sample() -> None:
    suffixes = {name[name.rindex(".") :] for name in TEXTS} | {".docx", ".odt", ".htm"}
    assert suffixes == {*FORMATS}
    assert all(callable(format_of(f"X{suffix.upper()}")) for suffix in FORMATS)


# what an identical translation adds to a file with places for translations
ADDED = {
    ".po": (
        ("msgstr \"\"\n\nmsgctxt", 'msgstr ""\n"Hello %(name)s, you have <b>new</b> mail\\n"\n'
         '"on line two"\n\nmsgctxt'),
        ('msgstr[0] ""\nmsgstr[1] ""', 'msgstr[0] "One file"\nmsgstr[1] "%d files"'),
    ),
    ".xlf": (
        ("</source>\n  </trans-unit>", "</source>\n    <target state=\"translated\">Hello "
         '<g id="1">big</g> world<x id="2"/></target>\n  </trans-unit>'),
        ("<target/>", '<target state="translated">New &amp; one</target>'),
    ),
    ".xliff": (
        ("<segment>", '<segment state="translated">'),
        ("</source>", '</source><target>Hello <pc id="1">big</pc> world</target>'),
    ),
    ".tmx": (
        ("day.</seg></tuv>", 'day.</seg></tuv>\n  <tuv xml:lang="it"><seg>The <bpt i="1">'
         '&lt;b></bpt>big<ept i="1">&lt;/b></ept> day.</seg></tuv>'),
    ),
}  # fmt: skip
# the language of the translation
LANGUAGE = {".po": ("Language: en", "Language: it"), ".html": ('lang="en"', 'lang="it"')}


def _italian(tag: re.Match[bytes]) -> bytes:
    return tag[1] + b'"it"' + (tag[2] + b'"it"' if tag[2] else b"")


@pytest.mark.slow
@pytest.mark.parametrize("name", DOCUMENTS)
def test_what_is_not_text_stays_byte_for_byte(name: str) -> None:
    result, report = run(name, DOCUMENTS[name], from_function(same))
    suffix = name[name.rindex(".") :]
    expected = skeleton(name, DOCUMENTS[name])
    if suffix == ".docx":
        english = rb'(w:(?:lang|themeFontLang) w:val=)"en-US"( w:eastAsia=)?(?(2)"en-US")'
        expected = [(part, kind, re.sub(english, _italian, data)) for part, kind, data in expected]
    for old, new in (*ADDED.get(suffix, ()), *filter(None, [LANGUAGE.get(suffix)])):
        assert old.encode() in expected
        expected = expected.replace(old.encode(), new.encode(), 1)
    assert skeleton(name, result) == expected
    assert report.segments
    assert not report.problems


@pytest.mark.slow
@pytest.mark.parametrize("name", DOCUMENTS)
def test_only_text_changes_and_each_segment_once(name: str) -> None:
    """Compared without case, a document in upper case is the same as one that stays."""
    kept, _ = run(name, DOCUMENTS[name], from_function(same))
    one, two = content(name, kept), translated(name, DOCUMENTS[name])
    assert one != two

    def flat(text: str) -> str:
        if name.endswith((".docx", ".odt")):  # runs are joined, and spaces marked
            text = re.sub(r' xml:space=["\']preserve["\']', "", text)
            text = re.sub(r"</w:t></w:r><w:r><w:t>|</w:t></w:r><w:r></w:r>", "", text)
            text = re.sub(r" ?<text:s [^>]*>", "  ", text)
        else:
            text = html.unescape(text.replace("\\u00e9", "é").replace("\\u00c9", "É"))
        # lines of a paragraph are joined; a hard break has another form
        return re.sub(r"\\\n|  \n|\s+(?:> )?", " ", text.replace("\\*", "*")).lower()

    assert flat(one) == flat(two).replace('"the "tip""', "'the \"tip\"'")


BOLD = {
    "notes.txt": "<b>be</b>",
    "readme.md": "**bold text**",
    "page.html": "<b>big</b>",
    "app.po": "<b>new</b>",
    "app.xlf": '<g id="1">big</g>',
    "app.xliff": '<pc id="1">big</pc>',
    "memory.tmx": '<bpt i="1">&lt;b></bpt>big<ept i="1">&lt;/b></ept>',
    "film.srt": "<i>good</i>",
    "strings.json": "<b>fine</b>",
    "letter.docx": '<w:r><w:rPr><w:b/></w:rPr><w:t xml:space="preserve">bold big</w:t></w:r>',
    "letter.odt": "<text:span>big</text:span>",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in BOLD if name in DOCUMENTS])
def test_markup_goes_with_its_words(name: str) -> None:
    """In lines whose words are reversed, the marks are around the same words."""
    result, report = run(name, DOCUMENTS[name], Reversing())
    text = content(name, result)
    words = BOLD[name].replace("bold text", "text bold")
    assert words in text
    assert not report.remarks
    before = text[: text.rindex(words)][-200:]
    assert re.search(r"world|here|mail|happy|friend|day|again", before)  # which were behind it


def test_markdown_renders_with_the_same_structure() -> None:
    from markdown_it import MarkdownIt

    def tags(data: bytes) -> list[str]:
        page = MarkdownIt().enable(["table", "strikethrough"]).render(data.decode())
        return sorted(re.findall(r"<[^>]*>", page.lower().replace("title a", "a title")))

    source = TEXTS["readme.md"]
    for translate in (from_function(upper), Reversing()):
        assert tags(run("a.md", source, translate)[0]) == tags(source)
    odd = from_function(lambda lines: ["1. a *b* | [c](d) `e` <f>" for _ in lines])
    result = translated("a.md", b"| one | two |\n|---|---|\n| three | four |\n\n> five\n", odd)
    page = MarkdownIt().enable("table").render(result)
    assert page.count("<td>1. a *b* | [c](d) `e` &lt;f&gt;</td>") == 2
    assert "<blockquote>\n<p>1. a *b*" in page


def test_po_is_read_by_polib_with_plurals_flags_and_old_translations() -> None:
    polib = pytest.importorskip("polib")
    three = PO.replace(
        b"nplurals=2; plural=(n != 1)", b"nplurals=3; plural=(n==1 ? 1 : n==2 ? 0 : 2)"
    )
    three = three.replace(b'msgstr[1] ""', b'msgstr[1] ""\nmsgstr[2] ""')
    catalog = polib.pofile(translated("a.po", three))
    by_id = {entry.msgid: entry for entry in catalog}
    assert catalog.metadata["Language"] == "it"
    assert by_id["One file"].msgstr_plural == {0: "%d FILES", 1: "ONE FILE", 2: "%d FILES"}
    assert by_id["One file"].flags == ["fuzzy"]  # nobody knows which form is which
    assert [by_id[old].msgstr for old in ("old", "done")] == ["vecchio", "fatto"]
    assert [entry.msgstr for entry in catalog.obsolete_entries()] == ["perso"]
    again = polib.pofile(translated("a.po", PO, retranslate=True))
    assert [(e.msgstr, e.flags) for e in again if e.msgid in ("old", "done")] == [
        ("OLD", []), ("DONE", []),
    ]  # fmt: skip


def spoiling(lines: list[str]) -> list[str]:
    """Return lines with another placeholder in each."""
    return [f"{line} %d" for line in lines]


def test_a_translation_that_cannot_keep_its_placeholders_is_marked() -> None:
    polib = pytest.importorskip("polib")
    result, report = run("a.po", PO, from_function(spoiling))
    catalog = polib.pofile(result.decode())
    fuzzy = {entry.msgid for entry in catalog if "fuzzy" in entry.flags}
    assert {"One file", "old"} <= fuzzy
    assert all(e.msgstr or e.msgstr_plural for e in catalog)
    assert {remark.place for remark in report.problems} == {"line 10", "line 15"}
    marked = translated("a.xlf", TEXTS["app.xlf"], from_function(spoiling))
    assert marked.count('state="needs-review-translation"') == 2
    assert 'state="initial"' in translated("a.xliff", TEXTS["app.xliff"], from_function(spoiling))
    _, report = run("a.txt", b"one\n\ntwo\n", from_function(spoiling))
    assert [(r.place, bool(r.problem)) for r in report.remarks] == [
        ("line 1", True), ("line 3", True),
    ]  # fmt: skip


@pytest.mark.slow
def test_word_documents_are_read_by_python_docx() -> None:
    library = pytest.importorskip("docx")
    result, _ = run("letter.docx", DOCUMENTS["letter.docx"])
    document = library.Document(io.BytesIO(result))
    texts = [paragraph.text for paragraph in document.paragraphs]
    assert texts == ["A TITLE", "HELLO BIG BOLD WORLD AGAIN.", "TEXT AND LINK"]
    assert [run.text for run in document.paragraphs[1].runs if run.bold] == ["BIG BOLD"]
    assert document.tables[0].cell(0, 1).text == "CELL\tTWO\nLINE"
    assert document.sections[0].header.paragraphs[0].text == "THE HEADER"
    text = content("letter.docx", result)
    assert ">INSIDE<" in text
    assert text.count("footnoteReference") == 1


def test_open_documents_are_read_by_odfpy() -> None:
    pytest.importorskip("odf")
    from odf import opendocument, teletype, text

    result, _ = run("letter.odt", DOCUMENTS["letter.odt"])
    document = opendocument.load(io.BytesIO(result))
    paragraphs = [teletype.extractText(p) for p in document.getElementsByType(text.P)]
    assert paragraphs == ["HELLO BIG WORLD1A NOTE  END\nLINE", "A NOTE"]


def test_json_has_the_same_keys_and_other_values() -> None:
    before = json.loads(TEXTS["strings.json"])
    after = json.loads(translated("a.json", TEXTS["strings.json"]))
    assert after == {
        "greeting": "HELLO {name}, IT IS %s",
        "list": ['SAY "HI" TWICE', 3, {"rich": "<b>FINE</b> DAY"}],
        "state": "ÉTAT",
    }
    assert [*after] == [*before]


def test_subtitles_keep_their_times_and_have_lines_that_fit() -> None:
    long = from_function(lambda lines: [f"{line} {'and on' * 3} {line}" for line in lines])
    source = TEXTS["film.srt"].decode()
    result = translated("film.srt", source.encode(), long)
    timing = r"^\d+\n.*-->.*\n"
    assert re.findall(timing, result, re.M) == re.findall(timing, source, re.M)
    lines = re.sub(r"<[^>]*>", "", result).split("\n")
    assert max(map(len, lines)) <= 42
    assert sum("Hello" in line for line in lines) == 2
    assert [line[0] for line in result.split("\n\n")[1].split("\n")[2:4]] == ["-", "-"]


def test_repeated_text_is_translated_once() -> None:
    translate = Reversing()
    run("a.txt", b"one two\n" * 3000 + b"<b>one</b> two\n", translate)
    assert sorted(translate.lines) == ["one two", "one two"]  # without and with alignment


CATALOG = b'msgid ""\nmsgstr "Content-Type: text/plain; charset=base64\\n"\n'


@pytest.mark.parametrize(
    ("name", "data", "place", "what"),
    [
        ("a.docx", b"PK\x03\x04 no archive", "a.docx", "damaged"),
        ("a.docx", DOCUMENTS.get("letter.docx", b"PK")[:3000], "a.docx", "damaged"),
        ("a.odt", DOCUMENTS.get("letter.docx", b"PK"), "a.odt", "OpenDocument"),
        ("a.txt", b"", "a.txt", "empty"),
        ("a.md", b"ab\n\xff\xfa", "a.md:2", "UTF-8"),
        ("a.txt", "one\ntwo".encode("utf-16-le"), "a.txt:1", ""),
        ("a.html", b"<meta charset=rot13>a", "a.html", ""),
        ("a.txt", b"%PDF-1.4", "a.txt", "kind of file"),
        ("a.xyz", b"text", "a.xyz", ".xyz"),
        ("a", b"text", "a", "no suffix"),
        ("a.po", CATALOG, "a.po", ""),
        ("a.po", b'msgid "a"\nmsgstr "b\n', "a.po:2", "double quotes"),
        ("a.po", b'msgid "a"\nmsgid "b"\nmsgstr "c"\n', "a.po:2", "second msgid"),
        ("a.po", b'msgid "a"\nmsgid_plural "b"\nmsgstr "c"\n', "a.po:3", "msgid_plural"),
        ("a.po", b'msgid "a"\n', "a.po:1", "no msgstr"),
        ("a.po", b"hello\n", "a.po:1", "not a line of a catalog"),
        ("a.json", b'{"a": 1,\n "b" 2}', "a.json:2:6", "not JSON"),
        ("a.json", b"[" * 100_000, "a.json", ""),
        ("a.xlf", b"<xliff><file>\n</xliff>", "a.xlf:2:3", "mismatched tag"),
        ("a.xlf", b"<xliff></xliff>", "a.xlf", "no unit"),
        ("a.tmx", b"<tmx><body><tu>", "a.tmx:1:16", "no element found"),
        ("a.srt", b"Hello\n", "a.srt", "no line with times"),
    ],
)
def test_bad_files_are_refused_with_their_place(name, data, place, what):
    translate = Reversing()
    with pytest.raises(UserError) as error:
        run(name, data, translate)
    assert error.value.at == place
    assert what in error.value.what
    assert error.value.fix
    assert translate.lines == []


def test_other_encodings_stay(tmp_path: object) -> None:
    latin = '<?xml version="1.0" encoding="ISO-8859-1"?><tmx><body><tu><tuv xml:lang="en"><seg>{}'
    end = "</seg></tuv></tu></body></tmx>"
    data = (latin.format("caf\xe9") + end).encode("latin-1")
    result, _ = run("a.tmx", data, from_function(lambda lines: ["\u0436"] * len(lines)))
    assert ElementTree.fromstring(result).findall(".//seg")[1].text == "\u0436"
    wide = "\ufeffone caf\xe9\r\n".encode("utf-16-le")
    assert run("a.txt", wide)[0].decode("utf-16") == "ONE CAF\xc9\r\n"
    page = b"<meta charset=iso-8859-1><p>caf\xe9"
    assert run("a.html", page)[0] == b"<meta charset=iso-8859-1><p>CAF\xc9"


@pytest.mark.slow
def test_the_memory_for_a_translation_memory_does_not_grow_with_it(monkeypatch):
    monkeypatch.setattr(job_module, "MAX_SEGMENTS", 50)
    monkeypatch.setattr(xml, "_BLOCK", 4096)
    unit = '<tu><tuv xml:lang="en"><seg>word number {}</seg></tuv></tu>\n'

    def peak(units: int) -> int:
        class Units(io.RawIOBase):
            """Units that are made while they are read."""

            parts: Iterator[str]

            def seek(self, offset: int, whence: int = 0) -> int:
                body = (unit.format(number) for number in range(units))
                self.parts = itertools.chain(["<tmx><body>"], body, ["</body></tmx>"])
                return 0

            def read(self, size: int = -1) -> bytes:
                return "".join(itertools.islice(self.parts, size // len(unit))).encode()

        job, source = Job("a.tmx", *LANGS, None), Units()
        source.seek(0)
        tracemalloc.start()
        try:
            format_of("a.tmx")(source, Nowhere(), job)  # type: ignore[arg-type]
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            assert job.report.segments == units

    peak(50)  # imports
    assert peak(4000) < 2 * peak(1000)
