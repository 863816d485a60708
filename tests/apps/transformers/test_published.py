"""Folders in the layout of published models are converted, and compute what transformers does."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmt.cli.convert import main
from nmt.decoding.translator import Translator
from nmt.store.model import Model
from tests.apps.transformers import folders, published
from tests.apps.transformers.test_parity import (
    Case,
    _compare_logits,
    compare_pieces,
    compare_translations,
)

pytest.importorskip("transformers")


@pytest.mark.slow
@pytest.mark.parametrize("name", published.LAYOUTS)
def test_a_published_model_is_converted(name: str, tmp_path: Path) -> None:
    folder, run = tmp_path / name, tmp_path / "run"
    layout, theirs, tokenizer = published.write(name, folder)
    options = ("--src-lang", layout.src, "--tgt-lang", layout.tgt)
    given = [word for i in (0, 2) if options[i + 1] for word in options[i : i + 2]]
    assert main([str(folder), "-o", str(run), *given]) == 0
    origin = Model.open(run).about.origin
    assert origin is not None
    assert origin.license == layout.license
    # others state no name of the hub
    named = name.startswith("opus-mt-") and "tc-big" not in name
    assert origin.source == f"Helsinki-NLP/{name}" if named else name
    if layout.tags[1]:
        tokenizer.src_lang, tokenizer.tgt_lang = layout.tags
    family = layout.make.__name__.replace("<lambda>", "marian")
    ours = Translator.load(run, "cpu", engine="torch")  # CTranslate2 has another share for UNK
    case = Case(family, tmp_path, theirs, tokenizer, ours)
    prefix = "" if layout.tags[1] else layout.tags[0]
    for side in ("src", "tgt"):
        assert compare_pieces(case, side, folders.odd_lines(400)) > 350
    difference = _compare_logits(case, (prefix.strip("<>"),) if prefix else ())
    assert difference < 1e-4  # fp32: the sum of about 300 probabilities
    different = compare_translations(case, folders.lines(3)[:40], prefix)
    print(f"{name}: log-probabilities differ by {difference:.1e}, {different} translations")
    decode = case.ours.info.decode
    stated = layout.settings["generation_config.json"].get("num_beams", 4)
    assert (decode.beam, decode.length_penalty, decode.length_alpha) == (stated, "mean", 1.0)
    assert case.ours.codec.usual.sentences == 1
