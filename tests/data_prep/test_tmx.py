"""Translation memories as tools write them: encodings, namespaces, codes in the text, damage."""

import bz2
import gzip
import lzma

import pytest

from data_prep import tmx as translation_memory
from nmt.cli.import_corpus import main
from tests.data_prep.test_command import langs, manifest, read_back, texts, tmx

GOOD = list(texts(100))
MEMORY = tmx(GOOD).replace("</tu>", "</tu>\n")  # unit n in line n


def import_memory(folder, content, *options, name="memory.tmx"):
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return main(["tmx", str(path), *langs(folder / "out", *options)])


def text_of(segment):
    pairs = [(f'<hi>"{segment}"</hi>', "yes")]
    unit = translation_memory._unit(tmx(pairs).partition("<body>")[2].partition("</body>")[0], "")
    return unit["xx"][1:-1]


def test_texts_have_no_formatting_codes(tmp_path):
    coded = 'save <bpt i="1">&lt;b&gt;</bpt><hi>all &amp; more</hi><ept i="1">&lt;/b&gt;</ept> now'
    assert import_memory(tmp_path, tmx([*GOOD, (coded, "yes")])) == 0
    assert read_back(tmp_path / "out") == sorted([*GOOD, ("save all & more now", "yes")])


@pytest.mark.parametrize(
    ("segment", "text"),
    [
        ("line<ph/>second", "line second"),
        ("line <ph/>second<ph/><ph/> third<ut>\\par</ut>fourth", "line second third fourth"),
        ("First.<ph/>Second", "First. Second"),
        ("Ready<ph/>, set<ph/>; go<ph/>! (now<ph/>)", "Ready, set; go! (now)"),
        ("(<ph/>now) «<ph/>go<ph/>» <ph/>x", "(now) «go» x"),
        ("why?<ph/>¿Si?", "why? ¿Si?"),
        ("he said '<ph/>no<ph/>' co<ph/>-<ph/>op", "he said 'no' co-op"),
        ("un<bpt>&lt;b&gt;</bpt>believ<ept>&lt;/b&gt;</ept>able", "unbelievable"),
        ("un<it type='bold'/>believ<ph>&lt;/b&gt;</ph>able", "unbelievable"),
        ("H<bpt i='1'/>2<ept i='1'/>O", "H2O"),
        ("A<bpt>&lt;td&gt;</bpt>B<it>&lt;br&gt;</it>C", "A B C"),
        ("你好<ph/>世界<ph/>BLEU", "你好世界 BLEU"),
        ("<ph>code <sub>inside</sub></ph>a<x>b</x>c", "abc"),
    ],
)
def test_a_code_between_words_is_a_space(segment, text):
    assert text_of(segment) == text


