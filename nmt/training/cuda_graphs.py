"""Forward and backward of a batch as one launch: CUDA graphs, recorded once per shape.

At 4,096 tokens an H200 computes an update in less time than Python takes to launch its thousand
kernels. A graph repeats fixed kernels at fixed addresses, so batches are filled up to a few shapes
(nmt.data.buckets), a batch is copied over the first of its shape, and gradients stay in
place.

Masks stay a function of (seed, epoch, batch): a recording takes seed and offset of the GPU's
generator when it is replayed, not when it is made. So a replay draws what the same work would draw
unrecorded, and whether a batch was replayed changes nothing but time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from nmt.data.batches import Batch
from nmt.data.buckets import Bucket
from nmt.model.transformer import Transformer

# A recording costs some ten updates, so it waits until a shape has come back; before that the same
# work runs unrecorded, which also warms up what may not be set up while recording.
CAPTURE_AT_VISIT = 8
MAX_GRAPHS = 48  # recordings; shapes beyond stay unrecorded

Compute = Callable[[Batch, Tensor], Tensor]


class Capture(Protocol):
    """Turns work into something that does it again: on the same tensors, with the same result."""

    def __call__(self, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """Capture; whether this does the work, too, is open."""


@dataclass(frozen=True)
class _Recording:
    batch: Batch  # where the work reads
    replay: Callable[[], Tensor]
    kept: list[Tensor]  # where else it reads: buffers that the model may replace


class CudaGraphs:
    """Does what ``compute`` does, faster once a shape is known.

    Args:
        compute: forward and backward of a batch, its loss divided by a number of tokens: adds to
            the gradients of ``model`` and returns a tensor. Reads nothing back.
        model: gets gradients that are never moved.
        record: how to record.
        say: is told once if recording fails; then everything runs unrecorded.
    """

    def __init__(
        self, compute: Compute, model: Transformer, record: Capture, say: Callable[[str], None]
    ) -> None:
        self.compute, self.model, self.record, self.say = compute, model, record, say
        self.visits: Counter[Bucket] = Counter()
        self.recordings: dict[Bucket, _Recording] = {}
        self.failed = False
        parameters = list(model.parameters())
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
        self._tokens = torch.ones((), device=parameters[0].device)

    def __call__(self, batch: Batch, tokens: int) -> Tensor:
        """The result of ``compute``, to be read before the next call."""
        self._tokens.fill_(tokens)
        recording = self._recording(batch)
        if recording is None:
            return self.compute(batch, self._tokens)
        assert recording.batch.buffer is not None
        assert batch.buffer is not None
        recording.batch.buffer.copy_(batch.buffer)
        return recording.replay()

    def _recording(self, batch: Batch) -> _Recording | None:
        bucket = batch.bucket
        if bucket is None or bucket in self.recordings:
            return self.recordings.get(bucket) if bucket else None
        self.visits[bucket] += 1
        if (
            self.failed
            or self.visits[bucket] < CAPTURE_AT_VISIT
            or len(self.recordings) == MAX_GRAPHS
        ):
            return None
        try:
            replay = self.record(lambda: self.compute(batch, self._tokens))
        except RuntimeError as error:
            self.failed = True
            self.recordings.clear()  # their masks come from a generator that may be gone
            reason = str(error).splitlines()[0]
            self.say(f"note: updates are not recorded as CUDA graphs, which failed: {reason}")
            return None
        self.recordings[bucket] = _Recording(batch, replay, list(self.model.buffers()))
        return self.recordings[bucket]


class CudaCapture:
    """Records CUDA graphs that share one pool of memory: only one of them runs at a time."""

    def __init__(self) -> None:
        self.pool = torch.cuda.graph_pool_handle()

    def __call__(self, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """Recording does not do the work."""
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        try:
            # thread_local: the thread that brings the next batches goes on meanwhile
            with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
                result = work()
        except RuntimeError:
            _recover(stream)
            raise

        def replay() -> Tensor:
            graph.replay()
            return result

        return replay


def _recover(stream: torch.cuda.Stream) -> None:
    """Undo what torch keeps of a recording that failed.

    Its stream stays the current one, and in some versions of torch the generator believes that it
    is still being recorded and refuses to draw; a new state of the same seed takes its place.
    """
    torch.cuda.set_stream(stream)
    generator = torch.cuda.default_generators[stream.device_index]
    fresh = torch.Generator(device=generator.device)
    fresh.manual_seed(generator.initial_seed())
    generator.graphsafe_set_state(fresh.graphsafe_get_state())
