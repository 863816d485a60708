"""Spanish with ten indigenous languages of the Americas (AmericasNLP 2021 shared task).

``nmt import americasnlp --src-lang es --tgt-lang quy -o data/es-quy``. The corpus of Mager
et al. 2021, "Findings of the AmericasNLP 2021 Shared Task on Open Machine Translation for
Indigenous Languages of the Americas", with its splits: train comes from several sources, dev and
test were translated from Spanish. ``--from`` takes a checkout of the repository.
"""

from __future__ import annotations

import sys
from urllib.parse import quote

from data_prep.command import corpus_command
from data_prep.languages import match_language
from data_prep.released import Release
from data_prep.remote import RemoteFile
from data_prep.write import Request
from nmt.errors import UserError

_COMMIT = "d3f519c6b38299d8149311e65a369047350e6849"
_URL = f"https://raw.githubusercontent.com/AmericasNLP/americasnlp2021/{_COMMIT}/"
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
    "tar": ("raramuri", "3b41559255ac6e3f0b01d763ad322089be34b407"),
}


def release(lang: str) -> Release:
    """Return the files of one language with Spanish."""
    folder, tree = LANGUAGES[lang]

    def file(split: str, side: str) -> RemoteFile:
        parent = "test_data" if split == "test" else f"data/{folder}-spanish"
        name = f"{parent}/{split}.{side}"
        return RemoteFile("AmericasNLP 2021", _LICENSE, name, url=_URL + quote(name))

    return Release(
        name=f"americasnlp-{lang}-es",
        files={
            split: {side: file(split, side) for side in (lang, "es")}
            for split in ("train", "dev", "test")
        },
        tree=tree,
        notes=["Text is as each source has it: plain in some languages, tokenized in others."],
    )


def prepare(request: Request) -> None:
    """Write one pair.

    Raises:
        UserError: the pair is not Spanish and one of ``LANGUAGES``.
    """
    available = [*LANGUAGES, "es"]
    langs = [match_language(lang, available, "AmericasNLP") for lang in (request.src, request.tgt)]
    other = [lang for lang in langs if lang != "es"]
    if len(other) != 1:
        raise UserError(
            f"no text in {request.src} with {request.tgt}",
            at="AmericasNLP",
            fix="one of --src-lang and --tgt-lang must be es",
        )
    release(other[0]).prepare(request)


main = corpus_command(prepare, __doc__)

if __name__ == "__main__":
    sys.exit(main())
