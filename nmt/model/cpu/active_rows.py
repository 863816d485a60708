"""Compute only the hypotheses that a search needs, and leave the others out of matrix products.

Shapes: B sentences, K hypotheses each, N = B * K, R of them that are computed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.model.layout import StepLayout

ROW_MULTIPLE = 8  # R is rounded up to a multiple of this


@dataclass(frozen=True)
class ActiveRows(StepLayout):
    """The layout of one position that maps R computed rows to [B, K] and back.

    Attributes:
        indices: [R] int64, the hypothesis of each computed row; None = all N, in order.
        rows: [N] int64, the computed row that each hypothesis reads. A needed one reads its own;
            any other reads that of the last needed one before it. None = its own.
    """

    indices: Tensor | None = None
    rows: Tensor | None = None

    @classmethod
    def of(cls, visible: Tensor, needed: Tensor | None) -> ActiveRows:
        """Return the layout that computes the needed rows: [B, K] bool, None = all.

        R is rounded up with other rows, because oneDNN compiles a kernel for each number of rows at
        its first use.
        """
        if needed is None or needed.numel() <= ROW_MULTIPLE:
            return cls(visible)
        needed = needed.flatten()
        indices = needed.nonzero()[:, 0]
        extra = -len(indices) % ROW_MULTIPLE
        if len(indices) == 0 or len(indices) + extra >= len(needed):
            return cls(visible)
        rows = (needed.cumsum(0) - 1).clamp_(min=0)
        return cls(visible, torch.cat([indices, (~needed).nonzero()[:extra, 0]]), rows)

    def pad(self, x: Tensor) -> Tensor:
        """Return [R, ...] as [B, K, ...]; rows that are not computed repeat others."""
        return super().pad(x if self.rows is None else x.index_select(0, self.rows))

    def flat(self, x: Tensor) -> Tensor:
        """Return the computed rows: [B, K, ...] -> [R, ...]."""
        x = super().flat(x)
        return x if self.indices is None else x.index_select(0, self.indices)
