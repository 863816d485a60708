"""Translators' files, read and written unit by unit: XLIFF 1.2 and 2, and TMX.

XLIFF: each unit without a translation gets one, with the state needs-review-translation (initial in
version 2) where a person must look at it, else translated. TMX: each unit that has the source
language but not the target language gets a variant in it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

from nmt.apps.documents.formats.encoding import write_text
from nmt.apps.documents.formats.xml import (
    Event,
    Node,
    Reader,
    elements,
    escape,
    opening,
    pair,
    parts_of,
    with_attributes,
)
from nmt.apps.documents.job import Job
from nmt.apps.documents.messages import is_text
from nmt.apps.documents.segments import (
    Item,
    Mark,
    Segment,
    Token,
    Unit,
    joined,
    plain,
    text_unit,
    written,
)
from nmt.errors import UserError
from nmt.text.languages import base_language, standard_code
from nmt.text.protect import has_words

# markup with text inside; that in other elements is code of the document
_PAIRS = {"g", "hi", "mrk", "pc"}
# the elements that begin or end a pair -> the attributes that name the pair
_BEGINS = {"bpt": ("i", "rid", "id"), "bx": ("rid", "id"), "sc": ("id",), "sm": ("id",)}
_ENDS = {
    "ept": ("i", "rid", "id"),
    "ex": ("rid", "id"),
    "ec": ("startRef", "id"),
    "em": ("startRef",),
}
_UNTRANSLATED = {"new", "needs-translation", "initial"}  # states of XLIFF
_FINAL = {"final", "signed-off"}
# attribute -> its values, and whether the text in the element is translated; ITS has translate too
_TRANSLATE: dict[str, Mapping[str, bool]] = {
    "translate": {"yes": True, "no": False},
    "mtype": {"protected": False},
}
# element -> its attributes with the source and the target language: XLIFF 1.2 and 2, TMX
_LANGUAGES = {
    "file": ("source-language", "target-language"),
    "xliff": ("srcLang", "trgLang"),
    "header": ("srclang", ""),
}
_LIMIT = re.compile("[0-9]{1,9}")
_SPACE = re.compile(r"[ \t\r\n]+")
_MORE_SPACES = re.compile("(?<=[^ ] ) +(?=[^ ])")  # than one, inside a line


class _Scope(NamedTuple):
    """Settings of a text from its enclosing elements.

    Attributes:
        translate: whether it is translated.
        preserve: whether its spaces and line ends are part of it. longest: maximum characters; 0 =
            any number.
    """

    translate: bool = True
    preserve: bool = False
    longest: int = 0

    def inside(self, element: Event, job: Job | None = None) -> _Scope:
        """Return the scope of an element in this one.

        Args:
            job: counts the limits that are not checked.
        """
        attributes = element.attributes
        scope = self._replace(translate=_translates(attributes, self.translate))
        if space := attributes.get("xml:space"):
            scope = scope._replace(preserve=space == "preserve")
        width, unit = attributes.get("maxwidth", ""), attributes.get("size-unit", "pixel")
        size = attributes.get("sizeRestriction", "").rpartition(",")[2]
        if limit := width if unit == "char" else size:
            scope = scope._replace(longest=int(limit) if _LIMIT.fullmatch(limit) else 0)
        elif width and job:
            job.report.count(f"limits of the width in the unit {unit}, which are not checked")
        return scope


def _translates(attributes: Mapping[str, str], otherwise: bool) -> bool:
    for name, values in _TRANSLATE.items():
        otherwise = values.get(attributes.get(name, ""), otherwise)
    return otherwise


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
    unit: Callable[[Node, _Scope, Job], Item],
    kind: str,
) -> None:
    """Translate a file.

    Args:
        names: of the elements that are units.
    """
    reader = Reader(source, job.name)

    def items() -> Iterator[Item]:
        units, scopes = 0, [_Scope()]
        for item in elements(reader, job.name, lambda event: event.name in names):
            if isinstance(item, Node):
                units += 1
                yield unit(item, scopes[-1].inside(item.start, job), job)
                continue
            if item.kind == "start":
                scopes.append(scopes[-1].inside(item, job))
            elif item.kind == "end":
                scopes.pop()
            yield _with_language(item, job)
        if not units:
            what, fix = "has no unit to translate", f"check that it is a file of the format {kind}"
            raise UserError(what, at=job.name, fix=fix)

    texts = job.translated(items())
    write_text(target, texts, reader.encoding, job.name, "xmlcharrefreplace")


def _with_language(event: Event, job: Job) -> str:
    """Return a part of a file; a tag that names the source language gets the target language."""
    source, target = _LANGUAGES.get(event.name, ("", ""))
    stated = event.attributes.get(source)
    if event.kind != "start" or stated is None:
        return event.raw
    if base_language(stated) not in (base_language(job.src), "*all*"):
        job.report.count(f"with {source} {stated}, while the model translates {job.src}")
    old = event.attributes.get(target, "")
    if target and old in ("", stated):
        return with_attributes(event.raw, {target: standard_code(job.tgt)})
    if target and base_language(old) != base_language(job.tgt):
        job.report.count(f"with {target} {old}, while the model translates to {job.tgt}")
    return event.raw


def _unit(
    node: Node, content: Node, scope: _Scope, job: Job, render: Callable[[Segment], str]
) -> Item:
    """Return the unit of an element, which stays if there is nothing to translate.

    Args:
        content: its source text.
        render: returns the element with the translation.
    """
    place = f"line {node.start.line}"
    scope = scope.inside(content.start)
    tokens = joined(_tokens(content, scope, [("", scope.translate)], place))
    segment = Segment(tokens, place, longest=scope.longest)
    inner: list[Segment] = []

    def rendered() -> str:
        only_counted = all(s.translated is None and not s.problem for s in [segment, *inner])
        return str(node) if only_counted else render(segment)

    unit = Unit([segment], rendered)
    inner += [each for each in unit.all_segments() if each is not segment]
    texts = [
        token if isinstance(token, str) else dataclasses.replace(token, text="") for token in tokens
    ]
    if any(map(is_text, [Segment(texts, place), *inner])):
        return unit
    if has_words(segment.text):
        job.report.leave('translate="no"', place)
    return str(node)


def _tokens(
    node: Node, scope: _Scope, translate: list[tuple[str, bool]], place: str
) -> Iterator[Token]:
    """Yield the content of an element.

    Args:
        translate: the open annotations that say whether text is translated, each with its name.
    """
    for child in node.children:
        if isinstance(child, Event):
            if child.kind == "text":
                yield from _text(child, scope.preserve, translate[-1][1])
            elif child.kind == "other":
                yield Mark("single", (child.raw,))
            continue
        attributes = child.start.attributes
        begins, ends = _BEGINS.get(child.name, ()), _ENDS.get(child.name, ())
        name = next((attributes[key] for key in begins + ends if key in attributes), "")
        own = (name, _translates(attributes, translate[-1][1]))
        if child.name in _PAIRS and child.end:
            if own[1] != translate[-1][1]:
                translate.append(own)
            inside = [*_tokens(child, scope, translate, place)]
            translate[:] = [each for each in translate if each is not own]
            if own[1] or any(isinstance(token, str) and token.strip() for token in inside):
                yield from pair(child, inside, child.start.raw)
            else:
                yield Mark("single", (str(child),), text=plain(inside))
            continue
        if child.name == "sm":
            translate.append(own)
        elif child.name == "em":
            translate[1:] = [each for each in translate[1:] if each[0] != name]
        kind: Any = "open" if begins else "close" if ends else "single"
        yield Mark(kind, _code(child, scope, place) if own[1] else (str(child),), name)


def _text(event: Event, preserve: bool, translate: bool) -> Iterator[Token]:
    text = event.text if preserve else _SPACE.sub(" ", event.text)
    if not translate and (kept := text.strip()):
        before, after = text.split(kept)
        yield from (before, Mark("single", (_escape(kept),), text=_SPACE.sub(" ", kept)), after)
        return
    end = 0
    for spaces in _MORE_SPACES.finditer(text):
        yield text[end : spaces.start()]
        yield Mark("single", (spaces[0],))
        end = spaces.end()
    yield text[end:]


def _code(node: Node, scope: _Scope, place: str) -> tuple[str | Unit, ...]:
    """Return code of the document; text in it, such as that of an attribute, is a unit."""

    def flow(sub: Node) -> Unit | None:
        if sub.name != "sub" or not sub.end:
            return None
        tokens = [*_tokens(sub, scope, [("", True)], place)]

        def write(translation: Sequence[Token]) -> str:
            return f"{sub.start}{written(translation, _escape)}{sub.end}"

        return text_unit(str(sub), tokens, place, write)

    return parts_of(node, flow)


def _escape(text: str) -> str:
    return escape(text).replace("\r", "&#13;")  # which XML reads as a line feed else


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


def _xliff_unit(node: Node, scope: _Scope, job: Job) -> Item:
    source = next(node.elements("source"), None)
    target = next(node.elements("target"), None)
    divided = next(node.elements("seg-source"), None)
    state_of = node if node.name == "segment" else target
    state = "" if state_of is None else state_of.start.attributes.get("state", "")
    done = target is not None and target.has_text and state not in _UNTRANSLATED
    approved = node.start.attributes.get("approved") == "yes" or state in _FINAL
    if source is None or (target and approved) or (done and not job.retranslate):
        job.report.kept += target is not None
        return str(node)

    def render(segment: Segment) -> str:
        start, end = node.start.raw, f"</{source.prefix}target>"
        tag = opening(target.start.raw) if target else f"<{source.prefix}target>"
        if node.name == "segment":
            state = "initial" if segment.problem else "translated"
            start = with_attributes(start, {"state": state, "subState": None})
        else:
            state = "needs-review-translation" if segment.problem else "translated"
            tag = with_attributes(tag, {"state": state, "state-qualifier": None})
        new = f"{tag}{written(segment.result, _escape)}{end}"
        return f"{start}{_with_child(node, new, target, divided or source)}{node.end}"

    content = divided if divided and divided.has_text else source
    return _unit(node, content, scope, job, render)


def _tmx_unit(node: Node, scope: _Scope, job: Job) -> Item:
    source, target = _variant(node, job.src), _variant(node, job.tgt)
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
        prefix, content = node.prefix, written(segment.result, _escape)
        seg = f"<{prefix}seg>{content}</{prefix}seg>"
        new = f'<{prefix}tuv xml:lang="{standard_code(job.tgt)}">{seg}</{prefix}tuv>'
        return f"{node.start}{_with_child(node, new, target, last)}{node.end}"

    # by the standard, spaces and line ends are part of a segment
    return _unit(node, seg, scope._replace(preserve=True), job, render)


def _variant(node: Node, lang: str) -> Node | None:
    """Return the variant in a language, if possible of the same region."""
    variants = [(_language(variant), variant) for variant in node.elements("tuv")]
    same = (variant for tag, variant in variants if standard_code(tag) == standard_code(lang))
    base = base_language(lang)
    near = (variant for tag, variant in variants if base_language(tag) == base)
    return next(same, next(near, None))


def _language(variant: Node) -> str:
    attributes = variant.start.attributes
    return attributes.get("xml:lang") or attributes.get("lang") or ""
