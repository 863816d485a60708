"""Recorded updates without a GPU: whoever records, the same work on the same buffers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from nmt.config.load import dump_recipe, load_recipe
from nmt.data.batches import Update
from nmt.data.prepare import prepare
from nmt.run.checkpoint import Checkpoint, load_checkpoint
from nmt.run.lifecycle import TrainingFolder
from nmt.training import cuda_graphs
from nmt.training.trainer import Trainer
from tests.toy import toy_corpus, toy_recipe

NO_DROPOUT = ["model.dropout=0", "model.word_dropout=0"]
UPDATES = ["train.validate_every=6", "train.max_validations=2", "optim.accumulate=2"]
Work = Callable[[], Tensor]


class Recorder:
    """Does recorded work again as it is; what the first recording gave must not be read late."""

    def __init__(self) -> None:
        self.recorded = self.replayed = 0

    def __call__(self, work: Work) -> Work:
        self.recorded += 1

        def replay() -> Tensor:
            self.replayed += 1
            return work()

        return replay


class Log:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def text(self, line: str) -> None:
        self.lines.append(line)

    def record(self, values: dict) -> None:
        pass


@pytest.fixture(autouse=True)
def _soon(monkeypatch) -> None:
    """Shapes are recorded at their second visit: a few updates are enough for a test."""
    monkeypatch.setattr(cuda_graphs, "CAPTURE_AT_VISIT", 2)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    toy_corpus(folder, {"train": 100, "dev": 4, "test": 4})
    return toy_recipe(folder)


@pytest.fixture
def start(recipe, tmp_path) -> Iterator[Callable[..., Trainer]]:
    with contextlib.ExitStack() as stack:

        def make(
            *overrides: str,
            record: cuda_graphs.Capture | None = None,
            checkpoint: Checkpoint | None = None,
            stop_after: int = 10**9,
            device: str = "cpu",
        ) -> Trainer:
            resolved = load_recipe(recipe, [*UPDATES, *overrides])
            number = len(list(tmp_path.glob("run*")))
            folder = TrainingFolder(tmp_path / f"run{number}", dump_recipe(resolved))
            run, prepared = stack.enter_context(folder), prepare(resolved)
            trainer = Trainer(
                resolved,
                prepared,
                run,
                torch.device(device),
                "fp32",
                Log(),
                lambda: trainer.state.update >= stop_after,
                checkpoint,
            )
            if record is not None:
                trainer.use_cuda_graphs(record)
            return trainer

        yield make


def weights(trainer: Trainer) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in trainer.model.named_parameters()}


def never(work: Work) -> Work:
    raise AssertionError("recorded")


def test_recorded_updates_equal_plain_ones(start):
    plain, recorder = start(*NO_DROPOUT), Recorder()
    recorded = start(*NO_DROPOUT, record=recorder)
    homes = {n: p.grad.data_ptr() for n, p in recorded.model.named_parameters()}
    for update, filled in zip(plain.updates(), recorded.updates(), strict=True):
        plain.update(update)
        recorded.update(filled)
        for p, q in zip(plain.model.parameters(), recorded.model.parameters(), strict=True):
            torch.testing.assert_close(q.grad, p.grad, atol=1e-5, rtol=0)
            # so that an update's rounding does not become the next one's difference
            q.data.copy_(p.data)
        if plain.state.update == 10:
            break
    assert recorder.recorded == len(recorded.cuda_graphs.graphs) > 1
    assert recorder.replayed > 5
    assert {n: p.grad.data_ptr() for n, p in recorded.model.named_parameters()} == homes
    plain.interval.store()
    recorded.interval.store()
    one, two = plain.state.interval, recorded.state.interval
    assert (two.smoothed, two.nll) == pytest.approx((one.smoothed, one.nll), rel=1e-5)
    assert two.tokens == one.tokens


def test_whether_a_batch_is_replayed_changes_nothing(start, monkeypatch):
    """With dropout: masks come from (seed, epoch, batch) in both, so bit for bit."""
    recorder = Recorder()
    recorded = start(record=recorder)
    recorded.run()
    assert recorder.replayed > 5
    monkeypatch.setattr(cuda_graphs, "CAPTURE_AT_VISIT", 10**9)
    unrecorded = start(record=never)
    unrecorded.run()
    for name, tensor in weights(recorded).items():
        assert torch.equal(weights(unrecorded)[name], tensor)


def test_a_resumed_run_equals_one_that_never_stopped(start):
    whole = start(record=Recorder())
    whole.run()
    stopped = start(record=Recorder(), stop_after=9)
    assert stopped.run() is None
    checkpoint = load_checkpoint(stopped.run_folder)
    assert checkpoint.state.update == 9
    resumed = start(record=Recorder(), checkpoint=checkpoint)
    resumed.run()
    for name, tensor in weights(whole).items():
        assert torch.equal(weights(resumed)[name], tensor)


def test_failing_to_record_is_said_once_and_harmless(start):
    recorder = Recorder()

    def failing(work: Work) -> Work:
        if recorder.recorded:
            raise RuntimeError("no graphs today\nand a trace")
        return recorder(work)

    failed, unrecorded = start(record=failing), start(record=Recorder())
    unrecorded.cuda_graphs.failed = True
    for trainer in (failed, unrecorded):
        trainer.run()
    for name, tensor in weights(failed).items():
        assert torch.equal(weights(unrecorded)[name], tensor)
    assert not failed.cuda_graphs.graphs  # not even the one that was made
    notes = [line for line in failed.log.lines if line.startswith("note")]
    assert notes == [
        "note: training continues without CUDA graphs, which is slower, because a capture failed: "
        "no graphs today"
    ]


def test_recordings_are_bounded(start, monkeypatch):
    monkeypatch.setattr(cuda_graphs, "MAX_GRAPHS", 1)
    recorder = Recorder()
    trainer = start(record=recorder)
    trainer.run()
    assert recorder.recorded == len(trainer.cuda_graphs.graphs) == 1


def test_a_pair_beyond_all_shapes_is_computed_as_it_is(start):
    trainer = start(record=Recorder())
    update = next(trainer.updates())
    planned = next(start().updates()).planned
    assert planned[0].batch.bucket is None
    trainer.update(Update(planned, update.tokens, update.epoch, update.next_batch))
    assert not trainer.cuda_graphs.visits


def test_graphs_are_for_gpus(start):
    assert start().cuda_graphs is None


class FakeCuda:
    """torch.cuda as far as recording needs it; says what was asked of it."""

    def __init__(self, monkeypatch) -> None:
        self.asked: list[object] = []
        self.generator = SimpleNamespace(
            device="cpu", initial_seed=lambda: 7, graphsafe_set_state=self.asked.append
        )
        fresh = SimpleNamespace(manual_seed=self.asked.append, graphsafe_get_state=lambda: "new")
        stream = SimpleNamespace(device_index=0)
        replaced = {
            "graph_pool_handle": lambda: "pool",
            "CUDAGraph": lambda: SimpleNamespace(replay=lambda: self.asked.append("replay")),
            "current_stream": lambda: stream,
            "set_stream": lambda s: self.asked.append(("stream", s is stream)),
            "default_generators": (self.generator,),
            "graph": self.graph,
        }
        for name, value in replaced.items():
            monkeypatch.setattr(torch.cuda, name, value)
        monkeypatch.setattr(torch, "Generator", lambda device: fresh)

    @contextlib.contextmanager
    def graph(self, graph, pool, capture_error_mode):
        self.asked.append((pool, capture_error_mode))
        yield


def test_a_cuda_recording_is_replayed_and_gives_its_tensor(monkeypatch):
    fake, result = FakeCuda(monkeypatch), torch.zeros(2)
    record = cuda_graphs.CudaCapture()
    replay = record(lambda: result)
    assert fake.asked == [("pool", "thread_local")]
    assert replay() is result
    assert fake.asked[1:] == ["replay"]


def test_a_cuda_recording_that_fails_leaves_stream_and_generator_usable(monkeypatch):
    def work() -> Tensor:
        raise RuntimeError("operation not permitted")

    fake = FakeCuda(monkeypatch)
    with pytest.raises(RuntimeError, match="not permitted"):
        cuda_graphs.CudaCapture()(work)
    assert fake.asked[1:] == [("stream", True), 7, "new"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_graphs_compute_what_unrecorded_kernels_compute(start, monkeypatch):
    """With dropout: a replay draws the masks that the unrecorded work would draw."""
    recorded = start(device="cuda")
    recorded.run()
    assert recorded.cuda_graphs.graphs
    assert not recorded.cuda_graphs.failed
    monkeypatch.setattr(cuda_graphs, "CAPTURE_AT_VISIT", 10**9)
    unrecorded = start(device="cuda")
    unrecorded.run()
    for name, tensor in weights(recorded).items():
        torch.testing.assert_close(weights(unrecorded)[name], tensor, atol=1e-4, rtol=1e-3)
