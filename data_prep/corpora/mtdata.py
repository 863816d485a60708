"""Thousands of corpora by their IDs in the index of mtdata.

The index has OPUS, WMT, ParaCrawl and others. Without an ID, the command lists what exists for two
languages; with IDs, it writes a corpus. An ID has a version. Downloads stay in the cache. Needs the
package mtdata (extra ``corpora``).

Examples:
  nmt-import mtdata --src-lang gl --tgt-lang en --sizes
  nmt-import mtdata OPUS-tatoeba-v20230412-eng-glg --src-lang gl --tgt-lang en -o data/gl-en
  nmt-import mtdata OPUS-ted2020-v1-eng-glg OPUS-qed-v2.0a-eng-glg --src-lang gl --tgt-lang en \\
      --dev Flores-flores200_dev-1-eng-glg --test Microsoft-ntrex-128-eng-glg -o data/gl-en
"""

from __future__ import annotations

import functools
import importlib.util
import json
import logging
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from data_prep.formats import Option
from data_prep.languages import check_choice, language_group
from data_prep.own_corpus import SPLIT_OPTIONS, existing_sets, text_options, write_own_corpus
from data_prep.pairs import archive_errors, clean_training_pairs, one_line
from data_prep.remote import HUB, RemoteFile, cache_folder, fetched
from data_prep.tmx import read_units
from data_prep.write import Request
from nmt.data.corpus_manifest import LONGEST_LICENSE
from nmt.data.lines import OPENERS, read_lines
from nmt.data.pair import Pair
from nmt.data.report import Drops
from nmt.errors import MachineError, UserError, install_fix
from nmt.runtime.files import UNPACKED, file_digest, human_bytes
from nmt.runtime.progress import counted, progress_bar
from nmt.runtime.words import quantity

Record = dict[str, Any]  # of mtdata's index: did, url, ext, in_ext, in_paths, cols, cite

_ID = re.compile(r'^\{"did": "([^"]+)"')
MOST_UNPACKED = 100  # times the bytes of a large archive
_LICENSE_FILES = {"license", "license.txt", "license.md", "licence", "copying"}
_CONNECTIONS = 8  # that ask for sizes at a time

OPTIONS = (
    *text_options("ids", "ID", "training corpus; without IDs, all of them are listed"),
    Option(
        "--sizes",
        action="store_true",
        help="list with the sizes of the downloads, from the servers",
    ),
    *SPLIT_OPTIONS,
)


# ---------------------------------------------------------------- the index


def index_file() -> Path:
    """Return the file with one JSON record for each corpus, after mtdata has written it once.

    mtdata would keep its index in the home directory, as a pickle. A process of its own writes it
    into a folder of our cache, and only the JSON file of it stays.

    Raises:
        UserError: mtdata is not installed.
        MachineError: it cannot write the index.
    """
    if importlib.util.find_spec("mtdata") is None:
        raise UserError(
            "the package mtdata is not installed",
            at="nmt-import mtdata",
            fix=install_fix("corpora"),
        )
    from importlib.metadata import version

    path = cache_folder() / "mtdata" / f"index-{version('mtdata')}.jsonl"
    if path.exists():
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            tempfile.TemporaryDirectory(dir=path.parent) as folder,
            progress_bar("listing the corpora that mtdata knows, once", slow=True),
        ):
            done = subprocess.run(
                [sys.executable, "-c", "import mtdata.index"],
                cwd=folder,  # mtdata imports modules of the current directory
                env={**os.environ, "MTDATA": folder},
                capture_output=True,
                text=True,
            )
            written = list(Path(folder).glob("mtdata.index.*.jsonl"))
            if done.returncode or len(written) != 1:
                raise MachineError(
                    f"mtdata could not write its index: {done.stderr.strip()[-300:]}",
                    at=str(path.parent),
                    fix="check that there is space for 300 MB, and that mtdata is installed "
                    f"correctly; {install_fix('corpora')}",
                )
            os.replace(written[0], path)
    except OSError as error:
        raise MachineError(
            f"cannot write the index of mtdata: {error.strerror}",
            at=str(path.parent),
            fix="free some space, or set NMT_CACHE to a folder with enough space",
        ) from error
    return path


