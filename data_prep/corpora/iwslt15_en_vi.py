"""English-Vietnamese TED talks, Moses-tokenized.

``nmt-import iwslt15_en_vi -o data/en-vi``.

IWSLT '15 as the Stanford NLP group released it. The pair en-vi of "Transformers without Tears": dev
is tst2012, test is tst2013. Some lines of the released training files are empty on one side; those
pairs are dropped.
"""

from __future__ import annotations

from data_prep.released import Release
from data_prep.remote import RemoteFile

_URL = "https://nlp.stanford.edu/projects/nmt/data/iwslt15.en-vi/"


def _file(name: str, size: int) -> RemoteFile:
    license = "CC BY-NC-ND 4.0 (TED)"
    return RemoteFile("IWSLT '15 en-vi", license, name, url=_URL + name, size=size)


RELEASE = Release(
    name="iwslt15-en-vi",
    files={
        "train": {"en": _file("train.en", 13_603_614), "vi": _file("train.vi", 18_074_646)},
        "dev": {"en": _file("tst2012.en", 140_250), "vi": _file("tst2012.vi", 188_396)},
        "test": {"en": _file("tst2013.en", 132_264), "vi": _file("tst2013.vi", 183_855)},
    },
    notes=["Text is Moses-tokenized: set data.tokenized: true."],
)
prepare = RELEASE.prepare
LANGS = ("en", "vi")
