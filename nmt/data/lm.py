"""Text for language models: one stream of ids, cut into blocks, and masks.

A causal model predicts each token. A masked one predicts masked tokens (Devlin et al. 2019, section
3.1), which differ in each epoch (Liu et al. 2019, section 4.1).

Legend: T tokens of the stream, n blocks, B blocks of a batch, N flat tokens of a batch, M of them
predicted.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nmt.data.batches import Bucket, FlatBatch, join
from nmt.data.encoded import EncodedCorpus
from nmt.data.mixture import Mixture, copy_numbers
from nmt.data.vocab import EOS, SPECIALS
from nmt.model.layout import Layout


class TokenStream:
    """Lines as one stream of T ids, with EOS after each line.

    A blank line is EOS alone. It separates documents, as in WikiText.

    Attributes:
        line_ends: [lines] int64, where each line ends, its EOS included.
        bounds: [entries + 1] int64, where each entry of the corpus begins, and T.
    """

    def __init__(self, ids: np.ndarray, lengths: np.ndarray, sizes: Sequence[int]) -> None:
        """Store a view of the lines.

        Args:
            ids: [sum of lengths], without EOS; it may be memory-mapped.
            lengths: [lines].
            sizes: lines of each entry of the corpus.
        """
        self._ids, self._sizes = ids, list(sizes)
        self.line_ends = np.cumsum(np.asarray(lengths, dtype=np.int64) + 1)
        lines = np.cumsum([0, *self._sizes])
        self.bounds = np.concatenate([[0], self.line_ends])[lines]

    @classmethod
    def of(cls, corpus: EncodedCorpus) -> TokenStream:
        """Return the sources of a corpus as a stream."""
        return cls(corpus.ids("src"), corpus.src_len, corpus.sizes)

    def __len__(self) -> int:
        return int(self.line_ends[-1]) if len(self.line_ends) else 0

    def read(self, first: int, last: int) -> np.ndarray:
        """Return the ids of tokens ``first`` to ``last`` (exclusive): [last - first] int64."""
        # EOS of line i is token line_ends[i] - 1
        before, inside = np.searchsorted(self.line_ends, (first, last), side="right")
        ids = np.full(last - first, EOS)
        is_text = np.ones(last - first, dtype=bool)
        is_text[self.line_ends[before:inside] - 1 - first] = False
        ids[is_text] = self._ids[first - before : last - inside]
        return ids

    def count_ordinary(self, blocks: Blocks) -> np.ndarray:
        """Return the tokens of each block that are not PAD, BOS, EOS or UNK: [n] int64."""
        special = np.flatnonzero(self._ids < len(SPECIALS))

        def ordinary_before(tokens: np.ndarray) -> np.ndarray:
            text = tokens - np.searchsorted(self.line_ends, tokens, side="right")
            return text - np.searchsorted(special, text)

        return ordinary_before(blocks.last) - ordinary_before(blocks.first)


class Blocks(NamedTuple):
    """Places of n blocks in a stream.

    Attributes:
        first, last: [n] int64, the first token of each block, and the token after its last.
    """

    first: np.ndarray
    last: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each block: [n] int64."""
        return self.last - self.first


def stream_blocks(stream: TokenStream, length: int) -> Blocks:
    """Cut each entry of a stream every ``length`` tokens, without regard to lines.

    The last block of an entry has the rest. This is ``--sample-break-mode none`` of fairseq.
    """
    first = [np.arange(*bounds, length) for bounds in itertools.pairwise(stream.bounds)]
    last = [
        np.minimum(starts + length, end)
        for starts, end in zip(first, stream.bounds[1:], strict=True)
    ]
    return Blocks(np.concatenate(first), np.concatenate(last))


def full_line_blocks(stream: TokenStream, length: int) -> Blocks:
    """Pack as many complete lines of an entry into each block as fit in ``length`` tokens.

    This is FULL-SENTENCES of RoBERTa (Liu et al. 2019, section 4.2): blocks cross the boundaries of
    documents, whose blank lines separate them. A line of more than ``length`` tokens is cut; its
    last part shares a block with the next lines.

    Args:
        length: at least 2.
    """
    ends, cuts = stream.line_ends, [0]
    for bound in stream.bounds[1:].tolist():
        while (first := cuts[-1]) < bound:
            fitting = int(np.searchsorted(ends, min(bound, first + length), side="right"))
            end = int(ends[fitting - 1]) if fitting else 0
            if end <= first:  # the line is longer; its last part is more than its EOS
                end = first + length - (int(ends[fitting]) == first + length + 1)
            cuts.append(end)
    edges = np.array(cuts, dtype=np.int64)
    return Blocks(edges[:-1], edges[1:])


@dataclass(frozen=True)
class TextBatch(FlatBatch):
    """B blocks of text as flat tokens: the input and the targets of a language model.

    Attributes:
        ids: [N] int64, the input.
        layout: blocks of ``ids``.
        targets: [M] int64, the ids to predict.
        places: [M] int64, where in ``ids`` the model predicts each target; None = at every token,
            so that M = N.
        weights: [M] fp32, 1 at targets and 0 at padding; None = no padding.
    """

    ids: Tensor
    layout: Layout
    targets: Tensor
    places: Tensor | None
    rows: np.ndarray
    bucket: Bucket | None = None
    weights: Tensor | None = None
    buffer: Tensor | None = None

    @property
    def inputs(self) -> tuple[Tensor, Layout, Tensor | None]:
        """The arguments of ``LanguageModel.forward``."""
        return self.ids, self.layout, self.places

    @property
    def tokens(self) -> int:
        """Predictions including padding, M."""
        return self.targets.numel()


