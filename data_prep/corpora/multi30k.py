"""Image captions in English, German, French and Czech.

``nmt-import multi30k --src-lang en --tgt-lang de -o data/multi30k-en-de``. The 29k pairs of
Multi30k (task 1, raw text). The papers do not use this corpus. All four languages are line-aligned;
dev is the release's val, test is test_2016_flickr. Most published scores are those of the
lower-cased and tokenized text, ``multi30k_tokenized``.
"""

from __future__ import annotations

from collections.abc import Mapping

from data_prep.released import Release
from data_prep.remote import RemoteFile

_COMMIT = "a3d2e0d26b56f3846f66a952536ffed4e401d05a"
_URL = f"https://raw.githubusercontent.com/multi30k/dataset/{_COMMIT}/data/task1/"
_LICENSE = "non-commercial research and education (Flickr30k terms)"
_LANGS = ("en", "de", "fr", "cs")
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


def release(name: str, pattern: str, sha256: Mapping[str, str], note: str) -> Release:
    """Return the release of one of the repository's kinds of text.

    Args:
        pattern: path of a file below data/task1 with {split} and {lang}.
        sha256: of each file, by SPLIT.LANG.
        note: on the text, for MANIFEST.json.
    """

    def file(split: str, lang: str) -> RemoteFile:
        path = pattern.format(split=split, lang=lang)
        filename = path.rpartition("/")[2]
        sha = sha256[f"{split}.{lang}"]
        return RemoteFile("Multi30k", _LICENSE, filename, url=_URL + path, sha256=sha)

    files = {
        split: {lang: file(released, lang) for lang in _LANGS}
        for split, released in _SPLITS.items()
    }
    return Release(name, files, notes=[note])


RELEASE = release("multi30k", "raw/{split}.{lang}.gz", _SHA256, "Text is plain and cased.")
prepare = RELEASE.prepare
