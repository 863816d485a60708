"""Map between flat tokens and the padded grid, which only attention sees.

Legend: N tokens in the batch, B sentences, L tokens of the longest sentence. Every computation per
token (norms, projections, feed-forward, logits, loss) runs on [N, ...], without padding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """Lengths of B sentences and the indices between flat [N] and padded [B, L] order.

    Attributes:
        lengths: [B] int64, each at least 1.
        positions: [N] int64, position of each token in its sentence, from 0.
        to_padded: [B, L] int64, flat index of each slot. Padding slots repeat the last token of
            their sentence, so they hold finite values, which the mask hides.
        to_flat: [N] int64, slot of each token, row-major in [B, L].
        visible: [B, L] bool, True at tokens.
        padded: whether any slot is padding.
    """

    lengths: Tensor
    positions: Tensor
    to_padded: Tensor
    to_flat: Tensor
    visible: Tensor
    padded: bool

    @classmethod
    def of(cls, lengths: Sequence[int] | np.ndarray) -> Layout:
        """Return the layout of sentences of these lengths, on the CPU."""
        sizes = np.asarray(lengths, dtype=np.int64)
        if sizes.size == 0 or sizes.min() < 1:
            raise ValueError("a layout needs sentences of at least one token")
        longest = int(sizes.max())
        starts = np.cumsum(sizes) - sizes
        slots = np.arange(longest)[None, :]
        visible = slots < sizes[:, None]
        to_padded = starts[:, None] + np.minimum(slots, sizes[:, None] - 1)
        return cls(
            lengths=torch.from_numpy(sizes),
            positions=torch.from_numpy(np.broadcast_to(slots, visible.shape)[visible].copy()),
            to_padded=torch.from_numpy(to_padded),
            to_flat=torch.from_numpy(np.flatnonzero(visible)),
            visible=torch.from_numpy(visible),
            padded=not bool(visible.all()),
        )

    @classmethod
    def with_padding(
        cls, lengths: Sequence[int] | np.ndarray, tokens: int, sentences: int, max_length: int
    ) -> Layout:
        """Return the layout of these sentences, padded to a fixed size.

        Padding tokens follow the real tokens, and each takes a padding slot of the grid. No token
        attends to them. Sentences of padding attend to their first slot, because attention to
        nothing is NaN. Gradients of padding tokens are zero if their losses are.

        Args:
            lengths: of the real sentences.
            tokens, sentences, max_length: N, B and L of the result.

        Raises:
            ValueError: the sentences do not fit.
        """
        sizes = np.asarray(lengths, dtype=np.int64)
        real, padding = int(sizes.sum()), tokens - int(sizes.sum())
        slots = np.arange(max_length)[None, :]
        visible = np.zeros((sentences, max_length), dtype=bool)
        visible[: len(sizes)] = slots < sizes[:, None]
        free = np.flatnonzero(~visible)[:padding]
        if padding < 0 or len(free) < padding or visible.sum() != real:
            raise ValueError(f"{real} tokens do not fit {tokens} in {sentences} x {max_length}")
        starts = np.cumsum(sizes) - sizes
        to_padded = np.zeros((sentences, max_length), dtype=np.int64)
        to_padded[: len(sizes)] = starts[:, None] + np.minimum(slots, sizes[:, None] - 1)
        to_padded.reshape(-1)[free] = real + np.arange(padding)
        to_flat = np.concatenate([np.flatnonzero(visible), free])
        visible[len(sizes) :, 0] = True
        return cls(
            lengths=torch.from_numpy(visible.sum(1)),
            positions=torch.from_numpy(to_flat % max_length),
            to_padded=torch.from_numpy(to_padded),
            to_flat=torch.from_numpy(to_flat),
            visible=torch.from_numpy(visible),
            padded=True,
        )

    @property
    def shape(self) -> tuple[int, int]:
        """(B, L)."""
        return self.to_padded.shape[0], self.to_padded.shape[1]

    @property
    def key_mask(self) -> Tensor | None:
        """The keys that the queries of each sentence see: [B, 1, 1, L]; None = all."""
        return self.visible[:, None, None, :] if self.padded else None

    def without_last(self) -> Layout:
        """Return this layout with the last token of each sentence hidden from attention."""
        slots = torch.arange(self.shape[1], device=self.lengths.device)
        visible = slots < (self.lengths - 1).clamp(min=1)[:, None]
        return replace(self, visible=visible, padded=True)

    def map(self, f: Callable[[Tensor], Tensor]) -> Layout:
        """Return this layout with ``f`` applied to each tensor, in the order of the fields."""
        tensors: dict[str, Any] = {k: f(x) for k, x in vars(self).items() if isinstance(x, Tensor)}
        return replace(self, **tensors)

    def to(self, device: torch.device) -> Layout:
        """Return this layout on another device."""
        return self.map(lambda t: t.to(device))

    def pad(self, x: Tensor) -> Tensor:
        """Return [N, ...] as [B, L, ...]. Each token gets the gradient of its own slot only."""
        if not self.padded:
            return x.view(*self.shape, *x.shape[1:])
        return _Pad.apply(x, self.to_padded, self.to_flat)

    def flat(self, x: Tensor) -> Tensor:
        """Return [B, L, ...] as [N, ...], the inverse of ``pad``: padding slots are dropped."""
        if not self.padded:
            return x.reshape(-1, *x.shape[2:])
        return _Flat.apply(x, self.to_flat)


@dataclass(frozen=True)
class StepLayout:
    """The hypotheses of one position of a search, K for each of B sentences: N = B * K rows.

    Attributes:
        visible: [B, K or 1, S] bool, the keys that each hypothesis sees.
    """

    visible: Tensor

    @property
    def key_mask(self) -> Tensor:
        """The keys that each hypothesis sees: [B, 1, K or 1, S]."""
        return self.visible[:, None]

    def pad(self, x: Tensor) -> Tensor:
        """Return [N, ...] as [B, K, ...]."""
        return x.unflatten(0, self.visible.shape[:2])

    def flat(self, x: Tensor) -> Tensor:
        """Return [B, K, ...] as [N, ...]."""
        return x.flatten(0, 1)


AnyLayout: TypeAlias = Layout | StepLayout


class _Pad(torch.autograd.Function):
    """``x[to_padded]``, whose own backward would add the gradients of all slots of a token.

    The gradient of a padding slot is zero or not needed, so gathering ``to_flat`` is enough.
    """

    @staticmethod
    def forward(ctx, x, to_padded, to_flat):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(to_flat)
        return x.index_select(0, to_padded.view(-1)).view(*to_padded.shape, *x.shape[1:])

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        (to_flat,) = ctx.saved_tensors
        return grad.reshape(-1, *grad.shape[2:]).index_select(0, to_flat), None, None


class _Flat(torch.autograd.Function):
    """Gather; backward writes the gradient of each token to its slot, and zero to padding."""

    @staticmethod
    def forward(ctx, x, to_flat):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(to_flat)
        ctx.shape = x.shape
        return x.reshape(-1, *x.shape[2:]).index_select(0, to_flat)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        (to_flat,) = ctx.saved_tensors
        slots = grad.new_zeros(ctx.shape[0] * ctx.shape[1], *ctx.shape[2:])
        slots.index_copy_(0, to_flat, grad)
        return slots.view(ctx.shape), None
