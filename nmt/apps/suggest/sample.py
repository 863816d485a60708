"""Segment a sample of a corpus, to know lengths in pieces and to time updates with real batches."""

from __future__ import annotations

from collections import Counter

import numpy as np

from nmt.apps.suggest.facts import CorpusFacts
from nmt.config.recipe import SentencePieceConfig
from nmt.data.bitext import Bitext
from nmt.data.segmenters import learn_segmenter
from nmt.data.training_text import Chunk
from nmt.data.vocab import Vocab


class EncodedSample:
    """The sample of a corpus as ids in memory, from which batches are made.

    SentencePiece learns BPE from the sample, even if the recipe has fastBPE. It learns in one
    second instead of twenty, and makes 4 % more pieces of TED talks with the same number of types.

    Args:
        types: size of the vocabulary.

    Attributes:
        config: keys of the segmentation.
        segmenter, vocab: made the pieces and their ids.
        src_len, tgt_len: [pairs] int64, pieces without EOS.
    """

    def __init__(self, facts: CorpusFacts, types: int, byte_fallback: bool) -> None:
        self.config = SentencePieceConfig(vocab_size=types, byte_fallback=byte_fallback)
        langs = facts.src.lang, facts.tgt.lang
        text = Chunk.of(Bitext("sample", (), langs, None), list(enumerate(facts.sample, 1)))
        self.segmenter = learn_segmenter(self.config, facts.tokenized, "none", [text])
        sides = [
            [self.segmenter.encode(pair[side], lang) for pair in facts.sample]
            for side, lang in enumerate(langs)
        ]
        src_counts, tgt_counts = (Counter(p for line in side for p in line) for side in sides)
        self.vocab = Vocab.build(src_counts, tgt_counts)
        self._ids = [[np.array(self.vocab.ids(line)) for line in side] for side in sides]
        self.src_len, self.tgt_len = (np.array([len(line) for line in side]) for side in self._ids)

    def __len__(self) -> int:
        return len(self.src_len)

    def src(self, row: int) -> np.ndarray:
        """Return the source ids of a pair."""
        return self._ids[0][row]

    def tgt(self, row: int) -> np.ndarray:
        """Return the target ids of a pair."""
        return self._ids[1][row]

    @property
    def target_pieces(self) -> int:
        """The number of pieces of the target side, EOS included."""
        return int(self.tgt_len.sum()) + len(self)
