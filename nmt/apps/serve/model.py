"""A model that is served: its Translator behind a queue."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from nmt.apps.documents.lines import Phrases
from nmt.apps.documents.model import source_words, target_words
from nmt.apps.serve.batcher import Batcher
from nmt.apps.serve.limits import Limits
from nmt.config.entries import Direction
from nmt.data.lines import is_blank
from nmt.decoding.codec import Translation
from nmt.decoding.options import SearchOptions
from nmt.decoding.translator import Translator
from nmt.text.languages import language_name, script_of, script_share

LONG = 100  # so a line of 2,000 characters is a batch of its own, and one of 200 is as before


class ServedModel:
    """A Translator that several requests use at the same time.

    Args:
        translator: only the thread of the queue uses it.
        observe: called with the number of lines of each batch.
    """

    def __init__(
        self,
        name: str,
        translator: Translator,
        limits: Limits,
        observe: Callable[[int], None] = lambda lines: None,
    ) -> None:
        self.name, self.translator = name, translator
        self.batcher = Batcher(self.translate, limits.batch, limits.queue, observe)

    def description(self) -> dict[str, Any]:
        """Return the description of the model for clients."""
        codec = self.translator.codec
        return {
            "name": self.name,
            "src": codec.src,
            "tgt": codec.tgt,
            "src_name": language_name(codec.src),
            "tgt_name": language_name(codec.tgt),
            "engine": self.translator.engine.name,
            "why_torch": self.translator.obstacle,
            "device": str(self.translator.engine.device),
            "precision": self.translator.engine.precision,
            "beam": self.translator.info.decode.beam,
            "tags": codec.vocab.tags,
            "tgt_tags": codec.vocab.tgt_tags,
            "tgt_tag_required": codec.directions.tgt_tag_required,
            "tgt_names": {
                tag: language_name(codec.for_tag(tag).tgt) for tag in ("", *codec.vocab.tgt_tags)
            },
        }

    def directions(self) -> list[Direction]:
        """Return one direction for each pair of languages that the model translates."""
        vocab, trained = self.translator.codec.vocab, self.translator.codec.directions
        tagged = trained.always_tagged or trained.tgt_tag_required
        tags: list[dict[str, str]] = [] if tagged else [{}]
        tags += [{"tgt_tag": tag} for tag in vocab.tgt_tags] + [{"tag": tag} for tag in vocab.tags]
        targets: dict[str, dict[str, str]] = {}
        for options in tags:
            _, target = self.translator.codec.langs(self.translator.check_options(options))
            targets.setdefault(target, options)
        return [
            Direction(source, target, **options)
            for source in trained.sources
            for target, options in targets.items()
            if source != target
        ]

    def submit(
        self, lines: Sequence[str], options: SearchOptions, require: Phrases = None
    ) -> Future[list[Any]]:
        """Queue lines; return the future of their results, as ``translate`` returns them.

        Args:
            options: that ``Translator.check_options`` returned.
            require: the phrases of each line; None = none.

        Raises:
            Refused: the queue is full.
        """
        work = self.work(lines, options)
        # pieces and attention of a long line take time that nothing can interrupt
        costs = [cost + len(line) ** 2 / LONG for cost, line in zip(work, lines, strict=True)]
        # a sample is a function of its line number, and phrases are those of numbered lines
        together = not options.sample and require is None
        return self.batcher.submit(lines, costs, (options, require), together)

    def work(self, lines: Sequence[str], options: SearchOptions) -> list[int]:
        """Return the cost of each line: hypotheses x the most characters of a translation.

        A translation has at most as many pieces as the source, and ``max_len_offset`` more. Scores
        and alignment need a second pass over the translations. A blank line costs nothing.
        """
        scored = options.n_best if options.token_scores or options.align else 0
        hypotheses = options.beam + scored
        return [
            0 if is_blank(line) else (len(line) + options.max_len_offset) * hypotheses
            for line in lines
        ]

    def translate(
        self,
        lines: list[str],
        how: tuple[SearchOptions, Phrases],
        first: int,
        stop: Callable[[], None],
    ) -> list[dict[str, Any]]:
        """Return the result of each line as JSON values.

        Args:
            how: the options, and the phrases of each line of the request.
            first: number of lines of the request before these.
            stop: called between two steps of the search.
        """
        options, phrases = how
        # a sample is a function of the number of its line in the request
        numbered = [*[""] * first, *lines]
        require = phrases and [*[()] * first, *phrases[first : first + len(lines)]]
        results = self.translator.stream(
            numbered, skip=first, stop=stop, require=require, checked=options
        )
        return [self._result(*pair, options) for pair in zip(lines, results, strict=True)]

    def _result(
        self, line: str, translations: list[Translation], options: SearchOptions
    ) -> dict[str, Any]:
        words = options.align or options.token_scores
        codec, src = self.translator.codec, options.src
        sources = source_words(codec, line, options.split, src) if words else []
        languages = [src] if src else codec.directions.sources
        scripts = [name for name in map(script_of, languages) if name is not None]
        other_script = 0.0  # share of letters outside the scripts of all source languages
        if len(scripts) == len(languages):  # all are known
            other_script = 1 - script_share(line, " ".join(scripts))
        results = []
        for translation in translations:
            targets = target_words(codec, translation) if words else []
            results.append(
                {
                    **vars(translation),  # so a field of Translation is one of the API
                    "score": _finite(translation.score),
                    "log_prob": _finite(translation.log_prob),
                    "words": [word._asdict() for word in targets],
                }
            )
        return {
            "unknown": codec.unknown_share(codec.source_pieces(line, src)),
            "other_script": other_script,
            "source_words": [word._asdict() for word in sources],
            "translations": results,
        }


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
