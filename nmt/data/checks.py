"""Corpus checks before the first update: what is dropped, what is suspicious, what is an error.

Everything is counted in one pass with bounded memory: eight bytes per pair for duplicates, and the
fingerprints of dev and test for overlap.
"""

from __future__ import annotations

import hashlib
import unicodedata
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nmt.data.text import is_blank

EXAMPLES = 5  # lines named in the report for each finding
SUSPICIOUS = {
    # finding -> share of the pairs above which it is worth a warning
    "same text on both sides": 0.1,
    "one side over 3 times as long": 0.05,
    "already BPE-encoded (@@)": 0.001,
    "HTML escapes (&quot; &apos; ...)": 0.01,
}
ESCAPES = ("&quot;", "&apos;", "&amp;", "&#91;", "&#93;", "&lt;", "&gt;")


@dataclass
class Finding:
    """How often something was seen, and the first lines where."""

    count: int = 0
    lines: list[int] = field(default_factory=list)

    def add(self, line: int) -> None:
        """Count one more."""
        self.count += 1
        if len(self.lines) < EXAMPLES:
            self.lines.append(line)


def fingerprint(src: str, tgt: str) -> int:
    """64 bits of a pair; the same in every process."""
    text = f"{src}\n{tgt}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little", signed=True)


class SplitCheck:
    """Looks at the pairs of one split, one after another.

    Args:
        max_len: words a side may have, None = any (dev and test are never filtered).
        held_out: fingerprints of the pairs of other splits by their name.
        tokenised: whether the text comes Moses-tokenised, where escapes are normal.
    """

    def __init__(
        self,
        max_len: int | None = None,
        held_out: dict[str, set[int]] | None = None,
        tokenised: bool = False,
    ) -> None:
        self.max_len, self.tokenised = max_len, tokenised
        self.held_out = held_out or {}
        self.pairs = self.kept = 0
        self.dropped: dict[str, Finding] = {}
        self.seen: dict[str, Finding] = {name: Finding() for name in SUSPICIOUS}
        self.overlap: dict[str, Finding] = {name: Finding() for name in self.held_out}
        self.found: dict[str, set[int]] = {name: set() for name in self.held_out}
        self.examples: dict[str, list[str]] = {name: [] for name in self.held_out}
        self.decomposed = Finding()
        self.words = {"src": 0, "tgt": 0}
        self._hashes = array("q")

    def admit(self, src: str, tgt: str) -> bool:
        """Count the next pair of the split; whether it is kept for training."""
        self.pairs += 1
        reason = self._reason(src, tgt)
        if reason:
            self.dropped.setdefault(reason, Finding()).add(self.pairs)
            return False
        self.kept += 1
        self._suspect(src, tgt)
        mark = fingerprint(src, tgt)
        self._hashes.append(mark)
        for name, marks in self.held_out.items():
            if mark in marks:
                self.overlap[name].add(self.pairs)
                if mark not in self.found[name] and len(self.examples[name]) < EXAMPLES:
                    self.examples[name].append(f"{src} ||| {tgt}")
                self.found[name].add(mark)
        return True

    def marks(self) -> set[int]:
        """Fingerprints of the pairs kept."""
        return set(self._hashes)

    def report(self) -> dict[str, Any]:
        """The numbers of the split."""
        hashes = np.frombuffer(self._hashes, np.int64) if self._hashes else np.empty(0, np.int64)
        return {
            "pairs": self.pairs,
            "kept": self.kept,
            "words": self.words,
            "dropped": {name: vars(f) for name, f in self.dropped.items()},
            "suspicious": {name: vars(f) for name, f in self.seen.items() if f.count},
            "duplicates": int(len(hashes) - len(np.unique(hashes))),
            "not in NFC": vars(self.decomposed),
        }

    def _reason(self, src: str, tgt: str) -> str | None:
        blank = is_blank(src), is_blank(tgt)
        if all(blank):
            return "both sides blank"
        if any(blank):
            return "source blank" if blank[0] else "target blank"
        lengths = len(src.split()), len(tgt.split())
        if self.max_len is not None and max(lengths) > self.max_len:
            return f"longer than {self.max_len} words"
        self.words["src"] += lengths[0]
        self.words["tgt"] += lengths[1]
        return None

    def _suspect(self, src: str, tgt: str) -> None:
        seen, line = self.seen, self.pairs
        if src == tgt:
            seen["same text on both sides"].add(line)
        short, long = sorted((len(src), len(tgt)))
        if long > 3 * short + 10:
            seen["one side over 3 times as long"].add(line)
        if "@@ " in src or "@@ " in tgt:
            seen["already BPE-encoded (@@)"].add(line)
        if not self.tokenised and "&" in src + tgt and any(e in src or e in tgt for e in ESCAPES):
            seen["HTML escapes (&quot; &apos; ...)"].add(line)
        if not (unicodedata.is_normalized("NFC", src) and unicodedata.is_normalized("NFC", tgt)):
            self.decomposed.add(line)


def warnings(reports: dict[str, dict[str, Any]]) -> list[str]:
    """What a person should look at, one sentence each."""
    found = []
    for split, report in reports.items():
        kept = max(1, report["kept"])
        for name, finding in report["suspicious"].items():
            share = finding["count"] / kept
            if share > SUSPICIOUS[name]:
                found.append(
                    f"{split}: {name} in {finding['count']:,} pairs ({share:.1%}), "
                    f"first in line {finding['lines'][0]}"
                )
        odd = report["not in NFC"]["count"]
        if odd:
            found.append(
                f"{split}: {odd:,} pairs are not in Unicode's composed form (NFC), first in line "
                f"{report['not in NFC']['lines'][0]}; data.normalise=nfc composes them"
            )
    return found


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
        lines.append(text)
    for split, overlap in report["overlap"].items():
        if overlap["pairs"]:
            lines.append(
                f"{split}: {overlap['pairs']:,} pairs ({overlap['share']:.1%}) are in train too"
            )
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
