"""Segmentation noise: against plain Python, closed forms, the library, and bad vocabularies."""

from __future__ import annotations

import itertools
import math
import pickle
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nmt.config.recipe import FastBpeConfig, SentencePieceConfig, WhitespaceConfig
from nmt.data import epochs, noise_kernels
from nmt.data.encoded import SIDES, EncodedCorpus, Ragged, write_corpus
from nmt.data.epochs import EpochPairs, Epochs
from nmt.data.mixture import Mixture
from nmt.data.segmenters import Segmenter, bpe, learn_segmenter
from nmt.data.segmenters.bpe import FastBpe, WordSplitter
from nmt.data.segmenters.noise import Merges, Noise, ReachablePieces, SideNoise, Unigram
from nmt.data.segmenters.sentencepiece import read_model
from nmt.data.tokenizer import Moses
from nmt.data.vocab import SPECIALS, UNK, Vocab
from nmt.errors import UserError
from tests.toy import one_corpus

PAIRS = [
    ("o gato negro come peixe , e o can come carne .", "the black cat eats fish , and the dog ."),
    ("a casa branca é grande .", "the white house is big ."),
    ("os gatos negros comen na casa grande .", "the black cats eat in the big house ."),
    ("bananabanana aaaaa ñandú 日本語日本 @@ a@@b </w>", "bananas aaaa w</w>x \ue000 & e\u0301"),
] * 4
CONFIGS = {
    "fastbpe": FastBpeConfig(merges=60, dropout=0.3),
    "threshold": FastBpeConfig(merges=60, dropout=0.3, vocab_threshold=5),
    "spm-bpe": SentencePieceConfig(vocab_size=110, dropout=0.3),
    "spm-bytes": SentencePieceConfig(vocab_size=340, dropout=0.3, byte_fallback=True),
    "unigram": SentencePieceConfig(vocab_size=110, model_type="unigram", sampling_alpha=0.3),
}
MASK = 2**64 - 1


def learned(config, pairs=PAIRS) -> Segmenter:
    return learn_segmenter(config, True, "none", one_corpus(pairs))


def with_noise(segmenter: Segmenter, config) -> Noise:
    noise = segmenter.noise(config)
    assert noise is not None
    return noise


def vocabulary(sentences: list[list[list[str]]], noise: Noise | None) -> Vocab:
    """Return the vocabulary that preparation builds for both sides."""
    counts = []
    for side in sentences:
        count = Counter(piece for pieces in side for piece in pieces)
        reachable = ReachablePieces(noise)(side) if noise else set()
        counts.append(count + Counter(reachable - count.keys()))
    return Vocab.build(*counts)


class Case:
    """A small encoded corpus with the noise of a configuration."""

    def __init__(self, name: str, folder: Path, pairs=PAIRS) -> None:
        config = CONFIGS[name]
        self.segmenter = learned(config, pairs)
        self.noise = with_noise(self.segmenter, config)
        self.sentences = [
            [self.segmenter.encode(pair[side], "gl") for pair in pairs] for side in range(2)
        ]
        self.vocab = vocabulary(self.sentences, self.noise)
        self.corpus = encoded(self.sentences, self.vocab, folder)

    def epoch(
        self, model=None, longest: int = 1000, seed: int = 1, epoch: int = 0, threads=1, rows=None
    ):
        noise = self.noise if model is None else replace(self.noise, model=model)
        sides = {s: SideNoise(noise, self.vocab, self.vocab.types_of(s)) for s in SIDES}
        pairs = EpochPairs(self.corpus, rows)
        pairs.add_noise(sides, seed, epoch, longest, threads)
        return pairs

    def pieces(self, corpus, row: int) -> tuple[list[str], list[str]]:
        pairs = corpus.select(np.array([row]))
        return tuple(self.vocab.pieces(ids) for ids in (pairs.src(row), pairs.tgt(row)))


