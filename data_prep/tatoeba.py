"""Everyday sentences of tatoeba.org in any two of its some 400 languages, plain text.

``python -m data_prep.tatoeba --src ar --tgt en --out data/ar-en``. The site exports its sentences
anew each week, so there is no hash to pin: MANIFEST.json has those of the files that came. The
license asks that authors are named: line n of train.credits is about line n of train.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from data_prep.common import Corpus, Request, check_request, command, finish
from data_prep.fetch import RemoteFile, digest, opened
from data_prep.languages import find, names
from data_prep.pairs import Drops, Pair, apply_filters, empty_side, identical_sides, one_line
from data_prep.splits import hold_out
from nmt.data.text import read_lines

_URL = "https://downloads.tatoeba.org/exports/per_language/"
_SENTENCES = "_sentences_detailed.tsv.bz2"
# What it calls languages that ISO 639-3 has as groups.
_OWN = {"fa": "pes", "lv": "lvs", "ms": "zsm", "ne": "npi", "no": "nob", "sw": "swh", "zh": "cmn"}
HELD_OUT = {"dev": 1000, "test": 1000}
NOTES = [
    "A sentence may have several translations; credits name sentences and authors.",
    "Dev and test have no sentence of each other or of train, nor one that nearly recurs.",
    "Places are SOURCE-TARGET, numbers of sentences: https://tatoeba.org/sentences/show/NUMBER.",
]


def sources(src: str, tgt: str) -> list[RemoteFile]:
    """The links and the sentences of both languages."""
    license = "CC BY 2.0 FR; some sentences CC0 1.0"
    links = f"{src}-{tgt}_links.tsv.bz2"
    return [
        RemoteFile(f"Tatoeba {src}-{tgt}", license, name, url=f"{_URL}{lang}/{name}")
        for lang, name in ((src, links), (src, src + _SENTENCES), (tgt, tgt + _SENTENCES))
    ]


def code(lang: str, local: Path | None) -> str:
    """Tatoeba's code of a language, ISO 639-3 but for a few groups."""
    if local is not None and local.is_dir():
        files = (path.name for path in local.iterdir())
        there = [name.removesuffix(_SENTENCES) for name in files if name.endswith(_SENTENCES)]
        return find(_OWN.get(lang, lang), there, str(local))
    return _OWN.get(lang) or next((name for name in names(lang) if len(name) == 3), lang)


def read_sentences(path: Path, wanted: set[str]) -> dict[str, tuple[str, str]]:
    """Number -> text and author of the sentences wanted.

    Columns: number, language, text, author, day added, day changed; ``\\N`` is an unknown author.
    """
    rows = (line.split("\t") for line in read_lines(path, clean=False))
    return {row[0]: (one_line(row[2]), row[3]) for row in rows if row[0] in wanted}


def read_pairs(links: Path, src: Path, tgt: Path, drops: Drops) -> Iterator[Pair]:
    """The linked sentences; a pair's group is its source sentence."""
    numbers = [
        (one, other) for one, other in (line.split("\t") for line in read_lines(links, clean=False))
    ]
    texts = (
        read_sentences(src, {one for one, _ in numbers}),
        read_sentences(tgt, {other for _, other in numbers}),
    )
    for one, other in numbers:
        place = f"{one}-{other}"
        if one not in texts[0] or other not in texts[1]:
            drops.add("a linked sentence is not there", place)
            continue
        credit = " & ".join(
            f"#{number} ({author if author != chr(92) + 'N' else 'unknown'})"
            for number, (_, author) in ((one, texts[0][one]), (other, texts[1][other]))
        )
        source, target = texts[0][one][0], texts[1][other][0]
        yield Pair(source, target, place, source.lower(), f"tatoeba.org {credit}")


def prepare(request: Request) -> None:
    """Fetch (or read from the folder ``local``), join by links, split and write."""
    check_request(request)
    files = sources(code(request.src, request.local), code(request.tgt, request.local))
    drops = Drops()
    with opened(files, request.local) as paths:
        found = [
            replace(file, sha256=digest(path, "sha256"))
            for file, path in zip(files, paths, strict=True)
        ]
        pairs = read_pairs(paths[0], paths[1], paths[2], drops)
        kept = list(apply_filters(pairs, [empty_side(), identical_sides()], drops))
    splits = hold_out(kept, HELD_OUT, drops)
    finish(Corpus(f"tatoeba-{request.src}-{request.tgt}", splits, drops, found, NOTES), request)


main = command(prepare, __doc__)

if __name__ == "__main__":
    sys.exit(main())
