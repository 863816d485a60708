"""Segmenters that are extended and trimmed: old text keeps its pieces, and nothing becomes UNK."""

from __future__ import annotations

import functools
import io
from collections import Counter
from itertools import chain, pairwise
from random import Random
from typing import Any

import pytest
import sentencepiece

from nmt.config.recipe import FastBpeConfig, SentencePieceConfig, WhitespaceConfig
from nmt.data.segmenters import Segmenter, learn_segmenter, load_segmenter, save_segmenter
from nmt.data.segmenters.extend import MANY_PIECES, learn_symbols
from nmt.data.segmenters.sentencepiece import SPACE, SentencePiece, edit_model, read_scores
from nmt.data.vocab import UNK, Vocab
from nmt.errors import UserError
from nmt.text.tokenizer import Moses
from tests.toy import one_corpus, without_rare_pieces

LATIN, GEORGIAN = "abcdefghilmnoprstuvz", "აბგდევზთიკლმნოპრს"
CONFIGS: dict[str, Any] = {
    "fastbpe": FastBpeConfig(merges=150),
    "bpe": SentencePieceConfig(vocab_size=180),
    "unigram": SentencePieceConfig(vocab_size=180, model_type="unigram"),
    "bpe bytes": SentencePieceConfig(vocab_size=440, byte_fallback=True),
    "unigram bytes": SentencePieceConfig(vocab_size=440, model_type="unigram", byte_fallback=True),
}
KINDS = [*CONFIGS, "fastbpe trimmed", "two models"]


def lines(letters: str, seed: int, count: int = 150, longest: int = 7) -> list[str]:
    """Return lines of words that are made of a few syllables, so that there is much to merge."""
    rng = Random(seed)
    syllables = ["".join(rng.choices(letters, k=2)) for _ in range(25)]
    words = ["".join(rng.choices(syllables, k=rng.randint(1, longest))) for _ in range(80)]
    return [" ".join(rng.choices(words, k=rng.randint(1, 6))) for _ in range(count)]


OLD, OTHER, NEW = lines(LATIN, 1), lines(LATIN, 2), lines(GEORGIAN, 3)
RARE = ["abc zzz", "o", "a e i o u", "abacaba", "vvvvvv", "zuz uzu"] + [
    "".join(Random(number).choices(LATIN[:6] + " ", k=12)).strip() for number in range(100)
]


@functools.cache
def learned(kind: str) -> Segmenter:
    corpus = one_corpus([(line, line.upper()) for line in OLD])
    if kind == "fastbpe trimmed":
        return without_rare_pieces(learned("fastbpe"), [(line, line.upper()) for line in OLD])
    if kind != "two models":
        return learn_segmenter(CONFIGS[kind], False, "none", corpus)
    source, target = (
        learn_segmenter(CONFIGS[name], False, "none", corpus).files()["spm.model"]
        for name in ("unigram", "bpe")
    )
    return SentencePiece(Moses(False), source, target)


def pieces(segmenter: Segmenter, text: list[str], side: Any = "src") -> list[list[str]]:
    return [segmenter.encode(line, "es", side) for line in text]


def vocab_of(segmenter: Segmenter, text: list[str]) -> Vocab:
    """Return the types that a training text has: not all that the segmenter can give."""
    src, tgt = (
        Counter(chain.from_iterable(pieces(segmenter, text, side))) for side in ("src", "tgt")
    )
    return Vocab.build(src, tgt, alphabet=segmenter.alphabet())


def known(vocab: Vocab, line: list[str]) -> bool:
    return UNK not in vocab.ids(line)


def extended(
    segmenter: Segmenter, vocab: Vocab, text: list[str], limit: int
) -> tuple[Segmenter, Vocab, dict[str, list[str]]]:
    corpus = one_corpus([(line, line) for line in text])
    new, parts = segmenter.extended(set(vocab.types), corpus, limit)
    return new, vocab.with_counts(Counter(), Counter(), parts), parts


def surface(segmenter: Segmenter, line: list[str]) -> str:
    return segmenter.decode(line, "es")


