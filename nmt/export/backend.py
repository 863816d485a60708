"""CTranslate2 as a search: encoded sentences in, hypotheses as ids out, like beam_search."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nmt.data.vocab import EOS, Vocab
from nmt.decoding.found import Hypothesis, NonFiniteScores, length_penalty
from nmt.decoding.options import SearchOptions
from nmt.errors import MachineError, UserError
from nmt.export.program import ctranslate2_penalty
from nmt.export.spec import SPECIALS, require_ctranslate2
from nmt.model import MASKED_LOGIT
from nmt.runtime.cpus import num_threads


class Engine:
    """An exported model.

    CTranslate2 ends a sentence when K hypotheses have ended and ranks them by ``log_prob / n^p``;
    here they are ranked anew, by the length penalty asked for.

    It takes one length limit for a batch, that of its longest sentence. What a shorter one finds
    is what it would have found within its own limit, if its search ended before: the hypothesis
    that ended last is always among the K. Otherwise the sentence is searched again among its like,
    so that no result depends on the batch.

    Args:
        folder: with CTranslate2's model.
        vocab: of the folder.
        never: tokens that must not be produced, beside UNK.
        device: auto, cpu, cuda or cuda:N.
        workers: batches that are searched at once on a CPU.
    """

    def __init__(
        self, folder: Path, vocab: Vocab, never: Sequence[str], device: str, workers: int = 1
    ) -> None:
        kind, index = resolve_device(device)
        self.tokens = [*SPECIALS, *vocab.pieces(range(len(SPECIALS), len(vocab)))]
        self.ids = {token: number for number, token in enumerate(self.tokens)}
        self.never = [[token] for token in never]
        # several translators of one thread each beat one of several threads
        self.translator = require_ctranslate2().Translator(
            str(folder),
            device=kind,
            device_index=index,
            inter_threads=workers if kind == "cpu" else 1,
            intra_threads=max(1, num_threads() // workers),
        )

    def search(
        self, sources: Sequence[np.ndarray], options: SearchOptions
    ) -> list[list[Hypothesis]]:
        """The n best hypotheses of each sentence, best first; ``sources`` are without EOS."""
        found: list[list[Hypothesis]] = [[] for _ in sources]
        order = sorted(range(len(sources)), key=lambda row: -len(sources[row]))
        alike = defaultdict(list)
        for row in self._search(sources, _batches(sources, order, options), options, found):
            alike[len(sources[row])].append(row)
        equal = (batch for rows in alike.values() for batch in _batches(sources, rows, options))
        self._search(sources, equal, options, found)
        return [of_one[: options.wanted] for of_one in found]

    def _search(
        self,
        sources: Sequence[np.ndarray],
        batches: Iterable[list[int]],
        options: SearchOptions,
        found: list[list[Hypothesis]],
    ) -> list[int]:
        """Fill in what is found, and return the rows that went to or beyond their own limit."""
        pending: list[tuple[int, int, Any]] = []
        for batch in batches:
            longest = len(sources[batch[0]])
            results = self._submit([sources[row] for row in batch], longest, options)
            pending += [(row, longest, result) for row, result in zip(batch, results, strict=True)]
        beyond = []
        for row, longest, future in pending:
            try:
                length, result = len(sources[row]), future.result()
            except RuntimeError as error:
                raise MachineError(
                    f"CTranslate2 failed: {error}",
                    fix="if it is out of memory, take a smaller beam, fewer batch tokens, or cpu",
                ) from error
            limit = length + 1 + options.max_len_offset
            if length < longest and max(map(len, result.hypotheses)) >= limit:
                beyond.append(row)
            else:
                found[row] = self._ranked(row, result, options)
        return beyond

    def _submit(self, sources: list[np.ndarray], longest: int, options: SearchOptions) -> list[Any]:
        return self.translator.translate_batch(
            [[self.tokens[i] for i in ids] for ids in sources],
            asynchronous=True,
            beam_size=options.beam,
            num_hypotheses=options.beam,
            length_penalty=_power(options),
            max_input_length=0,
            max_decoding_length=longest + 1 + options.max_len_offset,
            no_repeat_ngram_size=options.no_repeat_ngram,
            disable_unk=not options.allow_unk,
            suppress_sequences=self.never or None,
            return_scores=True,
            return_end_token=True,
        )

    def _ranked(self, row: int, result: Any, options: SearchOptions) -> list[Hypothesis]:
        found = []
        for tokens, score in zip(result.hypotheses, result.scores, strict=True):
            ids = [self.ids[token] for token in tokens]
            log_prob = score * len(ids) ** _power(options)
            ended = ids[-1] == EOS
            ranked_by = log_prob / length_penalty(len(ids), options.length_alpha)
            if math.isnan(log_prob):
                raise NonFiniteScores(row)
            # a beam wider than there are hypotheses holds impossible ones
            if log_prob > MASKED_LOGIT / 2:
                found.append(Hypothesis(ids[: len(ids) - ended], log_prob, float(ranked_by), ended))
        return sorted(found, key=lambda f: -f.score)


def _batches(
    sources: Sequence[np.ndarray], rows: Sequence[int], options: SearchOptions
) -> Iterator[list[int]]:
    """Rows, longest first, in batches of source pieces x beam."""
    first = 0
    while first < len(rows):
        each = (len(sources[rows[first]]) + 1) * options.beam
        stop = first + max(1, options.batch_tokens // each)
        yield list(rows[first:stop])
        first = stop


def _power(options: SearchOptions) -> float:
    """p > 0: without, CTranslate2 ends a sentence when the first of its beams has ended."""
    return ctranslate2_penalty(options.length_alpha) or 1e-9


def resolve_device(name: str) -> tuple[str, int]:
    """CTranslate2's device and its number; ``auto`` = a GPU if it sees one.

    Raises:
        UserError: no such name.
        MachineError: a GPU was asked for and CTranslate2 sees none.
    """
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", name):
        raise UserError(
            f'"{name}" is not auto, cpu, cuda or cuda:N', at="device", fix="give one of these"
        )
    seen = require_ctranslate2().get_cuda_device_count()
    if name == "auto":
        name = "cuda" if seen else "cpu"
    kind, _, number = name.partition(":")
    if kind == "cuda" and int(number or 0) >= seen:
        raise MachineError(
            f'"{name}" was asked for, but CTranslate2 sees {seen} GPUs',
            at="device",
            fix="take cpu, or auto to take a GPU only when there is one",
        )
    return kind, int(number or 0)
