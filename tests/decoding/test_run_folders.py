"""Run folders as members of an ensemble."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from nmt.decoding.translator import Translator
from nmt.errors import UserError
from nmt.store.model import is_model
from tests.run_cases import edit_model

FIXTURES = Path(__file__).parents[1] / "fixtures" / "runs"
RUN, OTHER = FIXTURES / "plain" / "run", FIXTURES / "fastbpe" / "run"


def test_a_run_twice_translates_as_once():
    lines = (FIXTURES / "plain" / "test.gl").read_text(encoding="utf-8").splitlines()
    assert Translator.load([RUN, RUN]).translate(lines) == Translator.load(RUN).translate(lines)


@pytest.mark.parametrize("engine", ["torch", "auto", "ctranslate2"])
def test_an_empty_list_of_runs_is_an_error(engine):
    with pytest.raises(UserError, match="no model is given"):
        Translator.load([], engine=engine)


@pytest.mark.parametrize("what", ["vocabulary", "languages"])
def test_models_with_other_pieces_or_languages_are_refused(tmp_path, what):
    other = OTHER
    if what == "languages":
        other = tmp_path / "model"
        shutil.copytree(RUN / "model", other)
        edit_model(other, tgt="pt")
    with pytest.raises(UserError, match=what) as refused:
        Translator.load([RUN, other])
    assert refused.value.at == str(other if is_model(other) else other / "model")