@pytest.mark.parametrize(
    "content",
    [
        MEMORY.replace("<tmx", '<tmx xmlns="http://www.lisa.org/tmx14"'),
        MEMORY.replace("<tu", "<t:tu").replace("</tu", "</t:tu").replace("seg>", "t:seg>")
        .replace("</seg", "</t:seg").replace("</t:t:", "</t:").replace("<tmx", '<tmx xmlns:t="x"'),
        MEMORY.encode("utf-8-sig"),
        MEMORY.encode("utf-16"),
        MEMORY.replace("?>", ' encoding="UTF-16"?>', 1).encode("utf-16-le"),
        MEMORY.replace("?>", ' encoding="UTF-16"?>', 1).encode("utf-16-be"),
        MEMORY.replace("?>", ' encoding="UTF-16"?>', 1),
        MEMORY.replace("<tu>", "<!-- <tu></tu> </tu> -->\n<tu><!-- </tu> -->"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("block", [7, 1 << 20])
def test_any_form_of_xml_is_read(tmp_path, monkeypatch, content, block):
    monkeypatch.setattr(translation_memory, "_BLOCK", block)
    if block == 7 and b"</tu> -->" in (content if isinstance(content, bytes) else content.encode()):
        content = content.replace("<tu><!-- </tu> -->", "<tu>")
    assert import_memory(tmp_path, content) == 0
    assert read_back(tmp_path / "out") == sorted(GOOD)
    assert manifest(tmp_path / "out")["dropped"] == {}


def test_the_declared_encoding_is_used(tmp_path):
    content = tmx([*GOOD, ("größer", "ñu")]).replace("?>", ' encoding="ISO-8859-1"?>', 1)
    assert import_memory(tmp_path, content.encode("latin-1")) == 0
    assert ("größer", "ñu") in read_back(tmp_path / "out")


@pytest.mark.parametrize(
    ("suffix", "compress"), [(".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)]
)
def test_compressed_memories_are_read(tmp_path, capsys, suffix, compress):
    packed = compress(MEMORY.encode())
    assert import_memory(tmp_path, packed, name=f"memory.tmx{suffix}") == 0
    assert read_back(tmp_path / "out") == sorted(GOOD)
    for damaged in (packed[:-20], b"rubbish", b""):
        assert import_memory(tmp_path, damaged, "--force", name=f"memory.tmx{suffix}") == 2
        assert f"memory.tmx{suffix}:" in capsys.readouterr().err


@pytest.mark.parametrize(
    "bad",
    ["a &#x1F; b", "a \x0b b", "a & b", "a < b", "&nbsp;", "</tu>", "<ph>", b"\xff", "<b>" * 200],
)
def test_a_bad_unit_is_listed_and_the_others_are_read(tmp_path, capsys, bad):
    lines = MEMORY.encode().split(b"\n")
    bad = bad if isinstance(bad, bytes) else bad.encode()
    closing = b"</b>" * bad.count(b"<b>")
    lines[49] = lines[49].replace(b"<seg>", b"<seg>" + bad + closing, 1)
    assert import_memory(tmp_path, b"\n".join(lines)) == 0
    assert read_back(tmp_path / "out") == sorted(GOOD[:49] + GOOD[50:])
    listed = manifest(tmp_path / "out")["dropped"]["unreadable XML"]["first"]
    assert listed.startswith("memory.tmx:50 (unit 50)")
    assert "unreadable XML" in capsys.readouterr().err


def test_a_unit_that_does_not_end_costs_no_other(tmp_path):
    lines = MEMORY.split("\n")
    lines[49] = lines[49].replace("</tu>", "")
    assert import_memory(tmp_path, "\n".join(lines)) == 0
    assert read_back(tmp_path / "out") == sorted(GOOD[:49] + GOOD[50:])


@pytest.mark.parametrize("tag", ["<b>", "<tu>", "<seg>"])
def test_nested_tags_are_an_error_by_name(tmp_path, capsys, tag):
    nested = tag * 10_000 + "x" + tag.replace("<", "</") * 10_000
    assert import_memory(tmp_path, tmx([(nested, "y")])) == 2
    error = capsys.readouterr().err
    assert "no translation unit is well-formed XML with at most 100 nested tags\n  -> " in error


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[:-50], "memory.tmx:100: ends before </tmx>\n  -> copy or export"),
        (lambda text: text.replace('"yy"', '"yz"'), "unknown language 'yy'; did you mean yz?"),
        (lambda text: text.replace("?>", ' encoding="utf9"?>', 1), "convert the file to UTF-8"),
        (lambda text: text.replace("?>", ' encoding="hex"?>', 1), "convert the file to UTF-8"),
        (lambda text: text.replace("tu>", "u>"), "memory.tmx: has no translation unit"),
        (lambda text: text.encode("utf-16")[:-1], "memory.tmx: not utf-16"),
        (lambda text: text[:-50] + "<!--" * 300_000, "ends before </tmx>"),  # at once
        (lambda text: "just text", "memory.tmx:1: ends before </tmx>"),
        (lambda text: text.replace("tuv>", "tuv"), "memory.tmx:1: no translation unit is well-"),
    ],
)
def test_damage_is_an_error_with_its_place(tmp_path, capsys, damage, message):
    assert import_memory(tmp_path, damage(MEMORY)) == 2
    assert message in capsys.readouterr().err


def test_text_in_which_no_unit_ends_is_not_kept_in_memory(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(translation_memory, "_BLOCK", 100)
    monkeypatch.setattr(translation_memory, "_MAX_UNIT", 1000)
    assert import_memory(tmp_path, MEMORY.replace("</tu>", "")) == 2
    assert "memory.tmx:1: no translation unit ends in 1,000 characters" in capsys.readouterr().err