# --- learning -----------------------------------------------------------------------------------


def test_unknown_symbols_come_first_then_the_most_frequent_pairs():
    words = {("x", "y"): 3, ("x", "y", "z"): 2, ("a", "b"): 99, ("x", "1", "y"): 9, ("a", "?"): 1}
    new = learn_symbols(words, {*"abxyz1"} - {"y"}, {"yz"}, str, 3)
    assert new.parts == {"y": ("y",), "?": ("?",), "xy": ("x", "y")}
    assert new.counts == {"y": 14, "?": 1, "xy": 5}
    assert new.merges == [("x", "y")]
    assert learn_symbols(words, {*"abxyz1"} - {"y"}, {"yz"}, str, 1).parts == {"y": ("y",)}
    longer = learn_symbols(words, {*"abxyz1"} - {"y"}, {"yz"}, str, 9)
    assert longer.parts["xyz"] == ("x", "y", "z")
    assert longer.merges == [("x", "y"), ("xy", "z")]


def test_words_that_the_segmentation_knows_well_are_not_merged():
    known_well = tuple("abc"[: MANY_PIECES - 1])
    in_many = tuple("abcdef"[:MANY_PIECES])
    assert not learn_symbols({known_well: 50}, {*"abcdef"}, (), str, 9).parts
    found = learn_symbols({known_well: 50, in_many: 2}, {*"abcdef"}, (), str, 2)
    assert found.parts == {"ab": ("a", "b"), "abc": ("a", "b", "c")}
    assert not learn_symbols({in_many: 1}, {*"abcdef"}, (), str, 9).parts  # a pair that is alone


def test_merges_equal_those_of_a_slow_loop():
    rng = Random(5)
    words = {tuple(rng.choices("abcd", k=rng.randint(4, 9))): rng.randint(1, 5) for _ in range(60)}
    found = learn_symbols(words, {*"abcd"}, (), str, 30)
    sequences = {word: list(word) for word in words}
    for pair in found.merges:
        counts: Counter[tuple[str, str]] = Counter()
        for word, sequence in sequences.items():
            for neighbors in pairwise(sequence):
                counts[neighbors] += words[word]
        best = max(counts.values())
        assert pair == min(p for p, n in counts.items() if n == best)
        for sequence in sequences.values():
            place = 0
            while place < len(sequence) - 1:
                if tuple(sequence[place : place + 2]) == pair:
                    sequence[place : place + 2] = ["".join(pair)]
                place += 1
    assert len(found.parts) == 30


# --- extended -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_script_gets_pieces_and_old_text_keeps_its_own(kind, tmp_path):
    segmenter = learned(kind)
    vocab = vocab_of(segmenter, OLD)
    new, types, parts = extended(segmenter, vocab, NEW, 60)
    assert 30 < len(parts) <= (120 if kind == "two models" else 60)
    for side in ("src", "tgt"):
        text = OLD + OTHER + RARE
        before, after = pieces(segmenter, text, side), pieces(new, text, side)
        same = [(a, b) for a, b in zip(before, after, strict=True) if known(vocab, a)]
        assert len(same) > 100
        assert all(a == b for a, b in same)
        georgian = pieces(new, NEW, side)
        assert all(known(types, line) for line in georgian)
        characters = sum(len(line.replace(" ", "")) for line in NEW)
        assert sum(map(len, georgian)) < 0.8 * characters
        assert [surface(new, line) for line in georgian] == NEW
        used = Counter(chain.from_iterable(georgian))
        assert sum(used[piece] > 0 for piece in parts) > len(parts) / 3
    save_segmenter(new, tmp_path)
    assert pieces(load_segmenter(tmp_path), NEW) == pieces(new, NEW)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("limit", [3, 40])
