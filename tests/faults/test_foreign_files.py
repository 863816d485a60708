"""Checkpoints of another kind or version; ``tests.hostile`` has those of an attacker."""

from __future__ import annotations

import json
import shutil

import pytest
import safetensors.torch
import torch

from nmt.errors import UserError
from nmt.store.model import Model
from nmt.store.tensors import read_weights
from tests.decoding.ctranslate2.cases import model_folder
from tests.decoding.untrained import untrained
from tests.run_cases import holds, load, resign, trained, weights


def test_a_folder_with_only_a_pt_file_is_refused(tmp_path):
    run = trained(tmp_path / "run", 1)
    shutil.rmtree(run.checkpoints()[0])
    (run.checkpoints_dir / "u000002").mkdir()
    torch.save({"w": torch.ones(1)}, run.checkpoints_dir / "u000002" / "model.pt")
    with pytest.raises(UserError, match="missing: the folder is not complete"):
        load(run)


def test_a_checkpoint_that_is_a_link_or_a_file_is_refused(tmp_path):
    other = trained(tmp_path / "other", 1)
    run = trained(tmp_path / "run", 1)
    (run.checkpoints_dir / "u000002").symlink_to(other.checkpoints()[0])
    (run.checkpoints_dir / "u000003").write_text("")
    for name in ("u000002", "u000003"):
        with pytest.raises(UserError, match="not written by this toolkit"):
            load(run, name)


def test_a_model_of_links_is_read_as_in_the_cache_of_a_hub(tmp_path):
    blobs = model_folder(untrained(), tmp_path / "blobs")
    snapshot = tmp_path / "snapshots" / "1"
    snapshot.mkdir(parents=True)
    for path in blobs.iterdir():
        (snapshot / path.name).symlink_to(path)
    expected, found = (read_weights(Model.open(folder)) for folder in (blobs, snapshot))
    assert {name for name in expected if torch.equal(found[name], expected[name])} == set(found)


def test_a_newer_format_names_the_version_to_install(tmp_path):
    run = trained(tmp_path / "run", 1)
    path = run.checkpoints()[0] / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 2, "nmt": "9.1"}))
    with pytest.raises(UserError, match=r"(?s)written by version 9\.1.*install version 9\.1"):
        load(run, "u000001")


def test_nan_weights_are_refused_by_name(tmp_path):
    run = trained(tmp_path / "run", 1, 2)
    folder = run.checkpoints()[-1]
    broken = {**weights(2), "out_bias": torch.tensor([0.0, float("nan")])}
    safetensors.torch.save_file(broken, folder / "model.safetensors")
    resign(folder)
    with pytest.raises(UserError, match="NaN or infinity in out_bias"):
        load(run, "u000002")
    found, notes = load(run)
    assert holds(found, 1)
    assert "NaN or infinity in out_bias" in notes[0]
