"""What the translation of one line has to obey: how it starts, what it says and does not say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from nmt.errors import UserError

NAMES = ("prefix", "require", "forbid")


@dataclass(frozen=True)
class LineConstraints:
    """Of one line.

    Attributes:
        prefix: text that the translation starts with, blank = any.
        require, forbid: phrases that it says, and does not say.
    """

    prefix: str = ""
    require: Sequence[str] = ()
    forbid: Sequence[str] = ()


UNCONSTRAINED = LineConstraints()


def require_items(form: str, **given: object) -> None:
    """Refuse a text where several are expected: Python takes it for a list of its characters.

    Args:
        form: how the arguments, by name, are given.

    Raises:
        TypeError: one of them is a text.
    """
    for name, value in given.items():
        if isinstance(value, str | bytes):
            raise TypeError(f"{name} is a {type(value).__name__}; give a list: {form}")


def with_constraints(
    lines: Iterable[str],
    prefix: Iterable[str] | None,
    require: Iterable[Sequence[str]] | None,
    forbid: Iterable[Sequence[str]] | None,
) -> Iterator[tuple[str, LineConstraints]]:
    """Each line with its wish.

    Raises:
        UserError: one of the three has fewer items than there are lines, or more.
    """
    given = {
        name: iter(values)
        for name, values in zip(NAMES, (prefix, require, forbid), strict=True)
        if values is not None
    }
    number = 0
    for number, line in enumerate(lines, 1):
        wish = {}
        for name, values in given.items():
            try:
                wish[name] = next(values)
            except StopIteration:
                raise _uneven(name, f"ends before line {number} of the input") from None
            if name != "prefix":
                require_items(f"{name}=[[phrase]]", **{name: wish[name]})
        yield line, LineConstraints(**wish) if wish else UNCONSTRAINED  # type: ignore[arg-type]
    for name, values in given.items():
        if next(values, None) is not None:
            raise _uneven(name, f"has more than the {number} lines of the input")


def _uneven(name: str, what: str) -> UserError:
    return UserError(f"{name} {what}", fix=f"give {name} one item a line, blank for none")
