"""Segmentation noise: closed forms, the library, bad vocabularies, and the versions of pairs."""

from __future__ import annotations

import math
import pickle
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from nmt.config.recipe import FastBpeConfig, SentencePieceConfig, WhitespaceConfig
from nmt.data.bitext import TrainingText
from nmt.data.encoded import EncodeChunk, EncodedCorpus, EpochPairs, encode_training
from nmt.data.lines import SIDES
from nmt.data.segmenters import Segmenter, bpe, learn_segmenter
from nmt.data.segmenters.bpe import FastBpe, WordSplitter
from nmt.data.segmenters.noise import MAX_SYMBOLS, POOL, Merges, Noise, Unigram
from nmt.data.segmenters.sentencepiece import read_scores
from nmt.data.vocab import UNK
from nmt.errors import UserError
from nmt.text.tokenizer import Moses
from tests.toy import CORPUS, numbered, one_corpus, without_rare_pieces

PAIRS = [
    ("o gato negro come peixe , e o can come carne .", "the black cat eats fish , and the dog ."),
    ("a casa branca é grande .", "the white house is big ."),
    ("os gatos negros comen na casa grande .", "the black cats eat in the big house ."),
    ("bananabanana aaaaa ñandú 日本語日本 @@ a@@b </w>", "bananas aaaa w</w>x \ue000 & e\u0301"),
] * 4
CONFIGS = {
    "fastbpe": FastBpeConfig(merges=60, dropout=0.3),
    "trimmed": FastBpeConfig(merges=60, dropout=0.3),
    "spm-bpe": SentencePieceConfig(vocab_size=110, dropout=0.3),
    "spm-bytes": SentencePieceConfig(vocab_size=340, dropout=0.3, byte_fallback=True),
    "unigram": SentencePieceConfig(vocab_size=110, model_type="unigram", sampling_alpha=0.3),
}
LINES = [(line, side) for pair in PAIRS for line, side in zip(pair, SIDES, strict=True)]


def learned(config, pairs=PAIRS) -> Segmenter:
    return learn_segmenter(config, True, "none", one_corpus(pairs))


def segmenter_of(name: str) -> Segmenter:
    segmenter = learned(CONFIGS[name])
    return without_rare_pieces(segmenter, PAIRS) if name == "trimmed" else segmenter


def with_noise(segmenter: Segmenter, config, known=None) -> Noise:
    noise = segmenter.noise(config, known)
    assert noise is not None
    return noise


def drawn(noise: Noise, pieces: list[str], seed: int) -> list[str]:
    return noise.draw(noise.words(pieces), Random(seed).random)


class Case:
    """A small encoded corpus with the noise of a configuration."""

    def __init__(self, name: str, folder: Path, draws: int = 6, max_pieces: int = 1000) -> None:
        self.config = CONFIGS[name]
        self.segmenter = segmenter_of(name)
        self.noise = with_noise(self.segmenter, self.config)
        self.plain = [self.segmenter.encode(line, "gl") for line, _ in LINES]
        text = TrainingText(progress=False)
        text.add(CORPUS, numbered(PAIRS))
        work = EncodeChunk(self.segmenter, max_pieces, draws, self.noise)
        self.vocab, self.left_out, _ = encode_training(work, text, 1, folder, None, [])
        self.corpus = EncodedCorpus(folder)

    def pieces(self, row: int) -> tuple[list[str], list[str]]:
        """Return the pieces of a row of the corpus, a version of a pair."""
        return tuple(self.vocab.pieces(of(row)) for of in (self.corpus.src, self.corpus.tgt))


@pytest.fixture(scope="module", params=CONFIGS)
def case(request, tmp_path_factory) -> Case:
    return Case(request.param, tmp_path_factory.mktemp("corpus"))


def with_model(noise: Noise, model) -> Noise:
    return Noise(model, noise._spell, noise._name, noise._joins)


def test_without_dropout_all_words_have_the_pieces_of_the_segmenter(case: Case):
    model = case.noise._model
    if isinstance(model, Merges):
        plain = with_model(case.noise, replace(model, skip=0.0))
        for pieces in case.plain:
            assert drawn(plain, pieces, 1) == pieces
        return
    plain = with_model(case.noise, replace(model, alpha=1000.0))
    for pieces in case.plain:  # the best segmentation may not be unique
        known = [[model.scores[p] for p in of if p in model.scores] for of in (pieces,)]
        best = [model.scores[p] for p in drawn(plain, pieces, 1) if p in model.scores]
        assert math.isclose(sum(known[0]), sum(best), abs_tol=0.01)


