"""A program that translates with an exported folder and needs nothing of this toolkit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nmt.config.recipe import DecodeConfig
from nmt.data.segment import Segmenter

TYPICAL = 25  # pieces, where the two length penalties are made to grow alike

_PROGRAM = """\
{standard}

{imports}

{setup}
translator = ctranslate2.Translator(".", device="auto")


def translate(line):
    {encode}
    if not pieces:
        return ""
    found = translator.translate_batch(
        [pieces],
        max_decoding_length=len(pieces) + {offset},
        {options}
    )
    pieces = found[0].hypotheses[0]
    return {decode}


if __name__ == "__main__":
    sys.stdin.reconfigure(encoding="utf-8")
    sys.stdout.reconfigure(encoding="utf-8")
    for line in sys.stdin:
        print(translate(line))
"""
_BPE = """\
merges = open("codes.txt", encoding="utf-8").read().splitlines()
merges = [merge.rpartition(" ")[0] for merge in merges]  # without fastBPE's counts"""
_KEPT = 'kept = set(open("kept.txt", encoding="utf-8").read().splitlines())'


@dataclass
class _Text:
    """What a program needs for text to pieces and back.

    Attributes:
        packages: to install.
        standard, imports, setup, encode: lines; ``encode`` turns ``line`` into ``pieces``.
        decode: an expression, ``pieces`` to text.
    """

    packages: list[str] = field(default_factory=lambda: ["ctranslate2"])
    standard: list[str] = field(default_factory=lambda: ["import sys"])
    imports: list[str] = field(default_factory=lambda: ["import ctranslate2"])
    setup: list[str] = field(default_factory=list)
    encode: list[str] = field(default_factory=list)
    decode: str = "pieces"


def ctranslate2_penalty(alpha: float) -> float:
    """CTranslate2's ``length_penalty`` that comes nearest to GNMT's alpha.

    It divides by ``n^p``, we by ``((5 + n) / 6)^alpha``. Relative growth with n is ``p / n`` and
    ``alpha / (5 + n)``: equal at n = 25 for p = 5/6 alpha.
    """
    return alpha * TYPICAL / (5 + TYPICAL)


def program(
    segmenter: Segmenter, src: str, tgt: str, decode: DecodeConfig, never: Sequence[str]
) -> tuple[str, list[str]]:
    """Python text that translates standard input, and the packages that it needs.

    Args:
        never: tokens that must not be produced, beside UNK.
    """
    text = _text(segmenter, _family(src), _family(tgt))
    options: dict[str, object] = {
        "beam_size": decode.beam,
        "length_penalty": round(ctranslate2_penalty(decode.length_alpha), 3),
        "disable_unk": not decode.allow_unk,
    }
    if never:
        options["suppress_sequences"] = [[token] for token in never]
    return _PROGRAM.format(
        standard="\n".join(text.standard),
        imports="\n".join(text.imports),
        setup="\n".join(text.setup),
        encode="\n    ".join(text.encode),
        decode=text.decode,
        offset=1 + decode.max_len_offset,
        options="\n        ".join(
            f"{name}={value!r},".replace("'", '"') for name, value in options.items()
        ),
    ).replace("\n\n\ntranslator", "\n\ntranslator"), text.packages


def _family(lang: str) -> str:
    """A language code as sacremoses knows it: ``pt_BR`` -> ``pt``."""
    return lang.split("-")[0].split("_")[0].lower()


def _text(segmenter: Segmenter, src: str, tgt: str) -> _Text:
    moses, text = segmenter.moses, _Text()
    if moses.nfc:
        text.standard.append("import unicodedata")
        text.encode.append('line = unicodedata.normalize("NFC", line)')
    if segmenter.kind == "sentencepiece":
        text.packages.append("sentencepiece")
        text.imports.append("import sentencepiece")
        text.setup.append('spm = sentencepiece.SentencePieceProcessor(model_file="spm.model")')
        text.encode.append('pieces = spm.encode(" ".join(line.split()), out_type=str)')
        # which joins bytes to characters
        text.decode = "spm.decode(pieces).strip()"
        if not segmenter.alphabet():
            text.decode = '"".join(pieces).replace("\\u2581", " ").strip()'
        if not moses.tokenized:
            return text
        text.decode += ".split()"
    text.packages.append("sacremoses")
    text.setup.append(f'detokenizer = MosesDetokenizer("{tgt}")')
    if moses.tokenized:
        text.imports.append("from sacremoses import MosesDetokenizer")
        words = "line.split()"
    else:
        text.imports.append("from sacremoses import MosesDetokenizer, MosesTokenizer")
        text.setup.append(f'tokenizer = MosesTokenizer("{src}")')
        words = "tokenizer.tokenize(line)"
    if segmenter.kind == "fastbpe":
        _add_bpe(text, "kept.txt" in segmenter.files())
        words = f"bpe.segment_tokens({words})"
    if segmenter.kind != "sentencepiece":
        text.encode.append(f"pieces = {words}")
    text.decode = f"detokenizer.detokenize({text.decode})"
    return text


def _add_bpe(text: _Text, kept: bool) -> None:
    text.packages.append("subword-nmt")
    text.standard.insert(0, "import io")
    text.imports.append("from subword_nmt.apply_bpe import BPE")
    text.setup.append(_BPE)
    if kept:
        text.setup.append(_KEPT)
    codes = 'io.StringIO("\\n".join(["#version: 0.2", *merges]))'
    text.setup.append(f"bpe = BPE({codes}{', vocab=kept' if kept else ''})")
    text.decode = '(" ".join(pieces) + " ").replace("@@ ", "").split()'
