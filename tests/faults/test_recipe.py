"""Faults in recipes: one message with place and next step, exit code 2, nothing written."""
# ruff: noqa: E501 (a message is easier to read in one line)

from __future__ import annotations

import os
import re
import threading
import time
from pathlib import Path

import pytest
import torch

from nmt.cli import train
from nmt.config.load import load_recipe, recipe_from_text
from nmt.errors import MachineError, UserError
from nmt.runtime import memory

HEAD = "src: gl\ntgt: en\ndata: {train: a/train, dev: a/dev}\n"

# kind of fault -> text after HEAD -> the complete line of the error
FAULTS = {
    "unknown key": {
        "model: {nrom: pre}": '4:9: unknown key "model.nrom"; did you mean "norm"?',
        "model: {Norm: pre}": '4:9: unknown key "model.Norm"; did you mean "norm"?',
        "warmup_steps: 3": '4:1: unknown key "warmup_steps"; did you mean "schedule.warmup_updates"?',
        "optim: {zzz: 1}": '4:9: unknown key "optim.zzz"; optim has kind, betas, eps, weight_decay, clip_norm, label_smoothing, accumulate',
        "schedule: {warmup: 3}": '4:12: unknown key "schedule.warmup"; did you mean "warmup_updates"?',
        "train: {'': 3}": '4:9: unknown key "train."; train has validate_every, max_validations, min_lr, stop_patience, keep, average, max_bad_updates, log_every, recompute, shard, tensorboard, wandb',
        "data.batch_tokens: 5": '4:1: unknown key "data.batch_tokens"; in a recipe, write "batch_tokens" under "data"',
    },
    "right key, wrong section": {
        "dropout: 0.1": '4:1: unknown key "dropout"; "dropout" belongs under "segment" or "model"',
        "optim: {dim: 4}": '4:9: unknown key "optim.dim"; "dim" belongs under "model"',
        "decode: {max_len: 4}": '4:10: unknown key "decode.max_len"; "max_len" belongs under "data"; did you mean "max_len_offset"?',
        "model: {seed: 4}": '4:9: unknown key "model.seed"; "seed" belongs at the top level',
    },
    "key of another kind": {
        "schedule: {lr: 3e-4}": '4:12: "schedule.lr" is a key of kind: no_warmup, linear or constant, but schedule.kind is inverse_sqrt',
        "schedule: {kind: linear, lr: 1, total_updates: 900, patience: 3}": '4:53: "schedule.patience" is a key of kind: val_decay or no_warmup, but schedule.kind is linear',
        "segment: {kind: whitespace, merges: 3}": '4:29: "segment.merges" is a key of kind: fastbpe, but segment.kind is whitespace',
    },
    "no such kind": {
        "schedule: {kind: invers_sqrt}": '4:18: schedule.kind: "invers_sqrt" is not inverse_sqrt, val_decay, no_warmup, linear, constant or lr_ramp; did you mean "inverse_sqrt"?',
        "segment: {kind: bpe, merges: 3}": '4:17: segment.kind: "bpe" is not fastbpe, sentencepiece or whitespace; did you mean "fastbpe"?',
        "segment: {kind: [a, b]}": "4:17: segment.kind: [a, b] is not fastbpe, sentencepiece or whitespace",
    },
    "what YAML makes of numbers": {
        "model: {dim: 1:30}": '4:14: model.dim: "1:30" is not an integer from 2 to 16384',
        "model: {dim: 08}": '4:14: model.dim: "08" can be read in two ways; write 8',
        "model: {dim: 1_000}": '4:14: model.dim: "1_000" can be read in two ways; write 1000',
        "train: {min_lr: 00_0.0_1}": '4:17: train.min_lr: "00_0.0_1" can be read in two ways; write 0.01',
        "model: {dim: 0x10}": '4:14: model.dim: "0x10" is not an integer from 2 to 16384',
        "model: {dim: 1.5}": '4:14: model.dim: "1.5" is not an integer from 2 to 16384',
    },
    "the same key twice": {
        "data: {train: b, dev: c}": '4:1: key "data" is set twice, first at r.yaml:3:1',
        "model: {dim: 4, dim: 8}": '4:17: key "model.dim" is set twice, first at r.yaml:4:9',
    },
    "bad YAML": {
        "model:\n\tdim: 3": "5:1: not YAML: a tab; indent with spaces",
        "model: {dim: 3": "4:15: not YAML: a comma or a closing bracket is missing",
        "out: a: b": '4:7: not YAML: a second ": ", or indentation that matches no line above; put text that contains ": " in quotes',
        "model:\n   dim: 3\n  heads: 3": "6:3: not YAML: indentation that matches no line above",
        "nonsense\nseed: 3": '4:1: "nonsense" needs a colon',
        "out  # a: b\n\n# c: d\nseed: 3": '4:1: "out" needs a colon',
        "out:x\nseed: 3": '4:1: "out:x" needs a space after the colon: out: x',
        "model:\n  dim:3\n  heads: 3": '5:3: "dim:3" needs a space after the colon: dim: 3',
        "model:\n  - a\n    b: c": '6:6: not YAML: a second ": ", or indentation that matches no line above; put text that contains ": " in quotes',
        "out: a\n  b\n  c: d": '6:4: not YAML: a second ": ", or indentation that matches no line above; put text that contains ": " in quotes',
        f"{'x' * 99}\nseed: 3": f'4:1: "{"x" * 60}..." needs a colon',
        "---\nseed: 3": "4:1: not YAML: a second document begins here; a recipe is a single document",
        "out: \x07": "4:6: not YAML: the character U+0007 is not allowed",
        "? [a, b]\n: c": "4:3: a key must be one word",
    },
    "tags, anchors": {
        "x: !!python/object/apply:os.system [ls]": "4:4: this tag is not allowed: !!python/object/apply:os.system",
        "seed: !mine 3": "4:7: this tag is not allowed: !mine",
        "model: &a {dim: 4}": "4:8: anchors and aliases (&, *) are not allowed; put text that begins with & or * in quotes",
        "out: *runs": "4:6: anchors and aliases (&, *) are not allowed; put text that begins with & or * in quotes",
        "out: " + "[" * 50: "4:15: nested more than 10 levels deep",
    },
    "wrong type or out of range": {
        "model: {dropout: 1.5}": '4:18: model.dropout: "1.5" is not a number of at least 0 and below 1',
        "model: {attn_dropout: x}": '4:23: model.attn_dropout: "x" is not a number of at least 0 and below 1, or none',
        "train: {validate_every: -5}": '4:25: train.validate_every: "-5" is not an integer of at least 1',
        "model: {norm: layer-norm}": '4:15: model.norm: "layer-norm" is not layernorm, rmsnorm or scalenorm; did you mean "layernorm"?',
        "model: {norm: {kind: x}}": "4:15: model.norm: a group of keys is not layernorm, rmsnorm or scalenorm",
        "model: {bias: maybe}": '4:15: model.bias: "maybe" is not true or false',
        "device: gpu": '4:9: device: "gpu" is not auto, cpu, cuda or cuda:N',
        "seed: [1]": "4:7: seed: [1] is not an integer from 0 to 4294967295",
        "decode:\n- beam": "5:1: decode: [beam] is not a group of keys",
        "optim: {betas: [0.9]}": "4:16: optim.betas: [0.9] is not a list of 2, each a number of at least 0 and below 1",
        "optim: {betas: [0.9, 2]}": '4:22: optim.betas: "2" is not a number of at least 0 and below 1',
        "score: {metrics: bleu}": '4:18: score.metrics: "bleu" is not a list of one or more, each bleu, chrf, chrf++ or ter; write [bleu]',
        "score: {metrics: [bleu, blue]}": '4:25: score.metrics: "blue" is not bleu, chrf, chrf++ or ter; did you mean "bleu"?',
        "score: {metrics: none}": '4:18: score.metrics: "none" is not a list of one or more, each bleu, chrf, chrf++ or ter',
        "time_limit: inf": '4:13: time_limit: "inf" is not a number above 0, or none',
        f"seed: {'9' * 99}": f'''4:7: seed: "{"9" * 59}... is not an integer from 0 to 4294967295''',
    },
    "more than any machine has": {
        "model: {dim: 100000}": '4:14: model.dim: "100000" is not an integer from 2 to 16384',
        f"schedule: {{warmup_updates: {'9' * 50}}}": f'4:28: schedule.warmup_updates: "{"9" * 50}" is not an integer from 0 to 1000000000',
    },
    "contradictions name both keys": {
        "analysis: {every: 9, observe: [head_scale]}": "4:22: analysis.observe: head_scale requires model.head_scale",
        "model: {head_scale: no}\nanalysis: {every: 9, observe: [gains, head_scale]}": "5:22: analysis.observe: head_scale requires model.head_scale",
        "model: {heads: 3}": "4:9: model.heads (3) must divide model.dim (512)",
        "model:\n  dim: 64\n  scalenorm_gain: fixed\n  norm: rmsnorm": "6:3: model.scalenorm_gain: fixed contradicts model.norm: rmsnorm; only ScaleNorm has a gain to fix",
        "model: {normformer: yes, ffn_norm: no}": "4:26: model.ffn_norm: false contradicts model.normformer: true; leave normformer out and set head_scale, post_attn_norm, ffn_norm one by one",
        "model: {extra_norm: rmsnorm}": "4:9: model.extra_norm: rmsnorm has no effect without one of model.post_attn_norm, model.ffn_norm, model.qkv_norm",
        "score: {select_by: chrf, metrics: [bleu]}": "4:9: score.select_by: chrf is not among score.metrics: [bleu]",
    },
    "learning rates": {
        "schedule: {kind: constant}": '4:1: required key "schedule.lr" is missing; kind: constant needs it',
        "schedule: {kind: constant, lr: 0}": '4:32: schedule.lr: "0" is not a number above 0',
        "schedule: {kind: no_warmup, lr: nan}": '4:33: schedule.lr: "nan" is not a number above 0',
        "schedule: {scale: 1e-4}": "4:12: train.min_lr (1e-06) is above the highest learning rate (4.94e-08, from schedule.scale); training would end at once",
        "schedule: {kind: linear, lr: 1e-9, warmup_updates: 0, total_updates: 1}": "4:26: train.min_lr (1e-06) is above the highest learning rate (1e-09, from schedule.lr); training would end at once",
        "schedule: {kind: linear, lr: 1e-3, total_updates: 900, end_lr: 1}": "4:56: schedule.end_lr (1.0) must not exceed schedule.lr (0.001)",
    },
}
PYDANTIC = r"\binput|valid(?!ate_every|ations)|tuple|dictionary|union|field|discriminator"
CASES = [(text, message) for row in FAULTS.values() for text, message in row.items()]