def test_certain_dropout_leaves_characters(case: Case):
    model = case.noise._model
    if not isinstance(model, Merges):
        pytest.skip("a unigram model has no dropout")
    noise = with_model(case.noise, replace(model, skip=1 - 1e-15))
    for pieces in case.plain:
        assert all(len(noise.symbols(piece)) <= 1 for piece in drawn(noise, pieces, 1))


def test_noise_never_changes_the_text_and_stays_in_the_vocabulary(case: Case):
    changed = 0
    for row in range(len(PAIRS) * case.corpus.draws):
        pair = row // case.corpus.draws
        for i, (side, pieces) in enumerate(zip(SIDES, case.pieces(row), strict=True)):
            ids = case.vocab.ids(pieces)
            assert UNK not in ids
            assert case.vocab.types_of(side)[ids].all()
            assert case.segmenter.decode_tokenized(pieces, "gl") == PAIRS[pair][i]
            changed += pieces != case.plain[2 * pair + i]
    assert changed > len(PAIRS) * case.corpus.draws


def test_the_vocabulary_counts_the_plain_text_and_has_each_drawn_piece(case: Case):
    for side in range(2):
        plain = Counter(piece for pieces in case.plain[side::2] for piece in pieces)
        rows = [case.pieces(row)[side] for row in range(len(PAIRS) * case.corpus.draws)]
        only_drawn = {piece for pieces in rows for piece in pieces} - plain.keys()
        counts = dict(zip(case.vocab.types, case.vocab._counts[:, side].tolist(), strict=True))
        assert only_drawn
        expected = plain + Counter(only_drawn)
        assert {piece: n for piece, n in counts.items() if n} == dict(expected)


def test_versions_differ_and_the_text_decides(case: Case, tmp_path: Path):
    again = Case(next(n for n, c in CONFIGS.items() if c is case.config), tmp_path)
    for side in SIDES:
        assert np.array_equal(again.corpus.ids(side), case.corpus.ids(side))
    different = 0
    for pair in range(len(PAIRS)):
        first = pair * case.corpus.draws
        sources = [tuple(case.corpus.src(first + v)) for v in range(case.corpus.draws)]
        different += len(set(sources)) > 1
    assert different > len(PAIRS) / 2
    # fewer versions are the first of more
    fewer = Case(next(n for n, c in CONFIGS.items() if c is case.config), tmp_path / "2", 2)
    assert fewer.pieces(3) == case.pieces(7)


