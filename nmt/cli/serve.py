"""nmt-serve: translate over HTTP, with a page to try models on."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.cli.common import add_model_options, enable_gc, run_command
from nmt.cli.parsers import command_parser, shorten_help
from nmt.errors import UserError, install_fix

if TYPE_CHECKING:
    from nmt.apps.serve.limits import Limits
    from nmt.decoding.translator import Translator

KEY_VARIABLE = "NMT_SERVE_API_KEY"
SHORTEST_KEY = 16  # characters
NEW_KEY = 'python -c "import secrets; print(secrets.token_urlsafe())"'
EXAMPLES = """\
examples:
  %(prog)s runs/gl-en                            # http://localhost:8000
  %(prog)s runs/gl-en --host 0.0.0.0 --api-key-file key.txt
  %(prog)s runs/gl-en runs/en-gl --corrections corrections.tsv

docs/howto/serve.md describes the API."""


def parser() -> argparse.ArgumentParser:
    """Return the command line of nmt-serve."""
    from nmt.apps.serve.limits import Limits

    p = command_parser(
        "nmt-serve",
        usage="%(prog)s RUN [RUN ...] [options]",
        description="Serve models over HTTP: a JSON API, and a page to try them on. Requests that "
        "arrive at the same time share a batch. After SIGTERM, the server answers accepted "
        "requests for at most --grace seconds, and ends.",
        epilog=EXAMPLES,
    )
    p.add_argument(
        "run",
        nargs="+",
        metavar="RUN",
        help="run folder from nmt-train, or model from nmt-convert, nmt-average or nmt-export; "
        "several are served side by side",
    )
    net = p.add_argument_group("network")
    net.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on; one that other machines can reach requires an API key; "
        "default: %(default)s",
    )
    net.add_argument(
        "--port",
        type=int,
        default=8000,
        help="port to listen on; 0 = a free one; default: %(default)s",
    )
    net.add_argument(
        "--api-key-file",
        metavar="FILE",
        help="file with the key that requests must have; default: the environment variable "
        f"{KEY_VARIABLE}",
    )
    p.add_argument(
        "--corrections",
        metavar="FILE",
        help="append the better translations that readers suggest to this TSV file, from which "
        "nmt-train learns; default: the page has no such field",
    )
    p.add_argument(
        "--glossary",
        metavar="FILE",
        help="file with terms: a source term, a tab and the target term that its translation must "
        "contain, one per line; for requests without a glossary",
    )
    limits = p.add_argument_group("limits")
    for limit in dataclasses.fields(Limits):
        limits.add_argument(
            limit.metadata["flag"],
            dest=limit.name,
            metavar=limit.metadata["unit"],
            type=type(limit.default),
            default=limit.default,
            help=f"{limit.metadata['meaning']}; default: {limit.default:,.0f}",
        )
    add_model_options(p.add_argument_group("models"))
    often = "run", "glossary", "host", "port", "api_key_file", "device", "precision"
    shorten_help(p, *often)
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return run_command(body, parser, argv)


def body(args: argparse.Namespace) -> None:
    """Check the arguments, load the models, and serve them."""
    from nmt.data.glossary import read_glossary
    from nmt.store.model import Model

    limits = _limits(args)
    key = _api_key(args)
    glossary = [] if args.glossary is None else read_glossary(Path(args.glossary))
    try:
        from nmt.apps.serve.app import Service
        from nmt.apps.serve.corrections import CorrectionsFile
        from nmt.apps.serve.guard import is_loopback
        from nmt.apps.serve.server import listen, run
    except ImportError as error:
        raise UserError(
            f"nmt-serve needs packages that are not installed: {error}",
            fix=install_fix("serve"),
        ) from error
    if key is None and not is_loopback(args.host):
        raise UserError(
            f"without an API key, {args.host} would let other machines use the models",
            at="--host",
            fix=f"write a key into a file ({NEW_KEY}) and pass --api-key-file FILE, or leave out "
            "--host",
        )
    for path in args.run:  # report a bad folder before torch is imported, which takes seconds
        Model.open(path).require_translation()
    corrections = CorrectionsFile(Path(args.corrections)) if args.corrections else None
    opened = listen(args.host, args.port)
    translators = {name: _load(path, args) for name, path in model_names(args.run).items()}
    if glossary:
        _check_glossary([*translators.values()])
    enable_gc()
    run(Service(translators, limits, key, glossary, corrections), opened)


def _check_glossary(translators: Sequence[Translator]) -> None:
    """Check that all models translate between two languages."""
    pairs = {
        (src, tgt)
        for t in translators
        for src in t.codec.directions.sources
        for tgt in (t.codec.tgt, *t.codec.directions.tag_targets.values())
    }
    if len(pairs) > 1:
        raise UserError(
            "a glossary is for one source and one target language, and the models translate "
            + ", ".join(f"{src}-{tgt}" for src, tgt in sorted(pairs)),
            at="--glossary",
            fix="start a server for each pair, or send the glossary with each request",
        )


def _limits(args: argparse.Namespace) -> Limits:
    from nmt.apps.serve.limits import Limits

    values = {limit.name: getattr(args, limit.name) for limit in dataclasses.fields(Limits)}
    for limit in dataclasses.fields(Limits):
        value, flag = values[limit.name], limit.metadata["flag"]
        if not 0 < value < float("inf"):  # JSON has no infinity
            raise UserError(f"{value:g} is not a number above 0", at=flag, fix="give another one")
    return Limits(**values)


def _api_key(args: argparse.Namespace) -> str | None:
    if args.api_key_file is not None:
        at = args.api_key_file
        try:
            key = Path(at).read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise UserError(
                f"the API key cannot be read: {error}", at=at, fix=f"write it: {NEW_KEY} > {at}"
            ) from error
    elif KEY_VARIABLE in os.environ:
        at, key = KEY_VARIABLE, os.environ[KEY_VARIABLE].strip()
    else:
        return None
    if len(key) < SHORTEST_KEY or not key.isascii() or any(map(str.isspace, key)):
        what = f"an API key has at least {SHORTEST_KEY} ASCII characters and no space"
        fix = f"make one with: {NEW_KEY}"
        raise UserError(what, at=at, fix=fix)
    return key


def model_names(runs: Sequence[str]) -> dict[str, str]:
    """Return the name of each model in requests -> its folder.

    A name is that of the folder. A model inside a run folder also has the name of the run.
    """
    from nmt.store.folder import RunFolder

    names: dict[str, str] = {}
    for run in runs:
        path = Path(run).absolute()
        inside = RunFolder(path.parent).config_file.is_file()
        name = unused = f"{path.parent.name}/{path.name}" if inside else path.name
        number = 1
        while unused in names:
            number += 1
            unused = f"{name}-{number}"
        names[unused] = run
    return names


def _load(path: str, args: argparse.Namespace) -> Translator:
    """Return the translator of a folder, ready for the first request."""
    from nmt.decoding.translator import Translator

    translator = Translator.load(
        path, args.device, args.precision, engine=args.engine, quantization=args.quantization
    )
    translator.translate(["1"])  # the first search is slow: libraries are loaded and set up
    return translator


if __name__ == "__main__":
    sys.exit(main())
