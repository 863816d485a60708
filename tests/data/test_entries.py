"""Entries of corpora: languages, tags and text forms, and what they must not change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt.config.recipe import Recipe, SentencePieceConfig
from nmt.data.bitext import read_in_form
from nmt.data.cache import data_hash
from nmt.data.checks import HeldOutPairs
from nmt.data.prepare import Prepared, prepare
from nmt.data.report import Lengths
from nmt.data.segmenters import SEGMENTERS
from nmt.data.vocab import UNK, Vocab
from nmt.errors import UserError

GL = [(f"o gato n' {i} come pan .", f"the cat &apos;s {i} eats bread .") for i in range(60)]
ES = [(f"El gato {i} dice: <bt> <es> si.", f"The cat's {i} says: <bt> yes.") for i in range(40)]


def write(prefix: Path, pairs: list[tuple[str, str]], langs: tuple[str, str] = ("gl", "en")) -> str:
    prefix.parent.mkdir(parents=True, exist_ok=True)
    for side, lang in enumerate(langs):
        text = "".join(pair[side] + "\n" for pair in pairs)
        Path(f"{prefix}.{lang}").write_text(text, encoding="utf-8")
    return str(prefix)


def recipe_for(folder: Path, train: Any, segment: Any = None, **data: Any) -> Recipe:
    write(folder / "gl", GL)
    write(folder / "es", ES, ("es", "en"))
    write(folder / "dev", [(f"{src} xa", tgt) for src, tgt in GL[:5]])
    values = {"train": train, "dev": str(folder / "dev"), "tokenized": True, "checks": "warn"}
    return Recipe.model_validate(
        {
            "src": "gl",
            "tgt": "en",
            "out": str(folder / "run"),
            "data": {**values, **data},
            "segment": segment or {"merges": 30},
        }
    )


def es(folder: Path, **keys: Any) -> dict[str, Any]:
    return {"path": str(folder / "es"), "src": "es", "tokenized": False, **keys}


def prepared(folder: Path, *args: Any, **keys: Any) -> Prepared:
    return prepare(recipe_for(folder, *args, **keys), progress=False)


def language_warnings(p: Prepared) -> list[str]:
    return [found.message() for found in p.report.findings if found.name == "languages"]


def text_of(p: Prepared, row: int) -> tuple[str, str]:
    src, tgt = (p.vocab.pieces(ids) for ids in (p.train.src(row), p.train.tgt(row)))
    return tuple(p.segmenter.decode_tokenized(side, "en") for side in (src, tgt))


def test_an_entry_of_the_other_form_is_converted(tmp_path: Path):
    p = prepared(tmp_path, [str(tmp_path / "gl"), es(tmp_path)])
    assert p.train.sizes == [60, 40]
    assert text_of(p, 3) == GL[3]
    src, tgt = text_of(p, 63)
    assert src == "El gato 3 dice : &lt; bt &gt; &lt; es &gt; si ."
    assert tgt == "The cat &apos;s 3 says : &lt; bt &gt; yes ."

    entry = {"path": str(tmp_path / "gl"), "tokenized": True}
    p = prepared(tmp_path / "raw", [entry, es(tmp_path)], tokenized=False)
    assert text_of(p, 3)[1] == "the cat &apos;s 3 eats bread ."  # by the recipe's tokenizer
    lines = read_in_form(tmp_path / "gl.en", "en", file_tokenized=True, tokenized=False)
    assert lines[3] == "the cat's 3 eats bread."


def test_a_raw_dev_set_of_a_tokenized_recipe_is_converted(tmp_path: Path):
    dev = es(tmp_path)
    p = prepared(tmp_path, [str(tmp_path / "gl"), es(tmp_path)], dev=dev, max_overlap=0.99)
    assert p.dev[0].ref_lines[3] == "The cat &apos;s 3 says : &lt; bt &gt; yes ."
    assert p.dev[0].direction.langs == ("es", "en")
    assert p.report.found(HeldOutPairs.name, "dev").count == 40  # both are compared in one form


@pytest.mark.parametrize("kind", SEGMENTERS)
def test_no_text_becomes_a_tag(kind: str, tmp_path: Path):
    segment = {
        "fastbpe": {"merges": 200},
        "sentencepiece": {"kind": "sentencepiece", "vocab_size": 80, "byte_fallback": False},
        "whitespace": {"kind": "whitespace"},
    }[kind]
    text = [(f"<bt> o {i} <bt>", f"<bt> the {i}") for i in range(60)]
    train = [
        {"path": write(tmp_path / "tagged", GL), "tag": "<bt>"},
        write(tmp_path / "text", text),
    ]
    p = prepared(tmp_path, train, segment)
    [tag] = p.vocab.ids([" <bt>"])
    assert tag != UNK
    assert p.vocab.tags == ["<bt>"]
    tagged, plain = p.train.sizes
    assert (tagged, plain) == (60, 60)
    for row in range(tagged):
        assert p.train.src(row)[0] == tag
        assert tag not in p.train.src(row)[1:]
    assert tag not in p.train.ids("src", tagged)
    assert tag not in p.train.ids("tgt")
    for line in ("<bt>", " <bt>", "\u2581<bt>", "a <bt> b", " <bt> x"):
        assert tag not in p.vocab.ids(p.segmenter.encode(line, "gl"))
    assert not p.vocab.types_of("tgt")[tag]
    p.vocab.save(tmp_path)
    assert Vocab.load(tmp_path).ids([" <bt>"]) == [tag]


def test_a_rare_tag_stays_in_the_vocabulary(tmp_path: Path):
    entry = {"path": write(tmp_path / "few", GL[:2]), "tag": "<few>"}
    segment = {"kind": "whitespace", "min_count": 10}
    p = prepared(tmp_path, [str(tmp_path / "gl"), entry], segment)
    assert p.vocab.tags == ["<few>"]


def test_the_segmentation_is_learned_on_the_mixture(tmp_path: Path):
    def merges(weight: float, **data: Any) -> list[tuple[str, str]]:
        rare = write(tmp_path / "rare", [("zzqq", "qqzz")] * 10)
        folder = tmp_path / str(weight)
        train = [str(folder / "gl"), {"path": rare, "weight": weight}]
        p = prepared(folder, train, {"merges": 3}, **data)
        return p.segmenter._splitter.merges

    assert ("z", "z") not in merges(1)
    assert ("z", "z") in merges(100)
    assert merges(1, temperature=1) == merges(1)


def test_weights_and_tags_change_the_prepared_data_only_where_they_must(tmp_path: Path):
    def key(*train: Any, segment: Any = None, **data: Any) -> str:
        recipe = recipe_for(tmp_path, list(train), segment, **data)
        codes = getattr(recipe.segment, "codes", "learn")
        content = {"segment": [] if codes == "learn" else ["hash"]}
        return data_hash(recipe, content, None)

    gl, spanish = str(tmp_path / "gl"), es(tmp_path)
    plain = key(gl)
    assert key({"path": gl, "src": "gl", "tokenized": True, "weight": 1}) == plain
    given = {"merges": 30, "codes": "codes"}
    keys = [
        plain,
        key({"path": gl, "weight": 2}),
        key({"path": gl, "tag": "<a>"}),
        key({"path": gl, "tag": "<b>"}),
        key({"path": gl, "tokenized": False}),
        key(gl, temperature=2),
        key(gl, segment=given),
        key({"path": gl, "weight": 2}, segment=given),
        key(spanish),
        key(gl, dev=[{"path": gl, "name": "one"}, {"path": gl, "name": "two"}]),
    ]
    assert len(set(keys)) == len(keys)
    # with given codes, the data does not depend on the value of a weight
    assert key({"path": gl, "weight": 3}, segment=given) == keys[7]


def test_evidently_mixed_forms_are_an_error_that_names_the_entry(tmp_path: Path):
    raw = es(tmp_path)
    del raw["tokenized"]
    with pytest.raises(UserError) as error:
        prepared(tmp_path, [str(tmp_path / "gl"), raw], checks="error", max_overlap=0.9)
    message = str(error.value)
    assert "data.train[1] (es): 40 pairs (100.0%) without a space before the last" in message
    assert "for example es:1; set tokenized: false in this entry" in message
    assert "data.train[0]" not in message

    with pytest.raises(UserError) as error:
        prepared(
            tmp_path, [str(tmp_path / "gl"), raw],
            tokenized=False, checks="error", max_overlap=0.9,
        )  # fmt: skip
    assert "data.train[0] (gl): 60 pairs (100.0%) with a space before" in str(error.value)
    assert "set tokenized: true in this entry" in str(error.value)


def test_a_form_that_contradicts_the_files_is_found_in_the_files(tmp_path: Path):
    wrong = {"path": str(tmp_path / "gl"), "tokenized": False}  # would be tokenized twice
    with pytest.raises(UserError, match=r"data\.train\[0\] \(gl\): .* set tokenized: true in this"):
        prepared(tmp_path, [wrong, es(tmp_path)], checks="error", max_overlap=0.9)


def test_a_dev_set_is_compared_with_corpora_of_its_languages(tmp_path: Path):
    words = ["casa", "camiño", "xente", "ollos", "mañá", "cidade", "pobo", "auga", "lume", "terra"]
    other = ["szczęście", "wyższych", "sfer", "gdzie", "jest", "książka", "dziękuję", "proszę"]
    english = ["house", "road", "people", "eyes", "morning", "city", "village", "water", "fire"]

    def text(source: list[str], count: int, start: int) -> list[tuple[str, str]]:
        rng = np.random.default_rng(start)
        return [
            (" ".join(rng.choice(source, 6)), " ".join(rng.choice(english, 6)))
            for _ in range(count)
        ]

    gl = write(tmp_path / "a", text(words, 300, 1))
    polish = {"path": write(tmp_path / "b", text(other, 300, 2), ("pl", "en")), "src": "pl"}
    dev = write(tmp_path / "d", text(words, 120, 3))
    p = prepared(tmp_path, [gl, polish], dev=dev)
    assert language_warnings(p) == []
    named_dev = {"path": write(tmp_path / "b" / "dev", text(other, 300, 2), ("pl", "en"))}
    p = prepared(tmp_path, [{**named_dev, "src": "pl"}, gl], dev=dev)
    assert language_warnings(p) == []
    as_galician = {"path": write(tmp_path / "c", text(other, 300, 2))}
    p = prepared(tmp_path, [gl, as_galician["path"]], dev=dev)
    assert any("dev: the gl side is more like" in text for text in language_warnings(p))


def test_a_dev_set_is_found_in_a_corpus_of_the_other_direction(tmp_path: Path):
    dev = [(f"{src} xa", tgt) for src, tgt in GL[:5]]
    path = write(tmp_path / "more" / "dev", dev)
    to_gl = {"path": path, "src": "en", "tgt": "gl", "tag": "<gl>"}
    p = prepared(tmp_path, [es(tmp_path), to_gl])
    found = p.report.found(HeldOutPairs.name, "dev")
    names = [f"{side} texts {HeldOutPairs.name}" for side in ("source", "target")]
    assert [found.count, *(p.report.found(name, "dev").count for name in names)] == [5, 5, 5]
    assert found.examples[0] == f"more/dev:1: {dev[0][0]} ||| {dev[0][1]}"


def test_a_test_set_is_found_in_a_dev_set_of_the_other_direction(tmp_path: Path):
    path = write(tmp_path / "more" / "dev", [(f"{src} xa", tgt) for src, tgt in GL[:5]])
    test = {"path": path, "src": "en", "tgt": "gl"}
    p = prepared(tmp_path, [str(tmp_path / "gl")], test=[test])
    found = p.report.found("also in dev", "test")
    assert (found.count, found.share) == (5, 1.0)


@pytest.mark.parametrize("pairs", [[], [("", "a"), ("b", " ")]])
def test_an_entry_without_a_usable_pair_is_an_error(pairs: list[tuple[str, str]], tmp_path: Path):
    bt = write(tmp_path / "bt", pairs)
    with pytest.raises(UserError, match=r"(empty|blank side)") as error:
        prepared(tmp_path, [str(tmp_path / "gl"), bt])
    assert error.value.at == f"data.train[1] ({bt}.gl, {bt}.en)"


@pytest.mark.slow
def test_the_report_says_what_an_epoch_draws(tmp_path: Path):
    p = prepared(tmp_path, [str(tmp_path / "gl"), es(tmp_path, weight=2.5, tag="<es>")])
    assert p.mixture is not None
    assert p.report.draws == [
        "gl: 60 pairs, each once an epoch",
        "es: 40 pairs, each 2.5 times an epoch, with the tag <es>",
    ]
    often = prepared(tmp_path, [str(tmp_path / "gl"), es(tmp_path, weight=1000)])
    assert often.report.draws[1] == "es: 40 pairs, each 1,000 times an epoch"
    plain = prepared(tmp_path, [str(tmp_path / "gl")])
    assert (plain.mixture, plain.report.draws) == (None, [])


def test_the_report_names_corpora_by_the_last_parts_that_differ(tmp_path: Path):
    gl = write(tmp_path / "gl-en" / "train", GL)
    es = write(tmp_path / "es-en" / "train", ES, ("es", "en"))
    p = prepared(tmp_path, [{"path": gl, "weight": 2}, {"path": es, "src": "es"}, gl])
    names = [draw.partition(":")[0] for draw in p.report.draws]
    assert names == ["gl-en/train", "es-en/train", "gl-en/train"]
    write(tmp_path / "gl-en" / "train", GL, ("es", "en"))
    p = prepared(tmp_path, [{"path": gl, "weight": 2}, {"path": gl, "src": "es"}])
    names = [draw.partition(":")[0] for draw in p.report.draws]
    assert names == ["train (gl-en)", "train (es-en)"]
    named_dev = write(tmp_path / "gl-en" / "dev", GL)
    p = prepared(tmp_path, [{"path": named_dev, "weight": 2}])
    assert p.report.draws[0].startswith("gl-en/dev: ")


def test_the_report_has_the_lengths_of_each_side_in_pieces(tmp_path: Path):
    p = prepared(tmp_path, [str(tmp_path / "gl")])
    lengths = p.train.src_len
    found = p.report.lengths["train"]["src"]
    assert (found.total, found.longest) == (lengths.sum(), lengths.max())
    assert (found.mean, found.median) == (lengths.mean(), np.median(lengths))
    assert np.mean(lengths <= found.p95) >= 0.95
    assert set(p.report.lengths) == {"train", "dev"}
    assert Lengths.of(np.zeros(3, dtype=int)) is None


def test_pairs_of_sentencepiece_are_learned_from_all_entries(tmp_path: Path):
    config = SentencePieceConfig(vocab_size=90)
    p = prepared(tmp_path, [str(tmp_path / "gl"), es(tmp_path)], config.model_dump())
    assert UNK not in p.train.ids("src")


@pytest.mark.parametrize(
    "segment",
    [
        {"merges": 60, "dropout": 0.5},
        {"kind": "sentencepiece", "vocab_size": 90, "model_type": "unigram", "sampling_alpha": 0.1},
    ],
    ids=["fastbpe", "sentencepiece"],
)
def test_segmentation_noise_keeps_tags(segment: dict[str, Any], tmp_path: Path):
    train = [{"path": write(tmp_path / "tagged", GL), "tag": "<gl>"}]
    p = prepare(recipe_for(tmp_path, train, {**segment, "draws": 3}), progress=False)
    [tag] = p.vocab.reserved_ids
    assert p.train.draws == 3
    changed = 0
    for row in range(3 * len(p.train)):
        src = p.train.src(row)
        assert src[0] == tag
        assert p.segmenter.decode_tokenized(p.vocab.pieces(src[1:]), "gl") == GL[row // 3][0]
        changed += len(src) != len(p.train.src(row // 3 * 3))
    assert changed
    assert not any(
        piece.startswith(" ")
        for piece in p.vocab.pieces(range(len(p.vocab)))[4:]
        if piece != " <gl>"
    )
