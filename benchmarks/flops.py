"""FLOPs that a training token needs, and the peak FLOP/s of the machine.

Model FLOPs utilization is MFU = tokens/s x ``flops_per_token`` / ``peak_flops``, with the peak
measured in the same dtype. Padding and recomputation lower it.
"""

from __future__ import annotations

import time

import numpy as np
import torch

from nmt.config.recipe import ModelConfig


def flops_per_token(
    config: ModelConfig, types: int, src_len: np.ndarray, tgt_len: np.ndarray
) -> float:
    """Return training FLOPs per target token, without padding and recomputation.

    Training is 3 x forward: the forward pass and the gradients of inputs and weights. Forward is 2
    for each weight and token, and 2 x queries x keys x dim for each of attention's two products.

    Args:
        config: the model.
        types: V, the vocabulary size.
        src_len, tgt_len: tokens of each sentence without EOS.
    """
    d, f = config.dim, config.ffn_dim
    src, tgt = src_len + 1.0, tgt_len + 1.0
    encoder = src.sum() * (4 * d * d + 2 * d * f) + 2 * d * (src**2).sum()
    decoder = tgt.sum() * (6 * d * d + 2 * d * f) + src.sum() * 2 * d * d
    decoder += 2 * d * ((tgt**2).sum() / 2 + (tgt * src).sum())
    forward = config.enc_layers * encoder + config.dec_layers * decoder + tgt.sum() * types * d
    return float(3 * 2 * forward / tgt.sum())


def peak_flops(dtype: torch.dtype, device: torch.device, width: int = 0) -> float:
    """Return the highest FLOP/s of five square matrix products, 4,096 wide (8,192 on a GPU)."""
    cuda = device.type == "cuda"
    n = width or (8192 if cuda else 4096)
    a, b = (torch.rand(n, n, dtype=dtype, device=device) for _ in range(2))
    seconds = []
    for _ in range(6):
        if cuda:
            torch.cuda.synchronize()
        begin = time.perf_counter()
        a @ b
        if cuda:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    return 2.0 * n**3 / min(seconds[1:])
