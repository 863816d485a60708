"""Small models with random weights, sentences, and a reference of CTranslate2's beam search."""

from __future__ import annotations

import dataclasses
import functools
import gzip
import itertools
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
import yaml

from nmt.config import recipe
from nmt.config.load import recipe_from_text
from nmt.config.model import model_config
from nmt.config.recipe import DecodeConfig, FastBpeConfig
from nmt.data.batches import collate_sources
from nmt.data.report import (
    CorpusReport,
    Lengths,
    SplitReport,
)
from nmt.data.segmenters import Segmenter, save_segmenter
from nmt.data.vocab import BOS, EOS, PAD, UNK, Vocab
from nmt.decoding.codec import TextCodec, text_hash
from nmt.decoding.translator import Translator
from nmt.model.transformer import Transformer
from nmt.run.checkpoint import TrainState, save_checkpoint
from nmt.run.lifecycle import TrainingFolder
from tests.decoding.untrained import learned, translator_of
from tests.model_cases import NORM_NAMES

CORPUS = Path(__file__).parents[2] / "../shared/data/ted-gl-en"
COUNT = 100
LONGEST = 40  # characters

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
    {"logit_mask": False},
    {"logit_mask": False, "out_bias": False},
]


@functools.cache
def pairs() -> list[tuple[str, str]]:
    """Return 100 short sentences and their translations; invented ones if the corpus is missing."""
    if not CORPUS.exists():
        rng = Random(1)
        words = ["".join(rng.choices("abcdeimnorst", k=rng.randint(1, 7))) for _ in range(300)]
        lines = [" ".join(rng.choices(words, k=rng.randint(1, 9))) for _ in range(2 * COUNT)]
        return list(zip(lines[:COUNT], lines[COUNT:], strict=True))
    sides = []
    for lang in ("gl", "en"):
        with gzip.open(CORPUS / f"test.{lang}.gz", "rt", encoding="utf-8") as file:
            sides.append(file.read().splitlines())
    short = (pair for pair in zip(*sides, strict=True) if max(map(len, pair)) <= LONGEST)
    return list(itertools.islice(short, COUNT))


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
    codec = TextCodec(segmenter, vocab, "gl", "en")
    return translator_of(model.eval(), codec, DecodeConfig(max_len_offset=4))


def run_folder(translator: Translator, path: Path) -> Path:
    """Write a run folder with this model as its only checkpoint."""
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
    recipe = recipe_from_text(text, "recipe")
    with TrainingFolder(path, recipe) as run:
        codec.vocab.save(path)
        save_segmenter(codec.segmenter, path)
        state = TrainState(
            1,
            best_update=1,
            text_hash=text_hash(codec.vocab, codec.segmenter),
        )
        save_checkpoint(run, state, translator.transformer.state_dict(), {}, keep=1)
        if (usual := codec.usual).sentences is not None:
            train = SplitReport(9, 9, sentences={usual.sentences: 9})
            train.abbreviations = usual.abbreviations or None
            lengths = {"src": Lengths(100, 1, 1, 1, 1), "tgt": Lengths(100, 1, 1, 1, 1)}
            report = CorpusReport({"train": train})
            report.lengths["train"] = lengths
            run.data_report_file.write_text(report.to_json())
    return path


@torch.no_grad()
def their_search(
    translator: Translator, sources: list[np.ndarray], beam: int, offset: int, power: float
) -> list[list[tuple[list[int], float]]]:
    """Search our model by CTranslate2's rules: (ids with EOS, log-probability), best first.

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
    done = [False] * len(sources)
    for step in range(1, max(limits) + 1):
        logits = state.advance(tokens).view(*tokens.shape, -1)
        logits[..., [PAD, BOS, UNK] + [EOS] * (step == 1)] = -torch.inf
        scores = (logits.log_softmax(-1) + total[..., None]).flatten(1)
        best, index = scores.topk(2 * beam, dim=-1)
        parents = torch.zeros_like(tokens)
        for b, limit in enumerate(limits):
            if done[b]:
                continue
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
    return [sorted(pool, key=lambda h: -h[1] / len(h[0]) ** power)[:beam] for pool in pools]
