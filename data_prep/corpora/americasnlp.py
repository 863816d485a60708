"""Spanish with indigenous languages of the Americas.

The text of the AmericasNLP shared tasks, since 2021. Without ``--from``, the release of 2021 is
downloaded, with its splits. ``--from`` takes a checkout of the release of any year
(AmericasNLP/americasnlp2025), or a folder with train.es, train.LANG, dev.es and dev.LANG. Training
on dev is not allowed in these tasks, and neither is a choice by the test set. So a release without
references of a test set gives its dev set as test, and dev is cut from train. Mager et al. 2021,
"Findings of the AmericasNLP 2021 Shared Task on Open Machine Translation for Indigenous Languages
of the Americas".

Examples:
  nmt-import americasnlp --src-lang es --tgt-lang quy -o data/es-quy
  nmt-import americasnlp --from americasnlp2025 --dev-size 500 --extra --src-lang es \\
      --tgt-lang shp -o data/es-shp
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import quote

from data_prep.formats import Option
from data_prep.languages import match_language
from data_prep.own_corpus import SPLIT_OPTIONS, write_own_corpus
from data_prep.pairs import clean_training_pairs, one_line, read_aligned, require_file
from data_prep.released import Release
from data_prep.remote import RemoteFile
from data_prep.write import Request
from nmt.data.lines import OPENERS, find_side, read_lines
from nmt.data.pair import Pair
from nmt.data.report import Drops
from nmt.errors import UserError
from nmt.runtime.files import file_digest

_COMMIT = "d3f519c6b38299d8149311e65a369047350e6849"
_URL = f"https://raw.githubusercontent.com/AmericasNLP/americasnlp2021/{_COMMIT}/"
_WHAT = "AmericasNLP"
_LICENSE = "none stated; research use, citing the sources that its README names"
# Language -> its folder, and the id that git gives to a folder of its six files (git mktree).
LANGUAGES = {
    "aym": ("aymara", "f41dda886b31df42b445cb3241ef65a7392f75ab"),
    "bzd": ("bribri", "ec7cbab237c95641c807abab5892dee6dd5b7663"),
    "cni": ("ashaninka", "2698a8fc3b64b63043d06224f50f06c72fe6f031"),
    "gn": ("guarani", "da5ccfd88027e6088f3787e8532a52a05979face"),
    "hch": ("wixarika", "d7714a1a942fdc17e76192ac4ffe64625f3ddd31"),
    "nah": ("nahuatl", "4d632672b0716469f0b2ff8724ef9cac12e6556a"),
    "oto": ("hñähñu", "b956a9f9586053f3cfb8e2f64c51736ec2d237b5"),
    "quy": ("quechua", "32bf8d6f09bf378487a63e0774e31511b8f40435"),
    "shp": ("shipibo_konibo", "23dc92f0988f977b79203da5691835ce76f65438"),
    "tar": ("raramuri", "b81b7d4338250b949e20c827d99451a1b1114731"),
}
TRAIN = ("train_nontok", "train")  # the first that exists; train of Raramuri is tokenized
FURTHER = (
    "extra",
    "synthetic",
)  # options and .tsv files: name of the source, Spanish, the other language
OPTIONS = (
    Option(
        "--extra",
        action="store_true",
        help="also write extra.SRC and extra.TGT: text that teams of the task collected",
    ),
    Option(
        "--synthetic",
        action="store_true",
        help="also write synthetic.SRC and synthetic.TGT: back-translated text",
    ),
    *SPLIT_OPTIONS,
)
_FOLDERS = ("*-spanish", "data/*-spanish", "ST1_MachineTranslation/data/*-spanish")


def release(lang: str) -> Release:
    """Return the files of one language with Spanish."""
    folder, tree = LANGUAGES[lang]

    def file(split: str, side: str) -> RemoteFile:
        parent = "test_data" if split == "test" else f"data/{folder}-spanish"
        stem = TRAIN[0] if split == "train" and lang == "tar" else split
        name = f"{parent}/{stem}.{side}"
        return RemoteFile(f"{_WHAT} 2021", _LICENSE, name, url=_URL + quote(name))

    return Release(
        name=f"americasnlp-{lang}-es",
        files={
            split: {side: file(split, side) for side in (lang, "es")}
            for split in ("train", "dev", "test")
        },
        tree=tree,
        notes=["Text is as each source has it: plain in some languages, tokenized in others."],
    )


def _other_language(src: str, tgt: str, available: Iterable[str]) -> str:
    """Return the code of the language with Spanish."""
    codes = [*available, "es"]
    other = [code for lang in (src, tgt) if (code := match_language(lang, codes, _WHAT)) != "es"]
    if len(other) != 1:
        raise UserError(
            f"no text in {src} with {tgt}",
            at=_WHAT,
            fix="one of --src-lang and --tgt-lang must be es",
        )
    return other[0]


def _folders(local: Path) -> dict[str, Path]:
    """Return the folder of each language in a release, or in a folder of one language."""
    folders = {}
    below = (folder for pattern in _FOLDERS for folder in sorted(local.glob(pattern)))
    for folder in (local, *below):
        for path in folder.glob("dev.*"):
            code = (path.stem if path.suffix in OPENERS else path.name).removeprefix("dev.")
            if re.fullmatch("[a-z]{2,3}", code) and code != "es":
                folders[code] = folder
    if not folders:
        raise UserError(
            "has no text of AmericasNLP",
            at=f"--from {local}",
            fix="give a checkout of AmericasNLP/americasnlp2025 or of another year, or a folder "
            "with train.es, train.LANG, dev.es and dev.LANG",
        )
    return folders


def prepare(request: Request) -> None:
    """Write one pair of the release of 2021, or of the one that ``local`` has.

    Raises:
        UserError: the pair is not Spanish and a language of the release.
    """
    further = [name for name in FURTHER if vars(request.options)[name]]
    local = request.local
    if local is None or (local / "test_data").is_dir():
        if further:
            raise UserError(
                f"the release of 2021 has no {further[0]}.tsv",
                at=f"--{further[0]}",
                fix="clone a later one, such as https://github.com/AmericasNLP/americasnlp2025, "
                "and pass its folder with --from",
            )
        release(_other_language(request.src, request.tgt, LANGUAGES)).prepare(request)
        return
    folders = _folders(local)
    lang = _other_language(request.src, request.tgt, folders)
    folder = folders[lang]
    swapped = match_language(request.src, [lang, "es"], _WHAT) != "es"
    used: list[Path] = []

    def pairs(stem: str) -> Iterator[Pair]:
        spanish, other = (find_side(str(folder / stem), side) for side in ("es", lang))
        used.extend((spanish, other))
        return (pair.swapped() if swapped else pair for pair in read_aligned(spanish, other, stem))

    def has(stem: str) -> bool:
        return all(any(folder.glob(f"{stem}.{side}*")) for side in ("es", lang))

    drops = Drops()
    train = clean_training_pairs(pairs(TRAIN[0] if has(TRAIN[0]) else TRAIN[1]), drops)
    held_out = (
        {"dev": pairs("dev"), "test": pairs("test")} if has("test") else {"test": pairs("dev")}
    )
    more = {}
    for name in further:
        path = folder / f"{name}.tsv"
        require_file(path)
        used.append(path)
        more[name] = (p.swapped() if swapped else p for p in _table(path, drops))
    sources = [
        RemoteFile(_WHAT, _LICENSE, str(path.relative_to(local)), sha256=file_digest(path))
        for path in used
    ]
    note = "The task's dev set is the test set; dev is cut from train."
    notes = [] if "dev" in held_out else [note]
    write_own_corpus(train, request, drops, held_out, sources, notes, more)


def _table(path: Path, drops: Drops) -> Iterator[Pair]:
    for number, line in enumerate(read_lines(path, clean=False), 1):
        place, cells = f"{path.name}:{number}", line.split("\t")
        if len(cells) == 3:
            yield Pair(one_line(cells[1]), one_line(cells[2]), place, cells[0].strip())
        else:
            drops["not 3 columns"].add(place)
