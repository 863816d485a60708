"""Write a corpus: {split}.{lang}, {split}.credits and MANIFEST.json, all of them or none."""

from __future__ import annotations

import json
import os
import re
import sys
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence, Sized
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple

from data_prep.remote import RemoteFile
from nmt.data.corpus_manifest import MANIFEST
from nmt.data.pair import Pair
from nmt.data.report import Drops
from nmt.errors import UserError
from nmt.runtime.files import atomic_folder, disk_errors, file_digest
from nmt.runtime.progress import counted
from nmt.runtime.words import quantity


@dataclass(frozen=True)
class Request:
    """The corpus that a recipe or a command asks a module for.

    Attributes:
        out: folder to write.
        src, tgt: languages as the recipe calls them; they become the suffixes of the files. An
            empty ``tgt`` stands for monolingual text, without translations.
        force: replace ``out`` if it exists.
        local: file or folder to read; None downloads.
        options: values of the options that the module declares.
    """

    out: Path
    src: str
    tgt: str
    force: bool = False
    local: Path | None = None
    options: Namespace = field(default_factory=Namespace)

    @property
    def langs(self) -> tuple[str, ...]:
        """The languages of the files."""
        return (self.src, self.tgt) if self.tgt else (self.src,)


@dataclass
class Corpus:
    """A corpus before it is written. Splits may be iterators: they are read once."""

    name: str
    splits: Mapping[str, Iterable[Pair]]
    drops: Drops
    sources: Sequence[RemoteFile] = ()
    notes: list[str] = field(default_factory=list)
    monolingual: bool = False  # monolingual text: only the sources of its pairs are written


class _WrittenSplit(NamedTuple):
    pairs: int
    words: dict[str, int]
    sha256: dict[str, str]


def check_request(request: Request, monolingual: bool = False) -> None:
    """Check that a corpus can be written, before anything is downloaded.

    Args:
        monolingual: whether the corpus is monolingual text.

    Raises:
        UserError: ``out`` is a file, or a folder with content and ``force`` is not set; or the
            languages cannot be the suffixes of the two files, or of the only one.
    """
    out = request.out
    if out.exists() and not out.is_dir():
        raise UserError("--output must be a directory", at=str(out), fix="give another --output")
    if not request.force and out.is_dir() and any(out.iterdir()):
        raise UserError(
            "this directory exists and is not empty",
            at=str(out),
            fix="give another --output, or --force to replace the directory with all its content",
        )
    named = all(re.fullmatch(r"[\w-]+", lang) for lang in request.langs)
    if monolingual:
        if request.tgt or not named:
            raise UserError(
                f"{' and '.join(map(repr, request.langs))} cannot be the language of a text",
                at="--src-lang (or src and tgt of the recipe)",
                fix="give one language code of letters, digits, - and _, and no target language",
            )
    elif request.src == request.tgt or not request.tgt or not named:
        raise UserError(
            f"{request.src!r} and {request.tgt!r} cannot be source and target",
            at="--src-lang, --tgt-lang",
            fix="give two different language codes of letters, digits, - and _",
        )


def write_corpus(corpus: Corpus, request: Request) -> None:
    """Write a corpus to a temporary folder, rename it to ``out``, and print counts to stderr.

    Raises:
        UserError: ``out`` cannot be used (``check_request``), or a split has no pair.
        MachineError: the disk is full or not writable. An existing ``out`` is unchanged.
    """
    check_request(request, corpus.monolingual)  # another process may have written it meanwhile
    out = Path(os.path.realpath(request.out))  # a link to a folder on another disk stays
    again = "run the same command again (or give another --output)"
    with disk_errors(out, elsewhere="give another --output", again=again):
        out.parent.mkdir(parents=True, exist_ok=True)
        with atomic_folder(out, replace=True) as folder:
            written = {
                split: _write_split(folder, split, pairs, request.langs)
                for split, pairs in corpus.splits.items()
            }
            if empty := [split for split, part in written.items() if not part.pairs]:
                raise UserError(
                    f"no pair is left in {', '.join(empty)} (dropped: {corpus.drops})",
                    at=corpus.name,
                    fix="give more text, or change the sizes of dev and test "
                    "(with --split group, a group may be at most a tenth of them)",
                )
            manifest = {
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
            text = json.dumps(manifest, ensure_ascii=False, indent=2) + "\n"
            # names of files may have bytes that are not UTF-8, which JSON can only escape
            (folder / MANIFEST).write_text(text, "utf-8", "backslashreplace")
    unit = "line" if corpus.monolingual else "pair"
    *others, (last, part) = written.items()
    counts = [f"{split} {other.pairs:,}" for split, other in others]
    counts.append(f"{last} {quantity(part.pairs, unit)}")
    lines = [f"{corpus.name} ({'-'.join(request.langs)}): {', '.join(counts)} in {request.out}"]
    lines += [f"  dropped {p.count:>9,}  {reason}" for reason, p in corpus.drops.items()]
    print("\n".join([*lines, f"  details: {request.out / MANIFEST}"]), file=sys.stderr)


def _write_split(
    folder: Path, split: str, pairs: Iterable[Pair], langs: Sequence[str]
) -> _WrittenSplit:
    names = [f"{split}.{lang}" for lang in langs]
    words = [0] * len(langs)
    count = 0
    with ExitStack() as stack:
        files = [stack.enter_context((folder / name).open("wb")) for name in names]
        credits: BinaryIO | None = None
        total = len(pairs) if isinstance(pairs, Sized) else None
        for pair in counted(pairs, f"writing {split}", "pairs", total):
            count += 1
            for i, (file, line) in enumerate(zip(files, pair[:2], strict=False)):
                file.write(f"{line}\n".encode())
                words[i] += len(line.split())
            if pair.credit:
                if credits is None:
                    credits = stack.enter_context((folder / f"{split}.credits").open("wb"))
                credits.write(f"{pair.credit}\n".encode())
    hashes = {name: file_digest(folder / name) for name in names}
    return _WrittenSplit(count, dict(zip(langs, words, strict=True)), hashes)