def test_text_that_was_known_never_becomes_unknown(kind, limit):
    """Of the same script; only neighbors are joined by byte-pair encoding."""
    segmenter = learned(kind)
    vocab = vocab_of(segmenter, OLD[:100])
    new, types, parts = extended(segmenter, vocab, OTHER, limit)
    assert parts
    for side in ("src", "tgt"):
        text = OLD + OTHER + RARE
        for before, after in zip(
            pieces(segmenter, text, side), pieces(new, text, side), strict=True
        ):
            assert surface(segmenter, before) == surface(new, after)
            if not known(vocab, before):
                continue
            assert known(types, after)
            if kind not in ("unigram", "unigram bytes", "two models"):
                assert ends(after) <= ends(before)
    joined = sum(map(len, pieces(segmenter, OTHER))) - sum(map(len, pieces(new, OTHER)))
    assert joined > 0 or limit == 3  # the first ones are pieces that the vocabulary lacked


def ends(line: list[str]) -> set[int]:
    """Return where pieces end, in characters of the words."""
    place, found = 0, set()
    for piece in line:
        place += len(piece.removesuffix("@@"))
        found.add(place)
    return found


def test_each_new_piece_replaces_pieces_of_the_parent():
    segmenter = learned("bpe bytes")
    vocab = vocab_of(segmenter, OLD)
    _, _, parts = extended(segmenter, vocab, NEW, 60)
    assert parts["ა"] == ["<0xE1>", "<0x83>", "<0x90>"]
    both = next(piece for piece in parts if len(piece) == 2 and SPACE not in piece)
    assert parts[both] == parts[both[0]] + parts[both[1]]
    segmenter = learned("fastbpe")
    vocab = vocab_of(segmenter, OLD)
    _, _, parts = extended(segmenter, vocab, OTHER, 30)
    for piece, replaced in parts.items():
        assert segmenter.decode_tokenized([piece], "es") == segmenter.decode_tokenized(
            replaced, "es"
        )
        assert all(p in vocab.types or p in parts for p in replaced)


@pytest.mark.parametrize("kind", KINDS)
def test_a_segmenter_is_extended_twice(kind):
    segmenter = learned(kind)
    first, vocab, _ = extended(segmenter, vocab_of(segmenter, OLD), NEW, 40)
    other = [line.translate(str.maketrans(GEORGIAN, "અઆઇઈઉઊઋએઐઓઔકખગઘચછ")) for line in NEW]
    second, types, parts = extended(first, vocab, other, 40)
    assert parts
    assert pieces(second, NEW) == pieces(first, NEW)
    assert all(known(types, line) for line in pieces(second, other))


def test_numbers_and_signs_are_not_merged():
    segmenter = learned("unigram")
    text = [f"{line} 2026-2027 !?!?" for line in NEW]
    _, _, parts = extended(segmenter, vocab_of(segmenter, OLD), text, 500)
    assert all(len(piece) == 1 for piece in parts if set(piece) & set("0267-!?"))


def test_a_new_piece_of_a_unigram_model_is_better_than_its_parts():
    segmenter = learned("unigram")
    new, _, parts = extended(segmenter, vocab_of(segmenter, OLD), OTHER + NEW, 80)
    for piece in parts:
        if piece.startswith(SPACE):
            assert new.encode(piece.replace(SPACE, ""), "es") == [piece]


