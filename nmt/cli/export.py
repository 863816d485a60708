"""nmt-export: write a trained model as a folder for another inference engine."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nmt import hooks
from nmt.cli.common import enable_gc, run_command
from nmt.cli.parsers import add_output, command_parser

if TYPE_CHECKING:
    from nmt.store.model import Model

QUANTIZATIONS = [
    "int8", "int8_float32", "int8_float16", "int8_bfloat16",
    "int16", "float16", "bfloat16", "float32",
]  # fmt: skip

EXAMPLES = """\
examples:
  %(prog)s runs/gl-en --quantization int8
  %(prog)s runs/gl-en --hub gl-en-model --license apache-2.0
  %(prog)s runs/gl-en --format argos --quantization int8 -o gl-en.argosmodel"""


def parser() -> argparse.ArgumentParser:
    """Return the command line of nmt-export."""
    p = command_parser(
        "nmt-export",
        usage="%(prog)s RUN [options]",
        description="Write a model for other programs: with the weights of CTranslate2, and a "
        "short Python program that translates without this toolkit. With --hub, add a model card "
        "made from the run. --format transformers writes a folder for Hugging "
        "Face's library, if one of its classes computes the model, and --format argos a package "
        "file for Argos Translate and LibreTranslate.",
        epilog=EXAMPLES,
    )
    p.add_argument("run", metavar="RUN", help="run folder from nmt-train, or a model")
    p.add_argument(
        "--quantization",
        choices=QUANTIZATIONS,
        metavar="TYPE",
        help=f"type of the stored weights: {', '.join(QUANTIZATIONS)}; default: float32",
    )
    add_output(
        p,
        "DIR",
        "folder to write, or file NAME.argosmodel; default: RUN/export, RUN/export-TYPE, "
        "RUN/transformers or RUN/model.argosmodel",
        "an exported model at --output or --hub",
    )
    hooks.add_options("export", p)
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return run_command(body, parser, argv)


def body(args: argparse.Namespace) -> None:
    """Check the model and the output before reading the weights, then export."""
    from nmt.runtime.files import AGAIN, disk_errors, human_bytes
    from nmt.store.model import WEIGHTS, Model

    other = hooks.requested("export", args)
    model = Model.open(args.run).require_translation()
    quantized = f"-{args.quantization}" if args.quantization else ""
    default = Path(args.output or f"{args.run}/export{quantized}"), _write
    output, write = other or default
    enable_gc()
    needed = model.entry(WEIGHTS).bytes
    needed //= 4 if (args.quantization or "").startswith("int8") else 1
    with disk_errors(output, needed, "choose another folder", AGAIN):
        write(model, output, args)
    files = [output, *output.rglob("*")] if output.is_dir() else [output]
    size = human_bytes(sum(file.stat().st_size for file in files if file.is_file()))
    use = f"; {output / 'README.md'} shows how to use it" if output.is_dir() else ""
    print(f"wrote {output} ({size}){use}", file=sys.stderr)


def _write(model: Model, output: Path, args: argparse.Namespace) -> None:
    from nmt.export.folder import export

    export(model, output, args.quantization, args.force)


if __name__ == "__main__":
    sys.exit(main())
