"""What a word is, in scripts with and without spaces between words.

The patterns are of ``regex``: to ``re``, a vowel sign or an accent that is a character of its own
ends a word.
"""

from __future__ import annotations

import regex

# scripts that do not separate words by spaces, by the first word of the Unicode names of letters
UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")
# marks of Chinese and Japanese, such as 。 and ー, which Unicode gives to no script
_SHARED = "\u3001-\u303f\u3099-\u309c\u30a0\u30fb\u30fc\uff61-\uff9f"
_UNSPACED = _SHARED + "".join(rf"\p{{{'Han' if name == 'CJK' else name}}}" for name in UNSPACED)
# Tibetan has a mark after each syllable; in the other scripts, each letter counts as a word
_ALONE = rf"[[{_UNSPACED}]&&[\p{{L}}\p{{M}}]--\p{{Tibetan}}]"

UNSPACED_CHARACTER = regex.compile(f"[{_UNSPACED}]")
LETTERS = regex.compile(r"[^\W\d_]+")  # neighboring letters, with their combining signs
WORD = regex.compile(rf"(?V1){_ALONE}|[[^\W\d_]--{_ALONE}]+")
WORD_OR_NUMBER = regex.compile(rf"(?V1){_ALONE}|[\w--{_ALONE}]+")
