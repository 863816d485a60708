"""What is scored: hypotheses and a reference, from files or from run folders."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from nmt.data.moses import Moses
from nmt.data.text import find_side, is_blank, read_lines
from nmt.errors import UserError
from nmt.run.folder import RunFolder
from nmt.scoring.metrics import MODEL_WORDS, check_lines

# A full stop, a comma or an escaped character that stands alone: no language is written so.
_TOKENIZED = re.compile(r"(?:^|\s)(?:[.,]|@-@|&(?:quot|apos|amp|lt|gt|#\d+);\w*)(?:\s|$)")
_SEGMENTED = re.compile(r"\S@@(?:\s|$)|(?:^|\s)▁")
_SUSPICIOUS = 0.1
"""Share of lines from which on text counts as tokenized or segmented."""


@dataclass(frozen=True)
class Systems:
    """Systems and their one reference, line by line.

    Attributes:
        systems: name -> hypotheses as plain text.
        refs: the reference as plain text.
        words: name -> the same hypotheses as tokenized text, for tokenized BLEU.
        ref_words: the reference as tokenized text.
        ref_name: where the reference comes from.
        tgt_lang: language code, empty if unknown.
        tokenizer: what made the words of the systems, for the signature.
        sources: source lines, to count untranslated ones.
        remarks: what a reader should know about where the text comes from.
    """

    systems: dict[str, list[str]]
    refs: list[str]
    words: dict[str, list[str]]
    ref_words: list[str]
    ref_name: str
    tgt_lang: str
    tokenizer: str
    sources: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def empty(self, system: str) -> int:
        """How many hypotheses of a system are blank."""
        return sum(map(is_blank, self.systems[system]))

    def notes(self) -> list[str]:
        """What a reader of the scores should know about the text; one line each."""
        total = len(self.refs)
        notes = list(self.remarks)
        for name, hyps in self.systems.items():
            if empty := self.empty(name):
                notes.append(f"{name}: {empty:,} of {total:,} hypotheses are empty")
            pairs = zip(hyps, self.sources, strict=True) if self.sources else ()
            if copies := sum(hyp == src and not is_blank(hyp) for hyp, src in pairs):
                notes.append(f"{name}: {copies:,} of {total:,} hypotheses repeat the source")
        if all(map(is_blank, self.refs)):
            notes.append(f"{self.ref_name}: every line is empty, so every BLEU is 0")
        texts = {self.ref_name: self.refs, **self.systems}
        if pieces := [n for n, lines in texts.items() if _share(_SEGMENTED, lines) >= _SUSPICIOUS]:
            notes.append(f"{', '.join(pieces)}: looks cut into pieces; undo that before scoring")
        words = [n for n, lines in texts.items() if _share(_TOKENIZED, lines) >= _SUSPICIOUS]
        if words := [name for name in words if name not in pieces]:
            notes.append(
                f"{', '.join(words)}: looks tokenized; BLEU, chrF and TER compare on plain text "
                "only, so pass --tokenized if Moses did it"
            )
        return notes


def _share(pattern: re.Pattern[str], lines: Sequence[str]) -> float:
    return sum(pattern.search(line) is not None for line in lines) / max(1, len(lines))


def from_files(
    hyp_files: Sequence[str],
    ref_file: str,
    tgt_lang: str = "",
    tokenized: bool = False,
    src_file: str | None = None,
) -> Systems:
    """Systems given as files, one segment a line.

    Args:
        hyp_files: one per system; the first is the baseline of comparisons.
        ref_file: their reference.
        tgt_lang: language code; Moses' rules for English where it is empty or unknown to Moses.
        tokenized: the files are Moses-tokenized: words as they are, plain text by detokenizing.
        src_file: the source, to count hypotheses that repeat it.

    Raises:
        UserError: a file is missing or unreadable, is given twice, or line counts differ.
    """
    if twice := [name for name, times in Counter(hyp_files).items() if times > 1]:
        raise UserError("--hyp names it twice", at=twice[0], fix="give each system once")
    given = {name: _read(name) for name in hyp_files}
    ref_lines = _read(ref_file)
    sources = _read(src_file) if src_file else []
    for name, lines in {**given, src_file: sources}.items() if src_file else given.items():
        check_lines(lines, ref_lines, str(name))
    moses, lang = Moses(tokenized, nfc=False), tgt_lang or "en"
    return Systems(
        systems={name: _plain(moses, lines, lang) for name, lines in given.items()},
        refs=_plain(moses, ref_lines, lang),
        words={name: _words(moses, lines, lang) for name, lines in given.items()},
        ref_words=_words(moses, ref_lines, lang),
        ref_name=ref_file,
        tgt_lang=tgt_lang,
        tokenizer="none" if tokenized else f"moses-{lang}",
        sources=sources,
    )


def from_runs(
    folders: Sequence[str], split: Literal["dev", "test"], ref_file: str | None = None
) -> Systems:
    """Systems given as run folders: what each wrote for ``split`` with its best checkpoint.

    Args:
        folders: one per system; the first is the baseline of comparisons.
        split: dev or test.
        ref_file: the reference, where it is no longer at the place that the recipe names.

    Raises:
        UserError: a folder is no run, has no such hypotheses, or the references differ.
    """
    files = [_hypotheses(RunFolder.open(folder), split) for folder in folders]
    without = [file for file in files if not words_file(file).is_file()]
    first, *others = [
        _from_run(folder, file, split, ref_file, stored_words=not without)
        for folder, file in zip(folders, files, strict=True)
    ]
    for other in others:
        if (other.refs, other.ref_words) != (first.refs, first.ref_words):
            raise UserError(
                f"{other.ref_name} differs from {first.ref_name}",
                fix="compare runs on one reference, with the same data.tokenized",
            )
    if len(set(folders)) < len(folders):
        raise UserError(
            "a run folder is given twice",
            at=next(name for name, times in Counter(folders).items() if times > 1),
            fix="give each system once",
        )
    merged = [first, *others]
    return replace(
        first,
        systems={name: hyps for run in merged for name, hyps in run.systems.items()},
        words={name: words for run in merged for name, words in run.words.items()},
        remarks=[
            f"{words_file(file)} is missing, as in runs of version 0.2 and before: "
            "tokenized BLEU is "
            "that of the tokenized plain text, and not the one that training logged"
            for file in without
        ],
    )


def words_file(hyp_file: Path) -> Path:
    """Return the file with the words of the hypotheses that a file holds as plain text."""
    return hyp_file.with_suffix(".words")


def _hypotheses(run: RunFolder, split: Literal["dev", "test"]) -> Path:
    best = run.dev_dir / f"{run.best() or '*'}.hyp"
    hyp_file = run.test_hyp if split == "test" else best
    if not hyp_file.is_file():
        raise UserError(
            f"no {split} hypotheses of the best checkpoint",
            at=str(hyp_file),
            fix="let the training end, or write them with nmt-translate and use --hyp and --ref",
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
    prefix = recipe.data.dev if split == "dev" else recipe.data.test
    if ref_file is None:
        if prefix is None:
            raise UserError(
                "the recipe of the run has no data.test",
                at=str(run.config_file),
                fix="score --split dev, or name the reference with --ref",
            )
        ref_file = str(find_side(prefix, recipe.tgt))
    texts, ref_lines = _read(hyp_file), _read(ref_file)
    check_lines(texts, ref_lines, str(hyp_file))
    if stored_words:
        words = _read(words_file(hyp_file))
        check_lines(words, ref_lines, str(words_file(hyp_file)))
    else:
        words = _words(Moses(tokenized=False, nfc=False), texts, recipe.tgt)
    of_corpus = Moses(recipe.data.tokenized, nfc=False)
    return Systems(
        systems={
            folder: [of_corpus.scored(*pair, recipe.tgt) for pair in zip(texts, words, strict=True)]
        },
        refs=_plain(of_corpus, ref_lines, recipe.tgt),
        words={folder: words},
        ref_words=_words(of_corpus, ref_lines, recipe.tgt),
        ref_name=ref_file,
        tgt_lang=recipe.tgt,
        tokenizer=MODEL_WORDS if stored_words else f"moses-{recipe.tgt}",
    )


def _plain(moses: Moses, lines: list[str], lang: str) -> list[str]:
    return [moses.reference_plain(line, lang) for line in lines]


def _words(moses: Moses, lines: list[str], lang: str) -> list[str]:
    return [moses.reference_words(line, lang) for line in lines]


def _read(file: str | Path) -> list[str]:
    return list(read_lines(Path(file), clean=False))  # scored as it is
