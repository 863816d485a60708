"""Word documents and OpenDocument texts: all text is translated or counted, and attacks fail."""

from __future__ import annotations

import io
import re
import zipfile
from xml.etree import ElementTree

import pytest

from nmt.apps.documents.document import translate_bytes
from nmt.apps.documents.formats import archive
from nmt.apps.documents.job import Report
from nmt.apps.documents.lines import from_function
from nmt.errors import UserError
from tests.apps.documents.translators import upper
from tests.data_prep.archives import zipped

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
A = "http://schemas.openxmlformats.org/drawingml/2006/main"
C = "http://schemas.openxmlformats.org/drawingml/2006/chart"
REL = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
ODF = "urn:oasis:names:tc:opendocument:xmlns:"


def rels(**targets: str) -> str:
    links = (
        f'<Relationship Id="{kind}" Type="{REL}/{kind}" Target="{target}"/>'
        for kind, target in targets.items()
    )
    return f'<Relationships xmlns="{REL}">{"".join(links)}</Relationships>'


def document(body: str) -> str:
    return f'<w:document xmlns:w="{W}" xmlns:a="{A}"><w:body>{body}</w:body></w:document>'


def docx(body: str, **others: str | bytes) -> bytes:
    main = {"_rels/.rels": rels(officeDocument="word/document.xml")}
    return zipped({**main, "word/document.xml": document(body), **others})


def odt(body: str, automatic: str = "") -> bytes:
    spaces = "".join(
        f' xmlns:{name}="{ODF}{space}:1.0"'
        for name, space in {
            "office": "office", "text": "text", "style": "style", "draw": "drawing",
            "svg": "svg-compatible", "fo": "xsl-fo-compatible", "table": "table",
        }.items()
    )  # fmt: skip
    start = f"<office:document-content{spaces}>{automatic}<office:body><office:text>"
    end = "</office:text></office:body></office:document-content>"
    return zipped({"content.xml": f"{start}{body}{end}"})


def run(name: str, data: bytes, tgt: str = "it") -> tuple[bytes, Report]:
    return translate_bytes(data, name, ("en", tgt), from_function(upper))


def part(data: bytes, name: str) -> str:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive.read(name).decode()


def left(report: Report) -> dict[str, int]:
    return {re.sub(r".*\((.*)\)", r"\1", what): n for what, n in report.others.items()}


T = "<w:r><w:t>{}</w:t></w:r>"


@pytest.mark.parametrize(
    "inline",
    [
        "<w:ins w:id='1'>{}</w:ins>",
        "<w:moveTo w:id='1'>{}</w:moveTo>",
        "<w:bdo w:val='rtl'>{}</w:bdo>",
        "<w:sdt><w:sdtPr/><w:sdtContent>{}</w:sdtContent></w:sdt>",
        "<w:fldSimple w:instr='TITLE'>{}</w:fldSimple>",
        "<w:r><w:fldChar w:fldCharType='begin'/></w:r><w:r><w:instrText>REF a</w:instrText></w:r>"
        "<w:r><w:fldChar w:fldCharType='separate'/></w:r>{}"
        "<w:r><w:fldChar w:fldCharType='end'/></w:r>",
        "<w:r><w:fldChar w:fldCharType='begin'/><w:instrText>IF</w:instrText>"
        "<w:fldChar w:fldCharType='begin'/><w:fldChar w:fldCharType='separate'/>"
        "<w:fldChar w:fldCharType='end'/><w:fldChar w:fldCharType='separate'/><w:t>in it</w:t>"
        "</w:r>"
        "{}<w:r><w:fldChar w:fldCharType='end'/><w:t>two</w:t></w:r>",
        "<w:r><w:pict><w:txbxContent><w:p>{}</w:p></w:txbxContent></w:pict></w:r>",
        "<w:r><w:ruby><w:rubyPr/><w:rt><w:r><w:t>1</w:t></w:r></w:rt><w:rubyBase>{}</w:rubyBase>"
        "</w:ruby></w:r>",
        "<w:r><w:drawing><a:p><a:r><a:rPr/><a:t>in it</a:t></a:r><a:br/>"
        "<a:r><a:t>two</a:t></a:r><a:endParaRPr/></a:p></w:drawing></w:r>{}",
    ],
)
def test_text_in_each_element_of_a_word_paragraph_is_translated(inline: str) -> None:
    body = f"<w:p>{T.format('one ')}{inline.format(T.format('inside'))}{T.format(' more')}</w:p>"
    result, report = run("a.docx", docx(body))
    changed = part(result, "word/document.xml")
    words = re.findall(r"<\w:t[^>]*>([^<]*)", changed)
    assert {"inside", "one ", " more", "in it", "two"} & set(words) == set()
    assert " ".join(" ".join(words).split()).isupper()
    assert left(report) == {}
    assert not report.problems

    def tags(xml: str) -> list[str]:
        found = (element.tag for element in ElementTree.fromstring(xml).iter())
        return [tag for tag in found if not tag.endswith(("}r", "}t", "Pr"))]

    assert tags(changed) == tags(document(body))


