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
    from nmt.run.folder import RunFolder

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
        description="Write a trained model as a folder for CTranslate2: weights, segmenter, "
        "vocabulary, and a short Python program that translates without this toolkit. With --hub, "
        "add a model card made from the run. --format transformers writes a folder for Hugging "
        "Face's library, if one of its classes computes the model, and --format argos a package "
        "file for Argos Translate and LibreTranslate.",
        epilog=EXAMPLES,
    )
    p.add_argument("run", metavar="RUN", help="run folder from nmt-train")
    p.add_argument(
        "--quantization",
        choices=QUANTIZATIONS,
        metavar="TYPE",
        help=f"type of the stored weights: {', '.join(QUANTIZATIONS)}; default: float32",
    )
    add_output(
        p,
        "DIR",
        "folder to write, or file NAME.argosmodel; default: RUN/FORMAT, RUN/ctranslate2-TYPE or "
        "RUN/model.argosmodel",
        "an exported model at --output or --hub",
    )
    p.add_argument(
        "--checkpoint",
        default="best",
        metavar="NAME",
        help="best, latest or a name such as u001500; default: %(default)s",
    )
    hooks.add_options("export", p)
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return run_command(body, parser, argv)


def body(args: argparse.Namespace) -> None:
    """Check the run and the output before reading the weights, then export."""
    from nmt.run.folder import RunFolder
    from nmt.runtime.files import AGAIN, disk_errors, human_bytes

    other = hooks.requested("export", args)
    run = RunFolder.open(args.run)
    run.require_translation()
    quantized = f"-{args.quantization}" if args.quantization else ""
    default = Path(args.output or f"{args.run}/ctranslate2{quantized}"), _write
    output, write = other or default
    from nmt.run.checkpoint import MODEL

    enable_gc()
    weights = run.checkpoints()[-1] / MODEL
    needed = weights.stat().st_size if weights.is_file() else 0
    needed //= 4 if (args.quantization or "").startswith("int8") else 1
    with disk_errors(output, needed, "choose another folder", AGAIN):
        write(run, output, args)
    files = list(output.iterdir()) if output.is_dir() else [output]
    size = human_bytes(sum(file.stat().st_size for file in files))
    use = f"; {output / 'README.md'} shows how to use it" if output.is_dir() else ""
    print(f"wrote {output} ({size}){use}", file=sys.stderr)


def _write(run: RunFolder, output: Path, args: argparse.Namespace) -> None:
    from nmt.config.model import model_config
    from nmt.decoding.translator import Translator
    from nmt.export.folder import check_output, export
    from nmt.export.spec import check_supported, require_ctranslate2

    check_supported(model_config(run.recipe().model))
    require_ctranslate2()
    check_output(output, args.force)
    translator = Translator.load(args.run, "cpu", args.checkpoint)
    export(translator, output, args.quantization, args.force)


if __name__ == "__main__":
    sys.exit(main())
