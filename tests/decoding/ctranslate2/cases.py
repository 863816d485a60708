"""Small models with random weights, sentences, and a reference of CTranslate2's beam search."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
import yaml

from nmt.config import recipe
from nmt.config.entries import Directions
from nmt.config.load import recipe_from_text
from nmt.config.model import model_config
from nmt.config.recipe import DecodeConfig, FastBpeConfig
from nmt.data.batches import collate_sources
from nmt.data.segmenters import Segmenter
from nmt.data.vocab import BOS, EOS, PAD, UNK, Vocab
from nmt.decoding.codec import TextCodec
from nmt.decoding.ctranslate2.folder import export
from nmt.decoding.translator import Translator
from nmt.model.transformer import Transformer
from nmt.store.model import WEIGHTS, Description, Model, complete, output_folder, save_text
from nmt.store.tensors import write_tensors
from tests.decoding.untrained import learned, translator_of
from tests.model_cases import NORM_NAMES

COUNT = 100

SIZES: dict[str, Any] = {"dim": 16, "ffn_dim": 24, "heads": 4, "enc_layers": 2, "dec_layers": 2}
GRID = [
    {"norm_place": place, "norm": norm, "fixnorm": fixnorm, "head_scale": heads}
    for place, norm, fixnorm, heads in itertools.product(
        ("pre", "post"), NORM_NAMES, (True, False), (True, False)
    )
]
OTHERS: list[dict[str, Any]] = [
    *(
        {"norm_place": place, "norm": norm, "res_scale": "scalar", "head_scale": True}
        for place, norm in itertools.product(("pre", "post"), NORM_NAMES)
    ),
    {"head_scale": True, "head_scale_place": "outside"},
    {"head_scale": True, "head_scale_place": "outside", "bias": False, "norm_place": "post"},
    {"scalenorm_gain": "fixed"},
    {"scalenorm_gain": "fixed", "norm_place": "post"},
    {"norm": "layernorm", "norm_eps": 1e-2},
    {"norm": "rmsnorm", "norm_eps": 1e-2, "norm_place": "post"},
    {"activation": "gelu", "tie": "tgt_out"},
    {"activation": "relu2", "tie": "none", "bias": False},
    {"activation": "relu2", "tie": "none", "fixnorm": False},
    {"activation": "geglu", "out_bias": False},
    {"activation": "geglu", "bias": False, "tie": "tgt_out", "fixnorm": False},
    {"activation": "swish", "norm": "layernorm", "norm_place": "post", "fixnorm": False},
    {"positions": "fairseq", "norm": "layernorm", "fixnorm": False},
    {"positions": "learned", "embed_norm": True, "norm": "layernorm", "fixnorm": False},
    {"positions": "learned", "embed_norm": True, "norm": "rmsnorm", "norm_place": "post"},
    {"embed_norm": True},
    {"src_eos": False, "norm": "layernorm", "tie": "none"},
    {"logit_mask": False},
    {"logit_mask": False, "out_bias": False},
]


@functools.cache
def pairs() -> list[tuple[str, str]]:
    """Return short sentences of invented words, and others as their translations."""
    rng = Random(1)
    words = ["".join(rng.choices("abcdeimnorst", k=rng.randint(1, 7))) for _ in range(300)]
    lines = [" ".join(rng.choices(words, k=rng.randint(1, 9))) for _ in range(2 * COUNT)]
    return list(zip(lines[:COUNT], lines[COUNT:], strict=True))


@functools.cache
def text() -> tuple[Segmenter, Vocab]:
    """Return a BPE segmenter and a vocabulary with some types that only the source has."""
    return learned(FastBpeConfig(merges=300), pairs())


@functools.cache
def ids() -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the sentences as ids."""
    segmenter, vocab = text()

    def encode(line: str, lang: str) -> np.ndarray:
        return np.array(vocab.ids(segmenter.encode(line, lang)))

    return [(encode(source, "gl"), encode(target, "en")) for source, target in pairs()]


def made(seed: int = 1, words: tuple[Segmenter, Vocab] | None = None, **keys: Any) -> Translator:
    """Return a Translator with noise on every parameter of its model and peaked outputs."""
    segmenter, vocab = words or text()
    config = model_config(recipe.ModelConfig(**{**SIZES, **keys}))
    # every value drawn here, whatever tests ran before
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        model = Transformer(config, len(vocab), torch.from_numpy(vocab.types_of("tgt")))
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
        last = model.decoder.norm or list(model.decoder.layers)[-1].ffn_res.norm
        for parameter in last.parameters():
            parameter *= 3
        if model.out_bias is not None:
            model.out_bias[EOS] += 5
    codec = TextCodec(segmenter, vocab, Directions("gl", "en"))
    return translator_of(model.eval(), codec, DecodeConfig(max_len_offset=4))


