"""Image captions of Multi30k (task 1, raw text) in English, German, French and Czech: 29k pairs.

``python -m data_prep.multi30k --src en --tgt de --out data/multi30k-en-de``. The papers do not use
this corpus; it is a small benchmark whose models train within an hour. All four languages are
line-aligned; dev is the release's val, test is test_2016_flickr.
"""

from __future__ import annotations

import sys

from data_prep.command import corpus_command
from data_prep.released import Release
from data_prep.remote import RemoteFile

_COMMIT = "a3d2e0d26b56f3846f66a952536ffed4e401d05a"
_URL = f"https://raw.githubusercontent.com/multi30k/dataset/{_COMMIT}/data/task1/raw/"
_SPLITS = {"train": "train", "dev": "val", "test": "test_2016_flickr"}
_SHA256 = {
    "train.en": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "train.de": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "train.fr": "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c",
    "train.cs": "a65adb8b32e3bc664f21ecba7a6e7f6950fd1f405e135f7c312faabdb6255077",
    "val.en": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "val.de": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "val.fr": "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9",
    "val.cs": "b63226e05c4bd5dd6a42897d74b86a1b9d2c31498252c572b1ea7f7996927fcc",
    "test_2016_flickr.en": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "test_2016_flickr.de": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    "test_2016_flickr.fr": "6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90",
    "test_2016_flickr.cs": "200a4a74cc9560f051924abb9803be008d1908d77f747e9141aeb86dfd2797f1",
}


def _file(split: str, lang: str) -> RemoteFile:
    name, license = f"{split}.{lang}", "non-commercial research and education (Flickr30k terms)"
    return RemoteFile(
        "Multi30k", license, f"{name}.gz", url=f"{_URL}{name}.gz", sha256=_SHA256[name]
    )


RELEASE = Release(
    name="multi30k",
    files={
        split: {lang: _file(name, lang) for lang in ("en", "de", "fr", "cs")}
        for split, name in _SPLITS.items()
    },
    notes=["Text is plain and cased."],
)
prepare = RELEASE.prepare
main = corpus_command(prepare, __doc__)

if __name__ == "__main__":
    sys.exit(main())
