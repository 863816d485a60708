"""spBLEU equals sacreBLEU's: a small SentencePiece model stands for the published ones."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import sacrebleu.tokenizers.tokenizer_spm
import sentencepiece
from sacrebleu.metrics import BLEU

import nmt.scoring.spbleu
from nmt.cli.score import main
from nmt.scoring.metrics import METRICS, score, sentence_scores
from tests.scoring.runs import write_lines
from tests.scoring.texts import hypothesis, reference

REFS = reference(30)
HYPS = hypothesis(REFS, 30)
FILES = {"spbleu": "flores200sacrebleuspm", "spbleu101": "sacrebleu_tokenizer_spm.model"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spm")
    write_lines(folder / "text", reference(500, seed=3))
    sentencepiece.SentencePieceTrainer.Train(
        input=str(folder / "text"), model_prefix=str(folder / "m"), vocab_size=60, model_type="bpe",
        minloglevel=2,
    )  # fmt: skip
    return folder / "m.model"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Let sacreBLEU keep its models in an empty folder, and leave METRICS as it was."""
    for module in (nmt.scoring.spbleu, sacrebleu.tokenizers.tokenizer_spm):
        monkeypatch.setattr(module, "SACREBLEU_DIR", str(tmp_path))
    for name in FILES:
        monkeypatch.setitem(METRICS, name, METRICS[name])
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


@pytest.mark.parametrize("name", FILES)
def test_scores_and_signature_are_those_of_sacrebleu(name, model, folder):
    shutil.copy(model, folder / FILES[name])
    tokenizer = METRICS[name].tokenizer
    expected = BLEU(tokenize=tokenizer)
    (found,) = score(HYPS, REFS, [name], "gl")
    assert found.value == expected.corpus_score(HYPS, [REFS]).score
    assert 0 < found.value < 100
    assert found.value != score(HYPS, REFS, ["bleu"], "gl")[0].value
    assert found.signature == str(expected.get_signature())
    assert f"tok:{tokenizer}|" in found.signature
    single = BLEU(tokenize=tokenizer, effective_order=True)
    (lines,) = sentence_scores(HYPS, REFS, [name], "gl")
    assert lines.values == [
        single.sentence_score(hyp, [ref]).score for hyp, ref in zip(HYPS, REFS, strict=True)
    ]
    assert "eff:yes" in lines.signature


def test_a_model_at_a_path_gives_the_same_score_and_names_its_hash(model, folder, tmp_path, capsys):
    files = [str(write_lines(tmp_path / name, x)) for name, x in (("hyp", HYPS), ("ref", REFS))]
    argv = ["--hyp", files[0], "--ref", files[1], "--metrics", "spbleu", "--json"]
    assert main([*argv, "--resamples", "100", "--spbleu-model", str(model)]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["scores"]
    digest = hashlib.sha256(model.read_bytes()).hexdigest()[:8]
    assert f"|tok:flores200-sha256:{digest}|" in entry["signature"]
    shutil.copy(model, folder / FILES["spbleu"])
    assert entry["score"] == BLEU(tokenize="flores200").corpus_score(HYPS, [REFS]).score


def test_nothing_is_downloaded(folder, tmp_path, capsys):
    files = [str(write_lines(tmp_path / name, x)) for name, x in (("hyp", HYPS), ("ref", REFS))]
    argv = ["--hyp", files[0], "--ref", files[1], "--resamples", "0"]
    assert main([*argv, "--metrics", "spbleu"]) == 2
    message = capsys.readouterr().err
    place = folder / FILES["spbleu"]
    assert f"{place}: spBLEU needs the SentencePiece model flores200" in message
    assert f"curl -L --create-dirs -o {place} https://" in message
    place.write_bytes(b"damaged")
    for more in ([], ["--spbleu-model", str(place)]):
        assert main([*argv, "--metrics", "spbleu", *more]) == 2
        assert f"{place}: is not a SentencePiece model" in capsys.readouterr().err
    assert main(argv) == 0  # the default metrics do not need it
