"""nmt-export: write a trained model as a folder for another inference engine."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from nmt.cli.common import enable_gc, run_command

QUANTIZATIONS = [
    "int8", "int8_float32", "int8_float16", "int8_bfloat16",
    "int16", "float16", "bfloat16", "float32",
]  # fmt: skip


def parser() -> argparse.ArgumentParser:
    """Return the command line of nmt-export."""
    p = argparse.ArgumentParser(
        prog="nmt-export",
        description="Write a trained model as a folder for CTranslate2: weights, segmenter, "
        "vocabulary, and a short Python program that translates without this toolkit.",
    )
    p.add_argument("run", metavar="RUN", help="run folder from nmt-train")
    p.add_argument(
        "--format",
        choices=["ctranslate2"],
        default="ctranslate2",
        help="inference engine; default: %(default)s",
    )
    p.add_argument(
        "--quantization",
        choices=QUANTIZATIONS,
        metavar="TYPE",
        help=f"type of the stored weights: {', '.join(QUANTIZATIONS)}; default: float32",
    )
    p.add_argument(
        "--output",
        metavar="DIR",
        help="new folder; default: RUN/ctranslate2 or RUN/ctranslate2-TYPE",
    )
    p.add_argument("--force", action="store_true", help="replace an exported model at --output")
    p.add_argument(
        "--checkpoint",
        default="best",
        metavar="NAME",
        help="best, latest or a name such as u001500; default: %(default)s",
    )
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return run_command(body, parser, argv)


def body(args: argparse.Namespace) -> None:
    """Check the run and the output before reading the weights, then export."""
    from nmt.run.folder import RunFolder
    from nmt.runtime.files import human_bytes

    run = RunFolder.open(args.run)
    run.require_translation()
    name = args.format + (f"-{args.quantization}" if args.quantization else "")
    output = Path(args.output) if args.output else run.path / name
    recipe = run.recipe()
    from nmt.decoding.translator import Translator
    from nmt.export.folder import check_output, export
    from nmt.export.spec import check_supported, require_ctranslate2

    enable_gc()
    check_supported(recipe.model)
    require_ctranslate2()
    check_output(output, args.force)
    export(Translator.load(args.run, "cpu", args.checkpoint), output, args.quantization, args.force)
    size = human_bytes(sum(file.stat().st_size for file in output.iterdir()))
    print(f"wrote {output} ({size}); {output / 'README.md'} shows how to use it", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
