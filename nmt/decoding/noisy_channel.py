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

import numpy as np

from nmt.data.languages import base_language
from nmt.decoding.codec import (
    MAX_SOURCE_PIECES,
    SearchInput,
    TextCodec,
    Translation,
    too_long,
)
from nmt.decoding.engine import EncodedPair, ModelInfo
from nmt.decoding.options import SearchOptions
from nmt.errors import UserError


def rank(
    inputs: Sequence[SearchInput],
    candidates: Sequence[Sequence[Translation]],
    codec: TextCodec,
    reverse: TextCodec,
    options: SearchOptions,
    score: Callable[[Sequence[EncodedPair]], list[float]],
) -> list[list[int]]:
    """Return the indices of the candidates of each input, best first.

    They are ranked by ``score(y | x) + weight * score(x | y)``. A part of a sentence keeps the
    order of the search, and so does an input that the reverse model cannot score, because the
    source or a candidate is too long.

    Args:
        candidates: of each input, best first.
        codec: of the model that translates, for the target language.
        reverse: codec of the reverse model.
        options: ``reverse_weight``, ``reverse_tag`` and ``src``.
        score: returns the score of each target given its source, by the reverse model.
    """
    reverse = reverse.for_target(options.src or codec.src)
    encoded = [
        _encode(part, part_candidates, codec, reverse, options.reverse_tag) if part.text else []
        for part, part_candidates in zip(inputs, candidates, strict=True)
    ]
    scores = iter(score([pair for part_pairs in encoded for pair in part_pairs if len(pair[0])]))
    orders = []
    for part_pairs, texts in zip(encoded, candidates, strict=True):
        total = [text.score for text in texts]
        for index, (source, _, _) in enumerate(part_pairs):
            # an empty translation has no pieces from which a source could follow
            total[index] += options.reverse_weight * next(scores) if len(source) else -math.inf
        orders.append(sorted(range(len(texts)), key=lambda index: -total[index]))
    return orders


def _encode(
    part: SearchInput,
    candidates: Sequence[Translation],
    codec: TextCodec,
    reverse: TextCodec,
    tag: str | None,
) -> list[EncodedPair]:
    """Return the ids of each candidate and of its source; none if one is too long."""
    texts = [_text(candidate, codec) for candidate in candidates]
    if len(texts) < 2 or any(map(too_long, (part.text, *texts))):
        return []
    target = np.array(reverse.vocab.ids(reverse.target_pieces(part.text)), np.int64)
    sources = [reverse.source_pieces(text, codec.tgt) for text in texts]
    if max(len(target), *map(len, sources)) > MAX_SOURCE_PIECES:
        return []
    mark = reverse.tag_ids(tag)
    return [
        (np.concatenate([mark, np.array(reverse.vocab.ids(source), np.int64)]), target, part.line)
        if source
        else (np.array([], np.int64), target, part.line)
        for source in sources
    ]


def _text(candidate: Translation, codec: TextCodec) -> str:
    """Return a candidate in the form of the reverse model's training text."""
    if codec.segmenter.moses.tokenized:
        return codec.segmenter.decode_tokenized(candidate.pieces, codec.tgt)
    return candidate.text


def check_reverse(
    reverse: TextCodec, info: ModelInfo, codec: TextCodec, options: SearchOptions
) -> None:
    """Check the languages, the tag and the text of a reverse model.

    Args:
        reverse, info: of the reverse model.
        codec: of the model that translates, for the target language.
        options: ``reverse_tag`` and ``src``.

    Raises:
        UserError: it translates other languages, lacks the tag or needs one, or only one of both
            models was trained on tokenized text.
    """
    at, tag, src = info.source, options.reverse_tag, options.src or codec.src
    tags = ", ".join(reverse.vocab.tags) or "none"
    if tag is not None and tag not in reverse.vocab.tags:
        raise UserError(
            f"the reverse model has no tag {tag}; its tags: {tags}",
            at=at,
            fix="choose one of its tags, or leave reverse_tag out",
        )
    if tag is None and info.always_tagged:
        raise UserError(
            f"the reverse model always saw a tag before its source; its tags: {tags}",
            at=at,
            fix=f"choose the tag for {src} with reverse_tag, --reverse-tag on the command line",
        )
    known = set(map(base_language, [reverse.src, *info.sources]))
    target = reverse.for_tag(tag).tgt
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
