"""Rules that drop pairs: a name and a meaning for each fault, in all reports and commands.

Preparation takes few of them, and an import some more. Back-translation
(``nmt.apps.synthesize.filters``) and ``nmt-clean`` (``data_prep.cleaning.rules``, a table of all)
add rules that compare a pair with its corpus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

from nmt.config.recipe import DataConfig
from nmt.data.lines import is_blank
from nmt.data.pair import Pair
from nmt.data.report import Places

MAX_PIECE_LENGTH = 20  # characters per allowed piece; a longer line has too many pieces
Reason: TypeAlias = str | None  # name of the rule that drops a pair; None = it is kept


class Limits(NamedTuple):
    """Maximum length of a side of a training pair: words, and pieces after segmentation."""

    words: int
    pieces: int

    @property
    def characters(self) -> int:
        """Maximum characters of a line: segmenting a longer one could take minutes."""
        return MAX_PIECE_LENGTH * self.pieces


# lengths at which a recipe drops training pairs by default
LIMITS = Limits(*(DataConfig.model_fields[name].default for name in ("max_len", "max_pieces")))


@dataclass(frozen=True)
class Rule:
    """A reason to drop a pair: a measure of it is over a threshold.

    Attributes:
        name: the reason, for counts and options.
        measure: of a pair, and of the ``CorpusFilter`` that reads its corpus, if one does.
        sentence: what is wrong with a dropped pair; ``{}`` is the threshold.
        in_corpus: the measure compares the pair with the corpus, in the second pass.
        sure: the measure is never wrong, so the rule may drop many pairs of a corpus.
    """

    name: str
    measure: Callable[[Pair, Any], float]
    threshold: float = 0
    sentence: str = ""
    in_corpus: bool = False
    sure: bool = False

    @property
    def text(self) -> str:
        """The sentence with the threshold."""
        return self.sentence.format(self.threshold)


def words(line: str) -> int:
    """Return the number of words."""
    return len(line.split())


def worse(measure: Callable[[str], float]) -> Callable[[Pair, object], float]:
    """Return a measure of a pair: that of its worse side."""
    return lambda pair, _: max(measure(pair.src), measure(pair.tgt))


BLANK = Rule("blank", worse(is_blank), 0, "A side has no visible character.", sure=True)
LENGTH = Rule("length", worse(words), LIMITS.words, "A side has over {:g} words.")
CHARACTERS = Rule("characters", worse(len), LIMITS.characters, "A side has over {:,g} characters.")
IDENTICAL = Rule(
    "identical",
    lambda pair, _: pair.src.strip() == pair.tgt.strip(),
    0,
    "Both sides are the same text, so it is probably not translated.",
)


def training_rules(limits: Limits | None, monolingual: bool) -> list[Rule]:
    """Return the rules of preparation.

    Args:
        limits: of training text; None = a dev or test set, whose lines may have any length.
        monolingual: lines without a translation: blank ones separate documents, and blocks divide
            those with many words.
    """
    rules = [] if monolingual else [BLANK]
    if limits is None:
        return rules

    def counted(pair: Pair, _: object) -> int:
        # most lines are too short to exceed the limit, and need not be split
        longest = max(len(pair.src), len(pair.tgt))
        return max(words(pair.src), words(pair.tgt)) if longest > 2 * limits.words else 0

    if not monolingual:
        rules.append(replace(LENGTH, measure=counted, threshold=limits.words))
    return [*rules, replace(CHARACTERS, threshold=limits.characters)]


def duplicates() -> Rule:
    """Return a rule that drops repeated pairs."""
    seen: set[tuple[str, str]] = set()

    def is_repeated(pair: Pair, _: object) -> bool:
        before = len(seen)
        seen.add(pair[:2])
        return len(seen) == before

    return Rule("duplicate", is_repeated, 0, "The same pair stands in an earlier line.", sure=True)


def why_dropped(pair: Pair, rules: Iterable[Rule]) -> Reason:
    """Return the name of the first rule that drops a pair; no rule may need the corpus."""
    for rule in rules:
        if rule.measure(pair, None) > rule.threshold:
            return rule.name
    return None


def apply_rules(
    pairs: Iterable[Pair], rules: Sequence[Rule], drops: MutableMapping[str, Places]
) -> Iterator[Pair]:
    """Yield the pairs that no rule drops; count each other pair under its first rule."""
    for pair in pairs:
        if (reason := why_dropped(pair, rules)) is None:
            yield pair
        else:
            drops.setdefault(reason, Places()).add(pair.place)