def encoded(sentences, vocab: Vocab, folder: Path) -> EncodedCorpus:
    src, tgt = (Ragged.of([vocab.ids(pieces) for pieces in side]) for side in sentences)
    write_corpus(folder, len(vocab), [(src, tgt, [])])
    return EncodedCorpus(folder)


@pytest.fixture(scope="module", params=CONFIGS)
def case(request, tmp_path_factory) -> Case:
    return Case(request.param, tmp_path_factory.mktemp("corpus"))


def weak(model):
    """Return the same model without noise."""
    return replace(model, skip=0.0) if isinstance(model, Merges) else replace(model, alpha=1000.0)


@pytest.mark.slow
def test_without_dropout_all_words_have_the_pieces_of_the_segmenter(case: Case):
    plain = case.epoch(weak(case.noise.model))
    for row in range(len(PAIRS)):
        found, expected = case.pieces(plain, row), [side[row] for side in case.sentences]
        if isinstance(case.noise.model, Merges):
            assert list(found) == expected
        else:  # the best segmentation may not be unique
            scores = case.noise.model.scores
            for a, b in zip(found, expected, strict=True):
                known = [[scores[p] for p in pieces if p in scores] for pieces in (a, b)]
                assert math.isclose(sum(known[0]), sum(known[1]), abs_tol=0.01)


@pytest.mark.slow
def test_certain_dropout_leaves_characters(case: Case):
    if not isinstance(case.noise.model, Merges):
        pytest.skip("a unigram model has no dropout")
    noisy = case.epoch(replace(case.noise.model, skip=1 - 1e-15))
    for row in range(len(PAIRS)):
        for pieces in case.pieces(noisy, row):
            assert all(len(case.noise.spell(piece)) <= 1 for piece in pieces)


def test_noise_never_changes_the_text_and_stays_in_the_vocabulary(case: Case):
    for epoch in range(5):
        corpus, changed = case.epoch(epoch=epoch), 0
        for row, pair in enumerate(PAIRS):
            pairs = corpus.select(np.array([row]))
            for side, ids, line in zip(SIDES, (pairs.src(row), pairs.tgt(row)), pair, strict=True):
                assert UNK not in ids
                assert case.vocab.types_of(side)[ids].all()
                pieces = case.vocab.pieces(ids)
                assert case.segmenter.decode_tokenized(pieces, "gl") == line
                changed += pieces != case.sentences[SIDES.index(side)][row]
        assert changed > len(PAIRS) // 2


def test_all_pieces_of_many_draws_were_foreseen_on_their_side(case: Case):
    seen: tuple[set[str], set[str]] = (set(), set())
    for epoch in range(30):
        corpus = case.epoch(epoch=epoch)
        for row in range(4):
            for found, pieces in zip(seen, case.pieces(corpus, row), strict=True):
                found.update(pieces)
    for side, found, sentences in zip(SIDES, seen, case.sentences, strict=True):
        allowed = case.vocab.types_of(side)
        foreseen = {p for i, p in enumerate(case.vocab.pieces(range(len(allowed)))) if allowed[i]}
        assert found <= foreseen
        new = foreseen - {p for pieces in sentences for p in pieces} - set(SPECIALS)
        assert len(new & found) >= 0.5 * len(new)  # and few more than those
    texts = {p.removesuffix("@@") for p in foreseen}  # of the target side
    assert {"t", "h"} <= texts
    assert not {"ñ", "語"} & texts  # only the source has them


