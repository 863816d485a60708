"""Segmenters: learning, round trips, codes in both formats, and equal BPE engines."""

from __future__ import annotations

import io
import json
import pickle
from collections import Counter
from pathlib import Path

import pytest
import sentencepiece as spm
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.config.recipe import FastBpeConfig, SentencePieceConfig, WhitespaceConfig
from nmt.data.lines import clean_line
from nmt.data.segmenters import (
    Segmenter,
    bpe,
    learn_segmenter,
    load_segmenter,
    save_segmenter,
    segmenter_hash,
)
from nmt.data.segmenters.base import Whitespace
from nmt.data.segmenters.bpe import (
    FastBpe,
    WordSplitter,
    escape,
    join,
    learn_codes,
    prune_rare,
    read_codes,
    unescape,
)
from nmt.data.segmenters.sentencepiece import SentencePiece, make_model, read_scores
from nmt.data.vocab import UNK, Vocab
from nmt.errors import UserError
from nmt.text.tokenizer import Moses
from tests.toy import one_corpus, without_rare_pieces

TEXT = [
    ("o gato negro come peixe , e o can come carne .", "the black cat eats fish , and the dog ."),
    ("a casa branca é grande .", "the white house is big ."),
    ("os gatos negros comen na casa grande .", "the black cats eat in the big house ."),
] * 4
LINES = st.text(
    st.characters(exclude_categories=["Cs"], include_characters="@\ue000\ue001\u2581<>/ \u00a0"),
    max_size=40,
).map(clean_line)


def learned(config, tokenized: bool = True, normalize: str = "none") -> Segmenter:
    return learn_segmenter(config, tokenized, normalize, one_corpus(TEXT))


def fast(**keys) -> Segmenter:
    return learned(FastBpeConfig(merges=40, **keys))


def test_counts_are_bounded_by_the_rarest_words(monkeypatch):
    monkeypatch.setattr(bpe, "MAX_COUNTED_WORDS", 3)
    assert prune_rare(Counter("aaabbc")) == Counter("aaabbc")
    assert prune_rare(Counter("aaabbccde")) == Counter("aaabbcc")
    assert prune_rare(Counter("aabbccdd")) == Counter()  # all of them are rare


def test_learned_merges_join_the_frequent_pairs():
    assert learn_codes(Counter({"lower": 5, "low": 7}), 2) == [("l", "o"), ("lo", "w</w>")]
    pieces = fast().encode("o gato negro come peixe .", "gl")
    assert join(pieces) == "o gato negro come peixe ."
    assert len(pieces) < len("ogatonegrocomepeixe.")


@settings(max_examples=50, deadline=None)
@given(LINES)
def test_pieces_decode_to_the_words_of_the_text(line: str):
    words = " ".join(line.split())
    for segmenter in SEGMENTERS_OF_TOKENIZED:
        assert segmenter.decode_tokenized(segmenter.encode(line, "gl"), "gl") == words


TRIMMED = without_rare_pieces(fast(), TEXT)
SEGMENTERS_OF_TOKENIZED = [fast(), learned(WhitespaceConfig()), TRIMMED]
SPM = learned(SentencePieceConfig(vocab_size=60), tokenized=False)
BYTES = learned(SentencePieceConfig(vocab_size=330, byte_fallback=True), tokenized=False)


@settings(max_examples=50, deadline=None)
@given(LINES)
def test_sentencepiece_decodes_to_the_plain_text(line: str):
    expected = " ".join(line.replace("\u2581", "_").split())
    assert SPM.decode(SPM.encode(line, "gl"), "gl") == expected


@given(st.text())
def test_unescape_inverts_escape_and_no_joiner_is_left(word: str):
    assert unescape(escape(word)) == word
    assert "@@" not in escape(word)


def test_raw_text_is_tokenized_and_detokenized_exactly():
    segmenter = learned(FastBpeConfig(merges=30), tokenized=False)
    for line in ("The cat's \"fish\" costs $5, doesn't it? Yes & no.", "It's (very) good: 50%."):
        pieces = segmenter.encode(line, "en")
        assert segmenter.decode(pieces, "en") == line
        assert segmenter.decode_tokenized(pieces, "en") == segmenter.moses.tokenize_reference(
            line, "en"
        )


def test_tokenized_text_is_decoded_to_plain_text():
    segmenter = fast()
    pieces = segmenter.encode("it &apos;s a &quot; test &quot; , is n&apos;t it ?", "en")
    assert segmenter.decode(pieces, "en") == "it's a \"test\", is n't it?"
    assert segmenter.moses.detokenize_reference("it &apos;s", "en") == "it's"


