"""Read what is scored: hypotheses of systems and their references, from files or run folders."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.data.bitext import held_out_entries, read_in_form
from nmt.data.checks import OtherForm
from nmt.data.lines import find_side, is_blank, read_lines
from nmt.errors import UserError
from nmt.runtime.files import file_digest
from nmt.scoring.language import bleu_tokenizer, language_of_files, language_of_text
from nmt.scoring.metrics import MODEL_WORDS, check_lines
from nmt.store.folder import CHECKPOINT_NAME, RunFolder
from nmt.store.model import Description, Model
from nmt.store.results import read_result, read_summary
from nmt.store.same_run import require_equal
from nmt.text.tokenizer import Moses

if TYPE_CHECKING:
    from nmt.config.entries import HeldOutEntry

# A full stop, a comma or an escaped character between spaces: no language is written like this.
_TOKENIZED = re.compile(r"(?:^|\s)(?:[.,]|@-@|&(?:quot|apos|amp|lt|gt|#\d+);\w*)(?:\s|$)")
_SEGMENTED = re.compile(r"\S@@(?:\s|$)|(?:^|\s)▁")
_UNFINISHED = {  # status of a run without test hypotheses -> what gives it some
    "training": "wait until the run has finished, or ",
    "stopped": "continue the run with nmt-train RECIPE --resume, or ",
}
SCORED = "files"  # key of summary.json
_SUSPICIOUS_SHARE = 0.1  # of the lines that look tokenized or segmented: a note says so


@dataclass(frozen=True)
class Systems:
    """The hypotheses of one or several systems and their references, line by line.

    Attributes:
        texts: system name -> hypotheses as plain text.
        refs: the first reference as plain text.
        words: system name -> the same hypotheses as tokenized text, for tokenized BLEU.
        ref_words: the first reference as tokenized text.
        ref_name: the file of the reference, or the files of several.
        tgt_lang: language that the texts are scored as, empty if unknown.
        tokenizer: what produced the words of the systems, for the signature.
        sources: source lines as plain text, to count untranslated ones.
        remarks: what a reader should know about the origin of the text.
        other_refs: further references as plain text.
        other_ref_words: the same as tokenized text.
        tokenized: words are those of the tokenized text.
        src_lang: language of the sources, empty if unknown.
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
    other_refs: list[list[str]] = field(default_factory=list)
    other_ref_words: list[list[str]] = field(default_factory=list)
    tokenized: bool = False
    src_lang: str = ""

    @property
    def words_lang(self) -> str:
        """The language that decides what a word of tokenized text is; "" = what spaces separate."""
        return "" if self.tokenized else self.tgt_lang

    def count_empty(self, system: str) -> int:
        """Count the blank hypotheses of a system."""
        return sum(map(is_blank, self.texts[system]))

    def notes(self) -> list[str]:
        """List what a reader of the scores should know about the text, one line each."""
        total, notes = len(self.refs), []
        for name, hyps in self.texts.items():
            if empty := self.count_empty(name):
                notes.append(f"{name}: {empty:,} of {total:,} hypotheses are empty")
            pairs = zip(hyps, self.sources, strict=True) if self.sources else ()
            if copies := sum(hyp == src and not is_blank(hyp) for hyp, src in pairs):
                notes.append(f"{name}: {copies:,} of {total:,} hypotheses repeat the source")
        if all(map(is_blank, self.refs)):
            notes.append(f"{self.ref_name}: every line is empty, so every BLEU is 0")
        texts = {self.ref_name: self.refs, **self.texts}
        notes += _different_forms(texts)
        segmented = [name for name, lines in texts.items() if _looks_like(_SEGMENTED, lines)]
        others = [name for name in texts if name not in segmented]
        tokenized = [name for name in others if _looks_like(_TOKENIZED, texts[name])]
        if segmented:
            notes.append(
                f"{', '.join(segmented)}: looks split into subwords; undo the segmentation "
                "before scoring"
            )
        if tokenized:
            notes.append(
                f"{', '.join(tokenized)}: looks tokenized, but BLEU, chrF and TER need plain text; "
                "pass --tokenized if the files are Moses-tokenized"
            )
        return [*notes, *self.remarks]


