"""Folders as transformers has them: small models with random weights, and real tokenizers.

Each family has the files and the names that its models on the hub have.
"""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import sentencepiece
import torch

from nmt.data.segmenters.sentencepiece import _fields

SCRIPTS = (
    "abcdeghilmnorstuáéñçß",
    "абвгдежиклмнопрсту",
    "ابتجدرسعلمن",
    "कखगतदनपमरसाि",
    "我你他是的一在有人",
)
SIZES: dict[str, Any] = {
    "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24,
    "max_position_embeddings": 1024,
}  # fmt: skip
SPECIALS = {
    "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>",
    "sep_token": "</s>", "cls_token": "<s>", "mask_token": "<mask>",
}  # fmt: skip


@functools.cache
def lines(seed: int = 1, scripts: tuple[str, ...] = SCRIPTS, count: int = 300) -> list[str]:
    """Return lines of invented words, each line in one script."""
    rng = Random(seed)
    words = {s: ["".join(rng.choices(s, k=rng.randint(1, 6))) for _ in range(60)] for s in scripts}
    return [
        " ".join(rng.choices(words[script], k=rng.randint(2, 9))) + rng.choice(".!?")
        for script in (rng.choice(scripts) for _ in range(count))
    ]


@functools.cache
def sentencepiece_model(kind: str, seed: int = 1, scripts: tuple[str, ...] = SCRIPTS) -> bytes:
    """Return a model with SentencePiece's default normalizer, as the public models have it."""
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines(seed, scripts)),
        model_writer=file,
        model_type=kind,
        vocab_size=300,
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=2,
    )
    return file.getvalue()


def pieces_of(model: bytes) -> list[str]:
    """Return the pieces of text of a model."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(i) for i in range(3, processor.get_piece_size())]


def scores_of(model: bytes) -> list[tuple[str, float]]:
    """Return the pieces of a model with their scores, with its three specials."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    ids = range(processor.get_piece_size())
    return [(processor.id_to_piece(i), processor.get_score(i)) for i in ids]


def normalizer_of(model: bytes) -> bytes:
    """Return the table of a model's normalizer: field 2 of field 3."""
    return dict(_fields(dict(_fields(model))[3]))[2]


