"""Corpus checks before the first update: what is dropped, what is suspicious, what is an error.

Everything is counted in one pass with bounded memory: eight bytes per pair for duplicates, and the
fingerprints of dev and test for overlap.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nmt.data.languages import LanguageProfile, Profiles
from nmt.data.near_duplicates import SHORT, Recurring
from nmt.data.text import is_blank

SIDES = ("sources", "targets")
LISTED = 100  # places named in the report for each finding
EXAMPLES = 5  # pairs shown for each overlap
LACKING_WARNS = 0.1  # share of a side's pieces that the training data does not have there
UNKNOWN_FAILS = 0.5  # share of source pieces that are UNK
RECURRING_WARNS = 0.1  # share of a side's distinct texts that are in train, or nearly are
CHARACTERS = 20  # for each piece that is allowed; a line of more has too many pieces in any case
SAMPLE = 5000  # pairs of which all letters are looked at; of the rest, one in ONE_IN
ONE_IN = 64
FEW_PAIRS = 100  # scores of a smaller split say little

SUSPICIOUS = {
    # finding -> share of the pairs above which it is worth a warning
    "same text on both sides": 0.1,
    "one side over 3 times as long": 0.05,
    "already BPE-encoded (@@)": 0.001,
    "HTML escapes (&quot; &apos; ...)": 0.01,
    "already tokenized (space before a full stop)": 0.3,
    "not tokenized though data.tokenized is true": 0.3,
}
_ESCAPE = re.compile(r"&(?:quot|apos|amp|lt|gt|#91|#93);")
_ENDS = frozenset(".?!")
_END_APART = re.compile(r"\s\.$")  # French has a space before "?" and "!"
_END_ATTACHED = re.compile(r"\w[.?!]$")


@dataclass
class Finding:
    """How often something was seen, and the first places where."""

    count: int = 0
    lines: list[str] = field(default_factory=list)

    def add(self, place: str) -> None:
        """Count one more."""
        self.count += 1
        if len(self.lines) < LISTED:
            self.lines.append(place)


def pair_hash(src: str, tgt: str) -> int:
    """64 bits of a pair; the same in every process."""
    text = f"{src}\n{tgt}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little", signed=True)


@dataclass(frozen=True)
class Limits:
    """How long a side of a training pair may be.

    Attributes:
        words, pieces: before and after segmenting.
    """

    words: int
    pieces: int

    @property
    def characters(self) -> int:
        """A longer line is not cut into pieces at all, which could take minutes."""
        return CHARACTERS * self.pieces


def reason_to_drop(src: str, tgt: str, limits: Limits | None) -> str | None:
    """Return why a pair does not train: a blank side, or one over the limits; None if it does."""
    blank = is_blank(src), is_blank(tgt)
    if all(blank):
        return "both sides blank"
    if any(blank):
        return "source blank" if blank[0] else "target blank"
    if limits is None:
        return None
    if _over(src, limits.words) or _over(tgt, limits.words):
        return f"longer than {limits.words} words"
    if len(src) > limits.characters or len(tgt) > limits.characters:
        return f"longer than {limits.characters:,} characters"
    return None


def _over(line: str, words: int) -> bool:
    """Whether a line has more than so many words; a short line cannot, whatever its words."""
    return len(line) > 2 * words and len(line.split()) > words


class SplitCheck:
    """Looks at the pairs of one split, one after another.

    Args:
        limits: of the length of a side, None = any (dev and test are never filtered).
        held_out: fingerprints of the pairs of other splits by their name.
        recurring: looks for the sources of other splits, and for their targets.
        tokenized: whether the text comes Moses-tokenized, where escapes are normal.

    Attributes:
        normalized: for ``read_lines`` to count into.
        profiles: the letters of both sides, by corpus (what stands before ``:`` in a place).
    """

    def __init__(
        self,
        limits: Limits | None = None,
        held_out: dict[str, set[int]] | None = None,
        tokenized: bool = False,
        recurring: tuple[Recurring, Recurring] | None = None,
    ) -> None:
        self.limits, self.tokenized, self.recurring = limits, tokenized, recurring
        self.held_out = held_out or {}
        self.pairs = self.kept = 0
        self.normalized: Counter[str] = Counter()
        self.dropped: dict[str, Finding] = {}
        self.seen: dict[str, Finding] = {name: Finding() for name in SUSPICIOUS}
        self.found: dict[str, set[int]] = {name: set() for name in self.held_out}
        self.examples: dict[str, list[str]] = {name: [] for name in self.held_out}
        self.decomposed = Finding()
        self.profiles: defaultdict[str, Profiles] = defaultdict(
            lambda: (LanguageProfile(), LanguageProfile())
        )
        self._hashes = array("q")

    def admit(self, src: str, tgt: str, place: str) -> bool:
        """Count the next pair of the split; whether it has text on both sides and fits.

        Args:
            place: where it is, for people.
        """
        self.pairs += 1
        reason = reason_to_drop(src, tgt, self.limits)
        if reason:
            self.dropped.setdefault(reason, Finding()).add(place)
            return False
        self.kept += 1
        self._suspect(src, tgt, place)
        mark = pair_hash(src, tgt)
        self._hashes.append(mark)
        if self.kept <= SAMPLE or not mark % ONE_IN:
            for profile, line in zip(
                self.profiles[place.rpartition(":")[0]], (src, tgt), strict=True
            ):
                profile.add(line)
        for name, marks in self.held_out.items():
            if mark in marks:
                if mark not in self.found[name] and len(self.examples[name]) < EXAMPLES:
                    self.examples[name].append(f"{place}: {src} ||| {tgt}")
                self.found[name].add(mark)
        if self.recurring:
            self.recurring[0].look(src, place)
            self.recurring[1].look(tgt, place)
        return True

    def drop(self, reason: str, count: int, places: list[str]) -> None:
        """Count pairs that were kept at first as dropped; ``places``: of the first ones."""
        if count:
            self.kept -= count
            self.dropped[reason] = Finding(count, places)

    def marks(self) -> set[int]:
        """Fingerprints of the pairs kept."""
        return set(self._hashes)

    def drops(self) -> str:
        """Which filter took how many, in words."""
        return ", ".join(f"{f.count:,} {name}" for name, f in self.dropped.items())

    def overlap(self) -> dict[str, Any]:
        """Return, for each split held out, what of its distinct pairs and texts was seen here."""
        found: dict[str, Any] = {
            name: {
                "pairs": len(self.found[name]),
                "share": len(self.found[name]) / max(1, len(marks)),
                "examples": self.examples[name],
            }
            for name, marks in self.held_out.items()
        }
        for side, recurring in zip(SIDES, self.recurring or (), strict=False):
            for name, of_split in found.items():
                of_split[side] = recurring.report(name)
        return found

    def report(self) -> dict[str, Any]:
        """The numbers of the split."""
        hashes = np.sort(np.frombuffer(self._hashes, np.int64)) if self._hashes else np.empty(0)
        return {
            "pairs": self.pairs,
            "kept": self.kept,
            "dropped": {name: vars(f) for name, f in self.dropped.items()},
            "suspicious": {name: vars(f) for name, f in self.seen.items() if f.count},
            "duplicates": int(np.count_nonzero(hashes[1:] == hashes[:-1])),
            "not in NFC": vars(self.decomposed),
            "normalized": dict(self.normalized),
        }

    def _suspect(self, src: str, tgt: str, place: str) -> None:
        seen, both = self.seen, f"{src}\n{tgt}"
        ends = src[-1:] in _ENDS or tgt[-1:] in _ENDS
        if src == tgt:
            seen["same text on both sides"].add(place)
        short, long = sorted((len(src), len(tgt)))
        if long > 3 * short + 10:
            seen["one side over 3 times as long"].add(place)
        if "@@ " in both:
            seen["already BPE-encoded (@@)"].add(place)
        if self.tokenized:
            if ends and (_END_ATTACHED.search(src) or _END_ATTACHED.search(tgt)):
                seen["not tokenized though data.tokenized is true"].add(place)
        else:
            if "&" in both and _ESCAPE.search(both):
                seen["HTML escapes (&quot; &apos; ...)"].add(place)
            if ends and (_END_APART.search(src) or _END_APART.search(tgt)):
                seen["already tokenized (space before a full stop)"].add(place)
        if not both.isascii() and not unicodedata.is_normalized("NFC", both):
            self.decomposed.add(place)


def failures(report: dict[str, Any], max_overlap: float) -> list[str]:
    """What makes scores meaningless, one sentence each.

    Args:
        max_overlap: share of a held-out split that may be in the training data.
    """
    found = [
        f"{overlap['share']:.1%} of the {name} pairs ({overlap['pairs']:,}) are in the training "
        f"data, e.g. {overlap['examples'][0]}"
        for name, overlap in report["overlap"].items()
        if overlap["share"] > max_overlap
    ]
    found += report["languages"]["failures"]
    for name, split in report["splits"].items():
        source = split.get("coverage", {}).get("src")
        if source and source["unknown"] > UNKNOWN_FAILS:
            found.append(
                f"{source['unknown']:.0%} of the source pieces of {name} are unknown "
                f"({' '.join(source['pieces'])}): do codes and corpus fit together?"
            )
    return found


def warnings(report: dict[str, Any], max_overlap: float) -> list[str]:
    """Return what a person should look at, one sentence each.

    Args:
        max_overlap: share of the test set that may be in the tuning set without a word.
    """
    found = list(report["languages"]["warnings"])
    twice = report["test in dev"]
    if twice["share"] > max_overlap:
        found.append(
            f"{twice['share']:.1%} of the test pairs ({twice['pairs']:,}) are in dev too, which "
            "picks the best checkpoint; give another data.test"
        )
    for name, overlap in report["overlap"].items():
        for side in SIDES:
            recur = overlap.get(side)
            if recur and (
                recur["same"] > max_overlap * recur["of"] or recur["share"] > RECURRING_WARNS
            ):
                found.append(f"{name}: {_recurring(side, recur)}, e.g. {recur['examples'][0]}")
    for name, split in report["splits"].items():
        kept = split["kept"]
        if name != "train" and kept < FEW_PAIRS:
            pairs = "1 pair" if kept == 1 else f"{kept} pairs"
            found.append(f"{name}: only {pairs} with text on both sides; its scores say little")
        for what, finding in split["suspicious"].items():
            share = finding["count"] / kept
            if share > SUSPICIOUS[what]:
                found.append(
                    f"{name}: {what} in {finding['count']:,} pairs ({share:.1%}), "
                    f"first at {finding['lines'][0]}"
                )
        odd = split["not in NFC"]
        if odd["count"]:
            found.append(
                f"{name}: {odd['count']:,} pairs are not in Unicode's composed form (NFC), first "
                f"at {odd['lines'][0]}; data.normalize=nfc composes them"
            )
        sides = split.get("coverage", {})
        found += [
            f"{name}: the training data lacks {side['lacking']:.0%} of the {lang} pieces "
            f"({' '.join(side['pieces'])})"
            for lang, side in sides.items()
            if side["lacking"] > LACKING_WARNS
        ]
    return found


def _recurring(side: str, recur: dict[str, Any]) -> str:
    return (
        f"{recur['same']:,} of {recur['of']:,} {side} are in the training data, {recur['near']:,} "
        f"more nearly ({recur['share']:.1%}; texts of under {SHORT} words are not counted)"
    )


def summary(report: dict[str, Any]) -> str:
    """The report of all splits, a few lines for people."""
    lines = []
    for split, r in report["splits"].items():
        text = f"{split}: {r['pairs']:,} pairs"
        drops = ", ".join(f"{f['count']:,} {name}" for name, f in r["dropped"].items())
        if drops:
            verb = "dropped" if split == "train" else "kept for scoring though"
            text += f", {verb} {drops}"
        if r["duplicates"]:
            text += f", {r['duplicates']:,} duplicates"
        for name, count in r["normalized"].items():
            text += f", {name} in {count:,} lines"
        lines.append(text)
    for split, overlap in report["overlap"].items():
        if overlap["pairs"]:
            lines.append(
                f"{split}: {overlap['pairs']:,} pairs ({overlap['share']:.1%}) are in train too"
            )
        recurring = [
            f"{split}: {_recurring(side, overlap[side])}"
            for side in SIDES
            if side in overlap and overlap[side]["share"]
        ]
        lines += [t for t in recurring if not any(w.startswith(t) for w in report["warnings"])]
    lines += [f"warning: {text}" for text in report["warnings"]]
    return "\n".join(lines)


def first_suspicious(pairs: Iterable[tuple[str, str]]) -> int | None:
    """Line at which two files of unequal length may have come apart: a blank or a length jump."""
    for number, (src, tgt) in enumerate(pairs, 1):
        if is_blank(src) != is_blank(tgt):
            return number
        short, long = sorted((len(src), len(tgt)))
        if long > 4 * short + 20:
            return number
    return None
