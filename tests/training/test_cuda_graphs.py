"""Captured updates, without a GPU: a fake capture repeats the work on the same buffers."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from nmt.data.batches import UpdateBatches
from nmt.store.checkpoint import load_checkpoint
from nmt.training import cuda_graphs
from nmt.training.trainer import Trainer
from tests.training.helpers import NO_DROPOUT, FakeCapture, Work, weights

UPDATES = ["train.validate_every=6", "train.max_validations=2", "optim.accumulate=2"]


@pytest.fixture(autouse=True)
def _soon(monkeypatch) -> None:
    """Capture buckets at their second visit, so that a few updates are enough for a test."""
    monkeypatch.setattr(cuda_graphs, "CAPTURE_AT_VISIT", 2)


@pytest.fixture
def start(start) -> Callable[..., Trainer]:
    """Return ``start`` with few updates, each of two batches."""
    return functools.partial(start, *UPDATES)


def never(work: Work) -> Work:
    raise AssertionError("captured")


@pytest.mark.slow
def test_captured_updates_equal_eager_ones(start):
    eager, capture = start(*NO_DROPOUT), FakeCapture()
    captured = start(*NO_DROPOUT, capture=capture)
    addresses = {n: p.grad.data_ptr() for n, p in captured.model.named_parameters()}
    for update, filled in zip(eager.updates(), captured.updates(), strict=True):
        eager.update(update)
        captured.update(filled)
        for p, q in zip(eager.model.parameters(), captured.model.parameters(), strict=True):
            torch.testing.assert_close(q.grad, p.grad, atol=1e-5, rtol=0)
            # equal weights again, so that rounding does not add up over updates
            q.data.copy_(p.data)
        if eager.state.update == 10:
            break
    assert capture.captured == len(captured.cuda_graphs.graphs) > 1
    assert capture.replayed > 5
    assert {n: p.grad.data_ptr() for n, p in captured.model.named_parameters()} == addresses
    eager.interval.store()
    captured.interval.store()
    one, two = eager.state.interval, captured.state.interval
    assert (two.smoothed, two.nll) == pytest.approx((one.smoothed, one.nll), rel=1e-5)
    assert two.tokens == one.tokens


@pytest.mark.slow
def test_replaying_a_batch_changes_no_weight(start, monkeypatch):
    """With dropout, bit for bit: both draw masks from (seed, epoch, batch)."""
    capture = FakeCapture()
    captured = start(capture=capture)
    captured.run()
    assert capture.replayed > 5
    monkeypatch.setattr(cuda_graphs, "CAPTURE_AT_VISIT", 10**9)
    eager = start(capture=never)
    eager.run()
    for name, tensor in weights(captured).items():
        assert torch.equal(weights(eager)[name], tensor)


@pytest.mark.slow
def test_a_resumed_run_equals_one_that_never_stopped(start):
    whole = start(capture=FakeCapture())
    whole.run()
    stopped = start(capture=FakeCapture(), stop_after=9)
    assert stopped.run() is None
    checkpoint = load_checkpoint(stopped.run_folder)
    assert checkpoint.state.update == 9
    resumed = start(capture=FakeCapture(), checkpoint=checkpoint)
    resumed.run()
    for name, tensor in weights(whole).items():
        assert torch.equal(weights(resumed)[name], tensor)


@pytest.mark.slow
def test_a_failed_capture_is_reported_once_and_training_continues(start):
    capture = FakeCapture()

    def failing(work: Work) -> Work:
        if capture.captured:
            raise RuntimeError("no graphs today\nand a trace")
        return capture(work)

    failed, eager = start(capture=failing), start(capture=FakeCapture())
    eager.cuda_graphs.failed = True
    for trainer in (failed, eager):
        trainer.run()
    for name, tensor in weights(failed).items():
        assert torch.equal(weights(eager)[name], tensor)
    assert not failed.cuda_graphs.graphs  # also without the first graph
    log = (failed.run_folder.path / "train.log").read_text()
    note = "training continues without CUDA graphs, which is slower, because a capture failed: "
    assert log.count("CUDA graphs") == 1
    assert f"note: {note}no graphs today\n" in log


def test_the_number_of_graphs_is_limited(start, monkeypatch):
    monkeypatch.setattr(cuda_graphs, "MAX_GRAPHS", 1)
    capture = FakeCapture()
    trainer = start(capture=capture)
    trainer.run()
    assert capture.captured == len(trainer.cuda_graphs.graphs) == 1


def test_a_batch_without_a_bucket_runs_without_a_graph(start):
    trainer = start(capture=FakeCapture())
    update = next(trainer.updates())
    planned = next(start().updates()).own
    assert planned[0].batch.bucket is None
    trainer.update(UpdateBatches(planned, update.tokens, update.epoch, update.next_batch))
    assert not trainer.cuda_graphs.visits


def test_a_cpu_uses_no_graphs(start):
    assert start().cuda_graphs is None


class FakeCuda:
    """The parts of torch.cuda that a capture uses; records the calls."""

    def __init__(self, monkeypatch) -> None:
        self.calls: list[object] = []
        self.generator = SimpleNamespace(
            device="cpu", initial_seed=lambda: 7, graphsafe_set_state=self.calls.append
        )
        fresh = SimpleNamespace(manual_seed=self.calls.append, graphsafe_get_state=lambda: "new")
        stream = SimpleNamespace(device_index=0)
        replaced = {
            "graph_pool_handle": lambda: "pool",
            "CUDAGraph": lambda: SimpleNamespace(replay=lambda: self.calls.append("replay")),
            "current_stream": lambda: stream,
            "set_stream": lambda s: self.calls.append(("stream", s is stream)),
            "default_generators": (self.generator,),
            "graph": self.graph,
        }
        for name, value in replaced.items():
            monkeypatch.setattr(torch.cuda, name, value)
        monkeypatch.setattr(torch, "Generator", lambda device: fresh)

    @contextlib.contextmanager
    def graph(self, graph, pool, capture_error_mode):
        self.calls.append((pool, capture_error_mode))
        yield


def test_a_cuda_graph_is_replayed_and_returns_its_tensor(monkeypatch):
    fake, result = FakeCuda(monkeypatch), torch.zeros(2)
    capture = cuda_graphs.CudaCapture()
    replay = capture(lambda: result)
    assert fake.calls == [("pool", "thread_local")]
    assert replay() is result
    assert fake.calls[1:] == ["replay"]


def test_a_failed_cuda_capture_restores_stream_and_generator(monkeypatch):
    def work() -> Tensor:
        raise RuntimeError("operation not permitted")

    fake = FakeCuda(monkeypatch)
    with pytest.raises(RuntimeError, match="not permitted"):
        cuda_graphs.CudaCapture()(work)
    assert fake.calls[1:] == [("stream", True), 7, "new"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_graphs_compute_the_same_as_eager_kernels(start, monkeypatch):
    """With dropout: a replay draws the same masks as eager work."""
    captured = start(device="cuda")
    captured.run()
    assert captured.cuda_graphs.graphs
    assert not captured.cuda_graphs.failed
    monkeypatch.setattr(cuda_graphs, "CAPTURE_AT_VISIT", 10**9)
    eager = start(device="cuda")
    eager.run()
    for name, tensor in weights(captured).items():
        torch.testing.assert_close(weights(eager)[name], tensor, atol=1e-4, rtol=1e-3)
