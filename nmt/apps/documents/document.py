"""Translate one document: a file, or bytes that somebody has sent."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, TypeAlias

from nmt.apps.documents.formats import format_of
from nmt.apps.documents.job import Job, Report
from nmt.apps.documents.lines import Translate
from nmt.errors import UserError
from nmt.runtime.files import AGAIN, disk_errors, open_file, sync_folder, temporary

Progress: TypeAlias = Callable[[int, int], object]
ELSEWHERE = "choose another folder with --to"


class Nowhere(io.RawIOBase):
    """A file that keeps nothing."""

    def writable(self) -> bool:
        """Say that it can be written."""
        return True

    def write(self, data: object) -> int:
        """Forget data."""
        return len(data)  # type: ignore[arg-type]


def translate_bytes(
    data: bytes,
    name: str,
    langs: tuple[str, str],
    translate: Translate,
    retranslate: bool = False,
    progress: Progress = lambda count, total: None,
) -> tuple[bytes, Report]:
    """Return a translated document in the same format, and what a person should know of it.

    Args:
        name: of the file; its suffix names the format.
        langs: source and target language.
        translate: translates lines; see ``nmt.apps.documents.model.from_translator`` and
            ``nmt.apps.documents.lines.from_function``.
        retranslate: replace translations that are in the document already.
        progress: called with the number of segments just translated, and that of all.

    Raises:
        UserError: the suffix is not that of a format, or the file is damaged; nothing is
            translated then.
    """
    source, target = io.BytesIO(data), io.BytesIO()
    report = _translate(source, target, name, langs, translate, retranslate, progress)
    return target.getvalue(), report


def translate_file(
    path: Path,
    target: Path,
    langs: tuple[str, str],
    translate: Translate,
    retranslate: bool = False,
    progress: Progress = lambda count, total: None,
) -> Report:
    """Write the translation of a file, which exists completely or not at all.

    The other arguments, the result and the errors are those of ``translate_bytes``.

    Raises:
        MachineError: the disk is full or not writable.
    """
    draft = temporary(target)
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(opened(path))
        stack.enter_context(disk_errors(target, elsewhere=ELSEWHERE, again=AGAIN))
        try:
            with draft.open("xb") as file:
                name = str(path)
                report = _translate(source, file, name, langs, translate, retranslate, progress)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(target)
            sync_folder(target.parent)
        finally:
            draft.unlink(missing_ok=True)
    return report


def opened(path: Path) -> BinaryIO:
    """Open a document.

    Raises:
        UserError: it is missing, cannot be read or is not a regular file.
    """
    try:
        return open_file(path)
    except OSError as error:
        from nmt.runtime.missing import missing_fix

        raise UserError(str(error.strerror), at=str(path), fix=missing_fix(path)) from error


def _translate(
    source: BinaryIO,
    target: BinaryIO,
    name: str,
    langs: tuple[str, str],
    translate: Translate,
    retranslate: bool,
    progress: Progress,
) -> Report:
    convert = format_of(name)
    reading = Job(name, *langs, None, retranslate)
    # an error in the last line is found before hours of work
    convert(source, Nowhere(), reading)  # type: ignore[arg-type]
    total = reading.report.segments
    progress(0, total)
    source.seek(0)
    job = Job(name, *langs, translate, retranslate, lambda count: progress(count, total))
    convert(source, target, job)
    return job.report
