"""An output that was cut short goes on where it stopped.

While OUT is written it is OUT.part, and OUT.part.json says what makes it: the model, the input, and
every option that changes a line. A resumed command must have the same, or it is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import nmt
from nmt.errors import UserError

Facts = dict[str, Any]


def unfinished(output: Path) -> Path:
    """The output's name until it is whole."""
    return output.with_name(output.name + ".part")


def facts_file(part: Path) -> Path:
    """What the unfinished output is made of."""
    return part.with_name(part.name + ".json")


def facts_of(model: str, device: str, options: Facts, *inputs: str) -> Facts:
    """What decides the lines of an output.

    Args:
        model: fingerprint of the model.
        device: numbers differ between devices in their last digits.
        options: those that change a line.
        inputs: names of regular files.
    """
    texts = [_digest(Path(name)) for name in inputs]
    facts = {"version": nmt.__version__, "model": model, "device": device, "input": texts}
    return dict(json.loads(json.dumps({**facts, **options})))  # as it is read again


def begin(
    part: Path, facts: Facts | None, resume: bool, force: bool, line_of: Callable[[bytes], int]
) -> int:
    """Prepare the unfinished output for writing at its end.

    What was only half written is cut off; so are the last line's hypotheses, which may not all be
    there when a line has several.

    Args:
        facts: of this command; None if it cannot be resumed.
        resume: go on; otherwise start over, which ``force`` alone may do to what can go on.
        line_of: the input line, from 0, that an output line belongs to; -1 = there is one each.

    Returns:
        Input lines that are finished.

    Raises:
        UserError: it was begun with something else, or it can go on and nobody said what to do.
    """
    before = _read(facts_file(part)) if part.exists() else None
    done = 0
    if before is not None and not resume and not force and part.stat().st_size:
        raise UserError(
            "a translation that was cut short is there",
            at=str(part),
            fix="--resume goes on with it, --force starts over",
        )
    if resume and before is not None:
        assert facts is not None
        _require_same(part, before, facts)
        done = _cut(part, line_of)
    else:
        part.write_bytes(b"")
    if facts is None:
        facts_file(part).unlink(missing_ok=True)
    else:
        facts_file(part).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return done


def end(part: Path) -> None:
    """Forget what the output was made of, once it is whole or empty."""
    facts_file(part).unlink(missing_ok=True)


def _cut(part: Path, line_of: Callable[[bytes], int]) -> int:
    """Cut the file behind its last finished input line; returns how many there are."""
    with open(part, "rb+") as file:
        done, keep = 0, 0
        for line in _whole_lines(file):
            number = line_of(line)
            if number < 0:
                done, keep = done + 1, keep + len(line)
            elif number != done:  # the lines before are finished
                done, keep = number, file.tell() - len(line)
        file.truncate(keep)
    return done


def _whole_lines(file: BinaryIO) -> Iterator[bytes]:
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
            fix="give what it was begun with, or --force without --resume to start over",
        )


def _read(path: Path) -> Facts | None:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        facts = json.loads(path.read_text(encoding="utf-8"))
        return facts if isinstance(facts, dict) else None
    return None


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
