"""English-German image captions of Multi30k (task 1, raw text): 29k pairs.

Not a corpus of the papers: a small benchmark whose models train within the hour. dev is the
release's val, test is test_2016_flickr.
"""

from __future__ import annotations

import sys
from pathlib import Path

from data_prep.common import command
from data_prep.fetch import Source
from data_prep.released import Release, prepare_release

_COMMIT = "a3d2e0d26b56f3846f66a952536ffed4e401d05a"
_URL = f"https://raw.githubusercontent.com/multi30k/dataset/{_COMMIT}/data/task1/raw/"


def _file(name: str, sha256: str) -> Source:
    licence = "non-commercial research and education (Flickr30k terms)"
    return Source("Multi30k en-de", licence, name, url=_URL + name, sha256=sha256)


RELEASE = Release(
    name="multi30k-en-de",
    src="en",
    tgt="de",
    files={
        "train": (
            _file(
                "train.en.gz",
                "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
            ),
            _file(
                "train.de.gz",
                "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
            ),
        ),
        "dev": (
            _file(
                "val.en.gz",
                "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
            ),
            _file(
                "val.de.gz",
                "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
            ),
        ),
        "test": (
            _file(
                "test_2016_flickr.en.gz",
                "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
            ),
            _file(
                "test_2016_flickr.de.gz",
                "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
            ),
        ),
    },
    notes=["Text is plain and cased."],
)


def prepare(out: Path, force: bool = False, local: Path | None = None) -> None:
    """Fetch (or read from the folder ``local``) and write {train,dev,test}.{en,de}."""
    prepare_release(RELEASE, out, force, local)


def main(argv: list[str] | None = None) -> int:
    """The command."""
    return command(prepare, __doc__, argv)


if __name__ == "__main__":
    sys.exit(main())
