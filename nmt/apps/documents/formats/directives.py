"""Directives of format strings, such as %d, by the flags of gettext, as ``msgfmt -c`` checks them.

Each language has a grammar of its own. Here, a directive is what any of the languages of its kind
reads as one, so texts with the same directives here are also accepted by msgfmt.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

_SIZE = r"(?:\*(?:\d+\$)?|\d+)?(?:\.(?:\*(?:\d+\$)?|\d*))?"
_LENGTH = r"(?:hh|ll|wf?\d+|[hlLqjztTZv])?"
_C = rf"%(?:\d+\$)?[-+ #0'I]*{_SIZE}(?:<\w+>|{_LENGTH}[A-Za-z@%])|%"
_FLAGS = r"(?:'[^%\n]|[-+ #0,_^!(])*"
_ARGUMENT = rf"\{{[^{{}}\s]*\}}|[-+ #0]*(?:\([^()\n]*\)|<\w+>|<|\[\d+\]|\d+[$:])?{_FLAGS}"
_SCRIPT = rf"%(?:{_ARGUMENT}{_SIZE}(?:\[\d+\])?{_LENGTH}[A-Za-z@%])|%"  # of Python, Ruby, PHP, Go
_NUMBERED = r"%L?(?:\d{1,2}|n)"
_BRACES = r"\{\{|\}\}|\{[^{}]*\}|[{}]"
_SHELL = r"\$(?:\{[^{}]*\}|\w+)|[$`]"
_TILDE = r"~(?:'.|[-+\d,v#:@])*(?:/[^/\n]*/|\S)|~"
# flag without -format -> its directives; those of the others are as in _SCRIPT
_DIRECTIVES = {
    **dict.fromkeys(["c", "c++", "objc", "gcc-internal", "gfc-internal"], _C),
    **dict.fromkeys(["elisp", "librep", "awk", "lua", "sh-printf"], _C),
    **dict.fromkeys(["qt", "qt-plural", "kde", "kde-kuit"], _NUMBERED),
    **dict.fromkeys(["smalltalk", "ycp"], r"%\d|%%|%"),
    **dict.fromkeys(["python-brace", "csharp", "java", "rust"], _BRACES),
    **dict.fromkeys(["lisp", "scheme"], _TILDE),
    "boost": rf"%\|[^|\s]*\||%\d+%|{_C}",
    "perl-brace": r"\{\w+\}",
    "sh": _SHELL,
}
_ESCAPES = {"{{", "}}", "~~", "~%", "%%"}
# a directive that names its argument may be anywhere
_NAMED = re.compile(r"%(?:\d+[$%:]|[-+ #0]*[({\[<]|L?\d+$|n$|\|\d+\$)|\{\s*\w|\$.")
_NUMBER = re.compile(r"%\d+[$%:]")
# formats of which a rare plural form must have all directives, too
_STRICT = {"gfc-internal", "kde", "kde-kuit", "lisp", "lua", "python", "qt", "ruby", "scheme"}
_QUOTED = re.compile(r"'[^']*'?")  # of Java


class Directives(NamedTuple):
    """The directives of a text.

    Attributes:
        ordered: those that take the next argument.
        named: those that name it.
    """

    ordered: list[str]
    named: set[str]


def formats_of(flags: Collection[str]) -> list[str]:
    """Return the formats that the flags of a message name, such as ``c``."""
    names = (flag.removeprefix("possible-") for flag in flags if flag.endswith("-format"))
    kinds = (name.removesuffix("-format") for name in names)
    return [name for name in kinds if not name.startswith(("no-", "impossible-"))]


def pattern_of(flags: Collection[str]) -> str:
    """Return the pattern of the directives of a message; empty if no flag names a format."""
    return "|".join(dict.fromkeys(_DIRECTIVES.get(name, _SCRIPT) for name in formats_of(flags)))


def to_keep(text: str, flags: Collection[str]) -> Iterator[str]:
    """Yield the directives of a text that are no part of a word, as 100% sure has one."""
    pattern = pattern_of(flags)
    for found in re.finditer(pattern, text) if pattern else ():
        glued = (
            re.search(r" [^\W\d_]+$", found[0]) and text[found.end() : found.end() + 1].isalpha()
        )
        if len(found[0]) > 1 and not glued and found[0] not in _ESCAPES:
            yield found[0]


def changed(
    source: str, translation: str, flags: Collection[str], may_lack: bool = False
) -> list[str]:
    """Return the directives of a message that differ from its source.

    Args:
        may_lack: directives at the end of the text, or that name their argument, may be missing.
    """
    found: list[str] = []
    for name in formats_of(flags):
        old, new = (_directives(text, name) for text in (source, translation))
        lost, expected = new.named ^ old.named, old.ordered
        if may_lack and not (old.ordered and name in _STRICT):
            expected = old.ordered[: len(new.ordered)]
        if (
            may_lack
            and name not in _STRICT - {"python", "ruby"}
            and not any(map(_NUMBER.match, new.named))
        ):
            lost = new.named - old.named
        found += sorted(lost)
        if new.ordered != expected:
            found += [part for part in old.ordered if part not in new.ordered]
            found += [part for part in new.ordered if part not in old.ordered]
            if not found:
                found.append(" ".join(old.ordered))  # in another order or number
    return list(dict.fromkeys(found))


def _directives(text: str, name: str) -> Directives:
    if name == "java":
        text = _QUOTED.sub("", text)
    found = re.findall(_DIRECTIVES.get(name, _SCRIPT), text)
    parts = [part for part in found if part not in _ESCAPES]
    named = {part for part in parts if _NAMED.match(part)}
    return Directives([part for part in parts if part not in named], named)
