"""A target tag in search and scores: the decoder reads it first, and no output shows it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from nmt.config.entries import Direction, Directions
from nmt.data.vocab import BOS, EOS, PAD, UNK, tag_piece
from nmt.decoding.codec import MAX_SOURCE_PIECES
from nmt.decoding.forced import _recorded_attention
from nmt.decoding.translator import Translator
from nmt.errors import UserError
from tests.decoding.ctranslate2.cases import model_folder
from tests.decoding.exhaustive import Prefix, slow_beam_search
from tests.decoding.untrained import LINES, untrained
from tests.model_cases import batch_of, log_probs

ES, FR, SRC = "<es>", "<fr>", "<gl>"


def tagged(seed: int = 2, src: str = "gl", tgt: str = "en", tags: tuple = (ES, FR)) -> Translator:
    """Return an untrained translator whose targets may begin with tags, and sources with <gl>."""
    return untrained(seed, langs=(src, tgt), tags=[SRC], tgt_tags=tags)


@pytest.fixture(scope="module")
def translator() -> Translator:
    return tagged()


@pytest.mark.slow
@pytest.mark.parametrize("tgt_tag", [ES, FR])
@pytest.mark.parametrize("tag", [None, SRC])
def test_greedy_search_continues_the_tag(translator, tag, tgt_tag):
    """Equal to a search that reads [BOS, tag, pieces so far] at each position."""
    codec, vocab = translator.codec, translator.codec.vocab
    sources = [vocab.ids([*tag_piece(tag), *codec.source_pieces(line)]) for line in LINES]
    start, forbidden = vocab.ids(tag_piece(tgt_tag)), [PAD, BOS, UNK, *vocab.reserved_ids]

    def scores(sentence: int, prefix: Prefix) -> np.ndarray:
        batch = batch_of([[*sources[sentence], EOS]], [[*start, *prefix]])
        return log_probs(translator.transformer, batch)[-1].double().numpy()

    found = translator.stream(LINES, tag=tag, tgt_tag=tgt_tag, beam=1, length_alpha=1.3)
    for sentence, (one,) in enumerate(found):
        limit = len(sources[sentence]) + 1 + translator.info.decode.max_len_offset
        expected = slow_beam_search(scores, sentence, 1, limit, 1.3, forbidden)
        [(ids, log_prob, score, finished)] = expected
        assert (one.pieces, one.finished) == (vocab.pieces(ids), finished)
        # another order of sums in fp32
        assert (one.log_prob, one.score) == pytest.approx((log_prob, score), abs=1e-4)


SEARCHES: dict[str, dict[str, Any]] = {
    "beam": {"beam": 4, "n_best": 4},
    "count": {"beam": 4, "n_best": 3, "stop_rule": "count"},
    "samples": {"sample": True, "n_best": 3},
    "ngrams": {"beam": 3, "n_best": 3, "no_repeat_ngram": 1},
    "forbidden": {"beam": 3, "n_best": 3},
}


@pytest.mark.slow
@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("tag", [None, SRC])
def test_found_scores_equal_forced_scores(translator, tag, search):
    shared = {"tag": tag, "tgt_tag": ES, "align": True, "length_alpha": 0.6}
    options = {**SEARCHES[search], **shared, "token_scores": True}
    compared = 0
    for line, found in zip(LINES, translator.stream(LINES, **options), strict=True):
        for one in found:
            assert len(one.token_log_probs) == len(one.pieces) + one.finished
            assert sum(one.token_log_probs) == pytest.approx(one.log_prob, abs=1e-4)
            codec = translator.codec
            if one.finished and one.pieces and codec.target_pieces(one.text) == one.pieces:
                [given] = translator.score([line], [one.text], **shared)
                assert given.log_prob == pytest.approx(one.log_prob, abs=1e-4)
                assert given.score == pytest.approx(one.score, abs=1e-4)
                assert given.token_log_probs == pytest.approx(one.token_log_probs, abs=1e-4)
                assert given.alignment == one.alignment
                [other] = translator.score([line], [one.text], **{**shared, "tgt_tag": FR})
                assert other.log_prob != pytest.approx(one.log_prob, abs=1e-3)
                compared += 1
    assert compared >= 2


def test_constraints_begin_after_the_tag(translator):
    for (one,) in translator.stream(
        LINES, tgt_tag=ES, prefix=["the cat"] * len(LINES), require=[["sea"]] * len(LINES), beam=4
    ):
        assert one.text.startswith("the cat")
        assert "sea" in one.text.split()


def test_no_tag_is_found_even_if_it_is_the_most_likely_type():
    translator = tagged()
    model, vocab = translator.transformer, translator.codec.vocab
    ids = vocab.ids([*tag_piece(ES), *tag_piece(FR)])
    assert model.allowed[ids].all()  # the model predicts them in training
    assert not model.allowed[vocab.ids(tag_piece(SRC))].any()
    with torch.no_grad():
        model.out_bias[ids] = 100.0
    for tgt_tag in (None, ES):
        for one in (best for (best,) in translator.stream(LINES, tgt_tag=tgt_tag)):
            assert not {*vocab.ids(one.pieces)} & {*ids}


def test_the_longest_output_of_an_export_has_positions(tmp_path):
    """Of the longest source with tags on both sides, for a model that always repeats a piece."""
    pytest.importorskip("ctranslate2")
    translator = tagged()
    piece = translator.codec.vocab.ids(translator.codec.target_pieces("the"))[0]
    with torch.no_grad():
        translator.transformer.out_bias[piece] = 100.0
    folder = model_folder(translator, tmp_path / "model")
    exported = Translator.load(folder, "cpu", engine="ctranslate2")
    source = np.full(MAX_SOURCE_PIECES + 1, piece)
    for offset, fits in ((1533, True), (1534, False)):
        options = {"beam": 1, "max_len_offset": offset, "tgt_tag": ES}
        if not fits:
            with pytest.raises(UserError, match="above 1,533 with this model"):
                exported.translate_ids([source], **options)
            continue
        (found,) = exported.translate_ids([source], **options)
        assert len(found.pieces) == MAX_SOURCE_PIECES + 2 + offset
        (ours,) = translator.translate_ids([source[:9]], **{**options, "max_len_offset": 3})
        assert len(ours.pieces) == 10 + 3


def test_an_alignment_leaves_out_tags(translator):
    codec, source, target = translator.codec, "o can bebe auga", "the dog eats"
    src, tgt = codec.source_pieces(source), codec.target_pieces(target)
    ids = [codec.vocab.ids([*tag_piece(tag), *p]) for tag, p in ((SRC, src), (ES, tgt))]
    with torch.no_grad(), _recorded_attention(translator.transformer) as attention:
        translator.transformer(*batch_of([[*ids[0], EOS]], [ids[1]]).inputs)
    pieces = attention[0][0, 1:-1, 1:-1].argmax(1).tolist()
    ends = codec.word_ends(src), codec.word_ends(tgt)
    words = {(sum(ends[0][:i]), sum(ends[1][:j])) for j, i in enumerate(pieces)}
    [scored] = translator.score([source], [target], tag=SRC, tgt_tag=ES, align=True)
    assert scored.alignment == sorted(words)


# ---------------------------------------------------------------- which tag


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tgt_tag": "<pt>"}, "the model has no target tag <pt>; its target tags are <es>, <fr>"),
        ({"tgt_tag": SRC}, "the model has no target tag <gl>"),
        ({"tag": ES}, "the model has no tag <es>; its tags are <gl>"),
    ],
)
def test_a_tag_of_the_other_side_or_an_unknown_one_is_an_error(translator, options, message):
    with pytest.raises(UserError) as caught:
        translator.stream(LINES, **options)
    assert message in str(caught.value)
    with pytest.raises(UserError, match="trained without target tags"):
        untrained().stream(LINES, tgt_tag=ES)


def trained(*tags: tuple[str | None, str | None]) -> Directions:
    return Directions("gl", "en", tuple(Direction("gl", "en", *pair) for pair in tags))


def backward(*targets: str) -> Directions:
    """Return the directions of a model from English, with a target tag for each language."""
    return Directions("en", "es", tuple(Direction("en", t, None, f"<{t}>") for t in targets))


def test_the_only_tag_is_the_default_and_one_of_several_is_required():
    translator = tagged()
    expected = translator.translate(LINES, tag=SRC, tgt_tag=FR)
    scored = translator.score(LINES, LINES, tag=SRC, tgt_tag=FR)
    other = translator.translate(LINES, tag=SRC, tgt_tag=ES)
    translator.codec.directions = trained((SRC, FR))
    assert translator.translate(LINES) == expected
    assert translator.score(LINES, LINES) == scored
    assert translator.translate(LINES, tgt_tag=ES) == other
    translator.codec.directions = trained((None, ES), (None, FR))
    for call in (translator.translate, lambda lines: translator.score(lines, lines)):
        with pytest.raises(UserError, match="its target tags are <es>, <fr>") as caught:
            call(LINES)
        assert caught.value.at == "tgt_tag"


def test_the_target_tag_decides_the_rules_of_the_language():
    translator = tagged()
    directions = Direction("gl", "fr", None, FR), Direction("gl", "it", SRC)
    translator.codec.directions = Directions("gl", "en", directions)
    assert translator.codec.for_tag(FR).tgt == "fr"
    for options, language in (
        ({"tgt_tag": FR}, "fr"),
        ({"tgt_tag": FR, "tag": SRC}, "fr"),
        ({"tgt_tag": ES, "tag": SRC}, "en"),
        ({"tag": SRC}, "it"),
    ):
        checked = translator.check_options(options)
        assert translator.codec.for_tag(checked.target_tag).tgt == language


# ---------------------------------------------------------------- a reverse model


@pytest.mark.parametrize("default", [False, True])
def test_the_reverse_model_has_a_target_tag_of_its_own(default):
    back = tagged(7, "en", "es", tags=("<gl>", "<pt>"))
    back.codec.directions = backward("gl", "pt")
    both = tagged()
    (candidates,) = both.n_best([LINES[0]], 4, tgt_tag=ES)
    sums = [
        one.score + 3 * back.score([one.text], [LINES[0]], tgt_tag="<gl>")[0].score
        for one in candidates
    ]
    options: dict[str, Any] = {"tgt_tag": ES, "candidates": 4, "reverse_weight": 3}
    if default:
        back.codec.directions = backward("gl")
    else:
        options["reverse_tgt_tag"] = "<gl>"
    both.reverse = back
    assert both.translate([LINES[0]], **options) == [candidates[sums.index(max(sums))].text]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reverse_tgt_tag": "<es>"}, "no target tag <es>; its target tags: <gl>, <pt>"),
        ({}, "always saw a target tag; its target tags: <gl>, <pt>"),
        ({"reverse_tgt_tag": "<pt>"}, "translates en to pt, but it must translate en to gl"),
    ],
)
def test_a_reverse_model_that_does_not_fit_is_an_error(options, message):
    both, back = tagged(), tagged(7, "en", "gl", tags=("<gl>", "<pt>"))
    back.codec.directions = backward("gl", "pt")
    both.reverse = back
    with pytest.raises(UserError) as caught:
        both.stream(LINES, tgt_tag=ES, **options)
    assert message in str(caught.value)