class PackedText(ABC):
    """Text in n blocks of at most ``length`` tokens; subclasses make input and targets of them.

    Example e of an epoch is block e % n. The copies of a block of a weighted entry are the examples
    e, e + n, ..., so that each has masks of its own.

    ``targets``: [n] int64, predictions of each block. A mean loss divides by their sum.
    """

    def __init__(
        self, stream: TokenStream, blocks: Blocks, length: int, targets: np.ndarray
    ) -> None:
        self.stream, self.blocks, self.length, self.targets = stream, blocks, length, targets

    def __len__(self) -> int:
        return len(self.targets)

    @abstractmethod
    def collate(self, examples: np.ndarray, epoch: int, batch_tokens: int = 0) -> TextBatch:
        """Return the batch of these examples of an epoch: a pure function.

        ``batch_tokens`` is that of ``batches``; the batch is padded to a bucket. 0 = no padding.
        """

    def rows_of(self, examples: np.ndarray) -> np.ndarray:
        """Return the blocks of examples, as rows of ``blocks``."""
        return examples % len(self)

    def block(self, example: int) -> np.ndarray:
        """Return the ids of an example."""
        row = example % len(self)
        return self.stream.read(int(self.blocks.first[row]), int(self.blocks.last[row]))

    def batches(
        self, batch_tokens: int, seed: int, epoch: int, weights: Sequence[float] | None = None
    ) -> list[np.ndarray]:
        """Return the batches of an epoch as arrays of examples: a pure function of the arguments.

        Each has ``blocks_of_batch(batch_tokens)`` examples, the last one the rest. Blocks with
        nothing to predict are left out. An epoch has the blocks of each entry as often as
        ``weights`` says, on average; None = once.
        """
        rows = np.arange(len(self))
        if weights is not None:
            ends = np.searchsorted(self.blocks.last, self.stream.bounds, side="right")
            rows = Mixture(np.diff(ends).tolist(), weights).rows(seed, epoch)
        examples = rows + len(self) * copy_numbers(rows)
        shuffled = np.random.default_rng([seed, epoch]).permutation(
            examples[self.targets[rows] > 0]
        )
        size = self.blocks_of_batch(batch_tokens)
        return [shuffled[i : i + size] for i in range(0, len(shuffled), size)]

    def blocks_of_batch(self, batch_tokens: int) -> int:
        """Return B, so that B x length <= batch_tokens; at least 1."""
        return max(1, batch_tokens // self.length)


class CausalText(PackedText):
    """Blocks for a causal language model, which predicts each token from those before it.

    The blocks are the same in every epoch; each token is predicted once per epoch. As in fairseq,
    the first input of a block is the token before the block, and EOS in the first block.
    """

    def __init__(self, stream: TokenStream, length: int) -> None:
        blocks = stream_blocks(stream, length)
        super().__init__(stream, blocks, length, targets=blocks.lengths)

    def collate(self, examples: np.ndarray, epoch: int, batch_tokens: int = 0) -> TextBatch:
        """Return the batch of these examples, the same in every epoch and never padded.

        Batches of as many complete blocks have the same size and share a bucket.
        """
        rows = self.rows_of(examples)
        inputs, targets = [], []
        for row in rows:
            first, last = int(self.blocks.first[row]), int(self.blocks.last[row])
            ids = self.stream.read(first, last)
            before = self.stream.read(first - 1, first) if first else np.array([EOS])
            inputs += [before, ids[:-1]]
            targets.append(ids)
        lengths = self.blocks.lengths[rows]
        tokens = int(lengths.sum())
        complete = tokens == len(rows) * self.length
        return TextBatch(
            join(inputs),
            Layout.of(lengths),
            join(targets),
            None,
            rows,
            Bucket(len(rows), self.length, tokens, tokens) if complete else None,
        )


CHOSEN_PERCENT = 15  # of the tokens of a block
MASKED, RANDOM = 0.8, 0.1  # shares of the chosen tokens; the others stay as they are
# makes these draws differ from other draws of the same seed, epoch and example
_MASKING = 2


def count_chosen(tokens: np.ndarray) -> np.ndarray:
    """Return 15 % of each number of ordinary tokens, and at least 1 of any: [n] -> [n].

    So every batch has a prediction.
    """
    rounded = (CHOSEN_PERCENT * tokens + 50) // 100
    return np.minimum(tokens, np.maximum(1, rounded))


def mask_tokens(
    ids: np.ndarray, mask: int, types: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Choose tokens of a block, and mask 80 % of them; 10 % become another type, 10 % stay.

    PAD, BOS, EOS and UNK are never chosen. The number of chosen tokens is ``count_chosen``.

    Args:
        ids: [L].
        types: [K] ids that a random type is drawn from.

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
        rng = np.random.default_rng([self._seed, epoch, example, _MASKING])
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
