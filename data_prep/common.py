"""What every data_prep module ends with: splits written whole or not at all, and its command."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from data_prep.fetch import RemoteFile, digest
from data_prep.pairs import Drops, Pair, to_json
from nmt.errors import MachineError, UserError


@dataclass
class Corpus:
    """A prepared corpus before it is written; splits may be iterators, read once while writing."""

    name: str
    splits: Mapping[str, Iterable[Pair]]
    drops: Drops
    sources: Sequence[RemoteFile] = ()
    notes: list[str] = field(default_factory=list)


@dataclass
class Written:
    """Counts and hash of one written split."""

    pairs: int
    words: dict[str, int]
    sha256: dict[str, str]


@dataclass(frozen=True)
class Request:
    """What a recipe or a command asks of a corpus module.

    Attributes:
        out: folder to write.
        src, tgt: languages, in the recipe's codes: the endings of the files.
        force: replace ``out`` if it is there.
        local: file or folder to read; None = fetch.
    """

    out: Path
    src: str
    tgt: str
    force: bool = False
    local: Path | None = None


Prepare = Callable[[Request], None]
Command = Callable[..., int]  # main(argv=None) -> exit code


def check_request(request: Request) -> None:
    """Refuse what cannot be written, before anything is fetched.

    Raises:
        UserError: ``out`` exists and is not empty, and not ``force``; or it is not a folder; or the
            languages cannot be the endings of two files.
    """
    out = request.out
    if out.exists() and not out.is_dir():
        raise UserError("is a file, and a folder is wanted", at=str(out), fix="give another --out")
    if not request.force and out.is_dir() and any(out.iterdir()):
        raise UserError(
            "this folder exists and is not empty",
            at=str(out),
            fix="give another --out, or --force to replace it whole",
        )
    langs = (request.src, request.tgt)
    if request.src == request.tgt or not all(re.fullmatch(r"[\w-]+", lang) for lang in langs):
        raise UserError(
            f"{' and '.join(map(repr, langs))} cannot be source and target",
            at="--src, --tgt",
            fix="give two language codes of letters, digits, - and _",
        )


def _write_split(folder: Path, split: str, pairs: Iterable[Pair], langs: Sequence[str]) -> Written:
    names = [f"{split}.{lang}" for lang in langs]
    words = [0, 0]
    count = 0
    with ExitStack() as stack:
        files = [stack.enter_context((folder / name).open("wb")) for name in names]
        credits: BinaryIO | None = None
        for pair in pairs:
            count += 1
            for i, file in enumerate(files):
                file.write(f"{pair[i]}\n".encode())
                words[i] += len(pair[i].split())
            if pair.credit:
                if credits is None:
                    credits = stack.enter_context((folder / f"{split}.credits").open("wb"))
                credits.write(f"{pair.credit}\n".encode())
    hashes = {name: digest(folder / name, "sha256") for name in names}
    return Written(count, dict(zip(langs, words, strict=True)), hashes)


def _manifest(corpus: Corpus, request: Request, written: Mapping[str, Written]) -> dict[str, Any]:
    return {
        "corpus": corpus.name,
        "src": request.src,
        "tgt": request.tgt,
        "sources": [source.record() for source in corpus.sources],
        "notes": corpus.notes,
        "pairs": {split: part.pairs for split, part in written.items()},
        "words": {split: part.words for split, part in written.items()},
        "dropped": corpus.drops.report(),
        "sha256": {name: h for part in written.values() for name, h in part.sha256.items()},
    }


def write_corpus(corpus: Corpus, request: Request) -> dict[str, Written]:
    """Write {split}.{lang} and MANIFEST.json under a temporary name, then rename.

    Raises:
        UserError: ``out`` is in the way, or a split has no pair left.
        MachineError: the disk is full or not writable. Nothing stays under the final name.
    """
    check_request(request)
    out = request.out
    partial: Path | None = None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{out.name}.partial-", dir=out.parent))
        langs = (request.src, request.tgt)
        written = {
            split: _write_split(partial, split, pairs, langs)
            for split, pairs in corpus.splits.items()
        }
        if empty := [split for split, part in written.items() if not part.pairs]:
            taken = ", ".join(f"{reason}: {n:,}" for reason, n in corpus.drops.counts.items())
            raise UserError(
                f"no pair is left in {', '.join(empty)} (dropped: {taken or 'none'})",
                at=corpus.name,
                fix="give more text, loosen the filters, or ask for smaller dev and test sets",
            )
        (partial / "MANIFEST.json").write_text(
            to_json(_manifest(corpus, request, written)), "utf-8"
        )
        partial.chmod(0o755)  # mkdtemp made it private
        replaced = partial.with_name(partial.name.replace(".partial-", ".replaced-"))
        if out.exists():
            out.rename(replaced)
        os.replace(partial, out)
        shutil.rmtree(replaced, ignore_errors=True)
    except OSError as error:
        free = shutil.disk_usage(next(p for p in out.resolve().parents if p.exists())).free
        raise MachineError(
            f"cannot write: {error.strerror} ({free / 2**20:,.0f} MiB free)",
            at=str(out),
            fix="free some space or give another --out, and run the same command again",
        ) from error
    finally:
        if partial is not None:
            shutil.rmtree(partial, ignore_errors=True)
    return written


def finish(corpus: Corpus, request: Request) -> None:
    """Write the corpus and tell what was written and dropped, on stderr."""
    written = write_corpus(corpus, request)
    counts = ", ".join(f"{split} {part.pairs:,}" for split, part in written.items())
    lines = [f"{corpus.name} ({request.src}-{request.tgt}): {counts} pairs in {request.out}"]
    lines += [f"  dropped {n:>9,}  {reason}" for reason, n in corpus.drops.counts.items()]
    print("\n".join([*lines, f"  details: {request.out / 'MANIFEST.json'}"]), file=sys.stderr)


def parser_for(description: str | None) -> argparse.ArgumentParser:
    """The options that every module's command has."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write")
    parser.add_argument("--force", action="store_true", help="replace the folder if it exists")
    return parser


def add_languages(parser: argparse.ArgumentParser) -> None:
    """``--src`` and ``--tgt``."""
    parser.add_argument("--src", required=True, help="source language code, such as gl")
    parser.add_argument("--tgt", required=True, help="target language code, such as en")


def command(prepare: Prepare, description: str | None, pair: str = "") -> Command:
    """The command of a module that has a source.

    Args:
        pair: ``SRC-TGT`` where the corpus has these two languages alone.
    """

    def main(argv: Sequence[str] | None = None) -> int:
        from nmt.cli.common import run_command  # late: nmt-train calls prepare without any of this

        parser = parser_for(description)
        parser.add_argument(
            "--from",
            dest="local",
            type=Path,
            metavar="LOCAL",
            help="file or folder to read; nothing is fetched",
        )
        if pair:
            parser.set_defaults(**dict(zip(("src", "tgt"), pair.split("-"), strict=True)))
        else:
            add_languages(parser)
        return run_command(
            lambda a: prepare(Request(a.out, a.src, a.tgt, a.force, a.local)), lambda: parser, argv
        )

    return main
