"""Write a model as a page that translates in any browser, offline, opened from disk.

::

    DIR/index.html     the page
    DIR/model.js       settings, vocabulary and weights, as a script: a page on disk may not fetch
    DIR/translate.js   the engine; also for node and for other pages
    DIR/sw.js, manifest.webmanifest, icon.svg    over https only: works offline after one visit
    DIR/README.md, nmt-export.json

The engine computes in fp32; ``storage`` is how the weights are stored. The files of browser/ are
joined as they are, so no build step is needed.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from dataclasses import fields
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import torch

from nmt.apps.export.browser_rules import rules
from nmt.config.entries import Direction
from nmt.config.model import model_config
from nmt.data.segmenters.sentencepiece import (
    MODEL,
    UNUSED,
    USER_DEFINED,
    SentencePiece,
    read_scores,
    unusual_settings,
)
from nmt.data.vocab import BOS, PAD, UNK, tag_piece
from nmt.decoding.codec import MAX_SOURCE_PIECES, codec_of
from nmt.decoding.ctranslate2.fold import Weights, fold_exactly
from nmt.decoding.engine import info_of
from nmt.decoding.torch_engine import TorchEngine
from nmt.decoding.translator import Translator
from nmt.errors import UserError
from nmt.model.config import ModelConfig
from nmt.model.transformer import Transformer
from nmt.runtime.files import human_bytes
from nmt.store.model import Model, check_output, output_folder
from nmt.store.tensors import read_weights
from nmt.text.languages import base_language, own_name, sentence_space, standard_code
from nmt.version import __version__

STORAGES = ("fp16", "int8", "fp32")
MARKER = "nmt-export.json"
LARGEST = 150_000_000  # bytes of model.js; a phone has no memory for more
SOURCES = Path(__file__).with_name("browser")
# keys of a model -> the values that the engine computes; () = all
COMPUTED: dict[str, tuple[Any, ...]] = {
    "activation": ("relu", "gelu", "relu2", "geglu", "swish"),
    "extra_norm": ("layernorm", "rmsnorm", "scalenorm"),
    "head_scale_place": ("inside", "outside"),
    "norm": ("layernorm", "rmsnorm", "scalenorm"),
    "norm_place": ("pre", "post"),
    "positions": ("sinusoidal", "fairseq", "learned"),
    "res_scale": ("none", "ffn", "all", "scalar"),
    "src_eos": (True,),
    **dict.fromkeys(
        """attn_dropout bias dec_layers dim dropout embed_norm enc_layers ffn_dim ffn_dropout
        ffn_norm fixnorm head_scale heads init logit_mask max_positions norm_eps out_bias
        post_attn_norm qkv_norm scalenorm_gain tie word_dropout""".split(),  # noqa: SIM905
        (),
    ),
}
_HEAD = "dim heads enc_layers dec_layers activation norm_place norm_eps positions".split()  # noqa: SIM905
_DECODE = (
    "beam length_alpha length_penalty max_len_offset no_repeat_ngram stop_rule".split()  # noqa: SIM905
)


def export_browser(
    model: Model, output: Path, storage: str, force: bool, license_id: str | None = None
) -> None:
    """Write a translation model as a folder with a page; it gets its name when it is complete.

    Raises:
        UserError: the page cannot compute what the model needs, model.js would be too large, or
            ``check_output`` rejects the output.
    """
    check_fits(model)
    check_output(output, force, MARKER)
    config, weights = folded(model)
    script = model_script(model, config, weights, storage)
    with output_folder(output, force, MARKER) as folder:
        write_page(model, folder, script, storage, license_id)


def check_fits(model: Model) -> None:
    """Check that a page can compute a model.

    Raises:
        UserError: it cannot; the message names every key that prevents it.
    """
    config, segmenter = model_config(model.about.model), model.segmenter
    obstacles = [
        f"model.{field.name}: {value}"
        for field in fields(ModelConfig)
        for value in [getattr(config, field.name)]
        if field.name not in COMPUTED or not (COMPUTED[field.name] or (value,)).count(value)
    ]
    if not isinstance(segmenter, SentencePiece):
        obstacles.append(f"segment.kind: {segmenter.kind}")
    elif segmenter.raw:
        obstacles.append("segment.model, which is of another toolkit")
    else:
        proto = segmenter.files()[MODEL]
        obstacles += [f"segment.model, {name}" for name in unusual_settings(proto)]
        kind, symbols = read_scores(proto, USER_DEFINED)
        if symbols and kind == "unigram":  # the rounding of equal segmentations is not reproduced
            obstacles.append("segment.model, user_defined_symbols of a unigram model")
    if segmenter.moses.tokenized:
        obstacles.append("data.tokenized: true")
    if obstacles:
        raise UserError(
            "the page cannot compute this model:\n  " + "\n  ".join(obstacles),
            fix="train with segment.kind=sentencepiece on plain text, or serve the model with "
            "nmt-serve",
        )


def folded(model: Model) -> tuple[ModelConfig, Weights]:
    """Read the weights of a model, with FixNorm, HeadScale and the logit mask multiplied in."""
    allowed = torch.from_numpy(model.allowed)
    return fold_exactly(read_weights(model), model_config(model.about.model), allowed)


# ---------------------------------------------------------------- weights


def stored(array: np.ndarray, storage: str) -> bytes:
    """Return a tensor as it is stored: a matrix in fp32, fp16 or int8, other tensors in fp32.

    A row in int8 begins with its scale in fp32.

    Raises:
        UserError: a weight exceeds the range of fp16.
    """
    if array.ndim < 2 or storage == "fp32":
        return array.astype("<f4").tobytes()
    if storage == "fp16":
        with np.errstate(over="ignore"):
            half = array.astype("<f2")
        if not np.isfinite(half).all():
            what = "a weight is above 65,504, the largest number of fp16"
            raise UserError(what, fix="use --quantization int8 or fp32")
        return half.tobytes()
    scale, rows = _int8(array)
    return b"".join(s.tobytes() + row.tobytes() for s, row in zip(scale, rows, strict=True))


def rounded(array: np.ndarray, storage: str) -> np.ndarray:
    """Return a tensor with the precision in which it is stored."""
    if array.ndim < 2 or storage == "fp32":
        return array
    if storage == "fp16":
        return array.astype(np.float16).astype(np.float32)
    scale, rows = _int8(array)
    return rows.astype(np.float32) * scale


def _int8(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scale = (np.abs(array).max(1, keepdims=True) / 127).astype("<f4")  # [rows, 1]
    scale[scale == 0] = 1
    return scale, np.rint(array / scale).astype(np.int8)


def rounded_translator(model: Model, storage: str) -> Translator:
    """Return a translator that computes as a page does, with torch and the stored weights."""
    config, weights = folded(model)
    transformer = Transformer(config, len(model.vocab), initialize=False)
    arrays = {name: rounded(tensor.float().numpy(), storage) for name, tensor in weights.items()}
    transformer.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
    codec = codec_of(model)
    engine = TorchEngine(transformer.eval(), codec, torch.device("cpu"))
    return Translator(engine, codec, info_of([model]))


# ---------------------------------------------------------------- files


def model_script(model: Model, config: ModelConfig, weights: Weights, storage: str) -> str:
    """Return model.js.

    Raises:
        UserError: it would be larger than LARGEST.
    """
    data = b"".join(stored(tensor.float().numpy(), storage) for tensor in weights.values())
    head = settings(model, config, storage)
    head["tensors"] = [[name, *tensor.shape] for name, tensor in weights.items()]
    text = json.dumps(head, ensure_ascii=False, separators=(",", ":"))
    weights_text = base64.b64encode(data).decode()
    script = (
        f"// A translation model; translate.js reads it.\n"
        f'globalThis.nmtModel = {text[:-1]},\n"weights":"{weights_text}"}};\n'
        'if (typeof module === "object") module.exports = globalThis.nmtModel;\n'
    )
    size = len(script.encode())
    if size > LARGEST:
        smaller = {"fp32": "fp16 or int8", "fp16": "int8"}.get(storage)
        raise UserError(
            f"model.js would have {human_bytes(size)}; for phones, at most "
            f"{human_bytes(LARGEST)} are allowed",
            at="--quantization",
            fix=f"use --quantization {smaller}" if smaller else "train a smaller model",
        )
    return script


def settings(model: Model, config: ModelConfig, storage: str) -> dict[str, Any]:
    """Return what the engine needs of a model besides its weights."""
    about, vocab, segmenter = model.about, model.vocab, model.segmenter
    assert isinstance(segmenter, SentencePiece)
    proto, decode = segmenter.files()[MODEL], about.decode
    kind, pieces = read_scores(proto)
    forbidden = [PAD, BOS, *vocab.reserved_ids, *([] if decode.allow_unk else [UNK])]
    learned = config.positions == "learned"
    return {
        "storage": storage,
        "directions": [_direction(model, way) for way in directions(model)],
        "model": {name: getattr(config, name) for name in _HEAD}
        | {"longest": config.max_positions if learned else None},
        "decode": {name: getattr(decode, name) for name in _DECODE},
        "forbidden": forbidden,
        "text": {
            "form": segmenter.moses.form,
            "sentences": about.usual_line.sentences,
            "lengthRatio": about.usual_line.length_ratio,
            "longest": MAX_SOURCE_PIECES,
        },
        "segmenter": {
            "kind": kind,
            "pieces": _scored(pieces),
            "unused": _scored(read_scores(proto, UNUSED)[1]),
            "userDefined": sorted(read_scores(proto, USER_DEFINED)[1]),
            "byteFallback": bool(segmenter.alphabet()),
        },
        "vocab": vocab.pieces(range(len(vocab))),
    }


def _scored(pieces: dict[str, float]) -> list[list[Any]]:
    """Return pieces with the shortest numbers that are their scores in fp32."""
    return [[piece, float(str(np.float32(score)))] for piece, score in pieces.items()]


def directions(model: Model) -> list[Direction]:
    """Return the directions to choose from, that of the recipe first.

    Of languages whose sources also come without a tag, that is the direction; tags such as <bt>
    then mark data, not a choice of the user.
    """
    about = model.about
    trained = list(dict.fromkeys(about.directions)) or [Direction(about.src, about.tgt)]
    plain = {way.langs for way in trained if way.tags == (None, None)}
    offered = [way for way in trained if way.langs not in plain or way.tags == (None, None)]
    return sorted(offered, key=lambda way: way.langs != (about.src, about.tgt))


def _direction(model: Model, direction: Direction) -> dict[str, Any]:
    ids, usual = model.vocab.ids, model.about.usual_line
    src, tgt = direction.langs
    lang = base_language(src)
    return {
        "src": standard_code(src),
        "tgt": standard_code(tgt),
        "names": [own_name(src), own_name(tgt)],
        "tags": [tag for tag in direction.tags if tag],
        "tag": ids(tag_piece(direction.tag)),
        "tgtTag": ids(tag_piece(direction.tgt_tag)),
        "lang": lang,
        "abbreviations": list(usual.abbreviations.get(lang, ())),
        "space": sentence_space(tgt),
    }


def write_page(
    model: Model, folder: Path, script: str, storage: str, license_id: str | None
) -> None:
    """Write the files of a page into an empty folder; ``script`` is model.js."""
    first = directions(model)[0]
    title = f"{own_name(first.src)} → {own_name(first.tgt)}"
    origin = model.about.origin
    license_id = license_id or (origin.license if origin else None)
    values = {
        "title": title,
        "version": __version__,
        "model": model.about.name,
        "source": origin.describe() if origin else "trained with nmt",
        "license": license_id or "not recorded; ask whoever gave you this folder",
        "storage": storage,
        "size": human_bytes(len(script.encode())),
    }
    engine = translate_script()
    style, code = _source("page.css"), _source("page.js")
    page = Template(_source("page.html")).substitute(
        {name: html.escape(value) for name, value in values.items()},
        lang=standard_code(first.tgt),
        style=style,
        script=code,
        style_hash=_hash(style),
        script_hash=_hash(code),
    )
    manifest = {
        "name": title,
        "short_name": title,
        "start_url": "./index.html",
        "display": "standalone",
        "background_color": "#f6f7f9",
        "theme_color": "#1f5fbf",
        "icons": [{"src": "icon.svg", "sizes": "any", "type": "image/svg+xml"}],
    }
    digest = hashlib.sha256((script + engine + page).encode()).hexdigest()[:16]
    files = {
        "index.html": page,
        "model.js": script,
        "translate.js": engine,
        "sw.js": _source("sw.js").replace("VERSION", digest),
        "manifest.webmanifest": json.dumps(manifest, indent=1, ensure_ascii=False) + "\n",
        "icon.svg": _source("icon.svg"),
        "README.md": Template(_source("README.md")).substitute(values),
        MARKER: json.dumps(
            {"format": "web", "nmt": __version__, "model": model.hash, "storage": storage}, indent=1
        )
        + "\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


def translate_script() -> str:
    """Return translate.js: the engine, the rules of text, and the kernel."""
    text = _source("translate.js")
    text = re.sub(r"^//= (\S+)\n", lambda match: _source(match[1]), text, flags=re.MULTILINE)
    kernel = base64.b64encode((SOURCES / "kernel.wasm").read_bytes()).decode()
    for name, value in (
        ("RULES_TABLE", rules()),
        ("KERNEL_BASE64", kernel),
        ("NMT_VERSION", __version__),
    ):
        text = text.replace(name, value, 1)
    return text


def _source(name: str) -> str:
    return (SOURCES / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
