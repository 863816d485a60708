"""Scores that are not finite are an error that names the checkpoint, never a blank line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from nmt.cli.translate import main
from nmt.decoding.engine import SearchInput
from nmt.decoding.translator import Translator
from nmt.errors import Diverged, RunError, UserError
from tests.decoding.ctranslate2.cases import made, model_folder
from tests.decoding.untrained import LINES, untrained


def broken(value: float, for_inference: bool = False) -> Translator:
    translator = untrained()
    break_weights(translator, value)
    if for_inference:
        translator.transformer.prepare_for_inference(torch.float32)
    translator.info = replace(translator.info, source="runs/x/checkpoints/u000007")
    return translator


def break_weights(translator: Translator, value: float) -> None:
    """Make the logits infinite or NaN, by weights of this value."""
    model = translator.transformer
    with torch.no_grad():
        next(model.decoder.norm.parameters()).fill_(value)
        model.out_bias.fill_(value)


CALLS: dict[str, Callable[[Translator], Any]] = {
    "plain": lambda t: t.translate(LINES),
    "greedy": lambda t: t.translate(LINES, beam=1),
    "n-best": lambda t: t.n_best(LINES, 3),
    "sample": lambda t: t.translate(LINES, sample=True),
    "require": lambda t: list(t.stream(LINES, require=[["dog"]] * len(LINES))),
    "prefix": lambda t: list(t.stream(LINES, prefix=["the"] * len(LINES))),
    "score": lambda t: t.score(LINES, LINES),
}


VALUES = [float("nan"), float("inf"), 3e38]
CASES = [(call, VALUES[0], False) for call in CALLS]
CASES += [("plain", value, inference) for value in VALUES for inference in (False, True)][1:]


@pytest.mark.parametrize(("call", "value", "for_inference"), CASES)
def test_non_finite_scores_are_an_error(call, value, for_inference):
    translator = broken(value, for_inference)
    with pytest.raises(RunError, match=r"u000007: .*line \d.* not finite") as caught:
        CALLS[call](translator)
    assert "--checkpoints" in str(caught.value.fix)


def test_a_model_in_training_has_diverged():
    translator = broken(float("nan"))
    translator.info = replace(translator.info, source=None)
    with pytest.raises(Diverged, match="not finite") as caught:
        translator.translate(LINES)
    assert "learning rate" in str(caught.value.fix)


def test_the_error_names_the_line_with_non_finite_scores():
    """One broken embedding breaks only the lines that contain it."""
    translator = untrained()
    row = translator.codec.vocab.ids(translator.codec.segmenter.encode("señor", "gl"))[0]
    with torch.no_grad():
        translator.transformer.embed.weight[row] = float("nan")
    # both sides share the table, so break a type that the target side lacks
    translator.transformer.allowed[row] = False
    with pytest.raises(RunError, match="line 3 "):
        translator.translate(["pan", "pan", "señor", "pan"])


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_the_command_names_the_model(engine, tmp_path, capsys):
    if engine == "ctranslate2":
        pytest.importorskip("ctranslate2")
    translator = made()
    break_weights(translator, 3e38)  # a checkpoint with NaN is not written
    run = model_folder(translator, tmp_path / "run")
    (tmp_path / "in").write_text("a\nb\n")
    argv = [str(run), "--device", "cpu", "--input", str(tmp_path / "in"), "--engine", engine]
    assert main(argv) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert f"{run}: the scores of line 1 are not finite" in err


def test_a_line_without_allowed_translations_is_an_error():
    """If the search finds none; the line must not become blank."""
    with pytest.raises(UserError, match="line 3: the options allow no translation") as caught:
        untrained().codec.decode_line([[]], [SearchInput(np.array([4]), line=3)])
    assert caught.value.fix
