from __future__ import annotations

import json
import math

import pytest
import safetensors.torch
import torch

from nmt.errors import RunError, UserError
from nmt.store.checkpoint import (
    TrainState,
    average_checkpoints,
    find_checkpoint,
    load_checkpoint,
    read_checkpoint,
    save_checkpoint,
    space_needed,
)
from nmt.store.folder import RunFolder
from nmt.store.lifecycle import TrainingFolder
from nmt.store.manifest import IntervalState
from tests.run_cases import RECIPE, moments, same, save, state, trained, weights


def names(run: RunFolder) -> list[str]:
    return sorted(path.name for path in run.checkpoints_dir.iterdir())


def test_a_saved_checkpoint_loads_bit_for_bit(tmp_path):
    model = {
        "w": torch.randn(3, 5, generator=torch.Generator().manual_seed(1)),
        "half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
        "turned": torch.arange(6.0).view(2, 3).t(),
        "scalar": torch.tensor(0.1),
        "empty": torch.zeros(0, 3),
    }
    optimizer = {"w.step": torch.tensor(7, dtype=torch.int64), "w.exp_avg": model["w"] / 3}
    interval = IntervalState(1.25, 0.1, 9, 0.5, math.inf, 2.0)
    before = TrainState(7, 2, 3, [(3, 1.25), (7, 0.1)], 3, 12.5, 900, 1, {"dev": ["abc"]}, interval)
    with TrainingFolder(tmp_path / "run", RECIPE) as run:
        save_checkpoint(run, before, model, optimizer, keep=1)
    loaded = load_checkpoint(RunFolder.open(tmp_path / "run"))
    assert loaded.state == before
    assert same(loaded.model, model)
    assert same(loaded.optimizer, optimizer)
    assert loaded.model["half"].dtype == torch.bfloat16


def test_state_keeps_exact_floats_and_nan():
    before = TrainState(history=[(1, 0.1 + 0.2), (2, math.nan)], seconds=1e-17)
    after = TrainState.from_json(before.to_json())
    assert after.history[0] == (1, 0.1 + 0.2)
    assert math.isnan(after.history[1][1])
    assert after.seconds == 1e-17


def test_the_stored_names_of_the_state_stay():
    """A run of an older version can be resumed, even after an attribute is renamed."""
    stored = json.loads(TrainState(text_hash="abc").to_json())
    assert list(stored) == [
        "update", "epoch", "next_batch", "history", "best_update", "seconds", "target_tokens",
        "bad_updates", "content", "interval", "text_fingerprint", "update_batches", "loss_scale",
        "loss_scale_updates", "precision", "skipped_updates", "rolled_back", "recipe",
        "usual_line",
    ]  # fmt: skip
    assert list(stored["interval"]) == [
        "smoothed", "nll", "tokens", "seconds", "lowest_loss", "loss_ratio",
        "skipped_before",
    ]  # fmt: skip
    assert stored["text_fingerprint"] == "abc"
    assert TrainState.from_json(json.dumps(stored)).text_hash == "abc"


@pytest.mark.parametrize("text", ['{"update": "7"}', '{"history": [[1]]}', "[]", "{", "[" * 10**5])
def test_a_state_with_wrong_types_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011 - pydantic's ValidationError is one
        TrainState.from_json(text)


def test_rotation_keeps_the_newest_and_the_best(tmp_path):
    with TrainingFolder(tmp_path / "run", RECIPE) as run:
        for update, best in ((1, 1), (2, 2), (3, 2), (4, 2), (5, 2)):
            save(run, update, best, keep=2)
        assert names(run) == ["u000002", "u000004", "u000005"]
        save(run, 6, 6, keep=2)
        assert names(run) == ["u000005", "u000006"]


def test_updates_beyond_six_digits_stay_in_order(tmp_path):
    run = trained(tmp_path / "run", 999_999, 1_000_000)
    assert [path.name for path in run.checkpoints()] == ["u999999", "u1000000"]
    assert load_checkpoint(run).state.update == 1_000_000


def test_saving_the_same_update_replaces_its_checkpoint(tmp_path):
    with TrainingFolder(tmp_path / "run", RECIPE) as run:
        save(run, 5)
        later = state(5, best=5)
        later.history = [(5, 31.4)]
        save_checkpoint(run, later, weights(5), moments(5), keep=1)
        assert names(run) == ["u000005"]
    assert load_checkpoint(run).state.history == [(5, 31.4)]


