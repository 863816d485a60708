"""A tiny model with its own vocabulary and byte-pair codes, with random weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from nmt.config.entries import Directions
from nmt.config.recipe import DecodeConfig, FastBpeConfig
from nmt.data.segmenters import Segmenter, learn_segmenter
from nmt.data.vocab import EOS, Vocab, tag_piece
from nmt.decoding.codec import TextCodec
from nmt.decoding.engine import ModelInfo
from nmt.decoding.ensemble import Ensemble
from nmt.decoding.torch_engine import TorchEngine
from nmt.decoding.translator import Translator
from nmt.model.config import ModelConfig
from nmt.model.transformer import Transformer
from tests.toy import one_corpus

PAIRS = [
    ("o can come pan branco", "the dog eats white bread"),
    ("a gata bebe auga fresca", "the cat drinks fresh water"),
    ("non vexo o mar, señor", "I don't see the sea, sir"),
    ("hoxe chove na cidade vella", "it is raining in the old town today"),
]
LINES = [
    "o can bebe auga",
    "a gata vella",
    "hoxe non chove.",
    "señor, o mar",
    "pan",
    "o can branco come pan na cidade fresca",
]


def learned(
    config: Any, pairs: list[tuple[str, str]], tokenized: bool = False, normalize: str = "none"
) -> tuple[Segmenter, Vocab]:
    """Return a segmenter and a vocabulary learned from pairs of Galician and English."""
    segmenter = learn_segmenter(config, tokenized, normalize, one_corpus(pairs))
    counts = [Counter[str](), Counter[str]()]
    for pair in pairs:
        for side, line, lang in zip(counts, pair, ("gl", "en"), strict=True):
            side.update(segmenter.encode(line, lang))
    return segmenter, Vocab.build(*counts, alphabet=segmenter.alphabet())


def untrained(
    seed: int = 2,
    eos_bias: float = 3.5,
    segment: Any = None,
    words: tuple[Segmenter, Vocab] | None = None,
    model: Mapping[str, Any] = {},
    langs: tuple[str, str] = ("gl", "en"),
    tags: Sequence[str] = (),
    tgt_tags: Sequence[str] = (),
    **decode: Any,
) -> Translator:
    """Return a translator from Galician to English; ``eos_bias`` makes its outputs shorter.

    Args:
        segment: keys of the segmenter that it learns.
        words: a segmenter and a vocabulary instead.
        model: further settings of the model.
        tags, tgt_tags: what its sources and targets may begin with.
    """
    segmenter, vocab = words or learned(segment or FastBpeConfig(merges=50), PAIRS)
    if tags or tgt_tags:
        source, target = ([p for t in side for p in tag_piece(t)] for side in (tags, tgt_tags))
        vocab = vocab.with_counts(Counter(source), Counter(target), [*source, *target])
    config = ModelConfig(dim=8, ffn_dim=12, heads=2, enc_layers=1, dec_layers=2, **model)
    transformer = Transformer(config, len(vocab), torch.from_numpy(vocab.types_of("tgt")))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in transformer.parameters():
            parameter += 0.8 * torch.randn(parameter.shape, generator=generator)
        transformer.out_bias[EOS] += eos_bias
    settings = DecodeConfig(**{"max_len_offset": 4, **decode})
    return translator_of(transformer, TextCodec(segmenter, vocab, Directions(*langs)), settings)


def translator_of(
    model: Transformer | Ensemble, codec: TextCodec, decode: DecodeConfig
) -> Translator:
    """Return a translator that searches with torch on a CPU, as a model in training has it."""
    engine = TorchEngine(model, codec, torch.device("cpu"))
    return Translator(engine, codec, ModelInfo(decode))
