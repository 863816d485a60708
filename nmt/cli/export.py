"""nmt-export: write a trained model as a folder for another inference engine."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.cli.common import enable_gc, run_command
from nmt.cli.parsers import add_output, command_parser
from nmt.errors import UserError

if TYPE_CHECKING:
    from nmt.decoding.translator import Translator
    from nmt.store.model import Model

QUANTIZATIONS = [
    "int8", "int8_float32", "int8_float16", "int8_bfloat16",
    "int16", "float16", "bfloat16", "float32",
]  # fmt: skip
STORAGES = ["fp16", "int8", "fp32"]  # of a page
OUTPUTS = {"transformers": "transformers", "argos": "model.argosmodel", "web": "web"}  # in RUN

EXAMPLES = """\
examples:
  %(prog)s runs/gl-en --quantization int8
  %(prog)s runs/gl-en --hub gl-en-model --license apache-2.0
  %(prog)s runs/gl-en --format web"""


def parser() -> argparse.ArgumentParser:
    """Return the command line of nmt-export."""
    p = command_parser(
        "nmt-export",
        usage="%(prog)s RUN [options]",
        description="Write a model for other programs: with the weights of CTranslate2, and a "
        "short Python program that translates without this toolkit. With --hub, add a model card "
        "made from the run. --format transformers writes a folder for Hugging "
        "Face's library, if one of its classes computes the model, --format argos a package "
        "file for Argos Translate and LibreTranslate, and --format web a page that translates in "
        "a browser, without a server or a network.",
        epilog=EXAMPLES,
    )
    p.add_argument("run", metavar="RUN", help="run folder from nmt-train, or a model")
    p.add_argument(
        "--quantization",
        choices=[*QUANTIZATIONS, "fp16", "fp32"],
        metavar="TYPE",
        help=f"type of the stored weights: {', '.join(QUANTIZATIONS)}; default: float32; of "
        f"--format web: {', '.join(STORAGES)}; default: fp16",
    )
    add_output(
        p,
        "DIR",
        "folder to write, or file NAME.argosmodel; default: RUN/export, RUN/export-TYPE, "
        "RUN/transformers, RUN/model.argosmodel or RUN/web",
        "an exported model at --output or --hub",
    )
    p.add_argument(
        "--format",
        choices=["ctranslate2", "transformers", "argos", "web"],
        default="ctranslate2",
        help="program that reads the model; argos = a package file for Argos Translate and "
        "LibreTranslate; web = a page for any browser; default: %(default)s",
    )
    p.add_argument(
        "--hub", metavar="DIR", help="write a folder ready for a model hub, with a model card"
    )
    p.add_argument(
        "--license",
        metavar="ID",
        help="license of the model in the card of --hub or in the page of --format web, such as "
        "apache-2.0 or cc-by-4.0",
    )
    p.add_argument(
        "--example",
        action="append",
        metavar="TEXT",
        help="source sentence of the example in the card of --hub; repeat the option for more; "
        "default: lines of the dev set of the run",
    )
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return run_command(body, parser, argv)


def body(args: argparse.Namespace) -> None:
    """Check the model and the output before reading the weights, then export."""
    from nmt.runtime.files import AGAIN, disk_errors, human_bytes
    from nmt.store.folder import CONFIG_YAML
    from nmt.store.model import WEIGHTS, Model, is_model

    _check_options(args)
    model = Model.open(args.run).require_translation()
    quantized = f"-{args.quantization}" if args.quantization else ""
    name = OUTPUTS.get(args.format, f"export{quantized}")
    output = Path(args.hub or args.output or f"{args.run}/{name}")
    enable_gc()
    needed = model.entry(WEIGHTS).bytes
    needed //= 4 if (args.quantization or "").startswith("int8") else 1
    with disk_errors(output, needed, "choose another folder", AGAIN):
        _write(model, output, args)
    files = [output, *output.rglob("*")] if output.is_dir() else [output]
    size = human_bytes(sum(file.stat().st_size for file in files if file.is_file()))
    use = f"; {output / 'README.md'} shows how to use it" if output.is_dir() else ""
    print(f"wrote {output} ({size}){use}", file=sys.stderr)
    storage = args.quantization or (STORAGES[0] if args.format == "web" else None)
    if (
        storage
        and (is_model(output) or args.format == "web")
        and Path(args.run, CONFIG_YAML).is_file()
    ):
        try:
            _print_dev_scores(args.run, _translators(model, output, storage, args))
        except UserError as error:  # such as text that was moved
            print(f"note: it is not scored on dev: {error}", file=sys.stderr)


def _translators(
    model: Model, output: Path, storage: str, args: argparse.Namespace
) -> dict[str, Translator]:
    """Load a model as it was trained and as it is stored."""
    from nmt.decoding.translator import Translator

    if args.format == "web":
        from nmt.apps.export.browser import rounded_translator

        return {name: rounded_translator(model, name) for name in ("fp32", storage)}
    load = functools.partial(Translator.load, device="cpu", engine="ctranslate2")
    return {"float32": load(args.run, quantization="fp32"), storage: load(output)}


def _print_dev_scores(run: str, translators: dict[str, Translator]) -> None:
    """Print scores on dev, of whole lines as in validations, and the number of lines that
    quantization changes."""
    from nmt.data.bitext import held_out_entries
    from nmt.scoring.metrics import score
    from nmt.scoring.systems import from_runs
    from nmt.store.folder import RunFolder

    recipe = RunFolder(run).recipe()
    for split, entry in held_out_entries(recipe, "dev").items():
        dev = from_runs([run], split, sources=True)
        options = {**recipe.options_for(entry), "split": "line"}
        exact: list[str] | None = None
        for name, translator in translators.items():
            texts = translator.translate(dev.sources, **options)
            scores = score(texts, dev.refs, ["bleu", "chrf"], dev.tgt_lang, 0, dev.other_refs)
            values = ", ".join(f"{one.name} {one.value:.2f}" for one in scores)
            exact = exact or texts
            changed = sum(map(str.__ne__, texts, exact))
            note = f"; {changed} of {len(texts)} lines change" if texts is not exact else ""
            print(f"{split} in {name}: {values}{note}", file=sys.stderr)


def _write(model: Model, output: Path, args: argparse.Namespace) -> None:
    if args.hub:
        from nmt.apps.export.hub import export_hub
        from nmt.store.folder import RunFolder

        run = RunFolder(args.run) if model.path != Path(args.run) else None
        export_hub(model, run, output, args.quantization, args.force, args.license, args.example)
    elif args.format == "transformers":
        from nmt.apps.transformers.marian import export_transformers

        export_transformers(model, output, args.force)
    elif args.format == "web":
        from nmt.apps.export.browser import export_browser

        storage = args.quantization or STORAGES[0]
        export_browser(model, output, storage, args.force, args.license)
    elif args.format == "argos":
        from nmt.apps.export.argos import export_argos

        export_argos(model, output, args.quantization, args.force)
    else:
        from nmt.decoding.ctranslate2.folder import export

        export(model, output, args.quantization, args.force)


def _check_options(args: argparse.Namespace) -> None:
    if args.format != "ctranslate2":
        for name in ("quantization", "hub"):
            if getattr(args, name) and (name == "hub" or args.format == "transformers"):
                raise UserError(
                    f"--{name} is not for --format {args.format}",
                    fix=f"leave out --{name} or --format",
                )
    allowed = STORAGES if args.format == "web" else QUANTIZATIONS
    if args.quantization and args.quantization not in allowed:
        raise UserError(
            f"--format {args.format} does not store weights in {args.quantization}",
            at="--quantization",
            fix=f"choose one of {', '.join(allowed)}",
        )
    if not args.hub:
        for name in ("license", "example"):
            if getattr(args, name) and (name, args.format) != ("license", "web"):
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


if __name__ == "__main__":
    sys.exit(main())
