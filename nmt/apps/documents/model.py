"""Translate the lines of a document with a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nmt.apps.documents.lines import Link, Translate, Translated
from nmt.apps.serve.words import source_words, target_words
from nmt.decoding.codec import Translation
from nmt.decoding.engine import Stop, ignore
from nmt.decoding.translator import Translator
from nmt.errors import UserError


def from_translator(translator: Translator, stop: Stop = ignore, **options: Any) -> Translate:
    """Return a ``Translate`` that searches with a model.

    It aligns words and requires phrases if the engine and the options allow that.

    Args:
        stop: called between two positions of a search; may raise an exception to stop.
        options: fields of ``SearchOptions``.

    Raises:
        UserError: an option is not allowed.
    """
    checked = translator.check_options(options)
    can_align = _is_allowed(lambda: translator.check_options({**options, "align": True}))
    bound = {**options, "stop_rule": "bound"}  # the rule of a search with required phrases
    can_require = _is_allowed(lambda: translator.check_options(bound, {"require"}))
    codec = translator.codec.for_tag(checked.target_tag)

    def result(line: str, translation: Translation, align: bool) -> Translated:
        problem = ""
        if translation.short:
            problem = "far too short, so text is missing"
        elif not translation.finished:
            problem = "cut at the length limit"
        if not (align and can_align):
            return Translated(translation.text, None, problem)
        sources = source_words(translator.codec, line, checked.split, checked.src)
        targets = target_words(codec, translation)
        links = [
            Link(*sources[i][:2], *targets[j][:2])
            for i, j in translation.alignment
            if i < len(sources) and j < len(targets)
        ]
        return Translated(translation.text, links, problem)

    def translate(
        lines: Sequence[str],
        require: Sequence[Sequence[str]] | None = None,
        align: bool = False,
    ) -> Sequence[Translated] | None:
        given = dict(options)
        if require is not None:
            if not can_require:
                return None
            given = {**bound, "require": require}
        if align and can_align:
            given["align"] = True
        found = translator.stream(lines, stop=stop, **given)
        return [result(line, best[0], align) for line, best in zip(lines, found, strict=True)]

    return translate


def _is_allowed(check: Callable[[], object]) -> bool:
    try:
        check()
    except UserError:
        return False
    return True
