"""Which hypotheses a step of a search computes: the others are left out of every matrix product.

Legend: N hypotheses of a batch, R of them that are computed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

ROUND = 8  # rows are computed in multiples of this


@dataclass(frozen=True)
class ActiveRows:
    """Which of N rows are computed; the rest have no values that anyone looks at.

    Attributes:
        which: [R] int64; None = all, in order.
        place: [N] int64, where each of the N has its values among the R: its own, or those of the
            last row before it that is needed; None = all.
    """

    which: Tensor | None = None
    place: Tensor | None = None

    @classmethod
    def where(cls, needed: Tensor) -> ActiveRows:
        """The rows of a mask [...] bool and a few more: a CPU has kernels for some numbers of rows,
        made when they are first asked for. All on a GPU, where asking would wait.
        """
        if needed.device.type != "cpu":
            return cls()
        needed = needed.flatten()
        which = needed.nonzero()[:, 0]
        more = -len(which) % ROUND
        if len(which) == 0 or len(which) + more >= len(needed):
            return cls()
        place = (needed.cumsum(0) - 1).clamp_(min=0)
        return cls(torch.cat([which, (~needed).nonzero()[:more, 0]]), place)

    def take(self, x: Tensor) -> Tensor:
        """[N, ...] -> [R, ...]."""
        return x if self.which is None else x.index_select(0, self.which)

    def spread(self, x: Tensor) -> Tensor:
        """[R, ...] -> [N, ...]; rows that are not needed repeat others."""
        return x if self.place is None else x.index_select(0, self.place)


ALL = ActiveRows()
