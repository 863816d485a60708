"""FixNorm, the tied tables and the sinusoids."""

import numpy as np
import pytest
import torch

from nmt.model.embedding import EmbeddingTable, LearnedPositions, SinusoidalPositions, sinusoids
from tests import reference
from tests.model_cases import build, tiny


def table(fixnorm: bool, seed: int = 0) -> EmbeddingTable:
    embedding = EmbeddingTable(5, 8, fixnorm)
    with torch.no_grad():
        embedding.weight.normal_(generator=torch.Generator().manual_seed(seed))
    return embedding


def test_fixnorm_rows_have_length_one_and_keep_their_direction():
    embedding = table(fixnorm=True)
    rows = embedding.table()
    torch.testing.assert_close(rows.norm(dim=-1), torch.ones(5))
    expected = reference.fix_norm(embedding.weight.detach().double().numpy())
    np.testing.assert_allclose(rows.detach().numpy(), expected, rtol=1e-5)


def test_fixnorm_ignores_the_length_of_a_row_and_without_it_rows_are_the_weights():
    embedding, plain = table(fixnorm=True), table(fixnorm=False)
    before = embedding.table().detach().clone()
    with torch.no_grad():
        embedding.weight *= 0.003
    torch.testing.assert_close(embedding.table(), before)
    assert plain.table().equal(plain.weight)


def test_fixnorm_gradient_is_orthogonal_to_the_row():
    """The length of a row is fixed, so the gradient has no component along the row."""
    embedding = table(fixnorm=True)
    (embedding.table() * torch.arange(40.0).view(5, 8)).sum().backward()
    along = (embedding.weight.grad * embedding.weight).sum(-1)
    torch.testing.assert_close(along, torch.zeros(5), atol=1e-4, rtol=0)
    assert embedding.weight.grad.norm() > 1


# weights are never fp16 in this toolkit: fp16 is autocast, under which the rows stay fp32
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_zero_row_is_finite_and_so_is_its_gradient(dtype):
    embedding = table(fixnorm=True)
    with torch.no_grad():
        embedding.weight[2] = 0
    embedding.to(dtype)
    rows = embedding.table()
    assert rows.isfinite().all()
    assert rows[2].abs().max() == 0
    rows.float().sum().backward()
    assert embedding.weight.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_zero_row_under_autocast_is_finite_and_so_is_its_scaled_gradient(dtype):
    embedding = table(fixnorm=True)
    with torch.no_grad():
        embedding.weight[2] = 0
    with torch.autocast("cpu", dtype):
        rows = embedding.table()
        logits = torch.ones(3, 8) @ rows.t()
    assert rows.dtype == torch.float32
    assert logits.dtype == dtype
    assert logits[:, 2].abs().max() == 0
    (logits.float().sum() * 2.0**13).backward()
    assert embedding.weight.grad.isfinite().all()


@pytest.mark.parametrize("kind", ["sinusoidal", "fairseq"])
@pytest.mark.parametrize("dim", [4, 6, 64])
def test_sinusoids_are_interleaved_and_follow_the_formula(dim, kind):
    expected = np.stack([reference.sinusoid(place, dim, kind) for place in range(40)])
    np.testing.assert_allclose(sinusoids(40, dim, kind).numpy(), expected, atol=1e-6)


def test_learned_positions_end_at_their_number():
    positions = LearnedPositions(8, 4)
    with torch.no_grad():
        positions.weight.copy_(torch.arange(32.0).view(8, 4))
    assert positions(torch.tensor([7, 0]), 8).tolist() == [[28, 29, 30, 31], [0, 1, 2, 3]]
    with pytest.raises(IndexError, match="9"):
        positions(torch.tensor([0]), 9)


def test_positions_grow_beyond_their_first_length_and_are_not_saved():
    positions = SinusoidalPositions(6)
    places = torch.tensor([0, 511, 512, 900])
    out = positions(places, 901)
    expected = np.stack([reference.sinusoid(int(place), 6) for place in places])
    np.testing.assert_allclose(out.numpy(), expected, atol=1e-6)
    assert not positions.state_dict()


@pytest.mark.parametrize(
    ("tie", "tables"),
    [
        ("src_tgt_out", {"embed.weight"}),
        ("tgt_out", {"embed.weight", "src_embed.weight"}),
        ("none", {"embed.weight", "src_embed.weight", "out_embed.weight"}),
    ],
)
def test_tie_decides_the_number_of_tables(tie, tables):
    model = build(tiny(tie=tie))
    assert {name for name in model.state_dict() if "embed" in name} == tables
