"""Is each side of each split in its language? By its letters, without knowing languages.

The pairs of neighbouring letters of a text, ends of words among them, show its language. Of ten
real corpora, the dev and test sets share 85 to 97 % of them with their own side of the training
text and at most 60 % with its other side; texts of one language from different corpora share at
least 67 %, of different languages at most 64 %.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeAlias

ENOUGH = 500  # letter pairs; less text shows nothing
OVERLAP_MARGIN = 0.05  # more in common with the other side than with its own
OVERLAP_THRESHOLD = (
    0.4  # in common with the training text of its own side; less is another language
)
SAME = 0.8  # in common between source and target; more is one language, or very near ones
_WORD = re.compile(r"[^\W\d_]+")

# Languages that are written in one script: the first words of its letters' Unicode names.
_SCRIPTS = {
    "ARABIC": "ar fa ur ps ug ckb arz",
    "HEBREW": "he yi",
    "CYRILLIC": "ru uk be bg mk ba tt tg",
    "GREEK": "el",
    "ARMENIAN": "hy",
    "GEORGIAN": "ka",
    "ETHIOPIC": "am ti",
    "DEVANAGARI": "hi mr ne",
    "BENGALI": "bn as",
    "GUJARATI": "gu",
    "TAMIL": "ta",
    "TELUGU": "te",
    "KANNADA": "kn",
    "MALAYALAM": "ml",
    "SINHALA": "si",
    "THAI": "th",
    "LAO": "lo",
    "KHMER": "km",
    "MYANMAR": "my",
    "TIBETAN": "bo dz",
    "HANGUL": "ko",
    "HIRAGANA KATAKANA CJK": "ja",
    "CJK": "zh",
    "LATIN": "en de fr es pt it nl sv da no nb nn fi is pl cs sk sl hr hu ro et lv lt tr vi id tl "
    "gl ca eu ga cy mt sw zu xh yo ig so",
}
_SCRIPT = {lang: script for script, langs in _SCRIPTS.items() for lang in langs.split()}


class LanguageProfile:
    """What letters a text has."""

    def __init__(self) -> None:
        self.pairs: Counter[str] = Counter()
        self.words = self.the = 0

    def add(self, line: str) -> None:
        """Count a line."""
        words = _WORD.findall(line.lower())
        text = f" {' '.join(words)} "
        self.pairs.update(map(str.__add__, text, text[1:]))
        self.words += len(words)
        self.the += words.count("the")

    @property
    def size(self) -> int:
        """Letter pairs counted."""
        return sum(self.pairs.values())

    @property
    def enough(self) -> bool:
        """Whether it says anything."""
        return self.size >= ENOUGH

    def likeness(self, other: LanguageProfile) -> float:
        """Share of letter pairs that two texts have in common, 0 to 1."""
        mine, its = max(1, self.size), max(1, other.pairs.total())
        return sum(min(n / mine, other.pairs[p] / its) for p, n in self.pairs.items())

    def script(self, names: str) -> float:
        """Share of the letters that are of one of these scripts."""
        letters: Counter[str] = Counter()
        for pair, count in self.pairs.items():
            letters[pair[1]] += count  # each letter stands second once
        del letters[" "]
        begin = tuple(f"{name} " for name in names.split())
        own = sum(n for c, n in letters.items() if unicodedata.name(c, "").startswith(begin))
        return own / max(1, sum(letters.values()))

    @property
    def english(self) -> float:
        """Share of the word "the": 3 to 7 % of English, 0.1 % of anything else."""
        return self.the / max(1, self.words)


Profiles: TypeAlias = tuple[LanguageProfile, LanguageProfile]  # of source and target


def wrong_languages(
    train: Mapping[str, Profiles], held_out: Mapping[str, Profiles], langs: Sequence[str]
) -> tuple[list[str], list[str]]:
    """What is wrong for sure, and what a person should look at; one sentence each.

    Args:
        train: by corpus, for training text may have several.
        held_out: by split.
        langs: source and target.
    """
    failures: list[str] = []
    suspicions: list[str] = []
    for name, sides in {**train, **held_out}.items():
        suspicions += _by_name(name, sides, langs)
    for part, (src, tgt) in train.items():
        if src.enough and tgt.enough and (common := src.likeness(tgt)) > SAME:
            suspicions.append(
                f"{part}: both sides read like the same language, {common:.0%} of their letter "
                "pairs are in common"
            )
    for part, own in train.items():
        for split, sides in held_out.items():
            if all(profile.enough for profile in (*own, *sides)):
                exchanged, odd = _against(part, own, split, sides, langs)
                failures += exchanged
                suspicions += odd
    return failures, suspicions


def _by_name(name: str, sides: Profiles, langs: Sequence[str]) -> list[str]:
    """What the languages' codes say: their scripts, and that English has its article."""
    found = []
    for side, other, lang in zip(sides, sides[::-1], langs, strict=True):
        code = lang.replace("_", "-").split("-")[0].lower()
        script = _SCRIPT.get(code)
        if side.enough and script and (share := side.script(script)) < 0.5:
            found.append(
                f"{name}: {share:.0%} of the letters of the {lang} side are "
                f"{script.split()[0].capitalize()}: a wrong file?"
            )
        if code == "en" and other.enough and other.english > max(0.01, 4 * side.english):
            found.append(f"{name}: not the {lang} side but the other reads like English")
    return found


def _against(
    part: str, own: Profiles, split: str, sides: Profiles, langs: Sequence[str]
) -> tuple[list[str], list[str]]:
    """A held-out split against a training corpus: exchanged sides, then odd ones."""
    alike = [side.likeness(its) for side, its in zip(sides, own, strict=True)]
    crossed = [side.likeness(its) for side, its in zip(sides, own[::-1], strict=True)]
    turned = [c > a + OVERLAP_MARGIN for a, c in zip(alike, crossed, strict=True)]
    if all(turned):
        return [
            f"source and target are exchanged in {split} or in {part}: each side of {split} reads "
            f"like the other side of {part} ({crossed[0]:.0%} and {crossed[1]:.0%} of their letter "
            f"pairs are in common, {alike[0]:.0%} and {alike[1]:.0%} with the side of its name)"
        ], []
    odd = []
    for lang, other, a, c, like_other in zip(
        langs, langs[::-1], alike, crossed, turned, strict=True
    ):
        if like_other:
            odd.append(
                f"{split}: the {lang} side reads like the {other} side of {part} ({c:.0%} of their "
                f"letter pairs are in common, {a:.0%} with the {lang} side): a wrong file?"
            )
        elif a < OVERLAP_THRESHOLD:
            odd.append(
                f"{split}: the {lang} side has {a:.0%} of its letter pairs in common with {part}: "
                "another language?"
            )
    return [], odd
