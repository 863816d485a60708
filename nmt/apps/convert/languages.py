"""Find the language of a model that a user means: ``sw``, ``swh`` or ``swh_Latn``."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable

from nmt.errors import UserError

SHOWN = 12  # languages that an error lists


def match_language(wanted: str, codes: Iterable[str], at: str) -> str:
    """Return the code of a model that a user means.

    The same code counts first, then another form of it, then the language without its country, then
    the macrolanguage: ``sw`` is Swahili, and so is ``swh``, a part of it. A script that the user
    names must be that of the code.

    Raises:
        UserError: none of the codes fits, or several do.
    """
    known = list(codes)
    forms: tuple[Callable[[str], str], ...] = (str, _same_form, _language, _macrolanguage)
    for form in forms:
        found = [code for code in known if form(code) == form(wanted)]
        if form in forms[2:]:
            found = [
                c
                for c in found
                if "" in (scripts := {_script(wanted), _script(c)}) or len(scripts) == 1
            ]
        if len(found) == 1:
            return found[0]
        if found:
            what = f"{wanted} can be several languages of this model: {', '.join(found)}"
            fix = "give one of these"
            raise UserError(what, at=at, fix=fix)
    close = difflib.get_close_matches(wanted, known, SHOWN, 0.6)
    near = [code for code in known if _language(code)[:2] == wanted[:2].lower()]
    shown = list(dict.fromkeys([*close, *near]))
    raise UserError(
        f"the model has no language {wanted}"
        + (f"; near ones of its {len(known):,} languages: {', '.join(shown)}" if shown else ""),
        at=at,
        fix=f"give a language that the model has: {', '.join(known)}",
    )


def _same_form(code: str) -> str:
    return code.lower().replace("-", "_")


def _language(code: str) -> str:
    """Return the language of a code, in its shortest form; a part of a macrolanguage stays."""
    return _standard(code, macro=False)


def _macrolanguage(code: str) -> str:
    return _standard(code, macro=True)


def _standard(code: str, macro: bool) -> str:
    from langcodes import standardize_tag  # here: the import is slow

    first = re.split("[-_]", code)[0].lower()
    try:
        return standardize_tag(first, macro=macro)
    except ValueError:
        return first


def _script(code: str) -> str:
    """Return the script of a code such as swh_Latn, empty if it has none."""
    parts = re.split("[-_]", code)[1:]
    return next((part.lower() for part in parts if len(part) == 4 and part.isalpha()), "")
