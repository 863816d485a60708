"""The engine of this toolkit: search and scores with torch, in batches that fit in memory."""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Callable, Generator, Sequence, Set
from typing import TypeAlias

import torch

from nmt.data.batches import collate_sources
from nmt.data.vocab import BOS, PAD, UNK
from nmt.decoding.batching import HalvingBatcher, balanced_batches
from nmt.decoding.codec import SearchInput, TextCodec, text_hash
from nmt.decoding.engine import EncodedPair, TokenScores
from nmt.decoding.ensemble import Ensemble
from nmt.decoding.forced import EncodedPairs, forced_decode
from nmt.decoding.hypothesis import Hypothesis, NonFiniteScores
from nmt.decoding.logits_processors import logits_processors
from nmt.decoding.options import SearchOptions
from nmt.decoding.search import beam_search
from nmt.decoding.strategies import selection_strategy
from nmt.decoding.worker_pool import CAN_FORK, WorkerPool, check_workers
from nmt.model.cpu import kernels
from nmt.model.transformer import Transformer

Job: TypeAlias = tuple[Sequence[SearchInput], SearchOptions]
BatchResults: TypeAlias = Generator[tuple[range, list[list[Hypothesis]]], None, None]

MIN_PARALLEL_SIZE = 4096  # pieces x beam of a call for which it pays to start worker processes


class TorchEngine:
    """Searches and scores with torch; see ``nmt.decoding.engine.Engine``.

    Args:
        model: on the device.
        codec: of its vocabulary and segmenter.
        precision: number format of matrix products with weights.
        workers: processes that search on a CPU; 1 = only this one. More are forked, on Linux. They
            live as long as this object if the weights cannot change, else for one call.
    """

    name = "torch"
    can_score = True

    def __init__(
        self,
        model: Transformer | Ensemble,
        codec: TextCodec,
        device: torch.device,
        precision: str = "fp32",
        workers: int = 1,
    ) -> None:
        self.model, self.codec, self.device = model, codec, device
        self.precision, self.workers = precision, check_workers(workers)
        self._allowed_ids = model.allowed.nonzero()[:, 0]
        self._search_batcher = HalvingBatcher(device)
        self._forced_batcher = HalvingBatcher(device)
        self._pool: WorkerPool[Job, list[list[Hypothesis]]] = WorkerPool()

    def check_options(self, options: SearchOptions, constraints: Set[str]) -> None:
        """Allow all options."""

    def model_hash(self) -> str:
        """Return the SHA-256 of the weights, the vocabulary and the segmenter."""
        digest = hashlib.sha256(text_hash(self.codec.vocab, self.codec.segmenter).encode())
        for name, tensor in self.model.state_dict().items():
            digest.update(name.encode())
            digest.update(tensor.cpu().numpy().tobytes())
        return digest.hexdigest()

    def score(
        self,
        pairs: Sequence[EncodedPair],
        options: SearchOptions,
        stop: Callable[[], None] = lambda: None,
        progress: Callable[[int], None] = lambda pairs: None,
    ) -> list[TokenScores]:
        """Score the target of each pair given its source."""
        return forced_decode(
            self.model.eval(), EncodedPairs(pairs), options, self._forced_batcher, progress, stop
        )

    def search(
        self,
        inputs: Sequence[SearchInput],
        options: SearchOptions,
        stop: Callable[[], None] = lambda: None,
        progress: Callable[[int], None] = lambda lines: None,
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each input, best first; samples in the order of their draws.

        Inputs are searched in batches of similar length, the longest first. ``stop`` is called
        between two positions, and while worker processes search.
        """
        if self.model.training:  # the call visits every module, which takes time for each sentence
            self.model.eval()
        order = sorted(range(len(inputs)), key=lambda row: (-len(inputs[row].ids), row))
        results: list[list[Hypothesis]] = [[] for _ in inputs]
        ordered = [inputs[row] for row in order]
        sizes = [(len(one.ids) + 1) * options.beam for one in ordered]
        on_cpu = self.device.type == "cpu"
        if on_cpu:
            kernels.load_if_worthwhile(sum(sizes))
        large = len(inputs) > 1 and sum(sizes) >= MIN_PARALLEL_SIZE
        if large and on_cpu and self.workers > 1 and CAN_FORK:
            batches = self._search_in_workers(ordered, sizes, options, stop)
        else:
            search = functools.partial(self._search_batch, options=options, stop=stop)
            batches = self._search_batcher.map(search, ordered, sizes, options.batch_tokens)
        with contextlib.closing(batches):
            for batch, hypotheses in batches:
                rows = order[batch.start : batch.stop]
                for row, row_hypotheses in zip(rows, hypotheses, strict=True):
                    results[row] = row_hypotheses
                progress(sum(inputs[row].part == 0 for row in rows))
        return results

    def _search_in_workers(
        self,
        inputs: Sequence[SearchInput],
        sizes: Sequence[int],
        options: SearchOptions,
        stop: Callable[[], None],
    ) -> BatchResults:
        """Yield the indices and hypotheses of each batch; each worker process searches one."""
        kernels.load()  # once, not in each process
        batches = balanced_batches(sizes, options.batch_tokens, self.workers)
        jobs = [(inputs[batch.start : batch.stop], options) for batch in batches]
        keep = bool(self.model.for_inference)
        results = self._pool.map(
            self._search_job,
            jobs,
            self.workers if keep else min(self.workers, len(jobs)),
            known=(self.model, self.codec),
            keep=keep,
            stop=stop,
        )
        with contextlib.closing(results):
            yield from zip(batches, results, strict=True)

    def _search_job(self, job: Job) -> list[list[Hypothesis]]:
        return self._search_batch(*job, stop=lambda: None)  # the parent kills the worker instead

    def _search_batch(
        self, inputs: Sequence[SearchInput], options: SearchOptions, stop: Callable[[], None]
    ) -> list[list[Hypothesis]]:
        """Search a batch with the model: plain, constrained or sampled, as the options say."""
        src, layout = collate_sources([one.ids for one in inputs])
        layout = layout.to(self.device)
        required = torch.tensor([one.required_length for one in inputs], device=self.device)
        max_len = (layout.lengths + options.max_len_offset).maximum(required)
        processors = logits_processors(
            inputs, options, max_len, lambda: self.codec.for_tag(options.tag).strings
        )
        strategy = selection_strategy(inputs, options, max_len, processors)
        # a plain search needs logits only of the types that the model can produce
        types = None if processors or strategy is not None else self._allowed_ids
        # without model.logit_mask, a model could produce the tags of sources, and MASK
        reserved = [i for i in self.codec.vocab.reserved_ids if self.model.allowed[i]]
        forbidden = [PAD, BOS, *reserved] if options.allow_unk else [PAD, BOS, UNK, *reserved]
        diverse = options.groups > 1  # the best of a group may be the second best of all
        try:
            with torch.no_grad():
                state = self.model.start_decoding(
                    src.to(self.device), layout, options.beam, int(max_len.max()), types
                )
                results = beam_search(
                    state,
                    options.beam,
                    max_len,
                    options.length_alpha,
                    torch.tensor(forbidden, device=self.device),
                    options.beam if diverse else options.wanted,
                    processors,
                    strategy,
                    # each sample is a group: all start, and none displaces another
                    options.beam if options.sample else options.groups,
                    types,
                    stop,
                    options.stop_rule,
                )
        except NonFiniteScores as error:
            raise NonFiniteScores(inputs[error.number].line) from None
        if diverse:
            return [sorted(found, key=lambda h: -h.score)[: options.wanted] for found in results]
        return results
