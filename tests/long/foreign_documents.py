"""Translate the documents of other projects, and count what is lost.

    python -m tests.long.foreign_documents FOLDER...

Each document is translated twice. A function that copies lines must give the same bytes, except for
places of translations, the language, and what a writer of the format spells in another way. A
function that marks words must mark every word that a reader sees; independent readers find those
that are not marked. Words of code and of other parts that the report counts as left are no error.
"""

from __future__ import annotations

import argparse
import html
import io
import json
import re
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from nmt.apps.documents.document import translate_bytes
from nmt.apps.documents.formats import FORMATS
from nmt.apps.documents.lines import from_function
from nmt.errors import UserError

LARGEST = 300_000  # bytes
MARKED = re.compile("\u27e6[^\u27e7]*\u27e7")
# a word that is not a part of a placeholder, a tag, a URL or a path
WORD = re.compile(r"(?<![\w{}%$&@#./:<>\\-])[^\W\d_]{2,}(?![\w@{}/:;(\\-])")


def marked(lines: list[str]) -> list[str]:
    return [WORD.sub("\u27e6\\g<0>\u27e7", line) for line in lines]


class _Page(HTMLParser):
    """The visible text of a page, except for elements that are not translated."""

    kept = ("code", "kbd", "math", "pre", "samp", "script", "style", "svg", "textarea", "var")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text, self.depth = "", Counter[str]()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.text += " " * (tag in ("br", "p", "td", "li", "div"))
        self.depth[tag] += tag in self.kept

    def handle_endtag(self, tag: str) -> None:
        self.depth[tag] -= tag in self.kept and self.depth[tag] > 0

    def handle_data(self, data: str) -> None:
        if not any(self.depth.values()):
            self.text += data


def _markdown(text: str) -> str:
    from markdown_it import MarkdownIt

    text = re.sub(r"(?s)\A(---|\+\+\+)\n.*?\n\1\n", "", text)  # settings
    text = re.sub(r"(?m)^ *(!!!|\?\?\?\+?) [^\"\n]*|\[![\w-]+\]", "", text)  # kinds of boxes
    page = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text)
    return _Page(page).text


def _values(value: Any) -> str:
    if isinstance(value, dict | list):
        inside = value.values() if isinstance(value, dict) else value
        return "\n".join(map(_values, inside))
    return value if isinstance(value, str) and " " in value.strip() else ""


def _subtitles(text: str) -> str:
    cues = re.split(r"(?m)^.*-->.*$", text)[1:]
    seen = (re.split(r"\n\s*\n", cue.replace("\r", ""))[0] for cue in cues)
    return re.sub(r"<[^<>]*>", "", "\n".join(seen))


def _xml(*names: str) -> Callable[[str], str]:
    element = re.compile(rf"<((?:\w+:)?(?:{'|'.join(names)}))(?: [^<>]*)?>(.*?)</\1>", re.DOTALL)

    def read(text: str) -> str:
        found = (match[2] for match in element.finditer(text))
        return "\n".join(html.unescape(re.sub(r"<[^>]*>", " ", inside)) for inside in found)

    return read


# suffix -> returns the text that a reader sees
READERS: dict[str, Callable[[str], str]] = {
    ".txt": str,
    ".md": _markdown,
    **dict.fromkeys((".html", ".htm"), lambda text: _Page(text).text),
    ".json": lambda text: _values(json.loads(text.removeprefix("\ufeff"))),
    **dict.fromkeys((".srt", ".vtt"), _subtitles),
    ".docx": _xml("t"),
    ".odt": _xml("p", "h"),
    **dict.fromkeys((".xlf", ".xliff"), _xml("target")),
    ".tmx": lambda text: "",  # the source language stays next to the translation
    ".po": lambda text: "",
}


def _text(name: str, data: bytes) -> str:
    if zipfile.is_zipfile(io.BytesIO(data)):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            parts = [n for n in archive.namelist() if re.search(r"document\.xml|content\.xml", n)]
            data = b"".join(archive.read(part) for part in parts)
    return READERS[Path(name).suffix.lower()](data.decode("utf-8", "replace"))


def examine(path: Path, found: Counter[str], verbose: bool) -> None:
    """Translate a document in both ways, and count what happens."""
    data, langs = path.read_bytes(), ("en", "xx")
    found["files"] += 1
    start = time.process_time()
    try:
        copy, report = translate_bytes(data, path.name, langs, from_function(list))
        result, _ = translate_bytes(data, path.name, langs, from_function(marked))
    except UserError as error:
        kind = (
            "internal errors" if error.__cause__ and "content is not" in error.what else "refused"
        )
        found[kind] += 1
        if verbose:
            print(f"{path}: {kind}: {error.summary}")
        return
    finally:
        found["longest (s)"] = max(found["longest (s)"], round(time.process_time() - start))
    found["same bytes"] += copy == data
    found["left"] += sum(n for what, n in report.others.items() if what.startswith("left"))
    text = _text(path.name, result)
    unmarked = WORD.findall(MARKED.sub(" ", text))
    found["words"] += len(MARKED.findall(text)) + len(unmarked)
    found["unmarked"] += len(unmarked)
    if verbose and (copy != data or unmarked):
        print(f"{path}: same: {copy == data}, unmarked: {unmarked[:12]}, {report.others}")


COLUMNS = ("files", "same bytes", "refused", "internal errors", "words", "unmarked", "left",
           "longest (s)")  # fmt: skip


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    p.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    p.add_argument("--verbose", action="store_true", help="print the places")
    p.add_argument("--only", nargs="+", default=[*FORMATS], metavar="SUFFIX", help="such as .md")
    args = p.parse_args()
    formats: dict[str, Counter[str]] = {suffix: Counter() for suffix in FORMATS}
    for folder in args.folders:
        for path in sorted(folder.rglob("*")):
            suffix = path.suffix.lower()
            if suffix in args.only and path.is_file() and path.stat().st_size <= LARGEST:
                examine(path, formats[suffix], args.verbose)
    print("| format |", " | ".join(COLUMNS), "|")
    print("|---|" + "---:|" * len(COLUMNS))
    for suffix, found in formats.items():
        if found:
            print(f"| {suffix} |", " | ".join(f"{found[column]:,}" for column in COLUMNS), "|")


if __name__ == "__main__":
    main()