def _different_forms(texts: Mapping[str, list[str]]) -> list[str]:
    forms = {
        name: OtherForm(line for line in lines if not is_blank(line))
        for name, lines in texts.items()
    }
    if len({tuple(sorted(form.changes)) for form in forms.values()}) == 1:
        return []
    return [
        f"{name}: {form.lines.count:,} of {len(texts[name]):,} lines "
        f"({form.lines.count / len(texts[name]):.1%}) are not in the Unicode form clean ({form}), "
        "and the other texts use a different form; scores compare texts as they are"
        for name, form in forms.items()
        if form.lines.count
    ]


def _looks_like(pattern: re.Pattern[str], lines: Sequence[str]) -> bool:
    matches = sum(pattern.search(line) is not None for line in lines)
    return matches / max(1, len(lines)) >= _SUSPICIOUS_SHARE


def from_files(
    hyp_files: Sequence[str],
    ref_files: Sequence[str],
    tgt_lang: str = "",
    tokenized: bool = False,
    src_file: str | None = None,
) -> Systems:
    """Read systems from files with one segment a line.

    Args:
        hyp_files: one per system; the first is the baseline of comparisons.
        ref_files: their references, at least one.
        tgt_lang: language code; if it is empty, the language follows the ending of a reference's
            name, then its script. If it is unknown to Moses, the rules for English apply.
        tokenized: the files are Moses-tokenized: words are taken as they are, and plain text is
            made by detokenizing.
        src_file: the source, to count hypotheses that repeat it.

    Raises:
        UserError: a file is missing, unreadable or given twice, or the line counts differ.
    """
    reject_duplicates(hyp_files, "--hyp names this file twice")
    reject_duplicates(ref_files, "--ref names this file twice")
    lines_of = {name: _read(name) for name in hyp_files}
    refs = [_read(name) for name in ref_files]
    sources = _read(src_file) if src_file else []
    named = [*lines_of.items(), *zip(ref_files, refs, strict=True)]
    if src_file:
        named.append((src_file, sources))
    for name, lines in named:
        check_lines(lines, refs[0], name)
    named_lang = tgt_lang or language_of_files(ref_files)
    scored_as = language_of_text(named_lang, refs[0])
    moses, lang = Moses(tokenized), named_lang or scored_as or "en"
    texts, words = references(moses, refs, lang)
    remarks = _script_remarks(named_lang, scored_as, ref_files[0])
    if not named_lang:
        source = "from its script" if scored_as else "assumed, because its name does not say it"
        remarks.append(f"{ref_files[0]}: language {lang}, {source}; set it with --tgt-lang")
    return Systems(
        texts={name: _to_text(moses, lines, lang) for name, lines in lines_of.items()},
        refs=texts[0],
        words={name: _to_words(moses, lines, lang) for name, lines in lines_of.items()},
        ref_words=words[0],
        ref_name=", ".join(ref_files),
        tgt_lang=scored_as,
        tokenizer="none" if tokenized else f"moses-{lang}",
        sources=_to_text(moses, sources, "en"),
        remarks=remarks,
        other_refs=texts[1:],
        other_ref_words=words[1:],
        tokenized=tokenized,
        src_lang=language_of_files([src_file] if src_file else []),
    )


