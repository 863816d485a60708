"""Score translations with external commands: COMET, AfriCOMET, MetricX, each in its environment.

Such metrics need their own versions of torch and transformers, so they are not dependencies of this
toolkit. Any program that fulfills the contract of ``ExternalMetric`` can be used.
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

from nmt.errors import RunError, UserError
from nmt.runtime.words import quantity

SRC, HYP, REF = PLACEHOLDERS = ("{src}", "{hyp}", "{ref}")
EXAMPLE = "comet-score -s {src} -t {hyp} -r {ref} --quiet"
# at the end of a line; also nan and inf, so that no number before them is taken for the score
_SCORE = re.compile(
    r"(?<![\w.])([-+]?(?:(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|nan|inf|infinity))\W*$", re.IGNORECASE
)
_NAME = re.compile(r"\w[\w.+-]*")
_STDERR_LINES = 5
_FIX_PROGRAM = "pass the complete path of the program, such as comet-env/bin/comet-score"


@dataclass(frozen=True)
class ExternalMetric:
    """A command that scores the lines of one system.

    The command is split into words as a shell does it, and runs without a shell. In its words,
    ``{src}``, ``{hyp}`` and ``{ref}`` become the paths of UTF-8 text files with one segment a line,
    all with the same number of lines, as plain text. A metric without reference leaves ``{ref}``
    out. A line of standard output that ends with a number is a score: one for each segment, in
    their order, and perhaps that of the system after them; or that of the system only. The exit
    status must be 0.
    """

    name: str
    command: str

    @property
    def needs_source(self) -> bool:
        """Whether the command reads the source."""
        return SRC in self.command

    def check(self, others: Sequence[str]) -> None:
        """Check the name, which no other metric may have, and the command; raise UserError."""
        if not _NAME.fullmatch(self.name) or self.name in others:
            what = "is the name of another metric" if self.name in others else "is not a name"
            fix = "choose a name of letters and digits, such as comet22"
            raise UserError(f"{self.name!r} {what}", at="--metric", fix=fix)
        try:
            words = shlex.split(self.command)
        except ValueError as error:
            raise UserError(
                f"{self.command}: {str(error).lower()}", at="--metric", fix="close the quote"
            ) from error
        for choices in ((HYP,), (SRC, REF)):
            if not any(name in word for word in words for name in choices):
                raise UserError(
                    f"{self.command!r} does not contain {' or '.join(choices)}",
                    at="--metric",
                    fix=f'write the command with its files, such as "{EXAMPLE}"',
                )
        if shutil.which(words[0]) is None:
            raise UserError(
                f"{words[0]} is not a program that can be run", at="--metric", fix=_FIX_PROGRAM
            )

    def score(
        self, sources: Sequence[str], hyps: Sequence[str], refs: Sequence[str]
    ) -> list[float]:
        """Return the command's score of each line, or one score if it prints only the system's.

        Raises:
            UserError: the program does not exist or cannot be run.
            RunError: it failed, or did not print a finite score for each line.
        """
        texts = {SRC: sources, HYP: hyps, REF: refs}
        with tempfile.TemporaryDirectory(prefix="nmt-score-") as folder:
            files = {}
            for name in (name for name in PLACEHOLDERS if name in self.command):
                path = Path(folder) / name.strip("{}")
                # a carriage return would be a line end to programs in Python
                text = "".join(line.replace("\r", " ") + "\n" for line in texts[name])
                path.write_bytes(text.encode())
                files[name] = str(path)
            output = self._run(files, Path(folder) / "stderr")
        lines = [line for line in output.splitlines() if line.strip()]
        scored = [(line, float(match[1])) for line in lines if (match := _SCORE.search(line))]
        if len(scored) == len(hyps) + 1:
            del scored[-1]  # of the system
        if len(scored) not in (1, len(hyps)):
            last = f"; its last line is {lines[-1][:80]!r}" if lines else ""
            scores = quantity(len(scored), "score")
            raise RunError(
                f"printed {scores} for {quantity(len(hyps), 'line')}{last}",
                at=self.command,
                fix="use a command whose standard output has a line with a score at its end for "
                "each line of {hyp}, or only one such line",
            )
        for number, (line, value) in enumerate(scored, 1):
            if not math.isfinite(value):
                raise RunError(
                    f"score {number} is not a finite number: {line[:80]!r}",
                    at=self.command,
                    fix="run the command by itself on this line to find the cause",
                )
        return [value for _, value in scored]

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
                    at="--metric",
                    fix=_FIX_PROGRAM,
                ) from error
            try:
                output, _ = process.communicate()
            finally:
                if process.poll() is None:  # Ctrl-C
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
