"""What every data_prep module ends with: splits written whole or not at all, and its command."""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from data_prep.fetch import Source
from data_prep.pairs import Drops, Pair, to_json
from nmt.errors import MachineError, UserError


@dataclass
class Corpus:
    """A prepared corpus before it is written; splits may be iterators, read once while writing."""

    name: str
    src: str
    tgt: str
    splits: Mapping[str, Iterable[Pair]]
    drops: Drops
    sources: Sequence[Source] = ()
    notes: list[str] = field(default_factory=list)


@dataclass
class Written:
    """Counts and hash of one written split."""

    pairs: int
    words: dict[str, int]
    sha256: dict[str, str]


class Prepare(Protocol):
    """A data_prep module's function: fetch or read, split, write into ``out``."""

    def __call__(self, out: Path, force: bool = False, local: Path | None = None) -> None:
        """Write the corpus into ``out``; ``local`` is a file or folder to read, not to fetch."""


def check_out(out: Path, force: bool) -> None:
    """Refuse to replace what is there, before anything is fetched.

    Raises:
        UserError: ``out`` exists and is not empty, and not ``force``; or it is not a folder.
    """
    if out.exists() and not out.is_dir():
        raise UserError("is a file, and a folder is wanted", at=str(out), fix="give another --out")
    if not force and out.is_dir() and any(out.iterdir()):
        raise UserError(
            "this folder exists and is not empty",
            at=str(out),
            fix="give another --out, or --force to replace it whole",
        )


def _write_split(folder: Path, split: str, pairs: Iterable[Pair], langs: Sequence[str]) -> Written:
    hashes = [hashlib.sha256(), hashlib.sha256()]
    words = [0, 0]
    count = 0
    paths = [folder / f"{split}.{lang}" for lang in langs]
    with paths[0].open("wb") as src, paths[1].open("wb") as tgt:
        for pair in pairs:
            count += 1
            for i, file in enumerate((src, tgt)):
                line = f"{pair[i]}\n".encode()
                file.write(line)
                hashes[i].update(line)
                words[i] += len(pair[i].split())
    return Written(
        count,
        dict(zip(langs, words, strict=True)),
        {path.name: state.hexdigest() for path, state in zip(paths, hashes, strict=True)},
    )


def _manifest(corpus: Corpus, written: Mapping[str, Written]) -> dict[str, Any]:
    return {
        "corpus": corpus.name,
        "src": corpus.src,
        "tgt": corpus.tgt,
        "sources": [source.record() for source in corpus.sources],
        "notes": corpus.notes,
        "pairs": {split: part.pairs for split, part in written.items()},
        "words": {split: part.words for split, part in written.items()},
        "dropped": corpus.drops.report(),
        "sha256": {name: h for part in written.values() for name, h in part.sha256.items()},
    }


def write_corpus(corpus: Corpus, out: Path, force: bool = False) -> dict[str, Written]:
    """Write {split}.{lang} and MANIFEST.json under a temporary name, then rename.

    Raises:
        UserError: ``out`` is in the way, or a split has no pair left.
        MachineError: the disk is full or not writable. Nothing stays under the final name.
    """
    check_out(out, force)
    partial: Path | None = None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{out.name}.partial-", dir=out.parent))
        langs = (corpus.src, corpus.tgt)
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
        (partial / "MANIFEST.json").write_text(to_json(_manifest(corpus, written)), "utf-8")
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


def finish(corpus: Corpus, out: Path, force: bool) -> None:
    """Write the corpus and tell what was written and dropped, on stderr."""
    written = write_corpus(corpus, out, force)
    counts = ", ".join(f"{split} {part.pairs:,}" for split, part in written.items())
    lines = [f"{corpus.name} ({corpus.src}-{corpus.tgt}): {counts} pairs in {out}"]
    lines += [f"  dropped {n:>9,}  {reason}" for reason, n in corpus.drops.counts.items()]
    print("\n".join([*lines, f"  details: {out / 'MANIFEST.json'}"]), file=sys.stderr)


def parser_for(description: str | None) -> argparse.ArgumentParser:
    """The options that every module's command has."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write")
    parser.add_argument("--force", action="store_true", help="replace the folder if it exists")
    return parser


def add_local(parser: argparse.ArgumentParser) -> None:
    """``--from``, for modules that fetch."""
    help_text = "file or folder to read; nothing is fetched"
    parser.add_argument("--from", dest="local", type=Path, metavar="LOCAL", help=help_text)


def command(prepare: Prepare, description: str | None, argv: Sequence[str] | None = None) -> int:
    """Run a module that has a pinned source as a command; returns the exit code."""
    from nmt.cli.main import run_command  # late: nmt-train calls prepare without any of this

    parser = parser_for(description)
    add_local(parser)
    return run_command(
        lambda args: prepare(args.out, force=args.force, local=args.local), parser, argv
    )