def records(src: str, tgt: str) -> dict[str, Record]:
    """Return the records of all corpora of two languages by ID, in any direction.

    Raises:
        UserError: there is none.
    """
    wanted = {language_group(src), language_group(tgt)}
    found: dict[str, Record] = {}
    for line in read_lines(index_file(), clean=False):
        match = _ID.match(line)
        if match and {language_group(lang) for lang in _langs(match[1])} == wanted:
            found[match[1]] = json.loads(line)
    if len(wanted) < 2 or not found:
        raise UserError(
            f"mtdata knows no corpus of {src} and {tgt}",
            at="--src-lang, --tgt-lang",
            fix="check the codes of the languages (ISO 639), or take a related pair",
        )
    return found


def _langs(did: str) -> list[str]:
    return did.split("-")[3:]


def select(dids: Iterable[str], known: Mapping[str, Record], at: str) -> dict[str, Record]:
    """Return the records of IDs; the languages of an ID may be in either order.

    Raises:
        UserError: there is no such ID, or its corpus is on the Hugging Face hub.
    """
    chosen = {}
    for did in dids:
        swapped = "-".join([*did.split("-")[:3], *reversed(_langs(did))])
        name = swapped if swapped in known else check_choice(did, known, "ID", at)
        if _on_hub(known[name]):
            raise UserError(
                "this corpus is on the Hugging Face hub, from which nmt-import mtdata cannot load",
                at=name,
                fix=f"download it from {known[name]['url']} and use nmt-import tsv",
            )
        chosen[name] = known[name]
    return chosen


def _urls(record: Record) -> list[str]:
    return [record["url"]] if isinstance(record["url"], str) else list(record["url"])


def _on_hub(record: Record) -> bool:
    return any(urlsplit(url).hostname == HUB for url in _urls(record))


def show(request: Request) -> None:
    """Print the corpora of two languages: ID, size of the download, and what to cite.

    The servers are asked for the sizes, which the index does not have.

    Raises:
        UserError: an ID is given, so there must be a folder.
    """
    if request.options.ids or existing_sets(request):
        raise UserError("--output is required with an ID", at="-o", fix="add -o DIR")
    found = records(request.src, request.tgt)
    known = {did: record for did, record in found.items() if not _on_hub(record)}
    asked: dict[str, str] = {}
    sizes = request.options.sizes
    if sizes:
        with ThreadPoolExecutor(_CONNECTIONS) as pool:
            answers = pool.map(_size, known.values())
            shown = counted(answers, "asking for sizes", "corpora", len(known))
            asked = dict(zip(known, shown, strict=True))
    rows = [
        [did, *([asked[did]] if sizes else []), ", ".join(known[did].get("cite", ()))]
        for did in sorted(known)
    ]
    rows.insert(0, ["ID", *(["DOWNLOAD"] if sizes else []), "CITE"])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())
    print(
        "mtdata does not know their licenses: MANIFEST.json of an imported corpus has the license "
        "that is in its archive.",
        file=sys.stderr,
    )


def _size(record: Record) -> str:
    """Return the size of the files of a corpus, ? if a server does not say it."""
    import requests

    total = 0
    for url in _urls(record):
        try:
            answer = requests.head(url, allow_redirects=True, timeout=10)
        except requests.RequestException:
            return "?"
        length = answer.headers.get("Content-Length", "")
        if not answer.ok or not length.isdecimal():
            return "?"
        total += int(length)
    return human_bytes(total)


# ---------------------------------------------------------------- reading


def _remote(did: str, record: Record) -> list[RemoteFile]:
    """Return the files of a corpus; below ``--from``, they have the paths of the cache."""
    return [
        RemoteFile(
            did,
            "not stated by mtdata or the archive; ask its publisher",
            f"{urlsplit(url).hostname}{unquote(urlsplit(url).path)}".rstrip("/"),
            url=url,
        )
        for url in _urls(record)
    ]


