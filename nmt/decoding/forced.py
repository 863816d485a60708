"""Forced decoding of given targets: log-probabilities by token, and word alignment.

One parallel pass as in training, over translations that a search found or that a user gives.

Legend: B sentences, H heads, T target tokens incl. EOS, S source tokens incl. EOS, Nt flat ones.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nmt.data.batches import Batch, collate
from nmt.data.text import too_long
from nmt.data.vocab import EOS, UNK
from nmt.decoding.batching import HalvingBatcher
from nmt.decoding.codec import BLANK, MAX_SOURCE_PIECES, TextCodec, Translation
from nmt.decoding.engine import (
    EncodedPair,
    Hypothesis,
    NonFiniteScores,
    Progress,
    Scorer,
    SearchInput,
    Stop,
    TokenScores,
    ignore,
)
from nmt.decoding.ensemble import Ensemble
from nmt.decoding.options import SearchOptions
from nmt.errors import UserError
from nmt.model.attention import CrossAttention
from nmt.model.cpu import kernels
from nmt.model.transformer import Transformer

MAX_TARGET_PIECES = 4096  # the attention of longer targets would not fit in memory


class _Pairs:
    """A corpus for ``collate``."""

    def __init__(self, pairs: Sequence[EncodedPair]) -> None:
        self._pairs = pairs
        self.src_len = np.array([len(src) for src, _, _ in pairs], dtype=np.int64)
        self.tgt_len = np.array([len(tgt) for _, tgt, _ in pairs], dtype=np.int64)

    def src(self, row: int) -> np.ndarray:
        return self._pairs[row][0]

    def tgt(self, row: int) -> np.ndarray:
        return self._pairs[row][1]


@torch.no_grad()
def forced_decode(
    model: Transformer | Ensemble,
    pairs: Sequence[EncodedPair],
    options: SearchOptions,
    batcher: HalvingBatcher,
    stop: Stop,
    progress: Progress,
    start: np.ndarray,
) -> list[TokenScores]:
    """Score the targets of pairs, in batches of similar length.

    A type that the target side of the training data lacks is scored as UNK.

    Args:
        model: in eval mode.
        pairs: each source has at least one piece, after the tag of the options, if any.
        options: ``batch_tokens`` limits sentences x twice the longest side of a batch; a longer
            pair is a batch of its own. ``align`` adds the aligned source pieces.
        batcher: of the device that computes.
        start: ids that each target begins with, which are not scored.

    Raises:
        NonFiniteScores: the scores of a pair hold NaN or infinity; with its line.
        MachineError: a single pair does not fit in memory.
    """
    corpus, skipped = _Pairs([(s, np.append(start, t), n) for s, t, n in pairs]), len(start)
    longest = np.maximum(corpus.src_len, corpus.tgt_len) + 1
    order = np.argsort(-longest, kind="stable")
    if batcher.device.type == "cpu":
        kernels.load_if_worthwhile(int(longest.sum()))

    def score_batch(rows: Sequence[int]) -> list[TokenScores]:
        stop()
        batch = collate(corpus, np.array(rows)).to(batcher.device)
        with contextlib.ExitStack() as stack:
            attention = stack.enter_context(_recorded_attention(model)) if options.align else []
            logits = model(*batch.inputs)
        targets = batch.tgt_out.masked_fill(~model.allowed[batch.tgt_out], UNK)
        log_probs = logits.gather(1, targets[:, None]) - kernels.log_sum_exp(logits)
        remaining = iter(log_probs[:, 0].tolist())
        aligned = _aligned_pieces(attention, batch, int(options.tag is not None), skipped)
        results = []
        for place, row in enumerate(rows):
            length = int(corpus.tgt_len[row])
            row_log_probs = list(itertools.islice(remaining, length + 1))[skipped:]
            if not all(map(math.isfinite, row_log_probs)):
                raise NonFiniteScores(pairs[row][2])
            links = aligned[place][: length - skipped] if options.align else []
            results.append(TokenScores(row_log_probs, links))
        return results

    results: list[TokenScores] = [TokenScores([], [])] * len(order)
    lengths = (2 * longest[order]).tolist()
    batches = batcher.map(score_batch, order.tolist(), lengths, options.batch_tokens)
    for indices, scores in batches:
        for row, row_scores in zip(order[indices.start : indices.stop], scores, strict=True):
            results[row] = row_scores
        progress(len(indices))
    return results


@dataclass(frozen=True)
class AttentionMap:
    """The cross-attention of a model for one pair.

    Attributes:
        source: the source pieces and EOS: S.
        target: the target pieces and EOS: T.
        weights: [T, S], of the step that predicts each target piece, mean over the heads of one
            layer; each row adds up to 1.
    """

    source: list[str]
    target: list[str]
    weights: np.ndarray


@torch.no_grad()
def attention_maps(
    model: Transformer,
    codec: TextCodec,
    pairs: Sequence[tuple[str, str]],
    tag: str | None,
    src: str | None,
    tgt_tag: str | None = None,
) -> list[AttentionMap]:
    """Compute the cross-attention of given pairs, at the layer that word alignments use.

    Args:
        model: in eval mode.
        pairs: source and target, plain text; not blank.
        tag, src, tgt_tag: as in ``SearchOptions``; there is no row for ``tgt_tag``.
    """
    mark, start = codec.tag_ids(tag), codec.tag_ids(tgt_tag, "tgt")
    maps = []
    for number, (source, target) in enumerate(pairs, 1):
        src_pieces, tgt_pieces = codec.source_pieces(source, src), codec.target_pieces(target)
        src_ids = np.concatenate([mark, codec.source_ids(number, src_pieces)])
        tgt_ids = np.append(start, np.array(codec.vocab.ids(tgt_pieces), np.int64))
        batch = collate(_Pairs([(src_ids, tgt_ids, number)]), np.zeros(1, dtype=np.int64))
        with _recorded_attention(model) as attention:
            model(*batch.to(model.allowed.device).inputs)
        weights = torch.stack(attention).mean(0)[0, len(start) :].float().cpu().numpy()
        eos = codec.vocab.pieces([EOS])
        marked = [*([tag] if tag else []), *src_pieces, *eos]
        maps.append(AttentionMap(marked, [*tgt_pieces, *eos], weights))
    return maps


@contextlib.contextmanager
def _recorded_attention(model: Transformer | Ensemble) -> Iterator[list[Tensor]]:
    """Record the attention weights [B, T, S] of each model at each forward.

    They are the mean over the heads of the second to last layer (Garg et al. 2019, section 4.1), or
    of the last layer if there are only two.
    """
    recorded: list[Tensor] = []

    def record(attention: CrossAttention, inputs: tuple, output: Tensor) -> None:
        recorded.append(attention.weights(*inputs).mean(1))

    handles = []
    for member in model.members() if isinstance(model, Ensemble) else [model]:
        blocks = list(member.decoder.blocks)
        attention = blocks[max(len(blocks) - 2, len(blocks) // 2)].cross_attn
        assert attention is not None
        handles.append(attention.register_forward_hook(record))
    try:
        yield recorded
    finally:
        for handle in handles:
            handle.remove()


def _aligned_pieces(
    attention: Sequence[Tensor], batch: Batch, src_tags: int, tgt_tags: int
) -> list[list[int]]:
    """Return the source piece of each target piece of a batch: B lists of T - 1 - tgt_tags.

    It is the piece with the highest attention in the step that predicts the target piece (Garg et
    al. 2019). Chen et al. (2020, Shift-Att) read it one step later and at the third layer of six,
    for PostNorm. With our small PreNorm models that finds half as many links of words that are
    equal on both sides (docs/search-options.md). EOS is excluded, because it attracts words without
    a source. Tags are excluded too, because they are not words.
    """
    if not attention:
        return []
    weights = torch.stack(list(attention)).mean(0)[:, tgt_tags:-1, src_tags:]
    places = torch.arange(weights.shape[-1], device=weights.device)
    pieces = places < (batch.src_layout.lengths - 1 - src_tags)[:, None]
    return weights.masked_fill(~pieces[:, None], -1.0).argmax(-1).tolist()


# ---------------------------------------------------------------- translations that a search found


def add_scores_and_alignment(
    scorer: Scorer,
    codec: TextCodec,
    parts: Sequence[Sequence[SearchInput]],
    hypotheses: Sequence[Sequence[list[Hypothesis]]],
    options: SearchOptions,
    stop: Stop,
) -> list[list[Translation]]:
    """Decode the hypotheses of some lines, with log-probabilities by token and alignment.

    Args:
        parts: of each line, none for a blank one.
        hypotheses: of each line and part, best first.
    """
    pairs = [
        (part.ids, np.array(hypothesis.ids, dtype=np.int64), part.line)
        for pair in zip(parts, hypotheses, strict=True)
        for part, ranks in zip(*pair, strict=True)
        for hypothesis in ranks
    ]
    scores = iter(scorer.score(pairs, options, stop, ignore))
    results = []
    for line_parts, ranks_of_parts in zip(parts, hypotheses, strict=True):
        scored = [[(hypothesis, next(scores)) for hypothesis in ranks] for ranks in ranks_of_parts]
        translations = codec.decode_line(ranks_of_parts, line_parts)
        if line_parts:
            translations = [
                _with_scores(translation, rank, line_parts, codec)
                for translation, rank in zip(translations, zip(*scored, strict=False), strict=True)
            ]
        results.append(translations)
    return results


def _with_scores(
    translation: Translation,
    rank: Sequence[tuple[Hypothesis, TokenScores]],
    parts: Sequence[SearchInput],
    codec: TextCodec,
) -> Translation:
    """Add the scores and the alignment of the parts; one cut at the length limit has no EOS."""
    aligned: list[int] = []
    source: list[str] = []
    log_probs: list[float] = []
    eos = []
    for part, (hypothesis, scores) in zip(parts, rank, strict=True):
        aligned += [len(source) + index for index in scores.aligned]
        source += part.pieces
        log_probs += scores.log_probs[: len(hypothesis.ids) + hypothesis.finished]
        if hypothesis.finished:
            eos.append(len(log_probs) - 1)
    links = word_alignment(aligned, codec.word_ends(source), codec.word_ends(translation.pieces))
    return dataclasses.replace(translation, token_log_probs=log_probs, eos=eos, alignment=links)


# ---------------------------------------------------------------- translations that a user gives


def score_pairs(
    scorer: Scorer,
    codec: TextCodec,
    pairs: Sequence[tuple[int, tuple[str | None, str | None]]],
    options: SearchOptions,
    progress: Progress,
) -> list[Translation]:
    """Score each target as the translation of its source.

    Two blank lines have log-probability 0, because a blank line always has a blank translation. If
    only one side is blank it is minus infinity, because a search never returns that. It is also
    minus infinity, with a note on standard error, for a pair that is too long: a search would
    translate the source in parts, and the parts of the target are not known.

    Args:
        pairs: line number, and source and target; None = this side has ended.

    Raises:
        UserError: one side has more lines than the other.
    """
    tag = codec.tag_ids(options.tag)
    results: list[Translation] = []
    usable: list[EncodedPair] = []
    segmented: dict[int, tuple[list[str], list[str]]] = {}  # index of a result -> source, target
    for number, (source, target) in pairs:
        if source is None or target is None:
            ended, other = ("source", "target") if source is None else ("target", "source")
            raise UserError(
                f"the {ended} ends before line {number}, but the {other} does not",
                fix="give source and target the same number of lines",
            )
        pieces = _segment_pair(codec, number, source, target, options.src, scorer.longest_target)
        result = Translation([], target, -math.inf, -math.inf, True)
        if pieces is not None:
            src_ids = codec.source_ids(number, pieces[0])
            if all(pieces):
                segmented[len(results)] = pieces
                tgt_ids = np.array(codec.vocab.ids(pieces[1]), dtype=np.int64)
                usable.append((np.concatenate([tag, src_ids]), tgt_ids, number))
            elif not any(pieces):
                result = BLANK
        results.append(result)
    progress(len(pairs) - len(usable))
    scores = scorer.score(usable, options, ignore, progress)
    for (index, (src, tgt)), pair_scores in zip(segmented.items(), scores, strict=True):
        log_probs = pair_scores.log_probs
        log_prob = sum(log_probs)
        results[index] = Translation(
            tgt,
            results[index].text,
            log_prob / options.penalty(len(log_probs)),
            log_prob,
            finished=True,
            token_log_probs=log_probs,
            alignment=word_alignment(
                pair_scores.aligned, codec.word_ends(src), codec.word_ends(tgt)
            ),
            short=codec.is_short(len(src), len(tgt)),
            eos=[len(tgt)],
        )
    return results


def _segment_pair(
    codec: TextCodec,
    number: int,
    source: str,
    target: str,
    src: str | None,
    longest_target: int,
) -> tuple[list[str], list[str]] | None:
    """Return the pieces of both sides, none of a blank one; None if a side is too long."""
    sides = []
    for side, line, segment, limit in (
        ("source", source, functools.partial(codec.source_pieces, src=src), MAX_SOURCE_PIECES),
        ("target", target, codec.target_pieces, longest_target),
    ):
        problem = too_long(line)
        pieces = [] if problem else segment(line)
        if len(pieces) > limit:
            problem = f"{len(pieces):,} subwords, at most {limit:,} are allowed"
        if problem:
            print(f"note: line {number} is not scored: its {side} has {problem}", file=sys.stderr)
            return None
        sides.append(pieces)
    source_pieces, target_pieces = sides
    return source_pieces, target_pieces


# ---------------------------------------------------------------- alignment


def word_alignment(
    aligned: Sequence[int], source_ends: Sequence[bool], target_ends: Sequence[bool]
) -> list[tuple[int, int]]:
    """Return pairs (source word, target word) in order, from 0.

    Two words are linked if any of their pieces are.

    Args:
        aligned: the source piece of each target piece; empty = no alignment.
        source_ends, target_ends: whether each piece ends a word.
    """
    if not aligned:
        return []
    source_words, target_words = (
        list(itertools.accumulate(ends[:-1], initial=0)) for ends in (source_ends, target_ends)
    )
    return sorted({(source_words[i], target_words[j]) for j, i in enumerate(aligned)})
