"""Run forward and backward of a batch as one launch, by CUDA graphs of padded batch shapes.

At 4,096 tokens, an H200 computes an update in less time than Python takes to launch its thousand
kernels. A CUDA graph replays fixed kernels at fixed addresses. So batches are padded to a few
shapes (``nmt.data.batches``), each batch is copied into the memory of the captured one, and
gradients stay in place.

Dropout masks remain a function of (seed, epoch, batch): a graph reads seed and offset of the GPU's
generator when it is replayed, not when it is captured. A replay therefore draws the same masks as
the same work without a graph, and changes nothing but time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nmt.data.batches import Bucket, FlatBatch
from nmt.training.loss import LossSums

# A capture takes the time of about ten updates, so it waits until a shape has come back often.
# The eager runs before it also set up what must not be set up during a capture.
CAPTURE_AT_VISIT = 8
MAX_GRAPHS = 48  # further shapes run without a graph

Compute = Callable[[FlatBatch, Tensor], LossSums]
Work = Callable[[], LossSums]
Capture = Callable[[Work], Work]  # returns a function that repeats the work on the same tensors


@dataclass(frozen=True)
class _Graph:
    batch: FlatBatch  # the memory that the work reads
    replay: Work
    buffers: list[Tensor]  # keeps the model's buffers alive: the model may replace them


class CudaGraphs:
    """Call ``compute`` for a batch, by a graph if its shape has been captured.

    Args:
        compute: runs forward and backward of (batch, tokens), with the loss divided by tokens. It
            adds to the gradients of ``model`` and returns tensors. It must not read from the GPU.
        model: gets gradient tensors that stay at their addresses.
        capture: captures work.
        log: receives one message if capturing fails; everything runs without graphs then.
    """

    def __init__(
        self, compute: Compute, model: nn.Module, capture: Capture, log: Callable[[str], None]
    ) -> None:
        self.compute, self.model, self.capture, self.log = compute, model, capture, log
        self.visits: Counter[Bucket] = Counter()
        self.graphs: dict[Bucket, _Graph] = {}
        self.failed = False
        parameters = [p for p in model.parameters() if p.requires_grad]
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
        self._tokens = torch.ones((), device=parameters[0].device)

    def __call__(self, batch: FlatBatch, tokens: int) -> LossSums:
        """Return the result of ``compute``; the next call may overwrite it."""
        self._tokens.fill_(tokens)
        graph = self._graph_for(batch)
        if graph is None:
            return self.compute(batch, self._tokens)
        assert graph.batch.buffer is not None
        assert batch.buffer is not None
        graph.batch.buffer.copy_(batch.buffer)
        return graph.replay()

    def _graph_for(self, batch: FlatBatch) -> _Graph | None:
        bucket = batch.bucket
        if bucket is None:
            return None
        if bucket in self.graphs:
            return self.graphs[bucket]
        self.visits[bucket] += 1
        full = len(self.graphs) == MAX_GRAPHS
        if self.failed or full or self.visits[bucket] < CAPTURE_AT_VISIT:
            return None
        try:
            replay = self.capture(lambda: self.compute(batch, self._tokens))
        except RuntimeError as error:
            self.failed = True
            self.graphs.clear()  # a failed capture may replace the generator that they read
            reason = str(error).splitlines()[0]
            self.log(
                "note: training continues without CUDA graphs, which is slower, because a capture "
                f"failed: {reason}"
            )
            return None
        self.graphs[bucket] = _Graph(batch, replay, list(self.model.buffers()))
        return self.graphs[bucket]


class CudaCapture:
    """Capture CUDA graphs that share one memory pool, because only one runs at a time."""

    def __init__(self) -> None:
        self.pool = torch.cuda.graph_pool_handle()

    def __call__(self, work: Work) -> Work:
        """Capture the work without running it; return the function that runs it."""
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        try:
            # thread_local: the thread that prepares the next batches keeps running
            with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
                result = work()
        except RuntimeError:
            _clean_up_failed_capture(stream)
            raise

        def replay() -> LossSums:
            graph.replay()
            return result

        return replay


def _clean_up_failed_capture(stream: torch.cuda.Stream) -> None:
    """Restore the stream and the generator that torch leaves in capture mode.

    The capture's stream stays current. In some versions of torch, the generator also stays in
    capture mode and refuses to draw; a new state with the same seed replaces it.
    """
    torch.cuda.set_stream(stream)
    generator = torch.cuda.default_generators[stream.device_index]
    fresh = torch.Generator(device=generator.device)
    fresh.manual_seed(generator.initial_seed())
    generator.graphsafe_set_state(fresh.graphsafe_get_state())
