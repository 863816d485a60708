"""Loops that a search spends its time in, compiled for one core of a CPU.

torch takes several operations for each, and as many passes over memory. It does the work where
numbers are neither fp32 nor bf16, on another device, or in need of gradients; and in fp32 until the
loops (``nmt.model.cpu.loops``) are loaded, which takes as long as translating several lines.
Training loads them at its start, so that all its scores come from the same operations.

Legend: N hypotheses, K a sentence, R rows of N that are computed, B sentences, C slots, D model
dim, H heads, E = D / H, A types.
"""

from __future__ import annotations

from types import ModuleType

import numpy as np
import torch
from torch import Tensor

PRECISIONS = (torch.float32, torch.bfloat16)
WORTH = 2_000  # tokens to search or score from which on the loops pay for being loaded
NONE = np.empty(0, dtype=np.int64)

_loops: ModuleType | None = None


def load() -> ModuleType:
    """Load the loops; before processes are forked that would each do it."""
    global _loops
    if _loops is None:
        from nmt.model.cpu import loops

        _loops = loops
    return _loops


def load_for(tokens: int) -> None:
    """Load the loops if so many tokens are enough work; before it begins, not in the middle."""
    if tokens >= WORTH:
        load()


def suit(x: Tensor) -> bool:
    """Whether the kernels compute with such a tensor; they know no gradients."""
    if not x.is_cpu or x.dtype not in PRECISIONS or torch.is_grad_enabled():
        return False
    return _loops is not None or x.dtype == torch.bfloat16


def write(qkv: Tensor, place: Tensor | None, cache: Tensor, first: int) -> None:
    """Copy keys and values of rows [R, 3D] into a cache [B, C, 2D] from slot ``first`` on.

    ``place``: [N] int64, the row of each of the K hypotheses of each sentence; None = its own.

    Raises:
        TypeError: their number formats differ; the bits are copied as they are.
    """
    if qkv.dtype != cache.dtype:
        raise TypeError(f"keys and values are {qkv.dtype}, their cache is {cache.dtype}")
    load().write(_array(qkv), _index(place), _array(cache), first)


def attend(
    q: Tensor, which: Tensor | None, beam: int, kv: Tensor, visible: Tensor, heads: int, dim: int
) -> Tensor:
    """Attention of rows to slots of their sentences (V 3.2.1): [R, H, E].

    Args:
        q: [R, D], and columns after them that are left alone.
        which: [R] int64, which of the N hypotheses each row is; None = all, in order.
        beam: K.
        kv: [B, C, 2D], keys and values, and columns before them that are left alone.
        visible: [B, K or 1, at most C] bool, True = may look.
        heads: H.
        dim: D.
    """
    mixed = q.new_empty(len(q), heads, dim // heads)
    load().attend(_array(q), _index(which), beam, _array(kv), visible.numpy(), _array(mixed))
    return mixed


class Norm:
    """``(x - mean) / size * gain + bias`` of rows, statistics in fp32."""

    def __init__(
        self, gain: Tensor, bias: Tensor, eps: float, *, centered: bool, length: bool
    ) -> None:
        """
        Args:
            gain, bias: [D].
            centered: there is a mean to be subtracted.
            length: the size is the length, at least ``eps``; else the root of the mean square
                plus ``eps``.
        """
        vectors = (x.detach().float().contiguous().numpy() for x in (gain, bias))
        self._how = (*vectors, np.float32(eps), centered, length)

    def __call__(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """[R, D] -> [R, D] of ``dtype``."""
        normed = torch.empty(x.shape, dtype=dtype)
        load().norm(_array(x.contiguous()), *self._how, _array(normed))
        return normed


def log_sum_exp(logits: Tensor) -> Tensor:
    """[..., A] -> [..., 1] fp32."""
    if not suit(logits):
        return logits.float().logsumexp(-1, keepdim=True)
    total = torch.empty(*logits.shape[:-1], 1)
    load().log_sum_exp(_rows(logits), total.view(-1).numpy())
    return total


def top(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """``logits.topk(count)``, [..., A] -> [..., count] twice; equal ones in the order of places."""
    if not suit(logits):
        return logits.topk(count, dim=-1)
    highest = torch.empty(*logits.shape[:-1], count)
    place = torch.empty(highest.shape, dtype=torch.int64)
    load().top(_rows(logits), *(x.view(-1, count).numpy() for x in (highest, place)))
    return highest, place


def _array(x: Tensor) -> np.ndarray:
    """The memory of a contiguous tensor, bf16 as uint16."""
    return (x.view(torch.uint16) if x.dtype == torch.bfloat16 else x).numpy()


def _rows(logits: Tensor) -> np.ndarray:
    """[..., A] -> [R, A]."""
    return _array(logits.reshape(-1, logits.shape[-1]).contiguous())


def _index(x: Tensor | None) -> np.ndarray:
    return NONE if x is None else x.numpy()
