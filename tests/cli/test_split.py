"""nmt-translate with lines of several sentences, short translations and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from nmt.cli import translate
from nmt.decoding.translator import Translator
from nmt.text.sentences import UsualLine
from tests.decoding.ctranslate2.cases import model_folder
from tests.decoding.untrained import untrained
from tests.run_cases import edit_model

LINES = ["O can bebe auga.", "", "A gata vella. Hoxe non chove.  O mar, señor.", "pan"]
Command = Callable[..., tuple[int, list[str], str]]


def model(sentences: int | None, eos_bias: float = 3.5) -> Translator:
    translator = untrained(eos_bias=eos_bias)
    translator.codec.usual = UsualLine(sentences)
    return translator


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Return a function that translates LINES: (exit code, output, standard error)."""
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in LINES))

    def run(folder: Path, *argv: str | Path) -> tuple[int, list[str], str]:
        given = ["--input", tmp_path / "in", "--workers", "1", "--device", "cpu"]
        code = translate.main([str(word) for word in (folder, *given, *argv)])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out.splitlines(), err

    return run


def test_lines_of_several_sentences_are_split_by_the_counts_of_the_run(command, tmp_path):
    run = model_folder(model(1), tmp_path / "run")
    loaded = Translator.load(run, "cpu")
    assert loaded.codec.usual == UsualLine(1, 1.0)
    code, out, _ = command(run)
    assert (code, out) == (0, loaded.translate(LINES))
    whole = command(run, "--split", "line")[1]
    assert (out[:2], out[3]) == (whole[:2], whole[3])
    assert out[2] != whole[2]
    assert command(model_folder(model(None), tmp_path / "old"))[1] == whole


def test_short_translations_are_named_at_the_end(command: Command, tmp_path: Path) -> None:
    run = model_folder(model(1, eos_bias=12), tmp_path / "run")
    assert "too short" not in command(run)[2]
    edit_model(run, usual_line={"sentences": 1, "length_ratio": 3.0, "abbreviations": {}})
    _, _, err = command(run)
    assert "note: 2 translations too short for the source, so text is missing: lines 1, 3" in err
    _, out, _ = command(run, "--json")
    assert [json.loads(line)["short"] for line in out] == [True, False, True, False]


def test_json_has_an_n_best_list_without_token_scores(command: Command, tmp_path: Path) -> None:
    run = model_folder(model(1), tmp_path / "run")
    expected = Translator.load(run, "cpu").n_best(LINES, 2)
    _, out, _ = command(run, "--n-best", "2", "--json")
    found = [json.loads(line) for line in out]
    flat = [(number, one) for number, of_line in enumerate(expected) for one in of_line]
    assert [(one["line"], one["text"]) for one in found] == [(n, one.text) for n, one in flat]
    assert [one["score"] for one in found] == [one.score for _, one in flat]
    assert {str(one["token_log_probs"]) for one in found} == {"[]"}
