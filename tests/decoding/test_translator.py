"""One translation for each line, the same in any batch, with the right scores."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.data.lines import clean_line, is_blank
from nmt.data.vocab import BOS, EOS, PAD, UNK
from nmt.decoding import codec as codec_module
from nmt.decoding import translator as translator_module
from nmt.decoding.codec import BLANK, Translation, part_ends
from nmt.decoding.engine import Hypothesis
from nmt.decoding.options import search_options
from nmt.decoding.torch_engine import TorchEngine
from nmt.decoding.translator import Translator
from nmt.errors import MachineError, UserError
from nmt.model.incremental import DecodeState
from nmt.model.layout import Layout
from tests.decoding.exhaustive import Prefix, Scores, slow_beam_search
from tests.decoding.untrained import LINES, untrained
from tests.model_cases import batch_of, log_probs

SMALLER = "note: out of memory on cpu; continuing with smaller batches\n"
BLANKS = ["", "  ", "\t", "\u00a0", "\u3000 ", "\u200b", "\ufeff", "\r"]


OPTIONS: list[dict[str, Any]] = [
    {"beam": 1},
    {"sample": True, "temperature": 1.5},
    {"sample": True, "top_k": 3, "top_p": 0.8, "seed": 4},
    {"no_repeat_ngram": 2, "beam": 2},
]


@pytest.fixture(scope="module")
def translator() -> Translator:
    return untrained()


def ids_of(translator: Translator, line: str) -> list[int]:
    return translator.codec.vocab.ids(
        translator.codec.segmenter.encode(clean_line(line), translator.codec.src)
    )


def full_forward(translator: Translator, sources: Sequence[list[int]]) -> Scores:
    """Scores of the next token by the training forward over the complete prefix."""

    @functools.cache
    def scores(sentence: int, prefix: Prefix) -> np.ndarray:
        batch = batch_of([[*sources[sentence], EOS]], [list(prefix)])
        return log_probs(translator.transformer, batch)[-1].double().numpy()

    return scores


def assert_close(found: Sequence[Translation], expected: Sequence[Translation]) -> None:
    for name in ("text", "pieces", "finished"):
        assert [getattr(h, name) for h in found] == [getattr(h, name) for h in expected]
    for name in ("score", "log_prob"):
        numbers = ([getattr(h, name) for h in side] for side in (found, expected))
        np.testing.assert_allclose(*numbers, rtol=1e-4, atol=1e-4)


# ---------------------------------------------------------------- hypotheses and scores


def test_a_search_without_logits_of_impossible_types_finds_the_same(translator):
    allowed = translator.transformer.allowed
    assert int((~allowed).sum()) > 8
    seen = []
    start_decoding = type(translator.transformer).start_decoding

    def spy(self, src, layout, beam, max_len, types=None):
        seen.append(types)
        return start_decoding(self, src, layout, beam, max_len, types)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(translator.transformer), "start_decoding", spy)
        found = translator.n_best(LINES, 2)
        assert seen[0].equal(allowed.nonzero()[:, 0])
        patch.setattr(translator.engine, "_allowed_ids", None)  # None = logits of all types
        for of_line, expected in zip(found, translator.n_best(LINES, 2), strict=True):
            assert_close(of_line, expected)
        assert seen[-1] is None


def test_cached_search_equals_re_running_the_prefix(translator):
    """Pieces, ends and scores of all four beams, some of which the length limit cuts."""
    sources = [ids_of(translator, line) for line in LINES]
    scores, finished = full_forward(translator, sources), set()
    found = translator.n_best(LINES, 4)
    for sentence, (source, of_line) in enumerate(zip(sources, found, strict=True)):
        expected = slow_beam_search(scores, sentence, 4, len(source) + 1 + 4, 0.6, (PAD, BOS, UNK))
        pieces = [translator.codec.vocab.pieces(ids) for ids, *_ in expected]
        assert [h.pieces for h in of_line] == pieces
        assert [h.finished for h in of_line] == [e[3] for e in expected]
        ours = [(h.log_prob, h.score) for h in of_line]
        np.testing.assert_allclose(ours, [e[1:3] for e in expected], rtol=1e-4)
        finished |= {h.finished for h in of_line}
    assert finished == {True, False}


def test_all_methods_return_the_same_translations(translator):
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


def test_unk_is_produced_only_if_allowed(translator):
    likely = untrained(eos_bias=0.0)
    with torch.no_grad():
        likely.transformer.out_bias[UNK] += 9.0
    assert "<unk>" in likely.translate(["pan"], allow_unk=True)[0]
    assert "<unk>" not in likely.translate(["pan"])[0]


def test_a_beam_larger_than_the_target_types_produces_no_masked_type(translator):
    """Types that only the source side has are impossible, not just unlikely."""
    possible = set(
        translator.codec.vocab.pieces(np.flatnonzero(translator.codec.vocab.types_of("tgt")))
    )
    beam = len(translator.codec.vocab) + 5
    (found,) = translator.n_best(["pan"], beam, max_len_offset=1, beam=beam)
    assert len(found) > 20
    for h in found:
        assert set(h.pieces) <= possible
        assert h.log_prob > -1e4


# ---------------------------------------------------------------- batches


@pytest.mark.parametrize("options", [{}, *OPTIONS[1:]], ids=lambda options: "-".join(options))
def test_batches_and_order_do_not_matter(translator, options):
    """Samples depend on the number of a line, so their order stays."""
    lines = LINES * 2
    expected = translator.n_best(lines, 2, **options)
    order = np.random.default_rng(1).permutation(len(lines)) if not options else range(len(lines))
    for batch_tokens, chunk_size in ((1, 2048), (40, 5)):
        given = {"n_best": 2, "batch_tokens": batch_tokens, **options}
        found = list(translator.stream([lines[row] for row in order], chunk_size, **given))
        for row, of_line in zip(order, found, strict=True):
            assert_close(of_line, expected[row])


def test_the_stream_reads_one_chunk_ahead(translator, monkeypatch):
    monkeypatch.setattr(translator_module, "CHUNK_SIZE", 4)
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


@pytest.mark.slow
@pytest.mark.parametrize("skip", [0, 1, 4, 6, 11, 12])
def test_skipped_lines_do_not_change_others_of_their_batch(translator, monkeypatch, skip):
    """As those in bf16 do: sums of products depend on the shape of a matrix."""
    search = TorchEngine._search_batch

    def by_batch(self: TorchEngine, inputs: Any, **others: Any) -> list[list[Hypothesis]]:
        found = search(self, inputs, **others)
        return [[replace(one, log_prob=len(inputs) + inputs[0].line) for one in of] for of in found]

    monkeypatch.setattr(translator_module, "CHUNK_SIZE", 4)
    monkeypatch.setattr(TorchEngine, "_search_batch", by_batch)
    lines = [LINES[n % len(LINES)] for n in range(12)]
    reported: list[int] = []
    expected = list(translator.stream(lines))
    found = list(translator.stream(lines, skip=skip, progress=reported.append))
    assert found == expected[skip:]
    assert sum(reported) == len(found)


class Cancelled(Exception):
    """Raised by the function ``stop`` of a call."""


class StopAt:
    """Raises Cancelled at a call with this number."""

    def __init__(self, last: int) -> None:
        self.calls, self.last = 0, last

    def __call__(self) -> None:
        self.calls += 1
        if self.calls == self.last:
            raise Cancelled


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options))
def test_a_search_can_be_stopped_between_two_positions(translator, monkeypatch, options):
    positions = 0
    advance = DecodeState.advance

    def count(*arguments: Any) -> Any:
        nonlocal positions
        positions += 1
        return advance(*arguments)

    monkeypatch.setattr(DecodeState, "advance", count)
    with pytest.raises(Cancelled):
        list(translator.stream(LINES, stop=StopAt(4), **options))
    assert positions == 3


@pytest.mark.slow
def test_scores_can_be_stopped(translator):
    """Each line is a batch, so each line asks once more than its search does."""
    search, complete = StopAt(0), StopAt(0)
    given, options = {"batch_tokens": 1, "n_best": 2, "beam": 16}, {"align": True}
    expected = list(translator.stream(LINES, stop=search, **given))
    assert len(expected) == len(LINES)
    list(translator.stream(LINES, stop=complete, **given, **options))
    assert complete.calls >= search.calls + len(LINES)
    with pytest.raises(Cancelled):
        list(translator.stream(LINES, stop=StopAt(complete.calls), **given, **options))
    # the translator is as before
    assert list(translator.stream(LINES, **given)) == expected


@pytest.mark.slow
def test_a_search_within_a_search_changes_neither(translator):
    """A server translates a short text while a long one waits between two positions."""
    inner: list[list[str]] = []
    given: dict[str, Any] = {"n_best": 3, "token_scores": True, "align": True}

    def nested() -> None:
        if len(inner) < 5:
            inner.append(translator.translate(LINES[:2]))

    outer = list(translator.stream(LINES, stop=nested, **given))
    assert outer == list(translator.stream(LINES, **given))
    assert inner == [translator.translate(LINES[:2])] * 5


# ---------------------------------------------------------------- memory


def limit_memory(
    translator: Translator, monkeypatch: pytest.MonkeyPatch, sentences: int
) -> list[int]:
    """Let larger batches run out of memory; return the list of requested sizes."""
    asked: list[int] = []
    start_decoding = translator.transformer.start_decoding

    def limited(src: torch.Tensor, layout: Layout, *sizes: int) -> DecodeState:
        asked.append(layout.shape[0])
        if layout.shape[0] > sentences:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return start_decoding(src, layout, *sizes)

    monkeypatch.setattr(translator.transformer, "start_decoding", limited)
    return asked


def test_batches_are_halved_until_they_fit_with_one_note(monkeypatch, capsys):
    translator, sources = untrained(), [np.array([4, 5, 6])] * 16
    expected = translator.translate_ids(sources)
    asked = limit_memory(translator, monkeypatch, 5)
    assert_close(translator.translate_ids(sources), expected)
    assert asked == [16, 8, 4, 4, 4, 4]
    assert_close(translator.translate_ids(sources), expected)
    assert asked[6:] == [4, 4, 4, 4]
    assert capsys.readouterr().err == SMALLER


def test_a_sentence_that_does_not_fit_is_an_error(monkeypatch):
    translator = untrained()
    limit_memory(translator, monkeypatch, 0)
    with pytest.raises(MachineError, match="one sentence with all its hypotheses has 12 tokens"):
        translator.translate_ids([np.array([4, 5])] * 3)


@pytest.mark.slow
@pytest.mark.parametrize("call", ["score", "align"])
def test_batches_of_given_translations_are_halved_too(call, monkeypatch, capsys):
    translator, lines = untrained(), LINES * 3

    def found() -> list[Translation]:
        if call == "score":
            return translator.score(lines, LINES[::-1] * 3, align=True)
        return [best for (best,) in translator.n_best(lines, 1, **{call: True})]

    expected = found()
    sizes: list[int] = []
    forward = translator.transformer.forward

    def limited(src: torch.Tensor, layout: Layout, *target: Any) -> torch.Tensor:
        sizes.append(layout.shape[0])
        if sizes[-1] > 4:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(src, layout, *target)

    monkeypatch.setattr(translator.transformer, "forward", limited)
    for _ in range(2):
        again = found()
        assert_close(again, expected)
        assert [h.alignment for h in again] == [h.alignment for h in expected]
        for one, other in zip(again, expected, strict=True):
            np.testing.assert_allclose(one.token_log_probs, other.token_log_probs, atol=1e-4)
    assert max(sizes) > 4
    assert capsys.readouterr().err == SMALLER


# ---------------------------------------------------------------- unusual lines


unusual_line = st.one_of(
    st.sampled_from(
        [*BLANKS, *LINES[:3], "@@ a@@ <s> </s> <unk>", "a\u2028b\x85c\x0bd", "&amp; |||"]
    ),
    st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=12),
    st.integers(2, 15).map("o can ".__mul__),
)


@settings(max_examples=25, deadline=None, database=None, derandomize=True)
@given(lines=st.lists(unusual_line, max_size=5), options=st.sampled_from(OPTIONS))
def test_each_line_gets_one_line(translator, lines, options):
    out = translator.translate(lines, **options)
    assert len(out) == len(lines)
    for line, text in zip(lines, out, strict=True):
        assert "\n" not in text
        if is_blank(clean_line(line)):
            assert text == ""


def test_a_long_line_is_translated_in_parts_with_a_note(translator, monkeypatch, capsys):
    long = " ".join(LINES * 2).replace(".", "")  # one sentence
    ids = ids_of(translator, long)
    expected = translator.translate(LINES[:2])
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(codec_module, "MAX_SOURCE_PIECES", 20)
    strings = [translator.codec.segmenter.surface(p) for p in translator.codec.source_pieces(long)]
    ends = part_ends(strings, 20)
    count = len(ends)
    assert count > 2
    found = translator.n_best([LINES[0], long, LINES[1]], 2)
    note = f"note: line 2 has {len(ids):,} subwords; it is translated in {count} parts\n"
    assert capsys.readouterr().err == note
    assert [found[0][0].text, found[2][0].text] == expected
    parts = translator.translate_ids(np.split(np.array(ids), ends[:-1]))
    best = found[1][0]
    assert best.text == " ".join(part.text for part in parts)
    assert best.score == pytest.approx(sum(part.score for part in parts), abs=1e-3)
    assert best.finished == all(part.finished for part in parts)
    assert len(found[1]) == 2


# ---------------------------------------------------------------- wrong options


def test_the_beam_of_the_recipe_is_widened_for_n_best(translator):
    assert translator.info.decode.beam == 4
    assert len(translator.n_best(["pan"], 6)[0]) == 6


TOO_LARGE = ["beam", "n_best", "candidates", "max_len_offset", "batch_tokens", "seed"]
TOO_LARGE += ["top_k", "no_repeat_ngram"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sample": True, "beam": 3}, "beam cannot be combined with sample"),
        ({"top_k": 3}, "top_k requires sample"),
        ({"top_p": 0.5}, "top_p requires sample"),
        ({"temperature": 2.0}, "temperature requires sample"),
        ({"seed": 2}, "seed requires sample"),
        ({"sample": True, "top_p": 1.5}, "top_p: 1.5 is not"),
        ({"sample": True, "top_k": 0}, "top_k: 0 is not"),
        ({"beam": 0}, "beam: 0 is not"),
        ({"length_alpha": -1.0}, "length_alpha: -1.0 is not"),
        ({"length_alpha": 1e3}, "length_alpha: 1000.0 is not"),
        ({"batch_tokens": 0}, "batch_tokens: 0 is not"),
        ({"beam": 3, "n_best": 5}, r"n_best \(5\) must not exceed beam \(3\)"),
        ({"candidates": 8}, "candidates requires reverse"),
        ({"reverse_tag": "<a>"}, "reverse_tag requires reverse"),
        ({"reverse_weight": 1}, "reverse_weight requires reverse"),
        ({"reverse_weight": -1}, "reverse_weight: -1 is not"),
        ({"bem": 3}, "unknown option bem"),
        ({"copy_unk": True}, "unknown option copy_unk"),
        *(({name: 10**20}, f"{name}: 1000.* is not an? .* to ") for name in TOO_LARGE),
    ],
)
def test_a_wrong_option_is_an_error_before_the_first_line(translator, options, message):
    with pytest.raises(UserError, match=message) as caught:
        translator.stream(iter(LINES), **options)
    assert caught.value.fix


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"candidates": 8, "beam": 4}, r"candidates \(8\) .* beam \(4\)"),
        ({"candidates": 2, "n_best": 3}, r"n_best \(3\) .* candidates \(2\)"),
    ],
)
def test_more_candidates_than_the_beam_are_an_error(given, message):
    with pytest.raises(UserError, match=message):
        search_options(given, {"reverse"})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t.translate("pan"), r"lines is a str.*translate\(\[text\]\)"),
        (lambda t: t.translate(b"pan"), r"lines is a bytes"),
        (lambda t: t.n_best("pan", 2), r"n_best\(\[text\], 2\)"),
        (lambda t: t.stream("pan"), r"stream\(\[text\]\)"),
        (lambda t: t.score("pan", ["bread"]), r"sources is a str"),
        (lambda t: t.score(["pan"], "bread"), r"targets is a str.*score"),
        (lambda t: t.translate(["pan"], prefix="the"), r"prefix is a str.*prefix=\[text\]"),
        (lambda t: t.translate(["pan"], require=["the"]), r"require.*require=\[\[phrase\]\]"),
    ],
)
def test_a_text_in_place_of_lines_is_a_type_error(translator, call, message):
    """Python would treat it as a sequence of characters and translate each."""
    with pytest.raises(TypeError, match=message):
        call(translator)
