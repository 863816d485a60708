"""A small document of each kind, with the markup and placeholders that people use.

As a program, it writes them into the current folder, for the tests of pages.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

PO = rb"""# A translator <t@x.org>
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Language: en\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\n"

#: a.c:1
#, c-format
msgid "Hello %(name)s, you have <b>new</b> mail\n"
"on line two"
msgstr ""

msgctxt "menu"
msgid "One file"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] ""

#, fuzzy
msgid "old"
msgstr "vecchio"
msgid "done"
msgstr "fatto"

#~ msgid "gone"
#~ msgstr "perso"
"""
TEXTS: dict[str, bytes] = {
    "notes.txt": b"Hello world.  This is {name}, see https://x.org/a?b=1. And more!\r\n\r\n"
    b"  Write to me@x.org 1,000 times &amp; <b>be</b> happy\r\n",
    "readme.md": rb"""---
title: kept
---
# A *nice* heading

Some **bold text** and `code()` with a [link text](http://x.org "t") here.
A second line of it, snake_case and 2 * 3 = 6.\
A hard break, AT&amp;T, a \* star.

> quoted text
> goes on

* item one
* item **two**

| A head | b |
|---|---|
| cell one | `x` cell |

```python
print("no")
```

<div title="A title">block <b>html</b></div>

[ref link][r] and ![img](a.png) ~~gone~~ ***both***

[r]: http://r.org
""",
    "page.html": b"""<!DOCTYPE html>
<html lang="en"><head><meta charset=utf-8><title>My page &amp; more</title>
<script>var a = "x < y";</script><meta name="description" content="A fine page"></head>
<body><!-- c --><p class=a>Hello <b>big</b> world &eacute;t&eacute;&nbsp;yes<br>then
<code>x()</code> runs <a href="u" title='The "tip"'>in a link</a>.</p>
<img src=x alt="a picture"><ul><li>one<li>two <i>three</i></ul>
<p translate="no">Keep me</p><pre>as is</pre></body></html>
""",
    "app.po": PO,
    "app.xlf": b"""<?xml version='1.0' encoding="UTF-8"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
<file original="a" source-language="en" target-language="it" datatype="plaintext"><body>
  <trans-unit id="1">
    <source>Hello <g id="1">big</g> world<x id="2"/></source>
  </trans-unit>
  <trans-unit id="2"><source>done</source><target>fatto</target></trans-unit>
  <trans-unit id="3" ><source>New &amp; one</source><target/></trans-unit>
  <trans-unit id="4" translate="no"><source>API</source></trans-unit>
</body></file></xliff>
""",
    "app.xliff": b"""<xliff version="2.0" srcLang="en" trgLang="it"
 xmlns="urn:oasis:names:tc:xliff:document:2.0"><file id="f" original="a"><unit id="1">
<segment><source>Hello <pc id="1">big</pc> world</source></segment></unit></file></xliff>
""",
    "memory.tmx": b"""<?xml version="1.0"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en"/><body>
<tu>
  <tuv xml:lang="en-US"><seg>The <bpt i="1">&lt;b></bpt>big<ept i="1">&lt;/b></ept> day.</seg></tuv>
</tu>
<tu><tuv xml:lang="fr"><seg>Bonjour</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>done</seg></tuv><tuv xml:lang="it"><seg>fatto</seg></tuv></tu>
</body></tmx>
""",
    "film.srt": b"""1
00:00:01,000 --> 00:00:02,000
Hello there my <i>good</i> friend
how are you today, really?

2
00:00:03,000 --> 00:00:04,000
- Fine.
- And you?
""",
    "film.vtt": b"""WEBVTT

NOTE a comment

intro
00:01.000 --> 00:02.000 align:start
<v Ann>Hello <00:01.500>there
""",
    "strings.json": rb"""{ "greeting": "Hello {name}, it is %s",
 "list": ["say \"hi\" twice", 3, {"rich": "<b>fine</b> day"}], "state": "\u00e9tat" }
""",
}


def docx() -> bytes:
    """Return a Word document with a heading, styles, a table, a header and a text box."""
    import docx as library

    document = library.Document()
    document.add_heading("A title", 1)
    paragraph = document.add_paragraph("Hello ")
    paragraph.add_run("big bold").bold = True
    paragraph.add_run(" world")
    paragraph.add_run(" again.")
    table = document.add_table(1, 2)
    table.cell(0, 0).text = "cell one"
    table.cell(0, 1).text = "cell\ttwo\nline"
    document.sections[0].header.paragraphs[0].text = "The header"
    file = io.BytesIO()
    document.save(file)
    w = "<w:p><w:r><w:t>inside</w:t></w:r></w:p>"
    extra = (
        "<w:p><w:r><w:t>Text</w:t></w:r><w:r><w:footnoteReference w:id='1'/></w:r><w:hyperlink>"
        "<w:r><w:t xml:space='preserve'> and link</w:t></w:r></w:hyperlink><w:r><w:pict>"
        f"<w:txbxContent>{w}</w:txbxContent></w:pict></w:r></w:p><w:sectPr"
    )
    changed = io.BytesIO()
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(changed, "w") as new:
        for info in old.infolist():
            data = old.read(info)
            if info.filename == "word/document.xml":
                data = data.replace(b"<w:sectPr", extra.encode(), 1)
            new.writestr(info, data)
    return changed.getvalue()


def odt() -> bytes:
    """Return an OpenDocument text with a heading, a span, a footnote and white space."""
    from odf import opendocument, text

    document = opendocument.OpenDocumentText()
    document.text.addElement(text.H(outlinelevel=1, text="Title"))
    paragraph = text.P(text="Hello ")
    paragraph.addElement(text.Span(text="big"))
    paragraph.addText(" world")
    note = text.Note(noteclass="footnote")
    note.addElement(text.NoteCitation(text="1"))
    body = text.NoteBody()
    body.addElement(text.P(text="a note"))
    note.addElement(body)
    paragraph.addElement(note)
    paragraph.addElement(text.S(c=2))
    paragraph.addText("end")
    paragraph.addElement(text.LineBreak())
    paragraph.addText("line")
    document.text.addElement(paragraph)
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


def all_documents() -> dict[str, bytes]:
    """Return the documents by name; those of packages that are not installed are left out."""
    documents = dict(TEXTS)
    for name, make in (("letter.docx", docx), ("letter.odt", odt)):
        try:
            documents[name] = make()
        except ImportError:
            continue
    return documents


if __name__ == "__main__":
    for name, data in all_documents().items():
        Path(name).write_bytes(data)
