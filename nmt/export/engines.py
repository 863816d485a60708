"""Search with CTranslate2, and choose the engine: torch, CTranslate2, or the faster of the two.

CTranslate2's beam search ends by the stop rule count (docs/export.md), so ``auto`` uses it only
where both find the same: greedy search, and beam search by that rule, without constraints. There it
takes a third of the time for a single sentence.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import sys
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nmt.config.model import model_config
from nmt.data.segmenters import text_hash
from nmt.data.vocab import EOS, tag_piece
from nmt.decoding.batching import greedy_batches
from nmt.decoding.codec import TextCodec, codec_of
from nmt.decoding.engine import (
    Hypothesis,
    NonFiniteScores,
    Progress,
    Runs,
    SearchInput,
    Stop,
    info_of,
    listed,
)
from nmt.decoding.options import SearchOptions
from nmt.decoding.translator import Translator
from nmt.decoding.worker_pool import check_workers
from nmt.errors import MachineError, NmtError, UserError
from nmt.export.folder import engine_folder, hidden_tokens
from nmt.export.spec import SPECIALS, largest_offset, require_ctranslate2
from nmt.model import MASKED_LOGIT
from nmt.runtime.cpus import num_threads
from nmt.runtime.device_names import parse_device
from nmt.runtime.files import LARGE, read_text
from nmt.store.model import Model, read_model

ENGINES = ("auto", "torch", "ctranslate2")
WHERE_SAME = "greedy search and stop rule count"
# options that CTranslate2 gets, or that change nothing for it, as a glossary does for lines without
# its terms; others must have their defaults
SAME_RESULT = {
    "beam", "stop_rule", "split", "length_alpha", "length_penalty", "max_len_offset", "allow_unk",
    "batch_tokens", "tag", "tgt_tag", "src", "align", "glossary",
}  # fmt: skip
SUPPORTED_OPTIONS = {
    "beam", "length_alpha", "length_penalty", "max_len_offset", "allow_unk", "batch_tokens",
    "n_best", "no_repeat_ngram", "stop_rule", "mbr", "reverse_weight", "reverse_tag",
    "reverse_tgt_tag", "candidates", "split", "tag", "tgt_tag", "src",
}  # fmt: skip
# CTranslate2 divides log-probabilities by n^p, and returns K of up to 2K - 1 hypotheses. With p
# near 0, the best by our length penalty is always among them: at most K - 1 are shorter, and a
# longer one with a higher log-probability would be better. With p = 0, it stops when the first beam
# has ended.
BY_LOG_PROB = 1e-9


class CTranslate2Engine:
    """Beam search by CTranslate2; see ``nmt.decoding.engine.Engine``. It cannot score.

    CTranslate2 stops searching a sentence when K hypotheses have ended (stop rule count). This
    class ranks them by the requested length penalty.

    CTranslate2 has one length limit for a batch; this class sets it to the limit of the longest
    sentence. If a shorter sentence stops before its own limit, that limit would not have changed
    the result, because the hypothesis that ended last is always among the K. Otherwise the sentence
    is searched again, in a batch of sentences of the same length. So a result does not depend on
    the other sentences of the batch.

    A target tag is CTranslate2's ``target_prefix``: it counts as a token, with log-probability 0.

    Args:
        folder: contains CTranslate2's model.
        model: that the folder is of.
        codec: of the model.
        weights_hash: of the weights in the folder.
        device: auto, cpu, cuda or cuda:N.
        workers: batches that are searched at the same time on a CPU, each by a thread.
    """

    name = "ctranslate2"
    precision = "fp32"  # that of the stored weights is part of their hash

    def __init__(
        self,
        folder: Path,
        model: Model,
        codec: TextCodec,
        device: str,
        workers: int = 1,
        weights_hash: str = "",
    ) -> None:
        library = require_ctranslate2()
        workers, vocab = check_workers(workers), codec.vocab
        kind, index = parse_device(device, library.get_cuda_device_count, "CTranslate2")
        self._hash = f"{text_hash(vocab, codec.segmenter)} {weights_hash}"
        about = model.about
        self.largest_offset = largest_offset(about.decode, model_config(about.model))
        self.tokens = [*SPECIALS, *vocab.pieces(range(len(SPECIALS), len(vocab)))]
        self.ids = {token: number for number, token in enumerate(self.tokens)}
        self.suppressed = [[token] for token in hidden_tokens(model)]
        self.ahead = 2 * workers  # batches, so that no thread waits for the next one
        # several translators of one thread each are faster than one of several threads
        self.translator = library.Translator(
            str(folder),
            device=kind,
            device_index=index or 0,
            inter_threads=workers if kind == "cpu" else 1,
            intra_threads=max(1, num_threads() // workers),
        )
        self.device: str = self.translator.device  # cpu or cuda: torch is not loaded

    def check_options(self, options: SearchOptions, constraints: Set[str]) -> None:
        """Raise a UserError if CTranslate2 does not support an option, or its value."""
        refused = options.changed - SUPPORTED_OPTIONS
        unsupported = [n.replace("_", "-") for n in SearchOptions.model_fields if n in refused]
        unsupported += sorted(constraints)
        if options.stop_rule == "bound" and options.beam > 1:
            unsupported.append("stop-rule bound")
        if unsupported:
            raise UserError(
                f"engine ctranslate2 does not support {', '.join(unsupported)}",
                fix="leave the option out, or use --engine torch",
            )
        if options.max_len_offset > self.largest_offset:
            raise UserError(
                "engine ctranslate2 does not support a max-len-offset above "
                f"{self.largest_offset:,} with this model",
                fix="give a smaller one, or use --engine torch",
            )

    def model_hash(self) -> str:
        """Combine the SHA-256 of the exported model with that of vocabulary and segmenter."""
        return self._hash

    def search(
        self, inputs: Sequence[SearchInput], options: SearchOptions, stop: Stop, progress: Progress
    ) -> list[list[Hypothesis]]:
        """Search inputs; ``stop`` is called before each batch, ``progress`` at the end."""
        results: list[list[Hypothesis]] = [[] for _ in inputs]
        by_length = sorted(range(len(inputs)), key=lambda row: -len(inputs[row].ids))
        beyond_limit = defaultdict(list)
        batches = iter(_batches(inputs, by_length, options))
        for row in self._search(inputs, batches, options, results, stop):
            beyond_limit[len(inputs[row].ids)].append(row)
        batches = (b for rows in beyond_limit.values() for b in _batches(inputs, rows, options))
        self._search(inputs, batches, options, results, stop)
        progress(sum(sentence.part == 0 for sentence in inputs))
        return [hypotheses[: options.wanted] for hypotheses in results]

    def _search(
        self,
        inputs: Sequence[SearchInput],
        batches: Iterator[Sequence[int]],
        options: SearchOptions,
        results: list[list[Hypothesis]],
        stop: Stop,
    ) -> list[int]:
        """Fill in ``results``; return the rows whose search reached or exceeded their own limit."""
        # CTranslate2 cannot cancel a batch, so only a few are submitted ahead
        pending: deque[tuple[Sequence[int], list[Any]]] = deque()
        beyond_limit: list[int] = []
        while True:
            for batch in itertools.islice(batches, self.ahead - len(pending)):
                stop()
                pending.append((batch, self._submit([inputs[row].ids for row in batch], options)))
            if not pending:
                return beyond_limit
            batch, futures = pending.popleft()
            longest = len(inputs[batch[0]].ids)
            for row, future in zip(batch, futures, strict=True):
                try:
                    length, result = len(inputs[row].ids), future.result()
                except RuntimeError as error:
                    raise MachineError(
                        f"CTranslate2 failed: {error}",
                        fix="if memory is short, use a smaller --beam, smaller --batch-tokens or "
                        "--device cpu",
                    ) from error
                limit = length + 1 + options.max_len_offset + len(tag_piece(options.tgt_tag))
                if length < longest and max(map(len, result.hypotheses)) >= limit:
                    beyond_limit.append(row)
                else:
                    results[row] = self._rank(inputs[row].line, result, options)

    def _submit(self, sources: list[np.ndarray], options: SearchOptions) -> list[Any]:
        start = tag_piece(options.tgt_tag)
        return self.translator.translate_batch(
            [[self.tokens[i] for i in ids] for ids in sources],
            target_prefix=[start] * len(sources) if start else None,
            asynchronous=True,
            beam_size=options.beam,
            num_hypotheses=options.beam,
            length_penalty=BY_LOG_PROB,
            max_input_length=0,
            min_decoding_length=1 + len(start),
            max_decoding_length=len(sources[0]) + 1 + options.max_len_offset + len(start),
            no_repeat_ngram_size=options.no_repeat_ngram,
            disable_unk=not options.allow_unk,
            suppress_sequences=self.suppressed or None,
            return_scores=True,
            return_end_token=True,
        )

    def _rank(self, line: int, result: Any, options: SearchOptions) -> list[Hypothesis]:
        hypotheses, start = [], len(tag_piece(options.tgt_tag))
        for tokens, score in zip(result.hypotheses, result.scores, strict=True):
            log_prob = score * len(tokens) ** BY_LOG_PROB
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


def _batches(
    inputs: Sequence[SearchInput], rows: Sequence[int], options: SearchOptions
) -> list[Sequence[int]]:
    """Split rows, the longest first, into batches of at most ``batch_tokens`` pieces x beam."""
    sizes = [(len(inputs[row].ids) + 1) * options.beam for row in rows]
    return [rows[batch.start : batch.stop] for batch in greedy_batches(sizes, options.batch_tokens)]


class AutoEngine:
    """Searches with CTranslate2 where that is equal and faster, and elsewhere with torch.

    Args:
        translator: that searches with torch.
        models: the folders that it was loaded from.
    """

    name = f"torch; ctranslate2 for {WHERE_SAME}, if it can express the model"

    def __init__(self, translator: Translator, models: Sequence[str | Path]) -> None:
        from nmt.decoding.torch_engine import TorchEngine

        assert isinstance(translator.engine, TorchEngine)
        about = Model.open(models[0]).about
        self._largest_offset = largest_offset(about.decode, model_config(about.model))
        self._models, self._torch = models, translator.engine
        self.device, self.precision = self._torch.device, self._torch.precision
        self.check_options, self.model_hash = self._torch.check_options, self._torch.model_hash
        self.score, self.longest_target = self._torch.score, self._torch.longest_target

    def search(
        self, inputs: Sequence[SearchInput], options: SearchOptions, stop: Stop, progress: Progress
    ) -> list[list[Hypothesis]]:
        """Search with either engine."""
        fits = options.max_len_offset <= self._largest_offset
        faster = self._ctranslate2 if fits and finds_the_same(inputs, options) else None
        return (faster or self._torch).search(inputs, options, stop, progress)

    @functools.cached_property
    def _ctranslate2(self) -> CTranslate2Engine | None:
        """CTranslate2 with this model, or None if that is impossible; a note says which, once."""
        try:
            engine = self._load()
        except (NmtError, OSError, RuntimeError) as error:
            reason = error.what if isinstance(error, NmtError) else str(error)
            print(f"note: engine torch, because {reason}", file=sys.stderr)
            return None
        print(f"note: engine ctranslate2 for {WHERE_SAME}", file=sys.stderr)
        return engine

    def _load(self) -> CTranslate2Engine:
        if len(self._models) > 1:
            raise UserError("CTranslate2 does not support ensembles")
        if self._torch.device.type != "cpu" or self._torch.precision != "fp32":
            raise UserError("auto is for a CPU and fp32")
        engine = load_exported(self._models[0], "cpu", self._torch.workers).engine
        assert isinstance(engine, CTranslate2Engine)
        return engine


def finds_the_same(inputs: Sequence[SearchInput], options: SearchOptions) -> bool:
    """Return whether both engines find the same hypothesis of each input."""
    free = not any(i.prefix.ids or i.require or i.forbid for i in inputs)
    same_rule = options.beam == 1 or options.stop_rule == "count"
    return same_rule and options.changed <= SAME_RESULT and free


# ---------------------------------------------------------------- loading


def load_exported(
    path: str | Path, device: str = "auto", workers: int = 1, reverse: Translator | None = None
) -> Translator:
    """Load a translator that searches with CTranslate2.

    Args:
        path: a model, or a run.
        device: auto, cpu, cuda or cuda:N, as CTranslate2 numbers them.
        workers: batches that are searched at the same time on a CPU, each by a thread.
        reverse: see ``Translator``.

    Raises:
        UserError: CTranslate2 is not installed or does not support the model, or the folder is no
            model, or a file of it is missing or damaged.
    """
    require_ctranslate2()

    def read(model: Model) -> Translator:
        codec, info = codec_of(model.require_translation()), info_of(model)
        with engine_folder(model) as (folder, files):
            digest = files.files["model.bin"].sha256
            try:
                tokens = json.loads(read_text(folder / "shared_vocabulary.json", LARGE))
                engine = CTranslate2Engine(folder, model, codec, device, workers, digest)
                if tokens != engine.tokens:
                    raise ValueError("vocab.txt and shared_vocabulary.json differ")
            except (OSError, ValueError, RuntimeError, RecursionError) as error:
                raise UserError(
                    f"CTranslate2's model cannot be read: {error}",
                    at=str(folder),
                    fix="delete this folder, or export the model again",
                ) from error
            if files.quantization:
                print(
                    f"note: the weights are stored in {files.quantization}; CTranslate2 computes "
                    f"in {engine.translator.compute_type} on this {engine.device}",
                    file=sys.stderr,
                )
        # the only stop rule of CTranslate2
        decode = info.decode.model_copy(update={"stop_rule": "count"})
        return Translator(engine, codec, replace(info, decode=decode), reverse)

    return read_model(path, read)


def load_translator(
    run: Runs,
    device: str = "auto",
    precision: str = "fp32",
    workers: int = 1,
    engine: str | None = None,
    reverse: Runs | None = None,
) -> Translator:
    """Load a model or the best model of a run, or several as an ensemble.

    Args:
        run: a model, which nmt-convert, nmt-average or nmt-export wrote, or a run folder; several,
            for an ensemble. CTranslate2 searches without torch.
        device, precision, workers: see ``Translator.load``.
        engine: library that searches: torch; ctranslate2; or auto, which uses ctranslate2 if it
            finds the same translations (beam 1, or stop_rule count). None = ctranslate2 for an
            export without weights, else torch.
        reverse: see ``Translator.load``; also with engine ctranslate2.

    Raises:
        UserError: the engine is unknown or does not support what is asked for, or a folder cannot
            be loaded.
        MachineError: the device does not exist.
    """
    if engine not in (*ENGINES, None):
        raise UserError(f"engine: {engine!r} is not one of {', '.join(ENGINES)}", fix="choose one")
    runs = listed(run)
    models = [Model.open(path).require_translation() for path in runs]
    if engine == "ctranslate2" or (
        engine != "torch" and len(runs) == 1 and not models[0].has_weights
    ):
        if len(runs) != 1:
            raise UserError(
                "CTranslate2 does not support ensembles" if runs else "no model is given",
                fix="pass one model, or choose engine torch",
            )
        if precision != "fp32":
            raise UserError(
                "--precision is not supported with CTranslate2",
                fix="run nmt-export with --quantization, and translate with the exported folder",
            )
        back = None if reverse is None else Translator.load(reverse, device)
        return load_exported(runs[0], device, workers, back)
    translator = Translator.load(runs, device, precision, workers, reverse)
    if engine != "auto":
        return translator
    auto = AutoEngine(translator, runs)
    return Translator(auto, translator.codec, translator.info, translator.reverse)