def test_a_version_that_noise_makes_too_long_has_the_plain_pieces(tmp_path: Path):
    case = Case("fastbpe", tmp_path / "a")
    longest = max(map(len, case.plain))
    limited = Case("fastbpe", tmp_path / "b", max_pieces=longest)
    too_long = 0
    for row in range(len(PAIRS) * case.corpus.draws):
        free, found = case.pieces(row), limited.pieces(row)
        plain = tuple(case.plain[2 * (row // 6) : 2 * (row // 6) + 2])
        exceeds = max(map(len, free)) > longest
        assert found == (plain if exceeds else free)
        too_long += exceeds
    assert 0 < too_long < len(PAIRS) * 6


# --- the versions of an epoch --------------------------------------------------------------------


def test_all_versions_of_a_pair_are_read_before_one_is_read_again(case: Case):
    draws, n = case.corpus.draws, len(PAIRS)
    epochs = [EpochPairs(case.corpus, None, 1, epoch, 10_000) for epoch in range(2 * draws)]
    for i in range(n):
        rows = [int(epoch._rows[i]) for epoch in epochs]
        assert sorted(rows[:draws]) == list(range(i * draws, (i + 1) * draws))
        assert rows[:draws] == rows[draws:]
    assert len({int(row) % draws for row in epochs[0]._rows}) > 1
    first, again, other = epochs[0], EpochPairs(case.corpus, None, 1, 0, 10_000), epochs[1]
    assert np.array_equal(first._rows, again._rows)
    assert not np.array_equal(first._rows, EpochPairs(case.corpus, None, 2, 0, 10_000)._rows)
    for i in range(n):
        assert first.src(i).tolist() == case.corpus.src(int(first._rows[i])).tolist()
        lengths = first.src_len[i], first.tgt_len[i]
        assert lengths == (len(first.src(i)), len(first.tgt(i)))
    assert not np.array_equal(first._rows, other._rows)


def test_copies_of_a_weighted_pair_have_different_versions(case: Case):
    copies = 3
    pairs = np.repeat(np.arange(len(PAIRS)), copies)
    found = EpochPairs(case.corpus, pairs, 1, 4, 10_000)
    rows = found._rows.reshape(-1, copies)
    assert all(len(set(of_pair)) == copies for of_pair in rows.tolist())
    assert np.array_equal(rows // case.corpus.draws, pairs.reshape(-1, copies))
    assert found.pairs_of(np.array([0, 4, 7])).tolist() == [0, 1, 2]


def test_a_version_that_does_not_fit_into_a_batch_is_the_shortest_of_its_pair(case: Case):
    longest = case.corpus.longest()
    limit = int(np.median(longest)) + 1
    epochs = [EpochPairs(case.corpus, None, 1, e, limit) for e in range(case.corpus.draws)]
    replaced = 0
    for free, limited in zip(
        (EpochPairs(case.corpus, None, 1, e, 10_000) for e in range(case.corpus.draws)),
        epochs,
        strict=True,
    ):
        lengths = longest.reshape(-1)[free._rows]
        fits = lengths < limit
        assert np.array_equal(limited._rows[fits], free._rows[fits])
        shortest = longest.min(1)[~fits]
        assert np.array_equal(longest.reshape(-1)[limited._rows[~fits]], shortest)
        replaced += np.count_nonzero(~fits)
    assert replaced


def test_without_noise_a_pair_has_one_version_for_all_epochs(tmp_path: Path):
    configs = FastBpeConfig(merges=20), WhitespaceConfig(), SentencePieceConfig(vocab_size=80)
    for i, config in enumerate(configs):
        segmenter = learned(config)
        assert not config.has_noise
        assert segmenter.noise(config) is None
        text = TrainingText(progress=False)
        text.add(CORPUS, numbered(PAIRS))
        encode_training(EncodeChunk(segmenter, 100), text, 1, tmp_path / str(i), None, [])
        corpus = EncodedCorpus(tmp_path / str(i))
        assert corpus.draws == 1
        for epoch in (0, 7):
            pairs = EpochPairs(corpus, None, 1, epoch, 10_000)
            assert np.array_equal(pairs.src_len, corpus.src_len)
            assert pairs.src(3).tolist() == corpus.src(3).tolist()


# --- frequencies ---------------------------------------------------------------------------------


def shares(model: Merges | Unigram, symbols: list[str], count: int) -> Counter[tuple[str, ...]]:
    random = Random(5)
    return Counter(tuple(model.draw(symbols, random)) for _ in range(count))


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_of_two_merges_has_the_probabilities_of_algorithm_1(p: float):
    """In "abc", both pairs may merge at first: P(abc) follows from the two ways to make it.

    4 standard deviations of a binomial distribution: 1 seed of 16,000 fails.
    """
    merges = [("a", "b"), ("b", "c"), ("ab", "c"), ("a", "bc")]
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    n = 5_000
    found = shares(Merges(p, ranks, {"ab", "bc", "abc"}), ["a", "b", "c"], n)
    expected = {
        ("abc",): (1 - p) * (1 - p) + p * (1 - p) * (1 - p),
        ("ab", "c"): (1 - p) * p,
        ("a", "bc"): p * (1 - p) * p,
        ("a", "b", "c"): p * p,
    }
    assert math.isclose(sum(expected.values()), 1)
    for pieces, share in expected.items():
        assert abs(found[pieces] - n * share) < 4 * math.sqrt(n * share * (1 - share))


def segmentations(word: str, scores) -> Iterator[tuple[str, ...]]:
    if not word:
        yield ()
    for i in range(1, len(word) + 1):
        if word[:i] in scores:
            yield from ((word[:i], *rest) for rest in segmentations(word[i:], scores))


@pytest.mark.parametrize("alpha", [0.0, 0.2, 1.0])
def test_unigram_sampling_has_the_probabilities_of_kudo(alpha: float):
    texts, n = ("a", "b", "c", "d", "ab", "bc", "abc", "bcd"), 5_000
    scores = {text: -0.5 - 0.7 * i % 3 for i, text in enumerate(texts)}
    found = shares(Unigram(alpha, scores), list("abcd"), n)
    weights = {
        pieces: math.exp(alpha * sum(scores[p] for p in pieces))
        for pieces in segmentations("abcd", scores)
    }
    assert len(weights) == 5
    assert found.keys() <= weights.keys()
    for pieces, weight in weights.items():
        share = weight / sum(weights.values())
        assert abs(found[pieces] - n * share) < 4 * math.sqrt(n * share * (1 - share)) + 1


def test_the_rate_holds_on_average_over_words_and_versions():
    """Each word is one merge, which is skipped with the rate in every version, also the first."""
    words = [f"{a}{b}" for a in "abcdefghijklmnopqrst" for b in "uvwxyz0123456789"]
    ranks = {(word[0], word[1] + "</w>"): i for i, word in enumerate(words)}
    segmenter = FastBpe(Moses(True), WordSplitter(list(ranks)))
    noise = with_noise(segmenter, FastBpeConfig(dropout=0.25))
    pieces, random, versions = segmenter.encode(" ".join(words), "gl"), Random(1).random, 10
    assert len(pieces) == len(words)
    found = [len(noise.draw(noise.words(pieces), random)) for _ in range(versions)]
    n = len(words)
    # a pool has POOL independent draws, so the mean of a word has this variance and that of choice
    sigma = math.sqrt(0.25 * 0.75 * n / min(POOL, versions))
    assert abs(np.mean(found) - 1.25 * n) < 4 * sigma
    assert abs(found[0] - 1.25 * n) < 4 * math.sqrt(0.25 * 0.75 * n)
    assert len(set(found)) > 1


# --- what is not split ---------------------------------------------------------------------------


def test_tags_and_unknown_pieces_stay_and_a_long_word_is_several(monkeypatch):
    monkeypatch.setattr(bpe, "MAX_WORD_LENGTH", 10)
    segmenter = learned(CONFIGS["fastbpe"])
    word = "gatonegrocasagrande" * 60
    pieces = [" <2en>", *segmenter.encode(f"come {word} peixe", "gl"), "never seen"]
    noise = with_noise(segmenter, FastBpeConfig(merges=60, dropout=0.9), set(pieces[:-1]))
    words = noise.words(pieces)
    assert [piece for word in words for piece in word] == pieces
    assert max(sum(len(noise.symbols(p)) for p in word) for word in words) <= MAX_SYMBOLS
    found = drawn(noise, pieces, 1)
    assert (found[0], found[-1]) == (" <2en>", "never seen")
    assert segmenter.decode_tokenized(found[1:-1], "gl") == f"come {word} peixe"


def test_the_vocabulary_of_a_parent_limits_the_noise(case: Case):
    """A piece with a character that is not a type stays, so a parent's vocabulary gets no UNK."""
    known = {piece for pieces in case.plain for piece in pieces}
    noise, changed = with_noise(case.segmenter, case.config, known), 0
    for pieces, (line, _) in zip(case.plain, LINES, strict=True):
        found = drawn(noise, pieces, 1)
        assert known.issuperset(found)
        assert case.segmenter.decode_tokenized(found, "gl") == line
        changed += found != pieces
    assert changed


def test_user_defined_symbols_of_a_model_are_never_split(tmp_path: Path):
    import sentencepiece

    text = tmp_path / "text"
    text.write_text("".join(f"{s} <ab> {t}\n" for s, t in PAIRS), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(tmp_path / "m"), vocab_size=110, model_type="unigram",
        user_defined_symbols=["<ab>"], normalization_rule_name="identity", minloglevel=2,
        hard_vocab_limit=False,
    )  # fmt: skip
    data = (tmp_path / "m.model").read_bytes()
    kind, scores = read_scores(data)
    assert kind == "unigram"
    processor = sentencepiece.SentencePieceProcessor(model_proto=data)
    for i in range(processor.get_piece_size()):
        piece = processor.id_to_piece(i)
        normal = not (processor.is_control(i) or processor.is_unknown(i) or piece == "<ab>")
        assert (piece in scores) == normal
        assert not normal or scores[piece] == processor.get_score(i)
    config = SentencePieceConfig(model=str(tmp_path / "m.model"), sampling_alpha=0.1)
    noise = with_noise(learned(config), config)
    assert not noise.symbols("<ab>")
    assert noise.symbols("\u2581gato") in [tuple("\u2581gato"), ()]


# --- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("learned_as", "wanted", "message"),
    [
        (
            "unigram",
            {"dropout": 0.1},
            "segment.dropout: requires a SentencePiece model of type bpe",
        ),
        ("bpe", {"sampling_alpha": 0.2}, "segment.sampling_alpha: requires .* of type unigram"),
    ],
)
def test_noise_of_the_wrong_type_of_model_is_an_error(tmp_path, learned_as, wanted, message):
    model = learned(SentencePieceConfig(vocab_size=110, model_type=learned_as)).files()["spm.model"]
    (tmp_path / "a.model").write_bytes(model)
    config = SentencePieceConfig(model=str(tmp_path / "a.model"), **wanted)
    with pytest.raises(UserError, match=message):
        learned(config).noise(config)


@pytest.mark.parametrize("name", CONFIGS)
def test_noise_can_be_pickled(name: str):
    segmenter = segmenter_of(name)
    noise = with_noise(segmenter, CONFIGS[name])
    again = pickle.loads(pickle.dumps(noise))
    for seed, (line, side) in enumerate(LINES):
        pieces = segmenter.encode(line, "gl", side)
        assert drawn(again, pieces, seed) == drawn(noise, pieces, seed)
