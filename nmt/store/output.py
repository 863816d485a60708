"""Write translations to standard output, or to a file that gets its name when it is complete.

While a command writes OUT, the file is named OUT.part, and is locked. ``--resume`` continues
after its complete lines, and ``--force`` starts over; without these, its lines are never changed.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import shlex
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, TypeAlias

from nmt.errors import MachineError, UserError
from nmt.runtime.files import AGAIN, RESUME, disk_errors
from nmt.runtime.words import quantity

LineNumber: TypeAlias = Callable[[bytes], int]  # line of output -> line of input, from 0
Write: TypeAlias = Callable[[bytes], None]  # writes lines with their ends
CHOOSE_ANOTHER = "choose another path"
# of a run or a model
SUBFOLDERS = ("checkpoints", "dev", "model", "ctranslate2", "tensorboard", "wandb")
NO_MODEL_FILES = (".html", ".png", ".svg", ".pdf", ".tsv", ".argosmodel")
STDOUT = Path("/dev/stdout")  # for messages; free space is that of the file behind it


# ---------------------------------------------------------------- whether it may be written


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
    partial, lock_path = partial_path(output), output.with_name(f".{output.name}.nmt-lock")
    outputs = [output] if files is None else files
    _check_place([*outputs, partial, lock_path], list(inputs))
    lock = FileLock(lock_path)
    with disk_errors(lock_path, elsewhere=CHOOSE_ANOTHER):
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise MachineError(
                "another command is writing this output",
                at=name,
                fix=f"wait until it ends, or {CHOOSE_ANOTHER}",
            ) from error
    try:
        for path in outputs:
            _check_replaceable(path, force or (resume and files is not None), _has_lines(partial))
        _check_partial(partial, resume, force)
        yield
    finally:
        lock_path.unlink(missing_ok=True)
        lock.release()


def check_output_file(output: Path, force: bool, inputs: Sequence[str | None] = ()) -> None:
    """Check that a file can be written, before computing its content from ``inputs``.

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


def _check_replaceable(output: Path, force: bool, interrupted: bool = False) -> None:
    """Refuse an existing output, unless ``force`` is set and the file may be replaced.

    Args:
        interrupted: next to it are the lines of a translation that --resume continues.
    """
    if not os.path.lexists(output):
        return
    what, fix = "", CHOOSE_ANOTHER
    if not output.is_file():
        what = "is not a regular file"
    elif folder := _model_folder(output):
        what = f"is an existing file of the model in {folder} and must not be replaced"
    elif not force:
        what = "exists already"
        replace = f"{CHOOSE_ANOTHER}, or add --force to replace it"
        fix = f"rename or delete it, then {RESUME}" if interrupted else replace
    if what:
        raise UserError(what, at=str(output), fix=fix)


def _model_folder(output: Path) -> Path | None:
    """Return the run folder or model whose files include the output, else None.

    Its files are those at its top and below SUBFOLDERS, except reports, figures, tables and
    packages; in other folders that a user makes there, anything may be replaced.
    """
    from nmt.store.folder import MODEL_JSON, RunFolder

    if output.suffix.lower() in NO_MODEL_FILES:
        return None
    path = output.parent.resolve() / output.name
    for folder in path.parents:
        parts = path.relative_to(folder).parts
        run = RunFolder(folder)
        own = len(parts) == 1 or parts[0] in SUBFOLDERS
        is_run = run.config_file.is_file() and run.checkpoints_dir.is_dir()
        if own and (is_run or (folder / MODEL_JSON).is_file()):
            return folder
    return None


def _is_same_file(path: Path, name: str | None) -> bool:
    """Return whether ``path`` is the input ``name``, a regular file."""
    with contextlib.suppress(OSError, AttributeError):  # missing file; closed standard input
        status = os.fstat(sys.stdin.fileno()) if name is None else os.stat(name)
        return stat.S_ISREG(status.st_mode) and os.path.samestat(status, path.stat())
    return False


# ---------------------------------------------------------------- the partial output


def partial_path(output: Path) -> Path:
    """Return the name of the output until it is complete."""
    return output.with_name(output.name + ".part")


def _has_lines(partial: Path) -> bool:
    return partial.is_file() and partial.stat().st_size > 0


