"""Choosing among candidates with a model of the reverse direction."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nmt.cli import translate as command
from nmt.config.entries import Direction, Directions
from nmt.config.recipe import FastBpeConfig, SentencePieceConfig
from nmt.decoding.codec import MAX_SOURCE_PIECES
from nmt.decoding.translator import Translator
from nmt.errors import UserError
from tests.decoding.ctranslate2.cases import model_folder
from tests.decoding.untrained import LINES, PAIRS, learned, untrained

TAGGED = Directions("en", "gl", tuple(Direction("en", "gl", tag) for tag in ("<2gl>", "<2es>")))


def model(
    src: str, tgt: str, seed: int, tokenized: bool = False, tags: tuple[str, ...] = ()
) -> Translator:
    """Return a Translator of these languages, with random weights and a vocabulary of its own."""
    config = FastBpeConfig(merges=40) if src == "gl" else SentencePieceConfig(vocab_size=60)
    pairs = PAIRS if src == "gl" else [pair[::-1] for pair in PAIRS]
    words = learned(config, pairs, tokenized)
    return untrained(seed, words=words, langs=(src, tgt), tags=tags)


@pytest.fixture(scope="module")
def plain() -> Translator:
    return model("gl", "en", seed=3)


@pytest.fixture(scope="module")
def reverse() -> Translator:
    return model("en", "gl", seed=4)


@pytest.fixture(scope="module")
def both(reverse: Translator) -> Translator:
    translator = model("gl", "en", seed=3)
    translator.reverse = reverse
    return translator


@pytest.mark.slow
@pytest.mark.parametrize("weight", [0.2, 1.0, 50.0])
@pytest.mark.parametrize("alpha", [0.0, 1.4])
def test_the_best_sum_of_both_scores_is_chosen(plain, reverse, both, weight, alpha):
    """The reverse scores are those of Translator.score, one candidate at a time."""
    chosen = both.n_best(LINES, 8, candidates=8, reverse_weight=weight, length_alpha=alpha)
    changed = 0
    for line, found in zip(LINES, chosen, strict=True):
        (candidates,) = plain.n_best([line], 8, length_alpha=alpha)
        sums = []
        for one in candidates:
            (back,) = reverse.score([one.text], [line], length_alpha=alpha)
            sums.append(one.score + weight * back.score)
        pieces = [one.pieces for one in candidates]
        order = [pieces.index(one.pieces) for one in found]
        assert sorted(order) == list(range(8))
        # other batches round in another way, so nearly equal sums may change places
        expected = pytest.approx(sorted(sums, reverse=True), rel=1e-4)
        assert [sums[index] for index in order] == expected
        changed += order[0] != 0
    assert changed > 0 or weight < 1


def test_one_candidate_of_16_is_the_translation_by_default(both):
    chosen = both.n_best(LINES, 16, reverse_weight=0.5)
    assert both.translate(LINES) == [of_line[0].text for of_line in chosen]
    assert list(map(len, chosen)) == [16] * len(LINES)


def test_a_search_without_the_reverse_model_stays_as_it_is(plain, both):
    assert both.n_best(LINES, 3, reverse_weight=0) == plain.n_best(LINES, 3)


@pytest.mark.slow
def test_other_lines_do_not_change_a_translation(both):
    lines = ["", *LINES, "   ", LINES[0]]
    together = both.translate(lines)
    assert together == [both.translate([line])[0] for line in lines]
    assert together == both.translate(lines, batch_tokens=1)
    assert [best[0].text for best in both.stream(lines, chunk_size=2)] == together
    assert together[0] == together[7] == ""


@pytest.mark.parametrize("pieces", [MAX_SOURCE_PIECES + 1, MAX_SOURCE_PIECES * 8])
def test_a_sentence_in_parts_keeps_the_order_of_the_search(plain, both, capsys, pieces):
    """Also if it would not be too long for the reverse model."""
    sentence = "o can bebe auga "
    long = sentence * (pieces // len(plain.codec.source_pieces(sentence)) + 1)
    fits = len(both.reverse.codec.target_pieces(long)) <= MAX_SOURCE_PIECES
    assert fits == (pieces == MAX_SOURCE_PIECES + 1)
    options: dict[str, Any] = {"beam": 2, "max_len_offset": 1}
    found = both.translate([LINES[1], long], reverse_weight=1000, candidates=2, **options)
    assert found[1] == plain.translate([long], **options)[0]
    assert "is not scored" not in capsys.readouterr().err


def test_given_translations_have_scores_that_do_not_need_the_reverse_model(plain):
    both, back = model("gl", "en", 3), model("en", "gl", 4)
    back.codec.directions = TAGGED
    both.reverse = back
    assert both.score(["o can"], ["the dog"]) == plain.score(["o can"], ["the dog"])


def test_scores_and_alignment_are_those_of_the_chosen_candidate(plain, both):
    (chosen,) = both.stream([LINES[0]], token_scores=True, align=True)
    (scored,) = plain.score([LINES[0]], [chosen[0].text], align=True)
    if scored.pieces == chosen[0].pieces:
        assert chosen[0].log_prob == pytest.approx(scored.log_prob, abs=1e-4)
    assert sum(chosen[0].token_log_probs) == pytest.approx(chosen[0].log_prob, abs=1e-4)
    assert chosen[0].alignment


def test_samples_can_be_candidates(both):
    options: dict[str, Any] = {"sample": True, "candidates": 6}
    drawn = both.n_best([LINES[0]], 6, reverse_weight=1, **options)[0]
    assert both.translate([LINES[0]], reverse_weight=1, **options) == [drawn[0].text]


def test_tokenized_text_reaches_the_reverse_model_as_tokens():
    plain, back = model("gl", "en", 5, tokenized=True), model("en", "gl", 6, tokenized=True)
    line = "a gata bebe auga"
    (candidates,) = plain.n_best([line], 6)
    sums = []
    for one in candidates:
        words = plain.codec.segmenter.decode_tokenized(one.pieces, "en")
        sums.append(one.score + 5 * back.score([words], [line])[0].score)
    plain.reverse = back
    chosen = plain.translate([line], candidates=6, reverse_weight=5)
    assert chosen == [candidates[sums.index(max(sums))].text]


def test_a_tag_chooses_the_language_of_the_reverse_model(plain):
    back = model("en", "es", 7, tags=("<2gl>",))
    directions = Direction("en", "gl", "<2gl>"), Direction("en", "es")
    back.codec.directions = Directions("en", "es", directions)
    both = model("gl", "en", seed=3)
    both.reverse = back
    with pytest.raises(UserError, match="translates en to es, but it must translate en to gl"):
        both.translate(LINES)
    (candidates,) = plain.n_best([LINES[0]], 4)
    sums = [
        one.score + 3 * back.score([one.text], [LINES[0]], tag="<2gl>")[0].score
        for one in candidates
    ]
    options: dict[str, Any] = {"candidates": 4, "reverse_weight": 3, "reverse_tag": "<2gl>"}
    assert both.translate([LINES[0]], **options) == [candidates[sums.index(max(sums))].text]


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"src": "es"}, {}, "translates es to gl, but it must translate en to gl"),
        ({"tgt": "pt"}, {}, "translates en to pt, but it must translate en to gl"),
        ({}, {"reverse_tag": "<2gl>"}, "no tag <2gl>; its tags: none"),
        ({}, {}, "always saw a tag before its source"),
    ],
)
def test_a_reverse_model_or_options_that_do_not_fit_are_errors(change, options, message):
    both, back = model("gl", "en", 3), model(**{"src": "en", "tgt": "gl", **change}, seed=4)
    if "always saw" in message:
        back.codec.directions = TAGGED
    both.reverse = back
    with pytest.raises(UserError, match=message) as caught:
        both.stream(LINES, **options)
    assert caught.value.fix


def test_models_of_raw_and_of_tokenized_text_do_not_fit():
    both = model("gl", "en", 3)
    both.reverse = model("en", "gl", 4, tokenized=True)
    with pytest.raises(UserError, match=r"only one of .* was trained on tokenized text"):
        both.stream(LINES)


# ---------------------------------------------------------------- nmt-translate


@pytest.fixture
def runs(plain: Translator, reverse: Translator, tmp_path: Path) -> tuple[Path, Path]:
    return model_folder(plain, tmp_path / "gl-en"), model_folder(reverse, tmp_path / "en-gl")


@pytest.fixture
def nmt_translate(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    def call(*argv: str | Path) -> tuple[int, str]:
        code = command.main([*map(str, argv), "--workers", "1"])
        return code, capsys.readouterr().err

    return call


def test_the_command_chooses_as_python_does(runs, nmt_translate, tmp_path):
    forward, back = runs
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in LINES))
    argv = [forward, "--reverse", back, "--input", tmp_path / "in", "--output", tmp_path / "out"]
    assert nmt_translate(*argv)[0] == 0
    expected = Translator.load(forward, "cpu", reverse=back).translate(LINES)
    assert (tmp_path / "out").read_text().splitlines() == expected
    assert expected != Translator.load(forward, "cpu").translate(LINES)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--reverse-weight 2", "--reverse-weight requires --reverse"),
        ("--reverse-tag <2gl>", "--reverse-tag requires --reverse"),
        ("--candidates 4", "--candidates requires --reverse"),
        ("--reverse nowhere", "nowhere: no such model or run folder"),
        ("--score-target in --reverse run", "--reverse cannot be combined with --score-target"),
    ],
)
def test_the_command_names_wrong_flags(runs, nmt_translate, tmp_path, flags, message):
    (tmp_path / "in").write_text("o can\n")
    given = {"in": tmp_path / "in", "run": runs[1]}
    words = [given.get(word, word) for word in flags.split()]
    code, error = nmt_translate(runs[0], "--input", tmp_path / "in", *words)
    assert (code, message in error) == (2, True), error
    assert "\n  -> " in error
