"""Translate with CTranslate2: a search over encoded sentences, and the Translator that uses it."""

from __future__ import annotations

import itertools
import json
import math
import sys
import tempfile
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np

from nmt.data.segmenters import load_segmenter
from nmt.data.sentences import UsualLine
from nmt.data.vocab import EOS, Vocab
from nmt.decoding.batching import greedy_batches
from nmt.decoding.codec import SearchInput, Translation
from nmt.decoding.hypothesis import Hypothesis, NonFiniteScores, length_penalty
from nmt.decoding.options import SearchOptions
from nmt.decoding.translator import Translator
from nmt.errors import MachineError, UserError
from nmt.export.metadata import read_metadata, verify_files
from nmt.export.spec import (
    SPECIALS,
    check_supported,
    largest_offset,
    require_ctranslate2,
)
from nmt.model import MASKED_LOGIT
from nmt.run.folder import is_export
from nmt.runtime.cpus import num_threads
from nmt.runtime.device_names import parse_device
from nmt.runtime.files import LARGE, read_text

SUPPORTED_OPTIONS = {
    "beam", "length_alpha", "max_len_offset", "allow_unk", "batch_tokens", "n_best",
    "no_repeat_ngram", "stop_rule", "mbr", "reverse_weight", "reverse_tag", "candidates", "split",
    "tag", "src",
}  # fmt: skip
# CTranslate2 divides log-probabilities by n^p, and returns K of up to 2K - 1 hypotheses. With p
# near 0, the best by our length penalty is always among them: at most K - 1 are shorter, and a
# longer one with a higher log-probability would be better. With p = 0, it stops when the first beam
# has ended.
BY_LOG_PROB = 1e-9


