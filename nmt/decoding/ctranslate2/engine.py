"""The engine on a CPU: search and scores with CTranslate2; torch is not imported.

CTranslate2's beam search ends by the stop rule count, so it finds the translations of the torch
engine under that rule. What it lacks, it names (``lacks``), and a ``Translator`` asks torch.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import tempfile
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nmt.data.segmenters import text_hash
from nmt.data.vocab import EOS, UNK, tag_piece
from nmt.decoding.batching import greedy_batches
from nmt.decoding.codec import TextCodec
from nmt.decoding.ctranslate2.spec import (
    LONGEST_SOURCE,
    hidden_tokens,
    largest_offset,
    require_ctranslate2,
    save_model,
    tokens_of,
)
from nmt.decoding.engine import (
    MAX_TARGET_PIECES,
    EncodedPair,
    Hypothesis,
    NonFiniteScores,
    Progress,
    SearchInput,
    Stop,
    TokenScores,
    check_workers,
    ignore,
)
from nmt.decoding.options import SearchOptions
from nmt.errors import MachineError
from nmt.model import MASKED_LOGIT
from nmt.runtime.cpus import num_threads
from nmt.runtime.device_names import parse_device
from nmt.runtime.files import disk_errors

if TYPE_CHECKING:
    from nmt.config.recipe import DecodeConfig
    from nmt.model.transformer import Transformer

# Options that this engine implements, or that a Translator does. A sample is a function of seed and
# line, which CTranslate2's are not; a new option is for torch.
SUPPORTED = {
    "beam", "length_alpha", "length_penalty", "max_len_offset", "stop_rule", "allow_unk",
    "batch_tokens", "n_best", "no_repeat_ngram", "glossary", "split", "tag",
    "tgt_tag", "src", "token_scores", "align", "reverse_weight", "reverse_tag",
    "reverse_tgt_tag", "candidates",
}  # fmt: skip
# CTranslate2 divides log-probabilities by n^p, as the kind mean does, and returns K of up to 2K - 1
# hypotheses. For the kind gnmt, p is near 0, so that the best is always among them: at most K - 1
# are shorter, and a longer one with a higher log-probability would be better. With p = 0, it stops
# when the first beam has ended.
BY_LOG_PROB = 1e-9
CPU_BATCH = 2048  # larger batches are not faster on a CPU, and leave threads without work
SCORED_LOGITS = 1 << 23  # logits in memory while given targets are scored


class CTranslate2Engine:
    """Searches and scores with CTranslate2; see ``nmt.decoding.engine.Engine``.

    CTranslate2 stops searching a sentence when K hypotheses have ended (stop rule count). This
    class ranks them by the requested length penalty.

    CTranslate2 has one length limit for a batch; this class sets it to the limit of the longest
    sentence. If a shorter sentence stops before its own limit, that limit would not have changed
    the result, because the hypothesis that ended last is always among the K. Otherwise the sentence
    is searched again, in a batch of sentences of the same limit. So a result does not depend on
    the other sentences of the batch.

    The tag of a target and a forced prefix are CTranslate2's ``target_prefix``: they count as
    tokens, with log-probability 0. This class adds the log-probabilities of a prefix. With beams, a
    translation ends right after its prefix only if EOS is the most likely token there.

    Args:
        folder: contains CTranslate2's model; it may be deleted afterwards.
        allowed: the types that the model can produce: [V] bool.
        largest_offset: the highest ``max_len_offset`` for which there are positions.
        device: auto, cpu, cuda or cuda:N.
        workers: batches that are computed at the same time on a CPU, each by a thread.
        weights_hash: SHA-256 of the weights.
        quantization: fp32, int8, or default = as the weights are stored.
    """

    name = "ctranslate2"

    def __init__(
        self,
        folder: Path,
        codec: TextCodec,
        allowed: Sequence[bool],
        largest_offset: int,
        device: str = "auto",
        workers: int = 1,
        weights_hash: str = "",
        quantization: str = "default",
    ) -> None:
        library = require_ctranslate2()
        workers = check_workers(workers)
        kind, index = parse_device(device, library.get_cuda_device_count, "CTranslate2")
        self.largest_offset = largest_offset
        self.longest_target = min(MAX_TARGET_PIECES, largest_offset + LONGEST_SOURCE - 2)
        self.tokens = tokens_of(codec.vocab)
        self.ids = {token: number for number, token in enumerate(self.tokens)}
        self.suppressed = [[token] for token in hidden_tokens(codec.vocab, allowed)]
        self.ahead = 2 * workers  # batches, so that no thread waits for the next one
        # several translators of one thread each are faster than one of several threads
        self.translator = library.Translator(
            str(folder),
            device=kind,
            device_index=index or 0,
            compute_type="float32" if quantization == "fp32" else quantization,
            inter_threads=workers if kind == "cpu" else 1,
            intra_threads=max(1, num_threads() // workers),
        )
        self.device: str = self.translator.device  # cpu or cuda: torch is not loaded
        computed = self.translator.compute_type  # for stored weights, it depends on the processor
        self.precision = "int8" if computed.startswith("int8") else "fp32"
        self._hash = f"{text_hash(codec.vocab, codec.segmenter)} {weights_hash} {computed}"

    def lacks(self, options: SearchOptions) -> list[str]:
        """Name the options that are for torch, none if CTranslate2 finds the same."""
        unknown = options.changed - SUPPORTED
        lacking = [name for name in SearchOptions.model_fields if name in unknown]
        if options.stop_rule == "bound" and options.beam > 1:
            lacking.append("stop_rule bound")
        if options.max_len_offset > self.largest_offset:
            lacking.append(f"max_len_offset above {self.largest_offset:,} with this model")
        return lacking

    def model_hash(self) -> str:
        """Combine the SHA-256 of the weights with that of vocabulary and segmenter."""
        return self._hash

    def search(
        self, inputs: Sequence[SearchInput], options: SearchOptions, stop: Stop, progress: Progress
    ) -> list[list[Hypothesis]]:
        """Search inputs; ``stop`` is called before each batch."""
        results: list[list[Hypothesis]] = [[] for _ in inputs]
        # the most tokens of each translation, EOS included
        limits = [
            max(len(part.ids) + 1 + options.max_len_offset, part.required_length) for part in inputs
        ]
        order = sorted(range(len(inputs)), key=lambda row: -len(inputs[row].ids))
        beyond: dict[int, list[int]] = defaultdict(list)
        for row in self._search_groups(inputs, limits, [order], options, results, stop, progress):
            beyond[limits[row]].append(row)
        # again, each with its own limit
        self._search_groups(inputs, limits, beyond.values(), options, results, stop, progress)
        self._score_prefixes(inputs, options, results, stop)
        return [hypotheses[: options.wanted] for hypotheses in results]

    def _search_groups(
        self,
        inputs: Sequence[SearchInput],
        limits: Sequence[int],
        groups: Iterable[Sequence[int]],
        options: SearchOptions,
        results: list[list[Hypothesis]],
        stop: Stop,
        progress: Progress,
    ) -> list[int]:
        """Fill in ``results``; return the rows whose search reached or exceeded their own limit."""
        start = tag_piece(options.tgt_tag)

        def submit(rows: Sequence[int]) -> list[Any]:
            begun = [[*start, *self._texts(inputs[row].prefix.ids)] for row in rows]
            return self.translator.translate_batch(
                [self._texts(inputs[row].ids) for row in rows],
                target_prefix=begun if any(begun) else None,
                asynchronous=True,
                beam_size=options.beam,
                num_hypotheses=options.beam,
                length_penalty=_exponent(options),
                max_input_length=0,
                min_decoding_length=1 + len(start),
                max_decoding_length=max(limits[row] for row in rows) + len(start),
                no_repeat_ngram_size=options.no_repeat_ngram,
                disable_unk=not options.allow_unk,
                suppress_sequences=self.suppressed or None,
                return_scores=True,
                return_end_token=True,
            )

        beyond_limit: list[int] = []
        size = (
            min(options.batch_tokens, CPU_BATCH) if self.device == "cpu" else options.batch_tokens
        )
        batches = _batches(inputs, groups, options.beam, size)
        for rows, found in self._computed(batches, submit, stop):
            limit = max(limits[row] for row in rows)
            for row, result in zip(rows, found, strict=True):
                longest = max(map(len, result.hypotheses)) - len(start)
                if limits[row] < limit and longest >= limits[row]:
                    beyond_limit.append(row)
                else:
                    results[row] = self._rank(inputs[row].line, result, options)
            progress(sum(inputs[row].part == 0 and bool(results[row]) for row in rows))
        return beyond_limit

    def _computed(
        self,
        batches: Iterable[Sequence[int]],
        submit: Callable[[Sequence[int]], list[Any]],
        stop: Stop,
    ) -> Iterator[tuple[Sequence[int], list[Any]]]:
        """Submit batches of rows a few ahead; yield their results.

        Those that nobody wants any more are waited for: none can be cancelled, and Python crashes
        if it ends while CTranslate2 computes.
        """
        waiting = iter(batches)
        pending: deque[tuple[Sequence[int], list[Any]]] = deque()
        try:
            while True:
                for rows in itertools.islice(waiting, self.ahead - len(pending)):
                    stop()
                    pending.append((rows, submit(rows)))
                if not pending:
                    return
                rows, futures = pending.popleft()
                try:
                    results = [future.result() for future in futures]
                except RuntimeError as error:
                    raise MachineError(
                        f"CTranslate2 failed: {error}",
                        fix="if memory is short, use a smaller --beam, smaller --batch-tokens or "
                        "--device cpu",
                    ) from error
                yield rows, results
        finally:
            for _, futures in pending:
                for future in futures:
                    with contextlib.suppress(RuntimeError):
                        future.result()

    def _texts(self, ids: Iterable[int]) -> list[str]:
        return [self.tokens[i] for i in ids]

    def _rank(self, line: int, result: Any, options: SearchOptions) -> list[Hypothesis]:
        hypotheses, start = [], len(tag_piece(options.tgt_tag))
        for tokens, score in zip(result.hypotheses, result.scores, strict=True):
            log_prob = score * len(tokens) ** _exponent(options)
            ids = [self.ids[token] for token in tokens[start:]]
            finished = ids[-1] == EOS
            ranked_by = log_prob / options.penalty(len(ids))
            if math.isnan(log_prob):
                raise NonFiniteScores(line)
            # if fewer hypotheses than beams exist, the other beams hold masked tokens
            if log_prob > MASKED_LOGIT / 2:
                ids = ids[: len(ids) - finished]
                hypotheses.append(Hypothesis(ids, log_prob, ranked_by, finished))
        return sorted(hypotheses, key=lambda h: -h.score)

    def _score_prefixes(
        self,
        inputs: Sequence[SearchInput],
        options: SearchOptions,
        results: list[list[Hypothesis]],
        stop: Stop,
    ) -> None:
        """Give hypotheses with a forced prefix the log-probabilities of all their tokens."""
        rows = [row for row, part in enumerate(inputs) if part.prefix.ids]
        pairs = [(inputs[r].ids, np.array(h.ids), inputs[r].line) for r in rows for h in results[r]]
        plain = options.model_copy(update={"align": False})
        scores = iter(self.score(pairs, plain, stop, ignore) if pairs else ())
        for row in rows:
            scored = []
            for hypothesis in results[row]:
                length = len(hypothesis.ids) + hypothesis.finished
                log_prob = sum(next(scores).log_probs[:length])
                ranked_by = log_prob / options.penalty(length)
                scored.append(replace(hypothesis, log_prob=log_prob, score=ranked_by))
            results[row] = sorted(scored, key=lambda h: -h.score)

    def score(
        self, pairs: Sequence[EncodedPair], options: SearchOptions, stop: Stop, progress: Progress
    ) -> list[TokenScores]:
        """Score the target of each pair given its source.

        A type that the model cannot produce is UNK, also for the tokens after it.
        """
        results = self._score([(src, tgt.tolist()) for src, tgt, _ in pairs], options, stop)
        masked = {
            row: [
                UNK if score < MASKED_LOGIT / 2 else token
                for token, score in zip(pairs[row][1].tolist(), result.log_probs, strict=False)
            ]
            for row, result in enumerate(results)
            if min(result.log_probs) < MASKED_LOGIT / 2
        }
        again = self._score([(pairs[row][0], tgt) for row, tgt in masked.items()], options, stop)
        for row, result in zip(masked, again, strict=True):
            results[row] = result
        for (_, _, line), result in zip(pairs, results, strict=True):
            if not all(map(math.isfinite, result.log_probs)):
                raise NonFiniteScores(line)
        progress(len(pairs))
        return results

    def _score(
        self, pairs: Sequence[tuple[np.ndarray, list[int]]], options: SearchOptions, stop: Stop
    ) -> list[TokenScores]:
        start, tags = tag_piece(options.tgt_tag), int(options.tag is not None)
        first = len(start)
        lengths = [max(len(src), len(tgt)) + 1 for src, tgt in pairs]
        order = sorted(range(len(pairs)), key=lambda row: -lengths[row])
        most = min(options.batch_tokens // 2, SCORED_LOGITS // len(self.tokens))
        sizes = greedy_batches([lengths[row] for row in order], most)
        batches = [order[batch.start : batch.stop] for batch in sizes]

        def texts(rows: Sequence[int]) -> tuple[list[list[str]], list[list[str]]]:
            sources = [self._texts(pairs[row][0]) for row in rows]
            return sources, [[*start, *self._texts(pairs[row][1])] for row in rows]

        def submit(rows: Sequence[int]) -> list[Any]:
            return self.translator.score_batch(*texts(rows), max_input_length=0, asynchronous=True)

        def submit_alignment(rows: Sequence[int]) -> list[Any]:
            sources, targets = texts(rows)
            return self.translator.translate_batch(
                sources,
                target_prefix=targets,
                asynchronous=True,
                beam_size=1,
                max_input_length=0,
                max_decoding_length=max(map(len, targets)) + 1,
                return_attention=True,
            )

        results: list[TokenScores] = [TokenScores([], [])] * len(pairs)
        for rows, found in self._computed(batches, submit, stop):
            for row, result in zip(rows, found, strict=True):
                results[row] = TokenScores(list(result.log_probs[first:]), [])
        for rows, found in self._computed(batches if options.align else (), submit_alignment, stop):
            for row, result in zip(rows, found, strict=True):
                # of each step that predicts a target piece, without the tags; EOS has no column
                weights = np.array(result.attention[0][first : first + len(pairs[row][1])])
                aligned = weights[:, tags:].argmax(-1).tolist() if weights.size else []
                results[row] = replace(results[row], aligned=aligned)
        return results


def _exponent(options: SearchOptions) -> float:
    """Return the power of the length that CTranslate2 divides log-probabilities by."""
    return (options.length_penalty == "mean" and options.length_alpha) or BY_LOG_PROB


def _batches(
    inputs: Sequence[SearchInput], groups: Iterable[Sequence[int]], beam: int, size: int
) -> Iterator[Sequence[int]]:
    """Split rows, the longest first, into batches of at most ``size`` pieces x beam."""
    for rows in groups:
        sizes = [(len(inputs[row].ids) + 1) * beam for row in rows]
        for batch in greedy_batches(sizes, size):
            yield rows[batch.start : batch.stop]


def from_model(
    model: Transformer, codec: TextCodec, decode: DecodeConfig, workers: int
) -> CTranslate2Engine:
    """Convert a model in memory; the engine does not see later changes of its weights.

    Raises:
        UserError: CTranslate2 does not support the model.
        MachineError: the temporary folder cannot be written.
    """
    from nmt.model.lora import merge_lora

    weights, config, allowed = merge_lora(model.state_dict()), model.config, model.allowed
    with temporary_folder() as folder:
        save_model(folder, weights, config, allowed, codec.vocab, decode)
        offset = largest_offset(decode, config)
        return CTranslate2Engine(folder, codec, allowed.tolist(), offset, "cpu", workers)


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a folder that is then deleted; MachineError if it cannot be written."""
    elsewhere = "choose another temporary folder (export TMPDIR=PATH)"
    with (
        disk_errors(Path(tempfile.gettempdir()), elsewhere=elsewhere),
        tempfile.TemporaryDirectory(prefix="nmt-") as folder,
    ):
        yield Path(folder)
