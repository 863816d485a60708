"""Write translations to standard output, or to a file that is locked until it is complete."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from nmt.cli.resume_translation import (
    CHOOSE_ANOTHER,
    LineNumber,
    Signature,
    check_partial,
    delete_signature,
    has_resumable_lines,
    is_resumable,
    partial_path,
    prepare_partial,
    signature_of_output,
    signature_path,
    store_hash,
)
from nmt.errors import MachineError, UserError
from nmt.runtime.files import AGAIN, RESUME, disk_errors

if TYPE_CHECKING:
    from nmt.cli.input import Input
    from nmt.decoding.codec import Translation
    from nmt.decoding.translator import Translator

RUN_SUBFOLDERS = ("checkpoints", "dev", "parent", "tensorboard", "wandb")
NO_MODEL_FILES = (".html", ".png", ".svg", ".pdf", ".tsv")
STDOUT = Path("/dev/stdout")  # for messages; free space is that of the file behind it


class Corpus(Protocol):
    """An output of several files, made from the text and all of its translations.

    Attributes:
        name: of the partial output.
        signature: tells ``--resume`` that the partial output has another format.
    """

    name: str
    signature: dict[str, Any]

    @property
    def files(self) -> list[Path]:
        """All files that are written."""

    def read_input(self) -> Input:
        """Return the lines to translate; blank ones are not translated."""

    def line_format(self, translator: Translator) -> Callable[[int, Translation], str]:
        """Return what makes a line of the partial output: number, translation -> line."""

    def is_complete(self, signature: Signature) -> bool:
        """Return whether an earlier command has written these files."""

    def check_unfinished(self, finished: int) -> None:
        """Raise UserError if a file exists, given the number of finished lines."""

    def write(self, partial: Path, settings: dict[str, Any]) -> None:
        """Write the files from the complete partial output, and delete it."""


@contextlib.contextmanager
def locked_output(
    name: str | None,
    inputs: Iterable[str | None],
    resume: bool,
    force: bool,
    files: Sequence[Path] | None = None,
) -> Iterator[None]:
    """Check that the output may be written, and lock it while the context is open.

    Args:
        name: the output, None = standard output.
        inputs: files that are read, None = standard input; they are never overwritten.
        resume: continue the partial output.
        force: replace an existing output.
        files: the output, if it is not one file of this name. A killed command may have completed
            some of them, so that they are not refused with ``resume``.

    Raises:
        UserError: the output is an input, a file of a run folder or an existing file, or its
            folder does not exist.
        MachineError: another command is writing the output.
    """
    if name is None:
        yield
        return
    from filelock import FileLock, Timeout

    output = Path(name)
    outputs = [output] if files is None else files
    partial, lock_path = partial_path(output), output.with_name(f".{output.name}.nmt-lock")
    _check_place([*outputs, partial, signature_path(partial), lock_path], list(inputs))
    lock = FileLock(lock_path)
    with disk_errors(lock_path, elsewhere=CHOOSE_ANOTHER):
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise MachineError(
                "another nmt-translate is writing this output",
                at=name,
                fix=f"wait until it ends, or {CHOOSE_ANOTHER}",
            ) from error
    try:
        if files is None:
            accepted = force or signature_of_output(output) is not None  # see is_complete
        else:
            accepted = force or resume
        interrupted = files is None and has_resumable_lines(partial)
        for path in outputs:
            _check_replaceable(path, accepted, interrupted)
        check_partial(partial, resume, force)
        yield
    finally:
        lock_path.unlink(missing_ok=True)
        lock.release()


def check_output_file(output: Path, force: bool, inputs: Sequence[str | None] = ()) -> None:
    """Check that a file can be written, before the computation of its contents.

    Args:
        output: the file.
        force: replace an existing file.
        inputs: files that are read, None = not given; they are never overwritten.

    Raises:
        UserError: it exists, is an input or a file of a run folder, or its folder does not exist.
        MachineError: its folder is not writable.
    """
    _check_place([output], [name for name in inputs if name is not None])
    _check_replaceable(output, force)
    if not os.access(output.absolute().parent, os.W_OK | os.X_OK):
        raise MachineError(
            "no permission to write",
            at=str(output.parent),
            fix=f"change the permissions (chmod), or {CHOOSE_ANOTHER}",
        )


def _check_place(outputs: Sequence[Path], inputs: Sequence[str | None]) -> None:
    """Raise UserError unless the folder of the outputs exists and none of them is an input."""
    folder = outputs[0].parent
    if not folder.absolute().is_dir():
        raise UserError(
            "the folder does not exist",
            at=str(folder),
            fix=f"create it (mkdir -p {shlex.quote(str(folder))}), or {CHOOSE_ANOTHER}",
        )
    for path in outputs:
        if path.exists() and any(_is_same_file(path, name) for name in inputs):
            raise UserError(
                "is also an input, which would be overwritten", at=str(path), fix=CHOOSE_ANOTHER
            )


def is_complete(name: str | None, signature: Signature, force: bool) -> bool:
    """Return whether a command that was killed at its end has completed this output.

    Args:
        name: a locked output, None = standard output.
        signature: of this command.
        force: replace an existing output.

    Raises:
        UserError: the output exists and is not that of this command.
    """
    if name is None or force or not Path(name).exists():
        return False
    _check_replaceable(Path(name), signature_of_output(Path(name)) == signature)
    return True


def _check_replaceable(output: Path, force: bool, interrupted: bool = False) -> None:
    """Refuse an existing output, unless ``force`` is set and the file may be replaced.

    Args:
        interrupted: whether a partial output can be resumed, which ``force`` would delete.
    """
    if not os.path.lexists(output):
        return
    if not output.is_file():
        raise UserError("is not a regular file", at=str(output), fix=CHOOSE_ANOTHER)
    if folder := _model_folder(output):
        raise UserError(
            f"is an existing file of the model in {folder} and must not be replaced",
            at=str(output),
            fix=CHOOSE_ANOTHER,
        )
    if not force:
        raise UserError(
            "exists already",
            at=str(output),
            fix=f"rename or delete it, then {RESUME}"
            if interrupted
            else f"{CHOOSE_ANOTHER}, or add --force to replace it",
        )


def _model_folder(output: Path) -> Path | None:
    """Return the run folder or exported folder whose files include the output, else None.

    Files of a run folder are those at its top and below RUN_SUBFOLDERS, except reports, figures
    and tables; in other folders that a user makes there, anything may be replaced.
    """
    from nmt.run.folder import RunFolder, is_export

    if output.suffix.lower() in NO_MODEL_FILES:
        return None

    path = output.parent.resolve() / output.name
    for folder in path.parents:
        parts = path.relative_to(folder).parts
        run = RunFolder(folder)
        own = len(parts) == 1 or parts[0] in RUN_SUBFOLDERS
        if own and run.config_file.is_file() and run.checkpoints_dir.is_dir():
            return folder
    return path.parent if is_export(path.parent) else None


def _is_same_file(path: Path, name: str | None) -> bool:
    """Return whether ``path`` is the input ``name``, a regular file."""
    with contextlib.suppress(OSError, AttributeError):  # missing file; closed standard input
        found = os.fstat(sys.stdin.fileno()) if name is None else os.stat(name)
        return stat.S_ISREG(found.st_mode) and os.path.samestat(found, path.stat())
    return False


class Output:
    """Where translations are written.

    Args:
        file: an open file.
        path: of the file; None = standard output, where each line is sent immediately.
        retry: what to do once the cause of an error is gone, as an imperative.
    """

    def __init__(self, file: BinaryIO, path: Path | None, retry: str) -> None:
        self._file, self._path, self._retry = file, path, retry

    def write(self, lines: bytes) -> None:
        """Write lines with their ends.

        Raises:
            MachineError: the disk is full, or writing fails for another reason.
        """
        with self._errors(len(lines)):
            self._file.write(lines)
            if self._path is None:
                self._file.flush()

    def close(self) -> None:
        """Flush and close the file.

        Raises:
            MachineError: as ``write``.
        """
        with self._errors(io.DEFAULT_BUFFER_SIZE):
            self._file.close()

    def _errors(self, needed: int) -> contextlib.AbstractContextManager[None]:
        return disk_errors(self._path or STDOUT, needed, CHOOSE_ANOTHER, self._retry)


@contextlib.contextmanager
def open_output(
    name: str | None,
    signature: Signature,
    resume: bool,
    force: bool,
    line_number: LineNumber | None,
    complete: Callable[[Path], None] | None = None,
) -> Iterator[tuple[Output, int]]:
    """Open standard output, or a locked file that gets its name when it is complete.

    After an error, finished lines stay in the partial output. The other arguments are those of
    ``prepare_partial``.

    Args:
        force: replace a file of this name, even if another program creates it meanwhile.
        complete: makes the output from the complete partial output; None = rename it.

    Yields:
        The output, and how many input lines are finished in it.

    Raises:
        UserError: standard output is closed, the output cannot be resumed, or another program has
            created a file of its name meanwhile.
        MachineError: the output cannot be written.
    """
    if name is None:
        if sys.stdout is None:
            raise UserError("standard output is closed", fix="name a file with --output")
        yield Output(sys.stdout.buffer, None, AGAIN), 0
        return
    partial = partial_path(Path(name))
    finished = prepare_partial(partial, signature, resume, line_number)
    if is_resumable(signature):
        flag, effect = "--resume instead of --force" if force else "--resume", "continues"
    else:
        flag, effect = "--force", "starts over"
    with disk_errors(partial, elsewhere=CHOOSE_ANOTHER):
        file = open(partial, "ab")  # noqa: SIM115, closed below
    output = Output(file, partial, f"run the same command with {flag}")
    try:
        try:
            yield output, finished
        finally:
            output.close()
        if complete is None:
            if not force and os.path.exists(name):
                raise UserError(
                    "another program created this file while nmt-translate was running",
                    at=name,
                    fix="rename or delete it, then "
                    + (RESUME if is_resumable(signature) else f"rename {partial} to {name}"),
                )
            if is_resumable(signature):
                store_hash(partial, signature)
            os.replace(partial, name)
        else:
            complete(partial)
    except BaseException:
        if partial.exists() and partial.stat().st_size:
            print(
                f"note: finished lines are in {partial}; the same command with {flag} {effect}",
                file=sys.stderr,
            )
        else:
            partial.unlink(missing_ok=True)
            delete_signature(partial)
        raise
    delete_signature(partial)
