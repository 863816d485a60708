"""English-Vietnamese of IWSLT '15 as the Stanford NLP group released it, Moses-tokenised.

The pair en-vi of "Transformers without Tears": dev is tst2012, test is tst2013. The released
training files have lines that are empty on one side; those pairs are dropped as pairs.
"""

from __future__ import annotations

import sys
from pathlib import Path

from data_prep.common import command
from data_prep.fetch import Source
from data_prep.released import Release, prepare_release

_URL = "https://nlp.stanford.edu/projects/nmt/data/iwslt15.en-vi/"


def _file(name: str, size: int) -> Source:
    licence = "CC BY-NC-ND 4.0 (TED)"
    return Source("IWSLT '15 en-vi", licence, name, url=_URL + name, size=size)


RELEASE = Release(
    name="iwslt15-en-vi",
    src="en",
    tgt="vi",
    files={
        "train": (_file("train.en", 13_603_614), _file("train.vi", 18_074_646)),
        "dev": (_file("tst2012.en", 140_250), _file("tst2012.vi", 188_396)),
        "test": (_file("tst2013.en", 132_264), _file("tst2013.vi", 183_855)),
    },
    notes=["Text is Moses-tokenised: set data.tokenised: true."],
)


def prepare(out: Path, force: bool = False, local: Path | None = None) -> None:
    """Fetch (or read from the folder ``local``) and write {train,dev,test}.{en,vi}."""
    prepare_release(RELEASE, out, force, local)


def main(argv: list[str] | None = None) -> int:
    """The command."""
    return command(prepare, __doc__, argv)


if __name__ == "__main__":
    sys.exit(main())
