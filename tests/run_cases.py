"""Run folders with tiny checkpoints, for the tests of run folders and their faults."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nmt.config.load import recipe_from_text
from nmt.config.recipe import Recipe
from nmt.data.segmenters.base import Whitespace
from nmt.data.vocab import Vocab
from nmt.runtime import files
from nmt.store.checkpoint import (
    Checkpoint,
    TrainState,
    load_checkpoint,
    read_checkpoint,
    save_checkpoint,
    write_run_model,
)
from nmt.store.folder import RunFolder, update_of
from nmt.store.lifecycle import TrainingFolder
from nmt.store.model import WEIGHTS, Model
from nmt.store.tensors import read_tensors
from nmt.text.tokenizer import Moses

FILES = ("model.safetensors", "optimizer.safetensors", "state.json", "manifest.json")


def recipe(*overrides: str) -> Recipe:
    text = "src: gl\ntgt: en\ndata: {train: [/corpus/train], dev: /corpus/dev}"
    return recipe_from_text(text, "recipe", overrides)


RECIPE = recipe()
VOCAB = Vocab(["a"], np.array([[1, 1]]))
SEGMENTER = Whitespace(Moses(True))


def weights(update: int) -> dict[str, Tensor]:
    return {
        "embed.weight": torch.full((4, 2), float(update)),
        "out_bias": torch.arange(4.0) + update,
    }


def moments(update: int) -> dict[str, Tensor]:
    return {"out_bias.exp_avg": torch.full((4,), update / 7), "out_bias.step": torch.tensor(update)}


def state(update: int, best: int | None = None) -> TrainState:
    history = [(earlier, 0.5) for earlier in range(max(1, update - 99), update + 1)]
    return TrainState(update, epoch=1, next_batch=update, history=history, best_update=best)


def save(run: RunFolder, update: int, best: int | None = None, keep: int = 1) -> Path:
    """Save a checkpoint as a training does; if it is the best, it becomes the model too."""
    now = state(update, best)
    path = save_checkpoint(run, now, weights(update), moments(update), keep)
    if best == update:
        write_run_model(run, path.name, now, weights(update), VOCAB, SEGMENTER, 0.5)
    return path


def update_of_model(run: RunFolder) -> int:
    """Return the update of the model of a run, whose files must be intact."""
    model = Model.open(run.path)
    assert (model.vocab.hash, model.segmenter.kind) == (VOCAB.hash, "whitespace")
    update = update_of(model.about.name)
    tensors = read_tensors(model.path / WEIGHTS, model.entry(WEIGHTS))
    assert same(tensors, weights(update))
    return update


def trained(path: Path, *updates: int, keep: int = 9, recipe: Recipe = RECIPE) -> RunFolder:
    """Return an unlocked run folder with checkpoints at these updates."""
    run = TrainingFolder(path, recipe)
    with run:
        for update in updates:
            save(run, update, keep=keep)
    return run


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def content(folder: Path) -> dict[str, bytes]:
    """Return the bytes of each regular file below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def reopen(path: Path) -> RunFolder:
    return TrainingFolder(path, RECIPE, resume=True)


def load(run: RunFolder, name: str = "latest") -> tuple[Checkpoint, list[str]]:
    """Return a checkpoint and the notes of loading it."""
    notes: list[str] = []
    if name != "latest":
        return read_checkpoint(run.checkpoints_dir / name), notes
    return load_checkpoint(run, notes.append), notes


def holds(checkpoint: Checkpoint, update: int) -> bool:
    return (
        checkpoint.state.update == update
        and same(checkpoint.model, weights(update))
        and same(checkpoint.optimizer, moments(update))
    )


def flip(path: Path, place: int = -1) -> None:
    """Flip a bit of a file."""
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def resign(folder: Path, name: str = "manifest.json") -> None:
    """Make the sizes and hashes that a folder states of its files fit, as an attacker would."""
    path = folder / name
    stated = json.loads(path.read_text())
    stated.pop("sha256", None)
    for file in stated["files"]:
        data = (folder / file).read_bytes()
        stated["files"][file] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    path.write_text(json.dumps(stated))


def edit_model(folder: Path, **values: Any) -> None:
    """Change keys of model.json, and make the seal fit, as an attacker would."""
    path = folder / "model.json"
    about = json.loads(path.read_text()) | values
    del about["sha256"]
    path.write_text(json.dumps(about))


class Steps:
    """Count the file operations of a save, and act before the n-th."""

    def __init__(self, monkeypatch, act, at: int | None) -> None:
        self.count, self.act, self.at = 0, act, at
        for name in ("fsync", "rename", "replace", "mkdir", "unlink", "link"):
            monkeypatch.setattr(os, name, self.wrap(getattr(os, name)))
        write = self.wrap(open)

        def open_file(path, mode, **named):  # reading needs no space
            return (open if mode == "rb" else write)(path, mode, **named)

        monkeypatch.setattr(files, "open", open_file, raising=False)
        monkeypatch.setattr(shutil, "rmtree", self.wrap(shutil.rmtree))

    def wrap(self, real):
        def step(*arguments, **named):
            self.count += 1
            if self.count == self.at:
                self.act()
            return real(*arguments, **named)

        return step


def count_steps(run: RunFolder, *updates: int) -> int:
    with pytest.MonkeyPatch.context() as patch:
        steps = Steps(patch, None, None)
        for update in updates:
            save(run, update, best=update)
    return steps.count
