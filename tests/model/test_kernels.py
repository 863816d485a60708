"""Compiled kernels against torch's own operations."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from nmt.data.batches import collate_sources
from nmt.data.vocab import BOS
from nmt.decoding.translator import Translator
from nmt.model.config import ModelConfig
from nmt.model.cpu import attention, kernels, numba_kernels
from nmt.model.cpu.inference import replace_layers
from nmt.model.layout import Layout
from nmt.model.norms import NORMS
from nmt.model.transformer import Transformer
from tests.export.cases import ids, made, pairs

pytestmark = pytest.mark.cpu

ROOT = Path(__file__).parents[2]
PRECISIONS = pytest.mark.parametrize("dtype", kernels.DTYPES)
B, K, C, H, E = 3, 2, 12, 2, 24
D = H * E
COMPILED = {"write_cache", "cached_attention", "log_sum_exp", "top_k"}


@pytest.fixture(autouse=True)
def without_gradients():
    kernels.load()
    with torch.no_grad():
        yield


def numbers(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def assert_close(found: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    """Compare up to twice the rounding of the result, as sums are fp32."""
    assert found.dtype == dtype
    rounding = 1e-5 if dtype == torch.float32 else 2**-7
    torch.testing.assert_close(found.float(), expected, rtol=rounding, atol=rounding)


def reference(q: Tensor, kv: Tensor, visible: Tensor, beam: int) -> Tensor:
    """Return torch's attention: [N, D], [B, C, 2D], [B, K or 1, C] -> [N, H, E], fp32."""
    q, k, v = (x.float().unflatten(-1, (H, E)) for x in (q, kv[..., :D], kv[..., D:]))
    q, k, v = (x.transpose(1, 2) for x in (q.unflatten(0, (-1, beam)), k, v))
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=visible[:, None])
    return mixed.transpose(1, 2).flatten(0, 1)


@pytest.mark.slow
@PRECISIONS
@pytest.mark.parametrize("shared", [True, False])
def test_cached_attention_equals_torch(dtype, shared):
    """Each hypothesis attends to its visible slots only, even to a single one."""
    q, kv = numbers(B * K, 3 * D).to(dtype), numbers(B, C, 2 * D, seed=2).to(dtype)
    visible = numbers(B, 1 if shared else K, C - 3, seed=3) > 0
    visible[..., 0] = True
    visible[0, 0, 1:] = False
    expected = reference(q[:, :D], kv[:, : C - 3], visible, K)
    assert_close(kernels.cached_attention(q, None, K, kv, visible, H, D), expected, dtype)
    some = torch.tensor([5, 0, 3])
    assert_close(
        kernels.cached_attention(q[some], some, K, kv, visible, H, D), expected[some], dtype
    )


@PRECISIONS
def test_cached_attention_reads_the_last_columns_of_the_cache(dtype):
    qkv = numbers(B * C, 3 * D).to(dtype)
    visible = torch.ones(B, 1, C, dtype=torch.bool)
    padded = qkv.view(B, C, 3 * D)
    expected = reference(qkv[:, :D], padded[..., D:], visible, C)
    assert_close(kernels.cached_attention(qkv, None, C, padded, visible, H, D), expected, dtype)


@PRECISIONS
def test_write_cache_copies_the_row_of_each_hypothesis(dtype):
    for positions in (None, torch.tensor([0, 0, 1, 1, 1, 2])):
        qkv = numbers(B * K if positions is None else 3, 3 * D).to(dtype)
        cache = torch.zeros(B, C, 2 * D, dtype=dtype)
        kernels.write_cache(qkv, positions, cache, 4)
        rows = qkv if positions is None else qkv[positions]
        assert torch.equal(cache[:, 4 : 4 + K], rows[:, D:].unflatten(0, (B, K)))
        assert not cache[:, :4].any()
        assert not cache[:, 4 + K :].any()


def test_write_cache_raises_for_another_dtype():
    cache = torch.zeros(B, C, 2 * D, dtype=torch.float32)
    with pytest.raises(TypeError, match=r"torch\.bfloat16, but their cache is torch\.float32"):
        kernels.write_cache(numbers(B * K, 3 * D).bfloat16(), None, cache, 4)
    assert not cache.any()