@pytest.mark.parametrize(
    ("inline", "kind"),
    [
        ("<w:del><w:r><w:delText>gone</w:delText></w:r></w:del>", "tracked deletion"),
        ("<w:moveFrom><w:r><w:t>gone</w:t></w:r></w:moveFrom>", "tracked deletion"),
        ("<w:oMath><w:t>speed</w:t></w:oMath>", "formula"),
        ("<w:ruby><w:rt><w:r><w:t>kana</w:t></w:r></w:rt><w:rubyBase/></w:ruby>", "ruby"),
        ("<w:new><w:t>text</w:t></w:new>", "in an element that is not known"),
        ("<w:r><w:drawing><w:docPr descr='a dog'/></w:drawing></w:r>", "description of a picture"),
        ("<w:r><w:pict><w:textpath string='DRAFT'/></w:pict></w:r>", "WordArt"),
    ],
)
def test_what_stays_in_a_word_document_is_counted(inline: str, kind: str) -> None:
    body = f"<w:p>{T.format('one')}{inline}</w:p>"
    result, report = run("a.docx", docx(body))
    assert left(report) == {kind: 1}
    assert part(result, "word/document.xml").count(inline) == 1


def test_the_parts_of_a_word_document_are_found_by_their_relationships() -> None:
    paragraph = f"<w:p>{T.format('text')}</w:p>"
    chart = (
        f'<c:chart xmlns:c="{C}" xmlns:a="{A}"><c:title><c:tx><a:p><a:r><a:t>sales</a:t></a:r>'
        "</a:p></c:tx></c:title><c:cat><c:strRef><c:strCache><c:pt><c:v>north</c:v></c:pt></c:strCache>"
        "</c:strRef></c:cat><c:numCache><c:v>1E-05</c:v></c:numCache></c:chart>"
    )
    drawing = f'<d xmlns:a="{A}"><a:p><a:r><a:t>step</a:t></a:r></a:p></d>'
    data = zipped(
        {
            "_rels/.rels": rels(officeDocument="/Other/Main%20part.XML"),
            "other/main part.xml": document(paragraph),
            "other/_rels/main part.xml.rels": rels(
                header="../top.xml", chart="c.xml", diagramData="d.xml", glossaryDocument="g.xml"
            ),
            "top.xml": f'<w:hdr xmlns:w="{W}">{paragraph}</w:hdr>',
            "other/c.xml": chart,
            "other/d.xml": drawing,
            "other/g.xml": document(paragraph),
            "word/document.xml": document(paragraph),
        }
    )
    result, report = run("a.docx", data)
    changed = {
        name for name in zipfile.ZipFile(io.BytesIO(result)).namelist()
        if part(result, name) != part(data, name)
    }  # fmt: skip
    assert changed == {"other/main part.xml", "top.xml", "other/c.xml", "other/d.xml"}
    assert [t for t in ("SALES", "NORTH", "1E-05") if t in part(result, "other/c.xml")] == [
        "SALES", "NORTH", "1E-05",
    ]  # fmt: skip
    assert "xml:space" not in part(result, "other/d.xml")  # which drawings do not have
    assert report.segments == 5
    assert left(report) == {"building blocks": 1}


