"""The task of translation: pairs of sentences, an encoder-decoder, beam search on dev and test."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from torch import Tensor

from nmt.config.model import model_config
from nmt.config.recipe import Recipe
from nmt.data.batches import Batch, buckets_for, collate, make_batches
from nmt.data.epochs import Epochs
from nmt.data.prepare import EvalSet
from nmt.decoding.codec import TextCodec
from nmt.decoding.engine import ModelInfo
from nmt.decoding.torch_engine import TorchEngine
from nmt.decoding.translator import Translator
from nmt.decoding.worker_pool import all_cores
from nmt.model.transformer import Transformer
from nmt.training.loss import LossSums, label_smoothed_loss
from nmt.training.task import Evaluation, MeanEvaluation, Task, score_line
from nmt.training.validation import TranslationEvaluation, evaluate

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
        return Epochs(
            prepared.train,
            prepared.vocab,
            prepared.mixture,
            prepared.segmenter.noise(self.recipe.segment),
            self.recipe.seed,
            longest=min(data.max_pieces, data.batch_tokens - 1),  # EOS
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

    def loss(self, model: Transformer, batch: Batch) -> LossSums:
        """Return the sums over the target tokens of a batch."""
        with self.autocast():
            logits = model(*batch.inputs)
        return label_smoothed_loss(
            logits,
            batch.tgt_out,
            model.allowed,
            self.recipe.optim.label_smoothing,
            batch.weights,
        )

    def evaluate_set(
        self, model: Transformer, one: EvalSet, stop_requested: Callable[[], bool], intervals: bool
    ) -> TranslationEvaluation:
        """Return perplexities, translations and scores of the model on a set."""
        with self.autocast():
            return evaluate(self._translator(model), one, self.recipe, stop_requested, intervals)

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
        for split, result in zip(self.prepared.test or [], results.values(), strict=False):
            assert isinstance(result, TranslationEvaluation), "what evaluate returns"
            src, tgt = split.langs
            title = f"test scores {split.name.partition('.')[2]}".rstrip()
            lines += ["", title, *map(score_line, result.scores), "", "examples"]
            step = max(1, len(result.texts) // EXAMPLES)
            for row in range(0, len(result.texts), step)[:EXAMPLES]:
                lines.append(f"  {src:<4} {split.src_lines[row]}")
                lines.append(f"  hyp  {result.texts[row]}")
                lines.append(f"  {tgt:<4} {split.ref_lines[row]}\n")
        folder, source = shlex.quote(str(run)), next(iter(self.prepared.dev[0].src_lines), "")
        entry = self.recipe.data.dev[0]
        options = f" --tag {shlex.quote(entry.tag)}" if entry.tag else ""
        if lang := self.recipe.src_option(entry):
            options += f" --src-lang {lang}"
        lines.append(f"run folder: {folder}")
        lines.append(f"translate:  echo {shlex.quote(source)} | nmt-translate {folder}{options}")
        lines.append(f"browser:    nmt-serve {folder}")
        return "\n".join(lines)

    def _translator(self, model: Transformer) -> Translator:
        """Return a translator of this model; keep it, because it learns which batch sizes fit."""
        found = self._last_translator
        if found is None or found.transformer is not model:
            recipe, prepared = self.recipe, self.prepared
            codec = TextCodec(prepared.segmenter, prepared.vocab, recipe.src, recipe.tgt)
            engine = TorchEngine(model, codec, self.device, workers=all_cores())
            found = self._last_translator = Translator(engine, codec, ModelInfo(recipe.decode))
        return found