def from_runs(
    folders: Sequence[str],
    split: str,
    ref_files: Sequence[str] = (),
    sources: bool = False,
) -> Systems:
    """Read systems from run folders: the hypotheses of each run's best checkpoint.

    Args:
        folders: one per system; the first is the baseline of comparisons.
        split: dev or test, or ``dev.NAME`` of several sets.
        ref_files: the references, if they are not those of the recipe.
        sources: read the source too.

    Raises:
        UserError: a folder is not a run folder, is set twice or has no such hypotheses, or the
            references differ.
    """
    runs_to_read = [RunFolder.open(folder) for folder in folders]
    for run in runs_to_read:
        run.require_translation()
    sets = [find_set(run, split) for run in runs_to_read]
    without_words = [file for file, _ in sets if not words_file(file).is_file()]
    first, *others = runs = [
        _from_run(folder, *files, ref_files, sources, stored_words=not without_words)
        for folder, files in zip(folders, sets, strict=True)
    ]
    references = attrgetter("refs", "ref_words", "other_refs", "other_ref_words")
    for other in others:
        if references(first) != references(other):
            raise UserError(
                f"{other.ref_name} differs from {first.ref_name}",
                fix="compare runs with one reference and the same data.tokenized",
            )
    reject_duplicates(folders, "this run folder is set twice")
    missing = [
        f"{words_file(file)} is missing, so tokenized BLEU is computed on the retokenized plain "
        "text and differs from the logged value"
        for file in without_words
    ]
    return replace(
        first,
        texts={name: hyps for run in runs for name, hyps in run.texts.items()},
        words={name: words for run in runs for name, words in run.words.items()},
        remarks=first.remarks + missing,
    )


def words_file(hyp_file: Path) -> Path:
    """Name the file with the words of the hypotheses that a file has as plain text."""
    return hyp_file.with_suffix(".words")


def set_file(hyp_file: Path, name: str) -> Path:
    """Name the file with the hypotheses of one of several sets; a single set has the name ""."""
    return hyp_file.with_name(f"{hyp_file.stem}.{name}{hyp_file.suffix}") if name else hyp_file


def hypotheses_file(run: RunFolder, split: str) -> Path:
    """Name the file with the hypotheses of a run's best checkpoint; it may be missing."""
    role, _, name = split.partition(".")
    best = run.dev_dir / f"{run.best() or '*'}.hyp"
    return set_file(run.test_hyp if role == "test" else best, name)


def require_scored(run: RunFolder, *files: Path) -> None:
    """Raise UserError if the files of a run are not those that were scored.

    Args:
        files: translations of the run; those that summary.json names must be as they were scored.
    """
    if run.best() is not None:
        model = Model.open(run.path)
        before, now = model.about.of_recipe(), Description.of(run.recipe(), "", None).of_recipe()
        require_equal(run, f"{model.path.name} of the run", before, now)
    hashes = read_summary(run).get(SCORED, {})
    for file in files:
        expected = hashes.get(file.relative_to(run.path).as_posix())
        if expected is not None and not (file.is_file() and file_digest(file) == expected):
            raise UserError(
                "not the file that the run scored: its SHA-256 is not the one in summary.json",
                at=str(file),
                fix="restore the file; to score an edited one, use nmt-score --hyp FILE --ref FILE",
            )


def scored_hashes(run: RunFolder, best: str) -> dict[str, str]:
    """Return the SHA-256 of the translations of dev and test by the checkpoint ``best``."""
    assert CHECKPOINT_NAME.fullmatch(best), best
    files: list[Path] = []
    for ending in ("hyp", "words"):
        files += run.path.glob(f"{run.test_hyp.stem}*.{ending}")
        files += run.dev_dir.glob(f"{best}*.{ending}")
    return {file.relative_to(run.path).as_posix(): file_digest(file) for file in sorted(files)}


def reject_duplicates(names: Sequence[str], message: str) -> None:
    """Raise UserError for a name that stands twice in a command."""
    for name, count in Counter(names).items():
        if count > 1:
            raise UserError(message, at=name, fix="give each once, under its own name")


