"""Read what is scored: hypotheses of systems and their reference, from files or run folders."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from nmt.data.text import find_side, is_blank, read_lines
from nmt.data.tokenizer import Moses
from nmt.errors import UserError
from nmt.run.folder import RunFolder
from nmt.scoring.metrics import MODEL_WORDS, check_lines

# A full stop, a comma or an escaped character between spaces: no language is written like this.
_TOKENIZED = re.compile(r"(?:^|\s)(?:[.,]|@-@|&(?:quot|apos|amp|lt|gt|#\d+);\w*)(?:\s|$)")
_SEGMENTED = re.compile(r"\S@@(?:\s|$)|(?:^|\s)▁")
_SUSPICIOUS_SHARE = 0.1
"""If this share of the lines looks tokenized or segmented, a note says so."""


@dataclass(frozen=True)
class Systems:
    """The hypotheses of one or several systems and their one reference, line by line.

    Attributes:
        texts: system name -> hypotheses as plain text.
        refs: the reference as plain text.
        words: system name -> the same hypotheses as tokenized text, for tokenized BLEU.
        ref_words: the reference as tokenized text.
        ref_name: the file of the reference.
        tgt_lang: language code, empty if unknown.
        tokenizer: what produced the words of the systems, for the signature.
        sources: source lines, to count untranslated ones.
        remarks: what a reader should know about the origin of the text.
    """

    texts: dict[str, list[str]]
    refs: list[str]
    words: dict[str, list[str]]
    ref_words: list[str]
    ref_name: str
    tgt_lang: str
    tokenizer: str
    sources: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def count_empty(self, system: str) -> int:
        """Return the number of blank hypotheses of a system."""
        return sum(map(is_blank, self.texts[system]))

    def notes(self) -> list[str]:
        """Return what a reader of the scores should know about the text, one line each."""
        total = len(self.refs)
        notes = list(self.remarks)
        for name, hyps in self.texts.items():
            if empty := self.count_empty(name):
                notes.append(f"{name}: {empty:,} of {total:,} hypotheses are empty")
            pairs = zip(hyps, self.sources, strict=True) if self.sources else ()
            if copies := sum(hyp == src and not is_blank(hyp) for hyp, src in pairs):
                notes.append(f"{name}: {copies:,} of {total:,} hypotheses repeat the source")
        if all(map(is_blank, self.refs)):
            notes.append(f"{self.ref_name}: every line is empty, so every BLEU is 0")
        texts = {self.ref_name: self.refs, **self.texts}
        segmented = [name for name, lines in texts.items() if _looks_like(_SEGMENTED, lines)]
        if segmented:
            notes.append(
                f"{', '.join(segmented)}: looks split into subword pieces; undo the segmentation "
                "before scoring"
            )
        tokenized = [
            name
            for name, lines in texts.items()
            if name not in segmented and _looks_like(_TOKENIZED, lines)
        ]
        if tokenized:
            notes.append(
                f"{', '.join(tokenized)}: looks tokenized, but BLEU, chrF and TER need plain text; "
                "pass --tokenized if the files are Moses-tokenized"
            )
        return notes


def _looks_like(pattern: re.Pattern[str], lines: Sequence[str]) -> bool:
    matches = sum(pattern.search(line) is not None for line in lines)
    return matches / max(1, len(lines)) >= _SUSPICIOUS_SHARE


def from_files(
    hyp_files: Sequence[str],
    ref_file: str,
    tgt_lang: str = "",
    tokenized: bool = False,
    src_file: str | None = None,
) -> Systems:
    """Read systems from files with one segment a line.

    Args:
        hyp_files: one per system; the first is the baseline of comparisons.
        ref_file: their reference.
        tgt_lang: language code. If it is empty or unknown to Moses, the rules for English apply.
        tokenized: the files are Moses-tokenized: words are taken as they are, and plain text is
            made by detokenizing.
        src_file: the source, to count hypotheses that repeat it.

    Raises:
        UserError: a file is missing, unreadable or given twice, or the line counts differ.
    """
    _reject_duplicates(hyp_files, "--hyp names this file twice")
    lines_of = {name: _read(name) for name in hyp_files}
    ref_lines = _read(ref_file)
    sources = _read(src_file) if src_file else []
    for name, lines in lines_of.items():
        check_lines(lines, ref_lines, name)
    if src_file:
        check_lines(sources, ref_lines, src_file)
    moses, lang = Moses(tokenized, nfc=False), tgt_lang or "en"
    return Systems(
        texts={name: _to_text(moses, lines, lang) for name, lines in lines_of.items()},
        refs=_to_text(moses, ref_lines, lang),
        words={name: _to_words(moses, lines, lang) for name, lines in lines_of.items()},
        ref_words=_to_words(moses, ref_lines, lang),
        ref_name=ref_file,
        tgt_lang=tgt_lang,
        tokenizer="none" if tokenized else f"moses-{lang}",
        sources=sources,
    )


def from_runs(
    folders: Sequence[str], split: Literal["dev", "test"], ref_file: str | None = None
) -> Systems:
    """Read systems from run folders: the hypotheses of each run's best checkpoint.

    Args:
        folders: one per system; the first is the baseline of comparisons.
        split: dev or test.
        ref_file: the reference, if it is no longer where the recipe says.

    Raises:
        UserError: a folder is not a run folder, is set twice or has no such hypotheses, or the
            references differ.
    """
    files = [_hyp_file(RunFolder.open(folder), split) for folder in folders]
    without_words = [file for file in files if not words_file(file).is_file()]
    first, *others = runs = [
        _from_run(folder, file, split, ref_file, stored_words=not without_words)
        for folder, file in zip(folders, files, strict=True)
    ]
    for other in others:
        if (other.refs, other.ref_words) != (first.refs, first.ref_words):
            raise UserError(
                f"{other.ref_name} differs from {first.ref_name}",
                fix="compare runs with one reference and the same data.tokenized",
            )
    _reject_duplicates(folders, "this run folder is set twice")
    return replace(
        first,
        texts={name: hyps for run in runs for name, hyps in run.texts.items()},
        words={name: words for run in runs for name, words in run.words.items()},
        remarks=[
            f"{words_file(file)} is missing (early versions of 0.2 did not write it), so tokenized "
            "BLEU is computed on the retokenized plain text and differs from the logged value"
            for file in without_words
        ],
    )


def words_file(hyp_file: Path) -> Path:
    """Return the file with the words of the hypotheses that a file contains as plain text."""
    return hyp_file.with_suffix(".words")


def _reject_duplicates(names: Sequence[str], message: str) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise UserError(message, at=name, fix="give each system once")


def _hyp_file(run: RunFolder, split: Literal["dev", "test"]) -> Path:
    run.require_translation()
    best = run.dev_dir / f"{run.best() or '*'}.hyp"
    hyp_file = run.test_hyp if split == "test" else best
    if not hyp_file.is_file():
        raise UserError(
            f"no {split} hypotheses of the best checkpoint",
            at=str(hyp_file),
            fix="wait until the training has finished, or translate with nmt-translate and pass "
            "--hyp and --ref",
        )
    return hyp_file


def _from_run(
    folder: str,
    hyp_file: Path,
    split: Literal["dev", "test"],
    ref_file: str | None,
    stored_words: bool,
) -> Systems:
    run = RunFolder.open(folder)
    recipe = run.recipe()
    entries = recipe.data.dev if split == "dev" else recipe.data.test
    if ref_file is None:
        if entries is None:
            raise UserError(
                "the recipe of the run has no data.test",
                at=str(run.config_file),
                fix="score --split dev, or pass the reference with --ref",
            )
        ref_file = str(find_side(entries[0].path, recipe.tgt))
    texts, ref_lines = _read(hyp_file), _read(ref_file)
    check_lines(texts, ref_lines, str(hyp_file))
    if stored_words:
        words = _read(words_file(hyp_file))
        check_lines(words, ref_lines, str(words_file(hyp_file)))
    else:
        words = _to_words(Moses(tokenized=False, nfc=False), texts, recipe.tgt)
    moses = Moses(recipe.data.tokenized, nfc=False)
    return Systems(
        texts={
            folder: [
                moses.text_to_score(*pair, recipe.tgt) for pair in zip(texts, words, strict=True)
            ]
        },
        refs=_to_text(moses, ref_lines, recipe.tgt),
        words={folder: words},
        ref_words=_to_words(moses, ref_lines, recipe.tgt),
        ref_name=ref_file,
        tgt_lang=recipe.tgt,
        tokenizer=MODEL_WORDS if stored_words else f"moses-{recipe.tgt}",
    )


def _to_text(moses: Moses, lines: list[str], lang: str) -> list[str]:
    return [moses.detokenize_reference(line, lang) for line in lines]


def _to_words(moses: Moses, lines: list[str], lang: str) -> list[str]:
    return [moses.tokenize_reference(line, lang) for line in lines]


def _read(file: str | Path) -> list[str]:
    return list(read_lines(Path(file), clean=False))  # scores are those of the unchanged text
