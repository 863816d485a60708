"""Match the user's language codes with those of a corpus.

Corpora name Swahili sw, swa, swh or swh_Latn. Codes are compared by ISO 639-3. The code of a group
(macrolanguage) also matches its standard variety: ar and arb, zh and cmn.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from difflib import get_close_matches

from nmt.errors import UserError

MOST_LISTED = 20  # names in an error; of more, the nearest are listed
NEAREST = 3

# Varieties in our corpora for which langcodes, which follows CLDR, has no group or another variety.
_GROUPS = {"fuv": "ful", "nob": "nor", "pbt": "pus", "quy": "que"}


def iso639_3(code: str) -> str:
    """Return the ISO 639-3 code of a language, ignoring a script (``_Latn``).

    A code that is unknown, or names a variety by a hyphen (``pt-br``), is returned unchanged.
    """
    return _to_iso639_3(code.partition("_")[0], of_group=False)


@functools.cache
def language_group(code: str) -> str:
    """Return the ISO 639-3 code of a language, or of the group whose standard variety it is.

    Two codes with the same result name the same language, such as sw, swh and swa.
    """
    return _to_iso639_3(iso639_3(code.partition("-")[0]), of_group=True)


def _to_iso639_3(code: str, of_group: bool) -> str:
    from langcodes import Language  # here: the import is slow, and other commands do not need it

    if "-" in code:
        return code
    if of_group and code in _GROUPS:
        return _GROUPS[code]
    try:
        # not normalized: CLDR replaces some codes by those of a larger language
        language = Language.get(code, normalize=False)
        if of_group:
            language = language.prefer_macrolanguage()
        return language.to_alpha3()
    except (LookupError, ValueError):
        return code


def check_choice(value: str, choices: Iterable[str], what: str, at: str) -> str:
    """Return ``value`` if it is one of ``choices``.

    Raises:
        UserError: it is not. The error names the nearest choice and lists all, or the nearest three
            of many.
    """
    names = sorted(set(choices))
    if value in names:
        return value
    near = get_close_matches(value, names, NEAREST, cutoff=0.5)
    hint = f"; did you mean {near[0]}?" if near else ""
    fix = f"use one of: {' '.join(names)}"
    if len(names) > MOST_LISTED:
        near = near or get_close_matches(value, names, NEAREST, cutoff=0)
        fix = f"use one of {len(names):,}; the nearest are {', '.join(near)}"
    raise UserError(f"unknown {what} {value!r}{hint}", at=at, fix=fix)


def match_language(code: str, available: Iterable[str], at: str) -> str:
    """Return the code of a corpus for the language that the user calls ``code``.

    Args:
        available: codes of the corpus.
        at: name of the corpus, for the error.

    Raises:
        UserError: the corpus does not have the language, or has it in several scripts.
    """
    codes = sorted(set(available))
    if code in codes:
        return code
    iso = iso639_3(code)
    group = _to_iso639_3(iso, of_group=True)
    for matches in (
        [other for other in codes if iso639_3(other) == iso],
        [other for other in codes if iso639_3(other) == group],
        [other for other in codes if _to_iso639_3(iso639_3(other), of_group=True) == iso],
    ):
        if len(matches) == 1:
            return matches[0]
        if matches:
            return check_choice(code, matches, "language", at)
    return check_choice(code, codes, "language", at)


def match_pair(src: str, tgt: str, available: Iterable[str], at: str) -> tuple[str, str]:
    """Return the codes of a corpus for two languages.

    Raises:
        UserError: the corpus lacks one of them, or both are the same language.
    """
    codes = set(available)
    matched = match_language(src, codes, at), match_language(tgt, codes, at)
    if matched[0] == matched[1]:
        raise UserError(
            f"{src} and {tgt} are the same language", at=at, fix="give two different languages"
        )
    return matched