def read_corpus(did: str, record: Record, files: Sequence[Path], drops: Drops) -> Iterator[Pair]:
    """Yield the pairs of a corpus in the order of the languages of its ID.

    Pairs with bytes that are not UTF-8 are dropped and listed.

    Raises:
        UserError: a file is damaged, or is not in the format that mtdata expects.
    """
    with tempfile.TemporaryDirectory(prefix="nmt-mtdata-") as folder:
        texts = _unpacked(record, files, Path(folder))
        kind = record.get("in_ext") or record["ext"]
        try:
            if "tmx" in kind:
                rows = _tmx(did, texts, drops)
            elif "tsv" in kind and len(texts) == 1:
                rows = _table(texts[0], record.get("cols") or (0, 1), did, drops)
            else:
                rows = _by_mtdata(record, texts, kind)
            for number, row in enumerate(rows, 1):
                pair = Pair(one_line(row[0] or ""), one_line(row[1] or ""), f"{did}:{number}", did)
                if "\ufffd" in pair.src or "\ufffd" in pair.tgt:
                    drops["not UTF-8"].add(pair.place)
                else:
                    yield pair
        except UserError as error:  # it names a file that is about to be deleted
            raise UserError(error.what, at=f"{did} ({files[0]})", fix=error.fix) from error


def _table(path: Path, columns: Sequence[int], did: str, drops: Drops) -> Iterator[Sequence[str]]:
    for number, line in enumerate(read_lines(path, clean=False, errors="replace"), 1):
        cells = line.split("\t")
        if len(cells) > max(columns):
            yield cells[columns[0]], cells[columns[1]]
        else:
            drops[f"fewer than {max(columns) + 1} columns"].add(f"{did}:{number}")


def _tmx(did: str, texts: Sequence[Path], drops: Drops) -> Iterator[Sequence[str]]:
    groups = [*map(language_group, _langs(did))]
    for path in texts:
        for line, sides in read_units(path):
            by_group = {language_group(code): text for code, text in (sides or {}).items()}
            if all(group in by_group for group in groups):
                yield by_group[groups[0]], by_group[groups[1]]
            else:
                reason = "unreadable XML" if sides is None else "unit lacks a language"
                drops[reason].add(f"{did}:{line}")


def _by_mtdata(record: Record, texts: Sequence[Path], kind: str) -> Iterator[Sequence[str]]:
    entry, parser = _mtdata()
    fields = {name: value for name, value in record.items() if name != "is_archive"}
    try:
        reader = parser(list(texts), ext=kind, ent=entry(**fields))
        yield from reader.read_segs(show_pbar=False)
    except Exception as error:  # mtdata raises whatever the damage causes
        raise UserError(
            f"mtdata cannot read it: {error or type(error).__name__}",
            fix="delete this file, so that it is downloaded again; if that does not help, report "
            "it to its publisher",
        ) from error


@functools.cache
def _mtdata() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return mtdata's classes Entry and Parser, without the log handler that it installs."""
    quiet = logging.NullHandler()
    logging.getLogger().addHandler(quiet)  # logging.basicConfig then does nothing
    from mtdata.entry import Entry
    from mtdata.parser import Parser

    return Entry, Parser


def _unpacked(record: Record, files: Sequence[Path], folder: Path) -> list[Path]:
    """Write the texts of a corpus into a folder, as plain files, and return their paths."""
    if not record.get("is_archive"):
        suffix = PurePosixPath(f"x.{record['ext']}").suffix
        texts = []
        for number, path in enumerate(files):
            texts.append(folder / f"{number}.txt")
            with archive_errors(path), OPENERS.get(suffix, open)(path, "rb") as source:
                _copy(source, texts[-1], path)
        return texts
    with _archive(files[0]) as members:
        texts = []
        for number, pattern in enumerate(record["in_paths"]):
            matching = [name for name in members if PurePosixPath(name).match(pattern)]
            if len(matching) != 1:
                raise UserError(
                    f"has {quantity(len(matching), 'file')} of the form {pattern}, not one",
                    fix="delete this file, so that it is downloaded again; the publisher may have "
                    "changed it, and a newer mtdata may know it",
                )
            texts.append(folder / f"{number}.txt")
            with members[matching[0]]() as source:
                _copy(source, texts[-1], files[0])
        return texts


