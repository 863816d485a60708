"""Count the terms of a glossary that translations keep, and translate a set of a run with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nmt.data.bitext import read_in_form
from nmt.data.glossary import Term
from nmt.data.text import find_side
from nmt.decoding.glossary import glossary_of, has_form
from nmt.decoding.translator import Translator
from nmt.runtime.progress import progress_bar
from nmt.scoring.systems import Systems, find_set
from nmt.store.folder import RunFolder

REFERENCE = "reference"


@dataclass
class TermCount:
    """How often a term occurs in the sources, and how often the translations have its target term.

    ``kept`` counts the translations of these lines that have it, of the reference and each system.
    """

    term: str
    targets: list[str]  # its translations in the glossary
    lines: int = 0  # sources that have it
    kept: dict[str, int] = field(default_factory=dict)


def count_terms(systems: Systems, glossary: Sequence[Term]) -> list[TermCount]:
    """Count the terms that occur in the sources, the most frequent first.

    A translation keeps a term if it has one of the forms that a search with the glossary requires.
    """
    finder = glossary_of(tuple(glossary), (systems.src_lang, systems.tgt_lang))
    counts: dict[str, TermCount] = {}
    texts = {REFERENCE: systems.refs, **systems.texts}
    for row, source in enumerate(systems.sources):
        for term, forms in finder.find(source).items():
            targets = [target for written, target in glossary if written == term]
            count = counts.setdefault(term, TermCount(term, targets, 0, dict.fromkeys(texts, 0)))
            count.lines += 1
            for name, lines in texts.items():
                count.kept[name] += has_form(lines[row], forms, systems.tgt_lang)
    return sorted(counts.values(), key=lambda count: (-count.lines, count.term))


def with_glossary(systems: Systems, split: str, file: str, glossary: Sequence[Term]) -> Systems:
    """Add the translations with a glossary to the systems of runs.

    The best checkpoint of a run translates the set again, with the options of its validations.

    Args:
        split: dev or test, or ``dev.NAME`` of several sets.
        file: of the glossary, for the names of the systems.

    Raises:
        UserError: the run cannot be loaded, or a term cannot be required.
    """
    texts, words = {}, {}
    for name in systems.texts:
        texts[name], words[name] = systems.texts[name], systems.words[name]
        both = translate_set(RunFolder.open(name), split, glossary=glossary)
        texts[f"{name} + {file}"], words[f"{name} + {file}"] = both
    return replace(systems, texts=texts, words=words)


def translate_set(run: RunFolder, split: str, **changed: Any) -> tuple[list[str], list[str]]:
    """Translate a set again; return the translations as text to score and as words.

    Args:
        changed: options that differ from those of the validations.
    """
    recipe, (_, entry) = run.recipe(), find_set(run, split)
    src, tgt = entry.langs(recipe)
    file, tokenized = find_side(entry.path, src), recipe.data.tokenized
    lines = read_in_form(file, src, entry.is_tokenized(recipe.data), tokenized)
    translator = Translator.load(run.path)
    segmenter = translator.codec.segmenter
    moses, texts, words = segmenter.moses, [], []
    options: dict[str, Any] = {"split": "line", **recipe.options_for(entry), **changed}
    with progress_bar("translating", "lines", len(lines)) as bar:
        options["progress"] = bar.update
        for best, *_ in translator.stream(lines, **options):
            tokens = segmenter.decode_tokenized(best.pieces, tgt)
            words.append(moses.words_to_score(best.text, tokens, tgt))
            texts.append(moses.text_to_score(best.text, words[-1], tgt))
    return texts, words
