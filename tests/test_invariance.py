"""What must not change the output, and what must: padding, order, future, cache, gains at 1.

Also gradients: autograd of the model against finite differences of the slow reference.
"""

import math
from typing import Any

import numpy as np
import pytest
import torch

from nmt.config.recipe import OptimConfig
from nmt.data.batches import Batch
from nmt.model.layout import Layout
from nmt.model.transformer import Transformer
from nmt.training.loss import token_losses
from tests.model_cases import (
    ALL_N_PARTS,
    ALLOWED,
    BOS,
    EOS,
    SOURCES,
    TARGETS,
    TYPES,
    batch_of,
    build,
    log_probs,
    short,
    tiny,
)
from tests.reference import Reference, smoothed_loss

pytestmark = pytest.mark.cpu

MODELS: list[dict[str, Any]] = [
    {},
    {"norm_place": "post", "norm": "layernorm", "fixnorm": False, "tie": "none"},
    {"norm": "rmsnorm", "activation": "geglu", "res_scale": "scalar", "bias": False},
    {"norm": "layernorm", "res_scale": "all", **ALL_N_PARTS},
    {"norm_place": "post", "extra_norm": "scalenorm", "tie": "tgt_out", **ALL_N_PARTS},
    {"positions": "learned", "embed_norm": True, "norm": "layernorm", "activation": "swish"},
    {"positions": "fairseq", "norm": "layernorm", "fixnorm": False},
    {"src_eos": False, "norm": "layernorm", "tie": "none"},
]
each_model = pytest.mark.parametrize("keys", MODELS, ids=short)
CLOSE: dict[str, float] = {"rtol": 1e-4, "atol": 1e-5}  # fp32, sums in another order


def loss_of(model: Transformer, batch: Batch) -> torch.Tensor:
    logits = model(*batch.inputs)
    return token_losses(logits, batch.tgt_out, torch.from_numpy(ALLOWED), OptimConfig())["smoothed"]


def by_sentence(out: torch.Tensor, targets: list[list[int]]) -> list[torch.Tensor]:
    return list(out.split([len(row) + 1 for row in targets]))


# ---------------------------------------------------------------- padding, order, future


@each_model
def test_a_sentence_is_the_same_next_to_longer_ones(keys):
    model = build(tiny(**keys))
    together = by_sentence(log_probs(model, batch_of(SOURCES, TARGETS)), TARGETS)
    for src, tgt, expected in zip(SOURCES, TARGETS, together, strict=True):
        torch.testing.assert_close(log_probs(model, batch_of([src], [tgt])), expected, **CLOSE)


@each_model
def test_the_order_of_sentences_in_the_batch_does_not_matter(keys):
    model = build(tiny(**keys))
    together = by_sentence(log_probs(model, batch_of(SOURCES, TARGETS)), TARGETS)
    order = [2, 0, 1]
    shuffled = [TARGETS[i] for i in order]
    out = log_probs(model, batch_of([SOURCES[i] for i in order], shuffled))
    for i, part in zip(order, by_sentence(out, shuffled), strict=True):
        torch.testing.assert_close(part, together[i], **CLOSE)


@each_model
def test_gradient_of_a_batch_is_the_sum_over_its_sentences(keys):
    model = build(tiny(**keys))

    def gradients(batch: Batch) -> torch.Tensor:
        model.zero_grad()
        loss_of(model, batch).backward()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    together = gradients(batch_of(SOURCES, TARGETS))
    alone = sum(
        gradients(batch_of([src], [tgt])) for src, tgt in zip(SOURCES, TARGETS, strict=True)
    )
    torch.testing.assert_close(together, alone, rtol=1e-3, atol=1e-3 * together.abs().max().item())


@each_model
def test_the_future_of_the_target_is_not_seen(keys):
    model = build(tiny(**keys))
    tgt = TARGETS[1]
    full = log_probs(model, batch_of(SOURCES[:1], [tgt]))
    for place in range(len(tgt)):
        changed = [*tgt[:place], 9 if tgt[place] != 9 else 6, *tgt[place + 1 :]]
        out = log_probs(model, batch_of(SOURCES[:1], [changed]))
        # the token at ``place`` is an input of later positions
        torch.testing.assert_close(out[: place + 1], full[: place + 1], **CLOSE)
        assert (out[place + 1] - full[place + 1]).abs().max() > 1e-4


@each_model
def test_every_source_token_and_its_position_matter(keys):
    model = build(tiny(**keys))
    src = [4, 5, 6, 7, EOS]
    base = log_probs(model, batch_of([src], TARGETS[:1]))
    others = [[9 if i == j else kind for j, kind in enumerate(src)] for i in range(len(src))]
    for other in [*others, [5, 4, 6, 7, EOS]]:
        difference = (log_probs(model, batch_of([other], TARGETS[:1])) - base).abs().max()
        hidden = other[-1] != EOS and not model.config.src_eos
        assert difference == 0 if hidden else difference > 1e-4


