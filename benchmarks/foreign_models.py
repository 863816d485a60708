"""Read two trained models of others into model folders; see ``benchmarks.foreign_weights``."""

from __future__ import annotations

import io
import pickle
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import torch
import yaml
from torch import Tensor

from nmt.config.load import recipe_from_text
from nmt.data.segmenters import Segmenter
from nmt.data.segmenters.base import Whitespace
from nmt.data.segmenters.sentencepiece import SentencePiece
from nmt.data.vocab import TAG_MARK, UNK, Vocab
from nmt.store.model import WEIGHTS, Description, Origin, complete, output_folder, save_text
from nmt.store.tensors import write_tensors
from nmt.text.tokenizer import Moses
from nmt.version import __version__

POSITIONS = 640  # the fewest that a model can have
BEAM = 5
ANNALOG = [  # weights and vocabulary in the package
    f"annalog/ckpt_and_vocab/{name}"
    for name in ("Lev_extended.pt", "stereo_experiment_vocab_ttf.pkl")
]
START = TAG_MARK + "<sos>"  # a source of ANNalog begins with it, so it is a tag here
SEARCH = {
    "beam": BEAM, "length_penalty": "mean", "length_alpha": 1.0, "stop_rule": "count",
    "max_len_offset": 50,
}  # fmt: skip
COMMON = {
    "norm": "layernorm", "fixnorm": False, "positions": "learned", "max_positions": POSITIONS,
    "tie": "none", "out_bias": True, "dropout": 0.1, "word_dropout": 0.0,
}  # fmt: skip
Tensors = dict[str, Tensor]
Rows = Sequence[int]


def write_model(
    path: Path, values: dict[str, Any], segmenter: Segmenter, vocab: Vocab, tensors: Tensors,
    origin: Origin,
) -> None:  # fmt: skip
    """Write a model folder."""
    recipe = recipe_from_text(yaml.safe_dump(values), origin.source)
    about = Description.of(recipe, origin.source, None, origin=origin)
    with output_folder(path, force=True) as draft:
        write_tensors(draft / WEIGHTS, {k: x.contiguous() for k, x in tensors.items()})
        save_text(draft, vocab, segmenter)
        complete(draft, about)


def tables(
    types: Sequence[str], src: tuple[list[str], Rows, Tensor], tgt: tuple[list[str], Rows, Tensor],
    out: Tensor, bias: Tensor,
) -> tuple[Vocab, Tensors]:  # fmt: skip
    """Return the joint vocabulary of two, and its embeddings.

    Args:
        src, tgt: tokens of a side, its rows of PAD, BOS, EOS and UNK, and its embedding. A type
            that a side lacks has the row of UNK.
    """
    counts = np.array([[t in src[0], t in tgt[0]] for t in types], dtype=np.int64)

    def rows(tokens: list[str], specials: Rows) -> Tensor:
        places = [tokens.index(t) if t in tokens else specials[UNK] for t in types]
        return torch.tensor([*specials, *places])

    of_src, of_tgt = rows(*src[:2]), rows(*tgt[:2])
    return Vocab(types, counts), {
        "src_embed.weight": src[2][of_src],
        "embed.weight": tgt[2][of_tgt],
        "out_embed.weight": out[of_tgt],
        "out_bias": bias[of_tgt],
    }


# --- aren-transliteration -----------------------------------------------------------------------


def read_ctranslate2(path: Path) -> Tensors:
    """Return the fp32 tensors of CTranslate2's model.bin in version 2 of the format."""
    with open(path, "rb") as file:

        def number(kind: str) -> int:
            return int(struct.unpack(f"<{kind}", file.read(struct.calcsize(kind)))[0])

        def name() -> str:
            return file.read(number("H")).rstrip(b"\0").decode()

        tensors = {}
        if number("I") != 2:
            raise ValueError(f"{path} has another version of the format")
        name(), number("I")
        for _ in range(number("I")):
            key, shape = name(), [number("I") for _ in range(number("B"))]
            size = number("B")
            data = file.read(size * number("I"))
            if size == 4:
                tensors[key] = torch.frombuffer(bytearray(data), dtype=torch.float32).view(shape)
    return tensors


