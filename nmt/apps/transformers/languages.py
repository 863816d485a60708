"""Match the user's language code with a model's: ``sw``, ``swh`` or ``swh_Latn``."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Iterable

from nmt.errors import UserError

SHOWN = 12  # languages that an error lists
_OWN_CODES = {"ns": "nso"}  # M2M-100's for Northern Sotho


def fitting(wanted: str, codes: Iterable[str]) -> list[str]:
    """Return the codes of a model that match the user's.

    The same code counts first, then another form of it, then the language without its country, then
    the usual code of a macrolanguage: ``sw`` is Swahili, and so is ``swh``, a part of it. At last,
    a macrolanguage stands for its parts, and for a part: ``ps`` for ``pbt``, ``no`` for ``nb``. A
    script that the user names must be that of the code.
    """
    known = list(codes)
    fits: tuple[Callable[[str, str], bool], ...] = (
        lambda code, other: code == other,
        lambda code, other: _same_form(code) == _same_form(other),
        lambda code, other: _language(code) == _language(other) and _same_script(code, other),
        lambda code, other: _standard(code) == _standard(other) and _same_script(code, other),
        lambda code, other: (
            (_is_part(code, other) or _is_part(other, code)) and _same_script(code, other)
        ),
    )
    for fit in fits:
        if found := [code for code in known if fit(code, wanted)]:
            return found
    return []


def match_language(wanted: str, codes: Iterable[str], at: str) -> str:
    """Return the code of a model that a user means; see ``fitting``.

    Raises:
        UserError: none of the codes fits, or several do.
    """
    known = list(codes)
    matches = fitting(wanted, known)
    if len(matches) == 1:
        return matches[0]
    if matches:
        what = f"{wanted} can be several languages of this model: {', '.join(matches)}"
        raise UserError(what, at=at, fix="give one of these")
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


@functools.cache
def _standard(code: str, macro: bool = True) -> str:
    from langcodes import standardize_tag  # here: the import is slow

    first = _first(code)
    try:
        return standardize_tag(_OWN_CODES.get(first, first), macro=macro)
    except ValueError:
        return first


def _first(code: str) -> str:
    return re.split("[-_]", code)[0].lower()


def _is_part(code: str, macrolanguage: str) -> bool:
    from langcodes.data_dicts import MACROLANGUAGES

    whole = MACROLANGUAGES.get(_first(code), MACROLANGUAGES.get(_language(code)))
    return whole is not None and whole in (_language(macrolanguage), _first(macrolanguage))


def _same_script(code: str, other: str) -> bool:
    """Return whether two codes such as swh_Latn do not name different scripts."""
    scripts = {_script(code), _script(other)}
    return "" in scripts or len(scripts) == 1


def _script(code: str) -> str:
    parts = re.split("[-_]", code)[1:]
    return next((part.lower() for part in parts if len(part) == 4 and part.isalpha()), "")


def differ(code: str, other: str) -> bool:
    """Return whether two codes are of different languages, such as a part and its macrolanguage."""
    return _standard(code) != _standard(other)


def group_parts(code: str) -> list[str] | None:
    """Return the languages that the code of a group names; None if it is no group.

    A group of OPUS-MT is a family of ISO 639-5 such as ``bnt``, a name in capital letters such as
    ``ROMANCE``, ``mul``, or a list such as ``cat_oci_spa`` or ``fr+es``. Only a list names them.
    """
    if "+" in code or re.fullmatch("[a-z]{3}(_[a-z]{3})+", code):
        return code.split("+" if "+" in code else "_")
    if code == "mul" or re.fullmatch("[A-Z]{2}[A-Z_]+", code) or code in _families():
        return []
    return None


@functools.cache
def _families() -> set[str]:
    from langcodes.registry_parser import parse_registry

    return {
        str(entry["Subtag"]) for entry in parse_registry() if entry.get("Scope") == "collection"
    }
