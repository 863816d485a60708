"""Text in, text out: a run folder as a function from n lines to n lines."""

from __future__ import annotations

import hashlib
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError

from nmt.config import DecodeConfig
from nmt.data.batches import collate_sources
from nmt.data.segment import Segmenter, load_segmenter
from nmt.data.segment import fingerprint as segmenter_fingerprint
from nmt.data.text import clean_line, is_blank
from nmt.data.vocab import BOS, PAD, UNK, Vocab
from nmt.decoding.search import Found, beam_search
from nmt.errors import MachineError, UserError
from nmt.model.transformer import Transformer
from nmt.run.checkpoint import load_checkpoint
from nmt.run.device import resolve_device
from nmt.run.folder import RunFolder
from nmt.schema import allowed

WINDOW = 2048  # lines read ahead and sorted by length
LONGEST = 512  # source pieces searched at once; longer lines are translated in parts


@dataclass(frozen=True)
class Hypothesis:
    """A translation.

    Attributes:
        pieces: as the model produced them, without EOS.
        text: plain text.
        score: log_prob / length penalty, what the search ranked by.
        log_prob: natural logarithm, summed over pieces and EOS.
        finished: it ended with EOS, not at the length limit.
    """

    pieces: list[str]
    text: str
    score: float
    log_prob: float
    finished: bool


BLANK = Hypothesis([], "", 0.0, 0.0, True)


