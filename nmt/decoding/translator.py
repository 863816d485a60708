"""Translate text: lines to ids (``TextCodec``), a search (``Engine``), and ids to lines."""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nmt.decoding import rerank
from nmt.decoding.batching import read_chunks, without_first
from nmt.decoding.codec import BLANK, TextCodec, Translation, UnknownPieces, codec_of
from nmt.decoding.constraints import LineConstraints, require_list, with_constraints
from nmt.decoding.engine import (
    EncodedPair,
    Engine,
    Hypothesis,
    ModelInfo,
    NonFiniteScores,
    Progress,
    Runs,
    SearchInput,
    Stop,
    all_cores,
    check_workers,
    ignore,
    info_of,
    listed,
)
from nmt.decoding.options import SearchOptions, search_options
from nmt.errors import Diverged, NmtError, RunError, UserError
from nmt.runtime.device_names import parse_device
from nmt.store.model import WEIGHTS, Model, read_models

if TYPE_CHECKING:
    import numpy as np

    from nmt.model.transformer import Transformer

CHUNK_SIZE = 2048  # lines that are read ahead and sorted by length
ENGINES = ("auto", "ctranslate2", "torch")


class Translator:
    """A model that translates text.

    Load it with ``Translator.load``. The options of every method are the
    fields of ``nmt.decoding.options.SearchOptions``; docs/search-options.md explains them. The
    recipe's ``decode`` keys are the defaults. In fp32, batch size and order of the lines do not
    change the text; in bf16 and fp16, sums depend on the shape of a matrix.

    Args:
        engine: the weights, and the library that computes with them.
        load_torch: loads the same weights with torch, for what ``engine`` does not support; None =
            ``engine`` is torch, or there are no weights for torch.
        obstacle: why ``engine`` is torch; empty if it is not, or was chosen.
        codec: the segmenter and the vocabulary.
        info: what else is known of the model.
        reverse: model of the reverse direction, which chooses among the candidates of a search;
            None = the best hypothesis of the search is the translation.
    """

    def __init__(
        self,
        engine: Engine,
        codec: TextCodec,
        info: ModelInfo,
        reverse: Translator | None = None,
        load_torch: Callable[[], Engine] | None = None,
        obstacle: str = "",
    ) -> None:
        self.engine, self.codec, self.info, self.reverse = engine, codec, info, reverse
        self._load_torch, self.obstacle = load_torch, obstacle

    @classmethod
    def load(
        cls,
        run: Runs,
        device: str = "auto",
        precision: str = "fp32",
        workers: int | None = None,
        reverse: Runs | None = None,
        engine: str = "auto",
        quantization: str | None = None,
    ) -> Translator:
        """Load a model or the best model of a run, or several as an ensemble.

        Args:
            run: the ``decode`` keys of the first model apply. The vocabulary, the segmenter and
                the languages of all must be the same.
            device: auto, cpu, cuda or cuda:N.
            precision: number format of matrix products with weights: fp32, bf16, fp16, or auto =
                bf16 if the device has instructions for it, fp16 on a V100 or T4, else fp32.
                CTranslate2 computes in fp32; bf16 and fp16 are for torch.
            workers: batches that CTranslate2 searches at the same time on a CPU; None = one for
                each core.
            reverse: one or several of the reverse direction, to choose among candidates
                (``reverse_weight``).
            engine: library that searches: ctranslate2, torch, or auto. auto is ctranslate2 on a
                CPU, and torch on a GPU and for what CTranslate2 does not support: ensembles, some
                models, samples.
            quantization: fp32, or int8, which only CTranslate2 computes; None =
                ``decode.quantization`` of the recipe, where CTranslate2 searches.

        Raises:
            UserError: a folder is no model, a file of it is missing or damaged, the models do not
                match, an argument is not allowed, or the engine does not support what is asked for.
            MachineError: the device does not exist, or does not support the precision.
        """
        if engine not in ENGINES:
            names = ", ".join(ENGINES)
            raise UserError(f"engine: {engine!r} is not one of {names}", fix="choose one")
        if quantization not in (None, "fp32", "int8"):
            what = f"quantization: {quantization!r} is not one of fp32, int8"
            raise UserError(what, fix="choose one, or leave it out")
        if quantization == "int8":
            if engine == "torch":
                raise UserError("engine torch does not compute in int8", fix="leave one out")
            engine = "ctranslate2"
        runs = listed(run)
        if not runs:
            raise UserError("no model is given", fix="give one, or several as an ensemble")
        threads = check_workers(all_cores() if workers is None else workers)
        parse_device(device, lambda: sys.maxsize, "")  # a wrong name; the engines count the GPUs

        def read(models: Sequence[Model]) -> Translator:
            for model in models:
                model.require_translation()
            codec, info, back = codec_of(models[0]), info_of(models), None
            if reverse is not None:
                back = cls.load(reverse, device, precision, workers, None, engine, quantization)
            load_torch = functools.partial(_load_torch, models, codec, device, precision)
            if engine == "torch":
                return cls(load_torch(), codec, info, back)
            may_be_torch = engine == "auto" and all(model.has_weights for model in models)
            try:
                fast = _load_ctranslate2(models, codec, device, precision, threads, quantization)
            except (NmtError, OSError, RuntimeError) as error:
                if not may_be_torch:
                    raise
                obstacle = error.what if isinstance(error, NmtError) else str(error)
                return cls(load_torch(), codec, info, back, obstacle=obstacle)
            return cls(fast, codec, info, back, load_torch if may_be_torch else None)

        return read_models(runs, read)

    @functools.cached_property
    def torch_engine(self) -> Engine:
        """The engine for what ``engine`` does not support; itself if it supports everything."""
        return self.engine if self._load_torch is None else self._load_torch()

    def engine_for(self, options: SearchOptions) -> Engine:
        """Return the engine that searches first with these options."""
        return self.torch_engine if self.engine.lacks(options) else self.engine

    def require_supported(self, options: SearchOptions) -> None:
        """Raise a UserError if no engine of this translator supports what is asked for."""
        lacking = self.engine.lacks(options)
        if lacking and self._load_torch is None:
            raise UserError(
                f"engine ctranslate2 does not support {', '.join(lacking)}",
                fix="leave it out, or use --engine torch and a model with weights, in fp32",
            )

    def why_torch(self, options: SearchOptions) -> str:
        """Return why CTranslate2 does not search; empty if it does, or if torch was chosen."""
        if lacking := self.engine.lacks(options):
            return f"CTranslate2 does not support {', '.join(lacking)}"
        return self.obstacle

    @property
    def transformer(self) -> Transformer:
        """The model of a translator of one model, as torch computes it."""
        from nmt.decoding.torch_engine import TorchEngine
        from nmt.model.transformer import Transformer

        assert isinstance(self.torch_engine, TorchEngine)
        assert isinstance(self.torch_engine.model, Transformer)
        return self.torch_engine.model

    @property
    def unknown(self) -> UnknownPieces:
        """The counts of source pieces so far that the model does not know."""
        return self.codec.unknown

    def translate(self, lines: Iterable[str], **options: Any) -> list[str]:
        """Return the best translation of each line; blank lines stay blank.

        Args:
            lines: texts, each of one sentence or several.
            options: arguments of ``stream``, which lists the errors too.
        """
        require_list("translate([text])", lines=lines)
        return [best[0].text for best in self.stream(lines, **options)]

    def n_best(self, lines: Iterable[str], n: int, **options: Any) -> list[list[Translation]]:
        """Return the n best translations of each line, best first; ``beam`` is at least n.

        The arguments are otherwise those of ``translate``.
        """
        require_list(f"n_best([text], {n})", lines=lines)
        return list(self.stream(lines, n_best=n, **options))

    def stream(
        self,
        lines: Iterable[str],
        chunk_size: int | None = None,
        prefix: Iterable[str] | None = None,
        require: Iterable[Sequence[str]] | None = None,
        skip: int = 0,
        progress: Progress = ignore,
        ready: Callable[[], bool] = lambda: True,
        stop: Stop = ignore,
        checked: SearchOptions | None = None,
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
            skip: number of first lines whose translations are not yielded. Line numbers count them.
                Those that share a chunk with later lines are translated again.
            progress: called with the number of lines that a step of the search has finished, long
                before their chunk is complete.
            ready: returns whether the next line can be read without waiting. If not, the lines read
                so far are translated first.
            stop: called between two positions of a search of torch, and between batches; may raise
                an exception to stop.
            checked: options that ``check_options`` returned, instead of ``options``.
            options: fields of ``SearchOptions``.

        Raises:
            UserError: an option is not allowed; this is raised before the first line is read.
            TypeError: an argument is a text instead of a list of lines or phrases.
        """
        require_list("stream([text])", lines=lines)
        require_list("prefix=[text]", prefix=prefix)
        require_list("require=[[phrase]]", require=require)
        require_list("glossary=[(source, target)]", glossary=options.get("glossary"))
        given = {"prefix": prefix, "require": require}
        constraints = {name: values for name, values in given.items() if values is not None}
        checked = checked or self.check_options(options, constraints.keys())
        numbered, size = with_constraints(lines, constraints), chunk_size or CHUNK_SIZE
        chunks = read_chunks(numbered, size, lambda item: len(item[1]), ready, skip)
        return self._stream(chunks, checked, progress, stop)

    def _stream(
        self,
        chunks: Iterator[tuple[list[tuple[int, str, LineConstraints]], int]],
        options: SearchOptions,
        progress: Progress,
        stop: Stop,
    ) -> Iterator[list[Translation]]:
        codec = self.codec.for_tag(options.target_tag)
        glossary = codec.glossary(options.glossary, options.src) if options.glossary else None
        for chunk, skipped in chunks:
            report = without_first(progress, skipped)
            parts = [codec.encode_line(*item, options, glossary) for item in chunk]
            report(sum(not line_parts for line_parts in parts))  # blank lines
            inputs = list(itertools.chain(*parts))
            with self._finite_scores():
                results = self._search(inputs, codec, options, stop, report)
                if options.reranks:
                    results = self._rerank(inputs, results, codec, options, stop)
                remaining = iter(results)
                hypotheses = [[next(remaining) for _ in line_parts] for line_parts in parts]
                if options.align or options.token_scores:
                    from nmt.decoding.token_scores import add_scores_and_alignment

                    translations = add_scores_and_alignment(
                        self.engine_for(options), codec, parts, hypotheses, options, stop
                    )
                else:
                    translations = list(map(codec.decode_line, hypotheses, parts))
            yield from itertools.islice(translations, skipped, None)

    def _search(
        self,
        inputs: Sequence[SearchInput],
        codec: TextCodec,
        options: SearchOptions,
        stop: Stop,
        progress: Progress,
    ) -> list[list[Hypothesis]]:
        """Search; the hypotheses of each input are best first."""
        engine = self.engine_for(options)
        results = engine.search(inputs, options, stop, progress)
        for row, part in enumerate(inputs):
            if part.prefix.ids:
                results[row] = [replace(h, forced=part.prefix) for h in results[row]]
        if any(part.require for part in inputs):
            from nmt.decoding.required import search_again

            search_again(engine, inputs, results, codec, options, stop)
        return results

    def _rerank(
        self,
        inputs: Sequence[SearchInput],
        hypotheses: Sequence[list[Hypothesis]],
        codec: TextCodec,
        options: SearchOptions,
        stop: Stop,
    ) -> list[list[Hypothesis]]:
        """Choose the n best hypotheses of each input by the reverse model."""
        pairs = zip(hypotheses, inputs, strict=True)
        candidates = [codec.decode_line([ranks], [part]) for ranks, part in pairs]
        assert self.reverse is not None, "check_options requires it"
        backward = {"tgt_tag": options.reverse_tgt_tag, "align": False}
        score = functools.partial(
            self.reverse.score_ids, options=options.model_copy(update=backward), stop=stop
        )
        orders = rerank.by_reverse_model(
            inputs, candidates, codec, self.reverse.codec, options, score
        )
        return [
            [ranks[index] for index in order[: options.n_best]]
            for ranks, order in zip(hypotheses, orders, strict=True)
        ]

    def score(
        self, sources: Iterable[str], targets: Iterable[str], **options: Any
    ) -> list[Translation]:
        """Score given translations, with their log-probability, also by token.

        The values equal those of a search with ``token_scores`` that finds the same pieces. If both
        lines are blank, the log-probability is 0; if one is blank, it is minus infinity.

        Args:
            sources, targets: one sentence each.
            options: ``length_alpha``, ``length_penalty``, ``batch_tokens``, ``align``, ``tag``,
                ``tgt_tag``, ``src``.

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
        progress: Progress = ignore,
        ready: Callable[[], bool] = lambda: True,
        checked: SearchOptions | None = None,
        **options: Any,
    ) -> Iterator[Translation]:
        """Yield what ``score`` returns, in order, with bounded memory.

        The other arguments are those of ``stream``.
        """
        require_list("score([text], [translation])", sources=sources, targets=targets)
        chosen = checked or self.check_options(options, {"targets"})

        def characters(pair: tuple[int, tuple[str | None, str | None]]) -> int:
            return sum(len(side or "") for side in pair[1])

        pairs = enumerate(itertools.zip_longest(sources, targets), 1)
        chunks = read_chunks(pairs, chunk_size or CHUNK_SIZE, characters, ready, skip)

        def scored() -> Iterator[Translation]:
            from nmt.decoding.token_scores import score_pairs

            codec = self.codec.for_tag(chosen.target_tag)
            for chunk, skipped in chunks:
                report = without_first(progress, skipped)
                with self._finite_scores():
                    translations = score_pairs(self.engine, codec, chunk, chosen, report)
                yield from itertools.islice(translations, skipped, None)

        return scored()

    def score_ids(
        self, pairs: Sequence[EncodedPair], options: SearchOptions, stop: Stop
    ) -> list[float]:
        """Score each target given its source: log-probability / length penalty.

        Args:
            options: ``length_alpha``, ``length_penalty``, ``batch_tokens`` and ``tgt_tag``.
        """
        with self._finite_scores():
            scores = self.engine.score(pairs, options, stop, ignore)
        return [sum(s.log_probs) / options.penalty(len(s.log_probs)) for s in scores]

    def translate_ids(
        self,
        sources: Sequence[np.ndarray],
        stop: Stop = ignore,
        tgt: str | None = None,
        **options: Any,
    ) -> list[Translation]:
        """Return the best translation of encoded sentences; that of an empty one is blank.

        Args:
            sources: ids of each sentence, with its tag, without EOS.
            tgt: target language, for the tokenizer's rules; None = that of the translator.
        """
        checked = self.check_options(options)
        inputs = [SearchInput(ids, line) for line, ids in enumerate(sources, 1) if len(ids)]
        codec = self.codec if tgt is None else self.codec.for_target(tgt)
        translations = [BLANK] * len(sources)
        with self._finite_scores():
            results = self._search(inputs, codec, checked, stop, ignore)
        for sentence, hypotheses in zip(inputs, results, strict=True):
            translations[sentence.line - 1] = codec.decode_line([hypotheses], [sentence])[0]
        return translations

    def check_options(
        self, given: Mapping[str, Any] | SearchOptions, others: Set[str] = frozenset()
    ) -> SearchOptions:
        """Complete the options of one call for this model.

        A tag that all training data has is the default.

        Args:
            given, others: as ``search_options`` takes them, or the options that it returned.

        Raises:
            UserError: an option that is not allowed or that the engine does not support, options
                that exclude each other, a tag or a source language that the model does not have, or
                no target tag for a model that needs one.
        """
        if not isinstance(given, SearchOptions):
            reranks = self.reverse is not None and "targets" not in others
            given = search_options(given, others | {"reverse"} if reranks else others)
        trained = self.codec.directions
        options = given.with_defaults(self.info.decode).with_default_tags(trained.default_tags)
        self.codec.tag_ids(options.tag)  # an unknown one is an error
        self.codec.tag_ids(options.tgt_tag, "tgt")
        if options.tgt_tag is None and trained.tgt_tag_required:
            raise UserError(
                "all training data of this model had a target tag, and none is given; its target "
                f"tags are {', '.join(self.codec.vocab.tgt_tags)}",
                at="tgt_tag",
                fix="choose one with tgt_tag, --tgt-tag on the command line",
            )
        if trained.trained and options.src not in (None, *trained.sources):
            raise UserError(
                f"the model was not trained to translate {options.src}; its source languages are "
                f"{', '.join(trained.sources)}",
                at="src",
                fix="choose one of these, or leave src out",
            )
        if options.reranks:
            assert self.reverse is not None, "search_options requires it"
            reverse, codec = self.reverse.codec, self.codec.for_tag(options.target_tag)
            tags = reverse.directions.default_tags
            options = options.with_default_tags({f"reverse_{key}": tags[key] for key in tags})
            rerank.check_reverse(reverse, codec, options, self.reverse.info.source)
        self.require_supported(options)
        return options

    @contextlib.contextmanager
    def _finite_scores(self) -> Iterator[None]:
        """Turn NonFiniteScores into an error that names the line and the model."""
        try:
            yield
        except NonFiniteScores as error:
            source = self.info.source
            fix = "train with a lower learning rate, or clip gradients"
            if source is not None:
                fix = "make a model of an earlier checkpoint: nmt-average RUN --checkpoints NAME"
                if self.engine.precision != "fp32":
                    fix += ", or use --precision fp32"
            raise (Diverged if source is None else RunError)(
                f"the scores of line {error.number} are not finite: the weights hold NaN or are "
                "too large",
                at=source,
                fix=fix,
            ) from error


