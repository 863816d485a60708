"""Split lines into sentences, and learn from the training data where they end.

A model trained on one sentence per line skips sentences of longer lines.

A sentence ends with a mark of Unicode's property Sentence_Terminal, and with some other marks that
scripts use in this way. A full stop does not end it inside a number or an address, before a small
letter, after an initial, a number of an ordinal, or an abbreviation. Abbreviations are learned from
the training lines as by Kiss and Strunk 2006, "Unsupervised Multilingual Sentence Boundary
Detection": words that have a full stop inside lines and seldom occur without it. A short word, or
one in capitals, ends a sentence only if training lines end with it or often have it without a stop,
such as "him" and OK.

nmt-export copies this file next to translate.py, so it must not import other modules of nmt.
"""
# ruff: noqa: RUF001

from __future__ import annotations

import functools
import html
import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import regex

USUAL_SHARE = 0.8  # of the training lines have at most the usual number of sentences
_CONTROL = regex.compile(r"[\p{Cc}\p{Zl}\p{Zp}]")  # line ends, tabs

# ---------------------------------------------------------------- marks and words

_ESCAPE = regex.compile("&(?:quot|apos|amp|lt|gt|#91|#93|#124);")  # of Moses
# Unicode counts commas of Burmese, Javanese and Balinese, and leaves out the marks of Tibetan, two
# Ethiopic word spaces, and signs that Greek and Armenian share; དང་ before a shad is "and"
_MARK = (
    r"(?:[\p{Sentence_Terminal}…༎-༒༔--\u104a\ua9c8\u1b5e]|(?<!དང་)།"
    r"|(?<=\p{Ethiopic})[፡:]{2}|(?<=\p{Armenian}\s?):|(?<=\p{Greek}\s?);)"
)
_MARKS = regex.compile(rf"(?V1)({_MARK}+)(?:\[\d{{1,3}}\])*")  # and numbers of footnotes
_BEFORE_SPACE = frozenset(".!?…;:؞؟۔‼‽⁇⁈⁉․")  # the others end a sentence without one, too
_SPACE = regex.compile(r"\s*")
_UNSPACED = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}]"
)
# quotation marks and brackets that close -> those that open
_CLOSES = {
    '"': '"', "“": "„", "”": "“„”", "«": "»", "»": "«»", "›": "‹›", "‹": "›", "’": "‘‚", "‘": "‚",
    ")": "(", "]": "[", "}": "{", "）": "（", "］": "［", "】": "【", "〕": "〔", "》": "《",
    "〉": "〈", "」": "「", "』": "『", "｣": "｢", "〟": "〝", "༽": "༼",
}  # fmt: skip
_OPENS = frozenset("".join(_CLOSES.values()))
_BRACKET = regex.compile("[" + regex.escape("".join({*_CLOSES, *_OPENS})) + "]")
_LONGEST_QUOTE = 300  # characters; a sentence may end inside a longer one

_FIRST_LETTER = regex.compile(r"[\s\p{Pi}\p{Pf}\p{Ps}\p{Pd}\"'¿¡]*+(\w)")
_LAST_WORD = regex.compile(r"(?r)([\p{L}\p{M}\p{N}.'’ʼ]++)\s?")
_INITIAL = regex.compile(r"(?V1)[\p{L}--[\p{Hangul}\p{Ethiopic}]]")
_WITH_STOPS = regex.compile(r"(?:\p{L}\p{M}*){1,3}(?:\.(?:\p{L}\p{M}*){1,3})+")  # z.B, EE.UU
_ORDINAL = regex.compile(r"\d{1,2}|[IVXL]{2,}")
_UNIT = regex.compile(r"(?r)\d\s?\p{L}+\s?")
# r and l can be the vowel of a word, as in Slovak krk
_NO_VOWEL = regex.compile(
    "(?i)(?!.*(.)\\1)[rlрл]?[bcdfghjkmnpqstvxzбвгджзйкмнпстфхцчшщβγδζθκμνξπστφχψ]+[rlρрл]?"
)
# languages that write ordinal numbers with a stop
_ORDINALS = frozenset(
    "az bs cs da de dsb et eu fi fo hr hsb hu is lb lt lv nb nn no pl se sh sk sl sq sr tr".split()  # noqa: SIM905
)
# abbreviations of many languages: titles before a name, and words before a number
_TITLES = frozenset(
    "prof ing gen col capt mrs rev dra sra srta проф акад डॉ प्रो ডা ড ਡਾ ડૉ డా ಡಾ ഡോ திரு".split()  # noqa: SIM905
)
_BEFORE_NUMBER = frozenset("no nos num art fig vol cap str pag sec abs tab".split())  # noqa: SIM905