@pytest.mark.slow
@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("source", kernels.DTYPES)
@PRECISIONS
def test_compiled_norm_equals_the_norm_of_training(name, source, dtype):
    """Also for rows of zeros, and for random gains."""
    norm = NORMS[name](D, 1e-5)
    for parameter in norm.parameters():
        parameter += numbers(*parameter.shape, seed=4)
    x = numbers(7, D).mul_(3).add_(1).to(source)
    x[3] = 0
    model = torch.nn.Sequential(norm)
    expected = norm(x.float())
    replace_layers(model, dtype)
    assert_close(model(x), expected, dtype)
    assert [*model.state_dict()] == [f"0.{key}" for key in norm.state_dict()]


@PRECISIONS
@pytest.mark.parametrize("types", [3, 127, 128, 300])
def test_log_sum_exp_equals_torch(dtype, types):
    logits = numbers(2, 5, types).mul_(4).to(dtype)
    logits[0, 0, 1:] = -torch.inf
    logits[1, 1] -= 1000
    logits[1, 2, 0] = 500
    found = kernels.log_sum_exp(logits)
    torch.testing.assert_close(
        found, logits.float().logsumexp(-1, keepdim=True), rtol=1e-6, atol=5e-6
    )


def test_log_sum_exp_of_one_number_is_exact():
    for x in (0.0, -3.25, 17.5):
        logits = torch.full((1, 200), -torch.inf)
        logits[0, 77] = x
        assert kernels.log_sum_exp(logits).item() == pytest.approx(x, rel=1e-7)


@PRECISIONS
@pytest.mark.parametrize("types", [5, 31, 32, 33, 1000])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_top_k_equals_torch(dtype, types, count):
    logits = numbers(2, 9, types).to(dtype).float()
    logits = logits.sort(dim=-1, descending=True).values
    for arranged in (torch.arange(types), torch.arange(types).flip(0), torch.randperm(types)):
        values, columns = kernels.top_k(logits[..., arranged].to(dtype), count)
        assert torch.equal(values, logits[..., :count])
        assert torch.equal(logits[..., arranged].gather(-1, columns), values)
        assert bool((columns.sort(dim=-1).values.diff() > 0).all())


def test_top_k_sorts_equal_logits_by_column_and_masked_ones_last():
    logits = torch.full((1, 70), -torch.inf)
    logits[0, [3, 40, 66]] = torch.tensor([1.0, 2.0, 1.0])
    values, columns = kernels.top_k(logits, 5)
    assert values.tolist() == [[2.0, 1.0, 1.0, -torch.inf, -torch.inf]]
    assert columns[0, :3].tolist() == [40, 3, 66]
    assert bool((columns < 70).all())


def test_top_k_never_returns_nan():
    logits = numbers(1, 70)
    logits[0, 5] = torch.nan
    assert 5 not in kernels.top_k(logits, 3)[1]
    everything = kernels.top_k(torch.full((1, 70), torch.nan), 3)
    assert everything[0].isneginf().all()


VARIANTS = pytest.mark.parametrize(
    "keys",
    [
        {},
        {"norm_place": "post", "norm": "rmsnorm"},
        {"norm": "layernorm", "qkv_norm": True},
        {"normformer": True, "res_scale": "ffn"},
    ],
)


@pytest.mark.slow
@VARIANTS
def test_a_search_is_equal_with_torch_operations(keys, monkeypatch):
    ours, plain = made(**keys), made(**keys)
    attention.use_kernels(ours.transformer)
    lines = [source for source, _ in pairs()[:30]]
    used = watch(monkeypatch)
    found = [best[0] for best in ours.stream(lines, beam=3)]
    assert used == COMPILED
    monkeypatch.setattr(kernels, "supports", lambda x: False)
    expected = [best[0] for best in plain.stream(lines, beam=3)]
    assert [h.text for h in found] == [h.text for h in expected]
    for a, b in zip(found, expected, strict=True):
        assert a.log_prob == pytest.approx(b.log_prob, abs=1e-4)


