"""Fixed batch sizes (buckets), for work that is prepared once per size and then repeated.

Two things are prepared: CUDA graphs, and the bf16 matrix products that oneDNN compiles on a CPU.
Compiling a product takes several times as long as computing it, and without buckets nearly every
batch has another number of rows.

A CUDA graph belongs to a complete bucket, so its grid of attention is coarse: three epochs of
ted-gl-en (3,000 merges, batches of 4,096 tokens) need 20 buckets, and 6.5 % of their tokens are
padding. A product of oneDNN belongs to the grid or to one number of tokens, so both may be finer
on a CPU: an epoch at 2,048 tokens needs 30 grids and 12 numbers of tokens, and 3.6 % are padding.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Bucket:
    """The size that a batch is padded to.

    Attributes:
        sentences, max_length: the grid of attention [B, L], the same for both sides.
        src_tokens, tgt_tokens: flat tokens, padding included.
    """

    sentences: int
    max_length: int
    src_tokens: int
    tgt_tokens: int


@dataclass(frozen=True)
class Buckets:
    """The sizes that batches may be padded to.

    Attributes:
        max_lengths: lengths of the grid, in ascending order.
        steps: different numbers of tokens per side, up to ``batch_tokens``.
    """

    max_lengths: tuple[int, ...]
    steps: int

    def fit(self, src_len: np.ndarray, tgt_len: np.ndarray, batch_tokens: int) -> Bucket | None:
        """Return the smallest bucket for a batch.

        Args:
            src_len, tgt_len: [B], lengths including EOS.

        Returns:
            None for a pair that is longer than ``batch_tokens`` or than any bucket.
        """
        longest = max(int(src_len.max()), int(tgt_len.max()))
        if longest > self.max_lengths[-1] or longest * len(src_len) > batch_tokens:
            return None
        at = bisect.bisect_left(self.max_lengths, longest)
        shorter = self.max_lengths[at - 1] if at else 0
        step = -(-batch_tokens // self.steps)
        # as many sentences as make_batches can put there, and a slot for each token and its padding
        sentences = max(
            batch_tokens // (shorter + 1), -(-step * self.steps // self.max_lengths[at])
        )
        src_tokens, tgt_tokens = (-(-int(n.sum()) // step) * step for n in (src_len, tgt_len))
        return Bucket(sentences, self.max_lengths[at], src_tokens, tgt_tokens)


GPU_BUCKETS = Buckets((4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512), steps=8)
CPU_BUCKETS = Buckets(
    (*range(4, 65, 4), *range(72, 129, 8), *range(144, 257, 16), *range(320, 513, 64)), steps=16
)


def buckets_for(device_type: str) -> Buckets:
    """Return the buckets for a type of device, such as "cpu" or "cuda"."""
    return CPU_BUCKETS if device_type == "cpu" else GPU_BUCKETS
