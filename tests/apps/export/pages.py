"""Run the engine of a page in node, and models that it runs."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nmt.apps.export.browser import folded, model_script, translate_script
from nmt.config.recipe import SentencePieceConfig
from nmt.data.segmenters import Segmenter
from nmt.data.vocab import Vocab
from nmt.decoding.translator import Translator
from nmt.store.model import Model
from tests.decoding.ctranslate2.cases import OTHERS, model_folder, pairs
from tests.decoding.untrained import learned
from tests.model_cases import random_variants

NODE = shutil.which("node")
HARNESS = Path(__file__).with_name("engine.js")
# in addition to OTHERS: sizes that are no multiple of the kernel's 16 lanes, and CTranslate2's gaps
VARIANTS: list[dict[str, Any]] = [
    *(keys for keys in OTHERS if keys.get("src_eos", True)),  # the page refuses these
    *({"dim": 20, "heads": heads, "ffn_dim": 36} for heads in (1, 5)),
    {"positions": "learned", "dim": 20, "tie": "none"},
    {"norm_eps": 0.5},
    *random_variants(24, seed=5),
]


@functools.cache
def words() -> tuple[Segmenter, Vocab]:
    """Return SentencePiece and a vocabulary with some types that only the source has."""
    return learned(SentencePieceConfig(vocab_size=150), pairs(), normalize="clean")


def script_of(translator: Translator, folder: Path, storage: str = "fp32") -> str:
    """Return model.js of a translator; ``folder`` is new."""
    model = Model.open(model_folder(translator, folder))
    return model_script(model, *folded(model), storage)


def in_node(cases: Sequence[dict[str, Any]], folder: Path) -> list[Any]:
    """Run the cases of engine.js in node."""
    engine, given, results = (folder / n for n in ("translate.js", "cases.json", "results.json"))
    engine.write_text(translate_script(), encoding="utf-8")
    given.write_text(json.dumps(cases), encoding="utf-8")
    command = [NODE, HARNESS, engine, given, results]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return json.loads(results.read_text(encoding="utf-8"))