def convert_aren(folder: Path, path: Path) -> None:
    """Write a model folder with the weights of aren-transliteration."""
    theirs = read_ctranslate2(folder / "model.bin")
    sides = [
        (folder / f"{side}_vocabulary.txt").read_text(encoding="utf-8").removesuffix("\n")
        for side in ("source", "target")
    ]
    src, tgt = (side.split("\n") for side in sides)  # <blank>, <s>, </s>, then characters
    names = {
        "self_attention/layer_norm": "self_attn_res.norm", "self_attention/linear_0":
        "self_attn.qkv", "self_attention/linear_1": "self_attn.out", "attention/layer_norm":
        "cross_attn_res.norm", "attention/linear_0": "cross_attn.q", "attention/linear_1":
        "cross_attn.kv", "attention/linear_2": "cross_attn.out", "ffn/layer_norm": "ffn_res.norm",
        "ffn/linear_0": "ffn.fc1", "ffn/linear_1": "ffn.fc2", "layer_norm": "norm",
    }  # fmt: skip
    tensors = {}
    for key, tensor in theirs.items():
        stack, layer, part = re.fullmatch(r"(\w+?)/(?:layer_(\d+)/)?(.*)", key).groups()  # type: ignore[union-attr]
        part, _, kind = part.rpartition("/")
        if part in names:
            place = f"{stack}.layers.{layer}" if layer else stack
            kind = {"gamma": "weight", "beta": "bias"}.get(kind, kind)
            tensors[f"{place}.{names[part]}.{kind}"] = tensor
    vocab, embeddings = tables(
        list(dict.fromkeys([*tgt[3:], *src[3:]])),
        (src, (0, 1, 2, len(src)), theirs["encoder/embeddings/weight"]),
        (tgt, (0, 1, 2, len(tgt)), theirs["decoder/embeddings/weight"]),
        theirs["decoder/projection/weight"],
        theirs["decoder/projection/bias"],
    )
    dim = embeddings["embed.weight"].shape[1]
    rates = 10_000 ** -(torch.arange(dim // 2, dtype=torch.float64) / (dim // 2 - 1))
    angles = torch.arange(1, POSITIONS + 1)[:, None] * rates  # from 1, all sines first
    sines = torch.cat([angles.sin(), angles.cos()], 1).float()
    tensors |= {f"{side}_input.positions.weight": sines for side in ("src", "tgt")}
    values = {
        "src": "ar", "tgt": "en", "data": {"train": "aren", "dev": "aren", "normalize": "none",
        "max_pieces": 500}, "segment": {"kind": "sentencepiece", "vocab_size": len(vocab)},
        "decode": SEARCH,
        "model": {**COMMON, "dim": dim, "ffn_dim": 128, "heads": 8, "src_eos": False},
    }  # fmt: skip
    origin = Origin("aren-transliteration", "OpenNMT-tf", "MIT", {}, __version__)
    text = {**tensors, **embeddings}
    write_model(path, values, characters(vocab.types), vocab, text, origin)


def characters(types: Sequence[str]) -> SentencePiece:
    """Return a SentencePiece model whose pieces are characters."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(types), model_writer=model, model_type="bpe",
        vocab_size=len(types) + 3, character_coverage=1.0, add_dummy_prefix=False,
        normalization_rule_name="identity", hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    return SentencePiece(Moses(False, "none", exact=True), model.getvalue())


# --- ANNalog ------------------------------------------------------------------------------------


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"has an object of {module}.{name}")


def annalog_files(folder: Path) -> tuple[Tensors, list[str]]:
    """Return the tensors and the vocabulary of ANNalog; only plain values are unpickled."""
    weights, vocab = (folder / name for name in ANNALOG)
    tensors = torch.load(weights, map_location="cpu", weights_only=True)
    with open(vocab, "rb") as file:
        return tensors, list(_Plain(file).load()["itos"])


def convert_annalog(folder: Path, path: Path) -> None:
    """Write a model folder with the weights of ANNalog."""
    theirs, tokens = annalog_files(folder)  # <unk>, <pad>, <sos>, <eos>, then parts of molecules
    parts = {
        "self_attn.qkv": [f"self_attention.fc_{letter}" for letter in "qkv"],
        "self_attn.out": ["self_attention.fc_o"], "self_attn_res.norm": ["self_attn_layer_norm"],
        "cross_attn.q": ["encoder_attention.fc_q"],
        "cross_attn.kv": ["encoder_attention.fc_k", "encoder_attention.fc_v"],
        "cross_attn.out": ["encoder_attention.fc_o"],
        "cross_attn_res.norm": ["enc_attn_layer_norm"],
        "ffn.fc1": ["positionwise_feedforward.fc_1"], "ffn.fc2": ["positionwise_feedforward.fc_2"],
        "ffn_res.norm": ["ff_layer_norm"],
    }  # fmt: skip
    tensors = {
        f"{stack}.layers.{layer}.{ours}.{kind}": torch.cat(
            [theirs[f"{stack}.layers.{layer}.{name}.{kind}"] for name in names]
        )
        for stack in ("encoder", "decoder")
        for layer in range(3)
        for ours, names in parts.items()
        for kind in ("weight", "bias")
        if f"{stack}.layers.{layer}.{names[0]}.{kind}" in theirs
    }
    specials, src = (1, 2, 3, 0), [START if t == "<sos>" else t for t in tokens]
    vocab, embeddings = tables(
        [*tokens[4:], START],
        (src, specials, theirs["encoder.tok_embedding.weight"]),
        (tokens, specials, theirs["decoder.tok_embedding.weight"]),
        theirs["decoder.fc_out.weight"],
        theirs["decoder.fc_out.bias"],
    )
    for side, stack in (("src", "encoder"), ("tgt", "decoder")):
        table = theirs[f"{stack}.pos_embedding.weight"]
        more = table.new_zeros(POSITIONS - len(table), table.shape[1])  # no text may reach them
        tensors[f"{side}_input.positions.weight"] = torch.cat([table, more])
    entry = {"path": "annalog", "tag": "<sos>"}
    values = {
        "src": "smi", "tgt": "smi2", "data": {"train": [entry], "dev": [entry.copy()],
        "normalize": "none", "tokenized": True, "max_pieces": 500},
        "segment": {"kind": "whitespace"},
        "decode": {**SEARCH, "length_alpha": 0.0},
        "model": {**COMMON, "dim": 256, "ffn_dim": 512, "heads": 8, "enc_layers": 3,
        "dec_layers": 3, "norm_place": "post"},
    }  # fmt: skip
    origin = Origin("ANNalog 1.0.6", "ANNalog", "MIT", {}, __version__)
    segmenter = Whitespace(Moses(True, "none"))
    write_model(path, values, segmenter, vocab, {**tensors, **embeddings}, origin)
