"""Phrases that may not be said, in whatever pieces.

A phrase is matched against the text that pieces spell and not against its own segmentation: every
way to say it is forbidden. Text here is tokenised, with a space where a word begins or ends, also
before the first word and at the end; a phrase has a space on either side, so ``cat`` does not
forbid ``cats``. In scripts that write no spaces it has none, and forbids the sequence everywhere.

Legend: S sentences of the batch as it began, B those still searched, K beams, V types.
"""

from __future__ import annotations

import bisect
import functools
import re
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from nmt.data.segment import Segmenter
from nmt.data.vocab import BOS, EOS, PAD, Vocab
from nmt.decoding.search import Beams

NEVER = "\0"  # what PAD and BOS spell: no text has it
# Thai, Lao, Tibetan, Burmese, Khmer; Chinese and Japanese
_UNSPACED = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3001-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)


class Surfaces:
    """What each type of a vocabulary adds to tokenised text; the end of a sentence adds a space."""

    def __init__(self, segmenter: Segmenter, vocab: Vocab, lang: str) -> None:
        self._segmenter, self._lang = segmenter, lang
        self.text = [segmenter.surface(piece) for piece in vocab.pieces(range(len(vocab)))]
        self.text[EOS] = " "
        self.text[PAD] = self.text[BOS] = NEVER
        self._order = sorted(range(len(self.text)), key=self.text.__getitem__)
        self._sorted = [self.text[token] for token in self._order]

    def patterns(self, phrase: str) -> list[str]:
        """What a phrase looks like in tokenised text: by itself, and amid other words."""
        alone = self.spelled(self._segmenter.encode(phrase, self._lang)).strip(" ")
        amid = self.spelled(self._segmenter.encode(f"x {phrase} x", self._lang)).strip(" ")
        cores = {alone, amid[2:-2]} if amid[:2] == "x " and amid[-2:] == " x" else {alone}
        return sorted(_edged(core) for core in cores if core)

    def spelled(self, pieces: Sequence[str]) -> str:
        """Pieces -> tokenised text."""
        return "".join(map(self._segmenter.surface, pieces))

    def starting(self, text: str) -> list[int]:
        """Types whose text starts so."""
        first = bisect.bisect_left(self._sorted, text)
        last = first
        while last < len(self._sorted) and self._sorted[last].startswith(text):
            last += 1
        return self._order[first:last]

    def matching(self, pattern: re.Pattern[str]) -> list[int]:
        """Types in whose text a regular expression is found."""
        return [token for token, text in enumerate(self.text) if pattern.search(text)]


def _edged(core: str) -> str:
    left, right = ("" if _UNSPACED.match(edge) else " " for edge in (core[0], core[-1]))
    return f"{left}{core}{right}"


class Phrases:
    """Forbidden patterns, at least one, ready to say which tokens would complete one."""

    def __init__(self, surfaces: Surfaces, patterns: Sequence[str]) -> None:
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
def phrases_for_all(surfaces: Surfaces, phrases: tuple[str, ...]) -> Phrases:
    """The same phrases for every sentence, made ready once."""
    return Phrases(surfaces, [p for phrase in phrases for p in surfaces.patterns(phrase)])


class Forbidden:
    """A rule of the search: no hypothesis says a phrase of its sentence."""

    def __init__(
        self, surfaces: Surfaces, phrases: Sequence[Sequence[Phrases]], max_len: Tensor
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