@dataclass(frozen=True)
class UsualLine:
    """Typical lines of the training data.

    Attributes:
        sentences: maximum per source line, except the longest fifth; None = unknown.
        length_ratio: pieces of a translation per piece of its source.
        abbreviations: shortest code of a source language -> what ``AbbreviationCounts`` learned.
    """

    sentences: int | None = None
    length_ratio: float = 1.0
    abbreviations: dict[str, list[str]] = field(default_factory=dict)

    @functools.cached_property
    def learned(self) -> dict[str, frozenset[str]]:
        """The abbreviations as sets."""
        return {lang: frozenset(words) for lang, words in self.abbreviations.items()}


def usual_sentences(counts: Mapping[int, int]) -> int | None:
    """Return the smallest number of sentences that USUAL_SHARE of the lines do not exceed.

    ``counts``: number of lines with each number of sentences; empty = not known.
    """
    ordered = sorted(counts)
    covered = itertools.accumulate(counts[number] for number in ordered)
    enough = USUAL_SHARE * sum(counts.values())
    return next((n for n, lines in zip(ordered, covered, strict=True) if lines >= enough), None)


# ---------------------------------------------------------------- split


def split_sentences(line: str, lang: str, abbreviations: Collection[str] = ()) -> list[str]:
    """Split a line after each sentence, in linear time.

    The parts have the white space behind them. Joined, they are the line. A line is not split
    inside quotation marks and brackets, nor after them where the sentence continues. A part has two
    letters, or one of a script without capital letters.

    Args:
        line: without control characters.
        lang: the shortest code of its language, by which ordinal numbers are known.
        abbreviations: what ``AbbreviationCounts`` learned: lowercased abbreviations (a period after
            them does not end a sentence), and short words with a period (``him.``) that do end one;
            "." = the latter are known.
    """
    plain = _ESCAPE.sub(_replacement, line)
    parts, start, letters, counted = [], 0, 0, 0
    for end in _ends(plain, lang, abbreviations):
        letters += _letters(plain[counted:end])
        counted = end
        if letters >= 2:
            parts.append(line[start:end])
            start, letters = end, 0
    if letters + _letters(plain[counted:]) >= 2 or not parts:
        parts.append(line[start:])
    else:
        parts[-1] += line[start:]
    return parts


def _replacement(found: regex.Match[str]) -> str:
    """Return the character of an escape with spaces, as long as the escape."""
    return html.unescape(found[0]).ljust(len(found[0]))


def _letters(text: str) -> int:
    """Count letters; one of a script without capital letters says as much as two others."""
    return sum(1 + _is_caseless(char) for char in text if char.isalpha())


def _is_caseless(char: str) -> bool:
    return char.isalpha() and char.lower() == char.upper()


def _ends(text: str, lang: str, abbreviations: Collection[str]) -> Iterator[int]:
    """Yield each index after a sentence and its white space, except at the end of the text."""
    closing, quotes = _quotes(text)
    cased = any(map(str.isupper, text))  # a small letter continues a sentence
    mixed = cased and any(map(str.islower, text))
    inside_to, next_quote = -1, 0
    for found in _MARKS.finditer(text):
        after = found.end()
        while True:
            place = _SPACE.match(text, after).end()
            if place not in closing and text[after : after + 1] not in ("'", "’"):
                break
            after = max(place, after) + 1 if place in closing else after + 1
        while next_quote < len(quotes) and quotes[next_quote][0] < found.start():
            inside_to = max(inside_to, quotes[next_quote][1])
            next_quote += 1
        if place == len(text):
            return
        closed, following = after > found.end(), text[place]
        if after <= inside_to:
            continue
        if place == after:
            if closed:
                is_end = following in _OPENS
            elif found[1][-1] not in _BEFORE_SPACE or found[1].endswith("::"):
                is_end = found[1] != "．" or not following.isdigit()
            else:
                before = text[found.start() - 1 : found.start()]
                goes_on = not (_UNSPACED.match(following) or following in _OPENS)
                is_end = bool(_UNSPACED.match(before)) and not goes_on
        else:
            letter = _FIRST_LETTER.match(text, place)
            is_end = not (
                (cased and letter and letter[1].islower())
                or (closed and following not in _OPENS and _is_caseless(following))
                or (
                    found[1] == "."
                    and _is_short(text, found.start(), letter, mixed, lang, abbreviations)
                )
            )
        if is_end:
            yield place


