"""Select the hypotheses that a search step computes and leave the others out of matrix products.

Shapes: N hypotheses of a batch (sentences x beams), R of them that are computed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

ROW_MULTIPLE = 8  # R is rounded up to a multiple of this


@dataclass(frozen=True)
class ActiveRows:
    """Map between all N rows of a batch and the R rows that are computed.

    Attributes:
        indices: [R] int64, the row among the N of each computed row; None = all N, in order.
        positions: [N] int64, the computed row that each of the N rows reads. An active row reads
            its own; any other row reads that of the last active row before it. None = its own.
    """

    indices: Tensor | None = None
    positions: Tensor | None = None

    @classmethod
    def from_mask(cls, active: Tensor) -> ActiveRows:
        """Return the active rows of a boolean mask of any shape with N elements.

        R is rounded up with inactive rows, because oneDNN compiles a kernel for each number of rows
        at its first use. On a GPU all rows are computed: reading the mask would synchronize.
        """
        if active.device.type != "cpu" or active.numel() <= ROW_MULTIPLE:
            return cls()
        active = active.flatten()
        indices = active.nonzero()[:, 0]
        extra = -len(indices) % ROW_MULTIPLE
        if len(indices) == 0 or len(indices) + extra >= len(active):
            return cls()
        positions = (active.cumsum(0) - 1).clamp_(min=0)
        return cls(torch.cat([indices, (~active).nonzero()[:extra, 0]]), positions)

    def gather(self, x: Tensor) -> Tensor:
        """Return the computed rows: [N, ...] -> [R, ...]."""
        return x if self.indices is None else x.index_select(0, self.indices)

    def expand(self, x: Tensor) -> Tensor:
        """Return a value for every row: [R, ...] -> [N, ...]; inactive rows repeat active ones."""
        return x if self.positions is None else x.index_select(0, self.positions)


ALL_ROWS = ActiveRows()
