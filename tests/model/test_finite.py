"""Outputs and gradients are finite: zero vectors, rows of padding, types that never occurred."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.config.recipe import OptimConfig
from nmt.data.batches import Bucket, collate
from nmt.model.embedding import EmbeddingTable
from nmt.model.norms import NORMS
from nmt.training.loss import token_losses
from tests.model_cases import ALLOWED, NORM_NAMES, SOURCES, TARGETS, TYPES, build, tiny

pytestmark = pytest.mark.cpu

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# lengths of vectors: all are representable in fp16, and so are their gradients
lengths = st.lists(st.sampled_from([0.0, 1e-2, 1.0, 30.0, 1e3]), min_size=1, max_size=5)


def vectors(of_length: list[float], dim: int, seed: int) -> torch.Tensor:
    drawn = torch.randn(len(of_length), dim, generator=torch.Generator().manual_seed(seed))
    return drawn / drawn.norm(dim=-1, keepdim=True) * torch.tensor(of_length)[:, None]


@settings(max_examples=100, deadline=None)
@given(
    lengths, st.sampled_from([4, 64]), st.integers(0, 9), st.sampled_from(DTYPES),
    st.sampled_from([1e-5, 1e-8]), st.sampled_from([*NORMS, "fixnorm"]),
)  # fmt: skip
def test_norms(of_length, dim, seed, dtype, eps, name):
    rows = vectors(of_length, dim, seed)
    if name == "fixnorm":  # its rows are weights, which are fp32
        table = EmbeddingTable(len(rows), dim, fixnorm=True)
        x = table.weight
        x.data.copy_(rows)
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            out = torch.ones(2, dim) @ table.table().t()
    else:
        x = rows.to(dtype).requires_grad_()
        out = NORMS[name](dim, eps)(x)
    assert out.isfinite().all()
    out.float().sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


class Rows:
    """The corpus of SOURCES and TARGETS, without EOS."""

    def src(self, row: int) -> np.ndarray:
        return np.array(SOURCES[row][:-1])

    def tgt(self, row: int) -> np.ndarray:
        return np.array(TARGETS[row])


@settings(max_examples=60, deadline=None)
@given(
    norm=st.sampled_from(NORM_NAMES),
    place=st.sampled_from(["pre", "post"]),
    fixnorm=st.booleans(),
    dtype=st.sampled_from(DTYPES),
    zero=st.sets(st.integers(0, TYPES - 1)),
    padding=st.integers(0, 3),
)
def test_models(norm, place, fixnorm, dtype, zero, padding):
    """Some sentences of the grid are padding alone, and some positions have a zero vector."""
    keys = {"norm": norm, "norm_place": place, "fixnorm": fixnorm, "positions": "learned"}
    model = build(tiny(**keys))
    with torch.no_grad():
        model.embed.weight[sorted(zero)] = 0
        for name, parameter in model.named_parameters():
            if "positions" in name:
                parameter.zero_()
    batch = collate(Rows(), np.arange(3), Bucket(3 + padding, 8, 12 + padding, 12 + 2 * padding))
    with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        logits = model(*batch.inputs)
    allowed = torch.from_numpy(ALLOWED)
    loss = token_losses(logits, batch.tgt_out, allowed, OptimConfig(), batch.weights)["smoothed"]
    assert loss.isfinite()
    (loss / batch.tokens).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), name
    assert model.embed.weight.grad is not None
