"""Attention, feed-forward, residual and block against loops, numbers by hand and torch's layers."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from nmt.model.attention import CrossAttention, SelfAttention
from nmt.model.dropout import Dropout, DropoutRng
from nmt.model.layers import ACTIVATIONS, Residual
from nmt.model.layout import Layout
from tests.model_cases import NORM_NAMES, build, tiny
from tests.reference import Reference

LENGTHS = [3, 1, 5]
SOURCE_LENGTHS = [2, 6, 4]
DIM = 8


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def double(x: torch.Tensor) -> np.ndarray:
    return x.detach().double().numpy()


def sentences(x: torch.Tensor, lengths: list[int]) -> list[np.ndarray]:
    return [double(part) for part in x.split(lengths)]


ATTENTION_VARIANTS = [
    {},
    {"head_scale": True},
    {"qkv_norm": True, "extra_norm": "rmsnorm"},
    {"head_scale": True, "qkv_norm": True},
    {"heads": 1},
    {"heads": 8, "bias": False},
]


@pytest.mark.slow
@pytest.mark.parametrize("keys", ATTENTION_VARIANTS, ids=str)
@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
@pytest.mark.parametrize("training", [False, True], ids=["fused", "dropout_path"])
def test_attention_equals_a_loop_over_heads_and_positions(keys, kind, training):
    config = tiny(
        **keys, attn_dropout=1e-9
    )  # active but drops nothing: selects the other code path
    model = build(config).train(training)
    side = model.encoder if kind == "encoder" else model.decoder
    module = side.layers[0].cross_attn if kind == "cross" else side.layers[0].self_attn
    slow = Reference(config, {f"a.{name}": value for name, value in module.state_dict().items()})
    layout, memory_layout = Layout.of(LENGTHS), Layout.of(SOURCE_LENGTHS)
    x, memory = normal(sum(LENGTHS), DIM), normal(sum(SOURCE_LENGTHS), DIM, seed=1)
    if kind == "cross":
        out = module(x, layout, memory, memory_layout)
        expected = [
            slow.cross_attn("a", one, its_source)
            for one, its_source in zip(
                sentences(x, LENGTHS), sentences(memory, SOURCE_LENGTHS), strict=True
            )
        ]
    else:
        out = module(x, layout)
        expected = [slow.self_attn("a", one, kind) for one in sentences(x, LENGTHS)]
    np.testing.assert_allclose(double(out), np.concatenate(expected), rtol=1e-4, atol=1e-5)


def test_head_scale_comes_before_the_output_projection():
    """N 2.1: a head with gamma 0 adds nothing to the output, with any output projection."""
    config = tiny(bias=False, head_scale=True)
    module = SelfAttention(config, DropoutRng(), nn.LayerNorm, causal=False)
    layout, x = Layout.of([4]), normal(4, DIM)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_()
        module.head_scale[0].fill_(0.0)
        module.head_scale[1].fill_(3.0)
        first = module(x, layout)
        module.out.weight[:, : DIM // 2].normal_()  # what the first head would pass through
        torch.testing.assert_close(module(x, layout), first)
        module.head_scale[1].fill_(1.0)
        torch.testing.assert_close(3 * module(x, layout), first)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("extra_norm", [None, *NORM_NAMES])
@pytest.mark.parametrize("bias", [True, False])
def test_feed_forward_is_the_formula(name, extra_norm, bias):
    keys = {"ffn_norm": True, "extra_norm": extra_norm} if extra_norm else {}
    config = tiny(activation=name, bias=bias, **keys)
    module = build(config).encoder.layers[0].ffn
    slow = Reference(config, {f"f.{key}": value for key, value in module.state_dict().items()})
    x = normal(5, DIM) * 3
    np.testing.assert_allclose(double(module(x)), slow.ffn("f", double(x)), rtol=1e-4, atol=1e-5)


def test_activations_by_hand():
    x = torch.tensor([-1.0, 0.0, 1.0, 3.0])
    phi = 0.8413447460685429  # the standard normal distribution function at 1
    torch.testing.assert_close(ACTIVATIONS["relu"](x), torch.tensor([0.0, 0.0, 1.0, 3.0]))
    torch.testing.assert_close(ACTIVATIONS["relu2"](x), torch.tensor([0.0, 0.0, 1.0, 9.0]))
    torch.testing.assert_close(
        ACTIVATIONS["gelu"](x)[:3], torch.tensor([phi - 1, 0.0, phi]), rtol=1e-5, atol=1e-6
    )
    gated = ACTIVATIONS["geglu"](torch.tensor([1.0, -1.0, 10.0, 100.0]))
    torch.testing.assert_close(gated, torch.tensor([10 * phi, 100 * (phi - 1)]), rtol=1e-4, atol=0)


class Times(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


@pytest.mark.parametrize(
    ("pre", "branch_norm", "scale", "expected"),
    [
        (True, False, None, 1 + (2 * 1 + 5)),  # x + branch(norm(x))
        (False, False, None, 2 * (1 + (1 + 5))),  # norm(x + branch(x))
        (True, True, None, 1 + 3 * (2 * 1 + 5)),  # the branch's norm comes before the sum
        (False, True, None, 2 * (1 + 3 * (1 + 5))),
        (True, False, 7.0, 7 * 1 + (2 * 1 + 5)),  # lambda on the skip, not on the branch
        (False, False, 7.0, 2 * (7 * 1 + (1 + 5))),
        (True, True, 7.0, 7 * 1 + 3 * (2 * 1 + 5)),
    ],
)
def test_residual_order(pre, branch_norm, scale, expected):
    """Norm = times 2, branch = plus 5, branch norm = times 3, on x = 1."""
    residual = Residual(
        Times(2),
        Dropout(0.0, DropoutRng()),
        pre=pre,
        branch_norm=Times(3) if branch_norm else None,
        scale=None if scale is None else torch.tensor(scale),
    )
    assert residual(torch.ones(1, 1), lambda h: h + 5).item() == expected


def test_residual_applies_dropout_to_the_branch_only():
    residual = Residual(Times(1), Dropout(0.5, DropoutRng()), pre=True).train()
    out = residual(torch.full((2000, 1), 10.0), torch.ones_like).flatten()
    assert set(out.tolist()) == {10.0, 12.0}  # dropped, or kept and doubled
    assert out.eq(12).float().mean().item() == pytest.approx(0.5, abs=0.05)


def test_attention_is_scaled_by_the_width_of_a_head():
    """Two keys whose scores differ by sqrt(E) after projection get weights e : 1."""
    module = CrossAttention(tiny(dim=4, bias=False), DropoutRng(), nn.LayerNorm)
    with torch.no_grad():
        eye = torch.eye(4)
        module.q.weight.copy_(eye)
        module.kv.weight.copy_(torch.cat([eye, eye]))
        module.out.weight.copy_(eye)
    query = torch.tensor([[1.0, 0.0, 1.0, 0.0]])
    memory = torch.tensor([[math.sqrt(2), 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    out = module(query, Layout.of([1]), memory, Layout.of([2]))
    share = math.e / (1 + math.e)
    torch.testing.assert_close(out, torch.tensor([[share * math.sqrt(2), 0.0, 0.0, 0.0]]))


@pytest.mark.parametrize("causal", [False, True])
def test_bf16_gradients_of_attention_avoid_torch_s_slow_kernel(causal):
    """On a CPU, the gradient of torch's fused attention takes up to 50 times as long in bf16."""
    module = SelfAttention(tiny(bias=False), DropoutRng(), nn.LayerNorm, causal=causal)
    wide = [normal(3, 2, 7, 4, seed=seed).requires_grad_() for seed in range(3)]
    narrow = [x.detach().bfloat16().requires_grad_() for x in wide]
    visible = None if causal else (torch.arange(7) < torch.tensor([[7], [3], [1]]))[:, None, None]
    expected, ours = (module.attend(*x, visible, causal) for x in (wide, narrow))
    assert "ScaledDotProduct" in expected.grad_fn.name()
    assert "ScaledDotProduct" not in ours.grad_fn.name()
    torch.testing.assert_close(ours.float(), expected, rtol=0.05, atol=0.05)
    expected.square().sum().backward()
    ours.square().sum().backward()
    for x, y in zip(narrow, wide, strict=True):
        torch.testing.assert_close(x.grad.float(), y.grad, rtol=0.05, atol=0.1)