@pytest.mark.parametrize(
    ("tgt", "old", "new"),
    [
        ("it", 'w:val="en-US" w:bidi="ar-SA"', 'w:val="it" w:bidi="ar-SA"'),
        ("pt_br", 'w:val="en-GB" w:eastAsia="en"', 'w:val="pt-BR" w:eastAsia="pt-BR"'),
        ("he", 'w:val="en-US"', 'w:val="he" w:bidi="he"'),
        ("jpn_Jpan", 'w:val="en-US" w:eastAsia="zh-CN"', 'w:val="ja" w:eastAsia="ja"'),
        ("it", 'w:val="fr-FR" w:eastAsia="ja-JP"', 'w:val="fr-FR" w:eastAsia="ja-JP"'),
    ],
)
def test_the_language_of_a_word_document_is_that_of_the_translation(tgt, old, new):
    body = f"<w:p><w:r><w:rPr><w:lang {old}/></w:rPr><w:t>text</w:t></w:r></w:p>"
    styles = f'<w:styles xmlns:w="{W}"><w:lang {old}/></w:styles>'
    others = {"word/_rels/document.xml.rels": rels(styles="s.xml"), "word/s.xml": styles}
    result, _ = run("a.docx", docx(body, **others), tgt)
    assert f"<w:lang {new}/>" in part(result, "word/document.xml")
    assert f"<w:lang {new}/>" in part(result, "word/s.xml")


@pytest.mark.parametrize(
    "inline",
    [
        "<text:meta>{}</text:meta>",
        "<text:ruby><text:ruby-base>{}</text:ruby-base><text:ruby-text>1</text:ruby-text></text:ruby>",
        "<text:bookmark-ref>{}</text:bookmark-ref>",
        "<draw:frame><draw:text-box><text:p>{}</text:p></draw:text-box></draw:frame>",
        "<draw:frame><svg:desc>{}</svg:desc></draw:frame>",
        "<office:annotation><text:p>{}</text:p></office:annotation>",
        "<text:note><text:note-citation>i</text:note-citation><text:note-body><text:p>{}</text:p>"
        "</text:note-body></text:note>",
        '<text:s text:c="300"/>{}',
    ],
)
def test_text_in_each_element_of_an_opendocument_paragraph_is_translated(inline):
    result, report = run("a.odt", odt(f"<text:p>one {inline.format('inside')} more</text:p>"))
    assert inline.format("INSIDE").replace("300", "299") in part(result, "content.xml")
    assert left(report) == {}
    assert not report.problems


def test_what_stays_in_an_opendocument_text_is_counted():
    body = (
        "<text:tracked-changes><text:changed-region><text:deletion><text:p>gone</text:p>"
        "</text:deletion></text:changed-region></text:tracked-changes>"
        "<text:table-of-content><text:index-title-template>contents</text:index-title-template>"
        "</text:table-of-content><text:p>one <text:title>two</text:title></text:p>"
    )
    result, report = run("a.odt", odt(body))
    assert left(report) == {"tracked deletion": 1, "field": 1}
    assert all(word in part(result, "content.xml") for word in ("gone", "CONTENTS", "ONE", "two"))


def test_the_language_of_an_opendocument_text_is_that_of_the_translation() -> None:
    old = '<style:text-properties fo:language="en" fo:country="US" style:language-asian="zh"/>'
    other = '<style:text-properties fo:language="fr" fo:country="FR"/>'
    data = odt("<text:p>text</text:p>", old + other)
    for tgt, new in {
        "it": 'fo:language="it" fo:country="none" style:language-asian="zh"',
        "pt-BR": 'fo:language="pt" fo:country="BR" style:language-asian="zh"',
        "ar": 'fo:language="ar" fo:country="none" style:language-asian="zh" '
        'style:language-complex="ar" style:country-complex="none"',
    }.items():
        changed = part(run("a.odt", data, tgt)[0], "content.xml")
        assert f"<style:text-properties {new}/>" in changed
        assert other in changed


def deep(start: str, end: str, levels: int = 60) -> str:
    return start * levels + T.format("text") + end * levels


def renamed(data: bytes, old: bytes, new: bytes) -> bytes:
    assert len(old) == len(new)
    return data.replace(old, new)


def encrypted(data: bytes) -> bytes:
    """Return an archive whose first file says that it is encrypted."""
    place = data.index(b"PK\x01\x02") + 8
    return data[:place] + b"\x01" + data[place + 1 :]


