"""Damaged or malicious checkpoints: no code runs, and no file outside the folder is read."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import struct

import pytest
import safetensors.torch
import torch

from nmt.errors import UserError
from nmt.store import manifest as files
from nmt.store.results import read_summary
from tests.run_cases import FILES, holds, load, resign, trained, weights


class Malicious:
    def __reduce__(self):
        return (os._exit, (99,))


def test_a_pt_file_in_place_of_safetensors_runs_no_code(tmp_path):
    run = trained(tmp_path / "run", 1)
    folder = run.checkpoints()[0]
    for write in (
        lambda path: torch.save({"w": Malicious()}, path),
        lambda path: path.write_bytes(pickle.dumps(Malicious())),
    ):
        write(folder / "model.safetensors")
        resign(folder)
        with pytest.raises(UserError, match="not written by this toolkit"):
            load(run, "u000001")


def test_a_folder_with_only_a_pt_file_is_refused(tmp_path):
    run = trained(tmp_path / "run", 1)
    shutil.rmtree(run.checkpoints()[0])
    (run.checkpoints_dir / "u000002").mkdir()
    torch.save({"w": torch.ones(1)}, run.checkpoints_dir / "u000002" / "model.pt")
    with pytest.raises(UserError, match="missing: the folder is not complete"):
        load(run)


@pytest.mark.parametrize("name", ["../../../secret", "/etc/passwd", "model.safetensors/../x", ""])
def test_a_manifest_cannot_name_files_outside_its_folder(tmp_path, name, monkeypatch):
    (tmp_path / "secret").write_text("secret")
    run = trained(tmp_path / "run", 1)
    path = run.checkpoints()[0] / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["files"][name] = manifest["files"].pop("model.safetensors")
    path.write_text(json.dumps(manifest))
    read = []
    real = files.read_file
    monkeypatch.setattr(files, "read_file", lambda p, *a: read.append(p.name) or real(p, *a))
    with pytest.raises(UserError, match="not written by this toolkit"):
        load(run, "u000001")
    assert read == ["manifest.json"]


@pytest.mark.parametrize("name", FILES)
def test_a_link_is_refused(tmp_path, name):
    run = trained(tmp_path / "run", 1)
    path = run.checkpoints()[0] / name
    path.rename(tmp_path / "outside")
    path.symlink_to(tmp_path / "outside")
    with pytest.raises(UserError, match=r"not written by this toolkit.*links"):
        load(run, "u000001")


def test_a_checkpoint_that_is_a_link_or_a_file_is_refused(tmp_path):
    other = trained(tmp_path / "other", 1)
    run = trained(tmp_path / "run", 1)
    (run.checkpoints_dir / "u000002").symlink_to(other.checkpoints()[0])
    (run.checkpoints_dir / "u000003").write_text("")
    for name in ("u000002", "u000003"):
        with pytest.raises(UserError, match="not written by this toolkit"):
            load(run, name)


@pytest.mark.parametrize(
    "header",
    [
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 2) + b"{}" + b"\0" * 100,
        (lambda text: struct.pack("<Q", len(text)) + text)(
            b'{"w":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}}'
        ),
        (lambda text: struct.pack("<Q", len(text)) + text)(b"[" * 100_000),
        b"",
        b"\0" * 7,
    ],
    ids=["header", "rest", "tensor", "nesting", "empty", "short"],
)
def test_a_damaged_header_is_refused(tmp_path, header):
    run = trained(tmp_path / "run", 1)
    folder = run.checkpoints()[0]
    (folder / "model.safetensors").write_bytes(header)
    resign(folder)
    with pytest.raises(UserError, match="not written by this toolkit"):
        load(run, "u000001")


@pytest.mark.parametrize("text", ["[" * 10**6, '{"a":' * 10**5, "\xff", "null", "[]", "1e999999"])
def test_a_json_bomb_is_refused(tmp_path, text):
    run = trained(tmp_path / "run", 1)
    folder = run.checkpoints()[0]
    (folder / "state.json").write_text(text, encoding="latin-1")
    resign(folder)
    with pytest.raises(UserError, match="not written by this toolkit"):
        load(run, "u000001")
    (folder / "manifest.json").write_text(text, encoding="latin-1")
    with pytest.raises(UserError, match="not written by this toolkit"):
        load(run, "u000001")
    run.summary_file.write_text(text)
    assert read_summary(run) == {}


def test_a_huge_json_file_is_not_read(tmp_path):
    run = trained(tmp_path / "run", 1)
    with open(run.checkpoints()[0] / "manifest.json", "ab") as file:
        file.truncate(1 << 40)
    with pytest.raises(UserError, match="over 16777216 bytes"):
        load(run, "u000001")


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
