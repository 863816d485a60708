"""The partial output of nmt-translate, and what is needed to continue it.

While nmt-translate writes OUT, the file is named OUT.part. OUT.part.json holds its signature: the
model, the input and every option that changes a line. ``--resume`` requires the same signature. A
file with one of these names but without a signature is not from nmt-translate and is never changed.
Before OUT.part is renamed, its hash is added to the signature. So the same command recognizes OUT
if a kill has left the signature.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import nmt
from nmt.errors import UserError
from nmt.runtime.files import file_digest, read_text, write_atomic

Signature: TypeAlias = dict[str, Any]
LineNumber: TypeAlias = Callable[[bytes], int]  # line of output -> line of input, from 0
CHOOSE_ANOTHER = "choose another path"
_OUTPUT = "output"  # key of the signature: hash of the complete output


def partial_path(output: Path) -> Path:
    """Return the name of the output until it is complete."""
    return output.with_name(output.name + ".part")


def signature_path(partial: Path) -> Path:
    """Return the file with the signature of a partial output."""
    return partial.with_name(partial.name + ".json")


def file_signature(model: str, device: str, options: Signature, *inputs: str) -> Signature:
    """Return the signature of an output that can be resumed.

    Args:
        model: hash of the model.
        device: type of device; the last digits of scores depend on it.
        options: those that change a line.
        inputs: names of regular files.
    """
    hashes = [file_digest(Path(name)) for name in inputs]
    signature = {"version": nmt.__version__, "model": model, "device": device, "input": hashes}
    return dict(json.loads(json.dumps({**signature, **options})))  # as it will be read again


def stream_signature() -> Signature:
    """Return the signature of an output whose input, such as a pipe, cannot be read again."""
    return {"version": nmt.__version__, "input": None}


def is_resumable(signature: Signature) -> bool:
    """Return whether the input can be read again."""
    return signature["input"] is not None


def has_resumable_lines(partial: Path) -> bool:
    """Return whether a partial output has lines of a translation that can be resumed."""
    signature = _read_signature(signature_path(partial))
    resumable = signature is not None and is_resumable(signature)
    return resumable and partial.is_file() and partial.stat().st_size > 0


def check_partial(partial: Path, resume: bool, force: bool) -> None:
    """Refuse to overwrite an existing partial output without permission.

    Args:
        partial: the file, which may be missing.
        resume: continue it.
        force: start over, although it holds translated lines.

    Raises:
        UserError: nmt-translate did not write the file, or it holds lines and the flags do not say
            what to do with them.
    """
    signature = _read_signature(signature_path(partial))
    foreign = [partial, signature_path(partial)] if signature is None else []
    if partial.is_symlink() or not partial.is_file():
        foreign.append(partial)
    for path in foreign:
        if os.path.lexists(path):
            raise UserError(
                "nmt-translate did not write this file, but needs its name for the unfinished "
                "output",
                at=str(path),
                fix=f"rename the file, or {CHOOSE_ANOTHER}",
            )
    if signature is None or not partial.exists() or not partial.stat().st_size:
        return
    if resume and not is_resumable(signature):
        raise UserError(
            "cannot be resumed, because its input was a pipe or standard input",
            at=str(partial),
            fix="rename it to keep its lines, or replace --resume with --force to start over",
        )
    if not resume and not force:
        raise UserError(
            "contains the lines of an interrupted translation",
            at=str(partial),
            fix="add --resume to continue it, or --force to start over"
            if is_resumable(signature)
            else "rename it to keep its lines, or add --force to start over",
        )


def prepare_partial(
    partial: Path, signature: Signature, resume: bool, line_number: LineNumber | None
) -> int:
    """Prepare a partial output that ``check_partial`` accepted, for appending.

    An incomplete last line is removed. If an input line can have several output lines, those of
    the last input line are removed too, because some may be missing.

    Args:
        partial: the file, which may be missing.
        signature: of this command.
        resume: continue the file; otherwise start over.
        line_number: returns the input line that an output line belongs to; None = line n of the
            output belongs to line n of the input.

    Returns:
        The number of finished input lines.

    Raises:
        UserError: the signature of the file differs from this one.
    """
    stored = _read_signature(signature_path(partial)) if resume and partial.exists() else None
    finished = 0
    if stored is not None:
        stored.pop(_OUTPUT, None)
        _require_equal(partial, stored, signature)
        finished = _truncate(partial, line_number)
    else:  # delete the lines first: they must never stand next to another signature
        partial.unlink(missing_ok=True)
    text = json.dumps(signature, indent=1) + "\n"
    write_atomic(signature_path(partial), text, CHOOSE_ANOTHER)
    return finished


def store_hash(partial: Path, signature: Signature) -> None:
    """Add the hash of a complete partial output to its signature."""
    values = {**signature, _OUTPUT: file_digest(partial)}
    write_atomic(signature_path(partial), json.dumps(values, indent=1) + "\n", CHOOSE_ANOTHER)


def signature_of_output(output: Path) -> Signature | None:
    """Return the signature that a kill has left next to a complete output.

    None if there is none, or if it belongs to another file.
    """
    partial = partial_path(output)
    stored = _read_signature(signature_path(partial)) or {}
    digest = stored.pop(_OUTPUT, None)
    if digest is None or os.path.lexists(partial) or not output.is_file():
        return None
    return stored if file_digest(output) == digest else None


def delete_signature(partial: Path) -> None:
    """Delete the signature, once the output is complete or empty."""
    signature_path(partial).unlink(missing_ok=True)


def _truncate(partial: Path, line_number: LineNumber | None) -> int:
    """Truncate the file after its last finished input line; return how many are finished."""
    with open(partial, "rb+") as file:
        finished, end = 0, 0
        for line in _complete_lines(file):
            if line_number is None:
                finished, end = finished + 1, end + len(line)
            elif (number := line_number(line)) != finished:  # so the lines before are finished
                finished, end = number, file.tell() - len(line)
        file.truncate(end)
    return finished


def _complete_lines(file: BinaryIO) -> Iterator[bytes]:
    while (line := file.readline()).endswith(b"\n"):
        yield line


def _require_equal(partial: Path, stored: Signature, current: Signature) -> None:
    differences = [
        f"another {name.replace('_', ' ')}"
        if name in ("model", "input", "reverse_model")
        else f"{name.replace('_', '-')} {stored.get(name)} (now {current.get(name)})"
        for name in {**stored, **current}
        if stored.get(name) != current.get(name)
    ]
    if differences:
        raise UserError(
            f"cannot be resumed, because it was started with {', '.join(differences)}",
            at=str(partial),
            fix="use the same model, input and options, or replace --resume with --force to start "
            "over",
        )


def _read_signature(path: Path) -> Signature | None:
    """Return the stored signature, None if there is none from nmt-translate."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        values = json.loads(read_text(path))
        return (
            values if isinstance(values, dict) and {"version", "input"} <= values.keys() else None
        )
    return None
