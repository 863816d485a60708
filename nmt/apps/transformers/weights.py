"""From the tensors of transformers to those of our model, which computes the same.

Shapes: D model dim, V types here, W types there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, ValidationError
from torch import Tensor

from nmt.apps.transformers.families import ACTIVATIONS, Family, Side, Text
from nmt.apps.transformers.folder import CONFIG_JSON, GENERATION, HubFolder, damaged
from nmt.apps.transformers.layers import TensorPair, from_transformers, sines_first, tensor_pairs
from nmt.config import recipe
from nmt.config.errors import allowed
from nmt.data.vocab import BOS, EOS, PAD, SPECIALS, TAG_MARK, UNK, Vocab
from nmt.errors import UserError
from nmt.model import MASKED_LOGIT
from nmt.model.config import ModelConfig, unknown_keys
from nmt.model.transformer import Transformer
from nmt.store.tensors import non_finite

SHARED = "model.shared.weight"
TABLES = {stack: f"model.{stack}.embed_tokens.weight" for stack in ("encoder", "decoder")}
OUTPUT, BIAS = "lm_head.weight", "final_logits_bias"
OFFSET = 2  # of learned positions: the first position has row 2
_SIZES = {
    "dim": "d_model", "ffn_dim": "encoder_ffn_dim", "heads": "encoder_attention_heads",
    "enc_layers": "encoder_layers", "dec_layers": "decoder_layers",
    "max_positions": "max_position_embeddings",
}  # fmt: skip
_DROPOUTS = {
    "dropout": "dropout", "attn_dropout": "attention_dropout", "ffn_dropout": "activation_dropout"
}  # fmt: skip
# keys of ``model`` whose default is what transformers computes
_AS_BY_DEFAULT = (
    "bias", "norm_eps", "scalenorm_gain", "logit_mask", "normformer", "head_scale",
    "head_scale_place", "post_attn_norm", "ffn_norm", "qkv_norm", "res_scale", "extra_norm",
    "norm_place", "positions", "max_positions", "embed_norm", "src_eos",
)  # fmt: skip
_SINES = re.compile(r"model\.(en|de)coder\.embed_positions\.weights?")


def model_keys(family: Family, folder: HubFolder) -> dict[str, Any]:
    """Return the keys of ``model`` in the recipe, except ``tie`` and ``out_bias``.

    Raises:
        UserError: config.json has values with which no model of this toolkit computes the same.
    """
    config = folder.config
    wrong = [
        f"{key}: {config.get(key)!r}; fits: {fits}"
        for key, fitting, fits in (
            ("scale_embedding", config.get("scale_embedding") is True, "true"),
            ("activation_function", str(config.get("activation_function")) in ACTIVATIONS,
             ", ".join(ACTIVATIONS)),
            ("decoder_attention_heads", _same(config, "attention_heads"),
             f"{config.get('encoder_attention_heads')!r}, as in the encoder"),
            ("decoder_ffn_dim", _same(config, "ffn_dim"),
             f"{config.get('encoder_ffn_dim')!r}, as in the encoder"),
        )
        if not fitting
    ]  # fmt: skip
    dropout = config.get("dropout", 0.1)
    keys: dict[str, Any] = {key: config.get(name) for key, name in _SIZES.items()}
    keys |= {key: config.get(name, dropout) for key, name in _DROPOUTS.items()}
    if family.keys.get("positions") != "learned":
        del keys["max_positions"]
    wrong += misfits(recipe.ModelConfig, keys, {**_SIZES, **_DROPOUTS})
    if not wrong and keys["dim"] % keys["heads"]:
        wrong.append(f"encoder_attention_heads: {keys['heads']}; fits: a divisor of d_model")
    decided = {*keys, *family.keys, "activation", "norm", "fixnorm", "tie", "out_bias"}
    for key in unknown_keys(recipe.ModelConfig.model_fields, {*decided, *_AS_BY_DEFAULT}):
        wrong.append(f"model.{key} of this toolkit: the conversion does not know it")
    if wrong:
        what = "no model of this toolkit computes the same:\n  " + "\n  ".join(wrong)
        fix = "convert another model"
        raise UserError(what, at=str(folder.path / CONFIG_JSON), fix=fix)
    return {
        **keys,
        **family.keys,
        "activation": ACTIVATIONS[config["activation_function"]],
        "norm": "layernorm",
        "fixnorm": False,
        "word_dropout": 0.0,
    }


def _same(config: Mapping[str, Any], key: str) -> bool:
    return config.get(f"encoder_{key}") == config.get(f"decoder_{key}")


def misfits(
    section: type[BaseModel], values: Mapping[str, Any], names: Mapping[str, str]
) -> list[str]:
    """Describe the values that keys of a recipe cannot have.

    Args:
        values: by key.
        names: of the keys in transformers.
    """
    problems = []
    for key, value in values.items():
        try:
            section.model_validate({key: value}, strict=True)
        except ValidationError as error:
            if any(detail["loc"][:1] == (key,) for detail in error.errors()):
                problems.append(f"{names[key]}: {value!r}; fits: {allowed(section, key)}")
    return problems


def make_vocabulary(text: Text, forbidden: Collection[int]) -> Vocab:
    """Return the types of both sides; a type counts as seen on the sides that have it.

    Args:
        forbidden: rows that the output bias forbids, as in an export of this toolkit: they do not
            count as seen on the target side, so that a child may learn them. Among them, <s> is
            our BOS and no type.
    """
    rows = text.tgt.rows
    types = list(dict.fromkeys([*rows, *text.src.rows]))
    types = [piece for piece in types if piece != "<s>" or rows.get(piece) not in forbidden]
    types.sort(key=lambda piece: piece.startswith(TAG_MARK))  # stable: tags are last
    seen = []
    for piece in types:
        on_target = text.tag_on_target or not piece.startswith(TAG_MARK)
        predicted = piece in rows and rows[piece] not in forbidden
        seen.append([piece in text.src.rows, predicted and on_target])
    return Vocab(types, np.array(seen, dtype=np.int64))


class HubWeights:
    """The tensors of a folder, and the settings that they decide.

    Attributes:
        keys: ``tie`` and ``out_bias`` of the recipe's ``model``.

    Raises:
        UserError: a tensor is missing or not finite, or config.json says something else.
    """

    def __init__(self, folder: HubFolder) -> None:
        self._folder, self._tensors = folder, folder.tensors()
        if bad := non_finite(self._tensors):
            raise self._wrong(f"NaN or infinity in {bad}")
        self._src = self._table(TABLES["encoder"])
        self._tgt = self._table(TABLES["decoder"])
        self._out = self._tgt
        config, tensors = folder.config, self._tensors
        tied = config.get("tie_word_embeddings", True)
        if not tied or OUTPUT in tensors:
            self._out = self._get(OUTPUT)
            if tied:
                self._require_equal(self._out, self._tgt, "tie_word_embeddings is true", OUTPUT)
        shared = tied and config.get("share_encoder_decoder_embeddings", True)
        if shared:
            reason = "source and target share one embedding"
            self._require_equal(self._src, self._tgt, reason, TABLES["encoder"])
        sizes = [config.get("vocab_size")] * 2
        if not shared:
            sizes[1] = config.get("decoder_vocab_size") or sizes[1]
        for name, table, size in zip(
            ("source", "target"), (self._src, self._tgt), sizes, strict=True
        ):
            if list(table.shape) != [size, config["d_model"]]:
                raise self._wrong(
                    f"the {name} embedding has the shape {list(table.shape)}, and config.json says "
                    f"{[size, config['d_model']]}"
                )
        bias = tensors.get(BIAS)
        self.keys = {
            "tie": "none" if not tied else "src_tgt_out" if shared else "tgt_out",
            "out_bias": bias is not None and bool(bias.any()),
        }

    def convert(self, config: ModelConfig, text: Text, vocab: Vocab) -> MadeTensors:
        """Return the tensors of our model, fp32.

        Raises:
            UserError: they are not those of config.json and of the tokenizer.
        """
        if text.src is not text.tgt and config.tie == "src_tgt_out":
            raise self._wrong("the tokenizer has two vocabularies, and config.json one embedding")
        learned = config.positions == "learned"
        order = torch.arange(config.dim) if learned else sines_first(config.dim).argsort()
        positions = {
            f"model.{stack}.embed_positions.weight": f"{side}.positions.weight"
            for stack, side in (("encoder", "src_input"), ("decoder", "tgt_input"))
            if learned
        }
        parts: dict[str, list[TensorPair]] = {}
        for pair in tensor_pairs(config):
            tensor = self._get(pair.theirs)
            parts.setdefault(pair.ours, []).append(pair)
            vector = pair.theirs.endswith(("bias", "norm.weight", "layernorm_embedding.weight"))
            if tensor.dim() != (1 if vector else 2) or any(
                tensor.shape[axis : axis + 1] != (config.dim,) for axis in pair.axes
            ):
                raise self._wrong(
                    f"tensor {pair.theirs} has the shape {list(tensor.shape)}, and config.json "
                    f"says d_model {config.dim}"
                )
        layers = {pair.theirs for pairs in parts.values() for pair in pairs}
        known = {SHARED, *TABLES.values(), OUTPUT, BIAS, *positions, *layers}
        extra = [n for n in self._tensors if n not in known and not _SINES.fullmatch(n)]
        if extra:
            raise self._wrong(f"has tensors that config.json does not describe: {_some(extra)}")
        settings = self._folder.read_json(GENERATION) | self._folder.config
        start = settings.get("decoder_start_token_id")
        if not (type(start) is int and 0 <= start < len(self._tgt)):
            what = f"decoder_start_token_id is {start!r}, not the id of a token"
            raise damaged(what, self._folder.path / CONFIG_JSON)
        tgt = self._rows(text.tgt, self._tgt, start, vocab)
        make: dict[str, Callable[[], Tensor]] = {
            name: partial(from_transformers, pairs, self._tensors, order)
            for name, pairs in parts.items()
        }
        for theirs, ours in positions.items():
            make[ours] = self._get(theirs)[OFFSET:].float
        tables = {"embed.weight": _select(self._tgt, tgt, order)}
        if config.tie != "src_tgt_out":
            src = self._rows(text.src, self._src, text.src.unk, vocab)
            tables["src_embed.weight"] = _select(self._src, src, order)
        if config.tie == "none":
            tables["out_embed.weight"] = _select(self._out, tgt, order)
        if config.out_bias and self._tensors[BIAS].numel() != len(self._tgt):
            raise self._wrong(f"{BIAS} has the shape {list(self._tensors[BIAS].shape)}")
        if config.out_bias:
            bias = self._tensors[BIAS].reshape(-1)[tgt].float()
            tables["out_bias"] = bias.where(bias > MASKED_LOGIT, 0.0)
        with torch.device("meta"):
            empty = Transformer(config, len(vocab), initialize=False)
        shapes = {name: tensor.shape for name, tensor in empty.state_dict().items()}
        for name in [*parts, *positions.values()]:
            if (found := make[name]().shape) != shapes[name]:
                raise self._wrong(
                    f"tensor {name} would have the shape {list(found)}, and config.json says "
                    f"{list(shapes[name])}"
                )
        return MadeTensors(shapes, make, tables)

    def forbidden(self) -> set[int]:
        """Return the rows that the output bias forbids."""
        bias = self._tensors.get(BIAS, torch.zeros(0)).reshape(-1)
        return set((bias <= MASKED_LOGIT).nonzero()[:, 0].tolist())

    def _rows(self, side: Side, table: Tensor, start: int, vocab: Vocab) -> Tensor:
        """Return [V]: the row of each type in the table of a side.

        A type of the other side alone has the row of UNK: their tokenizer reads it as that.

        Args:
            start: row of the token that the decoder starts with, which is our BOS.
        """
        special = {PAD: side.unk, BOS: start, EOS: side.eos, UNK: side.unk}
        types = vocab.pieces(range(len(SPECIALS), len(vocab)))
        rows = [special[i] for i in range(len(SPECIALS))]
        rows += [side.rows.get(piece, side.unk) for piece in types]
        if max(rows) >= len(table):
            raise self._wrong(
                f"the tokenizer has the id {max(rows):,}, and the embedding {len(table):,} rows"
            )
        return torch.tensor(rows)

    def _table(self, name: str) -> Tensor:
        return self._tensors[name] if name in self._tensors else self._get(SHARED)

    def _get(self, name: str) -> Tensor:
        if name not in self._tensors:
            raise self._wrong(f"lacks the tensor {name}")
        return self._tensors[name]

    def _require_equal(self, one: Tensor, other: Tensor, reason: str, name: str) -> None:
        if one is not other and not torch.equal(one, other):
            raise self._wrong(f"{reason} in config.json, but {name} is another matrix")

    def _wrong(self, what: str) -> UserError:
        files = ", ".join(self._folder.weight_files())
        return damaged(what, self._folder.path / files)


class MadeTensors(Mapping[str, Tensor]):
    """Tensors of layers, made each time they are read, and the tables, which are in memory.

    Attributes:
        shapes: of all of them.
    """

    def __init__(
        self,
        shapes: Mapping[str, torch.Size],
        make: Mapping[str, Callable[[], Tensor]],
        tables: Mapping[str, Tensor],
    ) -> None:
        self.shapes, self._make, self._tables = shapes, make, tables

    def __getitem__(self, name: str) -> Tensor:
        return self._tables[name] if name in self._tables else self._make[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)

    @property
    def parameters(self) -> int:
        """The number of their values."""
        return sum(shape.numel() for shape in self.shapes.values())


def _select(table: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return rows and columns of a table, fp32, without a second copy."""
    result = torch.empty(len(rows), len(columns))
    for part, chosen in zip(result.split(4096), rows.split(4096), strict=True):
        part.copy_(table[chosen][:, columns])
    return result


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
    return ", ".join(sorted(names)[:3]) + more
