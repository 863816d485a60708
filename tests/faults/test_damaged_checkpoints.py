"""A damaged file of a checkpoint or a model: what each command answers, and the file it names.

Each row is a command, a file, what was done to it, and words of the answer. Which checkpoint is
used instead of a damaged one is in ``test_files`` and ``test_resume``.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from tests.run_cases import content, edit_model, flip, resign

Damage = Callable[[Path], object]
Row = tuple[str, str, Damage, str]

COMMANDS = {
    "train --resume": "train toy.yaml out=run train.max_validations=4 --resume",
    "train": "train toy.yaml out=new init.from=run --fresh",
    "average": "average run --checkpoints u000004 u000008 u000012 -o new",
    "translate": "translate run --input test.gl --engine torch",
    "export": "export run -o new",
    "translate a model": "translate model --input test.gl",
}
NEWEST, WEIGHTS, ABOUT = "run/checkpoints/u000012", "run/model/weights.safetensors", "model.json"
EXPORTED = ["vocab.txt", "segmenter.json", "translate.json", "ctranslate2/model.bin",
            "ctranslate2/config.json", "ctranslate2/shared_vocabulary.json"]  # fmt: skip


# ---------------------------------------------------------------- damages


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def reverse_lines(path: Path) -> None:
    path.write_text("".join(reversed(path.read_text().splitlines(keepends=True))))


def link_to_device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def only_a_pickle(path: Path) -> None:
    for file in path.parent.iterdir():
        file.unlink()
    torch.save({"w": torch.ones(1)}, path.with_name("model.pt"))


def link_to_folder(path: Path) -> None:
    path.symlink_to(shutil.move(path, path.parents[2]))


def file_for_checkpoint(run: Path) -> None:
    path = run / "checkpoints" / "u000012"
    shutil.rmtree(path)
    path.touch()


def newer(path: Path) -> None:
    path = path / "manifest.json" if path.is_dir() else path
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99, "nmt": "9.9"}))


def no_keys(path: Path) -> None:
    path.write_text("{}")


def beam_of_1(path: Path) -> None:
    path.write_text(path.read_text().replace('"beam": 2', '"beam": 1'))


def values(**changes: Any) -> Damage:
    """Change keys of model.json as an attacker would, who makes the seal fit."""
    return lambda path: edit_model(path.parent, **changes)


def tensors(change: Callable[[dict[str, torch.Tensor]], object]) -> Damage:
    """Change tensors as an attacker would, who makes the hashes fit."""

    def damage(path: Path) -> None:
        found = safetensors.torch.load_file(path)
        change(found)
        safetensors.torch.save_file(found, path)
        if path.name == "weights.safetensors":
            resign(path.parent, ABOUT)
        else:
            resign(path.parent)

    return damage


# ---------------------------------------------------------------- the table


def rows() -> Iterator[Row]:
    yield from checkpoints()
    yield from models()
    yield from exports()


def checkpoints() -> Iterator[Row]:
    manifest, model = f"{NEWEST}/manifest.json", f"{NEWEST}/model.safetensors"
    for damage in (flip, cut, Path.unlink, fifo, link_to_device):
        for name in ("manifest.json", "state.json", "model.safetensors"):
            yield "average", f"{NEWEST}/{name}", damage, ""
    yield "average", manifest, only_a_pickle, "not complete"
    yield "average", NEWEST, link_to_folder, "not written by this toolkit"
    yield "average", "run", file_for_checkpoint, "no checkpoint 'u000012'"
    yield "average", manifest, no_keys, "-> restore the "
    yield "average", model, tensors(lambda t: t["out_bias"].fill_(float("nan"))), "out_bias"
    for command in ("average", "train --resume"):
        yield command, NEWEST, newer, "-> install version 9.9 or newer"
    for file, change, words in (
        ("model", lambda t: t.update(out_bias=torch.zeros(3)), "out_bias has shape [3]"),
        ("model", lambda t: t.pop("out_bias"), "out_bias is missing"),
        ("model", lambda t: t.update(extra=torch.zeros(3)), "no tensor of this name"),
        ("optimizer", lambda t: t.pop("out_bias/exp_avg"), "out_bias/exp_avg is missing"),
        (
            "optimizer",
            lambda t: t.update({"out_bias/exp_avg_sq": torch.zeros(1)}),
            "out_bias/exp_avg_sq has shape [1]",
        ),
        ("optimizer", lambda t: t.clear(), "/step is missing"),
    ):
        yield "train --resume", f"{NEWEST}/{file}.safetensors", tensors(change), words


def models() -> Iterator[Row]:
    for command in ("translate", "export", "train"):
        yield command, WEIGHTS, flip, "damaged"
        yield command, "run/model/vocab.txt", reverse_lines, "damaged"
        yield command, f"run/model/{ABOUT}", newer, "-> install version 9.9 or newer"
        yield command, f"run/model/{ABOUT}", no_keys, "-> restore the "
    yield "translate", f"run/model/{ABOUT}", beam_of_1, "delete the key sha256"
    half = tensors(lambda t: t.update({"embed.weight": t["embed.weight"].half()}))
    yield "translate", WEIGHTS, half, "embed.weight has type float16"
    for changes in (
        {"files": {"../x": {"bytes": 1, "sha256": ""}}}, {"src": 3}, {"model": {"dim": -1}},
        {"decode": {"beam": 0}}, {"unknown": 1}, {"directions": [1]},
    ):  # fmt: skip
        yield "translate", f"run/model/{ABOUT}", values(**changes), ""


def exports() -> Iterator[Row]:
    for name in EXPORTED:
        for damage in (flip, cut, Path.unlink):
            yield "translate a model", f"model/{name}", damage, ""
    for damage in (fifo, link_to_device):
        for name in ("ctranslate2/model.bin", "ctranslate2/manifest.json", "vocab.txt"):
            yield "translate a model", f"model/{name}", damage, ""
        yield "translate a model", "model", lambda path, put=damage: put(path / ABOUT), ABOUT


ROWS = list(rows())


@pytest.fixture(scope="module")
def good(short_run: Path, short_export: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a corpus, a recipe, a run of three validations, and its export."""
    folder = tmp_path_factory.mktemp("good") / "folder"
    shutil.copytree(short_run.parent, folder)
    shutil.copytree(short_export, folder / "model")
    return folder


def ids(row: Row) -> str:
    return f"{row[0]}-{row[1]}-{row[2].__name__}"


@pytest.mark.parametrize(("command", "file", "damage", "words"), ROWS, ids=map(ids, ROWS))
def test_the_command_names_the_file_and_changes_nothing(
    command: str, file: str, damage: Damage, words: str,
    good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
):  # fmt: skip
    folder = tmp_path / "folder"
    shutil.copytree(good, folder)
    damage(folder / file)
    before = content(folder)
    name, *arguments = COMMANDS[command].split()
    arguments = [_in(folder, argument) for argument in arguments]
    assert importlib.import_module(f"nmt.cli.{name}").main(arguments) == 2
    error = capsys.readouterr().err
    assert f"{folder / file}: " in error
    assert words in error
    assert "\n  -> " in error
    assert not {"--fresh", "out=PATH"} & set(error.split())  # nobody should abandon the run
    assert content(folder) == before


def _in(folder: Path, argument: str) -> str:
    """Return an argument of a command with the path of what it names."""
    key, equals, value = argument.rpartition("=")
    is_name = value in ("run", "model", "new", "toy.yaml", "test.gl")
    return f"{key}{equals}{folder / value}" if is_name else argument
