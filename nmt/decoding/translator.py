"""Text in, text out: a run folder as a function from n lines to n lines."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from nmt.decoding.codec import (
    BLANK,
    SearchInput,
    TextCodec,
    Translation,
    Unknown,
    text_fingerprint,
)
from nmt.decoding.found import Hypothesis, NonFiniteScores
from nmt.decoding.options import SearchOptions, search_options
from nmt.decoding.shares import balanced_batches
from nmt.decoding.windows import read_chunks
from nmt.decoding.wishes import NAMES, LineConstraints, require_items, with_constraints
from nmt.errors import RunError, UserError

if TYPE_CHECKING:
    import numpy as np
    import torch

    from nmt.config.recipe import DecodeConfig
    from nmt.data.segment import Segmenter
    from nmt.data.vocab import Vocab
    from nmt.decoding.ensemble import Ensemble
    from nmt.decoding.load import Run
    from nmt.decoding.mbr import Mbr
    from nmt.decoding.worker_pool import Staying
    from nmt.model.transformer import Transformer

Job: TypeAlias = tuple[Sequence[SearchInput], SearchOptions]
Searching: TypeAlias = Generator[tuple[range, list[list[Hypothesis]]], None, None]

WINDOW = 2048  # lines read ahead and sorted by length
MIN_PARALLEL_SIZE = 4096  # pieces x beam from which on processes on all cores pay for their start
SCORING = {"length_alpha", "batch_tokens", "align", "token_scores"}  # what given lines may ask for


class Translator:
    """A model with all that stands between its ids and text.

    The options of every method are those of ``nmt.decoding.options``, with the recipe's ``decode``
    as their defaults. The text does not depend on how lines are batched or ordered.
    """

    def __init__(
        self,
        model: Transformer | Ensemble,
        segmenter: Segmenter,
        vocab: Vocab,
        src: str,
        tgt: str,
        decode: DecodeConfig,
        device: torch.device,
        precision: str = "fp32",
        source: str | None = None,
        workers: int = 1,
    ) -> None:
        """
        Args:
            precision: of the model's matrix products with weights.
            workers: processes that search on a CPU; 1 = this one alone. More are forked, on Linux,
                and stay until this object is gone.
            source: where the weights are from, for errors; None = a model in training.
        """
        from nmt.decoding.memory import Memory
        from nmt.decoding.worker_pool import Staying, checked_workers

        self.source, self.workers = source, checked_workers(workers)
        self.model, self.segmenter, self.vocab = model, segmenter, vocab
        self.precision = precision
        self._types = model.allowed.nonzero()[:, 0]  # that a search may produce
        self.src, self.tgt, self.decode, self.device = src, tgt, decode, device
        self.sentences = TextCodec(segmenter, vocab, src, tgt)
        self.memory, self.memory_forced = Memory(device), Memory(device)
        self._staying: Staying[Job, list[list[Hypothesis]]] = Staying()

    @classmethod
    def load(
        cls,
        run: Run | Sequence[Run],
        device: str = "auto",
        checkpoint: str = "best",
        precision: str = "fp32",
        workers: int = 1,
    ) -> Translator:
        """The translator of a run folder, or of several: the mean of their probabilities.

        Args:
            run: a folder that nmt-train wrote, wherever it is now; several must share vocabulary,
                segmenter and languages. The first one's ``decode`` holds.
            device: auto, cpu, cuda or cuda:N.
            checkpoint: best, latest, or a name such as u001500, of each run.
            precision: of matrix products with weights: fp32, bf16, fp16 or auto, which is the
                fastest that the device computes itself.
            workers: processes that search on a CPU; 1 = this one alone, as forking in a library
                call, for example of a server, may surprise. On Linux, for large inputs.

        Raises:
            UserError: no run, no such checkpoint, a damaged one, runs that do not match, or a
                number of workers that cannot be.
            MachineError: there is no such device, or it lacks bf16.
        """
        from nmt.run.folder import RunFolder

        runs = [run] if isinstance(run, str | Path) else run
        for one in runs:  # what is wrong with a folder is found before torch is loaded
            RunFolder.open(one).recipe()

        from nmt.decoding.ensemble import Ensemble
        from nmt.decoding.load import load_run, require_same_text
        from nmt.runtime.device import DTYPES, emulation_note, resolve_device, resolve_precision

        where = resolve_device(device)
        precision = resolve_precision(precision, where)
        if note := emulation_note(precision, where):
            print(f"note: {note}", file=sys.stderr)
        loaded = [load_run(one, checkpoint) for one in runs]
        require_same_text(loaded)
        models = [one.model.to(where).prepare_for_inference(DTYPES[precision]) for one in loaded]
        first = loaded[0]
        return cls(
            models[0] if len(models) == 1 else Ensemble(models),
            first.segmenter,
            first.vocab,
            first.recipe.src,
            first.recipe.tgt,
            first.recipe.decode,
            where,
            precision,
            source=", ".join(str(one.checkpoint) for one in loaded),
            workers=workers,
        )

    @property
    def transformer(self) -> Transformer:
        """The model of a translator that is no ensemble."""
        from nmt.model.transformer import Transformer

        assert isinstance(self.model, Transformer)
        return self.model

    @property
    def text_fingerprint(self) -> str:
        """SHA-256 of all that gives ids their meaning."""
        return text_fingerprint(self.vocab, self.segmenter)

    @property
    def unknown(self) -> Unknown:
        """How much of all source text so far is unknown to the model."""
        return self.sentences.unknown

    def fingerprint(self) -> str:
        """SHA-256 of the weights, and of all that gives ids their meaning."""
        digest = hashlib.sha256(self.text_fingerprint.encode())
        for name, tensor in self.model.state_dict().items():
            digest.update(name.encode())
            digest.update(tensor.cpu().numpy().tobytes())
        return digest.hexdigest()

    def translate(self, lines: Iterable[str], **options: Any) -> list[str]:
        """The best translation of each line; blank stays blank."""
        require_items("translate([text])", lines=lines)
        return [best[0].text for best in self.stream(lines, **options)]

    def n_best(self, lines: Iterable[str], n: int, **options: Any) -> list[list[Translation]]:
        """The n best translations of each line, best first; ``beam`` is at least n."""
        require_items(f"n_best([text], {n})", lines=lines)
        return list(self.stream(lines, n_best=n, **options))

    def stream(
        self,
        lines: Iterable[str],
        window: int | None = None,
        prefix: Iterable[str] | None = None,
        require: Iterable[Sequence[str]] | None = None,
        forbid: Iterable[Sequence[str]] | None = None,
        skip: int = 0,
        progress: Callable[[int], None] = lambda lines: None,
        ready: Callable[[], bool] = lambda: True,
        **options: Any,
    ) -> Iterator[list[Translation]]:
        """Hypotheses of each line, in order, as they are ready; memory is bounded.

        ``window`` lines, 2048 by default or fewer long ones, are read ahead and sorted by length;
        1 answers each line at once. A line of over 512 pieces is translated in parts, and noted.
        ``prefix``, ``require`` and ``forbid`` have an item for each line: the text that the
        translation starts with, the phrases that it says, and those that it does not say.

        Args:
            skip: lines passed over, which keep their numbers.
            progress: is told how many lines each step of the search has done, long before their
                window is ready.
            ready: asked after each line whether the next one can be read without waiting for it;
                if not, the lines read so far are answered first.

        Raises:
            UserError: an option that cannot be, before the first line is read.
            TypeError: a text in place of lines or phrases.
        """
        require_items("stream([text])", lines=lines)
        require_items("prefix=[text]", prefix=prefix)
        require_items("require=[[phrase]]", require=require)
        require_items("forbid=[[phrase]]", forbid=forbid)
        require_items("forbid_all=[phrase]", forbid_all=options.get("forbid_all"))
        wishes = zip(NAMES, (prefix, require, forbid), strict=True)
        checked = self.checked(options, {name for name, items in wishes if items is not None})
        wished = with_constraints(lines, prefix, require, forbid)
        numbered = itertools.islice(enumerate(wished, 1), skip, None)
        return self._stream(numbered, checked, window or WINDOW, progress, ready)

    def _stream(
        self,
        numbered: Iterator[tuple[int, tuple[str, LineConstraints]]],
        options: SearchOptions,
        size: int,
        progress: Callable[[int], None],
        ready: Callable[[], bool],
    ) -> Iterator[list[Translation]]:
        mbr = None
        if options.mbr:
            from nmt.decoding.mbr import Mbr

            mbr = Mbr(options.mbr, self.tgt)
        never = self.sentences.patterns(options.forbid_all, "forbid_all")

        def done(batch: Sequence[SearchInput]) -> None:
            progress(sum(sentence.place[1] == 0 for sentence in batch))

        for window in read_chunks(numbered, size, lambda line: len(line[1][0]), ready):
            parts = [self.sentences.of_line(number, *line, never) for number, line in window]
            progress(sum(not of_line for of_line in parts))
            each = iter(self._search(list(itertools.chain(*parts)), options, done=done))
            found = [[next(each) for _ in of_line] for of_line in parts]
            if mbr is not None:
                found = [
                    self._chosen(mbr, *line, options.n_best)
                    for line in zip(found, parts, strict=True)
                ]
            made: Iterable[list[Translation]] = map(self.sentences.join, found, parts)
            if options.align or options.token_scores:
                from nmt.decoding.examine import add_scores_and_alignment
                from nmt.decoding.searched import Searched

                searched = Searched([line for _, (line, _) in window], parts, found)
                with self._finite_scores():
                    made = add_scores_and_alignment(
                        self.model, self.sentences, searched, options, self.memory_forced
                    )
            yield from made

    def _chosen(
        self, mbr: Mbr, found: list[list[Hypothesis]], parts: list[SearchInput], count: int
    ) -> list[list[Hypothesis]]:
        """What was found for the parts of a line, the best ``count`` by expected utility."""
        texts = [hypothesis.text for hypothesis in self.sentences.join(found, parts)]
        places = mbr.rank(texts)[:count]
        return [[ranks[place] for place in places] for ranks in found]

    def score(
        self, sources: Iterable[str], targets: Iterable[str], **options: Any
    ) -> list[Translation]:
        """Given translations with their log-probability, by token too, and score.

        They equal those of a search that finds the same pieces. Two blank lines have
        log-probability 0, one alone minus infinity.

        Args:
            options: ``length_alpha``, ``batch_tokens`` and ``align``.

        Raises:
            UserError: another option, or one side has more lines.
        """
        return list(self.score_stream(sources, targets, **options))

    def score_stream(
        self,
        sources: Iterable[str],
        targets: Iterable[str],
        window: int | None = None,
        skip: int = 0,
        progress: Callable[[int], None] = lambda lines: None,
        ready: Callable[[], bool] = lambda: True,
        **options: Any,
    ) -> Iterator[Translation]:
        """``score`` of any number of lines, as they are ready; memory is bounded."""
        require_items("score([text], [translation])", sources=sources, targets=targets)
        for name, value in options.items():
            if value is not None and name not in SCORING:
                raise UserError(
                    f"{name} means nothing to given translations", fix=f"leave {name} out"
                )
        checked = self.checked(options)
        from nmt.decoding.score import score_lines

        self.model.eval()
        scored = score_lines(
            self.model, self.sentences, sources, targets, checked, window or WINDOW, skip,
            self.memory_forced, progress, ready,
        )  # fmt: skip
        return self._with_finite_scores(scored)

    def _with_finite_scores(self, scored: Iterator[Translation]) -> Iterator[Translation]:
        with self._finite_scores():
            yield from scored

    def translate_ids(
        self,
        sources: Sequence[np.ndarray],
        stop: Callable[[], None] | None = None,
        **options: Any,
    ) -> list[Translation]:
        """The best translation of encoded sentences; an empty one gives a blank hypothesis.

        ``stop`` is called between batches and may raise.
        """
        rows = [row for row, ids in enumerate(sources) if len(ids)]
        results = [BLANK] * len(sources)
        checked = self.checked(options)
        sentences = [SearchInput(sources[row], (row + 1, 0)) for row in rows]
        found = self._search(sentences, checked, stop)
        for row, sentence, of_row in zip(rows, sentences, found, strict=True):
            results[row] = self.sentences.join([of_row], [sentence])[0]
        return results

    def checked(self, given: dict[str, Any], wishes: Set[str] = frozenset()) -> SearchOptions:
        """The options of one call, with the recipe's as defaults.

        Args:
            wishes: what ``stream`` is given for each line, by name.

        Raises:
            UserError: an option that cannot be, or options that contradict each other.
        """
        return search_options(self.decode, given, wishes)

    def _search(
        self,
        sentences: Sequence[SearchInput],
        options: SearchOptions,
        stop: Callable[[], None] | None = None,
        done: Callable[[Sequence[SearchInput]], None] = lambda searched: None,
    ) -> list[list[Hypothesis]]:
        """Search in batches of similar length, longest first; results in the order given.

        Raises:
            MachineError: a single sentence does not fit in memory, or a process was ended.
        """
        from nmt.decoding.worker_pool import CAN_FORK
        from nmt.model.cpu import kernels

        self.model.eval()
        order = sorted(range(len(sentences)), key=lambda row: (-len(sentences[row].ids), row))
        results: list[list[Hypothesis]] = [[] for _ in sentences]
        stop = stop or (lambda: None)
        lengths = [(len(sentences[row].ids) + 1) * options.beam for row in order]
        if self.device.type == "cpu":
            kernels.load_if_worthwhile(sum(lengths))
        many = len(order) > 1 and sum(lengths) >= MIN_PARALLEL_SIZE
        cores = many and self.device.type == "cpu" and self.workers > 1 and CAN_FORK
        way = self._on_cores if cores else self._in_turn
        searched = way([sentences[row] for row in order], lengths, options, stop)
        with contextlib.closing(searched):
            for run, found in searched:
                rows = order[run.start : run.stop]
                for row, of_row in zip(rows, found, strict=True):
                    results[row] = of_row
                done([sentences[row] for row in rows])
        return results

    def _on_cores(
        self,
        sentences: Sequence[SearchInput],
        lengths: Sequence[int],
        options: SearchOptions,
        stop: Callable[[], None],
    ) -> Searching:
        """Places of sentences and what was found for them, a batch on each core."""
        from nmt.model.cpu import kernels

        kernels.load()  # once, and not in each process
        stay, count = bool(self.model.for_inference), self.workers
        runs = balanced_batches(lengths, options.batch_tokens, count)
        jobs = [(sentences[run.start : run.stop], options) for run in runs]
        with self._staying.using(
            self._search_job,
            count if stay else min(count, len(jobs)),
            (self.model, self.sentences),
            stay,
        ) as cores:
            if cores is None:
                yield from self._in_turn(sentences, lengths, options, stop)
                return
            with contextlib.closing(cores.map(jobs)) as found:
                for pair in zip(runs, found, strict=True):
                    stop()
                    yield pair

    def _search_job(self, job: Job) -> list[list[Hypothesis]]:
        return self._search_batch(*job)

    def _in_turn(
        self,
        sentences: Sequence[SearchInput],
        lengths: Sequence[int],
        options: SearchOptions,
        stop: Callable[[], None],
    ) -> Searching:
        """Places of sentences and what was found for them, halved when memory is short."""

        def search(run: range) -> list[list[Hypothesis]]:
            stop()
            return self._search_batch(sentences[run.start : run.stop], options)

        return self.memory.in_turn(lengths, options.batch_tokens, search)

    def _search_batch(
        self, sentences: Sequence[SearchInput], options: SearchOptions
    ) -> list[list[Hypothesis]]:
        import torch

        from nmt.data.batches import collate_sources
        from nmt.decoding.plan import Plan

        src, layout = collate_sources([sentence.ids for sentence in sentences])
        layout = layout.to(self.device)
        with torch.no_grad(), self._finite_scores(sentences):
            plan = Plan(sentences, options, layout.lengths, lambda: self.sentences.surfaces)
            types, longest = plan.types(self._types), int(plan.max_len.max())
            state = self.model.start_decoding(
                src.to(self.device), layout, options.beam, longest, types
            )
            return plan.search(state, types)

    @contextlib.contextmanager
    def _finite_scores(self, sentences: Sequence[SearchInput] | None = None) -> Iterator[None]:
        """
        Args:
            sentences: what is searched, if its scores are known by their places.

        Raises:
            RunError: scores are NaN or infinite.
        """
        try:
            yield
        except NonFiniteScores as error:
            line = error.number if sentences is None else sentences[error.number].place[0]
            raise RunError(
                f"the scores of line {line} are not finite: the weights hold NaN or are too large",
                at=self.source,
                fix="train with a lower learning rate, or clip gradients"
                if self.source is None
                else "take another checkpoint of the run with --checkpoint"
                + ("" if self.precision == "fp32" else ", or precision fp32"),
            ) from error
