"""The task of translation: pairs of sentences, an encoder-decoder, beam search on dev and test."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from nmt.config.model import model_config
from nmt.config.recipe import Recipe
from nmt.data.batches import Batch, buckets_for, collate, make_batches
from nmt.data.epochs import Epochs, TextChanges
from nmt.data.prepare import EvalSet, augmenter_of
from nmt.data.vocab import UNK
from nmt.decoding.codec import TextCodec
from nmt.decoding.engine import ModelInfo
from nmt.decoding.torch_engine import TorchEngine
from nmt.decoding.translator import Translator
from nmt.decoding.worker_pool import all_cores
from nmt.model.transformer import Transformer
from nmt.run.results import format_number
from nmt.runtime.files import write_atomic
from nmt.scoring.language import language_of_text
from nmt.scoring.metrics import MODEL_WORDS, RESAMPLES, score, tokenized_bleu
from nmt.scoring.systems import words_file
from nmt.training.evaluation import Evaluation, MeanEvaluation, Stopped, score_line
from nmt.training.task import Task

EXAMPLES = 5


class Translation(Task[Transformer, Batch]):
    """Translate sentences: the loss is over target tokens, the scores are of beam search."""

    unit = "pair"
    predicted = "tgt"
    _last_translator: Translator | None = None

    @classmethod
    def empty_model(
        cls, recipe: Recipe, vocab_size: int, allowed: Tensor | None = None
    ) -> Transformer:
        """Return a Transformer."""
        return Transformer(model_config(recipe.model), vocab_size, allowed, initialize=False)

    @property
    def size(self) -> int:
        """Return the number of training pairs."""
        return len(self.prepared.train)

    @functools.cached_property
    def _epochs(self) -> Epochs:
        """The training pairs of each epoch; noise must not make a batch larger than allowed."""
        prepared, data = self.prepared, self.recipe.data
        longest, changes = min(data.max_pieces, data.batch_tokens - 1), None  # EOS
        if augmenter := augmenter_of(self.recipe):
            changes = TextChanges(
                augmenter,
                prepared.train,
                prepared.segmenter,
                prepared.vocab,
                [(entry.langs(self.recipe), entry.tags(self.recipe)) for entry in data.train],
                longest,
            )
        return Epochs(
            prepared.train,
            prepared.vocab,
            prepared.mixture,
            prepared.segmenter.noise(self.recipe.segment),
            self.recipe.seed,
            longest=longest,
            changes=changes,
        )

    def plan(self, epoch: int) -> list[np.ndarray]:
        """Return the batches of an epoch as indices of its pairs."""
        data, pairs = self.recipe.data, self._epochs[epoch]
        return make_batches(
            pairs.src_len,
            pairs.tgt_len,
            data.batch_tokens,
            self.recipe.seed,
            epoch,
            data.rebatch,
            pairs.rows,
        )

    def tokens(self, epoch: int, examples: np.ndarray) -> int:
        """Return the target tokens of a batch, including EOS."""
        return int(self._epochs[epoch].tgt_len[examples].sum()) + len(examples)

    def make_batch(self, epoch: int, examples: np.ndarray, pad: bool) -> Batch:
        """Return a batch of pairs on the device."""
        pairs = self._epochs[epoch]
        bucket = None
        if pad:
            src_len, tgt_len = pairs.src_len[examples] + 1, pairs.tgt_len[examples] + 1
            buckets = buckets_for(self.device.type)
            bucket = buckets.fit(src_len, tgt_len, self.recipe.data.batch_tokens)
        batch = collate(pairs.select(examples), examples, bucket)
        batch = replace(batch, rows=pairs.rows_of(examples))
        return batch.pack(self.device) if pad else batch.to(self.device)

    @staticmethod
    def targets(batch: Batch) -> Tensor:
        """Return the target tokens."""
        return batch.tgt_out

    def evaluate_set(
        self,
        model: Transformer,
        held_out: EvalSet,
        stop_requested: Callable[[], bool],
        intervals: bool,
    ) -> TranslationEvaluation:
        """Return perplexities, and the scores of beam search, of the model on a set."""

        def check() -> None:
            if stop_requested():
                raise Stopped

        recipe, corpus, tgt = self.recipe, held_out.corpus, held_out.langs[1]
        translator = self._translator(model)
        segmenter, moses = translator.codec.segmenter, translator.codec.segmenter.moses
        rows = np.flatnonzero((corpus.src_len > 0) & (corpus.tgt_len > 0))  # no blank line
        plan = make_batches(
            corpus.src_len[rows], corpus.tgt_len[rows], recipe.data.batch_tokens, seed=0, epoch=0
        )
        batches = (collate(corpus, rows[batch_rows]) for batch_rows in plan)
        sources = [corpus.src(row) for row in range(len(corpus))]
        with self.autocast():
            losses = self.held_out_loss(model, batches, stop_requested)
            hypotheses = translator.translate_ids(sources, check, tgt, tgt_tag=held_out.tgt_tag)
        texts = [h.text for h in hypotheses]
        words = [
            moses.words_to_score(h.text, segmenter.decode_tokenized(h.pieces, tgt), tgt)
            for h in hypotheses
        ]
        all_lines = [held_out.ref_lines, *held_out.other_refs]
        references, *others = (
            [moses.detokenize_reference(line, tgt) for line in lines] for lines in all_lines
        )
        ref_words, *other_words = (
            [moses.tokenize_reference(line, tgt) for line in lines] for lines in all_lines
        )
        scored = [moses.text_to_score(*pair, tgt) for pair in zip(texts, words, strict=True)]
        resamples = RESAMPLES if intervals else 0
        scored_as = language_of_text(tgt, references)
        scores = [
            *score(scored, references, recipe.score.metrics, scored_as, resamples, others),
            tokenized_bleu(words, ref_words, MODEL_WORDS, other_words),
        ]
        unk = translator.codec.vocab.pieces([UNK])[0]
        return TranslationEvaluation(
            scores,
            losses.ppl,
            losses.smoothed_ppl,
            texts,
            words,
            cut_off=sum(not h.finished for h in hypotheses),
            unknown=sum(unk in h.pieces for h in hypotheses),
        )

    def describe(self) -> str:
        """Return the language pairs: ``gl-en``, or ``gl,es-en`` of several."""
        pairs = [entry.langs(self.recipe) for entry in self.recipe.data.train]
        return "-".join(",".join(dict.fromkeys(side)) for side in zip(*pairs, strict=True))

    def results(self, run: Path, test: Evaluation | None) -> str:
        """Return test scores with signatures, example translations and the commands that use it."""
        lines = []
        results = test.sets if isinstance(test, MeanEvaluation) else {"": test}
        if isinstance(test, MeanEvaluation):
            lines += ["", "test scores, mean", *map(score_line, test.scores)]
        for held_out, result in zip(self.prepared.test or [], results.values(), strict=False):
            assert isinstance(result, TranslationEvaluation), "what evaluate returns"
            src, tgt = held_out.langs
            title = f"test scores {held_out.name.partition('.')[2]}".rstrip()
            lines += ["", title, *map(score_line, result.scores), "", "examples"]
            step = max(1, len(result.texts) // EXAMPLES)
            for row in range(0, len(result.texts), step)[:EXAMPLES]:
                lines.append(f"  {src:<4} {held_out.src_lines[row]}")
                lines.append(f"  hyp  {result.texts[row]}")
                lines.append(f"  {tgt:<4} {held_out.ref_lines[row]}\n")
        folder, source = shlex.quote(str(run)), next(iter(self.prepared.dev[0].src_lines), "")
        entry = self.recipe.data.dev[0]
        options = f" --tag {shlex.quote(entry.tag)}" if entry.tag else ""
        options += f" --tgt-tag {shlex.quote(entry.tgt_tag)}" if entry.tgt_tag else ""
        if lang := self.recipe.src_option(entry):
            options += f" --src-lang {lang}"
        lines.append(f"run folder: {folder}")
        lines.append(f"translate:  echo {shlex.quote(source)} | nmt-translate {folder}{options}")
        lines.append(f"browser:    nmt-serve {folder}")
        return "\n".join(lines)

    def _translator(self, model: Transformer) -> Translator:
        """Return a translator of this model; keep it, because it learns which batch sizes fit."""
        last = self._last_translator
        if last is None or last.transformer is not model:
            recipe, prepared = self.recipe, self.prepared
            codec = TextCodec(prepared.segmenter, prepared.vocab, recipe.src, recipe.tgt)
            engine = TorchEngine(model, codec, self.device, workers=all_cores())
            last = self._last_translator = Translator(engine, codec, ModelInfo(recipe.decode))
        return last


@dataclass(frozen=True)
class TranslationEvaluation(Evaluation):
    """The results of a translation model on a dev or test set; tokenized BLEU is its last score.

    Attributes:
        ppl: exp of the mean cross-entropy per target token, EOS included.
        smoothed_ppl: exp of the mean label-smoothed loss (T table 8).
        texts: hypotheses as plain text, one per line of the set.
        words: the same hypotheses as tokenized text.
        cut_off: hypotheses that the length limit ended, not EOS.
        unknown: hypotheses with UNK, which only decode.allow_unk allows.
    """

    ppl: float
    smoothed_ppl: float
    texts: list[str]
    words: list[str]
    cut_off: int
    unknown: int

    def write(self, hyp_file: Path) -> None:
        """Write the hypotheses and, next to them, their tokenized form, for nmt-score."""
        write_atomic(hyp_file, "".join(text + "\n" for text in self.texts))
        write_atomic(words_file(hyp_file), "".join(words + "\n" for words in self.words))

    def record(self) -> dict[str, Any]:
        """Return perplexities, scores and counts of outputs for metrics.jsonl."""
        return {
            "ppl": self.ppl,
            "smoothed_ppl": self.smoothed_ppl,
            **{s.name: s.value for s in self.scores},
            "cut_off": self.cut_off,
            "unknown": self.unknown,
        }

    def line(self) -> str:
        """Return scores and perplexities as a part of a log line."""
        scores = "  ".join(f"{s.name} {s.value:.2f}" for s in self.scores)
        smoothed = format_number(self.smoothed_ppl)
        return f"{scores}  ppl {format_number(self.ppl)} ({smoothed} smoothed)"

    def share(self, name: str) -> float:
        """Return a score as a share of 50, which few models exceed; 1 / perplexity of ppl."""
        return 1 / self.ppl if name == "ppl" else self.value(name) / 50
