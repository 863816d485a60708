"""Write the files of a finished run folder that scoring reads."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import nmt
from nmt.config.load import dump_recipe, load_recipe
from nmt.run.manifest import (
    FORMAT,
    MANIFEST,
    MANIFEST_TYPE,
    MODEL,
    OPTIMIZER,
    STATE,
    FileEntry,
    Manifest,
    TrainState,
)


def write_lines(path: Path, lines: list[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return path


def write_checkpoint(folder: Path) -> None:
    """Write a checkpoint whose state can be read; its tensors are empty files."""
    contents = {MODEL: b"", OPTIMIZER: b"", STATE: TrainState().to_json().encode()}
    entries = {
        name: FileEntry(len(data), sha256(data).hexdigest()) for name, data in contents.items()
    }
    contents[MANIFEST] = MANIFEST_TYPE.dump_json(Manifest(FORMAT, nmt.__version__, "", entries))
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in contents.items():
        (folder / name).write_bytes(data)


def make_run(
    folder: Path,
    refs: list[str],
    test_hyps: list[str] | None,
    dev_hyps: dict[str, list[str]],
    best: str,
    *extra: str,
    name: str = "run",
) -> Path:
    """Write corpora to ``folder/data``, a recipe, and a run folder with hypotheses."""
    for split in ("train", "dev", "test"):
        for lang in ("gl", "en"):
            write_lines(folder / "data" / f"{split}.{lang}", refs)
    recipe = folder / "recipe.yaml"
    recipe.write_text(
        "src: gl\ntgt: en\ndata:\n  train: data/train\n  dev: data/dev\n  test: data/test\n",
        encoding="utf-8",
    )
    run = folder / name
    write_checkpoint(run / "checkpoints" / best)
    (run / "best").write_text(best + "\n", encoding="utf-8")
    (run / "config.yaml").write_text(dump_recipe(load_recipe(recipe, extra)), encoding="utf-8")
    for checkpoint, hyps in dev_hyps.items():
        write_lines(run / "dev" / f"{checkpoint}.hyp", hyps)
    if test_hyps is not None:
        write_lines(run / "test.hyp", test_hyps)
    return run
