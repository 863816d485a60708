"""Operations of a search step on a CPU, each one compiled function instead of several torch calls.

The functions are compiled by Numba (``nmt.model.cpu.numba_kernels``) and support fp32 and bf16
without gradients; torch computes everything else. They are a module of their own because importing
Numba takes as long as translating several lines: in fp32, torch computes until ``load`` is called.
Training calls it at the start, so that all its scores come from the same operations.

Shapes: B sentences, K hypotheses a sentence, N = B * K, R of the N rows that are computed, C cache
slots, D model dim, H heads, E = D / H, A types that logits have columns for.
"""

from __future__ import annotations

from types import ModuleType

import numpy as np
import torch
from torch import Tensor

DTYPES = (torch.float32, torch.bfloat16)
MIN_TOKENS = 2_000  # loading the kernels pays from this many tokens to search or score
NO_INDICES = np.empty(0, dtype=np.int64)

_compiled: ModuleType | None = None


def load() -> ModuleType:
    """Load the compiled kernels; call it before forking, so that the children share them."""
    global _compiled
    if _compiled is None:
        from nmt.model.cpu import numba_kernels

        _compiled = numba_kernels
    return _compiled


def load_if_worthwhile(tokens: int) -> None:
    """Load the kernels if there are enough tokens; call it before the work, not during it."""
    if tokens >= MIN_TOKENS:
        load()


def supports(x: Tensor) -> bool:
    """Return whether the kernels compute with such a tensor now."""
    if not x.is_cpu or x.dtype not in DTYPES or torch.is_grad_enabled():
        return False
    return _compiled is not None or x.dtype == torch.bfloat16


def write_cache(qkv: Tensor, rows: Tensor | None, cache: Tensor, first: int) -> None:
    """Copy keys and values of one decoding position into a cache, from slot ``first`` on.

    Args:
        qkv: [R, 3D], of which the last 2D columns are copied.
        rows: [N] int64, the row of ``qkv`` of each hypothesis; None = its own.
        cache: [B, C, 2D].
        first: the first of the K slots that are written.

    Raises:
        TypeError: the dtypes differ; bits are copied as they are.
    """
    if qkv.dtype != cache.dtype:
        raise TypeError(f"keys and values are {qkv.dtype}, but their cache is {cache.dtype}")
    load().write_cache(_array(qkv), _index_array(rows), _array(cache), first)


def cached_attention(
    q: Tensor, indices: Tensor | None, beam: int, kv: Tensor, visible: Tensor, heads: int, dim: int
) -> Tensor:
    """Return attention of rows to slots of their sentences (Vaswani equation 1): [R, H, E].

    Args:
        q: [R, D or more], queries in the first D columns.
        indices: [R] int64, which of the N hypotheses each row is; None = all, in order.
        beam: K.
        kv: [B, C, 2D or more], keys and values in the last 2D columns.
        visible: [B, K or 1, at most C] bool, True = attend to this slot.
        heads: H.
        dim: D.
    """
    out = q.new_empty(len(q), heads, dim // heads)
    load().cached_attention(
        _array(q), _index_array(indices), beam, _array(kv), visible.numpy(), _array(out)
    )
    return out


class CompiledNorm:
    """``(x - mean) / size * gain + bias`` of rows, with statistics in fp32.

    Args:
        gain, bias: [D].
        eps: see ``by_length``.
        centered: subtract the mean.
        by_length: size is ``max(|x|, eps)``; otherwise ``sqrt(mean(x^2) + eps)``.
    """

    def __init__(
        self, gain: Tensor, bias: Tensor, eps: float, *, centered: bool, by_length: bool
    ) -> None:
        vectors = (x.detach().float().contiguous().numpy() for x in (gain, bias))
        self._arguments = (*vectors, np.float32(eps), centered, by_length)

    def __call__(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the norm of each row: [R, D] -> [R, D] of ``dtype``."""
        out = torch.empty(x.shape, dtype=dtype)
        load().normalize(_array(x.contiguous()), *self._arguments, _array(out))
        return out


def log_sum_exp(logits: Tensor) -> Tensor:
    """Return the log of the sum of exponentials of each row: [..., A] -> [..., 1] fp32."""
    if not supports(logits):
        return logits.float().logsumexp(-1, keepdim=True)
    out = torch.empty(*logits.shape[:-1], 1)
    load().log_sum_exp(_row_array(logits), out.view(-1).numpy())
    return out


def top_k(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k highest logits of each row and their columns: [..., A] -> 2 x [..., k].

    The compiled version sorts equal logits by column.
    """
    if not supports(logits):
        return logits.topk(k, dim=-1)
    values = torch.empty(*logits.shape[:-1], k)
    columns = torch.empty(values.shape, dtype=torch.int64)
    load().top_k(_row_array(logits), *(x.view(-1, k).numpy() for x in (values, columns)))
    return values, columns


def _array(x: Tensor) -> np.ndarray:
    """Return the memory of a contiguous tensor as an array, bf16 as uint16."""
    return (x.view(torch.uint16) if x.dtype == torch.bfloat16 else x).numpy()


def _row_array(logits: Tensor) -> np.ndarray:
    """Return [..., A] as an array [R, A]."""
    return _array(logits.reshape(-1, logits.shape[-1]).contiguous())


def _index_array(x: Tensor | None) -> np.ndarray:
    return NO_INDICES if x is None else x.numpy()