class CTranslate2Search:
    """Beam search by CTranslate2, with the results of a search by this toolkit: hypotheses as ids.

    CTranslate2 stops searching a sentence when K hypotheses have ended (stop rule count). This
    class ranks them by the requested length penalty.

    CTranslate2 has one length limit for a batch; this class sets it to the limit of the longest
    sentence. If a shorter sentence stops before its own limit, that limit would not have changed
    the result, because the hypothesis that ended last is always among the K. Otherwise the sentence
    is searched again, in a batch of sentences of the same length. So a result does not depend on
    the other sentences of the batch.

    Args:
        folder: contains CTranslate2's model.
        vocab: the vocabulary of the folder.
        suppressed: tokens that must not be produced, in addition to UNK.
        device: auto, cpu, cuda or cuda:N.
        workers: batches that are searched at the same time on a CPU.
    """

    def __init__(
        self, folder: Path, vocab: Vocab, suppressed: Sequence[str], device: str, workers: int = 1
    ) -> None:
        library = require_ctranslate2()
        kind, index = parse_device(device, library.get_cuda_device_count, "CTranslate2")
        self.tokens = [*SPECIALS, *vocab.pieces(range(len(SPECIALS), len(vocab)))]
        self.ids = {token: number for number, token in enumerate(self.tokens)}
        self.suppressed = [[token] for token in suppressed]
        self.ahead = 2 * workers  # batches, so that no thread waits for the next one
        # several translators of one thread each are faster than one of several threads
        self.translator = library.Translator(
            str(folder),
            device=kind,
            device_index=index or 0,
            inter_threads=workers if kind == "cpu" else 1,
            intra_threads=max(1, num_threads() // workers),
        )

    def search(
        self,
        sources: Sequence[np.ndarray],
        options: SearchOptions,
        stop: Callable[[], None] = lambda: None,
    ) -> list[list[Hypothesis]]:
        """Return the n best hypotheses of each sentence, best first.

        Args:
            sources: ids of each sentence without EOS.
            stop: called before each batch; may raise an exception to stop.

        Raises:
            MachineError: CTranslate2 failed, for example because memory is short.
            NonFiniteScores: a sentence has a score that is NaN.
        """
        results: list[list[Hypothesis]] = [[] for _ in sources]
        by_length = sorted(range(len(sources)), key=lambda row: -len(sources[row]))
        beyond_limit = defaultdict(list)
        batches = iter(_batches(sources, by_length, options))
        for row in self._search(sources, batches, options, results, stop):
            beyond_limit[len(sources[row])].append(row)
        batches = (b for rows in beyond_limit.values() for b in _batches(sources, rows, options))
        self._search(sources, batches, options, results, stop)
        return [hypotheses[: options.wanted] for hypotheses in results]

    def _search(
        self,
        sources: Sequence[np.ndarray],
        batches: Iterator[Sequence[int]],
        options: SearchOptions,
        results: list[list[Hypothesis]],
        stop: Callable[[], None],
    ) -> list[int]:
        """Fill in ``results``; return the rows whose search reached or exceeded their own limit."""
        # CTranslate2 cannot cancel a batch, so only a few are submitted ahead
        pending: deque[tuple[Sequence[int], list[Any]]] = deque()
        beyond_limit: list[int] = []
        while True:
            for batch in itertools.islice(batches, self.ahead - len(pending)):
                stop()
                longest = len(sources[batch[0]])
                pending.append(
                    (batch, self._submit([sources[row] for row in batch], longest, options))
                )
            if not pending:
                return beyond_limit
            batch, futures = pending.popleft()
            longest = len(sources[batch[0]])
            for row, future in zip(batch, futures, strict=True):
                try:
                    length, result = len(sources[row]), future.result()
                except RuntimeError as error:
                    raise MachineError(
                        f"CTranslate2 failed: {error}",
                        fix="if memory is short, use a smaller --beam, smaller --batch-tokens or "
                        "--device cpu",
                    ) from error
                limit = length + 1 + options.max_len_offset
                if length < longest and max(map(len, result.hypotheses)) >= limit:
                    beyond_limit.append(row)
                else:
                    results[row] = self._rank(row, result, options)

    def _submit(self, sources: list[np.ndarray], longest: int, options: SearchOptions) -> list[Any]:
        return self.translator.translate_batch(
            [[self.tokens[i] for i in ids] for ids in sources],
            asynchronous=True,
            beam_size=options.beam,
            num_hypotheses=options.beam,
            length_penalty=BY_LOG_PROB,
            max_input_length=0,
            max_decoding_length=longest + 1 + options.max_len_offset,
            no_repeat_ngram_size=options.no_repeat_ngram,
            disable_unk=not options.allow_unk,
            suppress_sequences=self.suppressed or None,
            return_scores=True,
            return_end_token=True,
        )

    def _rank(self, row: int, result: Any, options: SearchOptions) -> list[Hypothesis]:
        hypotheses = []
        for tokens, score in zip(result.hypotheses, result.scores, strict=True):
            ids = [self.ids[token] for token in tokens]
            log_prob = score * len(ids) ** BY_LOG_PROB
            finished = ids[-1] == EOS
            ranked_by = log_prob / length_penalty(len(ids), options.length_alpha)
            if math.isnan(log_prob):
                raise NonFiniteScores(row)
            # if fewer hypotheses than beams exist, the other beams hold masked tokens
            if log_prob > MASKED_LOGIT / 2:
                ids = ids[: len(ids) - finished]
                hypotheses.append(Hypothesis(ids, log_prob, ranked_by, finished))
        return sorted(hypotheses, key=lambda h: -h.score)


class ExportedTranslator(Translator):
    """A Translator that searches with CTranslate2; text and options are handled as without it.

    Args:
        folder: an exported folder, which may be deleted afterwards.
        device: auto, cpu, cuda or cuda:N.
        source: where the weights are from, for errors.
        workers: batches that are searched at the same time on a CPU, each by a thread.

    Raises:
        UserError: the folder is damaged.
    """

    def __init__(self, folder: Path, device: str, source: str, workers: int) -> None:
        weights = verify_files(folder)
        metadata, decode = read_metadata(folder)
        decode = decode.model_copy(update={"stop_rule": "count"})  # the only one of CTranslate2
        segmenter, vocab = load_segmenter(folder), Vocab.load(folder)
        precision = "fp32"  # that of the stored weights is part of the hash
        self._init_text(
            segmenter, vocab, metadata.src, metadata.tgt, decode, precision, source, workers
        )
        self.tag_targets, self.always_tagged = metadata.tag_targets, metadata.always_tagged
        self.sources, self.codec.usual = metadata.sources, UsualLine(**metadata.usual_line)
        self.engine = _open(folder, vocab, metadata.suppressed_tokens, device, workers)
        self.device = self.engine.translator.device  # cpu or cuda, as text: torch is not loaded
        if metadata.quantization:
            print(
                f"note: the weights are stored in {metadata.quantization}; CTranslate2 computes "
                f"in {self.engine.translator.compute_type} on this {self.device}",
                file=sys.stderr,
            )
        self._model_hash = f"{self.text_hash} {weights}"

    def search(
        self,
        inputs: Sequence[SearchInput],
        options: SearchOptions,
        stop: Callable[[], None] = lambda: None,
        progress: Callable[[int], None] = lambda lines: None,
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each input, best first, from CTranslate2."""
        with self._finite_scores(inputs):
            results = self.engine.search([one.ids for one in inputs], options, stop)
        progress(sum(one.part == 0 for one in inputs))
        return results

    def model_hash(self) -> str:
        """Return the SHA-256 of the exported model, and of vocabulary and segmenter."""
        return self._model_hash

    def score_stream(self, *texts: Any, **options: Any) -> Iterator[Translation]:
        """Raise a UserError: CTranslate2 does not score given translations here."""
        raise UserError(
            "engine ctranslate2 cannot score given translations",
            fix="pass a run folder, with --engine torch",
        )

    def check_options(
        self, given: dict[str, Any], constraints: Set[str] = frozenset()
    ) -> SearchOptions:
        """Return the options of one call.

        Raises:
            UserError: CTranslate2 does not support one of them, or not its value.
        """
        options = super().check_options(given, constraints)
        unsupported = [
            name.replace("_", "-")
            for name, field in SearchOptions.model_fields.items()
            if name not in SUPPORTED_OPTIONS and getattr(options, name) != field.get_default()
        ]
        unsupported += sorted(constraints)
        if options.stop_rule == "bound" and options.beam > 1:
            unsupported.append("stop-rule bound")
        if unsupported:
            raise UserError(
                f"engine ctranslate2 does not support {', '.join(unsupported)}",
                fix="leave the option out, or translate a run folder with --engine torch",
            )
        if options.max_len_offset > (largest := largest_offset(self.decode)):
            raise UserError(
                f"engine ctranslate2 does not support a max-len-offset above {largest:,} with this "
                "model",
                fix="give a smaller one, or translate a run folder with --engine torch",
            )
        return options


def open_exported(
    runs: Sequence[str | Path],
    device: str,
    checkpoint: str,
    precision: str,
    workers: int,
) -> Translator:
    """Return what ``load_exported`` returns, for the arguments of ``load_translator``.

    Raises:
        UserError: several folders, or a precision, which CTranslate2 does not support here; or an
            error of ``load_exported``.
    """
    if not runs:
        raise UserError("no folder is given", fix="give one")
    if len(runs) > 1:
        raise UserError(
            "CTranslate2 does not support ensembles",
            fix="pass one folder, or only run folders from nmt-train",
        )
    if precision != "fp32":
        raise UserError(
            "--precision is not supported with CTranslate2",
            fix="run nmt-export with --quantization, and translate with the exported folder",
        )
    return load_exported(runs[0], device, checkpoint, workers)


def load_exported(
    path: str | Path, device: str = "auto", checkpoint: str = "best", workers: int = 1
) -> Translator:
    """Return the translator of an exported folder, or of a run folder after a temporary export.

    Args:
        path: a folder that nmt-export or nmt-train wrote.
        device: auto, cpu, cuda or cuda:N, as CTranslate2 numbers them.
        checkpoint: of a run folder.
        workers: batches that are searched at the same time on a CPU, each by a thread.

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
        return ExportedTranslator(Path(path), device, str(path), workers)
    original = Translator.load(path, "cpu", checkpoint)
    check_supported(original.transformer.config)
    with tempfile.TemporaryDirectory(prefix="nmt-export-") as folder:
        from nmt.export.folder import write_folder

        write_folder(original, Path(folder), None)
        assert original.source is not None
        translator = ExportedTranslator(Path(folder), device, original.source, workers)
    translator.recipe = original.recipe
    return translator


def _batches(
    sources: Sequence[np.ndarray], rows: Sequence[int], options: SearchOptions
) -> list[Sequence[int]]:
    """Split rows, longest first, into batches of at most ``batch_tokens`` pieces x beam."""
    sizes = [(len(sources[row]) + 1) * options.beam for row in rows]
    return [rows[batch.start : batch.stop] for batch in greedy_batches(sizes, options.batch_tokens)]


def _open(
    folder: Path, vocab: Vocab, suppressed: Sequence[str], device: str, workers: int
) -> CTranslate2Search:
    try:
        tokens = json.loads(read_text(folder / "shared_vocabulary.json", LARGE))
        search = CTranslate2Search(folder, vocab, suppressed, device, workers)
        if tokens != search.tokens:
            raise ValueError("vocab.txt and shared_vocabulary.json differ")
        return search
    except (OSError, ValueError, RuntimeError, RecursionError) as error:
        raise UserError(
            f"CTranslate2's model cannot be read: {error}",
            at=str(folder),
            fix="export the run again with nmt-export",
        ) from error
