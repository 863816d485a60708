"""nmt-export --hub, --format transformers and argos: folders and files for others to download."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.errors import UserError

if TYPE_CHECKING:
    from nmt.store.model import Model


OUTPUTS = {"transformers": "transformers", "argos": "model.argosmodel"}  # in the run folder


def add_options(p: argparse.ArgumentParser) -> None:
    """Add the options to the parser of nmt-export."""
    p.add_argument(
        "--format",
        choices=["ctranslate2", "transformers", "argos"],
        default="ctranslate2",
        help="program that reads the model; argos = a package file for Argos Translate and "
        "LibreTranslate; default: %(default)s",
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
        "default: lines of the dev set of the run",
    )


def requested(
    args: argparse.Namespace,
) -> tuple[Path, Callable[[Model, Path, argparse.Namespace], None]] | None:
    """Return the output and the function that writes it, None for an export to CTranslate2.

    Raises:
        UserError: options contradict each other.
    """
    _check_options(args)
    if args.hub:
        return Path(args.hub), _write
    if args.format == "ctranslate2":
        return None
    return Path(args.output or f"{args.run}/{OUTPUTS[args.format]}"), _write


def _write(model: Model, output: Path, args: argparse.Namespace) -> None:
    if args.hub:
        from nmt.apps.share.hub import export_hub
        from nmt.store.folder import RunFolder

        run = RunFolder(args.run) if model.path != Path(args.run) else None
        export_hub(model, run, output, args.quantization, args.force, args.license, args.example)
    elif args.format == "transformers":
        from nmt.apps.share.marian import export_transformers

        export_transformers(model, output, args.force)
    else:
        from nmt.apps.share.argos import export_argos

        export_argos(model, output, args.quantization, args.force)


def _check_options(args: argparse.Namespace) -> None:
    if args.format != "ctranslate2":
        for name in ("quantization", "hub"):
            if getattr(args, name) and (name, args.format) != ("quantization", "argos"):
                raise UserError(
                    f"--{name} is not for --format {args.format}",
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
