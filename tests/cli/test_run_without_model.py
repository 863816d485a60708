"""A run that trains and has no model yet: every command that takes a run says so."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path

import pytest

from nmt.store.folder import RunFolder
from tests.toy import toy_corpus, toy_recipe
from tests.trained import short_run as short_run

COMMANDS = {
    "translate": ["RUN", "--input", "LINES"],
    "translate several": ["RUN", "TRAINED", "--input", "LINES"],
    "documents": ["RUN", "LINES", "-o", "NEW/"],
    "synthesize": ["RUN", "-o", "NEW", "--input", "LINES"],
    "serve": ["RUN"],
    "export": ["RUN", "--output", "NEW"],
    "score": ["RUN"],
    "score dev": ["RUN", "--split", "dev"],
    "score several": ["TRAINED", "RUN"],
    "calibrate": ["RUN"],
    "average": ["RUN", "--checkpoints", "u000004", "-o", "NEW"],
    "train": ["RECIPE", "init.from=RUN", "out=NEW"],
    "suggest": ["PREFIX", "--parent", "RUN"],
}
# states of the folder, by what a training has written so far
BEGUN = {"config only": (), "first update": ("checkpoints/text",)}


@pytest.mark.parametrize("state", BEGUN)
@pytest.mark.parametrize("name", COMMANDS)
def test_the_error_says_that_there_is_no_model_yet(name, state, short_run, tmp_path, capsys):
    toy_corpus(tmp_path)
    run = tmp_path / "begun"
    (run / "checkpoints").mkdir(parents=True)
    (run / "dev").mkdir()
    for kept in ("config.yaml", *BEGUN[state]):
        source, copied = short_run / kept, run / kept
        shutil.copytree(source, copied) if source.is_dir() else shutil.copy(source, copied)
    (tmp_path / "lines").write_text("1 2 3\n")
    places = {
        "RUN": run, "TRAINED": short_run, "LINES": tmp_path / "lines", "NEW": tmp_path / "new",
        "RECIPE": toy_recipe(tmp_path), "PREFIX": tmp_path / "train",
    }  # fmt: skip
    words = []
    for word in COMMANDS[name]:
        for place, path in places.items():
            word = word.replace(place, str(path)) if word.isupper() or "=" in word else word
        words.append(word)
    main = importlib.import_module(f"nmt.cli.{name.partition(' ')[0]}").main
    assert main(words) == 2
    message = capsys.readouterr().err
    assert "yet" in message
    assert "  -> " in message
    assert not RunFolder(run).best()


def test_a_run_with_a_checkpoint_and_no_model_names_the_command_that_makes_one(
    short_run, tmp_path, capsys
):
    run = Path(shutil.copytree(short_run, tmp_path / "run"))
    shutil.rmtree(run / "model")
    from nmt.cli.translate import main

    assert main([str(run)]) == 2
    assert f"nmt-average {run} --checkpoints u0000" in capsys.readouterr().err
