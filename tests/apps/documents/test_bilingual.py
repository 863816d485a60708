"""Files of translators: what the formats say of a text is respected, and bad files are refused."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest

from nmt.apps.documents.document import translate_bytes
from nmt.apps.documents.formats import xml
from nmt.apps.documents.job import Reading, Report
from nmt.apps.documents.lines import from_function
from nmt.errors import UserError
from tests.apps.documents.translators import upper

ONE = (
    '<xliff version="1.2"><file source-language="en" target-language="it"><body><group {}>'
    '<trans-unit id="1" {}><source>{}</source>{}</trans-unit></group></body></file></xliff>'
)
TWO = (
    '<xliff version="2.0" srcLang="en" xmlns:its="http://www.w3.org/2005/11/its"><file id="f" {}>'
    '<unit id="1" {}><segment state="initial" subState="a:b"><source>{}</source>{}</segment>'
    "<ignorable><source>\n</source></ignorable></unit></file></xliff>"
)
TMX = '<tmx version="1.4"><header srclang="{}"/><body><tu>{}</tu></body></tmx>'
PO = 'msgid ""\nmsgstr ""\n{}\nmsgid "one"\nmsgid_plural "more"\nmsgstr[0] ""\nmsgstr[1] ""\n'


def run(name: str, text: str, **options: Any) -> tuple[str, Report]:
    data, report = translate_bytes(
        text.encode(), name, ("en", "it"), from_function(upper), Reading(**options)
    )
    return data.decode(), report


def target(xliff: str) -> str | None:
    found = re.search(r"<target[^>]*>(.*?)</target>", xliff, re.DOTALL)
    return found[1] if found else None


NO, YES = 'translate="no"', 'translate="yes"'


@pytest.mark.parametrize(
    ("around", "unit", "source", "expected"),
    [
        ("", "", "a word", "A WORD"),
        (NO, "", "a word", None),
        ("", NO, "a word", None),
        (NO, YES, "a word", "A WORD"),
        ("", "", f"a <mrk id='1' {NO}>kept one</mrk> b", f"A <mrk id='1' {NO}>kept one</mrk> B"),
        ("", NO, f"kept <mrk id='1' {YES}>word</mrk> b", f"kept <mrk id='1' {YES}>WORD</mrk> b"),
        ("", "", f"<mrk id='1' {NO}>only this</mrk> 12", None),
    ],
)
def test_text_that_is_not_to_be_translated_stays(around, unit, source, expected):
    for xliff in (ONE, TWO):
        result, report = run("a.xlf", xliff.format(around, unit, source, ""))
        assert target(result) == expected
        assert sum(report.others.values()) == (expected is None)
        assert not report.problems


def test_other_ways_to_protect_text() -> None:
    mrk = '<mrk mtype="protected">the <g id="1">API</g></mrk>'
    assert target(run("a.xlf", ONE.format("", "", f"see {mrk}.", ""))[0]) == f"SEE {mrk}."
    sign = f'<sm id="1" {NO}/>kept<pc id="2"> too</pc><em startRef="1"/>'
    assert target(run("a.xlf", TWO.format("", "", f"see {sign} now", ""))[0]) == f"SEE {sign} NOW"
    assert target(run("a.xlf", TWO.format("", f"its:{NO}", "word", ""))[0]) is None


@pytest.mark.parametrize(
    "text", ["one\n\ttwo", " one  two.   Three ", "one&#13;\ntwo\n\n", "\tone"]
)
def test_space_is_part_of_a_text_where_the_format_says_so(text: str) -> None:
    upper_text = text.upper()
    for xliff in (ONE, TWO):
        for around, unit in (('xml:space="preserve"', ""), ("", 'xml:space="preserve"')):
            assert target(run("a.xlf", xliff.format(around, unit, text, ""))[0]) == upper_text
        collapsed = re.sub(r"(?:&#13;)?[\n\t ]+", " ", upper_text)
        inside = 'xml:space="preserve"', 'xml:space="default"'
        assert target(run("a.xlf", xliff.format(*inside, text, ""))[0]) == collapsed
    result, _ = run("a.tmx", TMX.format("en", f'<tuv xml:lang="en"><seg>{text}</seg></tuv>'))
    assert result.count(f"<seg>{upper_text}</seg>") == 1


@pytest.mark.parametrize(
    ("unit", "old", "again", "first"),
    [
        ("", "<target/>", "A WORD", "A WORD"),
        ("", '<target state="new">copy</target>', "A WORD", "A WORD"),
        ("", '<target state="translated">done</target>', "A WORD", "done"),
        ("", '<target state="final">done</target>', "done", "done"),
        ("", '<target state="signed-off">done</target>', "done", "done"),
        ('approved="yes"', "<target>done</target>", "done", "done"),
        ('approved="yes"', "<target></target>", "", ""),
        ('approved="yes"', "", "A WORD", "A WORD"),
    ],
)
def test_which_translations_are_replaced(unit: str, old: str, again: str, first: str) -> None:
    text = ONE.format("", unit, "a word", old + "<alt-trans><target>other</target></alt-trans>")
    for retranslate, expected in ((True, again), (False, first)):
        result, report = run("a.xlf", text, retranslate=retranslate)
        assert target(result) == expected
        assert report.kept == (expected != "A WORD")
        assert "<alt-trans><target>other</target></alt-trans>" in result


def test_what_a_new_translation_makes_wrong_goes() -> None:
    result, _ = run(
        "a.xlf", ONE.format("", "", "word", '<target state-qualifier="tm-suggestion"/>')
    )
    assert '<target state="translated">WORD</target>' in result
    result, _ = run("a.xlf", TWO.format("", "", "word", ""))
    assert '<segment state="translated"><source>word</source><target>WORD</target>' in result
    assert "<ignorable><source>\n</source></ignorable>" in result


def test_segments_of_a_divided_unit_stay_divided() -> None:
    parts = '<mrk mtype="seg" mid="1">one.</mrk> <mrk mtype="seg" mid="2">Two</mrk>'
    text = ONE.format("", "", "one. Two", f"<seg-source>{parts}</seg-source>")
    assert target(run("a.xlf", text)[0]) == parts.replace("one", "ONE").replace("Two", "TWO")


@pytest.mark.parametrize(
    ("xliff", "limit", "problems"),
    [
        (ONE, 'maxwidth="5" size-unit="char"', 1),
        (ONE, 'maxwidth="6" size-unit="char"', 0),
        (TWO, 'sizeRestriction="0,5"', 1),
        (TWO, 'sizeRestriction="6"', 0),
        (TWO, 'sizeRestriction="0,*"', 0),
        (ONE, f'maxwidth="{"9" * 5000}" size-unit="char"', 0),
    ],
)
def test_a_translation_that_is_too_long_is_marked(xliff: str, limit: str, problems: int) -> None:
    for places in ((limit, ""), ("", limit)):
        result, report = run("a.xlf", xliff.format(*places, "a word", ""))
        assert len(report.problems) == problems
        assert ("initial" in result or "needs-review-translation" in result) == bool(problems)
    _, report = run("a.xlf", ONE.format("", 'maxwidth="5"', "a word", ""))
    assert any("pixel" in what for what in report.others)


def test_text_in_code_is_translated_in_place() -> None:
    seg = 'a <ph>&lt;img alt="<sub>dog <hi>big</hi></sub>"></ph>b<it pos="begin">kept</it>'
    result, report = run("a.tmx", TMX.format("en", f'<tuv xml:lang="en"><seg>{seg}</seg></tuv>'))
    expected = seg.replace("a <", "A <").replace("b<it", "B<it").replace("dog", "DOG")
    assert f"<seg>{expected.replace('big', 'BIG')}</seg>" in result
    assert f"<seg>{seg}</seg>" in result
    assert report.segments == 2


@pytest.mark.parametrize(
    ("name", "text", "noted"),
    [
        ("a.xlf", ONE.format("", "", "a", "").replace('"en"', '"fr"'), True),
        ("a.xlf", ONE.format("", "", "a", "").replace('"it"', '"fr"'), True),
        ("a.xlf", ONE.format("", "", "a", "").replace('"it"', '"it-CH"'), False),
        ("a.tmx", TMX.format("fr", '<tuv xml:lang="en"><seg>a</seg></tuv>'), True),
        ("a.tmx", TMX.format("*all*", '<tuv xml:lang="en"><seg>a</seg></tuv>'), False),
        ("a.po", PO.format('"Language: ar\\n"\n'), True),
        ("a.po", PO.format('"Language: it_CH\\n"\n'), False),
        ("a.po", PO.format('"Language: en_GB\\n"\n'), False),
    ],
)
def test_a_file_in_other_languages_is_noted(name: str, text: str, noted: bool) -> None:
    result, report = run(name, text)
    assert bool(report.others) == noted
    if "Language: ar" in text or "it_CH" in text:
        assert re.findall("Language: .*", result) == re.findall("Language: .*", text)


def test_a_language_that_is_missing_or_a_copy_of_the_source_is_set() -> None:
    for old in ('target-language="en"', 'target-language=""', ""):
        text = ONE.format("", "", "a word", "").replace('target-language="it"', old)
        assert 'target-language="it"' in run("a.xlf", text)[0]
    assert "Language: it\\n" in run("a.po", PO.format('"Language: en_GB\\n"\n'))[0]
    variants = (
        '<tuv xml:lang="en-GB"><seg>colour</seg></tuv><tuv xml:lang="en"><seg>color</seg></tuv>'
    )
    assert "COLOR<" in run("a.tmx", TMX.format("en", variants))[0]


@pytest.mark.parametrize(
    "plural",
    [
        "n/0", "n%(n-1)", "n", "n-1", "2", "1-2", "9" * 900, "9" * 5000, "n*" * 400 + "n",
        "(" * 300 + "n" + ")" * 300, "n==1 ? 0 : " * 150 + "0", "EXPRESSION", "n=1", "n ? 0",
        "__import__('os')",
    ],
)  # fmt: skip
def test_plural_forms_that_give_no_form_are_errors_of_the_file(plural: str) -> None:
    header = f'"Plural-Forms: nplurals=2; plural={plural};\\n"\n'
    with pytest.raises(UserError) as error:
        run("a.po", PO.format(header))
    assert error.value.at == "a.po:2"
    assert error.value.fix


def test_templates_and_odd_catalogs_are_read() -> None:
    header = '"Plural-Forms: nplurals=INTEGER; plural=EXPRESSION;\\n"\n'
    charset = '"Content-Type: text/plain; charset=CHARSET\\n"\n'
    assert "ONE" in run("a.po", PO.format(header + charset))[0]
    odd = 'msgid ""\nmsgid_plural ""\nmsgstr[0] ""\n\nmsgid "a"\nmsgstr ""\n'
    assert 'msgstr "A"' in run("a.po", odd)[0]
    odd = 'domain "x"\n\nmsgid\n"a"\nmsgid_plural "b"\nmsgstr[0]\n""\nmsgstr[1]\n""\n'
    result = 'domain "x"\n\n#, fuzzy\nmsgid\n"a"\nmsgid_plural "b"\nmsgstr[0] "A"\nmsgstr[1] "B"\n'
    assert run("a.po", odd)[0] == result


@pytest.mark.parametrize("encoding", ["hex", "base64", "rot13", "zlib", "unheard-of"])
def test_encodings_that_are_none_of_text_are_errors_of_the_file(encoding: str) -> None:
    catalog = PO.format(f'"Content-Type: text/plain; charset={encoding}\\n"\n')
    for name, text in (
        ("a.po", catalog),
        ("a.tmx", f'<?xml version="1.0" encoding="{encoding}"?><a/>'),
    ):
        with pytest.raises(UserError) as error:
            run(name, text)
        assert (error.value.at or "").startswith(name)


@pytest.mark.parametrize(
    "text",
    [
        '<!DOCTYPE t [<!ENTITY a "b"><!ENTITY c "&a;&a;">]><tmx>&c;</tmx>',
        '<!DOCTYPE t [<!ENTITY % a SYSTEM "file:///etc/passwd"> %a;]><tmx/>',
        f"<tmx><tu>{'<a>' * 10_000}",
        f"<tmx>{'<a>' * 10_000}",
        f"<tmx><!--{'-a' * 10_000}",
        f"<tmx b='{'a' * 20_000}'/>",
    ],
)
def test_attacks_by_xml_are_errors_of_the_file(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xml, "MAX_TOKEN", 10_000)
    monkeypatch.setattr(xml, "_BLOCK", 1000)
    with pytest.raises(UserError) as error:
        run("a.tmx", text)
    assert (error.value.at or "").startswith("a.tmx:1")


def test_the_size_of_a_unit_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xml, "MAX_ELEMENT", 50_000)
    unit = '<tu><tuv xml:lang="en"><seg>{}</seg></tuv></tu>'
    run("a.tmx", f"<tmx>{unit.format('a') * 100}</tmx>")
    for seg in ("<x/>" * 100, "a" * 50_000):
        with pytest.raises(UserError) as error:
            run("a.tmx", f"<tmx>{unit.format(seg)}</tmx>")
        assert error.value.at == "a.tmx:1"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.xlf", ONE.format("", "", "word", "")),
        ("a.xlf", TWO.format("", "", "word", "")),
        ("a.tmx", TMX.format("en", '<tuv xml:lang="en"><seg>word</seg></tuv>')),
        ("a.po", PO.format("")),
    ],
)
def test_a_translation_never_makes_a_file_that_its_format_does_not_allow(name, text):
    odd = from_function(lambda lines: ["\0\x0b\ud800\ufffe<&>]]>\x1b"] * len(lines))
    data, _ = translate_bytes(text.encode(), name, ("en", "it"), odd)
    shown = data.decode()
    assert not re.search("[\0\x1b]", shown)
    if name != "a.po":
        shown = "".join(ElementTree.fromstring(shown).itertext())
    assert "<&>]]>" in shown
