"""The task of translation: pairs of sentences, an encoder-decoder, beam search on dev and test."""

from __future__ import annotations

import contextlib
import functools
import shlex
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from torch import Tensor

from nmt.config.model import model_config
from nmt.config.recipe import Recipe
from nmt.data.batches import Batch, buckets_for, collate, make_batches
from nmt.data.encoded import EpochPairs
from nmt.data.prepare import EvalSet
from nmt.data.vocab import UNK
from nmt.decoding.codec import TextCodec
from nmt.decoding.ctranslate2.engine import from_model
from nmt.decoding.engine import Engine, ModelInfo, all_cores
from nmt.decoding.torch_engine import TorchEngine
from nmt.decoding.translator import Translator
from nmt.errors import UserError
from nmt.model.transformer import Transformer
from nmt.scoring.language import language_of_text
from nmt.scoring.metrics import MODEL_WORDS, RESAMPLES, score, tokenized_bleu
from nmt.scoring.systems import references
from nmt.training.evaluation import Evaluation, Stopped, loss_text
from nmt.training.task import Task

EXAMPLES = 5


class Translation(Task[Transformer, Batch]):
    """Translate sentences: the loss is over target tokens, the scores are of beam search."""

    unit = "pair"
    predicted = "tgt"
    _last_engine: TorchEngine | None = None

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
    def pairs_of(self) -> Callable[[int], EpochPairs]:
        """Return the function from the number of an epoch to its pairs; an update may need two."""
        train, mixture = self.prepared.train, self.prepared.mixture
        seed, batch_tokens = self.recipe.seed, self.recipe.data.batch_tokens

        @functools.lru_cache(2)
        def draw(epoch: int) -> EpochPairs:
            drawn = None if mixture is None else mixture.rows(seed, epoch)
            return EpochPairs(train, drawn, seed, epoch, batch_tokens)

        return draw

    def plan(self, epoch: int) -> list[np.ndarray]:
        """Return the batches of an epoch as indices of its pairs."""
        data, pairs = self.recipe.data, self.pairs_of(epoch)
        return make_batches(
            pairs.src_len,
            pairs.tgt_len,
            data.batch_tokens,
            self.recipe.seed,
            epoch,
            data.rebatch,
            pairs.pairs,
        )

    def tokens(self, epoch: int, examples: np.ndarray) -> int:
        """Return the target tokens of a batch, including EOS."""
        return int(self.pairs_of(epoch).tgt_len[examples].sum()) + len(examples)

    def make_batch(self, epoch: int, examples: np.ndarray, pad: bool) -> Batch:
        """Return a batch of pairs on the device."""
        pairs = self.pairs_of(epoch)
        bucket = None
        if pad:
            src_len, tgt_len = pairs.src_len[examples] + 1, pairs.tgt_len[examples] + 1
            buckets = buckets_for(self.device.type)
            bucket = buckets.fit(src_len, tgt_len, self.recipe.data.batch_tokens)
        # rows: numbers in the corpus instead of those in the epoch
        batch = replace(collate(pairs, examples, bucket), rows=pairs.pairs_of(examples))
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
    ) -> Evaluation:
        """Return perplexities (T table 8) and the scores of beam search of the model on a set."""

        def check() -> None:
            if stop_requested():
                raise Stopped

        recipe, corpus, tgt = self.recipe, held_out.corpus, held_out.direction.tgt
        translator = self._translator(model)
        segmenter, moses = translator.codec.segmenter, translator.codec.segmenter.moses
        rows = np.flatnonzero((corpus.src_len > 0) & (corpus.tgt_len > 0))  # no blank line
        plan = make_batches(
            corpus.src_len[rows], corpus.tgt_len[rows], recipe.data.batch_tokens, seed=0, epoch=0
        )
        batches = (collate(corpus, rows[batch_rows]) for batch_rows in plan)
        sources = [corpus.src(row) for row in range(len(corpus))]
        with self.autocast():
            logged = self.held_out_loss(model, batches, stop_requested).logged
            tag = held_out.direction.tgt_tag
            hypotheses = translator.translate_ids(sources, check, tgt, tgt_tag=tag)
        texts = [h.text for h in hypotheses]
        words = [
            moses.words_to_score(h.text, segmenter.decode_tokenized(h.pieces, tgt), tgt)
            for h in hypotheses
        ]
        refs = references(moses, [held_out.ref_lines, *held_out.other_refs], tgt)
        (ref_texts, *others), (ref_words, *other_words) = refs
        scored = [moses.text_to_score(*pair, tgt) for pair in zip(texts, words, strict=True)]
        resamples = RESAMPLES if intervals else 0
        scored_as = language_of_text(tgt, ref_texts)
        scores = [
            *score(scored, ref_texts, recipe.score.metrics, scored_as, resamples, others),
            tokenized_bleu(
                words, ref_words, MODEL_WORDS, other_words, "" if moses.tokenized else scored_as
            ),
        ]
        unk = translator.codec.vocab.pieces([UNK])[0]
        named = {s.name: s.value for s in scores}
        values = {
            "ppl": logged["ppl"],  # in front of the smoothed one
            **logged,
            **named,
            "cut_off": sum(not h.finished for h in hypotheses),  # by the length limit, not by EOS
            "unknown": sum(unk in h.pieces for h in hypotheses),  # only with decode.allow_unk
        }
        shown = [f"{name} {value:.2f}" for name, value in named.items()]
        line = "  ".join([*shown, loss_text(logged)])
        # few models exceed a score of 50
        bars = {"ppl": 1 / logged["ppl"]} | {name: value / 50 for name, value in named.items()}
        return Evaluation(scores, values, line, bars, texts, words)

    def describe(self) -> str:
        """Return the language pairs: ``gl-en``, or ``gl,es-en`` of several."""
        pairs = [entry.langs(self.recipe) for entry in self.recipe.data.train]
        return "-".join(",".join(dict.fromkeys(side)) for side in zip(*pairs, strict=True))

    def examples(self, held_out: EvalSet, result: Evaluation) -> list[str]:
        """Return some sources with hypothesis and reference."""
        src, tgt = held_out.direction.langs
        lines = ["examples"]
        step = max(1, len(result.texts) // EXAMPLES)
        for row in range(0, len(result.texts), step)[:EXAMPLES]:
            lines.append(f"  {src:<4} {held_out.src_lines[row]}")
            lines.append(f"  hyp  {result.texts[row]}")
            lines.append(f"  {tgt:<4} {held_out.ref_lines[row]}\n")
        return lines

    def commands(self, folder: str) -> list[str]:
        """Return the commands that translate, and that serve a page."""
        source, entry = next(iter(self.prepared.dev[0].src_lines), ""), self.recipe.data.dev[0]
        flags = {"tag": "--tag", "tgt_tag": "--tgt-tag", "src": "--src-lang"}
        given = self.recipe.options_for(entry)
        options = "".join(f" {flags[name]} {shlex.quote(value)}" for name, value in given.items())
        return [
            f"translate:  echo {shlex.quote(source)} | nmt-translate {folder}{options}",
            f"browser:    nmt-serve {folder}",
        ]

    def _translator(self, model: Transformer) -> Translator:
        """Return a translator of this model: with CTranslate2 on a CPU, where it is possible."""
        recipe, prepared = self.recipe, self.prepared
        codec = TextCodec(prepared.segmenter, prepared.vocab, recipe.directions)
        engine: Engine = self._torch_engine(model, codec)
        if self.device.type == "cpu":
            with contextlib.suppress(UserError):
                engine = from_model(model, codec, recipe.decode, all_cores())
        info = ModelInfo(recipe.decode)
        return Translator(engine, codec, info, load_torch=lambda: self._torch_engine(model, codec))

    def _torch_engine(self, model: Transformer, codec: TextCodec) -> TorchEngine:
        """Return the engine of this model; keep it, because it learns which batch sizes fit."""
        last = self._last_engine
        if last is None or last.model is not model:
            last = self._last_engine = TorchEngine(model, codec, self.device)
        return last
