"""Text formats: what a reader sees is translated or counted, the rest stays, nothing takes long."""

from __future__ import annotations

import io
import itertools
import json
import time

import pytest

from nmt.apps.documents import messages as messages_module
from nmt.apps.documents.document import count_segments
from nmt.apps.documents.job import Report
from nmt.apps.documents.lines import from_function
from nmt.errors import UserError
from tests.apps.documents.samples import TEXTS
from tests.apps.documents.test_formats import LANGS, run
from tests.apps.documents.translators import Reversing, same

pytest.importorskip("markdown_it")
CUE = "00:00:01,000 --> 00:00:02,000\n"
LATE = "100:00:01,000 --> 100:00:02,000\n"


def left(report: Report) -> dict[str, int]:
    prefix = "left untranslated ("
    return {what[len(prefix) : -1]: n for what, n in report.others.items() if what[:4] == "left"}


def both(name: str, source: str, **options: object) -> tuple[str, dict[str, int]]:
    """Return a document in upper case, and what is left; a copy must have the same bytes."""
    copy, _ = run(name, source.encode(), from_function(same), **options)
    assert copy.decode() == source
    result, report = run(name, source.encode(), **options)
    return result.decode(), left(report)


@pytest.mark.parametrize(
    ("source", "result", "kinds"),
    [
        ("<p translate=no>a<p>b", "<p translate=no>a<p>B", ["translate=no"]),
        ("<div><p translate=no>a</div>b", "<div><p translate=no>a</div>B", ["translate=no"]),
        ("<li translate=NO>a<ul><li>b</ul><li>c", "<li translate=NO>a<ul><li>b</ul><li>C",
         ["translate=no"]),
        ("<tr><td class='x notranslate'>a<td>b<tr><td>c",
         "<tr><td class='x notranslate'>a<td>B<tr><td>C", ["class=notranslate"]),
        ("<dl><dt translate=no>a<dd>b</dl>", "<dl><dt translate=no>a<dd>B</dl>", ["translate=no"]),
        ("<select><option translate=no>a<option>b", "<select><option translate=no>a<option>B",
         ["translate=no"]),
        ("<div translate=no>a<i translate=yes>b</i>c</div>d",
         "<div translate=no>a<i translate=yes>B</i>c</div>D", ["translate=no"]),
        ("<table translate=no><tr><td>a</table>b", "<table translate=no><tr><td>a</table>B",
         ["translate=no"]),
        ("<span translate=no>a <p>b", "<span translate=no>a <p>b", ["translate=no"]),
        ("<pre>a</pre><textarea>b</textarea><svg><text>c</text></svg>d",
         "<pre>a</pre><textarea>b</textarea><svg><text>c</text></svg>D",
         ["pre", "textarea", "svg"]),
        ("a <b c='d", "A <b c='d", ["in a tag or comment without an end"]),
        ("a<!-- b", "A<!-- b", ["in a tag or comment without an end"]),
        ("<script><!-- '<script>x</script>' --></script>a<style>b</style>",
         "<script><!-- '<script>x</script>' --></script>A<style>b</style>", []),
        ("<input type=submit value=go><input type=text value=a>",
         '<input type=submit value="GO"><input type=text value=a>', []),
        ("<img alt=a title='b \"c\"'><th abbr=d>",
         '<img alt="A" title="B &quot;C&quot;"><th abbr="D">', []),
        ("<title>a <b> c</title>", "<title>A &lt;B&gt; C</title>", []),
        ("a < b <c>d</c> & e </ f> <?x?> <!y>g", "A &lt; B <c>D</c> &amp; E </ f> <?x?> <!y>G", []),
        ("<?xml version='1.0'?><script/><p/>a<a/> b",
         "<?xml version='1.0'?><script/><p/>A<a/> B", []),
    ],
)  # fmt: skip
def test_html(source: str, result: str, kinds: list[str]) -> None:
    text, counts = both("a.html", source)
    assert text == result
    assert counts == dict.fromkeys(kinds, 1)