def _copy(source: IO[bytes], path: Path, packed: Path) -> None:
    left = UNPACKED + MOST_UNPACKED * packed.stat().st_size
    with path.open("wb") as file:
        while block := source.read(1 << 20):
            left -= len(block)
            if left < 0:
                what = f"unpacks to over {MOST_UNPACKED} times its size, as no text does"
                raise UserError(what, at=str(packed), fix="delete this file")
            file.write(block)


@contextmanager
def _archive(path: Path) -> Iterator[dict[str, Callable[[], IO[bytes]]]]:
    """Yield the files of a zip or tar archive by name: functions that open them."""
    with archive_errors(path), ExitStack() as stack:
        if zipfile.is_zipfile(path):
            packed = stack.enter_context(zipfile.ZipFile(path))
            names = [info.filename for info in packed.infolist() if not info.is_dir()]
            yield {name: functools.partial(packed.open, name) for name in names}
        else:
            tar = stack.enter_context(tarfile.open(path, "r:*"))
            files = [info for info in tar if info.isfile()]
            yield {info.name: functools.partial(_member, tar, info) for info in files}


def _member(tar: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    file = tar.extractfile(info)
    assert file is not None  # a regular file
    return file


def license_of(path: Path) -> str:
    """Return what the license file of an archive begins with; empty if there is none."""
    with archive_errors(path):
        if not (zipfile.is_zipfile(path) or tarfile.is_tarfile(path)):
            return ""
    with _archive(path) as members:
        for name, open_member in members.items():
            if PurePosixPath(name).name.lower() in _LICENSE_FILES:
                with open_member() as file:
                    text = file.read(4 * LONGEST_LICENSE).decode("utf-8", "replace")
                return one_line(text)[:LONGEST_LICENSE]
    return ""


def citations(chosen: Mapping[str, Record]) -> list[str]:
    """Return the BibTeX entries of corpora, one for each publication."""
    import mtdata
    from pybtex.database import parse_file

    keys = dict.fromkeys(key for record in chosen.values() for key in record.get("cite", ()))
    references = parse_file(mtdata.resource_dir / "refs.bib", bib_format="bibtex").entries
    return [f"Cite: {one_line(references[key].to_string('bibtex'))}" for key in keys]


# ---------------------------------------------------------------- the corpus


def prepare(request: Request) -> None:
    """Write the corpora with the IDs of the options.

    Raises:
        UserError: no ID is given, or there is no such one.
    """
    ids, held_out_ids = request.options.ids, existing_sets(request)
    if not ids and not held_out_ids:
        raise UserError(
            "no ID is given",
            at="mtdata",
            fix="name one, as in data.download: mtdata ID; nmt-import mtdata without -o lists them",
        )
    known = records(request.src, request.tgt)
    chosen = select(ids, known, "ID")
    sets = {split: select([did], known, f"--{split}") for split, did in held_out_ids.items()}
    wanted = {**chosen, **{did: r for records_ in sets.values() for did, r in records_.items()}}
    by_url = {file.url: file for did, r in wanted.items() for file in _remote(did, r)}
    with fetched(list(by_url.values()), request.local, keep=True) as paths:
        found = dict(zip(by_url, paths, strict=True))
        sources = [
            replace(
                file,
                license=license_of(found[url]) or file.license,
                sha256=file_digest(found[url]),
            )
            for url, file in by_url.items()
        ]

        drops = Drops()

        def pairs(corpora: Mapping[str, Record]) -> Iterator[Pair]:
            for did, record in corpora.items():
                files = [found[url] for url in _urls(record)]
                swapped = language_group(_langs(did)[0]) != language_group(request.src)
                for pair in read_corpus(did, record, files, drops):
                    yield pair.swapped() if swapped else pair

        train = clean_training_pairs(pairs(chosen), drops)
        held_out = {split: pairs(corpora) for split, corpora in sets.items()}
        notes = [f"IDs of mtdata: {' '.join(wanted)}.", *citations(wanted)]
        write_own_corpus(train, request, drops, held_out, sources, notes)
