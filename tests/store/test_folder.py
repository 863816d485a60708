from __future__ import annotations

import os
import shutil

import pytest

from nmt.config.load import dump_recipe
from nmt.errors import UserError
from nmt.store.checkpoint import load_checkpoint
from nmt.store.folder import RunFolder
from nmt.store.lifecycle import TrainingFolder
from nmt.store.results import read_summary, write_summary
from tests.run_cases import RECIPE, content, recipe, same, save, trained, update_of_model, weights


def test_nothing_is_written_before_the_folder_is_entered(tmp_path):
    run = TrainingFolder(tmp_path / "deep" / "run", RECIPE)
    assert list(tmp_path.iterdir()) == []
    with run:
        assert run.config_file.read_text() == dump_recipe(RECIPE)
        assert run.dev_dir.is_dir()
        assert run.lock.in_use()
    assert not run.lock.in_use()


def test_an_existing_run_without_a_flag_is_refused(tmp_path):
    run = trained(tmp_path / "run", 1)
    before = content(run.path)
    with pytest.raises(UserError, match=r"(?s)contains a run with checkpoints.*--resume.*--fresh"):
        TrainingFolder(run.path, RECIPE)
    assert content(run.path) == before


def test_resume_continues_in_the_same_folder(tmp_path):
    trained(tmp_path / "run", 1)
    run = TrainingFolder(tmp_path / "run", RECIPE, resume=True)
    assert run.resuming
    assert not run.finished
    assert (run.changes, run.notes) == ({}, [])
    with run:
        assert load_checkpoint(run).state.update == 1


@pytest.mark.parametrize(("flags", "notes"), [({}, 0), ({"resume": True}, 1), ({"fresh": True}, 0)])
def test_an_empty_folder_is_used_with_any_flag(tmp_path, flags, notes):
    (tmp_path / "run").mkdir()
    run = TrainingFolder(tmp_path / "run", RECIPE, **flags)
    assert not run.resuming
    assert len(run.notes) == notes
    assert all("nothing to resume" in note for note in run.notes)
    with run:
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_run_killed_before_its_first_checkpoint_starts_again(tmp_path):
    trained(tmp_path / "run")
    run = TrainingFolder(tmp_path / "run", recipe("seed=2"))
    assert not run.resuming
    assert "has no checkpoint" in run.notes[0]
    with run:
        assert run.recipe().seed == 2


def test_resume_with_another_recipe_lists_the_changed_keys(tmp_path):
    trained(tmp_path / "run", 1)
    other = recipe("seed=2", "model.norm=layernorm", "train.keep=3")
    with pytest.raises(UserError) as caught:
        TrainingFolder(tmp_path / "run", other, resume=True)
    lines = str(caught.value).split("\n  -> ")[0].splitlines()[1:]
    assert sorted(line.strip() for line in lines) == [
        "model.norm: scalenorm -> layernorm",
        "seed: 1 -> 2",
    ]
    assert RunFolder(tmp_path / "run").recipe() == RECIPE


@pytest.mark.parametrize(
    "override",
    [
        "train.max_validations=7",
        "train.stop_patience=7",
        "train.keep=7",
        "train.log_every=7",
        "time_limit=2.5",
        "device=cpu",
        "out=elsewhere",
        "decode.batch_tokens=64",
    ],
)
def test_a_resumed_run_may_change_duration_and_place(tmp_path, override):
    trained(tmp_path / "run", 1)
    key, new = override.partition("=")[0], recipe(override)
    run = TrainingFolder(tmp_path / "run", new, resume=True)
    assert list(run.changes) == [key]
    assert key in run.notes[0]
    with run:
        assert run.recipe() == new


def test_a_model_without_checkpoints_is_not_trained_over(tmp_path):
    with TrainingFolder(tmp_path / "run", RECIPE) as run:
        save(run, 1, best=1)
    shutil.rmtree(run.checkpoints()[0])
    for flags in ({}, {"resume": True}):
        with pytest.raises(UserError, match="a model, but no checkpoint") as caught:
            TrainingFolder(run.path, RECIPE, **flags)
        assert caught.value.at == str(run.path)
    assert update_of_model(RunFolder.open(run.path)) == 1


def test_fresh_renames_the_old_run(tmp_path):
    old = content(trained(tmp_path / "run", 1).path)
    for number in (1, 2):
        with TrainingFolder(tmp_path / "run", RECIPE, fresh=True) as run:
            assert not run.resuming
            assert f"run.old-{number}" in run.notes[0]
            assert run.checkpoints() == []
            save(run, 1)
        assert content(tmp_path / f"run.old-{number}") == old


@pytest.mark.parametrize("name", ["thesis.tex", "config.yaml"])  # the user's own recipe
@pytest.mark.parametrize("flags", [{}, {"resume": True}, {"fresh": True}])
def test_a_folder_with_other_files_is_refused(tmp_path, flags, name):
    (tmp_path / name).write_text("years of work")
    with pytest.raises(UserError, match=f"contains no run, but other files: {name}"):
        TrainingFolder(tmp_path, RECIPE, **flags)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_path_at_or_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(UserError, match="is a file, so the run folder"):
            TrainingFolder(path, RECIPE)


def test_resuming_a_finished_run_changes_nothing(tmp_path):
    run = trained(tmp_path / "run", 1)
    write_summary(run, {"status": "finished", "reason": "train.max_validations"})
    before = content(run.path)
    again = TrainingFolder(run.path, RECIPE, resume=True)
    assert again.finished
    with again:
        pass
    assert content(run.path) == before
    with pytest.raises(UserError, match="a finished run"):
        TrainingFolder(run.path, RECIPE)


def test_a_finished_run_continues_with_more_validations(tmp_path):
    run = trained(tmp_path / "run", 1)
    write_summary(run, {"status": "finished"})
    more = TrainingFolder(run.path, recipe("train.max_validations=300"), resume=True)
    assert not more.finished
    with more:
        assert read_summary(more) == {}


def test_a_stopped_run_is_not_finished(tmp_path):
    run = trained(tmp_path / "run", 1)
    write_summary(run, {"status": "stopped", "reason": "SIGTERM"})
    assert not TrainingFolder(run.path, RECIPE, resume=True).finished


def test_a_moved_run_opens(tmp_path, monkeypatch):
    trained(tmp_path / "run", 3)
    (tmp_path / "elsewhere").mkdir()
    os.rename(tmp_path / "run", tmp_path / "elsewhere" / "é b")
    monkeypatch.chdir(tmp_path / "elsewhere")
    run = RunFolder.open("é b")
    assert run.recipe().src == "gl"
    assert same(load_checkpoint(run).model, weights(3))
    absolute = str(tmp_path).encode()
    assert not any(absolute in data for data in content(run.path).values())


def test_open_explains_what_is_wrong(tmp_path):
    with pytest.raises(UserError, match="no such run folder"):
        RunFolder.open(tmp_path / "run")
    (tmp_path / "data").mkdir()
    with pytest.raises(UserError, match=r"no config\.yaml"):
        RunFolder.open(tmp_path / "data")
    run = trained(tmp_path / "run")
    with pytest.raises(UserError, match="no checkpoint yet"):
        RunFolder.open(run.path)
    trained(tmp_path / "run", 1)
    with pytest.raises(UserError, match=f"did you mean {run.path}"):
        RunFolder.open(run.checkpoints()[0])
    with pytest.raises(UserError, match=f"pass a folder in it: {run.path}$"):
        RunFolder.open(tmp_path)
