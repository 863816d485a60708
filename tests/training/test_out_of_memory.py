"""Batches that do not fit in memory are computed in parts, with the same updates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from nmt.cli.train import main
from nmt.errors import MachineError
from nmt.training import cuda_graphs
from nmt.training.trainer import Trainer
from tests.training.helpers import NO_DROPOUT, FakeCapture, gradients, norm, records, weights

KEYS = ("data.batch_tokens=256", "optim.accumulate=2", "optim.clip_norm=0", *NO_DROPOUT)


@pytest.fixture
def start(start) -> Callable[..., Trainer]:
    """Return ``start`` with large batches, without dropout, in double precision."""

    def make(*keys: str, **more: Any) -> Trainer:
        trainer = start(*KEYS, *keys, **more)
        trainer.model.double()
        return trainer

    return make


def fails_above(trainer: Trainer, tokens: int, where: str) -> list[int]:
    """Let larger batches run out of memory, before or after backward; return the sizes tried."""
    tried: list[int] = []
    loss, forward_backward = trainer.task.loss, trainer.forward_backward

    def check(size: int) -> None:
        if size > tokens:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    def limited_loss(model: Any, batch: Any) -> Any:
        tried.append(batch.tokens)
        if where == "forward":
            check(batch.tokens)
        return loss(model, batch)

    def limited_backward(batch: Any, tokens: Any) -> Any:
        found = forward_backward(batch, tokens)  # adds the gradients
        check(batch.tokens)
        return found

    trainer.task.loss = limited_loss  # type: ignore[method-assign]
    if where == "backward":
        trainer.forward_backward = limited_backward  # type: ignore[method-assign]
    return tried


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_the_updates_are_those_of_complete_batches(start, where, capsys):
    whole, limited = start(), start()
    tried = fails_above(limited, 60, where)
    updates = [trainer.updates() for trainer in (whole, limited)]
    for number in range(3):
        for trainer, stream in zip((whole, limited), updates, strict=True):
            trainer.update(next(stream))
        if not number:  # later, Adam makes a step of what is rounding in parts without influence
            for name, gradient in gradients(whole).items():
                torch.testing.assert_close(gradients(limited)[name], gradient, atol=1e-12, rtol=0)
    assert norm(gradients(whole)) > 0.1
    assert max(tried) > 120  # a half was too large, too
    assert limited.largest_batch <= 60
    found, expected = (
        [(r["loss"], r["grad_norm"]) for r in records(t.run_folder.path, "train")]
        for t in (limited, whole)
    )
    assert len(found) == 3
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other, rel=1e-6)
    assert limited.state.target_tokens == whole.state.target_tokens
    assert capsys.readouterr().err.count("out of memory") == 1


def test_a_later_batch_is_divided_at_once(start):
    trainer = start()
    tried = fails_above(trainer, 60, "forward")
    updates = trainer.updates()
    for _ in range(2):
        tried.clear()
        trainer.update(next(updates))
    assert max(tried) <= 60


def test_graphs_are_not_used_for_parts(start, monkeypatch):
    monkeypatch.setattr(cuda_graphs, "CAPTURE_AT_VISIT", 1)
    capture = FakeCapture()
    trainer = start(capture=capture)
    trainer.largest_batch = 60
    trainer.update(next(trainer.updates()))
    assert capture.captured == 0
    assert norm(weights(trainer)) > 0


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_pair_that_does_not_fit_ends_the_run(recipe, tmp_path, monkeypatch, capsys, accumulate):
    def full(*_: Any) -> Iterator[None]:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Trainer, "forward_backward", full)
    assert main([str(recipe), f"out={tmp_path / 'run'}", f"optim.accumulate={accumulate}"]) == 4
    assert "data.batch_tokens: out of memory on cpu: 1 pair with" in capsys.readouterr().err


def test_processes_with_parts_of_a_model_do_not_begin_again(start, monkeypatch):
    """They compute in step."""
    trainer = start()
    monkeypatch.setattr("nmt.training.trainer.Sharded", type(trainer.parallel))
    fails_above(trainer, 60, "forward")
    with pytest.raises(MachineError) as error:
        trainer.update(next(trainer.updates()))
    assert error.value.at == "data.batch_tokens"
