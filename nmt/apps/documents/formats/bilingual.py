"""Files of translators, read and written unit by unit: XLIFF 1.2 and 2, and TMX.

XLIFF: each unit without a translation gets one, with the state needs-review-translation (initial in
version 2) where a person must look at it, else translated. TMX: each unit that has the source
language but not the target language gets a variant in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from nmt.apps.documents.formats.encoding import write_text
from nmt.apps.documents.formats.xml import (
    Event,
    Node,
    Reader,
    elements,
    escape,
    opening,
    with_attribute,
)
from nmt.apps.documents.job import Job
from nmt.apps.documents.protect import has_words
from nmt.apps.documents.segments import Item, Mark, Segment, Token, Unit, joined
from nmt.data.languages import base_language
from nmt.errors import UserError

# markup with text inside; that in other elements is code of the document
_PAIRS = {"g", "hi", "mrk", "pc"}
# the elements that begin or end a pair -> the attributes that name the pair
_BEGINS = {"bpt": ("i", "rid", "id"), "bx": ("rid", "id"), "sc": ("id",)}
_ENDS = {"ept": ("i", "rid", "id"), "ex": ("rid", "id"), "ec": ("startRef", "id")}
_UNTRANSLATED = {"new", "needs-translation", "initial"}  # states of XLIFF


def tokens_of(node: Node) -> list[Token]:
    """Return the content of an element as tokens."""
    tokens: list[Token] = []
    for child in node.children:
        if isinstance(child, Event):
            if child.kind == "text":
                tokens.append(re.sub(r"\s+", " ", child.text))
            elif child.kind == "other":
                tokens.append(Mark("single", (child.raw,)))
        elif child.name in _PAIRS and child.end:
            name = f"{child.name} {id(child)}"
            tokens.append(Mark("open", (child.start.raw,), name))
            tokens += tokens_of(child)
            tokens.append(Mark("close", (child.end,), name))
        else:
            attributes = child.start.attributes
            begins, ends = _BEGINS.get(child.name, ()), _ENDS.get(child.name, ())
            number = next((attributes[key] for key in begins + ends if key in attributes), "")
            kind = "open" if begins else "close" if ends else "single"
            tokens.append(Mark(kind, (str(child),), number))  # type: ignore[arg-type]
    return joined(tokens)


def as_xml(tokens: Sequence[Token]) -> str:
    """Return tokens as they stand between tags."""
    return "".join(escape(token) if isinstance(token, str) else str(token) for token in tokens)


def convert_xliff(source: BinaryIO, target: BinaryIO, job: Job) -> None:
    """Give each unit of an XLIFF file a translation."""
    units = 0

    def items(reader: Reader) -> Iterator[Item]:
        nonlocal units

        def wanted(event: Event) -> bool:
            return event.name in ("trans-unit", "segment")

        for item in elements(reader, job.name, wanted):
            if isinstance(item, Node):
                units += 1
                yield _xliff_unit(item, job)
            elif item.kind == "start" and item.name == "file" and "original" in item.attributes:
                yield _with_language(item, "target-language", "source-language", job)
            elif item.kind == "start" and item.name == "xliff" and "srcLang" in item.attributes:
                yield _with_language(item, "trgLang", "srcLang", job)
            else:
                yield item.raw

    reader = Reader(source, job.name)
    write_text(
        target, job.translated(items(reader)), reader.encoding, job.name, "xmlcharrefreplace"
    )
    if not units:
        raise UserError(
            "has no trans-unit or segment", at=job.name, fix="check that it is an XLIFF file"
        )


def _with_language(event: Event, name: str, source: str, job: Job) -> str:
    given = event.attributes.get(source, job.src)
    if base_language(given) != base_language(job.src):
        job.report.count(f"{source} is {given}, and the model translates {job.src}")
    if name in event.attributes:
        return event.raw
    return with_attribute(event.raw, name, job.tgt)


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
    segment = Segment(tokens_of(source), f"line {node.start.line}")
    if not has_words(segment.text):
        return str(node)

    def render() -> str:
        if segment.translated is None and not segment.problem:
            return str(node)  # nothing is translated, only counted
        start, tag = node.start.raw, f"<{source.prefix}target>"
        if target is not None:
            tag = opening(target.start.raw)
        if node.name == "segment":
            state = "initial" if segment.problem else "translated"
            start = with_attribute(start, "state", state)
        else:
            state = "needs-review-translation" if segment.problem else "translated"
            tag = with_attribute(tag, "state", state)
        new = f"{tag}{as_xml(segment.result)}</{source.prefix}target>"
        return start + _with_target(node, new) + node.end

    return Unit([segment], render)


def _with_target(node: Node, new: str) -> str:
    """Return the content of a unit with a new target in place of the old one, if any."""
    names = [child.name if isinstance(child, Node) else "" for child in node.children]
    raws = [child.raw if isinstance(child, Event) else str(child) for child in node.children]
    if "target" in names:
        raws[names.index("target")] = new
    else:
        after = names.index("seg-source" if "seg-source" in names else "source")
        indent = raws[after - 1] if after and raws[after - 1].isspace() else ""
        raws.insert(after + 1, indent + new)
    return "".join(raws)


def convert_tmx(source: BinaryIO, target: BinaryIO, job: Job) -> None:
    """Give each unit of a TMX file a variant in the target language."""
    units = 0

    def items(reader: Reader) -> Iterator[Item]:
        nonlocal units
        for item in elements(reader, job.name, lambda event: event.name == "tu"):
            if isinstance(item, Node):
                units += 1
                yield _tmx_unit(item, job)
            else:
                yield item.raw

    reader = Reader(source, job.name)
    write_text(
        target, job.translated(items(reader)), reader.encoding, job.name, "xmlcharrefreplace"
    )
    if not units:
        raise UserError("has no unit", at=job.name, fix="check that it is a TMX file")


def _tmx_unit(node: Node, job: Job) -> Item:
    variants = {_language(variant): variant for variant in reversed([*node.elements("tuv")])}
    source, target = (variants.get(base_language(lang)) for lang in (job.src, job.tgt))
    seg = next(source.elements("seg"), None) if source else None
    if source is None or seg is None:
        job.report.count(f"units without a variant in {job.src}")
        return str(node)
    old = next(target.elements("seg"), None) if target else None
    if old is not None and old.has_text and not job.retranslate:
        job.report.kept += 1
        return str(node)
    segment = Segment(tokens_of(seg), f"line {node.start.line}")
    if not has_words(segment.text):
        return str(node)

    def render() -> str:
        if segment.translated is None and not segment.problem:
            return str(node)
        prefix, content = node.prefix, as_xml(segment.result)
        variant = (
            f'<{prefix}tuv xml:lang="{job.tgt}"><{prefix}seg>{content}</{prefix}seg></{prefix}tuv>'
        )
        raws = [child.raw if isinstance(child, Event) else str(child) for child in node.children]
        if target is not None:
            raws[node.children.index(target)] = variant
        else:
            last = max(i for i, child in enumerate(node.children) if child in variants.values())
            indent = raws[last - 1] if last and raws[last - 1].isspace() else ""
            raws.insert(last + 1, indent + variant)
        return f"{node.start.raw}{''.join(raws)}{node.end}"

    return Unit([segment], render)


def _language(variant: Node) -> str:
    attributes = variant.start.attributes
    return base_language(attributes.get("xml:lang") or attributes.get("lang") or "")
