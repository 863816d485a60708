"""Slovak-English user-interface texts of Home Assistant.

``nmt-import ui_sk_en -o data/ui-sk-en``. The text is that of a package of the package index,
Apache-2.0.

The quickstart's corpus: labels, messages and help texts, translated by a localization community.
Pairs are joined by key from the translations/{sk,en}.json files of each integration. "Transformers
without Tears" uses Slovak as well, but with text of TED talks.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from data_prep.pairs import length_ratio, one_line
from data_prep.released import Unsplit
from data_prep.remote import RemoteFile
from nmt.data.pair import Pair
from nmt.data.report import Drops
from nmt.data.rules import BLANK, IDENTICAL, LENGTH, Rule, words

_FILE = re.compile(r"homeassistant/components/([^/]+)/translations/sk\.json")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def _leaves(tree: dict[str, Any], key: str) -> Iterator[tuple[str, str]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{key}.{name}")
        elif isinstance(value, str):
            yield f"{key}.{name}", value


def _paragraphs(text: str) -> list[str]:
    """Return the non-empty lines without Markdown's link targets and bold marks."""
    plain = _LINK.sub(r"\1", text).replace("**", "")
    return [line for line in map(one_line, plain.splitlines()) if line]


def read_pairs(wheels: Sequence[Path], drops: Drops) -> Iterator[Pair]:
    """Yield the pairs of all integrations, one for each paragraph of a text."""
    with zipfile.ZipFile(wheels[0]) as archive:
        for name in sorted(archive.namelist()):
            if not (found := _FILE.fullmatch(name)):
                continue
            group = found[1]
            src, tgt = (
                dict(_leaves(json.loads(archive.read(file)), group))
                for file in (name, name.replace("sk.json", "en.json"))
            )
            for key in [key for key in tgt if key in src]:
                sides = _paragraphs(src[key]), _paragraphs(tgt[key])
                if len(sides[0]) != len(sides[1]):
                    drops["unequal numbers of paragraphs"].add(key)
                    continue
                for one, other in zip(*sides, strict=True):
                    yield Pair(one, other, key, group)


CORPUS = Unsplit(
    name="ui-sk-en",
    langs=("sk", "en"),
    files=[
        RemoteFile(
            what="Home Assistant's interface texts",
            license="Apache-2.0",
            filename="homeassistant-2026.2.3-py3-none-any.whl",
            sha256="8167820cac4b8defe895fd2c36ac23402a445d1fe6028e8cde24caabb935282c",
            package="homeassistant==2026.2.3",
            python="3.14",
        )
    ],
    read=read_pairs,
    filters=[BLANK, IDENTICAL, replace(LENGTH, threshold=80), length_ratio(2.5)],
    # two thirds are near-duplicates or labels and are dropped
    held_out={"dev": 2800, "test": 2800},
    held_out_filters=[
        Rule("under 3 words in dev or test", lambda pair, _: min(map(words, pair[:2])) < 3)
    ],
    notes=[
        "Pairs are joined by key; Markdown links keep their text, placeholders such as {name} "
        "stay.",
        "Each integration is in one split only. Dev and test keep texts of at least three words "
        "whose two sides have no near-duplicate in train; test has none in dev either.",
    ],
)
prepare = CORPUS.prepare
LANGS = ("sk", "en")