def _quotes(text: str) -> tuple[set[int], list[tuple[int, int]]]:
    """Find the marks that close a quotation or bracket, and the short ones from mark to mark."""
    closing: set[int] = set()
    pairs: list[tuple[int, int]] = []
    opened: list[tuple[str, int]] = []
    counts: Counter[str] = Counter()  # of the marks that are open
    for found in _BRACKET.finditer(text):
        mark, place = found[0], found.start()
        if (
            mark in "’‘"
            and text[place + 1 : place + 2].isalpha()
            and text[place - 1 : place].isalpha()
        ):
            continue  # an apostrophe
        openers = _CLOSES.get(mark, "")
        if any(counts[opener] for opener in openers):
            while True:
                opener, begin = opened.pop()
                counts[opener] -= 1
                if opener in openers:
                    break
            closing.add(place)
            if place - begin <= _LONGEST_QUOTE:
                pairs.append((begin, place))
        elif mark in _OPENS:
            opened.append((mark, place))
            counts[mark] += 1
    return closing, sorted(pairs)


def _is_short(
    text: str,
    stop: int,
    letter: regex.Match[str] | None,
    mixed: bool,
    lang: str,
    abbreviations: Collection[str],
) -> bool:
    """Return whether a stop belongs to the word before it, which is shortened, or to a number.

    Args:
        letter: the first letter or digit after it.
        mixed: whether the text has capital and small letters.
    """
    match = _LAST_WORD.match(text, 0, stop)
    if not match:
        return False
    word = match[1].strip("'’ʼ")
    unusual = (
        bool(letter and letter[1].isupper())
        and not text.endswith("-", 0, match.start())  # a compound
        and _is_unusual_end(word, mixed, abbreviations)
    )
    if text[stop - 1].isspace():  # Moses leaves the stop at initials and other words that it knows
        return word.lower() in abbreviations or (unusual and len(word) > 1)
    if _INITIAL.fullmatch(word):
        return not _UNSPACED.match(word)
    if _ORDINAL.fullmatch(word):
        return lang in _ORDINALS
    small = word.lower()
    return bool(
        _WITH_STOPS.fullmatch(word)
        or small in abbreviations
        or small in _TITLES
        or (small in _BEFORE_NUMBER and letter and letter[1].isdigit())
        or unusual
        or (
            2 <= len(word) <= 4
            and not word.isupper()
            and _NO_VOWEL.fullmatch(word)
            and not (word.islower() and _UNIT.match(text, 0, stop))
        )
    )


def _is_unusual_end(word: str, mixed: bool, abbreviations: Collection[str]) -> bool:
    """Return whether a word is short or in capitals, and did not end sentences in training.

    Without training statistics, only a short word in capitals is unusual.

    Args:
        mixed: whether the text has small letters, too.
    """
    if not word.isalpha():
        return False
    known = KNOWN in abbreviations
    in_capitals = mixed and word.isupper() and len(word) > 1
    if len(word) <= SHORT:
        return (known or in_capitals) and f"{word.lower()}." not in abbreviations
    return in_capitals and known and f"{word.lower()}." not in abbreviations


# ---------------------------------------------------------------- learn abbreviations

SHORT = 3  # letters; the stop of such a word may be that of an abbreviation
KNOWN = "."  # among what is learned: it has the short words that end sentences

MIN_ABBREVIATIONS = 3  # times that a word must have a stop inside lines
_MAX_PLAIN = 10  # times that a word of up to 3 letters that ends no line may be without a stop for
# each such time; 1 for other words
_LIKELY = 3.5  # of the log-likelihood ratio, times sqrt(e) for each letter: abbreviations are short
_MIN_SHARE = 0.1  # of the stops of an ordinary short word are at the ends of lines
_MIN_PLAIN = 10  # times that it is without a stop, for each time that it has one inside a line
_WORD = regex.compile(
    rf"(?V1)(?<![\p{{L}}\p{{M}}\p{{N}}.'’-])([\p{{L}}\p{{M}}]++)"
    rf"(?:\s?(\.)(?=[\s\p{{Pe}}\p{{Pf}}\"'])(?={_FIRST_LETTER.pattern}|))?+|({_MARK})(?!\s\Z)"
)