def test_pairs_of_tags_go_with_their_words() -> None:
    result, report = run("a.html", b"<p>one <b>two three</b> <code>x()</code> four", Reversing())
    assert result == b"<p>four <code>x()</code> <b>three two</b> one"
    assert not report.remarks


MARKDOWN = """\
+++
title = "kept"
+++
# Head {#id .class}

> [!NOTE]
> quoted

> [!tip]- named
> quoted

!!! note "note"
    inside

    after

=== "tab"
    inside

??? x
    inside

- [x] task

$$
xx = yy
$$

A $x+y$ for $5 and $6, {{ user }} {% link x %} [[Page]] [[Other|shown]] note[^1] ^[inline].

{% if x %}
text
{% endif %}

:::note[titled]
inside
:::

::: {.warning}
inside
:::

```{note} myst
:class: tip
inside
```

```{code-block} python
kept = 1
```

[^1]: one
[^b]: two words

    three

term
: definition

![alt](a.png "t") ![ref][r] ![r] [short] {ref}`x` :smile: 10:30

[r]: http://r.org "T"
[short]: http://s.org

text
{: .cls}

[TOC]

| a \\| b | c |
|---|---|
| d | e |
"""


def test_blocks_of_markdown_dialects_stay() -> None:
    text, counts = both("a.md", MARKDOWN)
    kept = [
        "title = ", "kept = 1", "[!NOTE]", "[!tip]-", "!!! note ", "=== ", "??? x", "[x] ",
        "xx = yy", "$x+y$", "{{ user }}", "{% link x %}", "[[Page]]", "[[Other|", "[^1]",
        "{% if x %}", "{% endif %}", ":::note[", "::: {.warning}", "```{note} ", ":class: tip",
        "{#id .class}", "```{code-block} python", "[^1]: ", "[^b]: ", ": ", '](a.png "t")', "][r]",
        "{ref}`x`", ":smile:", '[r]: http://r.org "T"', "[short]: http://s.org", "{: .cls}",
        "[TOC]", "|---|---|",
    ]  # fmt: skip
    for part in kept:
        assert text.count(part) >= MARKDOWN.count(part), part
    expected = MARKDOWN.upper()
    for part in kept:
        expected = expected.replace(part.upper(), part)
    changed = expected.replace("![R]", "![R][r]").replace("[SHORT] ", "[SHORT][short] ")
    assert text.replace("\n", "") == changed.replace('"KEPT"', '"kept"').replace("\n", "")
    assert counts == {"front matter": 1, "code": 1}


def test_rules_and_dollars_of_plain_markdown_are_no_dialect() -> None:
    source = "---\n\none\n\n---\n$$ two\n\nthree: four\n\n$$ five\n"
    text, counts = both("a.md", source)
    assert text == source.upper()
    assert not counts
    assert both("a.md", "> <div>\n> a\n> </div>\n")[1] == {"HTML in a quotation": 1}


CODES = [
    "btn-save", "#ff0000", "rgb(0, 0, 0)", "https://x.org/a", "mailto:a@b.c", "a@b.org", "./a",
    "a/b.png", "image.png", "saveButton", "SaveButton", "SAVE_BUTTON", "app.title", "en-US", "10px",
    "v1.2.3", "2024-01-01T00:00:00Z", "text/html; charset=utf-8", "ns:key", "Content-Type", "_x",
    "--flag", ".btn", "C:\\x", "~/x", "data:image/png;base64,AAA",
    "123e4567-e89b-12d3-a456-426614174000",
]  # fmt: skip
WORDS = [
    "Save", "OK", "E-mail", "Loading...", "Hello, world", "Wait: now", "see a/b now", "Да", "e.g.",
    "пере-ход", "Don't",
]  # fmt: skip


def test_values_of_json_that_are_words_of_a_program_stay():
    text, counts = both("a.json", json.dumps(CODES + WORDS, ensure_ascii=False))
    assert json.loads(text) == [*CODES, *(word.upper() for word in WORDS)]
    assert counts == {"names, paths, colors and other codes": len(CODES)}


