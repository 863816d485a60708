"""Budgets as recipe keys, the estimate of the time left, and the lines of the display."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import yaml

from nmt.apps.sweep.plan import budget_overrides, grid
from nmt.apps.sweep.pool import Display, RunProgress, estimate_left
from nmt.config.load import load_recipe
from nmt.config.variants import Budget, load_sweep
from nmt.errors import UserError
from tests.toy import toy_recipe

LINEAR = {"kind": "linear", "lr": 1e-3, "warmup_updates": 2, "total_updates": 50}


def recipe(folder: Path, *overrides: str, **changes: object):
    train = {"validate_every": 10, "max_validations": 4}
    return load_recipe(toy_recipe(folder, {"train": train, **changes}), overrides)


@pytest.mark.parametrize(
    ("budget", "linear", "expected"),
    [
        (None, False, []),
        (Budget(hours=0.25), False, ["time_limit=0.25"]),
        # batches of 64 tokens, 2 an update
        (Budget(tokens=128 * 25), True, ["schedule.total_updates=25"]),
        (
            Budget(tokens=128 * 45),
            True,
            ["schedule.total_updates=45", "train.max_validations=5"],
        ),
        (Budget(tokens=64 * 30), False, ["train.max_validations=3"]),
        (Budget(tokens=64 * 34), False, ["train.max_validations=3"]),
        (Budget(tokens=64 * 7), False, ["train.validate_every=7", "train.max_validations=1"]),
        (Budget(tokens=1), False, ["train.validate_every=1", "train.max_validations=1"]),
    ],
)
def test_tokens_are_updates_or_validations_and_hours_a_time_limit(
    tmp_path, budget, linear, expected
):
    keys = (["optim.accumulate=2"], {"schedule": LINEAR}) if linear else ([], {})
    assert budget_overrides(budget, recipe(tmp_path, *keys[0], **keys[1])) == expected


def test_the_budget_of_each_run_depends_on_its_recipe(tmp_path):
    toy_recipe(tmp_path)
    content = {
        "base": "toy.yaml",
        "variants": {
            "small": {"about": "small batches", "data": {"batch_tokens": 32}},
            "large": {"about": "large batches", "data": {"batch_tokens": 128}},
        },
        "budget": {"tokens": 128 * 12},
    }
    path = tmp_path / "v.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    small, large = grid(str(path), load_sweep(path), tmp_path, [])
    # validations every 4 updates
    assert (small.recipe.train.max_validations, large.recipe.train.max_validations) == (12, 3)


def test_a_budget_of_tokens_gives_a_linear_schedule_its_updates(tmp_path):
    schedule = {key: LINEAR[key] for key in LINEAR if key != "total_updates"}
    toy_recipe(tmp_path)
    content = {
        "base": "toy.yaml",
        "common": {"schedule": schedule, "data": {"batch_tokens": 64}},
        "variants": {"a": {"about": "x"}},
        "budget": {"tokens": 64 * 25},
    }
    path = tmp_path / "v.yaml"
    path.write_text(yaml.safe_dump(content))
    assert load_recipe(path, variant="a").schedule.total_updates == 25
    assert load_recipe(path, ["data.batch_tokens=32"], "a").schedule.total_updates == 50
    (run,) = grid(str(path), load_sweep(path), tmp_path, [])
    assert load_recipe(path, run.arguments[3:], "a") == run.recipe
    assert run.recipe.schedule.total_updates == 25
    path.write_text(yaml.safe_dump({**content, "budget": {"tokens": 64 * 2}}))
    with pytest.raises(UserError, match=r"warmup_updates \(2\) must be less than"):
        load_sweep(path)
    path.write_text(yaml.safe_dump({**content, "budget": {"hours": 1}}))
    with pytest.raises(UserError, match=r'"schedule\.total_updates" is missing'):
        load_sweep(path)


@pytest.mark.parametrize(
    ("finished", "running", "waiting", "slots", "expected"),
    [
        ([], [], 3, 1, None),
        ([], [(5, None)], 3, 1, None),
        ([], [(10, 30)], 2, 1, 30 + 2 * 40),
        ([60, 80], [(50, 99)], 3, 1, 20 + 3 * 70),
        ([60, 80], [(50, None), (90, None)], 4, 2, (20 + 4 * 70) / 2),
        ([60], [(10, None), (59, None)], 0, 2, 50),
        ([60], [], 0, 1, 0),
    ],
)
def test_the_time_left_is_a_closed_form(finished, running, waiting, slots, expected):
    assert estimate_left(finished, running, waiting, slots) == expected


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_live_table_is_redrawn_in_place(tmp_path):
    toy_recipe(tmp_path)
    path = tmp_path / "v.yaml"
    path.write_text("base: toy.yaml\nvariants: {a: {about: x}}\nseeds: [1, 2]\n")
    first, second = grid(str(path), load_sweep(path), tmp_path, [])
    first.folder.mkdir()
    log = first.folder / "metrics.jsonl"
    records = [
        {"kind": "train", "update": 1200, "seconds_left": 60},
        {"kind": "dev", "update": 600, "bleu": 13.0},
        {"kind": "dev", "update": 1200, "bleu": 12.345},
    ]
    log.write_text("".join(json.dumps(r) + "\n" for r in records) + '{"kind": "dev", "upd')
    progress = RunProgress(first)
    progress.read()
    assert (progress.update, progress.seconds_left) == (1200, 60)
    assert progress.dev == {600: 13.0, 1200: 12.345}
    assert progress.line(ended=True).startswith("update 1,200  best dev bleu 13.00")
    stream = Terminal()
    display = Display(stream, 2, 1)
    display.draw([progress])
    display.say("a line that stays")
    drawn, _, rest = stream.getvalue().partition("\x1b[2F\x1b[J")
    lines = drawn.splitlines()
    assert lines[0] == "  a.seed-1  update 1,200  dev bleu 12.35  0:00"
    assert lines[1].startswith("0 finished of 2 runs; about 2:00 left")
    assert rest == "a line that stays\n"
    assert second.name == "a.seed-2"
