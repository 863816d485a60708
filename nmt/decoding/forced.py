"""Forced decoding of given targets with torch: log-probabilities by token, and alignments.

One parallel pass as in training.

Legend: B sentences, H heads, T target tokens incl. EOS, S source tokens incl. EOS, Nt flat ones.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from nmt.data.batches import Batch, collate
from nmt.data.vocab import UNK
from nmt.decoding.batching import HalvingBatcher
from nmt.decoding.engine import EncodedPair, NonFiniteScores, Progress, Stop, TokenScores
from nmt.decoding.ensemble import Ensemble
from nmt.decoding.options import SearchOptions
from nmt.model.attention import CrossAttention
from nmt.model.transformer import Transformer


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

    A type that the target side of the training data lacks is UNK, also for the tokens after it.

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
    allowed, skipped = model.allowed.cpu().numpy(), len(start)
    corpus = _Pairs([(s, np.append(start, np.where(allowed[t], t, UNK)), n) for s, t, n in pairs])
    longest = np.maximum(corpus.src_len, corpus.tgt_len) + 1
    order = np.argsort(-longest, kind="stable")

    def score_batch(rows: Sequence[int]) -> list[TokenScores]:
        stop()
        batch = collate(corpus, np.array(rows)).to(batcher.device)
        with contextlib.ExitStack() as stack:
            attention = stack.enter_context(_recorded_attention(model)) if options.align else []
            logits = model(*batch.inputs)
        log_probs = logits.gather(1, batch.tgt_out[:, None]) - logits.float().logsumexp(
            -1, keepdim=True
        )
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


@contextlib.contextmanager
def _recorded_attention(model: Transformer | Ensemble) -> Iterator[list[Tensor]]:
    """Record the attention weights [B, T, S] of each model at each forward.

    They are the mean over the heads of ``ModelConfig.alignment_layer``.
    """
    recorded: list[Tensor] = []

    def record(attention: CrossAttention, inputs: tuple, output: Tensor) -> None:
        recorded.append(attention.weights(*inputs).mean(1))

    handles = []
    for member in model.members() if isinstance(model, Ensemble) else [model]:
        attention = list(member.decoder.blocks)[member.config.alignment_layer].cross_attn
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
