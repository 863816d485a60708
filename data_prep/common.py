"""What every data_prep module ends with: splits written whole or not at all, and its command."""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from data_prep.pairs import Drops, Pair, to_json
from nmt.errors import MachineError, UserError


@dataclass
class Corpus:
    """A prepared corpus before it is written."""

    name: str
    src: str
    tgt: str
    splits: dict[str, list[Pair]]
    drops: Drops
    sources: list[dict[str, str]]
    notes: list[str] = field(default_factory=list)

    def manifest(self, hashes: dict[str, str]) -> dict[str, Any]:
        """What MANIFEST.json says."""
        return {
            "corpus": self.name,
            "src": self.src,
            "tgt": self.tgt,
            "sources": self.sources,
            "notes": self.notes,
            "pairs": {split: len(pairs) for split, pairs in self.splits.items()},
            "words": {
                split: {
                    self.src: sum(len(p.src.split()) for p in pairs),
                    self.tgt: sum(len(p.tgt.split()) for p in pairs),
                }
                for split, pairs in self.splits.items()
            },
            "dropped": self.drops.report(),
            "sha256": hashes,
        }


class Prepare(Protocol):
    """A data_prep module's function: fetch or read, split, write into ``out``."""

    def __call__(self, out: Path, force: bool = False, local: Path | None = None) -> None:
        """Write the corpus into ``out``; ``local`` is a file to read instead of fetching."""


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


def write_corpus(corpus: Corpus, out: Path, force: bool = False) -> None:
    """Write {split}.{lang} and MANIFEST.json under a temporary name, then rename.

    Raises:
        UserError: ``out`` is in the way, or a split has no pair left.
        MachineError: the disk is full or not writable; nothing stays under the final name.
    """
    check_out(out, force)
    empty = [split for split, pairs in corpus.splits.items() if not pairs]
    if empty:
        taken = ", ".join(f"{reason}: {n}" for reason, n in corpus.drops.counts.items())
        raise UserError(
            f"no pair left in {', '.join(empty)} (dropped: {taken or 'none'})",
            at=corpus.name,
            fix="loosen the filters, or give more text",
        )
    out = out.resolve()
    partial: Path | None = None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{out.name}.partial-", dir=out.parent))
        hashes = {}
        for split, pairs in corpus.splits.items():
            for lang, side in ((corpus.src, 0), (corpus.tgt, 1)):
                data = "".join(f"{pair[side]}\n" for pair in pairs).encode()
                (partial / f"{split}.{lang}").write_bytes(data)
                hashes[f"{split}.{lang}"] = hashlib.sha256(data).hexdigest()
        (partial / "MANIFEST.json").write_text(to_json(corpus.manifest(hashes)), encoding="utf-8")
        partial.chmod(0o755)
        if out.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{out.name}.old-", dir=out.parent))
            os.replace(out, old)
            os.replace(partial, out)
            shutil.rmtree(old)
        else:
            os.replace(partial, out)
    except OSError as error:
        free = shutil.disk_usage(next(p for p in (out, *out.parents) if p.exists())).free
        raise MachineError(
            f"cannot write: {error.strerror} ({free / 2**20:,.0f} MiB free)",
            at=str(out),
            fix="free some space or give another --out, and run the same command again",
        ) from error
    finally:
        if partial is not None and partial.exists():
            shutil.rmtree(partial, ignore_errors=True)


def summary(corpus: Corpus, out: Path) -> str:
    """A few lines for people: what was written and what each filter took."""
    counts = ", ".join(f"{split} {len(pairs):,}" for split, pairs in corpus.splits.items())
    lines = [f"{corpus.name} ({corpus.src}-{corpus.tgt}): {counts} pairs in {out}"]
    lines += [f"  dropped {n:>7,}  {reason}" for reason, n in corpus.drops.counts.items()]
    return "\n".join([*lines, f"  details: {out / 'MANIFEST.json'}"])


def finish(corpus: Corpus, out: Path, force: bool) -> None:
    """Write the corpus and tell what was done, on stderr."""
    write_corpus(corpus, out, force)
    print(summary(corpus, out), file=sys.stderr)


def parser_for(description: str | None) -> argparse.ArgumentParser:
    """The options that every module's command has."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--force", action="store_true", help="replace the folder if it exists")
    return parser


def command(
    prepare: Prepare, description: str | None, argv: Sequence[str] | None = None
) -> int:
    """Run a module with one pinned source as a command; returns the exit code."""
    from nmt.cli.main import run_command  # late: nmt-train imports modules without their command

    parser = parser_for(description)
    parser.add_argument("--from", dest="local", type=Path, help="local file, instead of fetching")

    def body(args: argparse.Namespace) -> None:
        prepare(args.out, force=args.force, local=args.local)

    run: Callable[..., int] = run_command
    return run(body, parser, argv)
