"""The tasks on monolingual text: causal and masked language models."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nmt.config.model import model_config
from nmt.config.recipe import Recipe
from nmt.data.lines import count_words
from nmt.data.lm import (
    CausalText,
    MaskedText,
    PackedText,
    TextBatch,
    TokenStream,
)
from nmt.data.prepare import EvalSet, Prepared
from nmt.data.vocab import MASK, SPECIALS
from nmt.errors import UserError
from nmt.model.language_model import LanguageModel
from nmt.runtime.words import quantity
from nmt.scoring.results import Score
from nmt.store.results import format_number
from nmt.training.evaluation import Evaluation, HeldOutLoss, loss_text
from nmt.training.loss import perplexity
from nmt.training.task import Task

HELD_OUT_SEED = 0  # of the masks on dev and test: the same in all runs


class LanguageModelTask(Task[LanguageModel, TextBatch]):
    """A task on blocks of text: the loss is over its predictions, the score is the perplexity.

    Raises:
        UserError: a split has nothing to predict.
    """

    unit = "block"
    predicted = "src"
    causal: bool

    @classmethod
    def empty_model(
        cls, recipe: Recipe, vocab_size: int, allowed: Tensor | None = None
    ) -> LanguageModel:
        """Return a language model."""
        return LanguageModel(
            model_config(recipe.model), vocab_size, cls.causal, allowed, initialize=False
        )

    @staticmethod
    def targets(batch: TextBatch) -> Tensor:
        """Return the predictions of a batch."""
        return batch.targets

    def __init__(
        self, recipe: Recipe, prepared: Prepared, device: torch.device, precision: str
    ) -> None:
        super().__init__(recipe, prepared, device, precision)
        self.train = self.pack(TokenStream.of(prepared.train), recipe.seed)
        self.held_out = {
            held_out.name: self.pack(TokenStream.of(held_out.corpus), HELD_OUT_SEED)
            for held_out in prepared.held_out
        }
        _require_predictions({"train": self.train, **self.held_out}, recipe)

    @abstractmethod
    def pack(self, stream: TokenStream, seed: int) -> PackedText:
        """Return the blocks of a text.

        Args:
            seed: of the masks.
        """

    def scores(self, losses: HeldOutLoss, text: EvalSet) -> list[Score]:
        """Return the perplexity per prediction, with its signature."""
        return [Score("ppl", losses.logged["ppl"], self.signature(losses))]

    def signature(self, losses: HeldOutLoss) -> str:
        """Return the signature: perplexities compare only if theirs are equal."""
        settings = [f"task:{self.recipe.task}", f"block:{self.recipe.data.block}"]
        settings += [f"predictions:{losses.tokens}", f"unk:{losses.unknown}"]
        return "|".join(settings)

    @property
    def size(self) -> int:
        """Return the number of training blocks."""
        return len(self.train)

    def plan(self, epoch: int) -> list[np.ndarray]:
        """Return the batches of an epoch as its examples."""
        mixture = self.prepared.mixture
        weights = None if mixture is None else mixture.weights
        return self.train.batches(self.recipe.data.batch_tokens, self.recipe.seed, epoch, weights)

    def tokens(self, epoch: int, examples: np.ndarray) -> int:
        """Return the predictions of a batch."""
        return int(self.train.targets[self.train.rows_of(examples)].sum())

    def make_batch(self, epoch: int, examples: np.ndarray, pad: bool) -> TextBatch:
        """Return a batch of blocks on the device."""
        batch_tokens = self.recipe.data.batch_tokens if pad else 0
        batch = self.train.collate(examples, epoch, batch_tokens)
        return batch.pack(self.device) if pad else batch.to(self.device)

    def evaluate_set(
        self,
        model: LanguageModel,
        held_out: EvalSet,
        stop_requested: Callable[[], bool],
        intervals: bool,
    ) -> Evaluation:
        """Return the perplexities of the model on a set; they have no intervals."""
        text = self.held_out[held_out.name]
        rows = np.flatnonzero(text.targets)
        size = text.blocks_of_batch(self.recipe.data.batch_tokens)
        batches: Any = (
            text.collate(rows[first : first + size], epoch=0) for first in range(0, len(rows), size)
        )
        losses = self.held_out_loss(model, batches, stop_requested)
        scores = self.scores(losses, held_out)
        values = {score.name: score.value for score in scores}
        _, *others = (f"{name} {format_number(value)}" for name, value in values.items())
        line = "  ".join([loss_text(losses.logged), *others])
        types = len(self.prepared.vocab)  # the perplexity of uniform probabilities, without a bar
        bars = {name: 1 - math.log(value) / math.log(types) for name, value in values.items()}
        return Evaluation(scores, values | losses.logged, line, bars)

    def describe(self) -> str:
        """Return the task and the languages of the text."""
        langs = dict.fromkeys(entry.langs(self.recipe)[0] for entry in self.recipe.data.train)
        return f"{self.recipe.task} of {', '.join(langs)}"

    def commands(self, folder: str) -> list[str]:
        """Return the command that starts a translation model from this one."""
        return [f"start a translation model from it:  nmt-train RECIPE init.from={folder}"]


class CausalLM(LanguageModelTask):
    """Predict each token from those before it in its block (N section 2.2)."""

    causal = True

    def pack(self, stream: TokenStream, seed: int) -> CausalText:
        """Return the text cut into blocks of equal length."""
        return CausalText(stream, self.recipe.data.block)

    def scores(self, losses: HeldOutLoss, text: EvalSet) -> list[Score]:
        """Return the perplexity per prediction, and per word.

        The perplexity per word is exp(loss of all pieces and line ends / number of words and line
        ends). It compares models with different segmentations.
        """
        words = count_words(text.src_lines)
        signature = f"{self.signature(losses)}|words:{words}"
        word_ppl = Score("word_ppl", perplexity(losses.sums["nll"] / words), signature)
        return [*super().scores(losses, text), word_ppl]


class MaskedLM(LanguageModelTask):
    """Predict masked tokens of a block (RoBERTa: Liu et al. 2019)."""

    causal = False

    def pack(self, stream: TokenStream, seed: int) -> MaskedText:
        """Return the text in blocks of complete lines, masked differently in each epoch."""
        vocab = self.prepared.vocab
        types = np.flatnonzero(vocab.types_of("src"))
        types = types[types >= len(SPECIALS)]
        return MaskedText(stream, self.recipe.data.block, _mask(self.prepared), types, seed)


def _mask(prepared: Prepared) -> int:
    (mask,) = prepared.vocab.ids([MASK])
    return mask


def _require_predictions(texts: Mapping[str, PackedText], recipe: Recipe) -> None:
    """Raise UserError if a split has nothing to predict, or training less than a block."""
    block = recipe.data.block
    for split, text in texts.items():
        if not text.targets.sum():
            raise UserError(
                f"task: {recipe.task} has nothing to predict: all subwords of the text are unknown",
                at=f"data.{split}",
                fix="check the file, its language and the segment keys",
            )
    tokens = len(texts["train"].stream)
    if tokens < block:
        raise UserError(
            f"the training text has {quantity(tokens, 'subword')}, less than a block of {block:,}",
            at="data.train",
            fix=f"add text, or set data.block to at most {tokens}",
        )
