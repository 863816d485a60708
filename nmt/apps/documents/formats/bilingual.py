"""Files of translators, read and written unit by unit: XLIFF 1.2 and 2, and TMX.

XLIFF: each unit without a translation gets one, with the state needs-review-translation (initial in
version 2) where a person must look at it, else translated. TMX: each unit that has the source
language but not the target language gets a variant in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import BinaryIO

from nmt.apps.documents.formats.encoding import write_text
from nmt.apps.documents.formats.xml import (
    Event,
    Node,
    Reader,
    elements,
    escape,
    opening,
    pair,
    with_attribute,
)
from nmt.apps.documents.job import Job
from nmt.apps.documents.segments import Item, Mark, Segment, Token, Unit, joined, written
from nmt.data.languages import base_language
from nmt.data.protect import has_words
from nmt.errors import UserError

# markup with text inside; that in other elements is code of the document
_PAIRS = {"g", "hi", "mrk", "pc"}
# the elements that begin or end a pair -> the attributes that name the pair
_BEGINS = {"bpt": ("i", "rid", "id"), "bx": ("rid", "id"), "sc": ("id",)}
_ENDS = {"ept": ("i", "rid", "id"), "ex": ("rid", "id"), "ec": ("startRef", "id")}
_UNTRANSLATED = {"new", "needs-translation", "initial"}  # states of XLIFF
# element -> its attributes with the source and the target language, XLIFF 1.2 and 2
_LANGUAGES = {"file": ("source-language", "target-language"), "xliff": ("srcLang", "trgLang")}


def convert_xliff(source: BinaryIO, target: BinaryIO, job: Job) -> None:
    """Give each unit of an XLIFF file a translation."""
    _convert(source, target, job, ("trans-unit", "segment"), _xliff_unit, "XLIFF")


def convert_tmx(source: BinaryIO, target: BinaryIO, job: Job) -> None:
    """Give each unit of a TMX file a variant in the target language."""
    _convert(source, target, job, ("tu",), _tmx_unit, "TMX")


def _convert(
    source: BinaryIO,
    target: BinaryIO,
    job: Job,
    names: tuple[str, ...],
    unit: Callable[[Node, Job], Item],
    kind: str,
) -> None:
    """Translate a file.

    Args:
        names: of the elements that are units.
    """
    reader = Reader(source, job.name)

    def items() -> Iterator[Item]:
        units = 0
        for item in elements(reader, job.name, lambda event: event.name in names):
            if isinstance(item, Node):
                units += 1
                yield unit(item, job)
            else:
                yield _with_language(item, job)
        if not units:
            what, fix = "has no unit to translate", f"check that it is a file of the format {kind}"
            raise UserError(what, at=job.name, fix=fix)

    texts = job.translated(items())
    write_text(target, texts, reader.encoding, job.name, "xmlcharrefreplace")


def _with_language(event: Event, job: Job) -> str:
    """Return a part of a file; a tag that names the source language gets the target language."""
    source, target = _LANGUAGES.get(event.name, ("", ""))
    if event.kind != "start" or source not in event.attributes:
        return event.raw
    given = event.attributes[source]
    if base_language(given) != base_language(job.src):
        job.report.count(f"{source} is {given}, and the model translates {job.src}")
    return event.raw if target in event.attributes else with_attribute(event.raw, target, job.tgt)


def _unit(node: Node, content: Node, render: Callable[[Segment], str]) -> Item:
    """Return the unit of an element, which stays if there is nothing to translate.

    Args:
        content: its source text.
        render: returns the element with the translation.
    """
    segment = Segment(joined(_tokens(content)), f"line {node.start.line}")
    if not has_words(segment.text):
        return str(node)

    def translated() -> str:
        only_counted = segment.translated is None and not segment.problem
        return str(node) if only_counted else render(segment)

    return Unit([segment], translated)


def _tokens(node: Node) -> Iterator[Token]:
    for child in node.children:
        if isinstance(child, Event):
            if child.kind == "text":
                yield re.sub(r"\s+", " ", child.text)
            elif child.kind == "other":
                yield Mark("single", (child.raw,))
        elif child.name in _PAIRS and child.end:
            yield from pair(child, [*_tokens(child)], child.start.raw)
        else:
            attributes = child.start.attributes
            begins, ends = _BEGINS.get(child.name, ()), _ENDS.get(child.name, ())
            number = next((attributes[key] for key in begins + ends if key in attributes), "")
            kind = "open" if begins else "close" if ends else "single"
            yield Mark(kind, (str(child),), number)  # type: ignore[arg-type]


def _with_child(node: Node, new: str, old: Node | None, before: Node) -> str:
    """Return the content of an element with a new child.

    Args:
        old: the child that it replaces, if there is one.
        before: else the child that it is after, with the white space that this one has before it.
    """
    raws = [str(child) for child in node.children]
    if old is not None:
        raws[node.children.index(old)] = new
    else:
        place = node.children.index(before)
        indent = raws[place - 1] if place and raws[place - 1].isspace() else ""
        raws.insert(place + 1, indent + new)
    return "".join(raws)


def _xliff_unit(node: Node, job: Job) -> Item:
    source = next(node.elements("source"), None)
    target = next(node.elements("target"), None)
    state_of = node if node.name == "segment" else target
    attributes = node.start.attributes
    state = "" if state_of is None else state_of.start.attributes.get("state", "")
    done = target is not None and target.has_text and state not in _UNTRANSLATED
    fixed = attributes.get("translate") == "no" or attributes.get("approved") == "yes"
    if source is None or fixed or (done and not job.retranslate):
        job.report.kept += done
        return str(node)
    before = next(node.elements("seg-source"), source)

    def render(segment: Segment) -> str:
        start, end = node.start.raw, f"</{source.prefix}target>"
        tag = opening(target.start.raw) if target else f"<{source.prefix}target>"
        if node.name == "segment":
            start = with_attribute(start, "state", "initial" if segment.problem else "translated")
        else:
            state = "needs-review-translation" if segment.problem else "translated"
            tag = with_attribute(tag, "state", state)
        new = f"{tag}{written(segment.result, escape)}{end}"
        return f"{start}{_with_child(node, new, target, before)}{node.end}"

    return _unit(node, source, render)


def _tmx_unit(node: Node, job: Job) -> Item:
    variants = {_language(variant): variant for variant in reversed([*node.elements("tuv")])}
    source, target = (variants.get(base_language(lang)) for lang in (job.src, job.tgt))
    seg = next(source.elements("seg"), None) if source else None
    if seg is None:
        job.report.count(f"units without a variant in {job.src}")
        return str(node)
    old = next(target.elements("seg"), None) if target else None
    if old is not None and old.has_text and not job.retranslate:
        job.report.kept += 1
        return str(node)
    last = [*node.elements("tuv")][-1]

    def render(segment: Segment) -> str:
        prefix, content = node.prefix, written(segment.result, escape)
        seg = f"<{prefix}seg>{content}</{prefix}seg>"
        new = f'<{prefix}tuv xml:lang="{job.tgt}">{seg}</{prefix}tuv>'
        return f"{node.start}{_with_child(node, new, target, last)}{node.end}"

    return _unit(node, seg, render)


def _language(variant: Node) -> str:
    attributes = variant.start.attributes
    return base_language(attributes.get("xml:lang") or attributes.get("lang") or "")
