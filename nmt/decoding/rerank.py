"""Choose among the candidates of a search with a reverse model: the noisy channel.

Yee, Dauphin and Auli (2019, "Simple and Effective Noisy Channel Modeling for Neural Machine
Translation") rank the candidates y of a beam search for a source x by

    log P(y | x) / |y| + weight * (log P(x | y) + log P(y)) / |x|

Here both terms are scores of this toolkit, log-probability / length penalty, without log P(y).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from nmt.data.lines import too_long
from nmt.decoding.codec import MAX_SOURCE_PIECES, TextCodec, Translation
from nmt.decoding.engine import EncodedPair, SearchInput
from nmt.decoding.options import SearchOptions
from nmt.errors import UserError
from nmt.text.languages import base_language


def by_reverse_model(
    inputs: Sequence[SearchInput],
    candidates: Sequence[Sequence[Translation]],
    codec: TextCodec,
    reverse: TextCodec,
    options: SearchOptions,
    score: Callable[[Sequence[EncodedPair]], list[float]],
) -> list[list[int]]:
    """Rank the candidates of each input by ``score(y | x) + weight * score(x | y)``: indices.

    A part of a sentence keeps the order of the search, and so does an input that the reverse model
    cannot score, because the source or a candidate is too long.

    Args:
        candidates: of each input, best first.
        codec: of the model that translates, for the target language.
        reverse, score: codec of the reverse model, and its score of each target given its source.
    """
    reverse = reverse.for_target(options.src or codec.src)
    encoded = [
        _encode(part, part_candidates, codec, reverse, options.reverse_tag) if part.text else []
        for part, part_candidates in zip(inputs, candidates, strict=True)
    ]
    scores = iter(score([pair for part_pairs in encoded for pair in part_pairs if len(pair[0])]))
    orders = []
    for part_pairs, translations in zip(encoded, candidates, strict=True):
        total = [translation.score for translation in translations]
        for index, (source, _, _) in enumerate(part_pairs):
            # an empty translation has no pieces from which a source could follow
            total[index] += options.reverse_weight * next(scores) if len(source) else -math.inf
        orders.append(sorted(range(len(total)), key=lambda index: -total[index]))
    return orders


def _encode(
    part: SearchInput,
    candidates: Sequence[Translation],
    codec: TextCodec,
    reverse: TextCodec,
    tag: str | None,
) -> list[EncodedPair]:
    """Encode each candidate with its source; none if one is too long."""
    texts = [candidate.text for candidate in candidates]
    if codec.segmenter.moses.tokenized:  # as the training text of the reverse model
        texts = [codec.segmenter.decode_tokenized(c.pieces, codec.tgt) for c in candidates]
    if len(texts) < 2 or any(map(too_long, (part.text, *texts))):
        return []
    target = np.array(reverse.vocab.ids(reverse.target_pieces(part.text)), np.int64)
    sources = [reverse.source_pieces(text, codec.tgt) for text in texts]
    if max(len(target), *map(len, sources)) > MAX_SOURCE_PIECES:
        return []
    tag_ids, empty = reverse.tag_ids(tag), np.array([], np.int64)
    return [
        (np.append(tag_ids, reverse.vocab.ids(source)) if source else empty, target, part.line)
        for source in sources
    ]


def check_reverse(
    reverse: TextCodec, codec: TextCodec, options: SearchOptions, source: str | None
) -> None:
    """Check the languages, the tags and the text of a reverse model.

    Args:
        reverse: of the reverse model.
        codec: of the model that translates, for the target language.
        source: origin of the weights of the reverse model, for errors.

    Raises:
        UserError: it translates other languages, lacks a tag or needs one, or only one of both
            models was trained on tokenized text.
    """
    tag, tgt_tag, src = options.reverse_tag, options.reverse_tgt_tag, options.src or codec.src
    tags, tgt_tags = (", ".join(x) or "none" for x in (reverse.vocab.tags, reverse.vocab.tgt_tags))
    sources = set(map(base_language, [reverse.src, *reverse.directions.sources]))
    target = reverse.for_tag(tgt_tag or tag).tgt
    fits = base_language(codec.tgt) in sources and base_language(target) == base_language(src)
    for is_problem, what, fix in (
        (
            tag is not None and tag not in reverse.vocab.tags,
            f"the reverse model has no tag {tag}; its tags: {tags}",
            "choose one of its tags, or leave reverse_tag out",
        ),
        (
            tag is None and reverse.directions.always_tagged,
            f"the reverse model always saw a tag before its source; its tags: {tags}",
            f"choose the tag for {src} with reverse_tag, --reverse-tag on the command line",
        ),
        (
            tgt_tag is not None and tgt_tag not in reverse.vocab.tgt_tags,
            f"the reverse model has no target tag {tgt_tag}; its target tags: {tgt_tags}",
            "choose one of its target tags, or leave reverse_tgt_tag out",
        ),
        (
            tgt_tag is None and reverse.directions.tgt_tag_required,
            f"the reverse model always saw a target tag; its target tags: {tgt_tags}",
            f"choose the one for {src} with reverse_tgt_tag, --reverse-tgt-tag on the command line",
        ),
        (
            not fits,
            f"the reverse model translates {reverse.src} to {target}, but it must translate "
            f"{codec.tgt} to {src}",
            "pass a model of the reverse direction; if it has several target languages, choose "
            "one with reverse_tag or reverse_tgt_tag",
        ),
        (
            reverse.segmenter.moses.tokenized != codec.segmenter.moses.tokenized,
            "only one of the model and the reverse model was trained on tokenized text",
            "train both with the same data.tokenized",
        ),
    ):
        if is_problem:
            raise UserError(what, at=source, fix=fix)