@each_model
def test_the_source_of_another_sentence_does_not_matter(keys):
    model = build(tiny(**keys))
    base = by_sentence(log_probs(model, batch_of(SOURCES, TARGETS)), TARGETS)
    changed = [SOURCES[0], [9, 9, 9, 9, 9, 9, 9, EOS], SOURCES[2]]
    out = by_sentence(log_probs(model, batch_of(changed, TARGETS)), TARGETS)
    for i in (0, 2):
        torch.testing.assert_close(out[i], base[i], **CLOSE)
    assert (out[1] - base[1]).abs().max() > 1e-4


# ---------------------------------------------------------------- incremental decoding


def sources_of(rows: list[list[int]]) -> tuple[torch.Tensor, Layout]:
    return batch_of(rows, rows).src, Layout.of([len(row) for row in rows])


def full_log_probs(model: Transformer, src: list[int], prefix: list[int]) -> torch.Tensor:
    """Return those of the token after ``prefix`` (BOS first), by the training forward."""
    return log_probs(model, batch_of([src], [prefix[1:]]))[-1]


@each_model
@torch.no_grad()
def test_incremental_decoding_equals_the_full_forward(keys):
    """Beams are random and reordered at random; twice a sentence is dropped.

    36 positions exceed the first allocation of the caches. At position 20 only one sentence stays,
    and the caches keep only the positions that one of its beams descends from.
    """
    model = build(tiny(**keys))
    rng = torch.Generator().manual_seed(5)
    beam, last = 3, 36
    src, layout = sources_of(SOURCES)
    state = model.start_decoding(src, layout, beam, last + 1)
    alive = [0, 1, 2]
    prefixes = {i: [[BOS] for _ in range(beam)] for i in alive}
    for position in range(last):
        tokens = torch.tensor([[prefix[-1] for prefix in prefixes[i]] for i in alive])
        out = torch.log_softmax(state.advance(tokens), -1).view(*tokens.shape, -1)
        assert out.shape == (len(alive), beam, TYPES)
        assert out.dtype == torch.float32
        if position < 6 or position > last - 3:
            for row, i in enumerate(alive):
                for k, prefix in enumerate(prefixes[i]):
                    expected = full_log_probs(model, SOURCES[i], prefix)
                    torch.testing.assert_close(out[row, k], expected, rtol=1e-3, atol=1e-4)
        parents = torch.randint(beam, (len(alive), beam), generator=rng)
        state.select(parents)
        for row, i in enumerate(alive):
            chosen = [list(prefixes[i][parent]) for parent in parents[row].tolist()]
            prefixes[i] = [
                [*prefix, int(torch.randint(3, TYPES, (), generator=rng))] for prefix in chosen
            ]
        if position in (2, 4):  # the longest source goes first, then the longer of the rest
            rows = torch.arange(len(alive))[:-1] if position == 2 else torch.tensor([1])
            state.keep(rows)
            alive = [alive[row] for row in rows.tolist()]
        if position == 20:
            assert state.used > 2 * 20
            state.keep(torch.tensor([0]))
            assert position < state.used < 2 * 20


@each_model
@torch.no_grad()
def test_beams_of_one_sentence_are_independent(keys):
    model = build(tiny(**keys))
    src, layout = sources_of(SOURCES)
    one, three = model.start_decoding(src, layout, 1, 10), model.start_decoding(src, layout, 3, 10)
    for tokens in ([BOS, BOS, BOS], [4, 6, 9], [7, 4, 3]):
        wide = three.advance(torch.tensor([tokens] * 3))
        narrow = one.advance(torch.tensor([tokens[:1]] * 3))
        torch.testing.assert_close(wide[::3], narrow, **CLOSE)


# ---------------------------------------------------------------- equal variants


def with_weights_of(model: Transformer, **keys: Any) -> Transformer:
    """Return a model with other keys, and the weights of ``model`` where names agree."""
    other = Transformer(tiny(**keys), TYPES, ALLOWED)
    missing, unexpected = other.load_state_dict(model.state_dict(), strict=False)
    assert not unexpected
    assert missing
    return other.eval()


@pytest.mark.parametrize("place", ["pre", "post"])
@pytest.mark.parametrize("res_scale", ["ffn", "all", "scalar"])
def test_head_scale_and_res_scale_of_one_equal_the_plain_model(place, res_scale):
    """N 2.1, 2.2: gamma and lambda start at 1, where they change nothing."""
    plain = build(tiny(norm_place=place))
    extended = with_weights_of(plain, norm_place=place, head_scale=True, res_scale=res_scale)
    batch = batch_of(SOURCES, TARGETS)
    torch.testing.assert_close(log_probs(extended, batch), log_probs(plain, batch), **CLOSE)


