"""Compare SentencePiece models of others here and in SentencePiece itself.

    python -m benchmarks.foreign_tokenizers MODEL... --input TEXT...

Lines with U+2581, or with white space other than single spaces, are left out: nmt reads those in
another way on purpose.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import sentencepiece

from nmt.data.segmenters.sentencepiece import SPACE, SentencePiece
from nmt.text.tokenizer import Moses


def compare(model: Path, lines: list[str]) -> tuple[int, int]:
    """Return how many lines have the same pieces, and how many of these also the same text."""
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(model))
    ours = SentencePiece(Moses(False, "none", exact=True), model.read_bytes())
    pieces = texts = 0
    for line in lines:
        expected = theirs.encode(line, out_type=str)
        if ours.encode(line, "en") == expected:
            pieces += 1
            texts += ours.decode(expected, "en") == theirs.decode(expected)
    return pieces, texts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL")
    parser.add_argument("--input", nargs="+", type=Path, required=True, metavar="TEXT")
    args = parser.parse_args()
    text = [line for path in args.input for line in path.read_text(encoding="utf-8").split("\n")]
    lines = [line for line in text if line and line == " ".join(line.split()) and SPACE not in line]
    print("| model | lines | same pieces | same text |\n|---|---:|---:|---:|")
    for model in args.models:
        pieces, texts = compare(model, lines)
        print(f"| {model.name} | {len(lines):,} | {pieces:,} | {texts:,} |")


if __name__ == "__main__":
    main()
