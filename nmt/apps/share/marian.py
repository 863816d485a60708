"""Write a model for Hugging Face's transformers, where one of its classes computes the same.

PostNorm fits MarianMTModel, PreNorm fits PegasusForConditionalGeneration. Both have sinusoidal
positions, a scaled embedding, an output bias and torch's LayerNorm. M2M100 never fits: its
positions begin at 2 and have other frequencies.

Both classes store all sines before all cosines, where this toolkit alternates them (V section 3.5).
So ``transformers_weights`` puts the even dimensions of the model before the odd ones, in every
matrix, which leaves the function as it is. ::

    DIR/config.json, generation_config.json, model.safetensors    the model
    DIR/tokenizer_config.json, vocab.json, source.spm, target.spm  MarianTokenizer
    DIR/README.md, unicode.py, nmt-export.json                    use; who wrote the folder

Legend: D model dim, V types.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from string import Template
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

import nmt
from nmt.config.errors import format_value
from nmt.config.recipe import TAG_KEYS
from nmt.data import unicode
from nmt.data.vocab import BOS, EOS, PAD, UNK, Vocab
from nmt.decoding.codec import MAX_SOURCE_PIECES
from nmt.errors import UserError
from nmt.export.fold import fold
from nmt.export.folder import check_output
from nmt.export.spec import ctranslate2_length_penalty
from nmt.model.config import ModelConfig
from nmt.model.embedding import sinusoids
from nmt.run.folder import RunFolder
from nmt.runtime.files import atomic_folder
from nmt.version import __version__

TEMPLATE = Path(__file__).parent / "templates" / "transformers.md"
MARKER = "nmt-export.json"
SPECIAL_NAMES = {PAD: "<pad>", BOS: "<s>", EOS: "</s>", UNK: "<unk>"}
POSITIONS = 1024
LAYER_NORM_EPS = 1e-5  # torch's default, which both classes use
_FORM_NOTE = """
The model was trained on text in the Unicode form {form}, which the tokenizer does not make.
unicode.py in this folder makes it: `normalize("A sentence.", "{form}")`.
"""
_NAMES = {"self_attn": "self_attn", "cross_attn": "encoder_attn", "ffn": "final"}


def check_fits(recipe: nmt.Recipe) -> None:
    """Check that a class of transformers computes the recipe's model, and reads its text.

    Raises:
        UserError: none does; the message names every key that prevents it, with values that fit.
    """
    model, data = recipe.model, recipe.data
    wrong = [
        (f"model.{key}", getattr(model, key), fitting)
        for key, fits, fitting in (
            ("norm", model.norm == "layernorm", "layernorm"),
            ("norm_eps", model.norm_eps == LAYER_NORM_EPS, f"{LAYER_NORM_EPS:g}"),
            ("activation", model.activation != "geglu", "relu, gelu, relu2 or swish"),
            ("positions", model.positions == "sinusoidal", "sinusoidal"),
            ("embed_norm", not model.embed_norm, "false"),
            ("tie", model.tie == "src_tgt_out", "src_tgt_out"),
            ("ffn_norm", not model.ffn_norm, "false"),
            ("post_attn_norm", not model.post_attn_norm, "false"),
            ("qkv_norm", not model.qkv_norm, "false"),
            ("res_scale", model.res_scale in ("none", "scalar"), "none or scalar"),
        )
        if not fits
    ]
    if recipe.segment.kind != "sentencepiece":
        wrong.append(("segment.kind", recipe.segment.kind, "sentencepiece"))
    if data.tokenized:
        wrong.append(("data.tokenized", True, "false"))
    for name in TAG_KEYS:
        if tags := sorted({getattr(entry, name) or "" for entry in data.train} - {""}):
            wrong.append((f"data.train: {name}", tags, "corpora without tags"))
    if wrong:
        lines = [f"{key}: {format_value(value)}; fits: {fits}" for key, value, fits in wrong]
        raise UserError(
            "no class of transformers computes this model:\n  " + "\n  ".join(lines),
            fix="train with the values that fit, or export with --format ctranslate2",
        )


def export_transformers(run: RunFolder, output: Path, checkpoint: str, force: bool) -> None:
    """Write a model as a folder for ``AutoModelForSeq2SeqLM`` and ``AutoTokenizer``.

    Args:
        run: of a translation model.
        output: the folder. It gets its name when it is complete.
        checkpoint: best, latest or a name.
        force: replace a folder that this function wrote.

    Raises:
        UserError: the model does not fit, or ``check_output`` rejects the output.
    """
    check_fits(run.recipe())
    check_output(output, force, MARKER)
    translator = nmt.Translator.load(run.path, "cpu", checkpoint)
    with atomic_folder(output.absolute(), replace=force) as folder:
        _write(translator, folder)
        check_output(output, force, MARKER)  # another process may have written it meanwhile


def _write(translator: nmt.Translator, folder: Path) -> None:
    model, codec, decode = translator.transformer, translator.codec, translator.info.decode
    vocab = codec.vocab
    config, weights = fold(model.state_dict(), model.config, model.allowed)
    positions = max(POSITIONS, MAX_SOURCE_PIECES + 1 + decode.max_len_offset)
    converted = transformers_weights(config, weights, positions)
    tensors = {
        name: tensor.float().clone(memory_format=torch.contiguous_format)
        for name, tensor in converted.items()
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    generation = {
        "bos_token_id": BOS,
        "decoder_start_token_id": BOS,
        "eos_token_id": EOS,
        "pad_token_id": PAD,
        "num_beams": decode.beam,
        "length_penalty": round(ctranslate2_length_penalty(decode.length_alpha), 3),
        "max_new_tokens": positions - 1,
        "suppress_tokens": [PAD, BOS, *([] if decode.allow_unk else [UNK]), *vocab.reserved_ids],
        "begin_suppress_tokens": [EOS],
    }
    tokenizer = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": codec.src,
        "target_lang": codec.tgt,
        "model_max_length": MAX_SOURCE_PIECES,
        "pad_token": SPECIAL_NAMES[PAD],
        "eos_token": SPECIAL_NAMES[EOS],
        "unk_token": SPECIAL_NAMES[UNK],
        "separate_vocabs": False,
    }
    for name, values in (
        ("config.json", transformers_config(config, len(vocab), positions)),
        ("generation_config.json", generation),
        ("tokenizer_config.json", tokenizer),
        ("vocab.json", _token_ids(vocab)),
        (MARKER, {"version": __version__, "format": "transformers"}),
    ):
        text = json.dumps(values, indent=1, ensure_ascii=False) + "\n"
        (folder / name).write_text(text, encoding="utf-8")
    (content,) = codec.segmenter.files().values()
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes(content)
    form = codec.segmenter.moses.form
    template = Template(TEMPLATE.read_text(encoding="utf-8"))
    readme = template.substitute(
        src=codec.src,
        tgt=codec.tgt,
        model_class=transformers_class(config)[0],
        length_alpha=f"{decode.length_alpha:g}",
        length_penalty=generation["length_penalty"],
        form_note="" if form == "none" else _FORM_NOTE.format(form=form),
    )
    if form != "none":
        shutil.copyfile(unicode.__file__, folder / Path(unicode.__file__).name)
    (folder / "README.md").write_text(readme, encoding="utf-8")


def transformers_class(config: ModelConfig) -> tuple[str, str]:
    """Return the class of transformers that computes a model, and its ``model_type``."""
    if config.norm_place == "post":
        return "MarianMTModel", "marian"
    return "PegasusForConditionalGeneration", "pegasus"


def transformers_config(config: ModelConfig, types: int, positions: int) -> dict[str, Any]:
    """Return config.json of a folded model.

    Args:
        types: V.
        positions: the maximum length of a source or target sentence.
    """
    name, kind = transformers_class(config)
    return {
        "architectures": [name],
        "model_type": kind,
        "is_encoder_decoder": True,
        "vocab_size": types,
        "d_model": config.dim,
        "encoder_layers": config.enc_layers,
        "decoder_layers": config.dec_layers,
        "encoder_attention_heads": config.heads,
        "decoder_attention_heads": config.heads,
        "encoder_ffn_dim": config.ffn_dim,
        "decoder_ffn_dim": config.ffn_dim,
        "activation_function": config.activation,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.feedforward_dropout,
        "max_position_embeddings": positions,
        "scale_embedding": True,
        "tie_word_embeddings": True,
        "bos_token_id": BOS,
        "decoder_start_token_id": BOS,
        "eos_token_id": EOS,
        "forced_eos_token_id": None,
        "pad_token_id": PAD,
    }


def transformers_weights(
    config: ModelConfig, weights: dict[str, Tensor], positions: int
) -> dict[str, Tensor]:
    """Return the weights of a folded model under the names of transformers.

    Both classes have the same names and biases everywhere; biases that the model lacks are 0.

    Args:
        positions: the maximum length of a source or target sentence.
    """
    order = torch.cat([torch.arange(0, config.dim, 2), torch.arange(1, config.dim, 2)])
    table = weights["embed.weight"]
    bias = weights.get("out_bias", torch.zeros(len(table)))
    converted = {"model.shared.weight": table[:, order], "final_logits_bias": bias[None]}

    def norm(to: str, name: str) -> None:
        weight = weights[f"{name}.weight"]
        converted[f"{to}.weight"] = weight[order]
        converted[f"{to}.bias"] = weights.get(f"{name}.bias", torch.zeros_like(weight))[order]

    def linear(to: str, name: str, part: slice = slice(None), into: bool = False) -> None:
        """Add a layer that reads vectors of the model, or writes them if ``into``."""
        weight = weights[f"{name}.weight"][part]
        bias = weights.get(f"{name}.bias", torch.zeros(len(weights[f"{name}.weight"])))[part]
        converted[f"{to}.weight"] = weight[order] if into else weight[:, order]
        converted[f"{to}.bias"] = bias[order] if into else bias

    def attention(to: str, name: str) -> None:
        fused = ("qkv", "qkv", "qkv") if f"{name}.qkv.weight" in weights else ("q", "kv", "kv")
        start = dict.fromkeys(fused, 0)
        for letter, source in zip("qkv", fused, strict=True):
            rows = slice(start[source], start[source] + config.dim)
            start[source] += config.dim
            linear(f"{to}.{letter}_proj", f"{name}.{source}", rows)
        linear(f"{to}.out_proj", f"{name}.out", into=True)

    sines = sinusoids(positions, config.dim)[:, order]
    for stack, layers in (("encoder", config.enc_layers), ("decoder", config.dec_layers)):
        converted[f"model.{stack}.embed_positions.weight"] = sines
        for number in range(layers):
            ours, theirs = f"{stack}.layers.{number}", f"model.{stack}.layers.{number}"
            for part, name in _NAMES.items():
                if stack == "encoder" and part == "cross_attn":
                    continue
                norm(f"{theirs}.{name}_layer_norm", f"{ours}.{part}_res.norm")
                if part != "ffn":
                    attention(f"{theirs}.{name}", f"{ours}.{part}")
            linear(f"{theirs}.fc1", f"{ours}.ffn.fc1")
            linear(f"{theirs}.fc2", f"{ours}.ffn.fc2", into=True)
        if config.norm_place == "pre":
            norm(f"model.{stack}.layer_norm", f"{stack}.norm")
    return converted


def _token_ids(vocab: Vocab) -> dict[str, int]:
    """Return the ids by token, as MarianTokenizer reads them."""
    first = len(SPECIAL_NAMES)
    ids = {name: number for number, name in SPECIAL_NAMES.items()}
    ids |= {piece: first + i for i, piece in enumerate(vocab.pieces(range(first, len(vocab))))}
    if len(ids) != len(vocab):
        raise UserError(
            f"a piece of the vocabulary is one of {', '.join(SPECIAL_NAMES.values())}, which "
            "transformers reserves",
            at="vocab.txt",
            fix="export with --format ctranslate2",
        )
    return ids
