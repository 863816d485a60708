"""The model against the sentence-by-sentence reference, torch, and parameter arithmetic."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from nmt.model.layers import Residual
from nmt.model.transformer import Transformer
from tests.model_cases import (
    ALLOWED,
    BASES,
    BOS,
    EOS,
    NORM_NAMES,
    SOURCES,
    TARGETS,
    TYPES,
    UNK,
    batch_of,
    build,
    log_probs,
    random_variants,
    short,
    tiny,
)
from tests.reference import Reference, sinusoid

INPUTS = [[BOS, *row] for row in TARGETS]

# Every key that changes the function, one at a time, on top of T's model.
ONE_BY_ONE: list[dict[str, Any]] = [
    {"activation": "gelu"},
    {"activation": "relu2"},
    {"activation": "geglu"},
    {"activation": "swish"},
    {"positions": "fairseq"},
    {"positions": "learned", "embed_norm": True, "norm": "layernorm"},
    {"positions": "learned", "norm_place": "post"},
    {"embed_norm": True, "norm_place": "post", "tie": "none"},
    {"src_eos": False},
    {"src_eos": False, "norm_place": "post", "positions": "learned"},
    {"bias": False},
    {"out_bias": False},
    {"logit_mask": False},
    {"tie": "tgt_out"},
    {"tie": "none"},
    {"tie": "none", "fixnorm": False},
    {"scalenorm_gain": "fixed"},
    {"scalenorm_gain": "fixed", "norm_place": "post"},
    {"head_scale": True},
    {"post_attn_norm": True},
    {"post_attn_norm": True, "norm_place": "post"},
    {"ffn_norm": True, "extra_norm": "scalenorm"},
    {"qkv_norm": True, "extra_norm": "rmsnorm"},
    {"res_scale": "ffn"},
    {"res_scale": "all", "norm_place": "post"},
    {"res_scale": "scalar"},
    {"normformer": True, "norm": "layernorm", "activation": "gelu", "res_scale": "ffn"},
    {"norm_eps": 0.3, "norm": "layernorm"},
    {"norm_eps": 0.3, "norm": "rmsnorm", "norm_place": "post"},
    {"dim": 12, "heads": 3, "ffn_dim": 5, "enc_layers": 1, "dec_layers": 3},
]
VARIANTS = [*BASES, *ONE_BY_ONE, *random_variants(40, seed=7)]


@pytest.mark.parametrize("keys", VARIANTS, ids=short)
def test_log_probabilities_equal_the_reference(keys):
    config = tiny(**keys)
    model = build(config)
    ours = log_probs(model, batch_of(SOURCES, TARGETS))
    slow = Reference(config, model.state_dict(), ALLOWED).log_probs(SOURCES, INPUTS)
    allowed = ALLOWED if config.logit_mask else np.ones(TYPES, dtype=bool)
    assert ours.shape == slow.shape
    np.testing.assert_allclose(ours.numpy()[:, allowed], slow[:, allowed], rtol=1e-3, atol=2e-4)
    assert np.isneginf(slow[:, ~allowed]).all()
    assert (ours.exp().numpy()[:, ~allowed] == 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("place", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@torch.no_grad()
def test_layernorm_model_equals_torch_s_encoder_and_decoder(place, activation):
    keys = {"norm": "layernorm", "norm_place": place, "activation": activation}
    config = tiny(**keys, fixnorm=False, logit_mask=False)
    model = build(config)
    args = (config.dim, config.heads, config.ffn_dim, 0.0, activation)
    options: dict[str, Any] = {"batch_first": True, "norm_first": place == "pre"}

    def last() -> nn.LayerNorm | None:
        return nn.LayerNorm(config.dim) if place == "pre" else None

    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(*args, **options), 2, last(), enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(*args, **options), 2, last())
    copy_stack(model.encoder, encoder)
    copy_stack(model.decoder, decoder)
    table = model.embed.weight
    for src, tgt_in, tgt in zip(SOURCES, INPUTS, TARGETS, strict=True):
        x, y = (torch.stack([table[k] * math.sqrt(8) for k in ids]) for ids in (src, tgt_in))
        x += torch.tensor(np.stack([sinusoid(t, 8) for t in range(len(src))])).float()
        y += torch.tensor(np.stack([sinusoid(t, 8) for t in range(len(tgt_in))])).float()
        causal = nn.Transformer.generate_square_subsequent_mask(len(tgt_in))
        states = decoder.eval()(y[None], encoder.eval()(x[None]), tgt_mask=causal)[0]
        expected = (states @ table.T + model.out_bias).log_softmax(-1)
        torch.testing.assert_close(
            log_probs(model, batch_of([src], [tgt])), expected, rtol=1e-4, atol=1e-5
        )


def copy_stack(ours: nn.Module, theirs: nn.Module) -> None:
    """Copy our weights into torch's stack through the public parameter names."""
    has_cross = any(".cross_attn." in name for name in ours.state_dict())
    renamed = {
        "self_attn.qkv.": "self_attn.in_proj_",
        "cross_attn.out.": "multihead_attn.out_proj.",
        "self_attn.out.": "self_attn.out_proj.",
        "ffn.fc1.": "linear1.",
        "ffn.fc2.": "linear2.",
        "self_attn_res.norm.": "norm1.",
        "cross_attn_res.norm.": "norm2.",
        "ffn_res.norm.": "norm3." if has_cross else "norm2.",
    }
    state, target = dict(ours.state_dict()), {}
    for name in [name for name in state if ".cross_attn.q." in name]:
        fused = name.replace("cross_attn.q.", "multihead_attn.in_proj_")
        target[fused] = torch.cat([state.pop(name), state.pop(name.replace(".q.", ".kv."))])
    for name, value in state.items():
        for old, new in renamed.items():
            name = name.replace(old, new)
        target[name] = value
    theirs.load_state_dict(target)