def test_paths_choose_values_of_json_and_the_rest_stays_byte_for_byte():
    source = '{"title": "a-b", "meta": {"title": "c d", "x": ["e f", {"y": "g h"}]}}'
    text, counts = both("a.json", source, keys=("*title", "meta.x.1.*"))
    assert text == source.replace("a-b", "A-B").replace("c d", "C D").replace("g h", "G H")
    assert counts == {"not in --keys": 1}
    text, counts = both("a.json", source, skip_keys=("meta.*",))
    assert (text, counts["--skip-keys"]) == (source, 3)
    source = f'\ufeff{{"a": {"7" * 5000}, "a" :\t1.50e+10, "b": "$t(key) x {{{{n}}}} @:c.d"}}\r\n'
    assert both("a.json", source)[0] == source.replace(" x ", " X ")
    lone = b'["\\ud800"]'
    assert run("a.json", lone, from_function(same))[0] == lone


def test_text_in_other_encodings_is_guessed_or_named() -> None:
    polish = "Zażółć gęślą jaźń, nie mogę dziś przyjść.\n"
    result, report = run("a.txt", polish.encode("cp1250"))
    assert result.decode("cp1250") == polish.upper()
    assert [(each.place, bool(each.problem)) for each in report.problems] == [("encoding", True)]
    result, report = run("a.srt", (CUE + polish).encode("cp1250"), encoding="cp1250")
    assert (result.decode("cp1250"), report.problems) == (CUE + polish.upper(), [])
    russian = from_function(lambda lines: ["ж"] * len(lines))
    result, report = run("a.txt", polish.encode("cp1250"), russian, encoding="cp1250")
    assert (result.decode(), len(report.problems)) == ("ж\n", 1)
    wide = "one\n".encode("utf-16-le")
    for name, sign in (("utf-16", "utf-16-le"), ("utf-16-le", "utf-16-le")):
        assert run("a.txt", wide, encoding=name)[0].decode(sign) == "ONE\n"
    assert run("a.txt", "\ufeffone".encode("utf-32-le"))[0].decode("utf-32-le") == "\ufeffONE"
    catalog = (
        b'msgid ""\nmsgstr "Content-Type: text/plain; charset=latin1\\n"\n\nmsgid "a"\nmsgstr ""\n'
    )
    result, _ = run("a.po", catalog, russian)
    assert b"charset=UTF-8" in result
    assert 'msgstr "ж"' in result.decode()


@pytest.mark.parametrize("name", ["utf-16", "utf-32-be", "cp037"])
def test_an_encoding_in_which_its_own_name_cannot_be_read_is_not_that_of_the_file(name):
    page = "<meta charset={}><p>{}</p>"
    assert run("a.html", page.format(name, "één").encode())[0].decode() == page.format(name, "ÉÉN")


@pytest.mark.parametrize(
    "error", [ValueError("x"), RecursionError(), KeyError(1), ZeroDivisionError(), OSError("x")]
)
def test_what_a_reader_does_not_expect_is_an_error_of_the_file_but_not_that_of_the_model(
    monkeypatch, error
):
    def fail(*_: object) -> None:
        raise error

    with pytest.raises(type(error)):
        run("a.txt", b"a", from_function(fail))
    monkeypatch.setattr("nmt.apps.documents.document.format_of", lambda name: fail)
    with pytest.raises(UserError) as found:
        run("a.txt", b"a")
    assert (found.value.at, found.value.__cause__) == ("a.txt", error)


def test_subtitles_go_on_after_a_blank_line() -> None:
    source = f"1\r\n{CUE}{{\\an8}}one\r\ntwo\r\n\r\nthree\r\n\r\n2\r\n{LATE}- a\n- b\n3\n{CUE}c"
    text, counts = both("a.srt", source)
    assert text == source.replace("one\r\ntwo", "ONE TWO").replace("three", "THREE").replace(
        "- a\n- b", "- A\n- B"
    ).replace(f"{CUE}c", f"{CUE}C")
    assert not counts