MERGES = learn_codes(Counter({"aab": 9, "abab</w": 7, "b@": 5, "caba": 4, "éa\u0301b": 3}), 30)


def test_first_place_of_a_duplicate_merge_counts(tmp_path: Path, monkeypatch):
    (tmp_path / "codes").write_text("a b 3\nb c</w> 2\nx y 1\na b 1\n")
    merges = read_codes(tmp_path / "codes")
    assert merges == [("a", "b"), ("b", "c</w>"), ("x", "y")]
    assert WordSplitter(merges)(["abc"]) == ["ab@@", "c"]
    monkeypatch.setattr(bpe, "fastBPE", None)
    assert WordSplitter(merges)(["abc"]) == ["ab@@", "c"]


def test_word_end_symbol_in_text_is_not_learned_as_word_end(tmp_path: Path):
    """Codes learned from a text about BPE can be read, and its words are decoded."""
    text = [("low</w> low</w> x</w>y", "e s t</w> </w>")] * 9
    config = FastBpeConfig(merges=30)
    segmenter = learn_segmenter(config, True, "none", one_corpus(text))
    save_segmenter(segmenter, tmp_path)
    for line in {side for pair in text for side in pair} | {"low</w>est </w></w>"}:
        assert segmenter.decode_tokenized(load_segmenter(tmp_path).encode(line, "gl"), "gl") == line


def test_word_cache_is_bounded_and_changes_nothing(monkeypatch):
    monkeypatch.setattr(bpe, "MAX_CACHED_WORDS", 2)
    splitter, words = WordSplitter(MERGES), ["aab", "abab", "caba", "aab", "b", "abab"]
    assert [splitter([word]) for word in words] == [WordSplitter(MERGES)([word]) for word in words]
    assert len(splitter._cache) <= 2


@pytest.mark.parametrize(
    "segmenter", [*SEGMENTERS_OF_TOKENIZED, SPM, BYTES], ids=lambda s: type(s).__name__
)
def test_saved_and_pickled_segmenters_are_equal(tmp_path: Path, segmenter: Segmenter):
    save_segmenter(segmenter, tmp_path)
    line = "o gato come @@ peixe na casa grande &quot; xyz"
    expected = segmenter.encode(line, "gl")
    for again in (load_segmenter(tmp_path), pickle.loads(pickle.dumps(segmenter))):
        assert again.encode(line, "gl") == expected
        assert again.decode(expected, "en") == segmenter.decode(expected, "en")


def test_codes_of_both_formats_are_read(tmp_path: Path):
    (tmp_path / "fast").write_text("g a 12\nga to</w> 3\n")
    (tmp_path / "nmt").write_text("#version: 0.2\ng a\nga to</w>\n")
    assert (
        read_codes(tmp_path / "fast")
        == read_codes(tmp_path / "nmt")
        == [("g", "a"), ("ga", "to</w>")]
    )
    given_codes = fast(codes=str(tmp_path / "fast"))
    assert isinstance(given_codes, FastBpe)
    assert given_codes.encode("ga", "gl") == ["g@@", "a"]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("g a 12\nbroken\n", ":2"),
        ("g a x\n", ":1"),
        ("#version: 0.2\na\n", ":2"),
        ("", "has no merges"),
    ],
)
def test_error_of_bad_codes_has_the_line(tmp_path: Path, text: str, place: str):
    (tmp_path / "codes").write_text(text)
    with pytest.raises(UserError, match=place):
        read_codes(tmp_path / "codes")
    with pytest.raises(UserError, match="cannot be read"):
        read_codes(tmp_path / "missing")
    (tmp_path / "codes").write_bytes(b"g a 12\ncaf\xe9 x 3\n")
    with pytest.raises(UserError, match=r"codes:2: not UTF-8\n  -> segment\.codes must be"):
        read_codes(tmp_path / "codes")


def test_nfc_normalizes_input_but_not_references():
    segmenter = learned(WhitespaceConfig(), normalize="nfc")
    assert segmenter.encode("e\u0301", "gl") == ["é"]
    assert segmenter.moses.tokenize_reference("e\u0301", "gl") == "e\u0301"
    assert learned(WhitespaceConfig()).encode("e\u0301", "gl") == ["e\u0301"]


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_sentencepiece_learns_the_same_model_each_time(kind: str):
    config = SentencePieceConfig(vocab_size=5000, model_type=kind)
    first, second = (learned(config, tokenized=False) for _ in range(2))
    assert first.files() == second.files()
    line = "o gato come 日本 <unk> </s>"
    assert first.decode(first.encode(line, "gl"), "gl") == line


