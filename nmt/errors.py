"""Errors for people: what is wrong, where, and what to do next. One exit code per kind."""

from __future__ import annotations


class NmtError(Exception):
    """An error whose text a user is meant to read; the commands print it without a traceback.

    Args:
        what: what is wrong and what is allowed, one sentence.
        at: where: ``file:line``, ``file:line:column`` or a key path.
        fix: the next step, as an imperative.
    """

    exit_code = 1

    def __init__(self, what: str, *, at: str | None = None, fix: str | None = None) -> None:
        self.what, self.at, self.fix = what, at, fix
        super().__init__(str(self))

    def __str__(self) -> str:
        text = f"{self.at}: {self.what}" if self.at else self.what
        return f"{text}\n  -> {self.fix}" if self.fix else text


class UserError(NmtError):
    """The recipe, the input or the command line is wrong; found before work is done."""

    exit_code = 2


class RunError(NmtError):
    """A run failed, and can be resumed."""

    exit_code = 3


class MachineError(NmtError):
    """The environment is to blame: disk, permission, device, a run folder in use."""

    exit_code = 4


class Terminated(BaseException):
    """A signal ended the command after it saved its work; the exit code is 143.

    No Exception, as KeyboardInterrupt is none: a signal handler may raise it inside of a library
    that goes on after any Exception.
    """

    exit_code = 143
