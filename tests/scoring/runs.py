"""Write the files of a finished run folder that scoring reads."""

from __future__ import annotations

from pathlib import Path

import nmt
from nmt.config.load import dump_recipe, load_recipe
from nmt.store.model import Description


def write_lines(path: Path, lines: list[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return path


def write_description(run: Path, recipe: nmt.Recipe, best: str) -> None:
    """Write the description of the model of a run, which has no other files."""
    (run / "model").mkdir(parents=True, exist_ok=True)
    content = Description.of(recipe, best, None).to_json()
    (run / "model" / "model.json").write_bytes(content)


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
    loaded = load_recipe(recipe, extra)
    write_description(run, loaded, best)
    (run / "checkpoints").mkdir(exist_ok=True)
    (run / "config.yaml").write_text(dump_recipe(loaded), encoding="utf-8")
    for checkpoint, hyps in dev_hyps.items():
        write_lines(run / "dev" / f"{checkpoint}.hyp", hyps)
    if test_hyps is not None:
        write_lines(run / "test.hyp", test_hyps)
    return run