def test_sentencepiece_learns_from_normalized_text():
    """Decomposed training text with data.normalize=nfc: the model has the composed letter."""
    text = [("cafe\u0301 \u2581 ba\u0301", "cafe\u0301")] * 20
    segmenter = learn_segmenter(SentencePieceConfig(vocab_size=40), False, "nfc", one_corpus(text))
    model = spm.SentencePieceProcessor(model_proto=segmenter.files()["spm.model"])
    known = {model.id_to_piece(i) for i in range(len(model))}
    assert "é" in "".join(known)
    assert "\u0301" not in "".join(known)
    assert all(piece in known for piece in segmenter.encode("cafe\u0301", "gl"))


def foreign_model(lines: list[str]) -> bytes:
    """Return a model with SentencePiece's own normalizer, as other toolkits have it."""
    file = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=file, vocab_size=60, hard_vocab_limit=False
    )
    return file.getvalue()


def test_a_raw_sentencepiece_has_a_model_for_each_side_and_changes_no_text(tmp_path: Path):
    texts = [["the cat eats the fish"] * 20, ["o gato come o peixe"] * 20]
    models = [foreign_model(lines) for lines in texts]
    segmenter = SentencePiece(Moses(False, "none", exact=True), *models, raw=True)
    save_segmenter(segmenter, tmp_path)
    for one in (segmenter, load_segmenter(tmp_path), pickle.loads(pickle.dumps(segmenter))):
        for side, model in zip(("src", "tgt"), models, strict=True):
            line = f" {texts[0][0]}\t\u2581{texts[1][0]} \uff21\u00a0 "
            expected = spm.SentencePieceProcessor(model_proto=model).encode(line, out_type=str)
            assert one.encode(line, "xx", side) == expected
    assert segmenter.encode("the fish", "en") != segmenter.encode("the fish", "en", "tgt")
    with pytest.raises(UserError) as error:
        segmenter.noise(SentencePieceConfig(model_type="unigram", sampling_alpha=0.2))
    assert error.value.at == "segment.sampling_alpha"


@pytest.mark.parametrize("error", [UserError("line 3 is bad"), KeyboardInterrupt()])
def test_sentencepiece_training_passes_on_errors_of_the_corpus(error: BaseException):
    def lines():
        yield from one_corpus(TEXT)
        raise error

    config = SentencePieceConfig(vocab_size=60)
    with pytest.raises(type(error)) as raised:
        learn_segmenter(config, False, "none", lines())
    assert raised.value is error


@pytest.mark.parametrize("engine", ["fastBPE", "subword-nmt"])
def test_very_long_word_is_encoded_in_blocks(monkeypatch, engine: str):
    if engine == "subword-nmt":
        monkeypatch.setattr(bpe, "fastBPE", None)
    segmenter = fast()
    monkeypatch.setattr(bpe, "MAX_WORD_LENGTH", 10)
    word = "gatonegrocasa@@grande</w>" * 3
    pieces = segmenter.encode(f"o {word} come", "gl")
    assert segmenter.decode_tokenized(pieces, "gl") == f"o {word} come"
    assert learn_codes({"a" * 11: 9, "bc": 3}, 5) == [("b", "c</w>")]


def test_hashes_are_those_of_earlier_versions():
    """Checkpoints store these hashes, and translation compares them."""
    moses = Moses(tokenized=True)
    assert segmenter_hash(FastBpe(moses, WordSplitter([("a", "b")]))) == (
        "398bd177006c7b08527c439cb2a04f456a7105395cb4ea302d372636b5b201b6"
    )
    assert segmenter_hash(Whitespace(moses)) == (
        "591e7c22de48f3d26c2e47c1507d4335a0de04dac7a471e87daefcd73a1c678b"
    )


def test_a_new_segmenter_stores_how_it_reads_text(tmp_path: Path):
    for tokenized, form in ((False, "clean"), (True, "none")):
        save_segmenter(learned(WhitespaceConfig(), tokenized, form), tmp_path)
        moses = load_segmenter(tmp_path).moses
        assert (moses.tokenized, moses.form, moses.exact) == (tokenized, form, not tokenized)
    metadata = {"kind": "plain", "tokenised": False, "normalize": "other", "sha256": {}}
    (tmp_path / "segmenter.json").write_text(json.dumps(metadata))
    with pytest.raises(UserError, match="'other' is not one of none, nfc, clean"):
        load_segmenter(tmp_path)