DEEP = "a.docx:word/document.xml:1"
GOOD = docx(f"<w:p>{T.format('text')}</w:p>")


@pytest.mark.parametrize(
    ("name", "data", "place"),
    [
        ("a.docx", encrypted(GOOD), "a.docx"),
        ("a.docx", bytes.fromhex("d0cf11e0a1b11ae1") + bytes(600), "a.docx"),
        ("a.docx", zipped({"word/document.xml": document("")}), "a.docx"),
        ("a.docx", zipped({"_rels/.rels": rels(officeDocument="word/none.xml")}), "a.docx"),
        ("a.docx", zipped({"_rels/.rels": rels(officeDocument="x"), "x": "<sheet/>"}), "a.docx"),
        ("a.docx", zipped({"_rels/.rels": "<a", "x": ""}), "a.docx:_rels/.rels:1:1"),
        ("a.docx", renamed(GOOD, b"word/document.xml", b"/ord/document.xml"), "a.docx"),
        ("a.docx", renamed(GOOD, b"word/document.xml", b"../d/document.xml"), "a.docx"),
        ("a.docx", renamed(GOOD, b"word/document.xml", b"word/document.xm\xff"), "a.docx"),
        ("a.docx", zipped({"A": "", "a": ""}), "a.docx"),
        ("a.docx", zipped({"a": "text"}, zipfile.ZIP_LZMA), "a.docx"),
        ("a.docx", docx(f"<w:p>{deep('<w:ins>', '</w:ins>', 300)}</w:p>"), DEEP),
        ("a.odt", odt('<text:p>a<text:s text:c="abc"/></text:p>'), "a.odt:content.xml:1"),
        ("a.odt", odt('<text:p>a<text:s text:c="-1"/></text:p>'), "a.odt:content.xml:1"),
        ("a.odt", odt(f'<text:p>a<text:s text:c="{"9" * 5000}"/></text:p>'), "a.odt:content.xml:1"),
        ("a.odt", zipped({"content.xml": "<html/>"}), "a.odt"),
        ("a.odt", zipped({"styles.xml": "<a/>"}), "a.odt"),
        ("a.odt", zipped({"META-INF/manifest.xml": "<encryption-data/>", "content.xml": "\0"}),
         "a.odt"),
    ],
)  # fmt: skip
def test_bad_archives_are_errors_of_the_file(name: str, data: bytes, place: str) -> None:
    with pytest.raises(UserError) as error:
        run(name, data)
    assert error.value.at == place
    assert error.value.fix


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("<w:ins>", "</w:ins>"),
        ("<w:p>", "</w:p>"),
        ("<w:r><w:pict><w:p>", "</w:p></w:pict></w:r>"),
        ("<w:x>", "</w:x>"),
    ],
)
def test_the_deepest_paragraph_that_is_read_can_be_written(start: str, end: str) -> None:
    levels = 95 // start.count("<")
    result, _ = run("a.docx", docx(f"<w:p>{deep(start, end, levels)}</w:p>"))
    assert ElementTree.fromstring(part(result, "word/document.xml")) is not None


def test_an_archive_is_measured_while_it_is_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """All its files together count, whatever its headers say."""
    monkeypatch.setattr(archive, "MAX_SIZE", 300_000)
    many = {f"{number}.bin": bytes(100_000) for number in range(2)}
    run("a.docx", docx("", **many))
    big = docx("", **many, **{"last.bin": bytes(100_000)})
    claim = (100_000).to_bytes(4, "little")
    for data in (big, big.replace(claim, (10).to_bytes(4, "little"))):
        with pytest.raises(UserError) as error:
            run("a.docx", data)
        assert error.value.at == "a.docx"


def test_a_translation_never_makes_a_file_that_xml_does_not_allow() -> None:
    odd = from_function(lambda lines: ["\0\x0b\ud800\ufffe<&>]]>\x1b"] * len(lines))
    for name, data in (("a.docx", GOOD), ("a.odt", odt("<text:p>text</text:p>"))):
        result, _ = translate_bytes(data, name, ("en", "it"), odd)
        main = part(result, "word/document.xml" if name == "a.docx" else "content.xml")
        assert "<&>]]>" in "".join(ElementTree.fromstring(main).itertext())
