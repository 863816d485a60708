"""News in African languages with English or French.

``nmt-import lafand --src-lang en --tgt-lang sw -o data/en-sw``. Plain text of LAFAND-MT, which is
also called MAFAND. The corpus of Adelani et al. 2022, "A Few Thousand Translations Go a Long Way!
Leveraging Pre-trained Models for African News Translation" (NAACL), with its splits. amh, kin, nya,
sna and xho have dev and test, but no train. ``--from`` takes a checkout of the repository.
"""

from __future__ import annotations

from data_prep.languages import match_language
from data_prep.released import Release
from data_prep.remote import RemoteFile
from data_prep.write import Request
from nmt.errors import UserError

_COMMIT = "d441f8b063d63e95eafb72e84317359e27abf95e"
_URL = f"https://raw.githubusercontent.com/masakhane-io/lafand-mt/{_COMMIT}/"
# Folder of each pair -> the id that git gives to a folder of its files (git mktree).
TREES = {
    "en-amh": "7ff784ef9dc98a3f54c8de210da3ac8581c23163",
    "en-hau": "ab2634418ae82c868391e9bdcb12260ce856e2ea",
    "en-ibo": "f35903d7df2aa2c1916d49492ddb91d8a7be41e4",
    "en-kin": "4a054514ae5fc39d68aad744b19bdd5ecda1612d",
    "en-lug": "9e1eb16fe034e3eab8015ad3d5d0d047bb30ac7d",
    "en-nya": "296dd233b4845fdafe5619406b557d3d94b84a1b",
    "en-pcm": "0b288dc0fd9dadc4fcf811836cf0e2f432d5a201",
    "en-sna": "186052bfe49e3c78163bbfbc400c695499a6f771",
    "en-swa": "f68b40ea2d35a01d5112f8c65f4a7310e331776c",
    "en-tsn": "4ec673a97257fc6475ff419ddbe26d7e70467b72",
    "en-twi": "d9234c4a87c8373f30f84a88917b87a0c427d36a",
    "en-xho": "fcc5ee307a7fe275cb8bf0e12abadb528527c098",
    "en-yor": "59f2a3e3a052cad84de4ed3c5e708729cc00bff2",
    "en-zul": "7e4904f7e5b45838634d45916904bd01c8932aea",
    "en_luo": "c2f7e677d1aa24f53f00241c25f0de8bab7f90f1",
    "fr-bam": "bbdcaa50820db9290884bcab995e0a8b1b3995fb",
    "fr-bbj": "5b89b174f2a6bcb1a6430997db57d271bbf8b617",
    "fr-ewe": "20a8dfee56aa623a7ae7eb3834aabc130fe3462f",
    "fr-fon": "d849eff6a6879fea160eba7876074cc91aee115d",
    "fr-mos": "2a68a967823f607d3860bf8813621555e498fbe7",
    "fr-wol": "5ac88c4f42c3954610027d9541221029725e4658",
}
_WITHOUT_TRAIN = {"amh", "kin", "nya", "sna", "xho"}


def release(folder: str) -> Release:
    """Return the files of one pair."""
    langs = folder[:2], folder[3:]
    splits = ("dev", "test") if langs[1] in _WITHOUT_TRAIN else ("train", "dev", "test")

    def file(split: str, lang: str) -> RemoteFile:
        name = f"data/text_files/{folder}/{split}.{lang}"
        return RemoteFile("LAFAND-MT", "CC BY-NC 4.0", name, url=_URL + name)

    return Release(
        name=f"lafand-{'-'.join(langs)}",
        files={split: {lang: file(split, lang) for lang in langs} for split in splits},
        tree=TREES[folder],
        notes=["Text is plain and cased."],
    )


def prepare(request: Request) -> None:
    """Write one pair.

    Raises:
        UserError: LAFAND does not have one of the languages, or not this pair.
    """
    langs = {lang for folder in TREES for lang in (folder[:2], folder[3:])}
    pair = {match_language(lang, langs, "LAFAND") for lang in (request.src, request.tgt)}
    folder = next((folder for folder in TREES if {folder[:2], folder[3:]} == pair), None)
    if folder is None:
        raise UserError(
            f"no text in {request.src} with {request.tgt}",
            at="LAFAND",
            fix=f"use one of: {' '.join(name.replace('_', '-') for name in TREES)}",
        )
    release(folder).prepare(request)
