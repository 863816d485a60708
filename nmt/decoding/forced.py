"""What a model says of translations that are there already: one parallel pass, as in training.

Log-probabilities of their tokens, and which source piece each of their pieces looks at.

Legend: B sentences, H heads, T target tokens incl. EOS, S source tokens incl. EOS, Nt flat ones.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nmt.data.batches import Batch, collate
from nmt.data.vocab import UNK
from nmt.decoding.ensemble import Ensemble
from nmt.decoding.memory import Memory
from nmt.decoding.search import NonFiniteScores
from nmt.model.attention import MultiHeadAttention
from nmt.model.cpu import kernels
from nmt.model.transformer import Transformer


@dataclass(frozen=True)
class TokenScores:
    """A given translation.

    Attributes:
        log_probs: of each token, EOS included.
        sources: the source piece that each piece looks at most; empty if it was not asked for.
    """

    log_probs: list[float]
    sources: list[int]


class Pairs:
    """Encoded sentences and their translations, as a corpus that batches are made of.

    Attributes:
        lines: number of the line that each is from.
    """

    def __init__(
        self, sources: Sequence[np.ndarray], targets: Sequence[np.ndarray], lines: Sequence[int]
    ) -> None:
        self._sources, self._targets, self.lines = sources, targets, lines
        self.src_len = np.array([len(ids) for ids in sources], dtype=np.int64)
        self.tgt_len = np.array([len(ids) for ids in targets], dtype=np.int64)

    def src(self, row: int) -> np.ndarray:
        """Source ids of a pair, without EOS."""
        return self._sources[row]

    def tgt(self, row: int) -> np.ndarray:
        """Target ids of a pair, without EOS."""
        return self._targets[row]


@torch.no_grad()
def forced_decode(
    model: Transformer | Ensemble,
    pairs: Pairs,
    batch_tokens: int,
    memory: Memory,
    align: bool = False,
    done: Callable[[int], None] = lambda pairs: None,
) -> list[TokenScores]:
    """Force a model through given translations, in batches of similar length.

    A type that the target side of the training data never has is UNK to the model.

    Args:
        model: in eval mode.
        pairs: each source has at least one piece.
        batch_tokens: pieces of both sides of a batch, at most: sentences x twice the longest side;
            a longer pair is alone.
        memory: of the device that computes; batches are halved when it is short.
        align: find ``sources`` too.
        done: is told how many pairs each batch had.

    Raises:
        NonFiniteScores: NaN or infinity among the scores of a pair; with its line.
        MachineError: a single pair does not fit in memory.
    """
    longest = np.maximum(pairs.src_len, pairs.tgt_len) + 1
    order = np.argsort(-longest, kind="stable")
    if memory.device.type == "cpu":
        kernels.load_if_worthwhile(int(longest.sum()))

    def force_batch(run: range) -> list[TokenScores]:
        rows = order[run.start : run.stop]
        batch = collate(pairs, rows).to(memory.device)
        with _watched(model if align else None) as looks:
            logits = model(batch)
        said = batch.tgt_out.masked_fill(~model.allowed[batch.tgt_out], UNK)
        log_probs = logits.gather(1, said[:, None]) - kernels.log_sum_exp(logits)
        of_tokens = iter(log_probs[:, 0].tolist())
        of_pieces = _most_looked_at(looks, batch)
        results = []
        for place, row in enumerate(rows.tolist()):
            length = int(pairs.tgt_len[row])
            of_row = list(itertools.islice(of_tokens, length + 1))
            if not all(map(math.isfinite, of_row)):
                raise NonFiniteScores(pairs.lines[row])
            results.append(TokenScores(of_row, of_pieces[place][:length] if align else []))
        return results

    results: list[TokenScores] = [TokenScores([], [])] * len(order)
    lengths = (2 * longest[order]).tolist()
    for run, forced in memory.in_turn(lengths, batch_tokens, force_batch):
        for row, one in zip(order[run.start : run.stop], forced, strict=True):
            results[row] = one
        done(len(run))
    return results


@contextlib.contextmanager
def _watched(model: Transformer | Ensemble | None) -> Iterator[list[Tensor]]:
    """While it is open, each forward adds what its models look at: [B, T, S], mean of the heads.

    The layer is the last but one (Garg et al. 2019, section 4.1), of two the last.
    """
    looks: list[Tensor] = []

    def look(attention: MultiHeadAttention, inputs: tuple, output: Tensor) -> None:
        looks.append(attention.cross_attention_weights(*inputs).mean(1))

    handles = []
    for member in model.members() if isinstance(model, Ensemble) else [model] if model else []:
        blocks = list(member.decoder.blocks)
        attention = blocks[max(len(blocks) - 2, len(blocks) // 2)].cross_attn
        assert attention is not None
        handles.append(attention.register_forward_hook(look))
    try:
        yield looks
    finally:
        for handle in handles:
            handle.remove()


def _most_looked_at(looks: Sequence[Tensor], batch: Batch) -> list[list[int]]:
    """The source piece of each target piece of a batch: B lists of T - 1.

    The one that attention has its maximum at, in the step that predicts the piece (Garg et al.
    2019). Chen et al. (2020, Shift-Att) read it one step later and at the third layer of six, for
    PostNorm; with our small PreNorm models that finds half as many links of words that are the
    same on both sides (docs/commands.md). EOS is no piece, and attracts what has no source.
    """
    if not looks:
        return []
    weights = torch.stack(list(looks)).mean(0)[:, :-1]  # [B, T - 1, S]
    places = torch.arange(weights.shape[-1], device=weights.device)
    pieces = places < (batch.src_layout.lengths - 1)[:, None]
    return weights.masked_fill(~pieces[:, None], -1.0).argmax(-1).tolist()
