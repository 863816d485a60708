"""English-German of WMT '14, Moses-tokenized.

``nmt-import wmt14_en_de -o data/en-de``.

The release of the Stanford NLP group. 4.5M pairs; dev is newstest2013, test is newstest2014. The
release splits compounds at hyphens on every side ("rich ##AT##-##AT## text"), the format that
"Transformers without Tears" (appendix A) scores. This module replaces the mark by ``@-@``, which
the Moses tokenizer writes for the same split and the detokenizer knows. It is still one token, so
tokenized BLEU does not change. Dev and test are otherwise unaltered.
"""

from __future__ import annotations

from data_prep.released import Release
from data_prep.remote import RemoteFile

_URL = "https://nlp.stanford.edu/projects/nmt/data/wmt14.en-de/"


def _file(name: str, md5: str) -> RemoteFile:
    return RemoteFile("WMT '14 en-de", "the WMT sources' own", name, url=_URL + name, md5=md5)


def restore(line: str) -> str:
    """Return a line with the Moses mark at split compounds."""
    return line.replace("##AT##-##AT##", "@-@")


RELEASE = Release(
    name="wmt14-en-de",
    files={
        "train": {
            "en": _file("train.en", "7ac0d46a8f6db6dfce476c2a8e54121b"),
            "de": _file("train.de", "5873aae4fe517aad42bb29d607b5d2a0"),
        },
        "dev": {
            "en": _file("newstest2013.en", "f3ce7816bb0acbd2de0364795e9688b1"),
            "de": _file("newstest2013.de", "5d48c9300649bfad1300e53ad1334aec"),
        },
        "test": {
            "en": _file("newstest2014.en", "4e4663b8de25d19c5fc1c4dab8d61703"),
            "de": _file("newstest2014.de", "06e8840abe90cbfbd45cf2729807605d"),
        },
    },
    notes=["Text is Moses-tokenized, compounds split at hyphens as @-@: set data.tokenized: true."],
    restore=restore,
)
prepare = RELEASE.prepare
LANGS = ("en", "de")
