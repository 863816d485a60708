"""Score with an external command, such as COMET in its own environment.

COMET needs its own versions of torch and transformers, so it is not a dependency of this toolkit.
Any program that fulfills the contract of ``ExternalMetric`` can be used.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nmt.data.text import quantity
from nmt.errors import RunError, UserError

TIMEOUT = 3600.0  # seconds to score one system, unless the user says otherwise

PLACEHOLDERS = ("{src}", "{hyp}", "{ref}")
EXAMPLE = "comet-score -s {src} -t {hyp} -r {ref} --quiet --only_system"
# also nan and inf, so that no number before them is taken for the score
_NUMBER = re.compile(
    r"(?<![\w.])[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|nan|inf|infinity)(?!\w|\.\w)",
    re.IGNORECASE,
)
_STDERR_LINES = 5
_FIX_PROGRAM = "give the complete path of the program, such as comet-env/bin/comet-score"


@dataclass(frozen=True)
class ExternalMetric:
    """A command that scores one system.

    The command is split into words as a shell does it, and runs without a shell. In its words,
    ``{src}``, ``{hyp}`` and ``{ref}`` become the paths of UTF-8 text files with one segment a line,
    all with the same number of lines, as plain text. A metric without reference leaves ``{ref}``
    out. The score is the last number of the last line that is not blank on standard output; the
    exit status must be 0.

    Attributes:
        command: with the placeholders.
        timeout: seconds that it may take; then it is ended, with the processes that it started.
    """

    command: str
    timeout: float = TIMEOUT

    def check(self) -> None:
        """Check the command before anything is scored.

        Raises:
            UserError: it has unmatched quotes, no {src} or {hyp}, or its program does not exist.
        """
        try:
            words = shlex.split(self.command)
        except ValueError as error:
            raise UserError(
                f"{self.command}: {str(error).lower()}", at="--comet-command", fix="close the quote"
            ) from error
        missing = [p for p in PLACEHOLDERS[:2] if not any(p in word for word in words)]
        if missing:
            raise UserError(
                f"{self.command!r} does not contain {' and '.join(missing)}",
                at="--comet-command",
                fix=f'write the command with its files, such as "{EXAMPLE}"',
            )
        if shutil.which(words[0]) is None:
            raise UserError(
                f"{words[0]} is not a program that can be run",
                at="--comet-command",
                fix=_FIX_PROGRAM,
            )

    def score(self, sources: Sequence[str], hyps: Sequence[str], refs: Sequence[str]) -> float:
        """Return the command's score of a system.

        Raises:
            UserError: the program does not exist or cannot be run.
            RunError: it failed, did not end in time, or printed no number.
        """
        with tempfile.TemporaryDirectory(prefix="nmt-score-") as folder:
            files = {}
            for name, lines in zip(PLACEHOLDERS, (sources, hyps, refs), strict=True):
                path = Path(folder) / name.strip("{}")
                # a carriage return would be a line end to programs in Python
                text = "".join(line.replace("\r", " ") + "\n" for line in lines)
                path.write_bytes(text.encode())
                files[name] = str(path)
            output = self._run(files, Path(folder) / "stderr")
        lines = [line for line in output.splitlines() if line.strip()]
        numbers = _NUMBER.findall(lines[-1]) if lines else []
        if not numbers or not math.isfinite(float(numbers[-1])):
            raise RunError(
                "the last line of its output has no number"
                + (f": {lines[-1][:80]!r}" if lines else "; it printed nothing"),
                at=self.command,
                fix="use a command whose last line of standard output ends with the score",
            )
        return float(numbers[-1])

    def _run(self, files: dict[str, str], errors: Path) -> str:
        words = shlex.split(self.command)
        for name, path in files.items():
            words = [word.replace(name, path) for word in words]
        with errors.open("wb") as stderr:
            try:
                process = subprocess.Popen(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    start_new_session=True,  # so that its worker processes can be ended with it
                )
            except OSError as error:
                raise UserError(
                    f"{words[0]} cannot be run: {error.strerror}",
                    at="--comet-command",
                    fix=_FIX_PROGRAM,
                ) from error
            try:
                output, _ = process.communicate(timeout=self.timeout)
            except subprocess.TimeoutExpired as error:
                raise RunError(
                    f"did not end within {quantity(self.timeout, 'second', 'g')}",
                    at=self.command,
                    fix="pass a larger --comet-timeout, or use a GPU",
                ) from error
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        if process.returncode:
            text = errors.read_text(encoding="utf-8", errors="replace")
            last = [line for line in text.splitlines() if line.strip()][-_STDERR_LINES:]
            raise RunError(
                "\n  ".join([f"failed with exit status {process.returncode}:", *last]),
                at=self.command,
                fix="run the command by itself on small files to find the cause",
            )
        return output.decode("utf-8", errors="replace")
