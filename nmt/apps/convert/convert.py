"""Make a run folder from a model of transformers: read, check, convert, then write."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from torch import Tensor

import nmt
from nmt.apps.convert.families import Text, family_of
from nmt.apps.convert.folder import CONFIG, HubFolder
from nmt.apps.convert.languages import match_language
from nmt.apps.convert.weights import Weights, make_vocabulary, model_keys
from nmt.config.load import dump_recipe, recipe_from_text
from nmt.data.segmenters import save_segmenter
from nmt.data.segmenters.sentencepiece import read_model
from nmt.data.vocab import Vocab
from nmt.decoding.codec import text_hash
from nmt.errors import UserError
from nmt.export.folder import check_output, output_folder
from nmt.run.checkpoint import TrainState, checkpoint_name, save_checkpoint
from nmt.run.folder import RunFolder
from nmt.run.lifecycle import fixed_values
from nmt.run.origin import FILE, Origin
from nmt.run.results import write_summary
from nmt.runtime.files import AGAIN, disk_errors

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")  # others are paths of a machine
MODEL_TYPES = ("bpe", "unigram")  # that segment.model_type can name


def convert(
    path: Path,
    output: Path,
    *,
    src: str | None = None,
    tgt: str | None = None,
    source: str | None = None,
    license_id: str | None = None,
    force: bool = False,
) -> tuple[Origin, str]:
    """Write a run folder with the model of a folder.

    Args:
        output: the run folder; it gets its name when it is complete.
        src, tgt: languages, in any form; None = as the tokenizer states them.
        source: name of the model; None = as config.json or the folder has it.
        license_id: of the weights; None = as README.md states it.
        force: replace a folder that this function wrote.

    Returns:
        Where the weights are from, and the tags of the run for people.

    Raises:
        UserError: the folder is not a complete model of a known family, the model lacks a language,
            or the output exists.
        MachineError: the memory or the disk does not suffice.
    """
    check_output(output, force, FILE)
    folder = HubFolder(path)
    family = family_of(folder)
    text = family.text(folder)
    entry, langs = choose_languages(text, src, tgt)
    keys = model_keys(family, folder)
    weights = Weights(folder)
    stated = str(folder.config.get("_name_or_path"))
    name = source or (stated if _HUB_NAME.fullmatch(stated) else path.absolute().name)
    recipe = _recipe(text, {**keys, **weights.keys}, entry, langs, name, folder)
    vocab = make_vocabulary(text, weights.forbidden())
    tensors = weights.convert(nmt.model_config(recipe.model), text, vocab)
    named_license = folder.front_matter().get("license")
    origin = Origin(
        source=name,
        family=family.name,
        license=license_id or (named_license if isinstance(named_license, str) else None),
        files=folder.digests(),
        version=nmt.__version__,
    )
    needed = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    with (
        disk_errors(output, needed, "choose another folder", AGAIN),
        output_folder(output, force, FILE) as draft,
    ):
        _write(RunFolder(draft), recipe, vocab, text, tensors, origin)
    return origin, "".join(f"; {key} {tag}" for key, tag in entry.items())


def choose_languages(
    text: Text, src: str | None, tgt: str | None
) -> tuple[dict[str, str], tuple[str, str]]:
    """Return the tags of a direction, and its languages as the recipe has them.

    Raises:
        UserError: a language is needed, or the model lacks it.
    """
    wanted = {"--src-lang": src, "--tgt-lang": tgt}
    tagged = {"--src-lang": text.tag_on_target, "--tgt-lang": bool(text.tags)}
    for option, stated in zip(wanted, text.langs, strict=True):
        if not wanted[option] and (tagged[option] or not stated):
            raise UserError(
                "the model needs a language: its tokenizer has "
                + (", ".join(text.tags) if text.tags else "none"),
                at=option,
                fix=f"add {option} LANG",
            )
    langs = (src or text.langs[0], tgt or text.langs[1])
    if langs[0] == langs[1]:
        raise UserError(
            f"source and target language are both {langs[0]}", at="--tgt-lang", fix="give another"
        )
    tags = []
    for option, lang, stated in zip(wanted, langs, text.langs, strict=True):
        if tagged[option]:
            tags.append(text.tags[match_language(lang, text.tags, option)])
        elif stated:
            match_language(lang, [stated], option)
    if len(tags) == 2 and tags[0] == tags[1]:
        what = f"{langs[0]} and {langs[1]} are the same language of the model, {tags[0]}"
        raise UserError(what, at="--tgt-lang", fix="give another")
    return dict(zip(("tag", "tgt_tag"), tags, strict=False)), langs


def _recipe(
    text: Text,
    keys: Mapping[str, Any],
    entry: Mapping[str, str],
    langs: tuple[str, str],
    name: str,
    folder: HubFolder,
) -> nmt.Recipe:
    """Return the recipe of the run; its corpora are those of the model, which are not at hand."""
    kind, scores = read_model(text.segmenter.files()["spm.model"])
    segment: dict[str, Any] = {"kind": "sentencepiece", "vocab_size": max(16, len(scores))}
    if kind in MODEL_TYPES:
        segment["model_type"] = kind
    data: dict[str, Any] = {
        "train": [{"path": name, **entry}],
        "dev": [{"path": name, **entry}],
        "normalize": "none",
    }
    if "max_positions" in keys:
        data["max_pieces"] = min(512, keys["max_positions"] - 3)
    values = {
        "src": langs[0],
        "tgt": langs[1],
        "data": data,
        "segment": segment,
        "model": dict(keys),
    }
    settings = folder.read_json("generation_config.json") or folder.config
    if isinstance(beam := settings.get("num_beams"), int):
        values["decode"] = {"beam": beam}
    return recipe_from_text(yaml.safe_dump(values, allow_unicode=True), str(folder.path / CONFIG))


def _write(
    run: RunFolder,
    recipe: nmt.Recipe,
    vocab: Vocab,
    text: Text,
    tensors: Mapping[str, Tensor],
    origin: Origin,
) -> None:
    run.checkpoints_dir.mkdir()
    with run.lock:
        run.config_file.write_text(dump_recipe(recipe), encoding="utf-8")
        vocab.save(run.path)
        save_segmenter(text.segmenter, run.path)
        state = TrainState(
            best_update=0,
            text_hash=text_hash(vocab, text.segmenter),
            recipe=fixed_values(recipe),
        )
        save_checkpoint(run, state, tensors, {})
        origin.save(run)
        write_summary(
            run,
            {
                "status": "converted",
                "reason": f"converted from {origin.source}",
                "best": checkpoint_name(0),
                "updates": 0,
                "hours": 0.0,
                "parameters": sum(tensor.numel() for tensor in tensors.values()),
            },
        )
