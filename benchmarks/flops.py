"""What an update must compute, and what the machine could compute in that time.

MFU = tokens/s x ``flops_per_token`` / ``peak_flops``: the share of the machine's own peak in the
same dtype that went into the model. Padding and anything computed twice make it lower.
"""

from __future__ import annotations

import time

import numpy as np
import torch

from nmt.config.recipe import ModelConfig


def flops_per_token(
    config: ModelConfig, types: int, src_len: np.ndarray, tgt_len: np.ndarray
) -> float:
    """Training FLOPs per target token: products on real tokens only, nothing recomputed.

    3 x forward (forward, then a product each for the gradients of weights and of inputs); forward
    is 2 for each weight and token, and attention's two products of 2 x queries x keys x dim.
    """
    d, f = config.dim, config.ffn_dim
    src, tgt = src_len + 1.0, tgt_len + 1.0
    encoder = src.sum() * (4 * d * d + 2 * d * f) + 2 * d * (src**2).sum()
    decoder = tgt.sum() * (6 * d * d + 2 * d * f) + src.sum() * 2 * d * d
    decoder += 2 * d * ((tgt**2).sum() / 2 + (tgt * src).sum())
    forward = config.enc_layers * encoder + config.dec_layers * decoder + tgt.sum() * types * d
    return float(3 * 2 * forward / tgt.sum())


def peak_flops(dtype: torch.dtype, device: torch.device, width: int = 0) -> float:
    """FLOP/s of the best of five products of two square matrices, 4,096 wide (on a GPU 8,192)."""
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
