"""Masked language models: hide some tokens of a block, which the model predicts.

Sources: Devlin et al. 2019 (BERT), section 3.1; Liu et al. 2019 (RoBERTa), section 4.1: a block is
masked differently in each epoch.
"""

from __future__ import annotations

import numpy as np
import torch

from nmt.data.batches import join
from nmt.data.buckets import Bucket
from nmt.data.lm.packing import PackedText, TextBatch, TokenStream, full_line_blocks
from nmt.data.vocab import SPECIALS
from nmt.model.layout import Layout

CHOSEN_PERCENT = 15  # of the tokens of a block
MASKED, RANDOM = 0.8, 0.1  # shares of the chosen tokens; the others stay as they are
_DRAWS = 2  # makes these draws differ from other draws of the same seed, epoch and example


def count_chosen(tokens: np.ndarray) -> np.ndarray:
    """Return how many of so many ordinary tokens are chosen: [n] -> [n].

    This is 15 %, rounded, and at least one if there is a token. So every batch has a prediction.
    """
    rounded = (CHOSEN_PERCENT * tokens + 50) // 100
    return np.minimum(tokens, np.maximum(1, rounded))


def mask_tokens(
    ids: np.ndarray, mask: int, types: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Choose tokens of a block, and hide 80 % of them; 10 % become another type, 10 % stay.

    PAD, BOS, EOS and UNK are never chosen. The number of chosen tokens is ``count_chosen``.

    Args:
        ids: [L] ids of the block.
        mask: id of the mask.
        types: [K] ids that a random type is drawn from.
        rng: random draws.

    Returns:
        The input [L], and the places of the chosen tokens in ascending order.
    """
    ordinary = np.flatnonzero(ids >= len(SPECIALS))
    count = int(count_chosen(np.array(len(ordinary))))
    places = np.sort(rng.choice(ordinary, count, replace=False)) if count else ordinary
    kind = rng.random(count)
    drawn = types[rng.integers(len(types), size=count)]
    masked = ids.copy()
    masked[places] = np.select(
        [kind < MASKED, kind < MASKED + RANDOM], [np.full(count, mask), drawn], ids[places]
    )
    return masked, places


class MaskedText(PackedText):
    """Blocks of complete lines for a masked language model.

    Args:
        stream: the text.
        length: maximum tokens of a block.
        mask: id of the mask, a type that no text has.
        types: [K] ids that a random type is drawn from: the ordinary types of the text.
        seed: of the masks, which are a function of (seed, epoch, example).
    """

    def __init__(
        self, stream: TokenStream, length: int, mask: int, types: np.ndarray, seed: int
    ) -> None:
        blocks = full_line_blocks(stream, length)
        targets = count_chosen(stream.count_ordinary(blocks))
        super().__init__(stream, blocks, length, targets)
        self._mask, self._types, self._seed = mask, types, seed

    def masked(self, example: int, epoch: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the input of an example, the places of the chosen tokens, and their ids."""
        ids = self.block(example)
        rng = np.random.default_rng([self._seed, epoch, example, _DRAWS])
        masked, places = mask_tokens(ids, self._mask, self._types, rng)
        return masked, places, ids[places]

    def collate(self, examples: np.ndarray, epoch: int, batch_tokens: int = 0) -> TextBatch:
        """Return the batch of these examples as an epoch masks them."""
        rows = self.rows_of(examples)
        made = [self.masked(example, epoch) for example in examples.tolist()]
        lengths = self.blocks.lengths[rows]
        starts = np.cumsum(lengths) - lengths
        ids = [masked for masked, _, _ in made]
        places = [start + inside for start, (_, inside, _) in zip(starts, made, strict=True)]
        targets = [chosen for _, _, chosen in made]
        if not batch_tokens:
            return TextBatch(join(ids), Layout.of(lengths), join(targets), join(places), rows)
        sentences = self.blocks_of_batch(batch_tokens)
        tokens = sentences * self.length
        predicted = sentences * int(count_chosen(np.array(self.length)))
        return TextBatch(
            join(ids, tokens),
            Layout.with_padding(lengths, tokens, sentences, self.length),
            join(targets, predicted),
            join(places, predicted),  # padding predicts PAD at token 0, with weight 0
            rows,
            Bucket(sentences, self.length, tokens, predicted),
            weights=(torch.arange(predicted) < int(self.targets[rows].sum())).float(),
        )