@pytest.mark.parametrize("part", ["head_scale", "post_attn_norm", "ffn_norm", "qkv_norm"])
def test_each_part_of_normformer_changes_the_output(part):
    """Changing an added gain changes the output, so it is used and not just declared."""
    model = with_weights_of(build(tiny()), **{part: True})
    batch = batch_of(SOURCES, TARGETS)
    known = set(build(tiny()).state_dict())
    for name, parameter in model.named_parameters():
        # an equal shift of all keys cancels in the softmax
        if name in known or name.endswith("k_norm.bias"):
            continue
        before, kept = log_probs(model, batch), parameter.detach().clone()
        with torch.no_grad():
            parameter += 0.5 * torch.randn(
                parameter.shape, generator=torch.Generator().manual_seed(2)
            )
        assert (log_probs(model, batch) - before).abs().max() > 1e-5, name
        with torch.no_grad():
            parameter.copy_(kept)


# ---------------------------------------------------------------- edges and precision


@each_model
def test_zero_embedding_row_gives_finite_output_and_gradients(keys):
    model = build(tiny(**keys))
    with torch.no_grad():
        model.embed.weight[5] = 0  # of a source token, and of a type no target has
        model.embed.weight[4] = 0
    batch = batch_of(SOURCES, TARGETS)
    loss = loss_of(model, batch)
    loss.backward()
    assert loss.isfinite()
    for name, parameter in model.named_parameters():
        assert parameter.grad.isfinite().all(), name


@each_model
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_stays_close_to_fp32_and_keeps_the_mask(keys, dtype):
    model, batch = build(tiny(**keys)), batch_of(SOURCES, TARGETS)
    exact = log_probs(model, batch)
    with torch.autocast("cpu", dtype):
        logits = model(*batch.inputs)
    rough = torch.log_softmax(logits.detach().float(), -1)
    assert rough.exp()[:, ~ALLOWED].max() == 0
    # bf16 keeps 8 bits: errors of a few percent of the logits' spread; fp16 keeps 11
    spread = exact[:, ALLOWED].std()
    assert (rough - exact)[:, ALLOWED].abs().mean() < 12 * torch.finfo(dtype).eps * spread
    sums = token_losses(logits, batch.tgt_out, torch.from_numpy(ALLOWED), OptimConfig())
    assert sums["smoothed"].isfinite()
    (sums["smoothed"] * 2.0**10).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.dtype == torch.float32, name
        assert parameter.grad.isfinite().all(), name


def test_empty_source_and_target():
    model = build(tiny())
    out = log_probs(model, batch_of([[EOS]], [[]]))
    slow = Reference(tiny(), model.state_dict(), ALLOWED).log_probs([[EOS]], [[BOS]])
    np.testing.assert_allclose(out[:, ALLOWED], slow[:, ALLOWED], rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------- gradients


def reference_loss(config: Any, state: dict[str, torch.Tensor]) -> float:
    rows = Reference(config, state, ALLOWED).log_probs(SOURCES, [[BOS, *row] for row in TARGETS])
    gold = [kind for row in TARGETS for kind in (*row, EOS)]
    return smoothed_loss(rows, gold, ALLOWED, 0.1)[0]


GRADIENT_MODELS = [{**keys, "activation": "gelu"} for keys in MODELS]


@pytest.mark.parametrize("keys", GRADIENT_MODELS, ids=short)
def test_gradient_of_every_parameter_is_the_finite_difference_of_the_reference(keys):
    """Along one random direction per parameter, central differences in float64.

    GELU, because a step over ReLU's kink would spoil the difference.
    """
    config = tiny(**{**keys, "enc_layers": 1, "dec_layers": 1})
    model, batch = build(config), batch_of(SOURCES, TARGETS)
    loss = loss_of(model, batch)
    loss.backward()
    state = {name: value.detach().double() for name, value in model.state_dict().items()}
    assert loss.item() == pytest.approx(reference_loss(config, state), rel=1e-4)
    size = math.sqrt(sum(p.grad.square().sum().item() for p in model.parameters()))
    generator = torch.Generator().manual_seed(4)
    for name, parameter in model.named_parameters():
        step = 1e-5 * torch.randn(state[name].shape, generator=generator, dtype=torch.float64)
        up = reference_loss(config, {**state, name: state[name] + step})
        down = reference_loss(config, {**state, name: state[name] - step})
        along = (parameter.grad.double() * step).sum().item() / 1e-5
        assert along == pytest.approx((up - down) / 2e-5, rel=2e-3, abs=1e-5 * size), name