class AbbreviationCounts:
    """Count the words of training lines, with a stop and without one, to learn abbreviations.

    An ordinary word has a stop inside a line as often as sentences end there, compared with the
    ends of lines. Sentences of one word, as in "Thanks. Bye.", and stops before a small letter,
    which end no sentence anyway, do not count.
    """

    def __init__(self) -> None:
        self._inside: Counter[str] = Counter()
        self._at_begin: Counter[str] = Counter()  # of a sentence: a title, or a sentence of a word
        self._at_end: Counter[str] = Counter()
        self._plain: Counter[str] = Counter()
        self._small: Counter[str] = Counter()  # short, in small letters, without a stop
        self._capitals: Counter[str] = Counter()  # at the ends of lines
        self._lines = self._ends = 0

    def add(self, line: str) -> None:
        """Count a line."""
        text = _ESCAPE.sub(_replacement, line).rstrip() + " "
        self._lines += 1
        plain = []
        begins = True  # a sentence
        for word, stop, letter, mark in _WORD.findall(text):
            if word and not stop:
                plain.append(word)
                begins = False
                continue
            if mark:
                self._ends += 1
            elif not letter:
                self._at_end[word.lower()] += 1
                if len(word) > SHORT and word.isupper():
                    self._capitals[word.lower()] += 1
            elif not letter.islower():
                self._ends += 1
                (self._at_begin if begins else self._inside)[word.lower()] += 1
            begins = True
        self._plain.update(map(str.lower, plain))
        self._small.update(word for word in plain if len(word) <= SHORT and word.islower())

    def learned(self) -> list[str]:
        """List the abbreviations in small letters, the short words that end sentences, and KNOWN.

        The latter have a stop: ``him.``
        """
        ends = (f"{word}." for word in {*self._at_end, *self._plain} if self._ends_sentences(word))
        return sorted({KNOWN, *self._abbreviations(), *ends})

    def _ends_sentences(self, word: str) -> bool:
        inside = self._inside[word] + self._at_begin[word]
        if len(word) > SHORT:
            return self._capitals[word] > _MIN_SHARE * inside
        if self._at_end[word] > _MIN_SHARE * inside:
            return True
        return self._plain[word] >= _MIN_PLAIN * max(1, inside) or (
            self._small[word] > 0 and not inside
        )

    def _abbreviations(self) -> list[str]:
        expected = (self._ends + 1) / (self._ends + self._lines + 2)
        found = []
        for word, count in self._inside.items():
            inside = count + self._at_begin[word]  # titles begin sentences, too
            at_end = self._at_end[word]
            share = inside / (inside + at_end)
            if inside < MIN_ABBREVIATIONS or share <= expected or len(word) == 1:
                continue
            ratio = inside * math.log(share / expected)
            if at_end:
                ratio += at_end * math.log((1 - share) / (1 - expected))
            letters = sum(map(str.isalpha, word))
            likely = 2 * ratio >= _LIKELY * math.exp(letters / 2)
            plain = inside * (1 if at_end or letters > 3 else _MAX_PLAIN)
            if likely and self._plain[word] <= plain:
                found.append(word)
        return found


# ---------------------------------------------------------------- join


def join_in_parts(sentences: Sequence[str], fits: Callable[[Sequence[str]], bool]) -> list[str]:
    """Join sentences into parts that fit, by halving the line as often as necessary.

    ``fits`` says whether several sentences may be a part; a single one always is.
    """
    if len(sentences) == 1 or fits(sentences):
        return ["".join(sentences)]
    middle = len(sentences) // 2
    return [*join_in_parts(sentences[:middle], fits), *join_in_parts(sentences[middle:], fits)]


def join_translations(translations: Sequence[str], sources: Sequence[str], space: str) -> str:
    """Join the translations of the parts of a line.

    Args:
        sources: the parts, with the white space behind them; empty = not known.
        space: what stands between two sentences in the target language.
    """
    text = translations[0]
    for source, translation in zip(sources, translations[1:], strict=False):
        if text and translation:
            text += space_between(source[len(source.rstrip()) :], space)
        text += translation
    return text


def space_between(gap: str, space: str) -> str:
    """Return what stands between the translations of two sentences.

    Args:
        gap: what is between the sentences: white space, or nothing. Line ends and tabs stay.
        space: what stands between two sentences in the target language: a space, or nothing.
    """
    if _CONTROL.search(gap):
        return gap
    if not space or not gap or "\u3000" in gap:  # the space of Chinese and Japanese
        return space
    return gap
