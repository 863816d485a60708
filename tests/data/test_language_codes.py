"""Codes of languages with two and three letters, scripts and regions."""

from __future__ import annotations

import pytest

from nmt.data.languages import base_language


@pytest.mark.parametrize(
    ("code", "base"),
    [
        ("en", "en"),
        ("pt-BR", "pt"),
        ("PT_br", "pt"),
        ("eng_Latn", "en"),
        ("glg", "gl"),
        ("ger", "de"),  # ISO 639-2 has two codes for German
        ("deu", "de"),
        ("arb_Arab", "ar"),  # the standard variety of a group
        ("cmn", "zh"),
        ("swc", "sw"),
        ("ory", "or"),
        ("chr", "chr"),  # no code of two letters
        ("yue", "yue"),
        ("x1y", "x1y"),  # not a code
        ("source", "source"),
        ("tl", "tl"),
        ("tgl_Latn", "tl"),
        ("", ""),
    ],
)
def test_a_language_has_one_code(code: str, base: str) -> None:
    assert base_language(code) == base
