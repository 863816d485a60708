"""Between two sentences of a document is what the target language writes there."""

from __future__ import annotations

import io
import itertools
import re
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.apps.documents.document import translate_bytes
from nmt.apps.documents.lines import from_function

pytest.importorskip("markdown_it")
SENTENCES = {
    "en": ["We sang.", "They left.", 'He said: "Tom left."', "We have Windows.", "We ate (all)."],
    "zh": ["我们唱。", "他走了。", "说\uff1a“汤姆走了。”", "有 Windows。", "吃\uff08皆\uff09。"],
    "ja": ["歌いました。", "行きました。", "「行った。」", "XP です。", "食べた\uff08皆\uff09。"],
    "ar": ["غنينا.", "هل رحلوا؟", "قال: «رحل.»", "عندنا Windows.", "أكلنا (كل شيء)."],
    "hi": ["हम ने गाया।", "वे चले गए।", "उसने कहा, “टॉम गया।”", "यह XP है।", "हम ने खाया (सब)।"],
}  # fmt: skip
SPACED = {"en", "ar", "hi"}
WORD = (
    "<w:document xmlns:w='http://schemas.openxmlformats.org/wordprocessingml/2006/main'><w:body>"
    "<w:p><w:r><w:t xml:space='preserve'>{}</w:t></w:r></w:p></w:body></w:document>"
)
RELATION = (
    "<Relationships><Relationship Type='x/officeDocument' Target='word/document.xml'/>"
    "</Relationships>"
)
ODF = (
    "<o:document-content xmlns:o='urn:oasis:names:tc:opendocument:xmlns:office:1.0' "
    "xmlns:t='urn:oasis:names:tc:opendocument:xmlns:text:1.0'><t:p>{}</t:p></o:document-content>"
)
FORMATS = {
    "a.txt": "{}\n",
    "a.md": "# {}\n",
    "a.html": "<p>{}</p>",
    "a.po": 'msgid "{}"\nmsgstr ""\n',
    "a.json": '["{}"]',
    "a.srt": "1\n00:00:01,000 --> 00:00:02,000\n{}\n",
    "a.vtt": "WEBVTT\n\n00:01.000 --> 00:02.000\n{}\n",
    "a.xlf": "<xliff><file><trans-unit id='1'><source>{}</source></trans-unit></file></xliff>",
    "a.tmx": "<tmx><body><tu><tuv xml:lang='{lang}'><seg>{}</seg></tuv></tu></body></tmx>",
    "a.docx": WORD,
    "a.odt": ODF,
}


def document(name: str, text: str, lang: str) -> bytes:
    data = FORMATS[name].replace("{lang}", lang).replace("{}", text).encode()
    parts = {"a.docx": ["_rels/.rels", "word/document.xml"], "a.odt": ["content.xml"]}.get(name)
    if parts is None:
        return data
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for part in parts:
            archive.writestr(part, RELATION if part.endswith(".rels") else data)
    return file.getvalue()


def text_of(name: str, data: bytes) -> str:
    if not zipfile.is_zipfile(io.BytesIO(data)):
        return data.decode()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive.read("word/document.xml" if name == "a.docx" else "content.xml").decode()


def translated(name: str, text: str, src: str, tgt: str) -> str:
    table = dict(zip(SENTENCES[src], SENTENCES[tgt], strict=True))

    def of_line(line: str) -> str:  # perhaps of several sentences, after which it is not split
        parts = re.split(f"({'|'.join(map(re.escape, table))})", line)
        return (" " if tgt in SPACED else "").join(table[part] for part in parts[1::2])

    translate = from_function(lambda lines: list(map(of_line, lines)))
    return text_of(name, translate_bytes(document(name, text, src), name, (src, tgt), translate)[0])


@pytest.mark.slow
@settings(max_examples=300)
@given(st.data())
def test_each_format_joins_sentences_as_the_target_language_does(data):
    src, tgt = data.draw(st.sampled_from([*itertools.permutations(SENTENCES, 2)]))
    name = data.draw(st.sampled_from([*FORMATS]))
    kinds = [0, 1, 3] if name in ("a.po", "a.json", "a.tmx") else range(5)  # quotation marks
    chosen = data.draw(st.lists(st.sampled_from(kinds), min_size=2, max_size=4))
    gaps = data.draw(st.sampled_from([" "] if src in SPACED else ["", "\u3000"]))
    text = gaps.join(SENTENCES[src][kind] for kind in chosen)
    space = " " if tgt in SPACED else ""
    result = translated(name, text, src, tgt)
    expected = space.join(SENTENCES[tgt][kind] for kind in chosen)
    # lines of subtitles are broken at spaces
    assert expected in result.replace("&quot;", '"').replace("\n", " ")


@pytest.mark.parametrize(
    ("text", "src", "tgt", "result"),
    [
        ("<b>我们唱。</b><i>他走了。</i>", "zh", "en", "<b>We sang.</b> <i>They left.</i>"),
        ("<b>We sang.</b> <i>They left.</i>", "en", "zh", "<b>我们唱。</b><i>他走了。</i>"),
        ("<b>We sang. </b>They left.", "en", "ja", "<b>歌いました。</b>行きました。"),
        ("我们唱。<wbr>他走了。", "zh", "en", "We sang.<wbr> They left."),
        ("<b><i>我们唱。</i>他走了。</b>", "zh", "en", "<b><i>We sang.</i> They left.</b>"),
    ],
)
def test_marks_stay_at_their_sentence(text: str, src: str, tgt: str, result: str) -> None:
    assert translated("a.html", text, src, tgt) == f"<p>{result}</p>"


def test_words_between_marks_are_joined_as_words() -> None:
    table = {"我们": "We", "唱": "sing", "了。": "now.", "We": "我们", "sing": "唱", "now.": "了。"}
    translate = from_function(lambda lines: [table.get(line, line.lower()) for line in lines])

    def run(text: str, *langs: str) -> str:
        return translate_bytes(text.encode(), "a.txt", (langs[0], langs[1]), translate)[0].decode()

    assert run("我们<b>唱</b>了。", "zh", "en") == "We <b>sing</b> now."
    assert run("We <b>sing</b> now.", "en", "zh") == "我们<b>唱</b>了。"
    assert run("Drink H<b>2</b>O <i>now.</i>", "en", "it") == "drink h<b>2</b>o <i>了。</i>"


def test_sentences_that_stay_keep_what_is_between_them() -> None:
    data = "<p>We sang.  They <b>left</b>.\n我们唱。他走了。".encode()
    for tgt in ("zh", "it"):
        translate = from_function(lambda lines: lines)
        assert translate_bytes(data, "a.html", ("en", tgt), translate)[0] == data