@pytest.mark.parametrize(("text", "message"), CASES, ids=[text[:40] for text, _ in CASES])
def test_each_fault_of_a_recipe_is_an_error_with_its_place(text: str, message: str):
    with pytest.raises(UserError) as error:
        recipe_from_text(HEAD + text, "r.yaml")
    assert f"r.yaml:{message}" in str(error.value).splitlines()
    assert error.value.exit_code == 2
    assert error.value.fix
    words = re.sub(r'".*?"', "", str(error.value)).lower()  # without the recipe's own
    assert not re.search(PYDANTIC, words), words


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "just text"])
def test_a_file_that_is_not_a_mapping_is_an_error(text: str):
    with pytest.raises(UserError, match="a recipe has lines of the form"):
        recipe_from_text(text, "r.yaml")


def test_equal_languages_are_an_error():
    with pytest.raises(UserError, match=r"r\.yaml:2:1: tgt and src must differ"):
        recipe_from_text(HEAD.replace("tgt: en", "tgt: gl"), "r.yaml")


@pytest.mark.parametrize(("train", "column"), [("''", 15), ("['', b]", 16), ("[b, '']", 19)])
def test_an_empty_path_is_an_error(train: str, column: int):
    with pytest.raises(UserError, match=rf'r\.yaml:3:{column}: data\.train: ""'):
        recipe_from_text(f"src: gl\ntgt: en\ndata: {{train: {train}, dev: a}}\n", "r.yaml")


