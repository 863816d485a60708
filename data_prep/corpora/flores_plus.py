"""FLORES+: dev and test sets in over 200 languages.

``nmt-import flores_plus --src-lang gl --tgt-lang en -o data/flores-gl-en`` writes dev.{gl,en} (997
sentences) and test.{gl,en} (the 1,012 of devtest), as plain text, for an extra test set. FLORES+
corrects FLORES-200 (``nmt-import flores``) and adds languages; the Open Language Data Initiative
publishes it on the Hugging Face hub. Its conditions must be accepted there once, and the
environment variable HF_TOKEN must have an access token of that account. ``--from`` takes a copy of
the dataset's folder. A language in several scripts needs the corpus's own code, such as cmn_Hans.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from data_prep.languages import match_pair
from data_prep.pairs import one_line
from data_prep.remote import HUB, TOKEN_VARIABLE, DownloadError, RemoteFile, fetched
from data_prep.write import Corpus, Request, write_corpus
from nmt.data.lines import read_lines
from nmt.data.pair import Pair
from nmt.data.report import Drops
from nmt.errors import UserError
from nmt.runtime.files import json_object

_NAME = "openlanguagedata/flores_plus"
PAGE = f"https://{HUB}/datasets/{_NAME}"
LIST = f"https://{HUB}/api/datasets/{_NAME}/tree/main/devtest"
_SPLITS = {"dev": "dev", "test": "devtest"}
_LICENSE = "CC BY-SA 4.0"
_NOTES = ["An evaluation set: train on none of it. All languages are line-aligned with each other."]


def remote(filename: str, url: str = "") -> RemoteFile:
    """Return a file of the dataset."""
    return RemoteFile("FLORES+", _LICENSE, filename, url=url or f"{PAGE}/resolve/main/{filename}")


def available(local: Path | None) -> set[str]:
    """Return the codes of the languages that have a devtest set.

    Raises:
        UserError: the list cannot be downloaded or read.
    """
    if local is not None:
        return {path.stem for path in (local / "devtest").glob("*.jsonl")}
    with fetched([remote("devtest", LIST)]) as [path]:
        try:
            names = [entry["path"] for entry in json.loads(path.read_bytes())]
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(
                "the list of languages is not in the form that is expected",
                at=LIST,
                fix=f"copy the files from {PAGE} and pass their folder with --from",
            ) from error
    return {Path(name).stem for name in names if name.endswith(".jsonl")}


def read_texts(path: Path) -> dict[int, str]:
    """Return the sentences of a file with a JSON object in each line, by their numbers.

    Raises:
        UserError: a line is not such an object.
    """
    texts = {}
    for number, line in enumerate(read_lines(path, clean=False), 1):
        try:
            row = json_object(line)
            texts[int(row["id"])] = one_line(row["text"])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UserError(
                'is not a JSON object with "id" and "text"',
                at=f"{path}:{number}",
                fix=f"download the file again from {PAGE}",
            ) from error
    return texts


def read_split(split: str, src: Path, tgt: Path, drops: Drops) -> Iterator[Pair]:
    """Yield the sentences that are in both languages."""
    sides = read_texts(src), read_texts(tgt)
    for number in sorted(sides[0].keys() | sides[1].keys()):
        if number in sides[0] and number in sides[1]:
            yield Pair(sides[0][number], sides[1][number], f"{split}:{number}")
        else:
            drops["sentence of one language alone"].add(f"{split}:{number}")


def prepare(request: Request) -> None:
    """Write dev and test of a pair of languages.

    Raises:
        UserError: the dataset lacks a language, or the hub refuses to send it.
    """
    drops = Drops()
    try:
        langs = match_pair(request.src, request.tgt, available(request.local), "FLORES+")
        files = [remote(f"{f}/{lang}.jsonl") for f in _SPLITS.values() for lang in langs]
        with fetched(files, request.local, keep=True) as paths:
            splits = {
                split: read_split(split, paths[2 * i], paths[2 * i + 1], drops)
                for i, split in enumerate(_SPLITS)
            }
            name = f"flores-plus-{request.src}-{request.tgt}"
            write_corpus(Corpus(name, splits, drops, files, _NOTES), request)
    except DownloadError as error:
        if any(f"{code} Client Error" in error.what for code in (401, 403)):
            raise UserError(
                error.what,
                at=error.at,
                fix=f"accept the conditions on {PAGE} once, and set {TOKEN_VARIABLE} to an access "
                f"token of your account; or {error.copy} and add --from {error.local}",
            ) from error
        raise