def test_blocks_of_webvtt_stay() -> None:
    head = "WEBVTT x\n\nREGION\nid:a\n\nSTYLE\n::cue{}\n\nNOTE b\nc\n\nname d\n"
    cue = "00:01.000 --> 00:02.000 align:start\n<v Ann>{} <c.red>{}</c>\n<v.loud Bob>{}\n{}{}\n"
    source = head + cue.format("one", "two", "three", "00:03.000 --> 00:04.000\n", "four")
    text, counts = both("a.vtt", f"{source}\nstray\n")
    upper = cue.format("ONE", "TWO", "THREE", "00:03.000 --> 00:04.000\n", "FOUR")
    assert text == f"{head}{upper}\nstray\n"
    assert counts == {"outside of a cue": 1}


SIGNS = "<>&;\"'=/\\!-[](){}*_$%:.\n a"
STARTS = {
    "a.txt": ["<"], "a.html": ["", "<a ", "<script>", "<p translate=no>"], "a.json": ['"'],
    "a.srt": [CUE], "a.vtt": [f"WEBVTT\n\n{CUE}"],
}  # fmt: skip


def seconds(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> float:
    """Return the processor time of reading; protected parts of its text have tests of their own."""
    monkeypatch.setattr(
        messages_module, "has_words", lambda text, *_, **__: any(map(str.isalpha, text))
    )
    start = time.process_time()
    try:
        count_segments(io.BytesIO(text.encode()), name, LANGS)
    except UserError as error:
        assert "content is not" not in error.what, text[:20]  # noqa: PT017
    return time.process_time() - start


@pytest.mark.slow
@pytest.mark.parametrize("name", STARTS)
def test_no_signs_take_long(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern that goes back would take minutes for some of these 100 kB."""
    for start in STARTS[name]:
        for pair in itertools.product(SIGNS, repeat=2):
            text = start + "".join(pair) * 50_000
            assert seconds(name, text, monkeypatch) < 8, (start, pair)


@pytest.mark.slow
def test_no_signs_take_long_in_markdown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten times the text may take 10 times the time, not 100 times; half of that is the limit."""
    pairs = ["".join(pair) for pair in itertools.product(SIGNS, repeat=2)]
    times = {pair: seconds("a.md", pair * 1000, monkeypatch) for pair in pairs}
    for pair in sorted(pairs, key=lambda pair: -times[pair])[:5]:
        few = min(seconds("a.md", pair * 1000, monkeypatch) for _ in range(3))
        many = min(seconds("a.md", pair * 10_000, monkeypatch) for _ in range(3))
        assert many < 50 * few, pair


def test_deep_and_long_markup_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("<b>" * 5000 + "a" + "</b>" * 5000, "<b>" * 5000 + "a", "a" + "<!--x-->" * 5000):
        result, report = run("a.html", text.encode())
        assert result.decode() == text.replace("a", "A")
        assert not report.problems


MARKED = {
    **{name: data.decode() for name, data in TEXTS.items()},
    "quote.md": "> quoted\n",
    "table.md": "| a | b |\n|---|---|\n| c | d |\n",
    "fence.md": "```\ncode\n```\ntext\n",
    "front.md": "---\ntitle: kept\n---\ntext\n",
    "item.md": "- item\n",
    "first.txt": "Text\n",
    "text.html": "Text",
    "tag.html": "<p>Text",
    "xml.html": "<?xml version='1.0'?><script/>Text",
    "time.srt": f"{CUE}- Text\n",
}


@pytest.mark.parametrize("name", MARKED)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_a_byte_order_mark_stays_and_changes_nothing_else(name: str, encoding: str) -> None:
    seen: list[str] = []

    def record(lines: list[str]) -> list[str]:
        seen.extend(lines)
        return [line.upper() for line in lines]

    def encoded(text: str) -> bytes:
        return f"\ufeff{text}".encode(encoding)

    text = MARKED[name].replace('encoding="UTF-8"', f'encoding="{encoding[:6].upper()}"')
    expected, _ = run(name, text.encode(), from_function(record))
    before = list(seen)
    seen.clear()
    result, _ = run(name, encoded(text), from_function(record))
    assert result == encoded(expected.decode())
    assert seen == before
    again, _ = run(name, result, from_function(same))  # it can read what it has written
    assert again.decode(encoding).count("\ufeff") == 1


@pytest.mark.parametrize("mark", ["\ufeff", "\ufeff\n", "\ufeff "])
@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.html", "a.json"])
def test_a_mark_alone_is_an_empty_file(name: str, mark: str) -> None:
    with pytest.raises(UserError):
        run(name, mark.encode())


def test_two_marks_are_no_text() -> None:
    text = "\ufeff\ufeff# Text\n"
    assert run("a.md", text.encode())[0].decode() == text.replace("Text", "TEXT")
    with pytest.raises(UserError) as error:
        run("a.txt", b"\xef\xbb\xbfab\n\xff")  # a mark is no guess
    assert error.value.at == "a.txt:2"


CODES_BEFORE = [
    "<i>", "{\\an8}", "{i}", "<c.yellow>", "<b><i>", "<lang en>", "<font color='a'>", "\u200e",
    "\u200f", "\u202a", "\u202b", "\u2067", "\ufeff", "\u061c", "\u200b", "<i>\u200f{\\an8} ",
]  # fmt: skip


@pytest.mark.parametrize("dash", ["-", "- ", "\u2013 ", "\u2014", "\u2010", "\u2212 ", "\u266a "])
@pytest.mark.parametrize("code", ["", *CODES_BEFORE])
def test_each_speaker_has_a_line_also_behind_tags_and_marks(code: str, dash: str) -> None:
    for name, start in (("a.srt", f"1\n{CUE}"), ("a.vtt", f"WEBVTT\n\n{CUE}")):
        one, two = f"{code}{dash}Fine.", f"{code}{dash}And you?"
        source = f"{start}{one}\n{two}\ngoes on\n"
        assert run(name, source.encode(), from_function(same))[0].decode() == source
        seen: list[str] = []

        def record(lines: list[str], seen: list[str] = seen) -> list[str]:
            seen.extend(lines)
            return [line.replace("Fine", "Bene").replace("you", "tu") for line in lines]

        result = run(name, source.encode(), from_function(record))[0].decode()
        assert result == f"{start}{code}{dash}Bene.\n{code}{dash}And tu? goes on\n"
        if code not in ("\u200b", "<i>\u200f{\\an8} "):
            assert not any(code and code in line for line in seen)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("<ruby>one<rt>ruby</rt></ruby> two", "<ruby>ONE<rt>ruby</rt></ruby> TWO"),
        ("<ruby>one<rt>ruby</ruby> two", "<ruby>ONE<rt>ruby</ruby> TWO"),
        ("<ruby>o<rt>x</rt>ne<rt>y</rt></ruby>", "<ruby>ONE<rt>x</rt><rt>y</rt></ruby>"),
        ("a <ruby>one<rt>x <i>y</i></rt></ruby>.", "A <ruby>ONE<rt>x <i>y</i></rt></ruby>."),
        ("one <rt>two</rt>", "ONE <rt>TWO</rt>"),  # no ruby
    ],
)
@pytest.mark.parametrize("name", ["a.vtt", "a.html", "a.txt", "a.json", "a.md"])
def test_an_annotation_of_ruby_stays_behind_its_text(name: str, text: str, result: str) -> None:
    form = {"a.vtt": f"WEBVTT\n\n{CUE}{{}}\n", "a.json": '["{}"]', "a.html": "<p>{}"}.get(
        name, "{}\n"
    )
    translation, counts = both(name, form.format(text))
    assert translation == form.format(result)
    assert counts == ({"ruby": text.count("<rt")} if "<ruby" in text else {})


def test_the_summary_says_where_and_what_is_equal() -> None:
    page = "<p>one</p>\n<pre>a</pre>\n<pre>b</pre>\n<pre>c</pre>\n<pre>d</pre><p>SAME</p>\n<!-- a"
    _, report = run("a.html", page.encode())
    what = "left untranslated (pre)"
    assert report.others[what] == 4
    assert report.places[what] == ["line 2", "line 3", "line 4"]
    assert report.places["left untranslated (in a tag or comment without an end)"] == ["line 6"]
    assert (report.segments, report.same) == (2, 1)
