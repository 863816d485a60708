"""Read the HTML of a report without a browser."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

INLINE = {"mark", "b", "code", "a"}
VOID = {"meta", "br", "hr", "img", "input", "link"}


class Page(HTMLParser):
    """A parsed page.

    Attributes:
        source: the HTML.
        tags: name and attributes of each element, in order.
        text: all text outside <style>.
    """

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source, self.text = source, ""
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self._parts: list[str] = []
        self.feed(source)
        self.close()
        self.text = re.sub(r"\s+", " ", "".join(self._parts))
        assert self._open == [], "elements are not closed"

    @classmethod
    def read(cls, path: Path) -> Page:
        return cls(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, f"</{tag}> closes another element"
        if tag not in INLINE:
            self._parts.append(" ")

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self._parts.append(data)

    def all(self, tag: str, **attributes: str) -> list[dict[str, str | None]]:
        """Return the attributes of the elements of a name that have these attributes."""
        wanted = {name.rstrip("_"): value for name, value in attributes.items()}
        return [a for name, a in self.tags if name == tag and wanted.items() <= a.items()]

    def ids(self) -> list[str]:
        return [str(attrs["id"]) for _, attrs in self.tags if "id" in attrs]

    def section(self, name: str) -> Page:
        """Return the page from the heading with an id to the next one, or to the end of its set."""
        end = r'<h2 |</main>|<details class="set"'
        match = re.search(rf'<h2 id="{name}">.*?(?={end})', self.source, re.DOTALL)
        assert match, name
        text = match[0]
        if text.count("</details>") > text.count("<details"):  # that of the set
            text = text[: text.rindex("</details>")]
        return Page(text)