def test_checkpoints_are_found_by_name_and_other_names_refused(tmp_path):
    run = trained(tmp_path / "run", 1, 2)
    assert find_checkpoint(run, "u000001") == run.checkpoints()[0]
    for name in ("u000009", "../run", "", "/etc/passwd", "u000001/../u000002"):
        with pytest.raises(UserError, match=r"the run has: u000001, u000002"):
            find_checkpoint(run, name)


def test_average_is_the_mean_of_the_models(tmp_path):
    run = trained(tmp_path / "run", 1, 2, 6)
    mean = average_checkpoints(map(read_checkpoint, run.checkpoints()))
    assert same(mean, weights(3))


def test_a_checkpoint_between_validations_does_not_count_as_kept(tmp_path):
    with TrainingFolder(tmp_path / "run", RECIPE) as run:
        for update in (4, 8, 11, 12):
            history = [(u, 0.5) for u in (4, 8, 12) if u <= update]
            now = TrainState(update, history=history, best_update=4)
            save_checkpoint(run, now, weights(update), moments(update), keep=2)
            assert run.checkpoints()[-1].name == f"u{update:06d}"
        assert names(run) == ["u000004", "u000008", "u000012"]


def test_the_last_validation_is_kept_besides_the_checkpoint_of_a_stop(tmp_path):
    """A run that is rolled back returns to it, whether it was stopped or not."""
    kept = {4: [4], 8: [4, 8], 10: [4, 8, 10], 11: [4, 8, 11], 12: [4, 12]}
    with TrainingFolder(tmp_path / "run", RECIPE) as run:
        for update, expected in kept.items():
            history = [(u, 0.5) for u in (4, 8, 12) if u <= update]
            now = TrainState(update, history=history, best_update=4)
            save_checkpoint(run, now, weights(update), moments(update), keep=1)
            assert names(run) == [f"u{u:06d}" for u in expected]


def test_averaging_different_models_is_refused(tmp_path):
    run = trained(tmp_path / "run", 1)
    with TrainingFolder(tmp_path / "other", RECIPE) as other:
        save_checkpoint(other, state(1), {"w": torch.zeros(1)}, {}, keep=1)
    with pytest.raises(UserError, match="tensors differ"):
        average_checkpoints(map(read_checkpoint, run.checkpoints() + other.checkpoints()))


def test_a_non_finite_tensor_is_not_written(tmp_path):
    with TrainingFolder(tmp_path / "run", RECIPE) as run:
        save(run, 1, best=1)
        broken = {**weights(2), "out_bias": torch.tensor([1.0, math.inf])}
        with pytest.raises(RunError, match=r"NaN or infinity in out_bias"):
            save_checkpoint(run, state(2, best=2), broken, moments(2), keep=1)
        bad = {"out_bias.exp_avg": torch.tensor(math.nan)}
        with pytest.raises(RunError, match=r"out_bias\.exp_avg"):
            save_checkpoint(run, state(2, best=2), weights(2), bad, keep=1)
        assert names(run) == ["u000001"]


def test_the_tensors_are_written_as_safetensors_writes_them(tmp_path):
    tensors = {
        "b": torch.randn(3, 2), "a": torch.tensor(1.5), "half": torch.randn(5).half(),
        "int": torch.arange(3), "empty": torch.zeros(0, 4), "turned": torch.randn(4, 3).T,
        "bf16": torch.randn(3).bfloat16(), "bool": torch.tensor([True]), "\u00fc": torch.ones(1),
    }  # fmt: skip
    with TrainingFolder(tmp_path / "run", RECIPE) as run:
        path = save_checkpoint(run, state(1, best=1), tensors, {}, keep=1)
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    assert (path / "model.safetensors").read_bytes() == safetensors.torch.save(contiguous)
    assert (path / "optimizer.safetensors").read_bytes() == safetensors.torch.save({})
    assert same(read_checkpoint(path).model, tensors)


def test_space_needed_matches_what_a_training_writes(tmp_path):
    parameters, keep = 10_000, 2
    model = {"w": torch.ones(parameters)}
    optimizer = {"w.exp_avg": torch.ones(parameters), "w.exp_avg_sq": torch.ones(parameters)}
    with TrainingFolder(tmp_path / "run", RECIPE) as run:
        for update in (1, 2, 3, 4):
            save_checkpoint(run, state(update, 1), model, optimizer, keep)
    files = [path for path in run.checkpoints_dir.rglob("*") if path.is_file()]
    kept = sum(path.stat().st_size for path in files)
    assert len(run.checkpoints()) == keep + 1
    one_more = kept * (keep + 2) / (keep + 1)
    assert one_more == pytest.approx(space_needed(parameters, 2 * parameters, keep), rel=0.02)
