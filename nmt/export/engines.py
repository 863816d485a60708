"""Search with CTranslate2, and choose the engine: torch, CTranslate2, or the faster of the two.

CTranslate2's beam search ends by the stop rule count (docs/export.md), so ``auto`` uses it only
where both find the same: greedy search, and beam search by that rule, without constraints. There it
takes a third of the time for a single sentence.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import math
import os
import sys
import tempfile
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence, Set
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from nmt.data.segmenters import load_segmenter
from nmt.data.sentences import UsualLine
from nmt.data.vocab import EOS, Vocab, tag_piece
from nmt.decoding.batching import greedy_batches
from nmt.decoding.codec import TextCodec, text_hash
from nmt.decoding.engine import (
    Hypothesis,
    ModelInfo,
    NonFiniteScores,
    Progress,
    Runs,
    SearchInput,
    Stop,
    listed,
)
from nmt.decoding.options import SearchOptions
from nmt.decoding.translator import Translator
from nmt.decoding.worker_pool import check_workers
from nmt.errors import MachineError, NmtError, UserError
from nmt.export.folder import Metadata, export, read_metadata, verify_files, write_folder
from nmt.export.spec import SPECIALS, check_supported, largest_offset, require_ctranslate2
from nmt.model import MASKED_LOGIT
from nmt.run.folder import is_export
from nmt.runtime.cpus import num_threads
from nmt.runtime.device_names import parse_device
from nmt.runtime.files import LARGE, read_text
from nmt.version import __version__

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
    "n_best", "no_repeat_ngram", "stop_rule", "reverse_weight", "reverse_tag",
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
        codec, metadata, weights_hash: of this folder.
        device: auto, cpu, cuda or cuda:N.
        workers: batches that are searched at the same time on a CPU, each by a thread.
    """

    name = "ctranslate2"
    precision = "fp32"  # that of the stored weights is part of their hash

    def __init__(
        self,
        folder: Path,
        codec: TextCodec,
        metadata: Metadata,
        device: str,
        workers: int = 1,
        weights_hash: str = "",
    ) -> None:
        library = require_ctranslate2()
        workers, vocab = check_workers(workers), codec.vocab
        kind, index = parse_device(device, library.get_cuda_device_count, "CTranslate2")
        self._hash = f"{text_hash(vocab, codec.segmenter)} {weights_hash}"
        self.largest_offset = metadata.largest_offset
        self.tokens = [*SPECIALS, *vocab.pieces(range(len(SPECIALS), len(vocab)))]
        self.ids = {token: number for number, token in enumerate(self.tokens)}
        self.suppressed = [[token] for token in metadata.suppressed_tokens]
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
                fix="leave the option out, or translate a run folder with --engine torch",
            )
        if options.max_len_offset > self.largest_offset:
            raise UserError(
                "engine ctranslate2 does not support a max-len-offset above "
                f"{self.largest_offset:,} with this model",
                fix="give a smaller one, or translate a run folder with --engine torch",
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

    The export is made when it is first needed, and kept in the cache of the user.
    """

    name = f"torch; ctranslate2 for {WHERE_SAME}, if it can express the model"

    def __init__(self, translator: Translator) -> None:
        from nmt.decoding.ensemble import Ensemble
        from nmt.decoding.torch_engine import TorchEngine

        assert isinstance(translator.engine, TorchEngine)
        model, decode = translator.engine.model, translator.info.decode
        model = next(iter(model.members())) if isinstance(model, Ensemble) else model
        self._largest_offset = largest_offset(decode, model.config)
        self._translator, self._torch = translator, translator.engine
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
            engine = self._export()
        except (NmtError, OSError, RuntimeError) as error:
            reason = error.what if isinstance(error, NmtError) else str(error)
            print(f"note: engine torch, because {reason}", file=sys.stderr)
            return None
        print(f"note: engine ctranslate2 for {WHERE_SAME}", file=sys.stderr)
        return engine

    def _export(self) -> CTranslate2Engine:
        """Load the cached export, which is made if it is missing."""
        from nmt.model.transformer import Transformer

        translator, engine = self._translator, self._torch
        if not isinstance(engine.model, Transformer):
            raise UserError("CTranslate2 does not support ensembles")
        if engine.device.type != "cpu" or engine.precision != "fp32":
            raise UserError("auto is for a CPU and fp32")
        digest = hashlib.sha256(f"{__version__} {engine.model_hash()}".encode())
        for settings in (asdict(engine.model.config), translator.info.decode.model_dump()):
            digest.update(json.dumps(settings).encode())
        folder = cache_folder() / digest.hexdigest()[:32]
        if not _is_intact(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            try:
                export(translator, folder, force=is_export(folder))
            except (UserError, FileExistsError):
                if not _is_intact(folder):  # otherwise another process was faster
                    raise
        metadata = read_metadata(folder)
        return CTranslate2Engine(folder, translator.codec, metadata, "cpu", engine.workers)


def _is_intact(folder: Path) -> bool:
    if not is_export(folder):
        return False
    try:
        verify_files(folder)
    except UserError:
        return False
    return True


def finds_the_same(inputs: Sequence[SearchInput], options: SearchOptions) -> bool:
    """Return whether both engines find the same hypothesis of each input."""
    free = not any(i.prefix.ids for i in inputs)
    same_rule = options.beam == 1 or options.stop_rule == "count"
    return same_rule and options.changed <= SAME_RESULT and free


def cache_folder() -> Path:
    """Locate the folder of automatic exports, below XDG_CACHE_HOME or ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "nmt" / "ctranslate2"


# ---------------------------------------------------------------- loading


def load_exported(
    path: str | Path,
    device: str = "auto",
    checkpoint: str = "best",
    workers: int = 1,
    reverse: Translator | None = None,
) -> Translator:
    """Load a translator that searches with CTranslate2.

    Args:
        path: a folder that nmt-export wrote; or a run folder, for a temporary export.
        device: auto, cpu, cuda or cuda:N, as CTranslate2 numbers them.
        checkpoint: of a run folder.
        workers: batches that are searched at the same time on a CPU, each by a thread.
        reverse: see ``Translator``.

    Raises:
        UserError: CTranslate2 is not installed or does not support the model, or the folder is
            damaged, or it is neither an exported folder nor a run folder.
    """
    require_ctranslate2()
    if is_export(Path(path)):
        if checkpoint != "best":
            raise UserError(
                "an exported folder contains a single checkpoint",
                at="--checkpoint",
                fix="pass --checkpoint to nmt-export, or translate the run folder",
            )
        return _load(Path(path), device, str(path), workers, reverse)
    original = Translator.load(path, "cpu", checkpoint)
    check_supported(original.transformer.config)
    with tempfile.TemporaryDirectory(prefix="nmt-export-") as folder:
        write_folder(original, Path(folder), None)
        return _load(Path(folder), device, original.info.source, workers, reverse)


def _load(
    folder: Path, device: str, source: str | None, workers: int, reverse: Translator | None
) -> Translator:
    """Load an exported folder, which may be deleted afterwards."""
    weights_hash = verify_files(folder)
    metadata = read_metadata(folder)
    codec = TextCodec(
        load_segmenter(folder),
        Vocab.load(folder),
        metadata.src,
        metadata.tgt,
        UsualLine(**metadata.usual_line),
        metadata.tag_targets,
    )
    try:
        tokens = json.loads(read_text(folder / "shared_vocabulary.json", LARGE))
        engine = CTranslate2Engine(folder, codec, metadata, device, workers, weights_hash)
        if tokens != engine.tokens:
            raise ValueError("vocab.txt and shared_vocabulary.json differ")
    except (OSError, ValueError, RuntimeError, RecursionError) as error:
        raise UserError(
            f"CTranslate2's model cannot be read: {error}",
            at=str(folder),
            fix="export the run again with nmt-export",
        ) from error
    if metadata.quantization:
        print(
            f"note: the weights are stored in {metadata.quantization}; CTranslate2 computes "
            f"in {engine.translator.compute_type} on this {engine.device}",
            file=sys.stderr,
        )
    # the only stop rule of CTranslate2
    decode = metadata.decode_config.model_copy(update={"stop_rule": "count"})
    info = ModelInfo(
        decode,
        source,
        metadata.always_tagged,
        metadata.sources,
        metadata.tgt_tag_required,
        metadata.default_tags,
    )
    return Translator(engine, codec, info, reverse)


def load_translator(
    run: Runs,
    device: str = "auto",
    checkpoint: str = "best",
    precision: str = "fp32",
    workers: int = 1,
    engine: str | None = None,
    reverse: Runs | None = None,
) -> Translator:
    """Load a run folder, several as an ensemble, or an exported folder.

    Args:
        run: a run folder from nmt-train; several, for an ensemble; or an exported folder from
            nmt-export, which CTranslate2 searches without torch.
        device, checkpoint, precision, workers: see ``Translator.load``.
        engine: library that searches: torch; ctranslate2; or auto, which uses ctranslate2 if it
            finds the same translations (beam 1, or stop_rule count). None = ctranslate2 for an
            exported folder, else torch.
        reverse: see ``Translator.load``; a run folder, also with engine ctranslate2.

    Raises:
        UserError: the engine is unknown or does not support what is asked for, or a folder cannot
            be loaded.
        MachineError: the device does not exist.
    """
    if engine not in (*ENGINES, None):
        raise UserError(f"engine: {engine!r} is not one of {', '.join(ENGINES)}", fix="choose one")
    for folder in listed(reverse):
        if is_export(Path(folder)):
            raise UserError(
                "an exported folder cannot be the reverse model",
                at=str(folder),
                fix="pass the run folder from nmt-train",
            )
    runs = listed(run)
    exported = [folder for folder in runs if is_export(Path(folder))]
    if engine == "ctranslate2" or (exported and engine != "torch"):
        if len(runs) != 1:
            raise UserError(
                "CTranslate2 does not support ensembles" if runs else "no folder is given",
                fix="pass one folder, or only run folders from nmt-train",
            )
        if precision != "fp32":
            raise UserError(
                "--precision is not supported with CTranslate2",
                fix="run nmt-export with --quantization, and translate with the exported folder",
            )
        back = None if reverse is None else Translator.load(reverse, device)
        return load_exported(runs[0], device, checkpoint, workers, back)
    if exported:
        raise UserError(
            "an exported folder has no weights for torch",
            at=str(exported[0]),
            fix="pass the run folder from nmt-train, or choose engine ctranslate2",
        )
    translator = Translator.load(runs, device, checkpoint, precision, workers, reverse)
    if engine != "auto":
        return translator
    return Translator(AutoEngine(translator), translator.codec, translator.info, translator.reverse)
