"""Choose among candidates with a model of the reverse direction, the noisy channel.

Yee, Dauphin and Auli 2019, "Simple and Effective Noisy Channel Modeling for Neural Machine
Translation", rank the candidates y of a beam search for a source x by

    log P(y | x) / |y| + weight * (log P(x | y) + log P(y)) / |x|

Here both terms are scores of this toolkit, log-probability / length penalty, and there is no
language model: log P(y) is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from nmt.data.language_codes import base_language
from nmt.decoding.codec import (
    MAX_SOURCE_PIECES,
    SearchInput,
    TextCodec,
    Translation,
    too_long,
)
from nmt.decoding.options import SearchOptions
from nmt.errors import UserError

if TYPE_CHECKING:
    from nmt.decoding.translator import Translator


class NoisyChannelRanker:
    """Ranks translations of a line by ``score(y | x) + weight * score(x | y)``.

    Args:
        reverse: the model of the reverse direction.
        codec: of the model that translates, for the target language.
        options: ``reverse_weight``, ``reverse_tag``, ``src``, ``length_alpha``, ``batch_tokens``.
        stop: called between batches; may raise an exception to stop.

    Raises:
        UserError: the reverse model does not fit.
    """

    def __init__(
        self,
        reverse: Translator,
        codec: TextCodec,
        options: SearchOptions,
        stop: Callable[[], None] = lambda: None,
    ) -> None:
        self.reverse, self.codec, self._stop = reverse, codec, stop
        self.weight, self.src = options.reverse_weight, options.src or codec.src
        _check_reverse(reverse, self.src, codec, options.reverse_tag)
        self._reverse_codec = reverse.codec.for_target(self.src)
        self._options = options.model_copy(update={"tag": options.reverse_tag, "align": False})

    def rank(
        self, inputs: Sequence[SearchInput], candidates: Sequence[Sequence[Translation]]
    ) -> list[list[int]]:
        """Return the indices of the candidates of each input, best first.

        A part of a sentence keeps the order of the search, and so does an input that the reverse
        model cannot score, because the source or a candidate is too long.

        Args:
            candidates: of each input, best first.
        """
        encoded = [
            self._encode(part.line, part.text, of_part) if part.text else []
            for part, of_part in zip(inputs, candidates, strict=True)
        ]
        pairs = [pair for of_part in encoded for pair in of_part if len(pair[0])]
        scores = iter(self.reverse.score_ids(pairs, self._options, self._stop))
        orders = []
        for of_part, texts in zip(encoded, candidates, strict=True):
            total = [text.score for text in texts]
            for index, (source, _, _) in enumerate(of_part):
                # an empty translation has no pieces from which a source could follow
                total[index] += self.weight * next(scores) if len(source) else -math.inf
            orders.append(sorted(range(len(texts)), key=lambda index: -total[index]))
        return orders

    def _encode(
        self, number: int, line: str, candidates: Sequence[Translation]
    ) -> list[tuple[np.ndarray, np.ndarray, int]]:
        """Return the ids of each candidate and of its source; none if one is too long."""
        codec = self._reverse_codec
        texts = [self._text(candidate) for candidate in candidates]
        if len(texts) < 2 or any(map(too_long, (line, *texts))):
            return []
        target = np.array(codec.vocab.ids(codec.target_pieces(line)), np.int64)
        sources = [codec.source_pieces(text, self.codec.tgt) for text in texts]
        if max(len(target), *map(len, sources)) > MAX_SOURCE_PIECES:
            return []
        tag = codec.tag_ids(self._options.tag)
        return [
            (np.concatenate([tag, np.array(codec.vocab.ids(source), np.int64)]), target, number)
            if source
            else (np.array([], np.int64), target, number)
            for source in sources
        ]

    def _text(self, candidate: Translation) -> str:
        """Return a candidate in the form of the reverse model's training text."""
        segmenter = self.codec.segmenter
        if segmenter.moses.tokenized:
            return segmenter.decode_tokenized(candidate.pieces, self.codec.tgt)
        return candidate.text


def _check_reverse(reverse: Translator, src: str, codec: TextCodec, tag: str | None) -> None:
    """Check the languages, the tag and the text of a reverse model.

    Raises:
        UserError: it translates other languages, lacks the tag or needs one, or only one of both
            models was trained on tokenized text.
    """
    at = reverse.source
    tags = ", ".join(reverse.vocab.tags) or "none"
    if tag is not None and tag not in reverse.vocab.tags:
        raise UserError(
            f"the reverse model has no tag {tag}; its tags: {tags}",
            at=at,
            fix="choose one of its tags, or leave reverse_tag out",
        )
    if tag is None and reverse.always_tagged:
        raise UserError(
            f"the reverse model always saw a tag before its source; its tags: {tags}",
            at=at,
            fix=f"choose the tag for {src} with reverse_tag, --reverse-tag on the command line",
        )
    known = set(map(base_language, [reverse.src, *reverse.sources]))
    target = reverse.target_of(tag)
    if base_language(codec.tgt) not in known or base_language(target) != base_language(src):
        raise UserError(
            f"the reverse model translates {reverse.src} to {target}, but it must translate "
            f"{codec.tgt} to {src}",
            at=at,
            fix="pass a model of the reverse direction; if it has several target languages, choose "
            "one with reverse_tag",
        )
    if reverse.segmenter.moses.tokenized != codec.segmenter.moses.tokenized:
        raise UserError(
            "only one of the model and the reverse model was trained on tokenized text",
            at=at,
            fix="train both with the same data.tokenized",
        )
