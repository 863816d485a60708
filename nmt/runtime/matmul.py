"""Matrix products of fp32 numbers by oneDNN instead of MKL, where the result is as exact.

On an AMD processor with AVX-512, the only one this was measured on, updates are up to a tenth
faster with it (benchmarks/README.md). torch hands fp32 over to oneDNN only together with leave to
round factors to bf16. It makes use of that where the processor has AMX, so whether it does is found
out first.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

import torch

from nmt.model.cpu.linear import linear

SIZE = 256
FACTOR = 1 + 2**-12  # of fp32, not of bf16 nor TF32


@contextlib.contextmanager
def onednn_matmul(device: torch.device) -> Iterator[None]:
    """While it is open, products on a CPU take the faster library; elsewhere nothing changes."""
    if device.type != "cpu" or not onednn_is_exact():
        yield
        return
    with _handed_over():
        yield


@functools.cache
def onednn_is_exact() -> bool:
    """Whether oneDNN rounds no factor although it may: in a linear layer and its gradients."""
    x = torch.full((SIZE, SIZE), FACTOR)
    with _handed_over():
        found = [x @ x, x @ x.t(), x.t() @ x, x[None] @ x[None], linear(x, x, torch.zeros(SIZE))]
    return all(torch.allclose(y, torch.tensor(SIZE * FACTOR**2), rtol=1e-5) for y in found)


@contextlib.contextmanager
def _handed_over() -> Iterator[None]:
    matmul = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = matmul.fp32_precision
    matmul.fp32_precision = "bf16"
    try:
        yield
    finally:
        matmul.fp32_precision = before
