"""Denoising: damage a block of text, which an encoder-decoder restores.

Source: Lewis et al. 2020 (BART), section 2.2. Its final recipe has two kinds of noise: sentence
permutation and text infilling (section 5.1).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nmt.data.batches import Batch, SelectedPairs, collate
from nmt.data.buckets import GPU_BUCKETS
from nmt.data.lm.packing import PackedText, TokenStream, full_line_blocks
from nmt.data.segmenters import Segmenter
from nmt.data.vocab import EOS, SPECIALS, Vocab

INFILLED = 0.3  # share of the words that spans replace
MEAN_SPAN = 3.0  # words, the parameter of the Poisson distribution of their lengths
_REMOVED = -1  # in place of an id
_DRAWS = 3  # makes these draws differ from other draws of the same seed, epoch and example


class WordEdges:
    """Which types begin and end a word, as the segmenter marks it.

    Attributes:
        begins, ends: [V] bool.
    """

    def __init__(self, segmenter: Segmenter, vocab: Vocab) -> None:
        first = len(SPECIALS)
        surfaces = [segmenter.surface(p) for p in vocab.pieces(range(first, len(vocab)))]
        special = [True] * first
        self.begins = np.array(special + [s.startswith(" ") for s in surfaces])
        self.ends = np.array(special + [s.endswith(" ") for s in surfaces])

    def word_starts(self, ids: np.ndarray) -> np.ndarray:
        """Return the places in ids where a word starts, 0 first; specials are words."""
        edge = self.ends[ids[:-1]] | self.begins[ids[1:]]
        return np.flatnonzero(np.concatenate([[True], edge]))


def permute_lines(ids: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the lines of a block in random order; EOS ends each line.

    A line is a sentence, as in mBART. BART divides text at full stops.
    """
    lines = np.split(ids, np.flatnonzero(ids == EOS)[:-1] + 1)
    return np.concatenate([lines[i] for i in rng.permutation(len(lines))])


def span_lengths(words: int, rng: np.random.Generator) -> np.ndarray:
    """Return lengths of spans that cover 30 % of so many words.

    Lengths are drawn from Poisson(3) until they suffice; the last one is cut. Some are 0. A
    fraction of a word is rounded at random, so that the mean is 30 %.
    """
    rest = int(INFILLED * words + rng.random())
    lengths: list[int] = []
    while rest:
        lengths.append(min(rest, int(rng.poisson(MEAN_SPAN))))
        rest -= lengths[-1]
    return rng.permutation(np.array(lengths, dtype=np.int64))


def infill(ids: np.ndarray, starts: np.ndarray, mask: int, rng: np.random.Generator) -> np.ndarray:
    """Replace spans of words by one mask each; a span of length 0 inserts a mask.

    All arrangements of the spans between the words that stay are equally likely.

    Args:
        ids: [L] ids.
        starts: [words] places where words start.
        mask: id of the mask.
    """
    lengths = span_lengths(len(starts), rng)
    # an arrangement is a row of slots, each for a span or for a word that stays
    slots = len(starts) - int(lengths.sum()) + len(lengths)
    chosen = np.sort(rng.choice(slots, len(lengths), replace=False))
    sizes = np.ones(slots, dtype=np.int64)
    sizes[chosen] = lengths
    edges = np.append(starts, len(ids))
    ends = np.cumsum(sizes)[chosen]
    first, last = edges[ends - lengths], edges[ends]
    inside = np.zeros(len(ids) + 1, dtype=np.int64)
    np.add.at(inside, first, 1)
    np.add.at(inside, last, -1)
    kept = np.where(np.cumsum(inside[:-1]) > 0, _REMOVED, ids)
    noised = np.insert(kept, first, mask)
    return noised[noised != _REMOVED]


class DenoisedText(PackedText):
    """Blocks of complete lines for an encoder-decoder, which reads them with noise.

    A block is a pair of a translation batch: the target is the block, the source is the block with
    noise. Both end with EOS. Blank lines are left out, so that no target begins with EOS.

    Args:
        stream: the text.
        length: maximum tokens of a block, at least 3.
        mask: id of the mask, a type that no text has.
        edges: where words begin and end.
        seed: of the noise, which is a function of (seed, epoch, example).
    """

    def __init__(
        self, stream: TokenStream, length: int, mask: int, edges: WordEdges, seed: int
    ) -> None:
        stream = stream.without_blank_lines()
        # one less, because the part of a cut line gets an EOS
        blocks = full_line_blocks(stream, length - 1)
        cut = ~np.isin(blocks.last, stream.line_ends)
        super().__init__(stream, blocks, length, targets=blocks.lengths + cut)
        self._mask, self._edges, self._seed = mask, edges, seed

    def pair(self, example: int, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Return an example with the noise of an epoch, and without; both lack the last EOS."""
        ids = self.block(example)
        if ids[-1] != EOS:
            ids = np.append(ids, EOS)
        rng = np.random.default_rng([self._seed, epoch, example, _DRAWS])
        permuted = permute_lines(ids, rng)[:-1]
        return infill(permuted, self._edges.word_starts(permuted), self._mask, rng), ids[:-1]

    def collate(self, examples: np.ndarray, epoch: int, batch_tokens: int = 0) -> Batch:
        """Return the batch of these examples with the noise of an epoch."""
        pairs = {example: self.pair(example, epoch) for example in examples.tolist()}
        bucket = None
        if batch_tokens:
            src_len, tgt_len = (
                np.array([len(pair[side]) + 1 for pair in pairs.values()]) for side in (0, 1)
            )
            bucket = GPU_BUCKETS.fit(src_len, tgt_len, batch_tokens)
        batch = collate(SelectedPairs(pairs), examples, bucket)
        return replace(batch, rows=self.rows_of(examples))
