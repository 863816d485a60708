"""Scores that are not finite: an error that names the checkpoint, never a blank line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nmt.cli.translate import main
from nmt.decoding.codec import SearchInput
from nmt.decoding.load import load_run
from nmt.decoding.translator import Translator
from nmt.errors import RunError, UserError
from nmt.export.backend import load_exported
from nmt.export.folder import export
from tests.decoding.untrained import LINES, untrained
from tests.export.cases import made, run_folder


def broken(value: float, frozen: bool = False) -> Translator:
    translator = untrained()
    harm(translator, value)
    if frozen:
        translator.model.prepare_for_inference(torch.float32)
    translator.source = "runs/x/checkpoints/u000007"
    return translator


def harm(translator: Translator, value: float) -> None:
    """Logits are not finite: what is added to the largest of them is as large."""
    model = translator.transformer
    with torch.no_grad():
        assert model.decoder.norm is not None
        assert model.out_bias is not None
        next(model.decoder.norm.parameters()).fill_(value)
        model.out_bias.fill_(value)


CALLS: dict[str, Callable[[Translator], Any]] = {
    "plain": lambda t: t.translate(LINES),
    "greedy": lambda t: t.translate(LINES, beam=1),
    "n-best": lambda t: t.n_best(LINES, 3),
    "sample": lambda t: t.translate(LINES, sample=True),
    "groups": lambda t: t.translate(LINES, groups=2),
    "require": lambda t: list(t.stream(LINES, require=[["dog"]] * len(LINES))),
    "prefix": lambda t: list(t.stream(LINES, prefix=["the"] * len(LINES))),
    "forbid": lambda t: t.translate(LINES, forbid_all=("dog",)),
    "score": lambda t: t.score(LINES, LINES),
}


@pytest.mark.parametrize("frozen", [False, True], ids=["plain", "frozen"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 3e38])
@pytest.mark.parametrize("call", CALLS)
def test_scores_that_are_not_finite_are_an_error(call: str, value: float, frozen: bool) -> None:
    translator = broken(value, frozen)
    with pytest.raises(RunError, match=r"u000007: .*line \d.* not finite") as caught:
        CALLS[call](translator)
    assert "--checkpoint" in str(caught.value.fix)


def test_a_model_in_training_is_not_told_to_take_a_checkpoint() -> None:
    translator = broken(float("nan"))
    translator.source = None
    with pytest.raises(RunError, match="not finite") as caught:
        translator.translate(LINES)
    assert "learning rate" in str(caught.value.fix)


def test_a_sentence_is_alone_with_its_scores() -> None:
    """One broken embedding harms the lines that have it, and they are named."""
    translator = untrained()
    row = translator.vocab.ids(translator.segmenter.encode("señor", "gl"))[0]
    with torch.no_grad():
        translator.transformer.embed.weight[row] = float("nan")
    # the table is of both sides: only types that the target never has can be broken alone
    translator.model.allowed[row] = False
    with pytest.raises(RunError, match="line 3 "):
        translator.translate(["pan", "pan", "señor", "pan"])


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_the_command_names_the_checkpoint(
    engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    translator = made()
    harm(translator, 3e38)  # a checkpoint with NaN is not written
    run = run_folder(translator, tmp_path / "run")
    (tmp_path / "in").write_text("a\nb\n")
    argv = [str(run), "--device", "cpu", "--input", str(tmp_path / "in"), "--engine", engine]
    assert main(argv) == 3
    out, err = capsys.readouterr()
    assert out == ""
    name = load_run(run, "best").checkpoint.name
    assert f"{run}/checkpoints/{name}: the scores of line 1 are not finite" in err


def test_an_export_names_itself(tmp_path: Path) -> None:
    translator = made()
    harm(translator, 3e38)  # a checkpoint with NaN is not written
    export(translator, tmp_path / "out")
    with pytest.raises(RunError, match=f"{tmp_path}/out: .*not finite"):
        load_exported(tmp_path / "out", "cpu").translate(["a"])


def test_a_line_that_may_say_nothing_is_an_error() -> None:
    """All that it could say is forbidden: the search finds nothing, which was a blank line."""
    with pytest.raises(UserError, match="line 3: every translation is forbidden") as caught:
        untrained().sentences.join([[]], [SearchInput(np.array([4]), (3, 0))])
    assert caught.value.fix
