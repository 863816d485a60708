"""Find the text of a large neighboring language next to a corpus, and the commands for it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from nmt.apps.suggest.corpus import CorpusPaths, has_side
from nmt.data.lines import find_side
from nmt.text.languages import base_language


@dataclass(frozen=True)
class Neighbor:
    """A language whose text helps a smaller one.

    Attributes:
        lang: its code.
        direction: of Apertium, to the smaller language; "" = there is none that works.
        package: Debian's, for the direction.
    """

    lang: str
    direction: str = ""
    package: str = ""


# Apertium's directions were tried on 100 lines each (docs/howto/related-languages.md). The
# neighbors without a direction are those of Neubig and Hu 2018, table 1.
NEIGHBORS = {
    "af": Neighbor("nl", "nld-afr", "apertium-afr-nld"),
    "an": Neighbor("es", "spa-arg", "apertium-spa-arg"),
    "ast": Neighbor("es", "spa-ast", "apertium-spa-ast"),
    "az": Neighbor("tr"),
    "be": Neighbor("ru"),
    "ca": Neighbor("es", "spa-cat", "apertium-spa-cat"),
    "da": Neighbor("nb", "nob-dan", "apertium-dan-nor"),
    "frp": Neighbor("fr", "fra-frp", "apertium-fra-frp"),
    "gl": Neighbor("es", "es-gl", "apertium-es-gl"),
    "hi": Neighbor("ur", "urd-hin", "apertium-urd-hin"),
    "id": Neighbor("ms", "zlm-ind", "apertium-ind-zlm"),
    "is": Neighbor("sv", "swe-isl", "apertium-isl-swe"),
    "mk": Neighbor("bg", "bul-mkd", "apertium-mkd-bul"),
    "ms": Neighbor("id", "ind-zlm", "apertium-ind-zlm"),
    "nb": Neighbor("da", "dan-nob", "apertium-dan-nor"),
    "nn": Neighbor("nb", "nob-nno", "apertium-nno-nob"),
    "oc": Neighbor("fr", "fra-oci", "apertium-oci-fra"),
    "sc": Neighbor("ca", "cat-srd", "apertium-cat-srd"),
    "sk": Neighbor("cs"),
    "sl": Neighbor("hr", "hbs-slv", "apertium-hbs-slv"),
    "szl": Neighbor("pl", "pol-szl", "apertium-pol-szl"),
    "ur": Neighbor("hi", "hin-urd", "apertium-urd-hin"),
}


@dataclass(frozen=True)
class RelatedCorpus:
    """Text of a neighbor for one side of a corpus, in a folder next to that of the corpus.

    Attributes:
        neighbor: the language.
        key: ``src`` or ``tgt``, the side of the corpus that has this neighbor.
        own: code of that side.
        other: code of the other side.
        original: prefix of the neighbor's text: ``data/es-en/train``.
        by_rules: prefix of what rules make of it: ``data/es-as-gl/train``.
    """

    neighbor: Neighbor
    key: str
    own: str
    other: str
    original: Path
    by_rules: Path

    def entry(self) -> tuple[dict[str, str], tuple[Path, Path]] | None:
        """Return an entry of data.train and its two files; None = there is no such text yet.

        A second target language needs tags, so the original text only serves the source side.
        """
        choices = [(self.by_rules, self.own)]
        if self.key == "src":
            choices.append((self.original, self.neighbor.lang))
        for prefix, lang in choices:
            if has_side(str(prefix), lang) and has_side(str(prefix), self.other):
                code = {} if lang == self.own else {self.key: lang}
                files = find_side(str(prefix), lang), find_side(str(prefix), self.other)
                return {"path": str(prefix), **code}, files
        return None

    def commands(self) -> list[str]:
        """Return the commands that make the text; empty = it would be a second target language."""
        neighbor, folder = self.neighbor, shlex.quote(str(self.original.parent))
        download = f"nmt-import tatoeba --src-lang {neighbor.lang} --tgt-lang {self.other}"
        if not neighbor.direction:
            return [f"{download} -o {folder}"] if self.key == "src" else []
        made = shlex.quote(str(self.by_rules.parent))
        source, copied = (
            shlex.quote(f"{self.original}.{lang}") for lang in (neighbor.lang, self.other)
        )
        target = shlex.quote(f"{self.by_rules}.{self.own}")
        return [
            f"sudo apt-get install apertium {neighbor.package}",
            f"{download} -o {folder}",
            f"mkdir {made}; cp {copied} {made}",
            f"apertium -u {neighbor.direction} < {source} > {target}",
        ]


def related_corpora(paths: CorpusPaths) -> list[RelatedCorpus]:
    """Return the texts of neighbors that may help, that of the source side first."""
    base = Path(paths.train).parent.parent
    return [
        RelatedCorpus(
            neighbor,
            key,
            own,
            other,
            base / f"{neighbor.lang}-{other}" / "train",
            base / f"{neighbor.lang}-as-{own}" / "train",
        )
        for key, own, other in (("src", paths.src, paths.tgt), ("tgt", paths.tgt, paths.src))
        if (neighbor := NEIGHBORS.get(base_language(own))) and neighbor.lang != base_language(other)
    ]
