"""Folders in the layout of published models: their files and settings, small random weights.

The settings are those of the models on the hub, as far as public sources show them, except sizes
and the ids that follow from them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file

from tests.apps.transformers import folders

ROMANCE = "fr fr_BE es es_AR pt pt_br gl ca it ro la"
TARGETS = ("afr", "cat", "deu", "fra", "glg", "nob", "nno", "por", "spa", "zho_Hans")


class Layout(NamedTuple):
    """A published model.

    Attributes:
        make: writes a folder of its family.
        settings: by file; null removes a key.
        src, tgt: options of nmt-convert; empty = not given.
        tags: its language tokens before a source and a target, in transformers; empty = none.
        weights: file of the weights: safetensors, bin, or old = as torch wrote it before 1.6.
        removed: files that it lacks.
        license: in its README.md.
    """

    make: Callable[..., Any]
    settings: dict[str, dict[str, Any]]
    src: str = ""
    tgt: str = ""
    tags: tuple[str, str] = ("", "")
    weights: str = "bin"
    removed: tuple[str, ...] = ()
    license: str = "apache-2.0"
    readme: str = ""
    dtype: torch.dtype = torch.float32


def _opus(
    name: str, source: str, target: str, languages: tuple[str, ...] = (), **others: Any
) -> Layout:
    """The first OPUS-MT models: a tokenizer_config.json of two keys, files of torch before 1.6."""
    config = {
        "_name_or_path": f"/tmp/Helsinki-NLP/{name}", "num_beams": 4, "max_length": 512,
        "add_bias_logits": False, "static_position_embeddings": True, "num_hidden_layers": 2,
        "max_position_embeddings": 512, "init_std": 0.02, "bos_token_id": 0, "_num_labels": 3,
    }  # fmt: skip
    generation = {
        "_from_model_config": None, "bos_token_id": 0, "forced_eos_token_id": 0, "num_beams": 4,
        "max_length": 512, "renormalize_logits": True,
    }  # fmt: skip
    return Layout(
        make=lambda folder, **k: folders.marian(folder, tags=languages, **k),
        settings={
            "config.json": config,
            "generation_config.json": generation,
            "tokenizer_config.json": {"target_lang": target, "source_lang": source},
        },
        weights="old",
        **others,
    )


def _big(separate: bool) -> Layout:
    """A model of the series tc-big: fp16, relu."""
    tokenizer = {
        "source_lang": "en", "target_lang": "cat_oci_spa", "unk_token": "<unk>",
        "eos_token": "</s>", "pad_token": "<pad>", "model_max_length": 512, "sp_model_kwargs": {},
        "special_tokens_map_file": None, "tokenizer_class": "MarianTokenizer",
        "separate_vocabs": separate,
        "name_or_path": "marian-models/opusTCv20210807+bt_transformer-big_2022-03-13/en-cat",
    }  # fmt: skip
    config = {
        "_name_or_path": "marian-models/opusTCv20210807", "activation_function": "relu",
        "num_beams": 4, "max_length": 512,
        "num_hidden_layers": 2, "static_position_embeddings": True, "bos_token_id": 0,
    }  # fmt: skip
    return Layout(
        make=lambda folder, **k: folders.marian(
            folder, tags=("cat", "oci", "spa"), separate=separate, **k
        ),
        settings={
            "config.json": config,
            "tokenizer_config.json": tokenizer,
            "special_tokens_map.json": {"eos_token": "</s>", "pad_token": "<pad>"},
            "generation_config.json": {"num_beams": 4, "max_length": 512, "bos_token_id": 0},
        },
        tgt="ca",
        tags=(">>cat<<", ""),
        license="cc-by-4.0",
        dtype=torch.float16,
    )


_LANGS = {"src_lang": None, "tgt_lang": None}
_BEAM_5 = {"max_length": 200, "num_beams": 5, "early_stopping": True}
_NLLB = Layout(
    folders.nllb,
    {
        "config.json": {"tokenizer_class": "NllbTokenizer", "max_length": 200},
        "generation_config.json": {"max_length": 200},
        "tokenizer_config.json": {
            **folders.SPECIALS,
            **_LANGS,
            "tokenizer_class": "NllbTokenizer",
            "model_max_length": 1024,
            "sp_model_kwargs": {},
        },
    },
    "en",
    "sw",
    ("eng_Latn", "swh_Latn"),
    license="cc-by-nc-4.0",
)
_ROMANCE_CARD = f"* source languages: {ROMANCE.replace(' ', ',')}\n* target languages: en\n"
LAYOUTS = {
    "opus-mt-en-de": _opus("opus-mt-en-de", "en", "de"),
    "opus-mt-ROMANCE-en": _opus(
        "opus-mt-ROMANCE-en", "ROMANCE", "en", src="gl", readme=_ROMANCE_CARD
    ),
    "opus-mt-mul-en": _opus(
        "opus-mt-mul-en", "mul", "eng", src="gl", readme="* source language(s): abk glg zul\n"
    ),
    "opus-mt-en-mul": _opus(
        "opus-mt-en-mul", "eng", "mul", TARGETS, tgt="nb", tags=(">>nob<<", "")
    ),
    "opus-mt-tc-big-en-cat_oci_spa": _big(separate=False),
    "opus-mt-tc-big-en-cat_oci_spa, two vocabularies": _big(separate=True),
    "m2m100_418M": Layout(
        folders.m2m100,
        {
            "config.json": {
                "_name_or_path": "hf_models/m2m100_418M", "tokenizer_class": "M2M100Tokenizer",
                "gradient_checkpointing": False, **_BEAM_5,
            },
            "generation_config.json": _BEAM_5,
            "tokenizer_config.json": {
                **_LANGS, "tokenizer_class": "M2M100Tokenizer", "language_codes": "m2m100",
                "num_madeup_words": 8,
            },
        },
        "en",
        "sw",
        ("en", "sw"),
        license="mit",
    ),
    "nllb-200-distilled-600M": _NLLB,
    "nllb-200-distilled-600M, saved by transformers 5": _NLLB._replace(
        weights="transformers 5", removed=("sentencepiece.bpe.model", "special_tokens_map.json")
    ),
    "mbart-large-50-many-to-many-mmt": Layout(
        folders.mbart50,
        {
            "config.json": {
                "_name_or_path": "./", "_num_labels": 3, "add_bias_logits": False,
                "static_position_embeddings": False, "output_past": True, **_BEAM_5,
            },
            "generation_config.json": {"forced_eos_token_id": 2, **_BEAM_5},
            "tokenizer_config.json": {**folders.SPECIALS, **_LANGS},
        },
        "en",
        "sw",
        ("en_XX", "sw_KE"),
        removed=("tokenizer.json",),
        license="mit",
    ),
}  # fmt: skip


def write(name: str, folder: Path) -> tuple[Layout, Any, Any]:
    """Write the folder of a published model; return layout, and transformers' model, tokenizer."""
    from transformers import AutoTokenizer

    layout = LAYOUTS[name]
    model = layout.make(folder, dtype=layout.dtype)
    for file, values in layout.settings.items():
        path = folder / file
        merged = path.exists() and file != "tokenizer_config.json"
        old = json.loads(path.read_text()) if merged else {}
        folders.write_json(path, old | values)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if layout.weights == "transformers 5":
        tokenizer.save_pretrained(folder)
    else:
        tensors = load_file(folder / "model.safetensors")
        _add_copies(tensors)
        (folder / "model.safetensors").unlink()
        torch.save(
            tensors,
            folder / "pytorch_model.bin",
            _use_new_zipfile_serialization=layout.weights != "old",
        )
    for file in layout.removed:
        (folder / file).unlink(missing_ok=True)
    head = f"language:\n- roa\n- en\n\ntags:\n- translation\n\nlicense: {layout.license}\n"
    (folder / "README.md").write_text(f"---\n{head}---\n\n### {name}\n\n{layout.readme}")
    return layout, type(model).from_pretrained(folder, dtype=torch.float32).eval(), tokenizer


def _add_copies(tensors: dict[str, Any]) -> None:
    """Add the names that files of older versions have for the shared embedding."""
    if "model.shared.weight" in tensors:
        for name in ("model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head"):
            tensors.setdefault(f"{name}.weight", tensors["model.shared.weight"])
