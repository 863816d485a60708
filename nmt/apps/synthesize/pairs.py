"""nmt-synthesize: write a text and its translations as a filtered parallel corpus.

During translation, PREFIX.part has one line for each translated line of the text, so that the
command can be resumed as with ``--output``. When all lines are translated, the pairs are filtered
in two passes. PREFIX.SRC, PREFIX.TGT and PREFIX.json are written under other names first. The order
of renaming ensures that a kill never leaves sides of different corpora.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt.data.bitext import write_pairs
from nmt.data.lines import clean_line, read_lines
from nmt.data.pair import Pair
from nmt.errors import RunError, UserError
from nmt.runtime.files import (
    RESUME,
    TEMPORARY,
    disk_errors,
    file_digest,
    json_object,
    read_text,
    replace_together,
)
from nmt.store.output import CHOOSE_ANOTHER, partial_path

if TYPE_CHECKING:
    from nmt.apps.synthesize.filters import Thresholds
    from nmt.data.filters import CorpusFilter
    from nmt.data.rules import Reason
    from nmt.decoding.codec import Translation
    from nmt.decoding.translator import Translator

# name of a rule that drops a pair -> the option that may keep the pair
REMEDIES = {
    "ratio": "add --resume with a larger --max-ratio",
    "partly-copied": "add --resume with a larger --max-copied",
    "cut": "add --force with a larger --max-len-offset",
}


@dataclass
class SyntheticCorpus:
    """The corpus that one command writes.

    Attributes:
        text: the text to translate, a regular file.
        langs: language of the text and of its translations.
        skipped: for each line of the text, why it is not translated, None if it is.
        text_state: size and time of the text when it was read.
    """

    prefix: Path
    text: Path
    langs: tuple[str, str]
    thresholds: Thresholds
    force: bool
    skipped: list[Reason] = field(default_factory=list)
    text_state: tuple[int, int] = (0, 0)

    @property
    def name(self) -> str:
        """The prefix."""
        return str(self.prefix)

    @property
    def files(self) -> list[Path]:
        """Both sides, and the report: counts, settings and model."""
        suffixes = (*self.langs, "json")
        return [self.prefix.with_name(f"{self.prefix.name}.{suffix}") for suffix in suffixes]

    def read_input(self) -> tuple[Iterator[str], int]:
        """Return the lines of the text and their number; those not to be translated are blank.

        The text is read in advance, to decide which lines are translated.

        Raises:
            UserError: the text cannot be read, or no line can be translated.
        """
        from nmt.apps.synthesize.filters import reasons_to_skip

        self.skipped = reasons_to_skip(self._read_text(), self.langs[0])
        self.text_state = self._state_of_text()
        if all(self.skipped):  # also if there are none
            reasons = ", ".join(dict.fromkeys(filter(None, self.skipped)))
            what = f"no line can be translated ({reasons or 'the file is empty'})"
            fix = f"give a text in {self.langs[0]}, UTF-8, with one sentence per line"
            raise UserError(what, at=str(self.text), fix=fix)
        lines = zip(self._read_text(), self.skipped, strict=False)
        return ("" if reason else line for line, reason in lines), len(self.skipped)

    def line_format(self, translator: Translator) -> Callable[[Translation], str]:
        """Return the function that makes a line of the partial output.

        Translations are tokenized text if the training text of the run was, so that both sides of
        the corpus are in the form of that text.
        """
        segmenter, lang = translator.codec.segmenter, self.langs[1]
        tokenized = segmenter.moses.tokenized

        def format_line(t: Translation) -> str:
            text = segmenter.decode_tokenized(t.pieces, lang) if tokenized else t.text
            return f"{int(t.finished)}\t{text}"

        return format_line

    def check_unfinished(self, finished: int) -> None:
        """Check the partial output, and that the files do not exist, before hours of translation.

        Once all lines are translated, a killed command may have renamed some of the files;
        ``write`` compares them.

        Raises:
            UserError: a file exists, or the partial output is of another command.
        """
        partial = partial_path(self.prefix)
        if finished and next(read_lines(partial))[:2] not in ("0 ", "1 "):  # the tab is a space now
            what = "cannot be resumed, because its lines are not those of nmt-synthesize"
            raise UserError(what, at=str(partial), fix="rename it, or add --force to start over")
        if finished < len(self.skipped) and not self.force:
            for path in self.files:
                if os.path.lexists(path):
                    raise _exists(path)

    def is_complete(self) -> bool:
        """Return whether an earlier command has completed this corpus."""
        if partial_path(self.prefix).exists():
            return False
        *sides, report_file = self.files
        try:
            report = json_object(read_text(report_file))
            return bool(
                report["filters"] == dataclasses.asdict(self.thresholds)
                and report["files"] == {path.name: file_digest(path) for path in sides}
            )
        except (OSError, ValueError, LookupError, TypeError):  # the file is another program's
            return False

    def write(self, partial: Path, settings: dict[str, Any]) -> None:
        """Filter the translations, write the corpus and delete the partial output.

        Args:
            partial: has a line for each line of the text.

        Raises:
            UserError: the text has changed, or a file of another job has one of the names.
            RunError: the filters drop every pair.
            MachineError: the disk is full or not writable.
        """
        from nmt.apps.synthesize.filters import CUT, target_rules
        from nmt.data.filters import CorpusFilter
        from nmt.runtime.progress import progress_bar

        if self._state_of_text() != self.text_state:
            fix = "restore it and add --resume, or start over with --force"
            raise UserError("changed while it was translated", at=str(self.text), fix=fix)
        drafts = [path.with_name(TEMPORARY + path.name) for path in self.files]
        total = 2 * len(self.skipped)  # they are read twice
        with progress_bar("filtering", "lines", total) as bar:

            def pairs() -> Iterator[Pair]:
                for line, translation in zip(self._read_text(), read_lines(partial), strict=True):
                    bar.update()
                    yield Pair(clean_line(line), translation[2:])  # without the flag and a space

            rules = target_rules(self.langs[1], self.thresholds)
            flags = (line[0] for line in read_lines(partial))  # 0 = not finished
            skipped = [
                reason or (CUT if flag == "0" else None)
                for reason, flag in zip(self.skipped, flags, strict=True)
            ]
            checked = CorpusFilter(pairs, rules, self.langs, self.prefix.name, skipped)
            try:
                with disk_errors(self.prefix, elsewhere=CHOOSE_ANOTHER):
                    self._write_sides(checked, *drafts[:2])
                    report = self._report(checked, drafts, settings)
                    # a path that is not UTF-8 is written with the escapes of JSON
                    with open(drafts[2], "w", encoding="utf-8", errors="backslashreplace") as file:
                        file.write(report)
                        file.flush()
                        os.fsync(file.fileno())
                    self._install(drafts)
            finally:
                for draft in drafts:
                    draft.unlink(missing_ok=True)
        partial.unlink()
        for warning in checked.warnings:
            print(f"warning: {warning}", file=sys.stderr)
        print(checked.summary(self.files[:2]), file=sys.stderr)

    def _read_text(self) -> Iterator[str]:
        return read_lines(self.text, clean=False, errors="surrogateescape")

    def _state_of_text(self) -> tuple[int, int]:
        with disk_errors(self.text, elsewhere=CHOOSE_ANOTHER):
            state = self.text.stat()
        return state.st_size, state.st_mtime_ns

    def _write_sides(self, checked: CorpusFilter, src: Path, tgt: Path) -> None:
        """Write the pairs that are kept."""
        if not write_pairs(checked.kept(), src, tgt):
            steps = [step for name, step in REMEDIES.items() if name in checked.counts()]
            raise RunError(
                f"no pair is left ({checked.dropped})",
                at=self.name,
                fix=f"read the translations in {self.name}.part; then "
                + ", or ".join([*steps, "add --force and use a better model"]),
            )

    def _report(self, checked: CorpusFilter, drafts: list[Path], settings: dict[str, Any]) -> str:
        kept = checked.reasons.count(None)
        sides = zip(self.files[:2], drafts, strict=False)
        report = {
            "pairs": {"read": len(self.skipped), "kept": kept, "dropped": checked.counts()},
            "typical_ratio": round(checked.typical_ratio, 3),
            "warnings": checked.warnings,
            "filters": dataclasses.asdict(self.thresholds),
            "files": {path.name: file_digest(draft) for path, draft in sides},
            "text": str(self.text),
            "translation": settings,
        }
        return json.dumps(report, indent=1, ensure_ascii=False) + "\n"

    def _install(self, drafts: list[Path]) -> None:
        """Rename the drafts to their final names.

        Raises:
            UserError: without ``force``, a file exists that is not the one to be written.
            OSError: the folder is not writable.
        """
        for path, draft in zip(self.files, drafts, strict=True):
            exists = not self.force and os.path.lexists(path)
            if exists and file_digest(path) != file_digest(draft):
                raise _exists(path)
        replace_together(dict(zip(self.files, drafts, strict=True)))


def _exists(path: Path) -> UserError:
    return UserError("exists already", at=str(path), fix=f"rename or delete it, then {RESUME}")