@pytest.mark.slow
def test_logits_are_g_times_a_cosine_under_prenorm_scalenorm_and_fixnorm():
    """T equation 6: logits are at most g in size, and proportional to g."""
    config = tiny(out_bias=False, logit_mask=False)
    model, batch = build(config), batch_of(SOURCES, TARGETS)
    g = model.decoder.norm.g
    with torch.no_grad():
        g.fill_(5.0)
        logits = model(*batch.inputs)
        assert logits.abs().max() <= 5 * (1 + 1e-6)
        g.fill_(15.0)
        torch.testing.assert_close(model(*batch.inputs), 3 * logits, rtol=1e-4, atol=1e-5)


def test_without_allowed_types_there_is_no_mask_and_eos_is_never_masked():
    batch = batch_of(SOURCES, TARGETS)
    assert log_probs(Transformer(tiny(), TYPES).eval(), batch).min() > -1e3
    assert log_probs(build(tiny()), batch)[:, EOS].min() > -100


def test_logits_are_in_the_order_of_tgt_out():
    model = build(tiny())
    batch = batch_of(SOURCES, TARGETS)
    with torch.no_grad():
        logits = model(*batch.inputs)
        assert logits.shape == (len(batch.tgt_out), TYPES)
        second = model(*batch_of(SOURCES[1:2], TARGETS[1:2]).inputs)
    start = len(TARGETS[0]) + 1
    torch.testing.assert_close(logits[start : start + len(second)], second, rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------- parameter arithmetic


def count(**keys: Any) -> int:
    return sum(p.numel() for p in Transformer(tiny(**keys), TYPES).parameters())


@pytest.mark.parametrize("norm", NORM_NAMES)
def test_normformer_adds_2d_2ffn_and_heads_per_encoder_layer(norm):
    """N 2.1: LayerNorm of d, LayerNorm of ffn, a gamma per head; cross-attention counts again."""
    d, ffn, heads, layers = 8, 12, 2, 2
    encoder_layer = 2 * d + 2 * ffn + heads
    decoder_layer = encoder_layer + 2 * d + heads
    added = count(norm=norm, normformer=True) - count(norm=norm)
    assert added == layers * (encoder_layer + decoder_layer)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dim", "layers", "heads", "plain", "extended"),
    [(768, 12, 12, 124_379_136, 124_471_296), (1024, 24, 16, 354_742_272, 354_988_032)],
)
def test_normformer_has_the_number_of_parameters_that_the_paper_prints(
    dim, layers, heads, plain, extended
):
    """N's early version, table 6, whose difference counts the two norms without HeadScale.

    The rest of both sizes, without our layers and last norm, is a table of 51,202 words.
    """
    keys = {"dim": dim, "ffn_dim": 4 * dim, "heads": heads, "enc_layers": layers, "dec_layers": 1}
    with torch.device("meta"):
        stacks = [
            Transformer(tiny(**keys, norm="layernorm", post_attn_norm=on, ffn_norm=on), 4).encoder
            for on in (False, True)
        ]
    sizes = [sum(p.numel() for p in stack.parameters()) for stack in stacks]
    assert sizes[0] + 51_202 * dim == plain
    assert sizes[1] - sizes[0] == extended - plain


