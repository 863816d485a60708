"""Run folders as members of an ensemble."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from nmt.decoding.translator import Translator
from nmt.errors import UserError
from nmt.export.engines import load_translator
from tests.run_cases import forget_recipe

FIXTURES = Path(__file__).parents[1] / "fixtures" / "runs"
RUN, OTHER = FIXTURES / "plain" / "run", FIXTURES / "fastbpe" / "run"


def test_a_run_twice_translates_as_once():
    lines = (FIXTURES / "plain" / "test.gl").read_text(encoding="utf-8").splitlines()
    assert Translator.load([RUN, RUN]).translate(lines) == Translator.load(RUN).translate(lines)


@pytest.mark.parametrize("engine", ["torch", "auto", "ctranslate2"])
def test_an_empty_list_of_runs_is_an_error(engine):
    with pytest.raises(UserError, match="folder is given"):
        load_translator([], engine=engine)


@pytest.mark.parametrize("name", ["vocab.txt", "config.yaml"])
def test_runs_with_other_pieces_or_languages_are_refused(tmp_path, name):
    other, what = OTHER, "contents"
    if name == "config.yaml":
        other, what = tmp_path / "run", "languages"
        shutil.copytree(RUN, other)
        forget_recipe(other)
        config = other / name
        config.write_text(config.read_text(encoding="utf-8").replace("tgt: en", "tgt: pt"))
    message = f"{other / name}: its {what} differ from those of the first run"
    with pytest.raises(UserError, match=re.escape(message)):
        Translator.load([RUN, other])