def _check_partial(partial: Path, resume: bool, force: bool) -> None:
    """Refuse a partial output that is not a regular file, or whose lines would be overwritten
    unasked."""
    if os.path.lexists(partial) and (partial.is_symlink() or not partial.is_file()):
        raise UserError(
            "is not a regular file, but the unfinished output needs its name",
            at=str(partial),
            fix=f"rename the file, or {CHOOSE_ANOTHER}",
        )
    if _has_lines(partial) and not (resume or force):
        raise UserError(
            "contains the lines of an interrupted translation",
            at=str(partial),
            fix="add --resume to continue it, rename it to keep its lines, or add --force to start "
            "over",
        )


def _finished_lines(partial: Path, line_number: LineNumber | None, total: int | None) -> int:
    """Truncate a partial output after its complete lines; return how many input lines they are.

    Raises:
        UserError: the input has fewer lines, or they are no lines of this command.
    """
    try:
        finished = _truncate(partial, line_number)
    except (ValueError, LookupError, TypeError):
        what = "its lines are not those of a command with these options"
    else:
        if total is None or finished <= total:
            return finished
        what = f"it has {quantity(finished, 'line')}, and the input {total:,}"
    raise UserError(
        f"cannot be resumed, because {what}",
        at=str(partial),
        fix="use the same input and options, or replace --resume with --force to start over",
    )


def _truncate(partial: Path, line_number: LineNumber | None) -> int:
    """Truncate the file after its last finished input line; return how many are finished.

    An incomplete last line is removed. If an input line can have several output lines, those of
    the last input line are removed too, because some may be missing.
    """
    with open(partial, "rb+") as file:
        finished, end = 0, 0
        while (line := file.readline()).endswith(b"\n"):
            if line_number is None:
                finished, end = finished + 1, end + len(line)
            elif (number := line_number(line)) != finished:  # so the lines before are finished
                finished, end = number, file.tell() - len(line)
        file.truncate(end)
    return finished


# ---------------------------------------------------------------- writing


@contextlib.contextmanager
def open_output(
    name: str | None,
    resume: bool,
    force: bool,
    line_number: LineNumber | None,
    total: int | None = None,
    complete: Callable[[Path], None] | None = None,
) -> Iterator[tuple[Write, int]]:
    """Open standard output, or the partial output of a locked file.

    Yields a function that writes lines, and the number of finished input lines. The partial output
    becomes the output at the end. After an error, its finished lines stay.

    Args:
        name, resume, force: as in ``locked_output``.
        line_number: returns the input line that an output line belongs to; None = line n of the
            output belongs to line n of the input.
        total: lines of the input; None = it is a pipe, which cannot be read again.
        complete: makes the output from the complete partial output; None = rename it.

    Raises:
        UserError: standard output is closed, the output cannot be resumed, or another program has
            created a file of its name meanwhile.
        MachineError: the output cannot be written.
    """
    if name is None:
        if sys.stdout is None:
            raise UserError("standard output is closed", fix="name a file with --output")
        yield _writer(sys.stdout.buffer, STDOUT, AGAIN), 0
        return
    partial = partial_path(Path(name))
    finished = 0
    if resume and partial.exists():
        finished = _finished_lines(partial, line_number, total)
    flag, effect = "--force", "starts over"
    if total is not None:
        flag, effect = "--resume instead of --force" if force else "--resume", "continues"
    retry = f"run the same command with {flag}"
    errors = functools.partial(disk_errors, partial, io.DEFAULT_BUFFER_SIZE, CHOOSE_ANOTHER, retry)
    with errors():
        file = open(partial, "ab" if finished else "wb")  # noqa: SIM115, closed below
    try:
        try:
            yield _writer(file, partial, retry), finished
        finally:
            with errors():
                file.close()
        if complete is None:
            _give_name(partial, Path(name), total is not None, force)
        else:
            complete(partial)
    except BaseException:
        if _has_lines(partial):
            print(
                f"note: finished lines are in {partial}; the same command with {flag} {effect}",
                file=sys.stderr,
            )
        else:
            partial.unlink(missing_ok=True)
        raise


def _writer(file: BinaryIO, path: Path, retry: str) -> Write:
    def write(lines: bytes) -> None:
        with disk_errors(path, len(lines), CHOOSE_ANOTHER, retry):
            file.write(lines)
            if path == STDOUT:  # its reader may wait
                file.flush()

    return write


def _give_name(partial: Path, output: Path, resumable: bool, force: bool) -> None:
    if not force and output.exists():
        then = RESUME if resumable else f"rename {partial} to {output}"
        raise UserError(
            "another program created this file while its lines were translated",
            at=str(output),
            fix=f"rename or delete it, then {then}",
        )
    os.replace(partial, output)