def peaked(model: Any) -> Any:
    """Draw all parameters of a model again, so that its outputs are far from uniform."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" in name and not parameter.requires_grad:
                continue  # sines
            noise = torch.randn(parameter.shape, generator=generator)
            if "layer_norm" in name and name.endswith("weight"):
                parameter.copy_(1 + 0.3 * noise)
            elif "encoder_attn" in name and name.endswith("weight"):
                parameter.copy_(0.7 * noise)  # a translation depends on its source
            else:
                parameter.copy_(0.4 * noise)
    return model


def save(model: Any, folder: Path, dtype: torch.dtype = torch.float32) -> Any:
    """Write the weights and config.json, and return the model in fp32 as transformers loads it."""
    model.to(dtype).save_pretrained(folder)
    return type(model).from_pretrained(folder, dtype=torch.float32).eval()


def write_json(path: Path, values: Any) -> None:
    path.write_text(json.dumps(values, ensure_ascii=False, indent=1), encoding="utf-8")


def marian(
    folder: Path,
    dtype: torch.dtype = torch.float32,
    tags: tuple[str, ...] = (),
    separate: bool = False,
    source: str = "eng",
    target: str = "",
    **keys: Any,
) -> Any:
    """Write a folder as those of Helsinki-NLP, and return the model.

    Args:
        tags: target languages, each with a token such as >>fra<<.
        separate: vocabularies, as some of the tc-big models have them.
    """
    from transformers import MarianConfig, MarianMTModel

    folder.mkdir(parents=True, exist_ok=True)
    models = sentencepiece_model("unigram"), sentencepiece_model("unigram", 2, SCRIPTS[:3])
    for name, model in zip(("source.spm", "target.spm"), models, strict=True):
        (folder / name).write_bytes(model)
    sides = [pieces_of(model) for model in models]
    own = [f">>{tag}<<" for tag in tags]
    joint = [*own, *sides[0], *sides[1]]
    tokens = [[*own, *sides[0]], sides[1]] if separate else [joint, joint]
    vocabularies = []
    for side in tokens:
        names = dict.fromkeys(["</s>", "<unk>", *side, "<pad>"])
        vocabularies.append({name: number for number, name in enumerate(names)})
    write_json(folder / "vocab.json", vocabularies[0])
    if separate:
        write_json(folder / "target_vocab.json", vocabularies[1])
    write_json(
        folder / "tokenizer_config.json",
        {
            "source_lang": source, "target_lang": target or ("mul" if tags else "fra"),
            "separate_vocabs": separate, "tokenizer_class": "MarianTokenizer",
        },
    )  # fmt: skip
    pad = len(vocabularies[1]) - 1
    config = MarianConfig(
        vocab_size=len(vocabularies[0]),
        decoder_vocab_size=len(vocabularies[1]),
        share_encoder_decoder_embeddings=not separate,
        pad_token_id=pad,
        eos_token_id=0,
        forced_eos_token_id=0,
        decoder_start_token_id=pad,
        activation_function="swish",
        normalize_before=False,  # these are in its config.json; CTranslate2 reads them
        normalize_embedding=False,
        add_final_layer_norm=False,
        scale_embedding=True,
        **{**SIZES, **keys},
    )
    model = peaked(MarianMTModel(config))
    with torch.no_grad():  # as in Marian: the decoder starts with zeros
        model.model.decoder.embed_tokens.weight[pad] = 0
    bias = torch.randn(model.final_logits_bias.shape, generator=torch.Generator().manual_seed(9))
    bias[0, 0] = 8  # so that some translations end
    model.final_logits_bias.copy_(bias)
    return save(model, folder, dtype)


def _multilingual(
    folder: Path, kind: str, tokenizer: str, languages: list[str], specials: dict[str, str]
) -> bytes:
    """Write the files of a tokenizer with language tokens; return its SentencePiece model."""
    folder.mkdir(parents=True, exist_ok=True)
    model = sentencepiece_model(kind)
    (folder / "sentencepiece.bpe.model").write_bytes(model)
    tokens = {**specials, "additional_special_tokens": languages}
    write_json(folder / "special_tokens_map.json", tokens)
    write_json(folder / "tokenizer_config.json", {**specials, "tokenizer_class": tokenizer})
    return model


def nllb(folder: Path, dtype: torch.dtype = torch.float32, **keys: Any) -> Any:
    """Write a folder as facebook/nllb-200-distilled-600M, and return the model."""
    from transformers import M2M100Config, M2M100ForConditionalGeneration
    from transformers.convert_slow_tokenizer import generate_merges
    from transformers.models.nllb.tokenization_nllb import FAIRSEQ_LANGUAGE_CODES, NllbTokenizer

    languages = [*FAIRSEQ_LANGUAGE_CODES]
    model = _multilingual(folder, "bpe", "NllbTokenizer", languages, SPECIALS)
    names = ["<s>", "<pad>", "</s>", "<unk>", *pieces_of(model), *languages, "<mask>"]
    vocab = {name: number for number, name in enumerate(names)}
    tokenizer = NllbTokenizer(
        vocab=vocab,
        merges=generate_merges(vocab, dict(scores_of(model)[3:])),
        additional_special_tokens=languages,
        src_lang=languages[0],
        _spm_precompiled_charsmap=normalizer_of(model),
    )
    tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))
    config = M2M100Config(vocab_size=len(names) + 2, scale_embedding=True, **{**SIZES, **keys})
    return save(peaked(M2M100ForConditionalGeneration(config)), folder, dtype)


def m2m100(folder: Path, dtype: torch.dtype = torch.float32) -> Any:
    """Write a folder as facebook/m2m100_418M, and return the model."""
    from transformers import M2M100Config, M2M100ForConditionalGeneration
    from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES

    codes = [f"__{code}__" for code in FAIRSEQ_LANGUAGE_CODES["m2m100"]]
    specials = dict([*SPECIALS.items()][:4])
    model = _multilingual(folder, "bpe", "M2M100Tokenizer", codes, specials)
    names = ["<s>", "<pad>", "</s>", "<unk>", *pieces_of(model)[::-1]]  # an order of its own
    write_json(folder / "vocab.json", {name: number for number, name in enumerate(names)})
    config = M2M100Config(vocab_size=len(names) + len(codes) + 8, scale_embedding=True, **SIZES)
    return save(peaked(M2M100ForConditionalGeneration(config)), folder, dtype)


def mbart50(folder: Path, dtype: torch.dtype = torch.float32, **keys: Any) -> Any:
    """Write a folder as facebook/mbart-large-50-many-to-many-mmt, and return the model."""
    from transformers import MBartConfig, MBartForConditionalGeneration
    from transformers.models.mbart50.tokenization_mbart50 import (
        FAIRSEQ_LANGUAGE_CODES,
        MBart50Tokenizer,
    )

    languages = [*FAIRSEQ_LANGUAGE_CODES]
    model = _multilingual(folder, "unigram", "MBart50Tokenizer", languages, SPECIALS)
    tokenizer = MBart50Tokenizer(
        vocab=scores_of(model), _spm_precompiled_charsmap=normalizer_of(model)
    )
    tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))
    types = 4 + len(pieces_of(model)) + len(languages) + 1
    config = MBartConfig(
        vocab_size=types,
        scale_embedding=True,
        activation_function="relu",
        normalize_before=True,  # these are in its config.json; CTranslate2 reads them
        normalize_embedding=True,
        add_final_layer_norm=True,
        tokenizer_class="MBart50Tokenizer",
        decoder_start_token_id=2,
        **{**SIZES, **keys},
    )
    return save(peaked(MBartForConditionalGeneration(config)), folder, dtype)


FAMILIES: dict[str, Callable[..., Any]] = {
    "marian": marian, "nllb": nllb, "m2m100": m2m100, "mbart50": mbart50
}  # fmt: skip


def odd_lines(count: int = 1000) -> list[str]:
    """Return lines of mixed scripts with decomposed letters, emoji, signs that are not seen."""
    rng = Random(5)
    odd = [
        "e\u0301", "n\u0303a\u0301", "\u0915\u093c", "\u1100\u1161\u11a8", "\ufb01", "\uff21",
        "\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1eb\U0001f1f7",
        "\u2764\ufe0f", "\u200b", "\u200c", "\u200d", "\u2060", "\u00ad", "\ufeff", "\u200e",
        "\u202b", "\u2028", "\t", "  ", "\u00a0", "\u3000", "\u202f", "\u2581", "\u2581\u2581",
        "...", "\u2026", "\u00bd", "\u0130", "\u00df", "x" * 300, "\u6211" * 150, "a\u0300" * 80,
        "12345", "3,14", "%", "&amp;", "<b>", "[x]", "\\", "\u00e6\u00f8", "\u05d0\u05d1",
        "\u0e01\u0e33", "\u1ea5", "@@", "##a", "\u2488",
    ]  # fmt: skip
    words = [word for line in lines() for word in line.split()]
    found = ["", " ", "\t"]
    while len(found) < count:
        parts = [rng.choice(odd if rng.random() < 0.4 else words) for _ in range(rng.randint(1, 9))]
        found.append("".join(part + rng.choice(["", " ", " ", " "]) for part in parts))
    return found