def _load_torch(models: Sequence[Model], codec: TextCodec, device: str, precision: str) -> Engine:
    for model in models:  # before torch is imported, which takes seconds
        model.entry(WEIGHTS)
        if model.is_replaced():
            what = "a run has replaced this model since it was loaded"
            raise UserError(what, at=str(model.path), fix="load it again")
    from nmt.decoding.torch_engine import load_torch_engine

    return load_torch_engine(models, codec, device, precision)


def _load_ctranslate2(
    models: Sequence[Model],
    codec: TextCodec,
    device: str,
    precision: str,
    workers: int,
    quantization: str | None,
) -> Engine:
    from nmt.decoding.ctranslate2.folder import load_ctranslate2_engine
    from nmt.decoding.ctranslate2.spec import require_ctranslate2

    count, what = require_ctranslate2().get_cuda_device_count, ""
    if len(models) > 1:
        what = "CTranslate2 does not support ensembles"
    elif precision not in ("fp32", "auto"):
        what = f"CTranslate2 does not compute in {precision}"
    elif models[0].has_weights and parse_device(device, count, "CTranslate2")[0] == "cuda":
        what = "torch is faster on a GPU"
    if what:
        raise UserError(what, fix="choose engine torch, and models with weights for torch")
    return load_ctranslate2_engine(models[0], codec, device, workers, quantization)