def find_set(run: RunFolder, split: str) -> tuple[Path, HeldOutEntry]:
    """Find the hypotheses of the best checkpoint for a set, and the set's entry of the recipe.

    Raises:
        UserError: there is no such set or file; ``split`` is as in ``from_runs``.
    """
    recipe = run.recipe()
    translate = "translate with nmt-translate and pass --hyp and --ref"
    role, _, name = split.partition(".")
    entries = held_out_entries(recipe, "dev" if role == "dev" else "test")
    if not entries:
        what = "the recipe of the run has no data.test"
        raise UserError(what, at=str(run.config_file), fix="score --split dev")
    if split not in entries:
        sets = f"several {role} sets" if len(entries) > 1 else f"one {role} set"
        chosen = f"none called {name}" if name else "none was chosen"
        raise UserError(
            f"the run has {sets}, and {chosen}",
            at=str(run.path),
            fix=f"choose {' or '.join(f'--split {entry}' for entry in entries)}",
        )
    hyp_file = hypotheses_file(run, split)
    if not hyp_file.is_file():
        first = _UNFINISHED.get(read_result(run.path).status, "")
        what = f"no {role} hypotheses of the best checkpoint"
        raise UserError(what, at=str(hyp_file), fix=first + translate)
    require_scored(run, hyp_file, words_file(hyp_file))
    return hyp_file, entries[split]


def _from_run(
    folder: str,
    hyp_file: Path,
    entry: HeldOutEntry,
    ref_files: Sequence[str],
    sources: bool,
    stored_words: bool,
) -> Systems:
    run = RunFolder.open(folder)
    recipe = run.recipe()
    src, tgt = entry.langs(recipe)
    if not ref_files:
        ref_files = [str(find_side(entry.path, tgt)), *entry.other_refs]
    tokenized, is_tokenized = recipe.data.tokenized, entry.is_tokenized(recipe.data)
    texts = _read(hyp_file)
    refs = [read_in_form(Path(file), tgt, is_tokenized, tokenized) for file in ref_files]
    for file, lines in ((str(hyp_file), texts), *zip(ref_files, refs, strict=True)):
        check_lines(lines, refs[0], file)
    if stored_words:
        words = _read(words_file(hyp_file))
        check_lines(words, refs[0], str(words_file(hyp_file)))
    else:
        words = _to_words(Moses(tokenized=False), texts, tgt)
    moses = Moses(tokenized)
    src_lines = []
    if sources:
        src_file = find_side(entry.path, src)
        src_lines = read_in_form(src_file, src, is_tokenized, tokenized)
        check_lines(src_lines, refs[0], str(src_file))
    ref_texts, ref_words = references(moses, refs, tgt)
    scored_as = language_of_text(tgt, ref_texts[0])
    scored = [moses.text_to_score(*pair, tgt) for pair in zip(texts, words, strict=True)]
    return Systems(
        texts={folder: scored},
        refs=ref_texts[0],
        words={folder: words},
        ref_words=ref_words[0],
        ref_name=", ".join(ref_files),
        tgt_lang=scored_as,
        tokenizer=MODEL_WORDS if stored_words else f"moses-{tgt}",
        sources=_to_text(moses, src_lines, src),
        remarks=_script_remarks(tgt, scored_as, ref_files[0]),
        other_refs=ref_texts[1:],
        other_ref_words=ref_words[1:],
        tokenized=tokenized,
        src_lang=src,
    )


def _script_remarks(lang: str, scored_as: str, ref_file: str) -> list[str]:
    if scored_as == lang or not lang:
        return []
    how = f"scored as language {scored_as}: BLEU has tok:{bleu_tokenizer(scored_as)}"
    return [f"{ref_file}: by its script, not by the language {lang}, {how}"]


def references(
    moses: Moses, refs: Sequence[list[str]], lang: str
) -> tuple[list[list[str]], list[list[str]]]:
    """Return the lines of each reference as plain and as tokenized text, for scoring."""
    texts = [_to_text(moses, lines, lang) for lines in refs]
    return texts, [_to_words(moses, lines, lang) for lines in refs]


def _to_text(moses: Moses, lines: list[str], lang: str) -> list[str]:
    return [moses.detokenize_reference(line, lang) for line in lines]


def _to_words(moses: Moses, lines: list[str], lang: str) -> list[str]:
    return [moses.tokenize_reference(line, lang) for line in lines]


def _read(file: str | Path) -> list[str]:
    return list(read_lines(Path(file), clean=False))  # scores are those of the unchanged text