# --- trimmed ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_trimmed_text_keeps_its_pieces_and_no_text_becomes_unknown(kind, tmp_path):
    segmenter = learned(kind)
    vocab = vocab_of(segmenter, OLD)
    some = OLD[:10]
    wanted = set(chain.from_iterable(pieces(segmenter, some) + pieces(segmenter, some, "tgt")))
    new, kept = segmenter.trimmed(set(vocab.types), wanted)
    assert wanted <= kept < set(vocab.types)
    types = vocab.with_types(kept)
    changed = 0
    for side in ("src", "tgt"):
        assert pieces(new, some, side) == pieces(segmenter, some, side)
        text = OLD + OTHER + RARE
        for before, after in zip(
            pieces(segmenter, text, side), pieces(new, text, side), strict=True
        ):
            changed += before != after
            assert surface(new, after) == surface(segmenter, before)
            if not known(vocab, before):
                continue
            assert known(types, after)
            if "unigram" not in kind and kind != "two models":
                assert ends(before) <= ends(after)  # only removed pieces are split
                assert Counter(p for p in before if p in kept) - Counter(after) == Counter()
    assert changed
    save_segmenter(new, tmp_path)
    assert pieces(load_segmenter(tmp_path), OTHER) == pieces(new, OTHER)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_trim_of_what_was_extended(kind):
    segmenter = learned(kind)
    vocab = vocab_of(segmenter, OLD)
    longer, types, parts = extended(segmenter, vocab, NEW, 50)
    wanted = {*chain.from_iterable(pieces(longer, NEW) + pieces(longer, NEW, "tgt")), *parts}
    new, kept = longer.trimmed(set(types.types), wanted)
    assert set(parts) <= kept < set(types.types)
    left = types.with_types(kept)
    for side in ("src", "tgt"):
        assert pieces(new, NEW, side) == pieces(longer, NEW, side)
        for before, after in zip(pieces(segmenter, OLD, side), pieces(new, OLD, side), strict=True):
            assert known(left, after) or not known(vocab, before)
    again, types, _ = extended(new, left, OTHER, 20)
    for before, after in zip(pieces(new, OLD), pieces(again, OLD), strict=True):
        assert known(types, after) or not known(left, before)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "fastbpe"])
def test_noise_of_a_trimmed_segmenter_gives_kept_pieces(kind):
    segmenter = learned(kind)
    vocab = vocab_of(segmenter, OLD)
    new, kept = segmenter.trimmed(set(vocab.types), set())
    types = vocab.with_types(kept)
    change = {"sampling_alpha": 0.1} if kind == "unigram" else {"dropout": 0.3}
    noise = new.noise(CONFIGS[kind].model_copy(update=change), types.types)
    assert noise is not None
    random, more = Random(1).random, 0
    for line, plain in zip(OLD, pieces(new, OLD), strict=True):
        noisy = noise.draw(noise.words(plain), random)
        assert UNK not in types.ids(noisy)
        assert new.decode(noisy, "es") == line
        more += len(noisy) - len(plain)
    assert more >= 0


def test_unused_pieces_are_not_in_the_alphabet():
    segmenter = learned("bpe bytes")
    new, kept = segmenter.trimmed(set(segmenter.alphabet()), set())
    assert set(new.alphabet()) <= kept
    assert len(new.alphabet()) < len(segmenter.alphabet())


def test_an_edited_model_is_the_file_that_sentencepiece_reads():
    model = learned("unigram").files()["spm.model"]
    _, scores = read_scores(model)
    assert edit_model(model, scores.keys(), {}) == model
    changed = edit_model(model, scores.keys() - {"a"}, {"აბ": -1.5})
    processor = sentencepiece.SentencePieceProcessor()
    processor.LoadFromSerializedProto(changed)
    names = [processor.id_to_piece(i) for i in range(processor.get_piece_size())]
    assert "a" not in names
    assert names[-1] == "აბ"
    assert processor.get_score(len(names) - 1) == -1.5


# --- what cannot be adapted ---------------------------------------------------------------------


def test_words_have_no_pieces_to_extend_or_trim():
    segmenter = learn_segmenter(WhitespaceConfig(), True, "none", [])
    with pytest.raises(UserError, match=r"init.vocab: .*whitespace has no subwords") as error:
        segmenter.extended({"a"}, [], 5)
    assert "set init.vocab=new" in str(error.value)
    with pytest.raises(UserError, match=r"init.trim: .*whitespace"):
        segmenter.trimmed({"a"}, set())


@pytest.mark.parametrize("kind", ["char", "word"])
def test_a_sentencepiece_model_of_characters_or_words_is_refused(kind):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(OLD), model_writer=model, vocab_size=60, model_type=kind,
        hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    segmenter = SentencePiece(Moses(False), model.getvalue())
    corpus = one_corpus([(line, line) for line in NEW])
    with pytest.raises(UserError, match=f"of type {kind}, which cannot be extended"):
        segmenter.extended({"a"}, corpus, 5)
    with pytest.raises(UserError, match=f"of type {kind}, which cannot be trimmed"):
        segmenter.trimmed({"a"}, set())