@pytest.mark.parametrize("kind", ["plain", "whitespace"])
def test_whitespace_segmenter_loads_by_its_old_and_new_name(tmp_path: Path, kind: str):
    metadata = {"kind": kind, "tokenised": True, "nfc": False, "sha256": {}}
    (tmp_path / "segmenter.json").write_text(json.dumps(metadata))
    assert load_segmenter(tmp_path).encode("o gato .", "gl") == ["o", "gato", "."]


@settings(max_examples=50, deadline=None)
@given(LINES)
def test_byte_fallback_encodes_any_text(line: str):
    expected = " ".join(line.replace("\u2581", "_").split())
    pieces = BYTES.encode(line, "gl")
    vocab = Vocab.build(Counter(), Counter(), alphabet=BYTES.alphabet())
    assert UNK not in vocab.ids(pieces)
    assert BYTES.decode(pieces, "gl") == expected


def test_invalid_bytes_never_end_a_line():
    """A translation model may produce an incomplete character or a line feed."""
    pieces = ["\u2581o", "<0xC3>", "\u2581gato", "<0x0A>", "<0x41>"]
    assert BYTES.decode(pieces, "gl") == "o\ufffd gato A"
    surfaces = [BYTES.surface(piece) for piece in pieces]
    assert surfaces[0] == " o"
    assert surfaces[4] == "A"
    assert "\n" not in "".join(surfaces)
    singles = [f"<0x{byte:02X}>" for byte in range(256)]
    assert set(singles) < set(BYTES.alphabet())
    assert len(set(map(BYTES.surface, singles))) == 256


def test_text_that_looks_like_a_byte_piece_is_text():
    line = "<0x41> gato <0x0A>"
    assert BYTES.decode(BYTES.encode(line, "gl"), "gl") == line
    assert SPM.alphabet() == []
    assert SPM.decode(["\u2581<", "0x41>"], "gl") == "<0x41>"


@pytest.mark.parametrize("byte_fallback", [False, True])
def test_sentencepiece_errors_name_recipe_keys(byte_fallback: bool):
    with pytest.raises(UserError) as error:
        learned(SentencePieceConfig(vocab_size=16, byte_fallback=byte_fallback), tokenized=False)
    message = str(error.value)
    assert message.startswith(
        "segment.vocab_size: a vocabulary of 16 is too small: this corpus needs"
    )
    needed = message.rpartition("set segment.vocab_size=")[2].split()[0]
    config = SentencePieceConfig(vocab_size=int(needed), byte_fallback=byte_fallback)
    assert learned(config, tokenized=False)
    assert "--" not in message


def test_pieces_that_no_text_has_are_not_in_the_vocabulary(tmp_path: Path):
    """A line of vocab.txt cannot contain a tab or a line feed."""
    (tmp_path / "text").write_text("low lower lowest\n" * 20)
    spm.SentencePieceTrainer.train(
        input=str(tmp_path / "text"), model_prefix=str(tmp_path / "spm"), vocab_size=290,
        byte_fallback=True, user_defined_symbols=["\t", "\n"], hard_vocab_limit=False,
        model_type="bpe", minloglevel=2,
    )  # fmt: skip
    config = SentencePieceConfig(model=str(tmp_path / "spm.model"), byte_fallback=True)
    pieces = learned(config, tokenized=False).alphabet()
    assert len(pieces) > 256
    assert not any("\t" in piece or "\n" in piece for piece in pieces)


def test_byte_fallback_needs_a_model_with_bytes(tmp_path: Path):
    save_segmenter(SPM, tmp_path)
    config = SentencePieceConfig(model=str(tmp_path / "spm.model"), byte_fallback=True)
    with pytest.raises(UserError, match=r"spm\.model: segment\.byte_fallback is true, but"):
        learned(config, tokenized=False)
    save_segmenter(BYTES, tmp_path)
    assert learned(config, tokenized=False).alphabet() == BYTES.alphabet()


@pytest.mark.parametrize(
    "damage", [b"\x0a\x03\x0a\x01\xff", b"\x0a\x02\x08\x01", b"\x12\x02\x18\x7f", b"\x0a"]
)
def test_a_damaged_piece_of_a_sentencepiece_model_is_an_error(damage: bytes):
    model = make_model("unigram", {"a": -1.0}, b"")
    assert read_scores(model) == ("unigram", {"a": -1.0})
    with pytest.raises(UserError):
        read_scores(model + damage)
