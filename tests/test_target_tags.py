"""One model into two languages, chosen by the target tag alone, through the commands."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

import nmt
from nmt.apps.serve.limits import Limits
from nmt.apps.serve.model import ServedModel
from nmt.cli import score as evaluate
from nmt.cli import synthesize, train, translate
from nmt.config.load import load_recipe
from nmt.data.batches import collate_sources
from nmt.data.prepare import Prepared, prepare
from nmt.data.vocab import BOS, EOS, UNK, tag_piece
from nmt.decoding.codec import Translation
from nmt.decoding.ctranslate2.folder import export
from nmt.decoding.engine import ignore
from nmt.decoding.options import SearchOptions
from nmt.errors import UserError
from nmt.model.layout import Layout
from nmt.store.model import Model
from tests.decoding.ctranslate2.cases import model_folder
from tests.toy import lines_of_digits, reverse, toy_recipe, write_lines, write_pairs

EN, FR = "<en>", "<fr>"
TO_EN, TO_FR = {"tgt_tag": EN}, {"tgt": "fr", "tgt_tag": FR}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    """The same digits are copied into English and reversed into French."""
    folder = tmp_path_factory.mktemp("two")
    lines = lines_of_digits(540, shortest=1, longest=3)
    for split, some in (("train", lines[:500]), ("dev", lines[500:])):
        for side, make in (("gl", str), ("en", str), ("fr", reverse)):
            write_lines(folder / f"{split}.{side}", map(make, some))
    return folder


def recipe_for(corpus: Path, data: dict[str, Any] | None = None, **groups: Any) -> str:
    entries = {
        "train": [{"path": "train", **TO_EN}, {"path": "train", **TO_FR}],
        "dev": [{"path": "dev", **TO_EN}, {"path": "dev", **TO_FR}],
        "test": [{"path": "dev", **TO_EN}, {"path": "dev", **TO_FR}],
        "checks": "off",
    }
    return str(toy_recipe(corpus, {"data": {**entries, **(data or {})}, **groups}))


LEARNING: dict[str, Any] = {
    "data": {"batch_tokens": 384},
    "model": {"dim": 32, "ffn_dim": 64, "dropout": 0.0, "word_dropout": 0.0},
    "optim": {"kind": "muon", "betas": [0.9, 0.98], "label_smoothing": 0.0},
    "schedule": {"kind": "linear", "lr": 0.01, "warmup_updates": 20, "total_updates": 200},
    "train": {"validate_every": 200, "max_validations": 1, "log_every": 200},
}
SHORT: dict[str, Any] = {"train": {"validate_every": 2, "max_validations": 1}}


@pytest.fixture(scope="module")
def learned(corpus, tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("learned") / "run"
    assert train.main([recipe_for(corpus, **LEARNING), f"out={run}"]) == 0
    return run


def texts(capsys, *argv: object) -> list[str]:
    capsys.readouterr()
    assert translate.main(list(map(str, argv))) == 0
    return capsys.readouterr().out.splitlines()


def synthesized(*argv: object) -> None:
    assert synthesize.main(list(map(str, argv))) == 0


@pytest.mark.slow
def test_the_tag_alone_decides_between_a_copy_and_the_reverse(learned, corpus, capsys):
    lines = (corpus / "dev.gl").read_text().splitlines()
    for tag, make in ((EN, str), (FR, reverse)):
        found = texts(capsys, learned, "--input", corpus / "dev.gl", "--tgt-tag", tag)
        right = sum(a == make(b) for a, b in zip(found, lines, strict=True))
        assert right >= 0.9 * len(lines)
        name = {EN: "gl-en", FR: "gl-fr"}[tag]
        # validation forces the tag of its set
        assert (learned / "dev" / f"u000200.{name}.hyp").read_text().splitlines() == found
    for options, message in (
        ([], "its target tags are <en>, <fr>"),
        (["--tgt-tag", "<pt>"], "the model has no target tag <pt>; its target tags are <en>, <fr>"),
        (["--tgt-tag", EN, "--tag", FR], "the model has no tag <fr>"),
    ):
        assert translate.main([str(learned), "--input", str(corpus / "dev.gl"), *options]) == 2
        assert message in capsys.readouterr().err


def test_the_command_at_the_end_of_a_training_has_the_tag(corpus, tmp_path):
    ended = nmt.train(recipe_for(corpus, **SHORT), [f"out={tmp_path / 'run'}"], quiet=True)
    assert f"nmt-translate {tmp_path / 'run'} --tgt-tag '<en>'\n" in ended.text


@pytest.mark.slow
def test_scores_of_the_command_are_those_of_the_search(learned, corpus, tmp_path, capsys):
    source, target = corpus / "dev.gl", tmp_path / "target"
    options = (learned, "--input", source, "--tgt-tag", FR)
    found = [json.loads(line) for line in texts(capsys, *options, "--token-scores", "--align")]
    write_lines(target, [one["text"] for one in found])
    scored = texts(capsys, *options, "--score-target", target)
    for one, line in zip(found, scored, strict=True):
        assert len(one["token_log_probs"]) == len(one["pieces"]) + 1
        assert FR not in "".join(one["pieces"])
        assert float(line.split("\t")[0]) == pytest.approx(one["log_prob"], abs=2e-3)  # as printed
        # each word is the digit that it was translated from
        words = len(one["pieces"])
        assert {j for _, j in one["alignment"]} == set(range(words))
    assert evaluate.main([str(learned), "--split", "test.gl-fr", "--metrics", "bleu"]) == 0


def test_both_sets_have_their_own_perplexities(learned, corpus):
    """The perplexity counts the tag, pieces and EOS."""
    records = [json.loads(line) for line in (learned / "metrics.jsonl").read_text().splitlines()]
    [dev] = [record for record in records if record["kind"] == "dev"]
    translator = nmt.Translator.load(learned, "cpu")
    vocab, model = translator.codec.vocab, translator.transformer
    prepared = prepare(load_recipe(recipe_for(corpus, **LEARNING), [f"out={learned}"]), False)
    for held_out, tag in zip(prepared.dev, (EN, FR), strict=True):
        total, count = 0.0, 0
        for row in range(len(held_out.corpus)):
            src, tgt = held_out.corpus.src(row), held_out.corpus.tgt(row)
            assert vocab.pieces(tgt[:1].tolist()) == tag_piece(tag)
            [scores] = translator.engine.score(
                [(src, tgt.astype(np.int64), 1)], options_of(translator), ignore, ignore
            )
            total += sum(scores.log_probs)
            count += len(tgt) + 1
        name = held_out.name.partition(".")[2]
        assert dev[f"{name}/ppl"] == pytest.approx(float(np.exp(-total / count)), rel=1e-4)
    assert model.allowed[vocab.ids([*tag_piece(EN), *tag_piece(FR)])].all()


def options_of(translator: nmt.Translator) -> Any:
    """Return options without a target tag: the ids that are scored begin with it."""
    checked = translator.check_options({"tgt_tag": EN})
    return checked.model_copy(update={"tgt_tag": None})


def test_pairs_are_named_after_the_language_of_the_tag(learned, corpus, tmp_path):
    for tag, lang in ((EN, "en"), (FR, "fr")):
        prefix = tmp_path / lang
        options = ("-o", prefix, "--max-copied", 1, "--tgt-tag", tag)
        synthesized(learned, "--input", corpus / "dev.gl", *options)
        sides = [Path(f"{prefix}.{side}").read_text().splitlines() for side in ("gl", lang)]
        make = {"en": str, "fr": reverse}[lang]
        assert sum(make(a) == b for a, b in zip(*sides, strict=True)) >= 0.8 * len(sides[0]) > 0


def test_a_served_model_takes_the_tag(learned):
    served = ServedModel("m", nmt.Translator.load(learned, "cpu"), Limits())
    assert served.description()["tgt_tags"] == [EN, FR]
    assert served.description()["tags"] == []
    options = served.translator.check_options({"tgt_tag": FR, "token_scores": True})
    [one] = served.translate(["4 2"], (options, None), 0, lambda: None)
    assert one["translations"][0]["text"] == "2 4"
    assert served.translator.codec.langs(options)[1] == "fr"
    served.batcher.close()


# ---------------------------------------------------------------- CTranslate2


@torch.no_grad()
def log_probs_without_banned(
    translator: nmt.Translator, line: str, one: Translation, tag: str
) -> list[float]:
    """Return those of pieces and EOS given the tag, if banned types have probability 0.

    CTranslate2 bans types before it computes probabilities; nmt bans them after that.
    """
    vocab, model = translator.codec.vocab, translator.transformer
    ids = [*vocab.ids(one.pieces), *([EOS] if one.finished else [])]
    source = np.array(vocab.ids(line.split()))
    start = [BOS, *vocab.ids(tag_piece(tag))]
    tgt = torch.tensor([*start, *ids[:-1]])
    logits = model(*collate_sources([source]), tgt, Layout.of([len(tgt)]))[1:]
    logits[:, [UNK, *vocab.reserved_ids]] = -torch.inf
    logits[0, EOS] = -torch.inf
    return logits.log_softmax(-1).gather(1, torch.tensor(ids)[:, None])[:, 0].tolist()


@pytest.mark.slow
def test_an_exported_model_finds_and_scores_the_same(learned, corpus, tmp_path, capsys):
    pytest.importorskip("ctranslate2")
    translator, folder = nmt.Translator.load(learned, "cpu"), tmp_path / "model"
    export(Model.open(learned), folder)
    exported = nmt.Translator.load(folder, "cpu")
    lines = (corpus / "dev.gl").read_text().splitlines()
    for options in (
        {"tgt_tag": EN, "beam": 1},
        {"tgt_tag": FR, "beam": 1},
        {"tgt_tag": FR, "beam": 4, "n_best": 4, "stop_rule": "count"},
        {"tgt_tag": FR, "beam": 3, "stop_rule": "count", "max_len_offset": 1},
    ):
        searches = translator.stream(lines, **options), exported.stream(lines, **options)
        for line, ours, theirs in zip(lines, *searches, strict=True):
            assert theirs[0].pieces == ours[0].pieces
            assert theirs[0].finished == ours[0].finished
            for b in theirs:
                log_probs = log_probs_without_banned(translator, line, b, options["tgt_tag"])
                assert b.log_prob == pytest.approx(sum(log_probs), abs=1e-4)  # fp32
                decode = SearchOptions().with_defaults(translator.info.decode)
                assert b.score == pytest.approx(b.log_prob / decode.penalty(len(log_probs)))
    with pytest.raises(UserError, match="its target tags are <en>, <fr>"):
        exported.translate(lines)

    program = runpy.run_path(str(folder / "translate.py"))
    alone = program["Translator"](folder, device="cpu")
    beam = translator.info.decode.beam
    expected = exported.translate(lines, tgt_tag=FR, beam=beam)
    assert [alone.translate(line, tgt_tag=FR) for line in lines] == expected
    for options, message in (({}, "choose a target tag: <en>, <fr>"), ({"tgt_tag": "<x>"}, "<x>")):
        with pytest.raises(ValueError, match=message):
            alone.translate("4", **options)
    for options, message in (
        (["--tgt-tag", FR], b""),
        ([], b"choose a target tag: <en>, <fr>"),
    ):
        ran = subprocess.run(
            [sys.executable, "-B", folder / "translate.py", *options],
            input=b"4 2\n",
            capture_output=True,
            check=False,
        )
        assert (ran.returncode == 0) == (not message)
        assert message in ran.stderr
        assert ran.stdout == (b"" if message else b"2 4\n")


# ---------------------------------------------------------------- the only tags are the defaults


@pytest.fixture(scope="module")
def one_way(corpus, tmp_path_factory) -> Path:
    """Return a run whose training data has one tag of sources and one of targets."""
    run = tmp_path_factory.mktemp("one-way") / "run"
    entry = {"path": "train", "tgt": "fr", "tag": "<gl>", "tgt_tag": FR}
    data = {"train": [entry, {**entry, "weight": 2}], "dev": {"path": "dev", "tgt": "fr"}}
    recipe = recipe_for(corpus, {**data, "test": {"path": "dev", "tgt": "fr"}}, **SHORT)
    assert train.main([recipe, f"out={run}"]) == 0
    return run


@pytest.mark.slow
def test_without_an_option_the_only_tags_are_used(one_way, corpus, tmp_path, capsys):
    given = ["--tag", "<gl>", "--tgt-tag", FR]
    for more in ([], ["--token-scores"], ["--score-target", corpus / "dev.fr"]):
        options = (one_way, "--input", corpus / "dev.gl", *more)
        found = texts(capsys, *options)
        assert "tag" not in capsys.readouterr().err
        assert found == texts(capsys, *options, *given)
    # dev and test sets are scored with the same tags
    found = texts(capsys, one_way, "--input", corpus / "dev.gl")
    assert (one_way / "test.hyp").read_text().splitlines() == found
    synthesized(one_way, "--input", corpus / "dev.gl", "-o", tmp_path / "bt")
    assert Path(f"{tmp_path / 'bt'}.fr").exists()  # the tag's language, not the recipe's tgt


def test_an_export_has_the_defaults(one_way, corpus, tmp_path):
    pytest.importorskip("ctranslate2")
    folder = tmp_path / "model"
    translator = nmt.Translator.load(one_way, "cpu")
    export(Model.open(one_way), folder)
    settings = json.loads((folder / "translate.json").read_text())
    assert settings["default_tags"] == {"tag": "<gl>", "tgt_tag": FR}
    lines = (corpus / "dev.gl").read_text().splitlines()
    exported = nmt.Translator.load(folder, "cpu")
    expected = translator.translate(lines, beam=1)
    assert exported.translate(lines, beam=1) == expected
    assert exported.translate(lines, beam=1, tag="<gl>", tgt_tag=FR) == expected
    alone = runpy.run_path(str(folder / "translate.py"))["Translator"](folder, device="cpu")
    explicit = [alone.translate(line, "<gl>", tgt_tag=FR) for line in lines]
    assert [alone.translate(line) for line in lines] == explicit


# ---------------------------------------------------------------- encoding, noise, resume


def prepared(recipe: str, run: Path, *more: str) -> Prepared:
    return prepare(load_recipe(recipe, [f"out={run}", *more]), False)


@pytest.fixture(scope="module")
def numbers(tmp_path_factory) -> str:
    """Return a recipe with BPE-dropout for numbers of several digits."""
    folder, rng = tmp_path_factory.mktemp("numbers"), Random(1)
    for split, size in {"train": 60, "dev": 6, "test": 6}.items():
        lines = (" ".join(str(rng.randint(0, 999)) for _ in range(4)) for _ in range(size))
        write_pairs(folder / split, [f"{line} {split} {i}" for i, line in enumerate(lines)])
    tagged = {"tag": "<gl>", "tgt_tag": EN}
    data = {
        "train": [{"path": "train", **tagged}, {"path": "train", **tagged, "tgt_tag": FR}],
        "dev": {"path": "dev", **tagged},
        "test": {"path": "test", **tagged},
        "checks": "off",
        "batch_tokens": 128,
    }
    segment = {"kind": "fastbpe", "merges": 30, "dropout": 0.3}
    return str(toy_recipe(folder, {"data": data, "segment": segment}))


def test_noise_leaves_the_tags(numbers, tmp_path):
    data = prepared(numbers, tmp_path / "run", "segment.draws=2")
    en, fr, gl = data.vocab.ids([*tag_piece(EN), *tag_piece(FR), *tag_piece("<gl>")])
    changed, half = 0, data.train.sizes[0]
    for row in range(2 * len(data.train)):
        src, tgt = data.train.src(row), data.train.tgt(row)
        assert (src[0], tgt[0]) == (gl, en if row < 2 * half else fr)
        assert not {*src[1:].tolist(), *tgt[1:].tolist()} & {en, fr, gl}
        changed += not np.array_equal(tgt, data.train.tgt(row // 2 * 2))
    assert changed > half


def test_max_pieces_does_not_count_tags(numbers, tmp_path):
    plain = prepared(numbers, tmp_path / "run", "segment.dropout=0")
    longest = int(max(plain.train.src_len.max(), plain.train.tgt_len.max())) - 1
    for limit, all_kept in ((longest, True), (longest - 1, False)):
        data = prepared(numbers, tmp_path / "run", f"data.max_pieces={limit}", "segment.dropout=0")
        assert (len(data.train) == len(plain.train)) == all_kept
        assert len(data.train) > 0


def test_the_tag_of_targets_changes_the_prepared_data(corpus, tmp_path):
    """Two recipes that differ in it alone must not share a cache."""

    def data(entry: dict[str, Any]) -> Prepared:
        recipe = recipe_for(
            corpus, {"train": [{"path": "train", **entry}], "dev": "dev", "test": "dev"}
        )
        return prepared(recipe, tmp_path / "run")

    made = [data(entry) for entry in ({}, {"tgt_tag": EN}, {"tgt_tag": FR}, {"tag": EN})]
    assert len({one.data_hash for one in made}) == 4
    assert [one.vocab.tgt_tags for one in made] == [[], [EN], [FR], []]
    assert [one.vocab.tags for one in made] == [[], [], [], [EN]]
    first = {len(one.train.tgt(0)) - len(made[0].train.tgt(0)) for one in made[1:3]}
    assert first == {1}
    assert [one.dev[0].direction.tgt_tag for one in made] == [None, EN, FR, None]


def test_another_tag_is_refused_on_resume(corpus, tmp_path, capsys):
    run = tmp_path / "run"
    recipe = recipe_for(corpus, {"dev": {"path": "dev", **TO_EN}, "test": "none"}, **SHORT)
    assert train.main([recipe, f"out={run}"]) == 0
    files = corpus / "train"
    entries = f"{{path: {files}, tgt_tag: <en>}}, {{path: {files}, tgt: fr, tgt_tag: <pt>}}"
    assert train.main([recipe, f"out={run}", "--resume", f"data.train=[{entries}]"]) == 2
    assert "tgt_tag: <fr> -> <pt>" in capsys.readouterr().err


def test_without_a_logit_mask_the_forced_tag_is_the_only_one(corpus, tmp_path):
    run, entry = tmp_path / "run", {"path": "train", "tag": "<gl>"}
    recipe = recipe_for(corpus, {"train": [{**entry, **TO_EN}, {**entry, **TO_FR}]}, **SHORT)
    assert train.main([recipe, f"out={run}", "model.logit_mask=false"]) == 0
    translator = nmt.Translator.load(run, "cpu")
    assert len(translator.codec.vocab.reserved_ids) == 3
    with torch.no_grad():
        translator.transformer.out_bias[translator.codec.vocab.reserved_ids] = 100.0
    assert "<" not in "".join(translator.translate(["1 2 3"], tgt_tag=FR))
    pytest.importorskip("ctranslate2")
    model = model_folder(translator, tmp_path / "model")
    exported = nmt.Translator.load(model, "cpu", engine="ctranslate2")
    assert "<" not in "".join(exported.translate(["1 2 3"], tgt_tag=FR))


# ---------------------------------------------------------------- several models


@pytest.mark.slow
def test_an_ensemble_and_a_reverse_model_take_tags(learned, corpus, tmp_path, capsys):
    back = tmp_path / "back"
    entries = [
        {"path": "train", "src": "fr", "tgt": "gl", "tgt_tag": "<gl>"},
        {"path": "train", "src": "fr", "tgt": "en", "tgt_tag": EN},
    ]
    dev = {"path": "dev", "src": "fr", "tgt": "gl", "tgt_tag": "<gl>"}
    recipe = recipe_for(corpus, {"train": entries, "dev": dev, "test": {**dev}}, **SHORT)
    assert train.main([recipe, f"out={back}", "src=fr", "tgt=en"]) == 0
    source = corpus / "dev.gl"
    one = texts(capsys, learned, "--input", source, "--tgt-tag", FR)
    assert texts(capsys, learned, learned, "--input", source, "--tgt-tag", FR) == one
    options = (learned, "--input", source, "--tgt-tag", FR, "--reverse", back)
    tag = ("--reverse-tgt-tag", "<gl>")
    found = texts(capsys, *options, *tag, "--candidates", 3, "--reverse-weight", 0.01)
    assert sum(a == b for a, b in zip(found, one, strict=True)) >= 0.9 * len(one)
    assert translate.main([*map(str, options)]) == 2
    assert "always saw a target tag; its target tags: <en>, <gl>" in capsys.readouterr().err
    argv = [str(learned), "--input", str(source), "--tgt-tag", FR, *tag]
    assert translate.main(argv) == 2
    assert "--reverse-tgt-tag requires --reverse" in capsys.readouterr().err