def test_epochs_differ_and_the_seed_and_the_epoch_decide(case: Case, monkeypatch):
    first = case.epoch(epoch=3)
    everything = first.select(np.arange(len(PAIRS)))
    monkeypatch.setattr(epochs, "CHUNK", 3)
    for threads in (1, 2):
        again = case.epoch(epoch=3, threads=threads)
        assert np.array_equal(again.src_len, first.src_len)
        assert np.array_equal(again.tgt_len, first.tgt_len)
        for rows in ([5], [2, 9, 2], [15, 0]):
            some = again.select(np.array(rows))
            for row in rows:
                assert np.array_equal(some.src(row), everything.src(row))
                assert np.array_equal(some.tgt(row), everything.tgt(row))
                assert len(some.src(row)) == first.src_len[row]
                assert len(some.tgt(row)) == first.tgt_len[row]
    for other in (case.epoch(epoch=4), case.epoch(epoch=3, seed=2)):
        pairs = other.select(np.arange(len(PAIRS)))
        assert any(not np.array_equal(pairs.src(r), everything.src(r)) for r in range(len(PAIRS)))
    # the same sentence in two rows is drawn twice
    assert any(not np.array_equal(everything.src(r), everything.src(r + 4)) for r in range(4))


def test_a_pair_that_noise_makes_too_long_keeps_its_pieces(case: Case):
    longest = int(np.median(np.maximum(case.epoch().src_len, case.epoch().tgt_len)))
    limited, free = case.epoch(longest=longest), case.epoch()
    too_long = np.maximum(free.src_len, free.tgt_len) > longest
    assert too_long.any()
    assert not too_long.all()
    for row in range(len(PAIRS)):
        expected = (
            tuple(side[row] for side in case.sentences) if too_long[row] else case.pieces(free, row)
        )
        assert case.pieces(limited, row) == expected
        assert limited.src_len[row] == len(expected[0])
        assert limited.tgt_len[row] == len(expected[1])


# --- the same in plain Python --------------------------------------------------------------------


def draws(key: int, row: int) -> Iterator[int]:
    """Yield the numbers of SplitMix64 for a row."""

    def mix(z: int) -> int:
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
        return z ^ (z >> 31)

    state = mix(key ^ mix(row))
    while True:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        yield mix(state)


def test_random_numbers_are_those_of_splitmix64():
    """The first numbers from state 0, as the authors' C code prints them."""
    key = 0  # mix(0 ^ mix(0)) is 0
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert list(itertools.islice(draws(key, 0), 3)) == expected


def merged(symbols: list[str], merges: Merges, numbers: Iterator[int]) -> list[str]:
    while True:
        left = []
        for i, pair in enumerate(itertools.pairwise(symbols)):
            known = pair in merges.ranks
            if known and (not merges.skip or next(numbers) >= round(merges.skip * 2**64)):
                left.append((merges.ranks[pair], i))
        if not left:
            return symbols
        places = [i for rank, i in left if rank == min(left)[0]]
        if not merges.together:
            del places[1:]
        joined, i = [], 0
        while i < len(symbols):
            size = 2 if i in places else 1
            joined.append("".join(symbols[i : i + size]))
            i += size
        symbols = joined


def drawn(symbols: list[str], unigram: Unigram, numbers: Iterator[int]) -> list[str]:
    def power(first: int, last: int) -> float:
        return math.exp(unigram.alpha * unigram.scores.get("".join(symbols[first:last]), -math.inf))

    n = len(symbols)
    total = [0.0] * n + [1.0]
    for i in reversed(range(n)):
        total[i] = sum(power(i, j) * total[j] for j in range(i + 1, n + 1))
    pieces, first = [], 0
    while first < n:
        rest, last = (next(numbers) >> 11) * 2.0**-53, first
        while rest >= 0 and last < n:
            last += 1
            rest -= power(first, last) * total[last] / total[first]
        pieces.append("".join(symbols[first:last]))
        first = last
    return pieces


def split_again(symbol: str, noise: Noise) -> list[str]:
    """Return the parts of a symbol that ``vocab_threshold`` does not keep."""
    if symbol in noise.joined or not isinstance(noise.model, Merges):
        return [symbol]
    parents = [pair for pair in noise.model.ranks if "".join(pair) == symbol]
    if not parents:
        return [symbol]
    best = min(parents, key=noise.model.ranks.__getitem__)
    return [part for symbol in best for part in split_again(symbol, noise)]