def model_folder(translator: Translator, path: Path) -> Path:
    """Write a model with the weights of a translator."""
    config, codec = dataclasses.asdict(translator.transformer.config), translator.codec
    text = yaml.safe_dump(
        {
            "src": codec.src,
            "tgt": codec.tgt,
            "data": {"train": "train", "dev": "dev"},
            "segment": {"kind": codec.segmenter.kind},
            "model": {key: "none" if value is None else value for key, value in config.items()},
            "decode": translator.info.decode.model_dump(),
        }
    )
    about = Description.of(recipe_from_text(text, "recipe"), "u000001", codec.usual)
    with output_folder(path, force=False) as draft:
        write_tensors(draft / WEIGHTS, translator.transformer.state_dict())
        save_text(draft, codec.vocab, codec.segmenter)
        complete(draft, about)
    return path


def exported(translator: Translator, path: Path, quantization: str | None = None) -> Path:
    """Export a translator; return the folder for CTranslate2 in the export."""
    original = model_folder(translator, path.with_name(f"{path.name}-original"))
    export(Model.open(original), path, quantization)
    return path / "ctranslate2"


@torch.no_grad()
def their_search(
    translator: Translator, sources: list[np.ndarray], beam: int, offset: int, power: float
) -> tuple[list[list[tuple[list[int], float]]], list[float]]:
    """Search our model by CTranslate2's rules.

    Returns:
        The hypotheses of each sentence, (ids with EOS, log-probability), best first; and the
        smallest difference of two candidates in its search. Where that is as small as the error
        of fp32, another order of additions finds other hypotheses.

    Of 2K candidates the K best continue. A candidate that ended is replaced by the next one that
    did not. The search of a sentence ends when K hypotheses have ended, or at its length limit.
    Forbidden tokens are removed before the softmax.
    """
    src, layout = collate_sources(sources)
    limits = (layout.lengths + offset).tolist()
    state = translator.transformer.start_decoding(src, layout, beam, max(limits))
    total = torch.full((len(sources), beam), -torch.inf)
    total[:, 0] = 0
    tokens = torch.full((len(sources), beam), BOS)
    prefixes: list[list[list[int]]] = [[[]] * beam for _ in sources]
    pools: list[list[tuple[list[int], float]]] = [[] for _ in sources]
    margins = [math.inf] * len(sources)
    done = [False] * len(sources)
    for step in range(1, max(limits) + 1):
        logits = state.advance(tokens).view(*tokens.shape, -1)
        logits[..., [PAD, BOS, UNK] + [EOS] * (step == 1)] = -torch.inf
        scores = (logits.log_softmax(-1) + total[..., None]).flatten(1)
        best, index = scores.topk(2 * beam + 1, dim=-1)
        gaps = (best[:, :-1] - best[:, 1:]).amin(1).tolist()
        best, index = best[:, :-1], index[:, :-1]
        parents = torch.zeros_like(tokens)
        for b, limit in enumerate(limits):
            if done[b]:
                continue
            margins[b] = min(margins[b], gaps[b])
            found = [
                (score, *divmod(i, logits.shape[-1]))
                for score, i in zip(best[b].tolist(), index[b].tolist(), strict=True)
            ]
            spare = (entry for entry in found[beam:] if entry[2] != EOS)
            kept = []
            for score, parent, token in found[:beam]:
                entry = (score, parent, token)
                if token == EOS or step == limit:
                    pools[b].append(([*prefixes[b][parent], token], score))
                    entry = next(spare, entry)
                kept.append(entry)
            done[b] = len(pools[b]) >= beam
            prefixes[b] = [[*prefixes[b][parent], token] for _, parent, token in kept]
            total[b], parents[b], tokens[b] = (
                torch.tensor(column) for column in zip(*kept, strict=True)
            )
        if all(done):
            break
        state.select(parents)
    hyps = [sorted(pool, key=lambda h: -h[1] / len(h[0]) ** power)[:beam] for pool in pools]
    return hyps, margins
