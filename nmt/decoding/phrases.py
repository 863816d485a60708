"""Phrases that may not be said, in whatever pieces.

A phrase is matched against the text that pieces spell (``nmt.decoding.surfaces``) and not against
its own segmentation: every way to say it is forbidden.

Legend: S sentences of the batch as it began, B those still searched, K beams, V types.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from nmt.decoding.search import Beams
from nmt.decoding.surfaces import PieceStrings


class Phrases:
    """Forbidden patterns, at least one, ready to say which tokens would complete one."""

    def __init__(self, surfaces: PieceStrings, patterns: Sequence[str]) -> None:
        self._surfaces = surfaces
        self._rests: dict[str, list[str]] = defaultdict(list)  # beginning -> how it may go on
        for pattern in patterns:
            for place in range(1, len(pattern)):
                self._rests[pattern[:place]].append(pattern[place:])
        self.longest = max(map(len, patterns))
        inside, at_end = (
            "|".join(map(re.escape, each))
            for each in (patterns, [pattern.rstrip(" ") for pattern in patterns])
        )
        self._whole = surfaces.matching(re.compile(inside))
        self._whole_at_end = surfaces.matching(re.compile(rf"(?:{at_end})\Z"))

    def completing(self, tail: str, last: bool) -> list[int]:
        """The tokens that would complete a pattern.

        Args:
            tail: the end of what is said, at least ``longest - 1`` characters or all there is.
            last: nothing can follow the token, which ends a word as much as a space does.
        """
        text = self._surfaces.text
        tokens = [*self._whole, *(self._whole_at_end if last else ())]
        for size in range(1, min(len(tail), self.longest - 1) + 1):
            for rest in self._rests.get(tail[-size:], ()):
                tokens += self._surfaces.starting(rest)
                if last:
                    bare = rest.rstrip(" ")
                    tokens += [t for t in self._surfaces.starting(bare) if text[t] == bare]
        return tokens


@functools.lru_cache(maxsize=4)
def phrases_for_all(surfaces: PieceStrings, phrases: tuple[str, ...]) -> Phrases:
    """The same phrases for every sentence, made ready once."""
    return Phrases(surfaces, [p for phrase in phrases for p in surfaces.patterns(phrase)])


class BannedPhrases:
    """A rule of the search: no hypothesis says a phrase of its sentence."""

    def __init__(
        self, surfaces: PieceStrings, phrases: Sequence[Sequence[Phrases]], max_len: Tensor
    ) -> None:
        """``phrases``, ``max_len``: [S]."""
        self._text, self._phrases, self._max_len = surfaces.text, phrases, max_len.tolist()

    def __call__(self, beams: Beams, logits: Tensor, allowed: Tensor) -> Tensor:
        """Without the tokens that would complete one."""
        hidden: list[tuple[int, int, int]] = []
        alive = (~beams.ended & beams.log_prob.isfinite()).tolist()
        for row, (sentence, of_row) in enumerate(
            zip(beams.sentence.tolist(), beams.ids.tolist(), strict=True)
        ):
            for phrases in self._phrases[sentence]:
                for beam, ids in enumerate(of_row):
                    if alive[row][beam]:
                        last = len(ids) + 1 >= self._max_len[sentence]
                        tokens = phrases.completing(self._tail(ids, phrases.longest), last)
                        hidden += [(row, beam, token) for token in tokens]
        if hidden:
            rows, columns, types = torch.from_numpy(np.array(hidden).T).to(allowed.device)
            allowed[rows, columns, types] = -torch.inf
        return allowed

    def _tail(self, ids: Sequence[int], size: int) -> str:
        tail = ""
        for token in reversed(ids):
            tail = self._text[token] + tail
            if len(tail) >= size:
                return tail
        return " " + tail