@pytest.mark.parametrize(
    ("keys", "added"),
    [
        # a vector or a scalar for each residual
        ({"res_scale": "ffn"}, 2 * 8 + 2 * 8),
        ({"res_scale": "all"}, 2 * 16 + 2 * 24),
        ({"res_scale": "scalar"}, 4 + 6),
        # N table 4, "+ 3 more LN": 2 encoder and 4 decoder attentions, three norms of 2d each
        ({"qkv_norm": True}, 6 * 3 * 2 * 8),
    ],
)
def test_parameters_that_a_key_adds(keys, added):
    assert count(**keys) - count() == added


def test_postnorm_has_no_norm_at_the_end_of_its_stacks():
    assert count(norm_place="pre") - count(norm_place="post") == 2


@pytest.mark.parametrize(
    ("place", "name"), [("pre", "decoder.norm.g"), ("post", "decoder.layers.1.ffn_res.norm.g")]
)
def test_fixed_gain_keeps_one_learned_g(place, name):
    """T table 7: O(L) gains become O(1)."""
    model = Transformer(tiny(scalenorm_gain="fixed", norm_place=place), TYPES)
    assert [n for n, _ in model.named_parameters() if n.endswith(".g")] == [name]


# ---------------------------------------------------------------- dropout


def train_log_probs(seed: int = 1, **keys: Any) -> torch.Tensor:
    model = build(tiny(**keys)).train()
    model.dropout_rng.seed(seed, 0, 0)
    return log_probs(model, batch_of(SOURCES, TARGETS))


def test_without_dropout_training_and_evaluation_agree():
    torch.testing.assert_close(
        train_log_probs(), log_probs(build(tiny()), batch_of(SOURCES, TARGETS))
    )


@pytest.mark.parametrize("kind", ["dropout", "attn_dropout", "ffn_dropout", "word_dropout"])
def test_each_dropout_acts_only_in_training_and_depends_only_on_the_seed(kind):
    keys: dict[str, Any] = {"attn_dropout": 0.0, "ffn_dropout": 0.0, kind: 0.5}
    plain = log_probs(build(tiny(**keys)), batch_of(SOURCES, TARGETS))
    torch.testing.assert_close(plain, log_probs(build(tiny()), batch_of(SOURCES, TARGETS)))
    one, same, other = (train_log_probs(seed, **keys) for seed in (1, 1, 2))
    assert one.equal(same)
    assert not one.equal(other)
    assert (one - plain).abs().max() > 1e-3


def test_dropout_applies_to_embeddings_and_every_sublayer_output():
    """T appendix A. One site at a time; 4 encoder and 6 decoder sublayers, and the embeddings."""
    model = build(tiny(dropout=0.5, attn_dropout=0.0, ffn_dropout=0.0)).train()
    batch = batch_of(SOURCES, TARGETS)
    sites = [m.dropout for m in model.modules() if isinstance(m, Residual)]
    inputs = [model.src_input.dropout, model.tgt_input.dropout]
    sites += inputs
    assert len(sites) == 12
    assert all(site.p == 0.5 for site in sites)
    for site in sites:
        site.p = 0.0
    plain = log_probs(model, batch)
    for site in sites:
        site.p = 0.5
        assert (log_probs(model, batch) - plain).abs().max() > 1e-4
        site.p = 0.0
    shapes = []
    for site in inputs:
        site.register_forward_hook(lambda *call: shapes.append(call[2].shape[0]))
    log_probs(model, batch)
    assert shapes == [len(batch.src), len(batch.tgt_in)]


def test_word_dropout_at_rate_one_replaces_every_input_token_by_unk():
    """A: BOS and EOS of the inputs are replaced as well; the batch and its targets are not."""
    model, batch = build(tiny(word_dropout=0.999999)).train(), batch_of(SOURCES, TARGETS)
    kept = [ids.clone() for ids in (batch.src, batch.tgt_in, batch.tgt_out)]
    dropped = log_probs(model, batch)
    assert all(map(torch.equal, kept, (batch.src, batch.tgt_in, batch.tgt_out)))
    inputs = [[UNK] * len(src) for src in SOURCES], [[UNK] * (len(tgt) + 1) for tgt in TARGETS]
    slow = Reference(model.config, model.state_dict(), ALLOWED).log_probs(*inputs)
    np.testing.assert_allclose(dropped[:, ALLOWED], slow[:, ALLOWED], rtol=1e-3, atol=2e-4)
