"""Everyday sentences in any two of about 400 languages.

``nmt-import tatoeba --src-lang ar --tgt-lang en -o data/ar-en``. Plain text of tatoeba.org. The
site exports its sentences each week, so no hash is pinned and nothing is cached; MANIFEST.json
records the hashes of the downloaded files. The license requires credits: line n of train.credits is
about line n of train.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from data_prep.languages import iso639_3, match_language
from data_prep.pairs import one_line
from data_prep.remote import RemoteFile, fetched
from data_prep.splits import hold_out
from data_prep.write import Corpus, Request, write_corpus
from nmt.data.lines import read_lines
from nmt.data.pair import Pair
from nmt.data.report import Drops
from nmt.data.rules import BLANK, IDENTICAL, apply_rules
from nmt.errors import UserError
from nmt.runtime.files import file_digest
from nmt.runtime.progress import counted
from nmt.runtime.words import quantity

_URL = "https://downloads.tatoeba.org/exports/per_language/"
_SENTENCES = "_sentences_detailed.tsv.bz2"
# Groups of languages (macrolanguages) -> the variety under whose code Tatoeba has the sentences.
_VARIETIES = {
    "fas": "pes", "lav": "lvs", "msa": "zsm", "nep": "npi", "nor": "nob", "swa": "swh", "zho": "cmn"
}  # fmt: skip
HELD_OUT = {"dev": 1000, "test": 1000}
NOTES = [
    "A sentence may have several translations; credits name sentences and authors.",
    "No sentence of dev or test is in another split, exactly or as a near-duplicate.",
    "Places are SOURCE-TARGET, numbers of sentences: https://tatoeba.org/sentences/show/NUMBER.",
]


def sources(src: str, tgt: str) -> list[RemoteFile]:
    """Return the files of links and of the sentences of both languages."""
    license = "CC BY 2.0 FR; some sentences CC0 1.0"
    links = f"{src}-{tgt}_links.tsv.bz2"
    return [
        RemoteFile(f"Tatoeba {src}-{tgt}", license, name, url=f"{_URL}{lang}/{name}")
        for lang, name in ((src, links), (src, src + _SENTENCES), (tgt, tgt + _SENTENCES))
    ]


def tatoeba_code(lang: str, local: Path | None) -> str:
    """Return Tatoeba's code of a language: ISO 639-3, and a variety instead of a group."""
    code = iso639_3(lang)
    code = _VARIETIES.get(code, code)
    if local is not None and local.is_dir():
        files = (path.name for path in local.iterdir())
        available = [name.removesuffix(_SENTENCES) for name in files if name.endswith(_SENTENCES)]
        return match_language(code, available, str(local))
    return code


def read_sentences(path: Path, wanted: set[str]) -> dict[str, tuple[str, str]]:
    """Return number -> (text, author) of the sentences whose numbers are in ``wanted``.

    Columns: number, language, text, author, date added, date changed; ``\\N`` is an unknown author.
    """
    rows = _rows(path, columns=4)
    return {row[0]: (one_line(row[2]), row[3]) for row in rows if row[0] in wanted}


def _rows(path: Path, columns: int) -> Iterator[list[str]]:
    """Yield the rows of an export; its publisher records no hash that would find a wrong file."""
    for number, line in enumerate(read_lines(path, clean=False), 1):
        row = line.split("\t")
        if len(row) < columns:
            raise UserError(
                f"has {quantity(len(row), 'column')} instead of at least {columns}, so it is not "
                "an export of Tatoeba",
                at=f"{path}:{number}",
                fix="download it again; this one may be an error page or another file",
            )
        yield row


def read_pairs(links: Path, src: Path, tgt: Path, drops: Drops) -> Iterator[Pair]:
    """Yield the pairs of linked sentences; a pair's group is its source sentence."""
    numbers = [(row[0], row[1]) for row in _rows(links, columns=2)]
    texts = (
        read_sentences(src, {one for one, _ in numbers}),
        read_sentences(tgt, {other for _, other in numbers}),
    )
    for one, other in numbers:
        place = f"{one}-{other}"
        if one not in texts[0] or other not in texts[1]:
            drops["a linked sentence is missing"].add(place)
            continue
        credit = " & ".join(
            f"#{number} ({author if author != chr(92) + 'N' else 'unknown'})"
            for number, (_, author) in ((one, texts[0][one]), (other, texts[1][other]))
        )
        source, target = texts[0][one][0], texts[1][other][0]
        yield Pair(source, target, place, source.lower(), f"tatoeba.org {credit}")


def prepare(request: Request) -> None:
    """Download the exports (or read them from ``local``), join by links, split and write."""
    files = sources(*(tatoeba_code(lang, request.local) for lang in (request.src, request.tgt)))
    drops = Drops()
    with fetched(files, request.local) as paths:
        found = [
            replace(file, sha256=file_digest(path)) for file, path in zip(files, paths, strict=True)
        ]
        pairs = counted(read_pairs(paths[0], paths[1], paths[2], drops), "reading", "pairs")
        kept = list(apply_rules(pairs, [BLANK, IDENTICAL], drops))
    splits = hold_out(kept, HELD_OUT, drops)
    name = f"tatoeba-{request.src}-{request.tgt}"
    write_corpus(Corpus(name, splits, drops, found, NOTES), request)
