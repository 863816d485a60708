"""Given targets, ensembles and alignment against slow doubles."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from nmt.data.lines import clean_line
from nmt.data.vocab import EOS, UNK
from nmt.decoding.engine import ignore
from nmt.decoding.ensemble import Ensemble
from nmt.decoding.options import SearchOptions
from nmt.decoding.token_scores import word_alignment
from nmt.decoding.translator import Translator
from nmt.errors import UserError
from tests.decoding.untrained import LINES, untrained
from tests.model_cases import batch_of, log_probs

pytestmark = pytest.mark.cpu


@pytest.fixture(scope="module")
def translator() -> Translator:
    return untrained()


def encoded(translator: Translator, line: str, lang: str = "gl") -> list[int]:
    return translator.codec.vocab.ids(translator.codec.segmenter.encode(clean_line(line), lang))


# ---------------------------------------------------------------- given translations


def test_a_score_is_the_log_probability_of_all_tokens_and_eos(translator):
    """A type that the target side lacks is UNK. The order of lines does not matter."""
    targets = ["the dog", "I see the old cat, sir.", "señor pan", "it is", "x", "the the the"]
    scored = translator.score(LINES, targets, length_alpha=1.0, batch_tokens=30)
    again = translator.score(LINES[::-1], targets[::-1], length_alpha=1.0)[::-1]
    known = translator.codec.vocab.types_of("tgt")
    for line, target, s, other in zip(LINES, targets, scored, again, strict=True):
        ids = [i if known[i] else UNK for i in encoded(translator, target, "en")]
        rows = log_probs(
            translator.transformer, batch_of([[*encoded(translator, line), EOS]], [ids])
        )
        expected = [float(rows[place, token]) for place, token in enumerate([*ids, EOS])]
        np.testing.assert_allclose(s.token_log_probs, expected, atol=1e-4)
        np.testing.assert_allclose(s.token_log_probs, other.token_log_probs, atol=1e-4)
        assert s.score == pytest.approx(sum(expected) * 6 / (5 + len(expected)), abs=1e-4)


def test_blank_lines_long_lines_and_missing_lines(translator, monkeypatch, capsys):
    monkeypatch.setattr(translator.engine, "longest_target", 40)
    sources = ["", "pan", "\u3000", "pan", "pan"]
    scored = translator.score(sources, ["\u200b", "", "bread", "bread", "bread " * 11])
    assert [h.log_prob for h in scored[:3]] == [0.0, -math.inf, -math.inf]
    assert math.isfinite(scored[3].log_prob)
    assert scored[4].log_prob == -math.inf
    assert "note: line 5 is not scored: its target has 44 subwords" in capsys.readouterr().err
    with pytest.raises(UserError, match="the target ends before line 2"):
        translator.score(["pan", "pan"], ["bread"])
    with pytest.raises(UserError, match="beam cannot be combined with targets"):
        translator.score(["pan"], ["bread"], beam=4)


@pytest.mark.slow
def test_learned_positions_limit_targets_and_translations(capsys):
    """A search that never ends stops at the last position; a longer target is not scored."""
    learned = untrained(
        eos_bias=-100.0, model={"positions": "learned", "max_positions": 640}, max_len_offset=2000
    )
    [[translation]] = learned.n_best(["pan"], 1, align=True, token_scores=True)
    assert len(translation.pieces) == 639
    scored = learned.score(["pan", "pan"], ["bread", "bread " * 200])
    assert math.isfinite(scored[0].log_prob)
    assert scored[1].log_prob == -math.inf
    assert "at most 638 are allowed" in capsys.readouterr().err


# ---------------------------------------------------------------- ensembles


def test_an_ensemble_of_equal_models_equals_the_model(translator):
    twice = untrained()
    twice.engine.model = Ensemble([twice.transformer, twice.transformer])
    found, expected = (
        t.n_best(LINES, 3, token_scores=True, align=True) for t in (twice, translator)
    )
    for of_line, of_model in zip(found, expected, strict=True):
        assert [h.pieces for h in of_line] == [h.pieces for h in of_model]
        assert [h.alignment for h in of_line] == [h.alignment for h in of_model]
        for h, e in zip(of_line, of_model, strict=True):
            assert h.log_prob == pytest.approx(e.log_prob, abs=1e-4)
            assert sum(h.token_log_probs) == pytest.approx(h.log_prob, abs=1e-4)


def test_an_ensemble_computes_the_mean_of_the_probabilities():
    members = [untrained(seed=seed) for seed in (2, 3)]
    both = untrained()
    both.engine.model = Ensemble([member.transformer for member in members])
    (best,) = both.n_best([LINES[0]], 1, token_scores=True)[0]
    ids = both.codec.vocab.ids(best.pieces)
    batch = batch_of([[*encoded(both, LINES[0]), EOS]], [ids])
    mean = np.mean([np.exp(log_probs(m.transformer, batch).numpy()) for m in members], axis=0)
    tokens = [*ids, EOS][: len(best.token_log_probs)]
    expected = [math.log(mean[place, token]) for place, token in enumerate(tokens)]
    np.testing.assert_allclose(best.token_log_probs, expected, atol=1e-4)
    scored = both.score([LINES[0]], ["the dog"])[0]
    alone = [m.score([LINES[0]], ["the dog"])[0].token_log_probs for m in members]
    mean_of_two = np.log(np.mean(np.exp(alone), axis=0))
    np.testing.assert_allclose(scored.token_log_probs, mean_of_two, atol=1e-4)


# ---------------------------------------------------------------- alignment


def test_attention_weights_are_those_of_the_forward_pass(translator):
    """Weights times values, projected, are the output of cross-attention."""
    batch = batch_of([[5, 6, 7, 2], [8, 2]], [[5, 6], [7, 8, 9, 4]])
    model = translator.transformer.eval()
    attention = next(iter(model.decoder.blocks)).cross_attn
    seen: list[tuple[tuple, torch.Tensor]] = []
    handle = attention.register_forward_hook(lambda _, args, out: seen.append((args, out)))
    with torch.no_grad():
        model(*batch.inputs)
        handle.remove()
        (args, out), *_ = seen
        _, layout, memory, memory_layout, _ = args
        weights = attention.weights(*args)
        hidden = ~memory_layout.visible[:, None, None, :].expand_as(weights)
        assert torch.equal(weights[hidden], torch.zeros(int(hidden.sum())))
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
        values = attention.keys_values(memory, memory_layout).chunk(2, -1)[1]
        values = values.unflatten(-1, (attention.heads, -1)).transpose(1, 2)
        mixed = attention.project_output(layout.flat((weights @ values).transpose(1, 2)))
    torch.testing.assert_close(mixed, out)


def test_a_piece_is_never_aligned_to_padding_and_the_batch_does_not_matter(translator):
    sources = [np.array([5, 6, 7, 8]), np.array([9, 5])]
    targets = [np.array([8, 5]), np.array([5, 9, 5])]
    pairs = list(zip(sources, targets, [1, 2], strict=True))
    together, apart, plain = (
        translator.engine.score(
            pairs, SearchOptions(batch_tokens=size, align=align), ignore, ignore
        )
        for size, align in ((4096, True), (1, True), (4096, False))
    )
    assert [f.aligned for f in together] == [f.aligned for f in apart]
    for f, source, target in zip(together, sources, targets, strict=True):
        assert len(f.aligned) == len(target)
        assert set(f.aligned) <= set(range(len(source)))  # never EOS or padding
    assert [f.aligned for f in plain] == [[], []]


def test_words_are_linked_if_any_of_their_pieces_are():
    ends = [False, True, True]  # a@@ b c: two words
    assert word_alignment([0, 1, 2, 2], ends, [False, True, True, True]) == [(0, 0), (1, 1), (1, 2)]
    assert word_alignment([2, 0], ends, [False, True]) == [(0, 0), (1, 0)]
    assert word_alignment([], ends, [True]) == []


def test_alignments_stay_within_the_words_of_both_sides(translator):
    for line, of_line in zip(LINES, translator.n_best(LINES, 2, align=True), strict=True):
        source = translator.codec.segmenter.moses.tokenize(line, "gl")
        for h in of_line:
            words = translator.codec.segmenter.decode_tokenized(h.pieces, "en").split()
            assert {j for _, j in h.alignment} == set(range(len(words)))
            assert {i for i, _ in h.alignment} <= set(range(len(source)))
