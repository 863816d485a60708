"""The unfinished output of nmt-translate, and what it takes to continue it.

While OUT is written it is OUT.part, and OUT.part.json says what makes it: the model, the input, and
every option that changes a line. A resumed command must have the same, or it is refused. A file of
either name without these facts belongs to somebody else and is never touched.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import nmt
from nmt.errors import UserError
from nmt.runtime.files import write_atomic

Facts = dict[str, Any]
ELSEWHERE = "choose another --output"


def unfinished(output: Path) -> Path:
    """Return the output's name until it is complete."""
    return output.with_name(output.name + ".part")


def facts_file(part: Path) -> Path:
    """Return the file that says what the unfinished output is made of."""
    return part.with_name(part.name + ".json")


def facts_of(model: str, device: str, options: Facts, *inputs: str) -> Facts:
    """Return what decides the lines of an output.

    Args:
        model: fingerprint of the model.
        device: numbers differ between devices in their last digits.
        options: those that change a line.
        inputs: names of regular files.
    """
    texts = [_digest(Path(name)) for name in inputs]
    facts = {"version": nmt.__version__, "model": model, "device": device, "input": texts}
    return dict(json.loads(json.dumps({**facts, **options})))  # as it is read again


def facts_of_stream() -> Facts:
    """Return the facts of an output whose input can be read only once, as a pipe's."""
    return {"version": nmt.__version__, "input": None}


def check_unfinished(part: Path, resume: bool, force: bool) -> None:
    """Refuse to lose what OUT.part holds.

    Args:
        resume: continue it.
        force: start over, although it holds translated lines.

    Raises:
        UserError: it is a file of somebody else, or holds lines and neither of the two is given.
    """
    facts = _read(facts_file(part))
    theirs = [part, facts_file(part)] if facts is None else []
    if part.is_symlink() or not part.is_file():
        theirs.append(part)
    for path in theirs:
        if os.path.lexists(path):
            raise UserError(
                "nmt-translate did not write this file, but needs its name until the output is "
                "complete",
                at=str(path),
                fix="rename it, or choose another --output",
            )
    if facts is None or not part.exists() or not part.stat().st_size:
        return
    if resume and facts["input"] is None:
        raise UserError(
            "cannot be continued: its input was a pipe or standard input",
            at=str(part),
            fix="rename it to keep its lines, or replace --resume by --force to start over",
        )
    if not resume and not force:
        raise UserError(
            "holds the lines of an interrupted translation",
            at=str(part),
            fix="rename it to keep its lines, or give --force to start over"
            if facts["input"] is None
            else "give --resume to continue it, or --force to start over",
        )


def begin(part: Path, facts: Facts, resume: bool, line_of: Callable[[bytes], int]) -> int:
    """Prepare the unfinished output, which ``check_unfinished`` let pass, for writing at its end.

    What was only half written is cut off; so are the last line's hypotheses, which may not all be
    there when a line has several.

    Args:
        facts: of this command.
        resume: continue; otherwise start over.
        line_of: the input line, from 0, that an output line belongs to; -1 = there is one each.

    Returns:
        Input lines that are finished.

    Raises:
        UserError: it was begun with something else.
    """
    before = _read(facts_file(part)) if resume and part.exists() else None
    done = 0
    if before is not None:
        _require_same(part, before, facts)
        done = _cut(part, line_of)
    else:  # first: lines must never stand next to the facts of others
        part.unlink(missing_ok=True)
    write_atomic(facts_file(part), json.dumps(facts, indent=1) + "\n", ELSEWHERE)
    return done


def end(part: Path) -> None:
    """Forget what the output was made of, once it is complete or empty."""
    facts_file(part).unlink(missing_ok=True)


def _cut(part: Path, line_of: Callable[[bytes], int]) -> int:
    """Cut the file behind its last finished input line; return how many there are."""
    with open(part, "rb+") as file:
        done, keep = 0, 0
        for line in _complete_lines(file):
            number = line_of(line)
            if number < 0:
                done, keep = done + 1, keep + len(line)
            elif number != done:  # the lines before are finished
                done, keep = number, file.tell() - len(line)
        file.truncate(keep)
    return done


def _complete_lines(file: BinaryIO) -> Iterator[bytes]:
    while (line := file.readline()).endswith(b"\n"):
        yield line


def _require_same(part: Path, before: Facts, now: Facts) -> None:
    names = {name: name.replace("_", "-") for name in {**before, **now}}
    differ = [
        names[name]
        if name in ("model", "input")
        else f"{names[name]} (was {before.get(name)}, is {now.get(name)})"
        for name in names
        if before.get(name) != now.get(name)
    ]
    if differ:
        raise UserError(
            f"it was begun with another {', '.join(differ)}",
            at=str(part),
            fix="give what it was begun with, or replace --resume by --force to start over",
        )


def _read(path: Path) -> Facts | None:
    """Return the facts, None if there are none that this toolkit wrote."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        facts = json.loads(path.read_text(encoding="utf-8"))
        return facts if isinstance(facts, dict) and {"version", "input"} <= facts.keys() else None
    return None


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
