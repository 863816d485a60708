"""nmt-export: write a trained model as a folder for another inference engine."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from nmt.cli.common import enable_gc, run_command
from nmt.cli.parsers import command_parser
from nmt.errors import UserError

QUANTIZATIONS = [
    "int8", "int8_float32", "int8_float16", "int8_bfloat16",
    "int16", "float16", "bfloat16", "float32",
]  # fmt: skip

EXAMPLES = """\
examples:
  %(prog)s runs/gl-en --quantization int8
  %(prog)s runs/gl-en --hub gl-en-model --license apache-2.0
  %(prog)s runs/gl-en --format transformers -o gl-en-hf"""


def parser() -> argparse.ArgumentParser:
    """Return the command line of nmt-export."""
    p = command_parser(
        "nmt-export",
        usage="%(prog)s RUN [options]",
        description="Write a trained model as a folder for CTranslate2: weights, segmenter, "
        "vocabulary, and a short Python program that translates without this toolkit. With --hub, "
        "add a model card made from the run. --format transformers writes a folder for Hugging "
        "Face's library, if one of its classes computes the model.",
        epilog=EXAMPLES,
    )
    p.add_argument("run", metavar="RUN", help="run folder from nmt-train")
    p.add_argument(
        "--format",
        choices=["ctranslate2", "transformers"],
        default="ctranslate2",
        help="program that reads the folder; default: %(default)s",
    )
    p.add_argument(
        "--quantization",
        choices=QUANTIZATIONS,
        metavar="TYPE",
        help=f"type of the stored weights: {', '.join(QUANTIZATIONS)}; default: float32",
    )
    p.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        help="folder to write; default: RUN/FORMAT or RUN/ctranslate2-TYPE",
    )
    p.add_argument(
        "--hub", metavar="DIR", help="write a folder ready for a model hub, with a model card"
    )
    p.add_argument(
        "--license",
        metavar="ID",
        help="license of the model in the card of --hub, such as apache-2.0 or cc-by-4.0",
    )
    p.add_argument(
        "--example",
        action="append",
        metavar="TEXT",
        help="source sentence of the example in the card of --hub; repeat the option for more; "
        "default: lines of the dev set",
    )
    p.add_argument(
        "--force", action="store_true", help="replace an exported model at --output or --hub"
    )
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
    from nmt.runtime.files import AGAIN, disk_errors, human_bytes

    _check_options(args)
    run = RunFolder.open(args.run)
    run.require_translation()
    name = args.format + (f"-{args.quantization}" if args.quantization else "")
    output = Path(args.hub or args.output or run.path / name)
    recipe = run.recipe()
    from nmt.decoding.translator import Translator
    from nmt.export.folder import check_output, export
    from nmt.export.spec import check_supported, require_ctranslate2
    from nmt.run.checkpoint import MODEL

    enable_gc()
    weights = run.checkpoints()[-1] / MODEL
    needed = weights.stat().st_size if weights.is_file() else 0
    needed //= 4 if (args.quantization or "").startswith("int8") else 1
    with disk_errors(
        output, needed, f"choose another {'--hub' if args.hub else '--output'}", AGAIN
    ):
        if args.hub:
            from nmt.export.hub import export_hub

            export_hub(run, output, args.quantization, args.force, args.license, args.example)
        elif args.format == "transformers":
            from nmt.export.marian import MARKER, check_fits, export_transformers

            check_fits(recipe)
            check_output(output, args.force, MARKER)
            translator = Translator.load(args.run, "cpu", args.checkpoint)
            export_transformers(translator, recipe, output, args.force)
        else:
            check_supported(recipe.model)
            require_ctranslate2()
            check_output(output, args.force)
            translator = Translator.load(args.run, "cpu", args.checkpoint)
            export(translator, output, args.quantization, args.force)
    size = human_bytes(sum(file.stat().st_size for file in output.iterdir()))
    print(f"wrote {output} ({size}); {output / 'README.md'} shows how to use it", file=sys.stderr)


def _check_options(args: argparse.Namespace) -> None:
    """Check which options go together.

    Raises:
        UserError: an option has no effect, contradicts another one, or is not UTF-8.
    """
    if args.format == "transformers":
        for name in ("quantization", "hub"):
            if getattr(args, name):
                raise UserError(
                    f"--{name} is only for --format ctranslate2",
                    fix=f"leave out --{name} or --format",
                )
    if not args.hub:
        for name in ("license", "example"):
            if getattr(args, name):
                raise UserError(
                    f"--{name} is only for the model card of --hub",
                    fix=f"add --hub DIR, or leave out --{name}",
                )
        return
    for text in args.example or ():
        try:
            text.encode()  # the card is UTF-8
        except UnicodeEncodeError as error:
            raise UserError(
                "the text is not UTF-8",
                at=f"--example {text}",
                fix="convert it, for example with iconv",
            ) from error
    if args.output:
        raise UserError(
            "--hub and --output both name the folder to write", fix="leave out --output"
        )
    if args.checkpoint != "best":
        raise UserError(
            "--hub writes the best checkpoint, to which the scores of the card belong",
            at=f"--checkpoint {args.checkpoint}",
            fix="leave out --checkpoint",
        )


if __name__ == "__main__":
    sys.exit(main())