def reference(noise: Noise, pieces: Sequence[str], key: int, row: int) -> list[str]:
    """Return the pieces of a sentence with noise."""
    numbers, result, rest = draws(key, row), [], list(pieces)
    while rest:
        word = [rest.pop(0)]
        if not noise.spell(word[0]):
            result += word
            continue
        while (
            rest and not noise.ends(word[-1]) and noise.spell(rest[0]) and not noise.begins(rest[0])
        ):
            word.append(rest.pop(0))
        symbols = [s for piece in word for s in noise.spell(piece)]
        if isinstance(noise.model, Merges):
            made = merged(symbols, noise.model, numbers)
            result += [noise.name(s) for m in made for s in split_again(m, noise)]
        else:
            result += [noise.name(s) for s in drawn(symbols, noise.model, numbers)]
    return result


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_compiled_functions_equal_plain_python(case: Case, rate: float):
    model = case.noise.model
    kind = "skip" if isinstance(model, Merges) else "alpha"
    noise = replace(case.noise, model=replace(model, **{kind: rate}))
    corpus = case.epoch(noise.model, seed=7, epoch=2)
    for i in range(2):
        key = int(np.random.SeedSequence([7, 2, i]).generate_state(1, np.uint64)[0])
        for row, pieces in enumerate(case.sentences[i]):
            assert case.pieces(corpus, row)[i] == reference(noise, pieces, key, row)


# --- frequencies ---------------------------------------------------------------------------------


def repeated(noise: Noise, pieces: list[str], count: int) -> Counter[tuple[str, ...]]:
    """Return how often each segmentation of one word is drawn."""
    vocab = vocabulary([[pieces], [pieces]], noise)
    side = SideNoise(noise, vocab, vocab.types_of("src"))
    ids = np.array(vocab.ids(pieces) * count, np.int32)
    lengths = np.full(count, len(pieces), np.int32)
    found, sizes = side(ids, lengths, np.arange(count), np.uint64(5))
    parts = np.split(found, np.cumsum(sizes)[:-1])
    return Counter(tuple(vocab.pieces(part)) for part in parts)


@pytest.mark.slow
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_of_two_merges_has_the_probabilities_of_algorithm_1(p: float):
    """In "abc", both pairs may merge at first: P(abc) follows from the two ways to make it.

    4 standard deviations of a binomial distribution: 1 seed of 16,000 fails.
    """
    merges = [("a", "b"), ("b", "c</w>"), ("ab", "c</w>"), ("a", "bc</w>")]
    segmenter = FastBpe(Moses(True), WordSplitter(merges))
    n = 5_000
    found = repeated(with_noise(segmenter, FastBpeConfig(dropout=p)), ["abc"], n)
    expected = {
        ("abc",): (1 - p) * (1 - p) + p * (1 - p) * (1 - p),
        ("ab@@", "c"): (1 - p) * p,
        ("a@@", "bc"): p * (1 - p) * p,
        ("a@@", "b@@", "c"): p * p,
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


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.0, 0.2, 1.0])
def test_unigram_sampling_has_the_probabilities_of_kudo(alpha: float):
    texts, n = ("a", "b", "c", "d", "ab", "bc", "abc", "bcd"), 5_000
    scores = {text: -0.5 - 0.7 * i % 3 for i, text in enumerate(texts)}
    noise = Noise(
        Unigram(alpha, scores), tuple, str, lambda piece: False, lambda piece: False, set(texts)
    )
    found = repeated(noise, ["abc", "d"], n)
    weights = {
        pieces: math.exp(alpha * sum(scores[p] for p in pieces))
        for pieces in segmentations("abcd", scores)
    }
    assert len(weights) == 5
    assert found.keys() <= weights.keys()
    for pieces, weight in weights.items():
        share = weight / sum(weights.values())
        assert abs(found[pieces] - n * share) < 4 * math.sqrt(n * share * (1 - share)) + 1