@pytest.mark.slow
def test_thousands_of_unknown_keys_are_refused_at_once():
    started = time.process_time()
    with pytest.raises(UserError):
        recipe_from_text(HEAD + "".join(f"k{n}: 1\n" for n in range(20_000)), "r.yaml")
    assert time.process_time() - started < 30


def test_the_command_prints_the_error_and_writes_nothing(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("r.yaml").write_text(HEAD + "model: {nrom: pre}\n", encoding="utf-8")
    assert train.main(["r.yaml"]) == 2
    message = capsys.readouterr().err
    assert 'r.yaml:4:9: unknown key "model.nrom"' in message
    assert "Traceback" not in message
    assert [p.name for p in tmp_path.iterdir()] == ["r.yaml"]
    assert train.main(["missing.yaml"]) == 2
    assert "missing.yaml" in capsys.readouterr().err


def test_a_missing_gpu_is_exit_4_before_anything_is_written(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("r.yaml").write_text(HEAD, encoding="utf-8")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert train.main(["r.yaml", "device=cuda"]) == 4
    assert "device=cpu" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["r.yaml"]


def test_a_linear_schedule_of_one_update_is_valid():
    """The rate of its only update is end_lr, as in every last update."""
    schedule = "schedule: {kind: linear, lr: 1e-3, warmup_updates: 0, total_updates: 1}"
    assert recipe_from_text(HEAD + schedule, "r.yaml").schedule.finished(1, 1.0)


def test_observed_parts_may_come_from_the_preset():
    text = "model: {normformer: true, res_scale: all}\n"
    text += "analysis: {every: 9, observe: [gains, head_scale, res_scale]}"
    assert recipe_from_text(HEAD + text, "r.yaml").analysis.every == 9


def test_a_pipe_is_read_and_one_without_a_writer_is_an_error_at_once(tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(UserError, match="pipe: nothing writes to this pipe"):
        load_recipe(pipe)

    read, write = os.pipe()  # as a shell's <(...), whose writer may be late

    def write_late() -> None:
        time.sleep(0.1)
        os.write(write, HEAD.encode())
        os.close(write)

    writer = threading.Thread(target=write_late)
    writer.start()
    assert load_recipe(f"/dev/fd/{read}").src == "gl"
    writer.join()
    os.close(read)


def test_a_model_larger_than_the_memory_is_an_error_before_it_is_built(monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda device: 15_999)
    cpu = torch.device("cpu")
    memory.require_memory(999, 0, "adam", cpu)
    memory.require_memory(1999, 0, "adafactor", cpu)  # weight and gradient
    memory.require_memory(3000, 2900, "adam", cpu)
    with pytest.raises(MachineError, match=r"1,000 parameters needs 15\.6 KB") as caught:
        memory.require_memory(1000, 0, "adam", cpu)
    assert "model.dim" in str(caught.value)


def test_free_memory_is_known_on_this_machine():
    free = memory.free_memory(torch.device("cpu"))
    assert free is None or 1 << 20 < free < 1 << 50