class Translator:
    """A model with all that stands between its ids and text.

    Options of every method, with the recipe's ``decode`` as their defaults: ``beam``,
    ``length_alpha``, ``max_len_offset``, ``allow_unk``, ``batch_tokens``. The text does not depend
    on how lines are batched or ordered.
    """

    def __init__(
        self,
        model: Transformer,
        segmenter: Segmenter,
        vocab: Vocab,
        src: str,
        tgt: str,
        decode: DecodeConfig,
        device: torch.device,
    ) -> None:
        self.model, self.segmenter, self.vocab = model, segmenter, vocab
        self.src, self.tgt, self.decode, self.device = src, tgt, decode, device
        self.room = sys.maxsize  # source pieces x beam that memory holds, as far as is known

    @classmethod
    def load(cls, run: str | Path, device: str = "auto", checkpoint: str = "best") -> Translator:
        """The translator of a run folder.

        Args:
            run: a folder that nmt-train wrote, wherever it is now.
            device: auto, cpu, cuda or cuda:N.
            checkpoint: best, latest, or a name such as u001500.

        Raises:
            UserError: no run, no such checkpoint, or a damaged one.
        """
        folder = RunFolder.open(run)
        recipe = folder.recipe()
        where = resolve_device(device)
        segmenter, vocab = load_segmenter(folder.path), Vocab.load(folder.path)
        saved = load_checkpoint(folder, checkpoint, with_optimizer=False)
        rows = len(saved.model["embed.weight"])
        if rows != len(vocab):
            raise UserError(
                f"the vocabulary has {len(vocab):,} types, the checkpoint {rows:,}",
                at=str(folder.path),
                fix="vocab.txt is not the one that this model was trained with; restore it",
            )
        model = Transformer(recipe.model, len(vocab), torch.from_numpy(vocab.types_of("tgt")))
        try:
            model.load_state_dict(saved.model)
        except RuntimeError as error:
            raise UserError(
                f"config.yaml describes another model than checkpoint {saved.path.name}: "
                f"{str(error).splitlines()[1].strip()}",
                at=str(folder.path),
                fix="restore the config.yaml that nmt-train wrote",
            ) from error
        translator = cls(
            model.to(where), segmenter, vocab, recipe.src, recipe.tgt, recipe.decode, where
        )
        trained, here = saved.state.text_fingerprint, translator.text_fingerprint
        if trained and trained != here:  # a checkpoint without a training knows none
            raise UserError(
                f"vocab.txt or segmenter.json is not what checkpoint {saved.path.name} was trained "
                f"with: SHA-256 {here[:12]}, not {trained[:12]}",
                at=str(folder.path),
                fix="restore the files that nmt-train wrote",
            )
        return translator

    @property
    def text_fingerprint(self) -> str:
        """SHA-256 of the vocabulary and the segmenter: of all that gives ids their meaning."""
        parts = self.vocab.fingerprint + segmenter_fingerprint(self.segmenter)
        return hashlib.sha256(parts.encode()).hexdigest()

    def translate(self, lines: Iterable[str], **options: Any) -> list[str]:
        """The best translation of each line; blank stays blank."""
        return [best[0].text for best in self.stream(lines, **options)]

    def n_best(self, lines: Iterable[str], n: int, **options: Any) -> list[list[Hypothesis]]:
        """The n best translations of each line, best first; ``beam`` is at least n."""
        return list(self.stream(lines, n_best=n, **options))

    def stream(
        self, lines: Iterable[str], n_best: int = 1, window: int | None = None, **options: Any
    ) -> Iterator[list[Hypothesis]]:
        """Hypotheses of each line, in order, as they are ready; memory is bounded.

        ``window`` lines, 2048 by default, are read ahead and sorted by length; 1 answers each line
        at once. A line of over 512 pieces is translated in parts, with a note on standard error.

        Raises:
            UserError: an option that cannot be, before the first line is read.
        """
        return self._stream(lines, self._decode(n_best, options), n_best, window or WINDOW)

    def _stream(
        self, lines: Iterable[str], decode: DecodeConfig, n_best: int, size: int
    ) -> Iterator[list[Hypothesis]]:
        numbered = enumerate(lines, 1)
        while window := list(itertools.islice(numbered, size)):
            parts = [self._parts(number, line) for number, line in window]
            flat = [part for of_line in parts for part in of_line]
            found = iter(self._search(flat, decode, n_best))
            for of_line in parts:
                yield self._join([next(found) for _ in of_line])

    def translate_ids(
        self,
        sources: Sequence[np.ndarray],
        stop: Callable[[], None] | None = None,
        **options: Any,
    ) -> list[Hypothesis]:
        """The best translation of encoded sentences; an empty one gives a blank hypothesis.

        ``stop`` is called between batches and may raise.
        """
        rows = [row for row, ids in enumerate(sources) if len(ids)]
        results = [BLANK] * len(sources)
        found = self._search([sources[row] for row in rows], self._decode(1, options), 1, stop)
        for row, of_row in zip(rows, found, strict=True):
            results[row] = self._join([of_row])[0]
        return results

    def _decode(self, n_best: int, options: dict[str, Any]) -> DecodeConfig:
        given = {name: value for name, value in options.items() if value is not None}
        try:
            decode = DecodeConfig.model_validate({**self.decode.model_dump(), **given})
        except ValidationError as error:
            raise UserError(
                "; ".join(_wrong(str(e["loc"][0]), e) for e in error.errors())
            ) from error
        if n_best > decode.beam:
            if "beam" in given:
                raise UserError(
                    f"{n_best} best translations need a beam of at least {n_best}, "
                    f"not {decode.beam}",
                    fix=f"set beam to {n_best} or more",
                )
            decode = decode.model_copy(update={"beam": n_best})
        return decode

    def _parts(self, number: int, line: str) -> list[np.ndarray]:
        """Ids of a line, cut into searchable parts; a blank line has none."""
        line = clean_line(line)
        if is_blank(line):
            return []
        ids = np.array(self.vocab.ids(self.segmenter.encode(line, self.src)), dtype=np.int64)
        count = -(-len(ids) // LONGEST)
        if count > 1:
            print(
                f"note: line {number} has {len(ids)} pieces; it is translated in {count} parts",
                file=sys.stderr,
            )
        return np.array_split(ids, count) if count else []

    def _join(self, parts: list[list[Found]]) -> list[Hypothesis]:
        """Hypotheses of one line from those of its parts, rank by rank."""
        ranks = [[self._hypothesis(found) for found in rank] for rank in zip(*parts, strict=False)]
        if not ranks:
            return [BLANK]
        return [
            rank[0]
            if len(rank) == 1
            else Hypothesis(
                pieces=[piece for part in rank for piece in part.pieces],
                text=" ".join(part.text for part in rank),
                score=sum(part.score for part in rank),
                log_prob=sum(part.log_prob for part in rank),
                finished=all(part.finished for part in rank),
            )
            for rank in ranks
        ]

    def _hypothesis(self, found: Found) -> Hypothesis:
        pieces = self.vocab.pieces(found.ids)
        text = self.segmenter.decode(pieces, self.tgt)
        return Hypothesis(pieces, text, found.score, found.log_prob, found.finished)

    def _search(
        self,
        sources: Sequence[np.ndarray],
        decode: DecodeConfig,
        n_best: int,
        stop: Callable[[], None] | None = None,
    ) -> list[list[Found]]:
        """Search in batches of similar length, longest first; results in the order given.

        Raises:
            MachineError: a single sentence does not fit in memory.
        """
        self.model.eval()
        order = sorted(range(len(sources)), key=lambda row: (-len(sources[row]), row))
        results: list[list[Found]] = [[] for _ in sources]
        first = 0
        while first < len(order):
            if stop is not None:
                stop()
            each = (len(sources[order[first]]) + 1) * decode.beam
            rows = order[first : first + max(1, min(decode.batch_tokens, self.room) // each)]
            try:
                found = self._search_batch([sources[row] for row in rows], decode, n_best)
            except torch.OutOfMemoryError as error:
                if len(rows) == 1:
                    raise MachineError(
                        f"no memory on {self.device} for one sentence of {each // decode.beam} "
                        f"pieces and {decode.beam} beams",
                        fix="take a smaller beam, or device cpu",
                    ) from error
                if self.room == sys.maxsize:
                    print(f"note: out of memory on {self.device}; batches halved", file=sys.stderr)
                self.room = len(rows) * each // 2
                continue
            for row, of_row in zip(rows, found, strict=True):
                results[row] = of_row
            first += len(rows)
        return results

    @torch.no_grad()
    def _search_batch(
        self, sources: Sequence[np.ndarray], decode: DecodeConfig, n_best: int
    ) -> list[list[Found]]:
        src, layout = collate_sources(list(sources))
        layout = layout.to(self.device)
        max_len = layout.lengths + decode.max_len_offset
        state = self.model.start(src.to(self.device), layout, decode.beam, int(max_len.max()))
        forbidden = [PAD, BOS] if decode.allow_unk else [PAD, BOS, UNK]
        return beam_search(
            state,
            decode.beam,
            max_len,
            decode.length_alpha,
            torch.tensor(forbidden, device=self.device),
            n_best,
        )


def _wrong(name: str, error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return f"no option {name}; there are {', '.join(DecodeConfig.model_fields)}"
    return f"{name}: {error['input']} is not {allowed(DecodeConfig, name)}"