# --- what is not split ---------------------------------------------------------------------------


def test_specials_tags_and_very_long_words_keep_their_pieces(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(bpe, "MAX_WORD_LENGTH", 10)
    segmenter = learned(CONFIGS["fastbpe"])
    noise = with_noise(segmenter, FastBpeConfig(merges=60, dropout=0.9))
    word = "gatonegrocasagrande" * 60
    pieces = [" <2en>", *segmenter.encode(f"come {word} peixe", "gl"), "never seen"]
    vocab = vocabulary([[pieces[:-1]], [[]]], noise)
    side = SideNoise(noise, vocab, vocab.types_of("src"))
    ids = np.array(vocab.ids(pieces), np.int32)
    assert ids[-1] == UNK
    found, _ = side(ids, np.array([len(ids)], np.int32), np.arange(1), np.uint64(1))
    names = vocab.pieces(found)
    assert names[0] == " <2en>"
    assert names[-1] == "<unk>"
    long = segmenter.encode(word, "gl")
    assert any(names[i : i + len(long)] == long for i in range(len(names)))
    assert segmenter.decode_tokenized(names[1:-1], "gl") == f"come {word} peixe"
    assert len(word) > noise_kernels.MAX_SYMBOLS


def test_a_vocabulary_without_noise_is_enough(case: Case, tmp_path: Path):
    """Pieces with a character that is not a type stay, so a parent's vocabulary gets no UNK."""
    vocab = vocabulary(case.sentences, None)
    corpus = encoded(case.sentences, vocab, tmp_path)
    sides = {s: SideNoise(case.noise, vocab, vocab.types_of(s)) for s in SIDES}
    noisy, changed = EpochPairs(corpus, None), 0
    noisy.add_noise(sides, 1, 0, 1000, threads=1)
    for row, pair in enumerate(PAIRS):
        pairs = noisy.select(np.array([row]))
        for side, ids, line in zip(SIDES, (pairs.src(row), pairs.tgt(row)), pair, strict=True):
            assert vocab.types_of(side)[ids].all()
            assert UNK not in ids
            pieces = vocab.pieces(ids)
            assert case.segmenter.decode_tokenized(pieces, "gl") == line
            changed += pieces != case.sentences[SIDES.index(side)][row]
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
    kind, scores = read_model(data)
    assert kind == "unigram"
    processor = sentencepiece.SentencePieceProcessor(model_proto=data)
    for i in range(processor.get_piece_size()):
        piece = processor.id_to_piece(i)
        normal = not (processor.is_control(i) or processor.is_unknown(i) or piece == "<ab>")
        assert (piece in scores) == normal
        assert not normal or scores[piece] == processor.get_score(i)
    config = SentencePieceConfig(model=str(tmp_path / "m.model"), sampling_alpha=0.1)
    noise = with_noise(learned(config), config)
    assert noise.spell("<ab>") == ()
    assert noise.spell("\u2581gato") in [tuple("\u2581gato"), ()]


# --- errors and the recipe -----------------------------------------------------------------------


def test_no_noise_is_the_same_corpus_in_every_epoch(tmp_path: Path):
    for config in (
        FastBpeConfig(merges=20),
        WhitespaceConfig(),
        SentencePieceConfig(vocab_size=80),
    ):
        assert not config.has_noise
        assert learned(config).noise(config) is None
    corpus = encoded([[["a"]], [["b"]]], vocab := Vocab.build(Counter("a"), Counter("b")), tmp_path)
    plain = Epochs(corpus, vocab, None, None, seed=1, longest=10)
    for epoch in (0, 7):
        assert plain[epoch].src_len is corpus.src_len
        assert plain[epoch].select(np.array([0])).src(0).tolist() == corpus.src(0).tolist()


@pytest.mark.parametrize("noise", [False, True])
def test_an_epoch_has_the_pairs_that_the_mixture_draws(noise: bool, tmp_path: Path):
    case = Case("fastbpe", tmp_path)
    mixture = Mixture([5, len(PAIRS) - 5], [3, 0.5])
    epochs = Epochs(
        case.corpus, case.vocab, mixture, case.noise if noise else None, seed=1, longest=1000
    )
    for epoch in range(2):
        pairs = epochs[epoch]
        rows = mixture.rows(1, epoch)
        everything = np.arange(len(rows))
        assert pairs.rows_of(everything).tolist() == rows.tolist()
        selected = pairs.select(everything)
        for i, row in enumerate(rows.tolist()):
            assert (pairs.src_len[i], pairs.tgt_len[i]) == (
                len(selected.src(i)),
                len(selected.tgt(i)),
            )
            found = case.segmenter.decode_tokenized(case.vocab.pieces(selected.src(i)), "gl")
            assert found == PAIRS[row][0]


def test_copies_of_a_weighted_pair_have_noise_of_their_own(case: Case):
    copies = 4
    rows = np.repeat(np.arange(len(PAIRS)), copies)
    weighted, once = case.epoch(rows=rows), case.epoch()
    different = 0
    for row in range(len(PAIRS)):
        found = [case.pieces(weighted, row * copies + copy) for copy in range(copies)]
        assert found[0] == case.pieces(once, row)
        different += any(other != found[0] for other in found[1:])
    assert different > len(PAIRS) / 2


def test_the_next_epoch_is_made_in_the_background(tmp_path: Path, monkeypatch):
    case, made = Case("fastbpe", tmp_path), []
    real = EpochPairs.add_noise

    def add_noise(self, noise, seed, epoch, *rest) -> None:
        made.append(epoch)
        real(self, noise, seed, epoch, *rest)

    monkeypatch.setattr(EpochPairs, "add_noise", add_noise)
    found = Epochs(case.corpus, case.vocab, None, case.noise, seed=1, longest=1000)
    for epoch in (4, 4, 5, 6, 9):
        expected = case.epoch(epoch=epoch)
        assert np.array_equal(found[epoch].src_len, expected.src_len)
        pairs = found[epoch].select(np.array([1]))
        assert np.array_equal(pairs.tgt(1), expected.select(np.array([1])).tgt(1))
        found[epoch + 1]
    background = [e for e, n in Counter(made).items() for _ in range(n)]
    assert sorted(set(background)) == [4, 5, 6, 7, 8, 9, 10, 11]
    assert len(found._made) <= epochs.KEPT_EPOCHS


def test_an_error_of_the_background_reaches_training(tmp_path: Path, monkeypatch):
    case = Case("fastbpe", tmp_path)

    def fail(*_) -> None:
        raise MemoryError("no memory")

    monkeypatch.setattr(SideNoise, "__call__", fail)
    with pytest.raises(MemoryError):
        Epochs(case.corpus, case.vocab, None, case.noise, seed=1, longest=1000)[0]


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
def test_noise_of_the_wrong_type_of_model_is_an_error(
    tmp_path: Path, learned_as: str, wanted: dict, message: str
):
    model = learned(SentencePieceConfig(vocab_size=110, model_type=learned_as)).files()["spm.model"]
    (tmp_path / "a.model").write_bytes(model)
    config = SentencePieceConfig(model=str(tmp_path / "a.model"), **wanted)
    with pytest.raises(UserError, match=message):
        learned(config).noise(config)


@pytest.mark.parametrize("name", CONFIGS)
def test_noise_and_what_it_reaches_can_be_pickled(name: str):
    segmenter = learned(CONFIGS[name])
    noise = with_noise(segmenter, CONFIGS[name])
    pieces = [segmenter.encode(line, "gl") for pair in PAIRS for line in pair]
    collect = ReachablePieces(noise)
    found = pickle.loads(pickle.dumps(collect))(pieces)
    assert found == collect(pieces)
    assert found
    assert collect(pieces) == set()  # seen before
