"""Toy text of real words: numbers in several languages, translated word by word."""

from __future__ import annotations

import argparse
import configparser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from data_prep.formats import CORPORA
from tests.text_toy import LAYERS
from tests.toy import lines_of_digits, write_lines

ROOT = Path(__file__).resolve().parents[1]
NUMBERS = {
    "ar": "صفر واحد اثنان ثلاثة أربعة خمسة ستة سبعة ثمانية تسعة",
    "cv": "нуль пӗрре иккӗ виҫҫӗ тӑваттӑ пиллӗк улттӑ ҫиччӗ саккӑр тӑххӑр",
    "en": "zero one two three four five six seven eight nine",
    "es": "cero uno dos tres cuatro cinco seis siete ocho nueve",
    "gl": "cero un dous tres catro cinco seis sete oito nove",
    "pt": "zero um dois três quatro cinco seis sete oito nove",
    "sk": "nula jeden dva tri štyri päť šesť sedem osem deväť",
    "sw": "sifuri moja mbili tatu nne tano sita saba nane tisa",
}
ONE_PAIR = {"ui_sk_en": ("sk", "en")}  # corpora whose commands do not take languages
SIZES = {"train": 120, "dev": 8, "test": 8}
RECIPE: dict[str, Any] = {
    "src": "gl",
    "tgt": "en",
    "data": {split: f"corpus/{split}" for split in SIZES},
    "segment": {"kind": "fastbpe", "merges": 20},
    "schedule": {"kind": "constant", "lr": 1e-2},
}
SMALL: dict[str, dict[str, Any]] = {
    "data": {"batch_tokens": 256},
    "model": {"dim": 16, "ffn_dim": 32, "heads": 2},
}
PIECES = {"merges": 20, "vocab_size": 40}


def commands() -> dict[str, str]:
    """Return the module of each command that setup.cfg installs, besides nmt, which has all."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    scripts = config["options.entry_points"]["console_scripts"].strip().splitlines()
    pairs = (line.replace(" ", "").split("=") for line in scripts)
    return {name: target.removesuffix(":main") for name, target in pairs if name != "nmt"}


COMMANDS = commands()


def words(lang: str, digits: Sequence[str]) -> list[str]:
    """Return lines of digits as lines of the language's words."""
    numbers = NUMBERS[lang].split()
    return [" ".join(numbers[int(d)] for d in line.split()) for line in digits]


def text(path: Path, lang: str, count: int = SIZES["test"]) -> None:
    """Write monolingual text; no line of it is in a corpus."""
    write_lines(path, words(lang, lines_of_digits(count, seed=9, shortest=9, longest=12)))


def split(prefix: Path, lang: str, seed: int = 1) -> None:
    """Write one side of train, dev or test, as the end of ``prefix`` says (else of train).

    Line n of a split has the same meaning in all languages, and no line is in two splits.
    """
    name = prefix.name if prefix.name in SIZES else "train"
    before = sum(size for other, size in SIZES.items() if other < name)
    digits = lines_of_digits(sum(SIZES.values()), seed, shortest=3)[before : before + SIZES[name]]
    write_lines(Path(f"{prefix}.{lang}"), words(lang, digits))


def corpus(folder: Path, langs: Sequence[str], seed: int = 1) -> None:
    """Write train, dev and test of some languages."""
    for name in SIZES:
        for lang in langs:
            split(folder / name, lang, seed)


def recipe(path: Path, values: dict[str, Any], updates: int = 2) -> None:
    """Write a small recipe that trains for some updates."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(small(values, updates)), encoding="utf-8")


def small(values: dict[str, Any], updates: int) -> dict[str, Any]:
    """Return a recipe with a model and a training that take a second, else unchanged."""
    changed = {**values, "device": "cpu", "precision": "fp32"}
    for name, group in SMALL.items():
        changed[name] = {**values.get(name, {}), **group}
    length = {"validate_every": updates, "max_validations": 1}
    changed["train"] = {**values.get("train", {}), **length}
    if "task" not in values:
        changed["decode"] = {**values.get("decode", {}), "beam": 2, "max_len_offset": 4}
    changed["model"] |= LAYERS.get(values.get("task"), {"enc_layers": 1, "dec_layers": 1})
    segment = values.get("segment", {})
    changed["segment"] = {**segment, **{k: v for k, v in PIECES.items() if k in segment}}
    return changed


def stand_in_corpus(argv: Sequence[str]) -> bool:
    """Write a toy corpus in place of one that nmt-import would download.

    Returns:
        False if it downloads nothing.
    """
    name = argv[0]
    if name not in CORPORA:
        return False
    src, tgt = ONE_PAIR.get(name, (None, None))
    parser = argparse.ArgumentParser()
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--src-lang", dest="src", required=src is None, default=src)
    parser.add_argument("--tgt-lang", dest="tgt", required=tgt is None, default=tgt)
    args, _ = parser.parse_known_args(argv[1:])  # mtdata has further options
    if args.output is not None:
        corpus(args.output, (args.src, args.tgt), seed=2)
    return True
