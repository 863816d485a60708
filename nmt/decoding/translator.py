"""Translate text with a run folder, or with a model in training."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from nmt.data.vocab import BOS, PAD, UNK, Vocab
from nmt.decoding.batching import HalvingBatcher, balanced_batches, read_chunks, without_first
from nmt.decoding.codec import (
    BLANK,
    SearchInput,
    TextCodec,
    Translation,
    UnknownPieces,
    text_hash,
)
from nmt.decoding.constraints import LineConstraints, require_list, with_constraints
from nmt.decoding.hypothesis import Hypothesis, NonFiniteScores, length_penalty
from nmt.decoding.mbr import MbrRanker
from nmt.decoding.noisy_channel import NoisyChannelRanker
from nmt.decoding.options import (
    DEFAULT_REVERSE_WEIGHT,
    SearchOptions,
    check_scoring_options,
    search_options,
)
from nmt.errors import Diverged, RunError, UserError
from nmt.run.folder import RunFolder

if TYPE_CHECKING:
    import numpy as np
    import torch

    from nmt.config.recipe import DecodeConfig, Recipe
    from nmt.data.segmenters import Segmenter
    from nmt.decoding.ensemble import Ensemble
    from nmt.model.transformer import Transformer

Job: TypeAlias = tuple[Sequence[SearchInput], SearchOptions]
# inputs, candidates of each -> their indices, best first
Ranking: TypeAlias = Callable[
    [Sequence[SearchInput], Sequence[Sequence[Translation]]], list[list[int]]
]
BatchResults: TypeAlias = Generator[tuple[range, list[list[Hypothesis]]], None, None]

CHUNK_SIZE = 2048  # lines that are read ahead and sorted by length
MIN_PARALLEL_SIZE = 4096  # pieces x beam of a call for which it pays to start worker processes


class Translator:
    """A model that translates text, with its segmenter and vocabulary.

    Load it with ``Translator.load``. The options of every method are the fields of
    ``nmt.decoding.options.SearchOptions``; docs/search-options.md explains them. The recipe's
    ``decode`` keys are the defaults. In fp32, batch size and order of the lines do not change the
    text; in bf16 and fp16, sums depend on the shape of a matrix.

    Attributes:
        recipe: recipe of the run, or of the first run of an ensemble; None = not known.
        tag_targets: target language of the tags for which it is not ``tgt``; "" = no tag.
        always_tagged: whether a tag was before each source of the training data.
        sources: source languages of the training data; empty = not known.
        reverse: model of the reverse direction, which chooses among the candidates of a search;
            None = the best hypothesis of the search is the translation.
    """

    recipe: Recipe | None = None
    tag_targets: Mapping[str, str] = {}
    always_tagged = False
    sources: Sequence[str] = ()
    reverse: Translator | None = None

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
            precision: number format of matrix products with weights.
            source: origin of the weights, for errors; None = a model in training.
            workers: processes that search on a CPU; 1 = only this one. More are forked, on Linux.
                They live as long as this object if the weights cannot change, else for one call.
        """
        from nmt.decoding.worker_pool import WorkerPool

        self._init_text(segmenter, vocab, src, tgt, decode, precision, source, workers)
        self.model, self.device = model, device
        self._allowed_ids = model.allowed.nonzero()[:, 0]
        self._search_batcher = HalvingBatcher(device)
        self._forced_batcher = HalvingBatcher(device)
        self._pool: WorkerPool[Job, list[list[Hypothesis]]] = WorkerPool()

    def _init_text(
        self,
        segmenter: Segmenter,
        vocab: Vocab,
        src: str,
        tgt: str,
        decode: DecodeConfig,
        precision: str,
        source: str | None,
        workers: int,
    ) -> None:
        """Set the attributes that do not need a torch model, which other engines lack."""
        from nmt.decoding.worker_pool import check_workers

        self.segmenter, self.vocab, self.decode = segmenter, vocab, decode
        self.src, self.tgt = src, tgt
        self.codec = TextCodec(segmenter, vocab, src, tgt)
        self.precision, self.source, self.workers = precision, source, check_workers(workers)

    @classmethod
    def load(
        cls,
        run: str | Path | Sequence[str | Path],
        device: str = "auto",
        checkpoint: str = "best",
        precision: str = "fp32",
        workers: int = 1,
        reverse: str | Path | Sequence[str | Path] | None = None,
    ) -> Translator:
        """Return the translator of a run folder, or of several as an ensemble.

        ``nmt.load_translator`` loads exported folders too, and chooses the library that searches.

        Args:
            run: a run folder from nmt-train; or several, as an ensemble, with the same vocabulary,
                segmenter and languages. The ``decode`` keys of the first folder apply.
            device: auto, cpu, cuda or cuda:N.
            checkpoint: best, latest, or a name such as u001500, of each run.
            precision: number format of matrix products with weights: fp32, bf16, fp16, or auto =
                bf16 if the device has instructions for it, fp16 on a V100 or T4, else fp32.
            workers: processes that search on a CPU; 1 = only this one. More are forked, on Linux;
                they make large inputs faster.
            reverse: a run folder of the reverse direction, or several as an ensemble, to choose
                among candidates (``reverse_weight``). Their best checkpoints are used.

        Raises:
            UserError: the folder is not a run, the checkpoint does not exist or is damaged, the
                runs do not match, or an argument is not allowed.
            MachineError: the device does not exist, or does not support the precision.
        """
        runs = [run] if isinstance(run, str | Path) else run
        if not runs:
            raise UserError("no run folder is given", fix="give one, or several as an ensemble")
        reverse_runs = [reverse] if isinstance(reverse, str | Path) else reverse or []
        # report a bad folder before torch is imported, which takes seconds
        for one in (*runs, *reverse_runs):
            RunFolder.open(one).require_translation()

        from nmt.decoding.ensemble import Ensemble
        from nmt.decoding.loaded_run import check_same_text, load_run
        from nmt.runtime.device import DTYPES, emulation_note, resolve_device, resolve_precision

        resolved = resolve_device(device)
        precision = resolve_precision(precision, resolved)
        if note := emulation_note(precision, resolved):
            print(f"note: {note}", file=sys.stderr)
        loaded = [load_run(one, checkpoint) for one in runs]
        check_same_text(loaded)
        models = [one.model.to(resolved).prepare_for_inference(DTYPES[precision]) for one in loaded]
        first = loaded[0]
        translator = cls(
            models[0] if len(models) == 1 else Ensemble(models),
            first.segmenter,
            first.vocab,
            first.recipe.src,
            first.recipe.tgt,
            first.recipe.decode,
            resolved,
            precision,
            source=", ".join(str(one.checkpoint) for one in loaded),
            workers=workers,
        )
        translator.recipe, translator.tag_targets = first.recipe, first.recipe.tag_targets
        translator.always_tagged = first.recipe.always_tagged
        translator.sources, translator.codec.usual = first.recipe.sources, first.usual
        if reverse is not None:
            translator.reverse = Translator.load(reverse, device, precision=precision)
        return translator

    @property
    def transformer(self) -> Transformer:
        """Return the model of a translator that is not an ensemble."""
        from nmt.model.transformer import Transformer

        assert isinstance(self.model, Transformer)
        return self.model

    @property
    def text_hash(self) -> str:
        """Return the SHA-256 of vocabulary and segmenter, which give ids their meaning."""
        return text_hash(self.vocab, self.segmenter)

    @property
    def unknown(self) -> UnknownPieces:
        """Return the counts of source pieces so far that the model does not know."""
        return self.codec.unknown

    def target_of(self, tag: str | None) -> str:
        """Return the language that the model translates to after a tag; None = without one."""
        return self.tag_targets.get(tag or "", self.tgt)

    def _codec_of(self, options: SearchOptions) -> TextCodec:
        return self.codec.for_target(self.target_of(options.tag))

    def model_hash(self) -> str:
        """Return the SHA-256 of the weights, the vocabulary and the segmenter."""
        digest = hashlib.sha256(self.text_hash.encode())
        for name, tensor in self.model.state_dict().items():
            digest.update(name.encode())
            digest.update(tensor.cpu().numpy().tobytes())
        return digest.hexdigest()

    def translate(self, lines: Iterable[str], **options: Any) -> list[str]:
        """Return the best translation of each line; blank lines stay blank.

        Args:
            lines: texts, each of one sentence or several.
            options: arguments of ``stream``.

        Raises:
            UserError: an option is not allowed.
        """
        require_list("translate([text])", lines=lines)
        return [best[0].text for best in self.stream(lines, **options)]

    def n_best(self, lines: Iterable[str], n: int, **options: Any) -> list[list[Translation]]:
        """Return the n best translations of each line, best first; ``beam`` is at least n.

        Args:
            lines: texts, each of one sentence or several.
            n: number of translations per line.
            options: arguments of ``stream``.

        Raises:
            UserError: an option is not allowed.
        """
        require_list(f"n_best([text], {n})", lines=lines)
        return list(self.stream(lines, n_best=n, **options))

    def stream(
        self,
        lines: Iterable[str],
        chunk_size: int | None = None,
        prefix: Iterable[str] | None = None,
        require: Iterable[Sequence[str]] | None = None,
        forbid: Iterable[Sequence[str]] | None = None,
        skip: int = 0,
        progress: Callable[[int], None] = lambda lines: None,
        ready: Callable[[], bool] = lambda: True,
        stop: Callable[[], None] = lambda: None,
        **options: Any,
    ) -> Iterator[list[Translation]]:
        """Yield the translations of each line, in order, with bounded memory.

        A line of several sentences may be translated sentence by sentence (``split``). A longer
        part than 512 pieces is translated in parts, with a note on standard error.

        Args:
            chunk_size: lines that are read ahead and sorted by length, fewer if they are long;
                2048 by default, 1 = translate each line at once.
            prefix: for each line, the text that its translation starts with.
            require: for each line, the phrases that its translation must contain.
            forbid: for each line, the phrases that its translation must not contain.
            skip: number of first lines whose translations are not yielded. Line numbers count them.
                Those that share a chunk with later lines are translated again.
            progress: called with the number of lines that a step of the search has finished, long
                before their chunk is complete.
            ready: returns whether the next line can be read without waiting. If not, the lines read
                so far are translated first.
            stop: called between two positions of a search, between batches of scores, and while
                worker processes search; may raise an exception to stop.
            options: fields of ``SearchOptions``.

        Raises:
            UserError: an option is not allowed; this is raised before the first line is read.
            TypeError: an argument is a text instead of a list of lines or phrases.
        """
        require_list("stream([text])", lines=lines)
        require_list("prefix=[text]", prefix=prefix)
        require_list("require=[[phrase]]", require=require)
        require_list("forbid=[[phrase]]", forbid=forbid)
        require_list("forbid_all=[phrase]", forbid_all=options.get("forbid_all"))
        given = {"prefix": prefix, "require": require, "forbid": forbid}
        constraints = {name: values for name, values in given.items() if values is not None}
        if self.reverse is not None and options.get("mbr") is None:
            weight = options.get("reverse_weight")
            options["reverse_weight"] = DEFAULT_REVERSE_WEIGHT if weight is None else weight
        checked = self.check_options(options, constraints.keys())
        numbered, size = with_constraints(lines, constraints), chunk_size or CHUNK_SIZE
        return self._stream(numbered, checked, size, skip, progress, ready, stop)

    def _stream(
        self,
        numbered: Iterator[tuple[int, str, LineConstraints]],
        options: SearchOptions,
        chunk_size: int,
        skip: int,
        progress: Callable[[int], None],
        ready: Callable[[], bool],
        stop: Callable[[], None],
    ) -> Iterator[list[Translation]]:
        codec = self._codec_of(options)
        rank = self._ranking(codec, options, stop)
        banned = codec.patterns(options.forbid_all, "forbid_all")
        chunks = read_chunks(numbered, chunk_size, lambda item: len(item[1]), ready, skip)
        for chunk, finished in chunks:
            report = without_first(progress, finished)
            parts = [
                codec.encode_line(*item, banned, options.tag, options.src, options.split)
                for item in chunk
            ]
            report(sum(not of_line for of_line in parts))  # blank lines
            inputs = list(itertools.chain(*parts))
            found = self.search(inputs, options, stop, report)
            if rank is not None:
                candidates = [
                    codec.decode_line([of_part], [part])
                    for of_part, part in zip(found, inputs, strict=True)
                ]
                found = [
                    [of_part[index] for index in order[: options.n_best]]
                    for of_part, order in zip(found, rank(inputs, candidates), strict=True)
                ]
            results = iter(found)
            hypotheses = [[next(results) for _ in of_line] for of_line in parts]
            if options.align or options.token_scores:
                from nmt.decoding.forced import add_scores_and_alignment

                with self._finite_scores():
                    translations = add_scores_and_alignment(
                        self.model, codec, parts, hypotheses, options, self._forced_batcher, stop
                    )
            else:
                translations = list(map(codec.decode_line, hypotheses, parts))
            yield from itertools.islice(translations, finished, None)

    def _ranking(
        self, codec: TextCodec, options: SearchOptions, stop: Callable[[], None]
    ) -> Ranking | None:
        """Return what orders the candidates of lines; None = the search does."""
        if options.mbr:
            return MbrRanker(options.mbr, codec.tgt, stop).rank_inputs
        if options.reverse_weight and self.reverse is not None:
            return NoisyChannelRanker(self.reverse, codec, options, stop).rank
        return None

    def score(
        self, sources: Iterable[str], targets: Iterable[str], **options: Any
    ) -> list[Translation]:
        """Return given translations with their score and their log-probability, also by token.

        The values equal those of a search that finds the same pieces. If both lines are blank, the
        log-probability is 0; if one is blank, it is minus infinity.

        Args:
            sources: texts, one sentence each.
            targets: the translation of each source.
            options: ``length_alpha``, ``batch_tokens``, ``align``, ``tag`` and ``src``.

        Raises:
            UserError: another option is given, or one side has more lines.
        """
        return list(self.score_stream(sources, targets, **options))

    def score_stream(
        self,
        sources: Iterable[str],
        targets: Iterable[str],
        chunk_size: int | None = None,
        skip: int = 0,
        progress: Callable[[int], None] = lambda lines: None,
        ready: Callable[[], bool] = lambda: True,
        **options: Any,
    ) -> Iterator[Translation]:
        """Yield what ``score`` returns, in order, with bounded memory.

        The other arguments are those of ``stream``.
        """
        require_list("score([text], [translation])", sources=sources, targets=targets)
        check_scoring_options(options)
        checked = self.check_options(options)
        pairs = enumerate(itertools.zip_longest(sources, targets), 1)
        size = chunk_size or CHUNK_SIZE
        return self._score_stream(pairs, checked, size, skip, progress, ready)

    def _score_stream(
        self,
        numbered: Iterator[tuple[int, tuple[str | None, str | None]]],
        options: SearchOptions,
        chunk_size: int,
        skip: int,
        progress: Callable[[int], None],
        ready: Callable[[], bool],
    ) -> Iterator[Translation]:
        from nmt.decoding.forced import score_pairs

        def characters(pair: tuple[int, tuple[str | None, str | None]]) -> int:
            return sum(len(side or "") for side in pair[1])

        self.model.eval()
        for chunk, finished in read_chunks(numbered, chunk_size, characters, ready, skip):
            with self._finite_scores():
                scored = score_pairs(
                    self.model,
                    self._codec_of(options),
                    chunk,
                    options,
                    self._forced_batcher,
                    without_first(progress, finished),
                )
            yield from itertools.islice(scored, finished, None)

    def score_ids(
        self,
        pairs: Sequence[tuple[np.ndarray, np.ndarray, int]],
        options: SearchOptions,
        stop: Callable[[], None] = lambda: None,
    ) -> list[float]:
        """Return the score of each target given its source: log-probability / length penalty.

        Args:
            pairs: ids of source and target, without EOS, and a line number for errors.
            options: ``length_alpha`` and ``batch_tokens``.
            stop: called between batches; may raise an exception to stop.

        Raises:
            RunError: scores are NaN or infinite.
        """
        from nmt.decoding.forced import EncodedPairs, forced_decode

        self.model.eval()
        with self._finite_scores():
            found = forced_decode(
                self.model, EncodedPairs(pairs), options, self._forced_batcher, stop=stop
            )
        return [
            sum(one.log_probs) / length_penalty(len(one.log_probs), options.length_alpha)
            for one in found
        ]

    def translate_ids(
        self,
        sources: Sequence[np.ndarray],
        stop: Callable[[], None] = lambda: None,
        tgt: str | None = None,
        **options: Any,
    ) -> list[Translation]:
        """Return the best translation of encoded sentences; that of an empty one is blank.

        Args:
            sources: ids of each sentence, without EOS.
            stop: see ``stream``.
            tgt: target language, for the tokenizer's rules; None = that of the translator.
        """
        checked = self.check_options(options)
        inputs = [SearchInput(ids, line) for line, ids in enumerate(sources, 1) if len(ids)]
        codec = self.codec if tgt is None else self.codec.for_target(tgt)
        results = [BLANK] * len(sources)
        for one, hypotheses in zip(inputs, self.search(inputs, checked, stop), strict=True):
            results[one.line - 1] = codec.decode_line([hypotheses], [one])[0]
        return results

    def check_options(
        self, given: dict[str, Any], constraints: Set[str] = frozenset()
    ) -> SearchOptions:
        """Return the options of one call, with the recipe's as defaults.

        Args:
            constraints: names of the ``LineConstraints`` that ``stream`` is given.

        Raises:
            UserError: an option that is not allowed, options that exclude each other, or a tag
                or a source language that the model does not have.
        """
        options = search_options(self.decode, given, constraints)
        self.codec.tag_ids(options.tag)  # an unknown one is an error
        if self.sources and options.src not in (None, *self.sources):
            raise UserError(
                f"the model was not trained to translate {options.src}; its source languages are "
                + ", ".join(self.sources),
                at="src",
                fix="choose one of these, or leave src out",
            )
        if options.reverse_weight:
            if self.reverse is None:
                raise UserError(
                    "reverse_weight requires a model of the reverse direction",
                    fix="load it with --reverse RUN, in Python with reverse=RUN",
                )
            NoisyChannelRanker(self.reverse, self._codec_of(options), options)  # checks the model
        return options

    def search(
        self,
        inputs: Sequence[SearchInput],
        options: SearchOptions,
        stop: Callable[[], None] = lambda: None,
        progress: Callable[[int], None] = lambda lines: None,
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each input, best first; samples in the order of their draws.

        Every search calls this method, which another engine replaces. Inputs are searched in
        batches of similar length, the longest first.

        Args:
            stop: see ``stream``.
            progress: called with the number of lines of each batch.

        Raises:
            MachineError: a single input does not fit in memory, or a worker process was ended.
            RunError: the model's scores are NaN or infinite.
        """
        from nmt.decoding.worker_pool import CAN_FORK
        from nmt.model.cpu import kernels

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
        parallel = large and on_cpu and self.workers > 1 and CAN_FORK
        search_batches = self._search_in_workers if parallel else self._search_in_turn
        batches = search_batches(ordered, sizes, options, stop)
        with contextlib.closing(batches):
            for batch, hypotheses in batches:
                rows = order[batch.start : batch.stop]
                for row, of_row in zip(rows, hypotheses, strict=True):
                    results[row] = of_row
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
        from nmt.model.cpu import kernels

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

    def _search_in_turn(
        self,
        inputs: Sequence[SearchInput],
        sizes: Sequence[int],
        options: SearchOptions,
        stop: Callable[[], None],
    ) -> BatchResults:
        """Yield the indices and hypotheses of each batch; halve batches when memory is short."""

        def search(batch: range) -> list[list[Hypothesis]]:
            return self._search_batch(inputs[batch.start : batch.stop], options, stop)

        return self._search_batcher.map(search, sizes, options.batch_tokens)

    def _search_batch(
        self,
        inputs: Sequence[SearchInput],
        options: SearchOptions,
        stop: Callable[[], None],
    ) -> list[list[Hypothesis]]:
        """Search a batch with the model: plain, constrained or sampled, as the options say."""
        import torch

        from nmt.data.batches import collate_sources
        from nmt.decoding.logits_processors import logits_processors
        from nmt.decoding.search import beam_search
        from nmt.decoding.strategies import selection_strategy

        src, layout = collate_sources([one.ids for one in inputs])
        layout = layout.to(self.device)
        required = torch.tensor([one.required_length for one in inputs], device=self.device)
        max_len = (layout.lengths + options.max_len_offset).maximum(required)
        processors = logits_processors(
            inputs, options, max_len, lambda: self._codec_of(options).strings
        )
        strategy = selection_strategy(inputs, options, max_len, processors)
        # a plain search needs logits only of the types that the model can produce
        types = None if processors or strategy is not None else self._allowed_ids
        # without model.logit_mask, a model could produce the tags of sources, and MASK
        reserved = [token for token in self.vocab.reserved_ids if self.model.allowed[token]]
        forbidden = [PAD, BOS, *reserved] if options.allow_unk else [PAD, BOS, UNK, *reserved]
        diverse = options.groups > 1  # the best of a group may be the second best of all
        with torch.no_grad(), self._finite_scores(inputs):
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
        if diverse:
            return [sorted(of, key=lambda h: -h.score)[: options.wanted] for of in results]
        return results

    @contextlib.contextmanager
    def _finite_scores(self, inputs: Sequence[SearchInput] | None = None) -> Iterator[None]:
        """Turn NonFiniteScores into an error that names the line and the checkpoint.

        Args:
            inputs: the batch that is searched; None = the error has a line number.

        Raises:
            RunError: scores are NaN or infinite; ``Diverged`` if the model is in training.
        """
        try:
            yield
        except NonFiniteScores as error:
            line = error.number if inputs is None else inputs[error.number].line
            kind = Diverged if self.source is None else RunError
            raise kind(
                f"the scores of line {line} are not finite: the weights hold NaN or are too large",
                at=self.source,
                fix="train with a lower learning rate, or clip gradients"
                if self.source is None
                else "choose another checkpoint of the run with --checkpoint"
                + ("" if self.precision == "fp32" else ", or use --precision fp32"),
            ) from error
