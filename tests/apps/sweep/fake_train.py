"""Stands in for nmt-train: writes the files of a run at once; a variant's name says how it ends.

``diverges``, ``fails`` and ``killed`` end so. ``slow`` waits for SIGTERM, saves, and finishes when
it is started again. Any other finishes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from nmt.config.load import dump_recipe, load_recipe
from nmt.runtime.signals import end_with_parent
from tests.scoring.runs import write_description


def main() -> int:
    end_with_parent()
    file, _, variant, *overrides, last = sys.argv[1:]
    assert last == "--resume"
    own = variant.rpartition("/")[2]
    if own == "fails":
        print("nmt-train: toy.yaml:3: wrong\n  -> do it right")
        return 2
    if own == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    recipe = load_recipe(file, overrides, variant)
    run = Path(recipe.out)
    resumed = (run / "saved").exists()
    (run / "dev").mkdir(parents=True, exist_ok=True)
    (run / "config.yaml").write_text(dump_recipe(recipe), encoding="utf-8")
    (run / "environment.json").write_text(json.dumps(dict(os.environ)))
    (run / "checkpoints" / "u000008").mkdir(parents=True, exist_ok=True)
    write_description(run, recipe, "u000008")
    dev = 10.0 + recipe.seed
    records: list[dict[str, Any]] = [
        {"kind": "train", "update": 4, "seconds_left": 3.0},
        {"kind": "dev", "update": 4, recipe.score.select_by: dev / 2, "ppl": 9.0},
        {"kind": "dev", "update": 8, recipe.score.select_by: dev, "ppl": 8.0},
    ]
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (run / "metrics.jsonl").write_text(lines)
    if own == "diverges":
        write(run, status="diverged", reason="the loss exploded")
        return 3
    if own == "slow" and not resumed:
        return wait(run)
    if recipe.data.test and recipe.translates:
        for name in ("test.hyp", "test.words"):
            refs = Path(recipe.data.test[0].path + f".{recipe.tgt}").read_text().splitlines()
            every = 1 + recipe.seed + recipe.model.dec_layers
            kept = [ref if i % every else "0" for i, ref in enumerate(refs)]
            (run / name).write_text("".join(f"{line}\n" for line in kept))
    test = [{"name": "bleu", "value": 2 * dev}, {"name": "ppl", "value": 7.0}]
    test.append({"name": "word_ppl", "value": 70.0 * recipe.model.dec_layers})
    write(run, status="finished", reason="done", hours=0.5, dev=dev, test=test)
    return 0


def wait(run: Path) -> int:
    """Save and end at SIGTERM, as nmt-train does."""

    def save(*_: object) -> None:
        (run / "saved").write_text("")
        os._exit(143)

    signal.signal(signal.SIGTERM, save)
    (run / "waiting").write_text("")
    time.sleep(60)
    return 3


def write(run: Path, **summary: Any) -> None:
    (run / "summary.json").write_text(json.dumps(summary))


if __name__ == "__main__":
    sys.exit(main())