@pytest.mark.slow
@VARIANTS
def test_a_bf16_search_is_as_close_to_fp32_as_with_torch_operations(keys, monkeypatch):
    """The kernels and torch round in different orders; torch's depends on the processor.

    Single errors therefore differ, but the means over hundreds of tokens agree: with AVX2, the
    kernels' mean error was 0.95 to 1.08 of torch's.
    """
    exact, ours, plain = (made(**keys) for _ in range(3))
    for one in (ours, plain):
        one.transformer.prepare_for_inference(torch.bfloat16)
    used = watch(monkeypatch)
    found = stepwise(ours)
    assert used == COMPILED - {"top_k"}
    monkeypatch.setattr(kernels, "supports", lambda x: False)
    expected, rounded = stepwise(exact), stepwise(plain)
    assert (found - expected).abs().mean() < 1.3 * (rounded - expected).abs().mean()
    assert (rounded - expected).abs().mean() < 0.1


def watch(monkeypatch) -> set[str]:
    """Return a set that collects the names of compiled functions when they are called."""
    used: set[str] = set()
    for name in COMPILED:
        compiled = getattr(numba_kernels, name)
        watched = functools.partial(lambda of, do, *args: used.add(of) or do(*args), name, compiled)
        monkeypatch.setattr(numba_kernels, name, watched)
    return used


def stepwise(translator: Translator) -> Tensor:
    """Return log-probabilities of given tokens, decoded position by position: [B, K, T].

    Hypothesis k of a sentence is the reference of the k-th sentence after it.
    """
    sources, targets = (list(side) for side in zip(*ids()[:30], strict=True))
    length = 8
    given = torch.from_numpy(np.stack([np.resize(target, length) for target in targets]))
    given = torch.stack([given.roll(-k, 0) for k in range(3)], 1)
    src, layout = collate_sources(sources)
    state = translator.transformer.start_decoding(src, layout, 3, length)
    tokens, found = torch.full(given.shape[:2], BOS), []
    for step in range(length):
        logits = state.advance(tokens).unflatten(0, tokens.shape)
        tokens = given[..., step]
        found.append(logits.float().gather(-1, tokens[..., None]) - kernels.log_sum_exp(logits))
    return torch.cat(found, -1)


def test_the_compiled_and_torch_s_encoder_attention_agree(monkeypatch):
    model = Transformer(ModelConfig(dim=16, ffn_dim=24, heads=2), 50).eval()
    attention.use_kernels(model)
    layout = Layout.of([7, 3, 1])
    ids = torch.arange(11) + 5
    table, calls = model.embedding_tables()[0], []
    attend = kernels.cached_attention
    monkeypatch.setattr(kernels, "cached_attention", lambda *args: calls.append(1) or attend(*args))
    short = model.encode(ids, layout, table)
    assert len(calls) == model.config.enc_layers
    monkeypatch.setattr(attention, "MIN_TORCH_LENGTH", 7)
    torch.testing.assert_close(short, model.encode(ids, layout, table), rtol=0, atol=1e-5)
    assert len(calls) == model.config.enc_layers


def test_kernels_support_cpu_tensors_without_gradients():
    assert kernels.supports(torch.ones(1))
    assert not kernels.supports(torch.ones(1, dtype=torch.float64))
    assert not kernels.supports(torch.ones(1, device="meta"))
    with torch.enable_grad():
        assert not kernels.supports(torch.ones(1))


def test_kernels_are_loaded_for_enough_tokens_only(monkeypatch):
    monkeypatch.setattr(kernels, "_compiled", None)
    kernels.load_if_worthwhile(kernels.MIN_TOKENS - 1)
    assert kernels._compiled is None
    assert not kernels.supports(torch.ones(10**6))
    assert kernels.supports(torch.ones(10, dtype=torch.bfloat16))  # torch would round more often
    kernels.load_if_worthwhile(kernels.MIN_TOKENS)
    assert kernels._compiled is numba_kernels
    assert kernels.supports(torch.ones(1))


@pytest.mark.slow
def test_kernels_compile_without_a_writable_cache_folder(tmp_path):
    """As for a package installed by the system and a user without a home folder."""
    code = "\n".join(
        [
            "import torch",
            "from numba.core import caching",
            "caching.CacheImpl._locator_classes = []",
            "from nmt.model.cpu import kernels",
            "torch.set_grad_enabled(False)",
            "kernels.load()",
            "print(kernels.top_k(torch.tensor([[1.0, 3.0, 2.0]]), 2)[1].tolist())",
        ]
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout == "[[1, 2]]\n", done.stderr
