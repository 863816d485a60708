"""Translate one document: a file, or bytes from a request."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, TypeAlias

from nmt.apps.documents.formats import format_of
from nmt.apps.documents.job import USUAL, Job, Reading, Report
from nmt.apps.documents.journal import ELSEWHERE
from nmt.apps.documents.lines import Translate
from nmt.errors import NmtError, UserError
from nmt.runtime.files import AGAIN, disk_errors, open_file

Progress: TypeAlias = Callable[[int, int], object]


class Nowhere(io.RawIOBase):
    """A file that discards its data."""

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: object) -> int:
        """Discard data."""
        return len(data)  # type: ignore[arg-type]


def count_segments(
    source: BinaryIO, name: str, langs: tuple[str, str], reading: Reading = USUAL
) -> int:
    """Read a document without translating it, and return its number of segments.

    Raises:
        UserError: the suffix of the name is not that of a format, or the file is damaged.
    """
    job = Job(name, *langs, None, reading)
    _convert(source, Nowhere(), job)  # type: ignore[arg-type]
    return job.report.segments


def translate_bytes(
    data: bytes,
    name: str,
    langs: tuple[str, str],
    translate: Translate,
    reading: Reading = USUAL,
) -> tuple[bytes, Report]:
    """Return a translated document in the same format, and its report.

    Args:
        name: of the file; its suffix names the format.
        langs: source and target language.
        translate: translates lines; see ``nmt.apps.documents.model.from_translator`` and
            ``nmt.apps.documents.lines.from_function``.
        reading: how the document is read.

    Raises:
        UserError: the suffix is not that of a format, or the file is damaged; nothing is
            translated then.
    """
    target = io.BytesIO()
    report = _translate(io.BytesIO(data), target, name, langs, translate, reading)
    return target.getvalue(), report


def translate_file(
    path: Path,
    draft: Path,
    langs: tuple[str, str],
    translate: Translate,
    reading: Reading,
    progress: Progress,
) -> Report:
    """Write the translation of a file into a new file; after an error, there is none.

    The other arguments, the result and the errors are those of ``translate_bytes``.

    Args:
        progress: called with the number of segments just translated, and that of all.

    Raises:
        MachineError: the disk is full or not writable.
    """
    with _opened(path) as source, disk_errors(draft, elsewhere=ELSEWHERE, again=AGAIN):
        try:
            with draft.open("xb") as file:
                report = _translate(source, file, str(path), langs, translate, reading, progress)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
    return report


def _opened(path: Path) -> BinaryIO:
    """Open a document, or suggest a similar name.

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
    reading: Reading,
    progress: Progress = lambda count, total: None,
) -> Report:
    # an error in the last line is found before hours of work
    total = count_segments(source, name, langs, reading)
    progress(0, total)
    source.seek(0)
    job = Job(name, *langs, translate, reading, lambda count: progress(count, total))
    _convert(source, target, job)
    return job.report


def _convert(source: BinaryIO, target: BinaryIO, job: Job) -> None:
    """Read and write a document; an exception that its content causes is an error of the file."""
    convert = format_of(job.name)
    try:
        convert(source, target, job)
    except Exception as error:
        of_disk = isinstance(error, OSError) and error.errno not in (None, errno.EINVAL)
        if job.in_model or of_disk or isinstance(error, NmtError | MemoryError):
            raise
        raise UserError(
            f"its content does not match its suffix: {type(error).__name__}: {error}",
            at=job.name,
            fix="save it again with the program that made it; --debug shows where reading failed",
        ) from error
