"""Codes of languages: the same short code for all codes of a language."""

from __future__ import annotations

import functools
import re


@functools.cache
def base_language(lang: str) -> str:
    """Return the shortest code of a language, without script and region.

    This is the code by which sacremoses, sacreBLEU and our own tables know a language: ``pt`` for
    pt-BR, ``en`` for eng and eng_Latn, ``ar`` for arb, the standard variety of Arabic. A code that
    is not in ISO 639, or whose language has no shorter one, is returned without script and region.
    """
    code = re.split("[-_]", lang)[0].lower()
    if len(code) != 3:
        return code
    if code == "tgl":  # the library would return fil, Filipino
        return "tl"
    from langcodes import standardize_tag  # here: the import is slow, and most codes are short

    try:
        return standardize_tag(code, macro=True).partition("-")[0]
    except ValueError:
        return code
