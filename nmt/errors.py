"""Errors with a message for the user: what is wrong, where, and the next step.

Each class has the exit code that the commands end with.
"""

from __future__ import annotations

import re
import signal

# they move the cursor, color the terminal or reverse the direction of what follows
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Return a text in which control characters except line ends are escaped.

    Names and values in messages come from files that another person may have made.
    """
    return _UNPRINTABLE.sub(lambda match: ascii(match[0])[1:-1], text)


class NmtError(Exception):
    """An error that the commands print without a traceback.

    Args:
        what: what is wrong and what is allowed, in one sentence.
        at: the place: ``file:line``, ``file:line:column``, a key or a flag.
        fix: the next step, as an imperative.
    """

    exit_code = 1

    def __init__(self, what: str, *, at: str | None = None, fix: str | None = None) -> None:
        self.what, self.at, self.fix = what, at, fix
        super().__init__(str(self))

    def __str__(self) -> str:
        text = f"{self.at}: {self.what}" if self.at else self.what
        return printable(f"{text}\n  -> {self.fix}" if self.fix else text)

    @property
    def summary(self) -> str:
        """Return the place and what is wrong in one line, without the fix."""
        text = f"{self.at}: {self.what}" if self.at else self.what
        return printable(" ".join(text.split()))


class UserError(NmtError):
    """The recipe, the input or an argument is wrong."""

    exit_code = 2


class RunError(NmtError):
    """The run failed; a training can be resumed."""

    exit_code = 3


class Diverged(RunError):
    """The loss, the gradients or the scores of a model in training became too large or NaN."""


class MachineError(NmtError):
    """An environment error: disk, device, permission, or a run folder in use."""

    exit_code = 4


def install_fix(extra: str = "") -> str:
    """Return the fix of a missing package: the command that installs it together with nmt.

    Args:
        extra: of setup.cfg, which has the package; empty = nmt always needs it.
    """
    target = f'".[{extra}]"' if extra else "."
    return f"in the folder of nmt, run: pip install -c constraints.txt -e {target}"


class Terminated(BaseException):
    """A signal other than Ctrl-C ended the command after it saved its work.

    Not a subclass of Exception, like KeyboardInterrupt: a signal handler may raise it inside a
    library that catches every Exception and continues.

    Args:
        signal_name: the signal.
    """

    def __init__(self, signal_name: str = "SIGTERM") -> None:
        super().__init__(signal_name)
        self.exit_code = 128 + signal.Signals[signal_name]
