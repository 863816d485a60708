"""Convert a model of transformers: read, check, convert, then write."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from nmt.apps.transformers.families import Text, family_of
from nmt.apps.transformers.folder import CONFIG_JSON, GENERATION, HubFolder
from nmt.apps.transformers.languages import differ, fitting, group_parts, match_language
from nmt.apps.transformers.weights import (
    HubWeights,
    make_vocabulary,
    misfits,
    model_keys,
)
from nmt.config.load import recipe_from_text
from nmt.config.model import model_config
from nmt.config.recipe import DecodeConfig, Recipe
from nmt.data.segmenters.sentencepiece import read_scores
from nmt.errors import UserError
from nmt.runtime.files import AGAIN, disk_errors
from nmt.runtime.memory import PER_WEIGHT
from nmt.store.model import (
    WEIGHTS,
    Description,
    Origin,
    check_output,
    complete,
    output_folder,
    save_text,
)
from nmt.store.tensors import write_tensors
from nmt.text.sentences import UsualLine
from nmt.version import __version__

# others are paths of a machine, or the name of a parent
_PUBLISHED = re.compile(r"(?:.*/)?((?:Helsinki-NLP|facebook)/[\w.-]+)")
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
) -> tuple[Origin, str, list[str]]:
    """Write a model with the weights of a folder.

    Args:
        output: the model; it gets its name when it is complete.
        src, tgt: languages, in any form; None = as the tokenizer states them.
        source: name of the model; None = as config.json or the folder has it.
        license_id: of the weights; None = as README.md states it.
        force: replace a model of this name.

    Returns:
        Where the weights are from, the tags of its direction for people, and notes.

    Raises:
        UserError: the folder is not a complete model of a known family, the model lacks a language,
            or the output exists.
        MachineError: the memory or the disk does not suffice.
    """
    check_output(output, force)
    folder = HubFolder(path)
    family = family_of(folder)
    text = family.text(folder)
    entry, langs, notes = choose_languages(folder, text, src, tgt)
    keys = model_keys(family, folder)
    weights = HubWeights(folder)
    stated = _PUBLISHED.fullmatch(str(folder.config.get("_name_or_path")))
    name = source or (stated[1] if stated else path.absolute().name)
    recipe = _recipe(text, {**keys, **weights.keys}, entry, langs, name, folder)
    vocab = make_vocabulary(text, weights.forbidden())
    tensors = weights.convert(model_config(recipe.model), text, vocab)
    origin = Origin(
        source=name,
        family=family.name,
        license=license_id or ", ".join(folder.front_matter("license")) or None,
        files=folder.digests(),
        version=__version__,
    )
    about = Description.of(recipe, name, UsualLine(sentences=1), origin=origin)
    needed = PER_WEIGHT * tensors.parameters
    with (
        disk_errors(output, needed, "choose another folder", AGAIN),
        output_folder(output, force) as draft,
    ):
        save_text(draft, vocab, text.segmenter)
        complete(draft, about, {WEIGHTS: write_tensors(draft / WEIGHTS, tensors)})
    return origin, "".join(f"; {key} {tag}" for key, tag in entry.items()), notes


def choose_languages(
    folder: HubFolder, text: Text, src: str | None, tgt: str | None
) -> tuple[dict[str, str], tuple[str, str], list[str]]:
    """Return the tags of a direction, its languages as the recipe has them, and notes.

    Raises:
        UserError: a language is needed, or the model lacks it.
    """
    requested = {"--src-lang": src, "--tgt-lang": tgt}
    tagged = {"--src-lang": text.tag_on_target, "--tgt-lang": bool(text.tags)}
    for option, stated in zip(requested, text.langs, strict=True):
        if not requested[option] and (tagged[option] or not re.fullmatch("[A-Za-z0-9_-]+", stated)):
            raise UserError(
                "the model needs a language: its tokenizer has "
                + (", ".join(text.tags) if tagged[option] else stated or "none"),
                at=option,
                fix=f"add {option} LANG",
            )
    langs = (src or text.langs[0], tgt or text.langs[1])
    if langs[0] == langs[1]:
        raise UserError(
            f"source and target language are both {langs[0]}", at="--tgt-lang", fix="give another"
        )
    tags, notes = [], []
    sides = zip(requested, ("source", "target"), langs, text.langs, strict=True)
    for option, side, lang, stated in sides:
        if tagged[option]:
            code = match_language(lang, text.tags, option)
            tags.append(text.tags[code])
        elif not stated or fitting(lang, [stated]):
            code = stated or lang
        elif (parts := group_parts(stated)) is None:
            code = match_language(lang, [stated], option)
        else:
            code = lang
            known = [*parts, *folder.stated_languages(side)]
            if known and not fitting(lang, known):
                match_language(lang, known, option)
            if not known and not fitting(lang, folder.front_matter("language")):
                notes.append(
                    f"README.md does not say whether the group {stated} has {lang}; look it up on "
                    "the page of the model"
                )
        if differ(lang, code):
            notes.append(f"for {lang}, the model has {code}")
    if len(tags) == 2 and tags[0] == tags[1]:
        what = f"{langs[0]} and {langs[1]} are the same language of the model, {tags[0]}"
        raise UserError(what, at="--tgt-lang", fix="give another")
    return dict(zip(("tag", "tgt_tag"), tags, strict=False)), langs, notes


def _recipe(
    text: Text,
    keys: Mapping[str, Any],
    entry: Mapping[str, str],
    langs: tuple[str, str],
    name: str,
    folder: HubFolder,
) -> Recipe:
    """Return a recipe of the model; its corpora are not at hand."""
    kind, scores = read_scores(text.segmenter.files()["spm.model"])
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
    values["decode"] = _search(folder)
    return recipe_from_text(
        yaml.safe_dump(values, allow_unicode=True), str(folder.path / CONFIG_JSON)
    )


def _search(folder: HubFolder) -> dict[str, Any]:
    """Return the ``decode`` keys that search as transformers does.

    The rule count is that of its ``early_stopping: true``, and that of CTranslate2.

    Raises:
        UserError: the model states values that no search here has.
    """
    settings = folder.read_json(GENERATION)
    file = GENERATION if settings else CONFIG_JSON
    names = {
        "beam": "num_beams",
        "length_alpha": "length_penalty",
        "no_repeat_ngram": "no_repeat_ngram_size",
    }
    stated = {key: (settings or folder.config).get(name) for key, name in names.items()}
    stated = {key: value for key, value in stated.items() if value is not None}
    if wrong := misfits(DecodeConfig, stated, names):
        fix = "correct the file; num_beams 4 and length_penalty 1.0 are usual"
        raise UserError("; ".join(wrong), at=str(folder.path / file), fix=fix)
    return {"length_penalty": "mean", "length_alpha": 1.0, "stop_rule": "count", **stated}
