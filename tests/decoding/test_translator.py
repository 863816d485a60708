"""Lines in, as many lines out, the same text however they are batched, and the right numbers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.data.batches import Batch
from nmt.data.layout import Layout
from nmt.data.text import clean_line, is_blank
from nmt.data.vocab import BOS, EOS, PAD, UNK
from nmt.decoding import codec as sentences_module
from nmt.decoding import translator as module
from nmt.decoding.codec import BLANK, Translation
from nmt.decoding.parts import part_ends
from nmt.decoding.plan import Plan
from nmt.decoding.translator import Translator
from nmt.errors import MachineError, UserError
from nmt.model.incremental import DecodeState
from tests.decoding.exhaustive import Prefix, Scores, slow_beam_search
from tests.decoding.untrained import LINES, untrained
from tests.model_cases import batch_of, log_probs

BLANKS = ["", "  ", "\t", "\u00a0", "\u3000 ", "\u200b", "\ufeff", "\r"]


WAYS: list[dict[str, Any]] = [
    {"beam": 1},
    {"sample": True, "temperature": 1.5},
    {"sample": True, "top_k": 3, "top_p": 0.8, "seed": 4},
    {"groups": 2, "beam": 4, "diversity": 0.8},
    {"no_repeat_ngram": 2, "beam": 2},
]


@pytest.fixture(scope="module")
def translator() -> Translator:
    return untrained()


def ids_of(translator: Translator, line: str) -> list[int]:
    return translator.vocab.ids(translator.segmenter.encode(clean_line(line), translator.src))


def full_forward(translator: Translator, sources: Sequence[list[int]]) -> Scores:
    """Scores of the next token by the training forward over the whole prefix."""

    @functools.cache
    def scores(sentence: int, prefix: Prefix) -> np.ndarray:
        batch = batch_of([[*sources[sentence], EOS]], [list(prefix)])
        return log_probs(translator.model, batch)[-1].double().numpy()

    return scores


def assert_close(found: Sequence[Translation], expected: Sequence[Translation]) -> None:
    assert [h.text for h in found] == [h.text for h in expected]
    assert [h.pieces for h in found] == [h.pieces for h in expected]
    assert [h.finished for h in found] == [h.finished for h in expected]
    for name in ("score", "log_prob"):
        numbers = ([getattr(h, name) for h in side] for side in (found, expected))
        np.testing.assert_allclose(*numbers, rtol=1e-4, atol=1e-4)


# ---------------------------------------------------------------- the right hypotheses


def test_types_that_the_target_never_has_are_left_out_and_change_nothing(translator):
    allowed = translator.model.allowed
    assert int((~allowed).sum()) > 8
    seen = []
    start = type(translator.model).start

    def watched(self, src, layout, beam, max_len, types=None):
        seen.append(types)
        return start(self, src, layout, beam, max_len, None if whole else types)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(translator.model), "start", watched)
        whole = False
        found = translator.n_best(LINES, 2)
        assert seen[0].equal(allowed.nonzero()[:, 0])
        whole = True
        patch.setattr(Plan, "types", lambda self, allowed: None)
        for of_line, expected in zip(found, translator.n_best(LINES, 2), strict=True):
            assert_close(of_line, expected)
        assert seen[-1] is None


@pytest.mark.parametrize("beam", [1, 4])
def test_cached_search_equals_re_running_the_prefix(translator: Translator, beam: int) -> None:
    sources = [ids_of(translator, line) for line in LINES]
    scores = full_forward(translator, sources)
    found = translator.n_best(LINES, beam, beam=beam)
    for sentence, (source, of_line) in enumerate(zip(sources, found, strict=True)):
        expected = slow_beam_search(
            scores, sentence, beam, len(source) + 1 + 4, 0.6, (PAD, BOS, UNK)
        )
        pieces = [translator.vocab.pieces(ids) for ids, *_ in expected]
        assert [h.pieces for h in of_line] == pieces
        assert [h.finished for h in of_line] == [e[3] for e in expected]
        np.testing.assert_allclose([h.score for h in of_line], [e[2] for e in expected], rtol=1e-4)


def test_scores_are_the_log_probability_of_the_output(translator: Translator) -> None:
    """Teacher forcing over what was said; cut outputs have no EOS to count."""
    seen = set()
    for line, of_line in zip(LINES, translator.n_best(LINES, 4), strict=True):
        for h in of_line:
            ids = translator.vocab.ids(h.pieces)
            rows = log_probs(translator.model, batch_of([[*ids_of(translator, line), EOS]], [ids]))
            said = [*ids, EOS] if h.finished else ids
            log_prob = sum(float(rows[place, token]) for place, token in enumerate(said))
            assert h.log_prob == pytest.approx(log_prob, abs=1e-4)
            assert h.score == pytest.approx(log_prob / ((5 + len(said)) / 6) ** 0.6, abs=1e-4)
            seen.add(h.finished)
    assert seen == {True, False}


def test_every_way_in_gives_the_same(translator: Translator) -> None:
    lines = [*LINES[:3], "", *LINES[3:]]
    expected = [of_line[0] for of_line in translator.n_best(lines, 1)]
    assert expected[3] == BLANK
    assert translator.translate(lines) == [h.text for h in expected]
    assert_close([of_line[0] for of_line in translator.stream(iter(lines))], expected)
    assert_close([of_line[0] for of_line in translator.n_best(lines, 3)], expected)
    assert_close(
        translator.translate_ids([np.array(ids_of(translator, x)) for x in lines]), expected
    )
    assert translator.translate([]) == []
    assert translator.translate_ids([]) == []


def test_text_is_plain_again(translator: Translator) -> None:
    """Pieces are joined and detokenized: no mark of the segmentation is left."""
    for of_line in translator.n_best(LINES, 4):
        for h in of_line:
            assert h.text == translator.segmenter.decode(h.pieces, "en")
            assert "@@" not in h.text
            assert not {"<unk>", "<s>", "</s>", "<pad>"} & set(h.pieces)


def test_unk_when_it_is_allowed(translator: Translator) -> None:
    likely = untrained(eos_bias=0.0)
    assert likely.model.out_bias is not None
    with torch.no_grad():
        likely.model.out_bias[UNK] += 9.0
    assert "<unk>" in likely.translate(["pan"], allow_unk=True)[0]
    assert "<unk>" not in likely.translate(["pan"])[0]


def test_a_beam_larger_than_the_target_types_says_no_masked_type(translator: Translator) -> None:
    """Types that only the source has are impossible, not merely unlikely."""
    possible = set(translator.vocab.pieces(np.flatnonzero(translator.vocab.types_of("tgt"))))
    beam = len(translator.vocab) + 5
    (found,) = translator.n_best(["pan"], beam, max_len_offset=1, beam=beam)
    assert len(found) > 20
    for h in found:
        assert set(h.pieces) <= possible
        assert h.log_prob > -1e4


# ---------------------------------------------------------------- batches


@pytest.mark.parametrize("way", WAYS[1:], ids=lambda way: "-".join(way))
def test_no_way_to_search_depends_on_the_batch(translator: Translator, way: dict[str, Any]) -> None:
    lines = LINES * 2
    n_best = 2
    expected = translator.n_best(lines, n_best, **way)
    for batch_tokens, window in ((1, 2048), (40, 5)):
        found = list(
            translator.stream(lines, window, n_best=n_best, batch_tokens=batch_tokens, **way)
        )
        for of_line, of_line_before in zip(found, expected, strict=True):
            assert_close(of_line, of_line_before)


@pytest.mark.parametrize("batch_tokens", [1, 60, 4096])
def test_batches_and_order_do_not_matter(translator: Translator, batch_tokens: int) -> None:
    lines = LINES * 2
    expected = translator.n_best(lines, 2)
    order = np.random.default_rng(batch_tokens).permutation(len(lines))
    found = translator.n_best([lines[row] for row in order], 2, batch_tokens=batch_tokens)
    for row, of_line in zip(order, found, strict=True):
        assert_close(of_line, expected[row])


def test_the_stream_reads_one_window_ahead(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WINDOW", 4)
    read = 0

    def endless() -> Iterator[str]:
        nonlocal read
        while True:
            read += 1
            yield LINES[read % len(LINES)]

    stream = translator.stream(endless())
    first = [next(stream)[0].text for _ in range(6)]
    assert read == 8
    monkeypatch.undo()
    assert first == translator.translate([LINES[n % len(LINES)] for n in range(1, 7)])


def test_translating_stops_between_batches_when_asked(translator: Translator) -> None:
    calls = 0

    class Enough(Exception):
        pass

    def stop() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise Enough

    with pytest.raises(Enough):
        translator.translate_ids([np.array([4, 5])] * 9, stop, batch_tokens=1)
    assert calls == 3


# ---------------------------------------------------------------- memory


def limit_memory(
    translator: Translator, monkeypatch: pytest.MonkeyPatch, sentences: int
) -> list[int]:
    """Makes larger batches fail as a full device does; returns the sizes asked for."""
    asked: list[int] = []
    start = translator.model.start

    def limited(src: torch.Tensor, layout: Layout, *sizes: int) -> DecodeState:
        asked.append(layout.shape[0])
        if layout.shape[0] > sentences:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return start(src, layout, *sizes)

    monkeypatch.setattr(translator.model, "start", limited)
    return asked


def test_batches_are_halved_until_they_fit_and_it_is_said_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    translator, sources = untrained(), [np.array([4, 5, 6])] * 16
    expected = translator.translate_ids(sources)
    asked = limit_memory(translator, monkeypatch, 5)
    assert_close(translator.translate_ids(sources), expected)
    assert asked == [16, 8, 4, 4, 4, 4]
    assert_close(translator.translate_ids(sources), expected)
    assert asked[6:] == [4, 4, 4, 4]
    assert capsys.readouterr().err == "note: out of memory on cpu; batches halved\n"


def test_a_sentence_that_never_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = untrained()
    limit_memory(translator, monkeypatch, 0)
    with pytest.raises(MachineError, match="one sentence that takes 12 tokens"):
        translator.translate_ids([np.array([4, 5])] * 3)


@pytest.mark.parametrize("way", ["score", "align", "token_scores"])
def test_batches_of_given_translations_are_halved_too(
    way: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    translator, lines = untrained(), LINES * 3

    def found() -> list[Translation]:
        if way == "score":
            return translator.score(lines, LINES[::-1] * 3, align=True)
        return [best for (best,) in translator.n_best(lines, 1, **{way: True})]

    expected = found()
    sizes: list[int] = []
    forward = translator.transformer.forward

    def limited(batch: Batch) -> torch.Tensor:
        sizes.append(batch.src_layout.shape[0])
        if sizes[-1] > 4:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(batch)

    monkeypatch.setattr(translator.transformer, "forward", limited)
    for _ in range(2):
        again = found()
        assert_close(again, expected)
        assert [h.alignment for h in again] == [h.alignment for h in expected]
        for one, other in zip(again, expected, strict=True):
            np.testing.assert_allclose(one.token_log_probs, other.token_log_probs, atol=1e-4)
    assert max(sizes) > 4
    assert capsys.readouterr().err == "note: out of memory on cpu; batches halved\n"


# ---------------------------------------------------------------- odd lines


odd_line = st.one_of(
    st.sampled_from(
        [*BLANKS, *LINES[:3], "@@ a@@ <s> </s> <unk>", "a\u2028b\x85c\x0bd", "&amp; |||"]
    ),
    st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=12),
    st.integers(2, 15).map("o can ".__mul__),
)


@settings(max_examples=25, deadline=None, database=None, derandomize=True)
@given(lines=st.lists(odd_line, max_size=5), way=st.sampled_from(WAYS))
def test_as_many_lines_out_as_in(
    translator: Translator, lines: list[str], way: dict[str, Any]
) -> None:
    out = translator.translate(lines, **way)
    assert len(out) == len(lines)
    for line, text in zip(lines, out, strict=True):
        assert "\n" not in text
        if is_blank(clean_line(line)):
            assert text == ""


def test_blank_lines_stay_blank_among_others(translator: Translator) -> None:
    lines = [x for pair in zip(BLANKS, LINES * 2, strict=False) for x in pair]
    out = translator.n_best(lines, 2)
    assert out[::2] == [[BLANK]] * len(BLANKS)
    expected = translator.translate(LINES)
    assert [of_line[0].text for of_line in out[1::2]] == (expected * 2)[: len(BLANKS)]


def test_an_over_long_line_is_translated_in_parts_with_a_note(
    translator: Translator, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    long = " ".join(LINES * 2)
    ids = ids_of(translator, long)
    whole = translator.translate(LINES[:2])
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sentences_module, "LONGEST", 20)
    surfaces = [translator.segmenter.surface(p) for p in translator.sentences.source_pieces(long)]
    ends = part_ends(surfaces, 20)
    count = len(ends)
    assert count > 2
    found = translator.n_best([LINES[0], long, LINES[1]], 2)
    note = f"note: line 2 has {len(ids)} pieces; it is translated in {count} parts\n"
    assert capsys.readouterr().err == note
    assert [found[0][0].text, found[2][0].text] == whole
    parts = translator.translate_ids(np.split(np.array(ids), ends[:-1]))
    best = found[1][0]
    assert best.text == " ".join(part.text for part in parts)
    assert best.score == pytest.approx(sum(part.score for part in parts), abs=1e-3)
    assert best.finished == all(part.finished for part in parts)
    assert len(found[1]) == 2


# ---------------------------------------------------------------- wrong options


def test_more_translations_than_beams(translator: Translator) -> None:
    with pytest.raises(UserError, match="5 best translations need a beam of at least 5, not 3"):
        translator.n_best(["pan"], 5, beam=3)
    assert len(translator.n_best(["pan"], 6)[0]) == 6  # the recipe's beam of 4 is widened


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sample": True, "beam": 3}, "sample and beam contradict each other"),
        ({"sample": True, "groups": 2}, "sample and groups contradict each other"),
        ({"top_k": 3}, "top_k means nothing without sample"),
        ({"top_p": 0.5}, "top_p means nothing without sample"),
        ({"temperature": 2.0}, "temperature means nothing without sample"),
        ({"seed": 2}, "seed means nothing without sample"),
        ({"diversity": 0.2}, "diversity means nothing without groups"),
        ({"groups": 3, "beam": 4}, "a beam of 4 cannot be split into 3 equal groups"),
        ({"sample": True, "top_p": 1.5}, "top_p: 1.5 is not"),
        ({"sample": True, "top_k": 0}, "top_k: 0 is not"),
    ],
)
def test_options_that_contradict_each_other_are_both_named(
    translator: Translator, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        translator.stream(iter(LINES), **options)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda t: t.translate("pan"), r"lines is a str.*translate\(\[text\]\)"),
        (lambda t: t.translate(b"pan"), r"lines is a bytes"),
        (lambda t: t.n_best("pan", 2), r"n_best\(\[text\], 2\)"),
        (lambda t: t.stream("pan"), r"stream\(\[text\]\)"),
        (lambda t: t.score("pan", ["bread"]), r"sources is a str"),
        (lambda t: t.score(["pan"], "bread"), r"targets is a str.*score"),
        (lambda t: t.translate(["pan"], prefix="the"), r"prefix is a str.*prefix=\[text\]"),
        (lambda t: t.translate(["pan"], require=["the"]), r"require.*require=\[\[phrase\]\]"),
        (lambda t: t.translate(["pan"], forbid="the"), r"forbid.*forbid=\[\[phrase\]\]"),
        (lambda t: t.translate(["pan"], forbid_all="the"), r"forbid_all.*forbid_all=\[phrase\]"),
    ],
)
def test_text_in_place_of_lines_is_a_type_error(
    translator: Translator, call: Callable[[Translator], Any], said: str
) -> None:
    """Python takes a text for a sequence of its characters, each of which was translated."""
    with pytest.raises(TypeError, match=said):
        call(translator)


@pytest.mark.parametrize(
    "options",
    [
        {"beam": 100_000},
        {"beam": 5000, "n_best": 5000},
        {"n_best": 5000},
        {"sample": True, "n_best": 100_000},
        {"mbr": "chrf", "candidates": 5000},
        {"groups": 5000},
        {"max_len_offset": 10**20},
        {"batch_tokens": 10**20},
        {"seed": 10**20, "sample": True},
        {"top_k": 10**20, "sample": True},
        {"no_repeat_ngram": 10**20},
    ],
    ids=str,
)
def test_what_memory_does_not_hold_is_refused_with_what_is_allowed(
    translator: Translator, options: dict[str, Any]
) -> None:
    with pytest.raises(UserError, match=r"is not an? .* and at most") as caught:
        translator.stream(["pan"], **options)
    assert caught.value.fix


@pytest.mark.parametrize(
    "option",
    [
        {"beam": 0},
        {"length_alpha": -1.0},
        {"length_alpha": 1e3},
        {"batch_tokens": 0},
        {"bem": 3},
        {"copy_unk": True},
    ],
    ids=lambda option: next(iter(option)),
)
def test_options_that_cannot_be_are_named_at_once(
    translator: Translator, option: dict[str, float]
) -> None:
    with pytest.raises(UserError, match=next(iter(option))):
        translator.stream(iter(LINES), **option)
