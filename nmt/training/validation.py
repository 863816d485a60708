"""Evaluate a translation model on a dev or test set: perplexities, translations and scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nmt.config.recipe import Recipe
from nmt.data.batches import collate, make_batches
from nmt.data.encoded import EncodedCorpus
from nmt.data.prepare import EvalSet
from nmt.data.vocab import UNK
from nmt.decoding.translator import Translator
from nmt.model.transformer import Transformer
from nmt.run.results import format_number
from nmt.runtime.files import write_atomic
from nmt.scoring.language import language_of_text
from nmt.scoring.metrics import MODEL_WORDS, RESAMPLES, score, tokenized_bleu
from nmt.scoring.systems import words_file
from nmt.training.loss import label_smoothed_loss, perplexity
from nmt.training.task import Evaluation, Stopped


@dataclass(frozen=True)
class TranslationEvaluation(Evaluation):
    """The results of a translation model on one split; tokenized BLEU is its last score.

    Attributes:
        ppl: exp of the mean cross-entropy per target token, EOS included.
        smoothed_ppl: exp of the mean label-smoothed loss (T table 8).
        texts: hypotheses as plain text, one per line of the split.
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


def evaluate(
    translator: Translator,
    split: EvalSet,
    recipe: Recipe,
    stop_requested: Callable[[], bool],
    intervals: bool = False,
) -> TranslationEvaluation:
    """Return the teacher-forced loss and the scores of beam search, without dropout.

    Args:
        translator: of the model in training.
        stop_requested: called between batches.
        intervals: add 95 % bootstrap intervals to the sacreBLEU scores.

    Raises:
        Stopped: a stop was requested.
    """

    def check() -> None:
        if stop_requested():
            raise Stopped

    tgt, model = split.langs[1], translator.transformer.eval()
    nll, smoothed, tokens = _losses(model, split.corpus, recipe, check)
    sources = [split.corpus.src(row) for row in range(len(split.corpus))]
    segmenter, moses = translator.codec.segmenter, translator.codec.segmenter.moses
    hypotheses = translator.translate_ids(sources, check, tgt)
    texts = [h.text for h in hypotheses]
    words = [
        moses.words_to_score(h.text, segmenter.decode_tokenized(h.pieces, tgt), tgt)
        for h in hypotheses
    ]
    all_lines = [split.ref_lines, *split.other_refs]
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
        perplexity(nll / tokens),
        perplexity(smoothed / tokens),
        texts,
        words,
        cut_off=sum(not h.finished for h in hypotheses),
        unknown=sum(unk in h.pieces for h in hypotheses),
    )


@torch.no_grad()
def _losses(
    model: Transformer,
    corpus: EncodedCorpus,
    recipe: Recipe,
    check: Callable[[], None],
) -> tuple[float, float, int]:
    """Return the sums of cross-entropy and smoothed loss over non-blank pairs, and their tokens.

    Args:
        check: called before each batch; an exception ends the evaluation.
    """
    rows = np.flatnonzero((corpus.src_len > 0) & (corpus.tgt_len > 0))
    nll = smoothed = 0.0
    tokens = 0
    for batch_rows in make_batches(
        corpus.src_len[rows], corpus.tgt_len[rows], recipe.data.batch_tokens, seed=0, epoch=0
    ):
        check()
        batch = collate(corpus, rows[batch_rows]).to(model.allowed.device)
        # a type that the training targets lack is UNK to the model
        targets = batch.tgt_out.masked_fill(~model.allowed[batch.tgt_out], UNK)
        sums = label_smoothed_loss(
            model(*batch.inputs), targets, model.allowed, recipe.optim.label_smoothing
        )
        nll += float(sums.nll)
        smoothed += float(sums.smoothed)
        tokens += sums.tokens
    return nll, smoothed, tokens
