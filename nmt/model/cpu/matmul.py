"""Multiply fp32 matrices on a CPU with oneDNN instead of MKL, where the result is as exact.

On an AMD processor with AVX-512, the only one measured, this makes updates up to 10 % faster
(benchmarks/README.md). torch calls oneDNN for fp32 only when it may also round the factors to bf16,
and with AMX oneDNN does round them. So a test product decides first.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

import torch

from nmt.model.linear import linear

SIZE = 256
FACTOR = 1 + 2**-12  # exact in fp32, not in bf16 or TF32


@contextlib.contextmanager
def onednn_matmul(device: torch.device) -> Iterator[None]:
    """Use oneDNN for fp32 products inside the block, if the device is a CPU and it is exact."""
    if device.type != "cpu" or not onednn_is_exact():
        yield
        return
    with _onednn_allowed():
        yield


@functools.cache
def onednn_is_exact() -> bool:
    """Return whether oneDNN keeps fp32 factors exact in a linear layer and its gradients."""
    x = torch.full((SIZE, SIZE), FACTOR)
    with _onednn_allowed():
        products = [x @ x, x @ x.t(), x.t() @ x, x[None] @ x[None], linear(x, x, torch.zeros(SIZE))]
    return all(torch.allclose(y, torch.tensor(SIZE * FACTOR**2), rtol=1e-5) for y in products)


@contextlib.contextmanager
def _onednn_allowed() -> Iterator[None]:
    matmul = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = matmul.fp32_precision
    matmul.fp32_precision = "bf16"
    try:
        yield
    finally:
        matmul.fp32_precision = before
