"""Find characters of held-out text that the training text lacks, and that no model can learn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set
from dataclasses import dataclass

from nmt.apps.suggest.corpus import MONOLINGUAL, CorpusPaths
from nmt.data.lines import find_side, read_lines

MIN_SHARE = 0.002  # of the characters of a side of a set, from which advice names them
SHOWN = 20  # characters, the most frequent first


@dataclass(frozen=True)
class LackingCharacters:
    """The characters of one side of a set that this side of train lacks.

    Attributes:
        share: of all characters of the side of the set.
        characters: the most frequent first.
        mono: name of the file whose text would be copied to both sides.
    """

    split: str
    lang: str
    share: float
    characters: str
    mono: str

    def __str__(self) -> str:
        first = " ".join(self.characters[:SHOWN]) + " ..." * (len(self.characters) > SHOWN)
        return (
            f"{self.share:.1%} of the characters of {self.split} ({self.lang}) are not in train "
            f"({self.lang}), and the model loses them: {first}. Add text that has them, such as "
            f"{self.mono} in the folder of train (docs/howto/back-translation.md)."
        )


def lacking_characters(
    paths: CorpusPaths, source: Set[str], target: Set[str]
) -> Iterator[LackingCharacters]:
    """Yield a record for each side of dev and test that has many characters which train lacks.

    Args:
        source, target: the characters of each side of train; copied text counts as both.
    """
    copied: set[str] = set()
    if paths.mono is not None:
        copied.update(*read_lines(find_side(paths.mono, paths.tgt)))
    for lang, known in ((paths.src, source | copied), (paths.tgt, target | copied)):
        for split, prefix in paths.splits.items():
            if split == "train":
                continue
            characters = Counter("".join(read_lines(find_side(prefix, lang))))
            new = Counter({c: n for c, n in characters.items() if c not in known})
            if (share := new.total() / max(1, characters.total())) >= MIN_SHARE:
                most_frequent = "".join(character for character, _ in new.most_common())
                mono = f"{MONOLINGUAL}.{paths.tgt}"
                yield LackingCharacters(split, lang, share, most_frequent, mono)
