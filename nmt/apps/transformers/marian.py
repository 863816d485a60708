"""Write a model for Hugging Face's transformers, where one of its classes computes the same.

PostNorm fits MarianMTModel, PreNorm fits PegasusForConditionalGeneration. Both have sinusoidal
positions, a scaled embedding, an output bias and torch's LayerNorm. M2M100 never fits: its
positions begin at 2 and have other frequencies.

``nmt.apps.transformers.layers`` has the names of their layers. ::

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

from nmt.apps.transformers.layers import sines_first, to_transformers
from nmt.config.errors import format_value
from nmt.config.model import model_config
from nmt.data.vocab import BOS, EOS, MASK, PAD, TAG_MARK, UNK, Vocab
from nmt.decoding.codec import MAX_SOURCE_PIECES
from nmt.decoding.ctranslate2.fold import PARTS, fold
from nmt.decoding.ctranslate2.spec import ctranslate2_length_penalty, length_penalty_formula
from nmt.errors import UserError
from nmt.model.config import ModelConfig, unknown_keys
from nmt.model.embedding import sinusoids
from nmt.store.model import Description, Model, check_output, output_folder
from nmt.store.tensors import read_weights
from nmt.text import unicode
from nmt.version import __version__

TEMPLATE = Path(__file__).parent / "templates" / "transformers.md"
MARKER = "nmt-export.json"
SPECIAL_NAMES = {PAD: "<pad>", BOS: "<s>", EOS: "</s>", UNK: "<unk>"}
POSITIONS = 1024
LAYER_NORM_EPS = 1e-5  # torch's default, which both classes use
# keys of ``model`` of which the classes compute all values, after ``fold``; others are in
# ``check_fits``
EXPORTED = (
    "dim", "ffn_dim", "heads", "enc_layers", "dec_layers", "bias", "norm_place", "scalenorm_gain",
    "fixnorm", "out_bias", "logit_mask", "normformer", "head_scale", "head_scale_place",
    "max_positions", "extra_norm",
)  # fmt: skip
_TAG_NOTE = """
A text may begin with one of the tokens that nmt-translate knows as tags: {tags}.
"""
_FORM_NOTE = """
The model was trained on text in the Unicode form {form}, which the tokenizer does not make.
unicode.py in this folder makes it: `normalize("A sentence.", "{form}")`.
"""


def check_fits(about: Description) -> None:
    """Raise UserError with every key that keeps transformers from computing a model."""
    model = about.model
    tags = sorted({direction.tgt_tag for direction in about.directions if direction.tgt_tag})
    limits = [
        ("norm", model.norm == "layernorm", "layernorm"),
        ("norm_eps", model.norm_eps == LAYER_NORM_EPS, f"{LAYER_NORM_EPS:g}"),
        ("activation", model.activation != "geglu", "relu, gelu, relu2 or swish"),
        ("positions", model.positions == "sinusoidal", "sinusoidal"),
        ("embed_norm", not model.embed_norm, "false"),
        ("src_eos", model.src_eos, "true"),
        ("tie", model.tie == "src_tgt_out", "src_tgt_out"),
        ("ffn_norm", not model.ffn_norm, "false"),
        ("post_attn_norm", not model.post_attn_norm, "false"),
        ("qkv_norm", not model.qkv_norm, "false"),
        ("res_scale", model.res_scale in ("none", "scalar"), "none or scalar"),
    ]
    known = {*EXPORTED, *(key for key, _, _ in limits)}
    for key in unknown_keys(type(model).model_fields, known):
        limits.append((key, False, "a model without it: no export of this key is written"))
    wrong = [(f"model.{key}", getattr(model, key), fit) for key, fits, fit in limits if not fits]
    if about.segment.kind != "sentencepiece":
        wrong.append(("segment.kind", about.segment.kind, "sentencepiece"))
    if about.data.tokenized:
        wrong.append(("data.tokenized", True, "false"))
    if tags:
        wrong.append(("data.train: tgt_tag", tags, "corpora without tags of the target"))
    if wrong:
        lines = [f"{key}: {format_value(value)}; fits: {fits}" for key, value, fits in wrong]
        raise UserError(
            "no class of transformers computes this model:\n  " + "\n  ".join(lines),
            fix="train with the values that fit, or export with --format ctranslate2",
        )


def export_transformers(model: Model, output: Path, force: bool) -> None:
    """Write a translation model as a folder for ``AutoModelForSeq2SeqLM`` and ``AutoTokenizer``.

    Raises:
        UserError: the model does not fit, or ``check_output`` rejects the output.
    """
    check_fits(model.about)
    check_output(output, force, MARKER)
    with output_folder(output, force, MARKER) as folder:
        _write(model, folder)


def _write(model: Model, folder: Path) -> None:
    about, vocab, segmenter, decode = model.about, model.vocab, model.segmenter, model.about.decode
    allowed = torch.from_numpy(model.allowed)
    config, weights = fold(read_weights(model), model_config(about.model), allowed)
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
        "length_penalty": ctranslate2_length_penalty(decode),
        "no_repeat_ngram_size": decode.no_repeat_ngram,
        "max_new_tokens": positions - 1,
        "suppress_tokens": [PAD, BOS, *([] if decode.allow_unk else [UNK]), *vocab.reserved_ids],
        "begin_suppress_tokens": [EOS],
    }
    tokenizer = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": about.src,
        "target_lang": about.tgt,
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
    models = [*segmenter.files().values()]  # one, or one for each side
    for name, content in (("source.spm", models[0]), ("target.spm", models[-1])):
        (folder / name).write_bytes(content)
    form = segmenter.moses.form
    tags = [TAG_MARK + tag for tag in vocab.tags]
    template = Template(TEMPLATE.read_text(encoding="utf-8"))
    readme = template.substitute(
        src=about.src,
        tgt=about.tgt,
        model_class=transformers_class(config)[0],
        recipe_penalty=length_penalty_formula(decode),
        length_penalty=generation["length_penalty"],
        form_note="" if form == "none" else _FORM_NOTE.format(form=form),
        tag_note=_TAG_NOTE.format(tags=" ".join(map(_token, tags))) if tags else "",
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
    """Return config.json of a folded model with V ``types``; ``positions`` limit the sentences."""
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
    """
    order = sines_first(config.dim)
    table = weights["embed.weight"]
    bias = weights.get("out_bias", torch.zeros(len(table)))
    sines = sinusoids(positions, config.dim)[:, order]
    return {
        "model.shared.weight": table[:, order],
        "final_logits_bias": bias[None],
        **{f"model.{stack}.embed_positions.weight": sines for stack in PARTS},
        **to_transformers(config, weights),
    }


def _token(piece: str) -> str:
    """Return the token of a type: MarianTokenizer has >>fra<< before a text, we have <fra>."""
    is_tag = piece.startswith(TAG_MARK) and piece != MASK
    return f">>{piece[len(TAG_MARK) :].strip('<>')}<<" if is_tag else piece


def _token_ids(vocab: Vocab) -> dict[str, int]:
    first = len(SPECIAL_NAMES)
    ids = {name: number for number, name in SPECIAL_NAMES.items()}
    types = vocab.pieces(range(first, len(vocab)))
    ids |= {_token(piece): first + i for i, piece in enumerate(types)}
    if len(ids) != len(vocab):
        raise UserError(
            f"an entry of the vocabulary is one of {', '.join(SPECIAL_NAMES.values())}, which "
            "transformers reserves",
            at="vocab.txt",
            fix="export with --format ctranslate2",
        )
    return ids
