"""Add the noise of real text to training text: capitals, missing accents, typos, URLs and others.

``KINDS`` has one function per kind. Each gets the lines of a pair and returns them changed, or
unchanged where the kind does not apply. ``data.augment`` says which share of the pairs each
changes.

Sources: Belinkov & Bisk 2018 (typos by keyboard neighbors, exchanged letters);
Bogoychev et al. 2023, "OpusCleaner and OpusTrainer" (capitals, typos, emoji and placeholders in
training); Nguyen et al. 2021, "Data augmentation by concatenation" (two pairs in one line).
"""

from __future__ import annotations

import functools
import html
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

import regex

from nmt.data.bitext import Chunk
from nmt.data.lines import Texts, is_blank
from nmt.text import letters, moses
from nmt.text.languages import base_language, sentence_space
from nmt.text.sentences import join_translations

TYPO_RATE = 0.1  # share of the words of a drawn line; it has at least one typo
# unchanged inside a changed line: addresses, placeholders, tags
PROTECTED = regex.compile(
    r"(\w+://\S+|www\.\S+|\S+@\S+\.\w+|\{[^{}]*\}|%\(\w+\)[a-z]|%(?:\d\$)?[sdif@]|</?\w[^<>]*>|&\w+;)"
)

_MAY_BE_PROTECTED = re.compile(r"[{@%<&]|://|www\.")  # much faster than the expression above


class Draws:
    """Random decisions about one pair, all from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed).random  # the same numbers in every version of Python

    def below(self, limit: int) -> int:
        """Draw an integer of at least 0 and below ``limit``."""
        return int(self.random() * limit)

    def choice(self, items: Sequence[str]) -> str:
        """Draw an item."""
        return items[self.below(len(items))]

    def happens(self, probability: float) -> bool:
        """Draw whether something happens."""
        return self.random() < probability


@dataclass(frozen=True)
class Context:
    """The context of a change, besides the lines.

    Attributes:
        draws: of this pair.
        langs: codes of the source and the target language.
        tokenized: the lines are words of Moses, without escapes.
        other: draws another pair of the same corpus.
    """

    draws: Draws
    langs: tuple[str, str]
    tokenized: bool
    other: Callable[[], Texts]


Kind: TypeAlias = Callable[[Texts, Context], Texts]


# ---------------------------------------------------------------- one function a kind


def join(pair: Texts, context: Context) -> Texts:
    """Append another pair of the corpus to both sides (Nguyen et al. 2021)."""
    spaces = [" " if context.tokenized else sentence_space(lang) for lang in context.langs]
    sides = zip(pair, context.other(), spaces, strict=True)
    src, tgt = (join_translations([a.rstrip(), b], [""], space) for a, b, space in sides)
    return src, tgt


def case(pair: Texts, context: Context) -> Texts:
    """Write both sides in capitals, with capital initials, or in small letters."""
    change = (letters.upper, _title, letters.lower)[context.draws.below(3)]
    src, tgt = (
        _outside_protected(line, lambda text, lang=lang: change(text, lang))  # type: ignore[misc]
        for line, lang in zip(pair, context.langs, strict=True)
    )
    return pair if src == pair[0] else (src, tgt)  # the source may have a script without capitals


def accents(pair: Texts, context: Context) -> Texts:
    """Leave out the accents of the source, and the vowel signs of Arabic and Hebrew."""
    return _outside_protected(pair[0], without_accents), pair[1]


def typos(pair: Texts, context: Context) -> Texts:
    """Insert typos into the source: one in each tenth long word, and at least one.

    A letter is replaced by a neighbor on the language's keyboard, followed by one, left out, or
    exchanged with the letter before it (Belinkov & Bisk 2018). A letter without known neighbors is
    written twice, left out or exchanged. No word loses its first letter.
    """
    parts = _split_protected(pair[0])
    places = []
    for part in range(0, len(parts), 2):
        for word in _LONG_WORD.finditer(parts[part]):
            i = 1 + context.draws.below(len(word[0]) - 1)
            if _OF_ALPHABET.match(word[0][i]) and not unicodedata.combining(word[0][i - 1]):
                places.append((part, word.start() + i))
    if not places:
        return pair
    certain = context.draws.below(len(places))
    for number in reversed(range(len(places))):  # from the end, so that places stay valid
        if number == certain or context.draws.happens(TYPO_RATE):
            part, i = places[number]
            parts[part] = _typo(parts[part], i, context.langs[0], context.draws)
    return "".join(parts), pair[1]


def punctuation(pair: Texts, context: Context) -> Texts:
    """Remove the final punctuation mark, of both sides if both have one."""
    src, tgt = (_END_MARKS.sub("", line) for line in pair)
    changed = all(line and line != old for line, old in zip((src, tgt), pair, strict=True))
    return (src, tgt) if changed else pair


def quotes(pair: Texts, context: Context) -> Texts:
    """Give the source other quotation marks, and the other kind of apostrophe inside words."""
    line, draws = pair[0], context.draws
    if len(_QUOTES.findall(line)) % 2 == 0:
        if not context.tokenized:
            line = _SPACE_IN_QUOTES.sub("", line)
        marks = "".join(_QUOTES.findall(line))
        used = {style for style in QUOTE_STYLES if marks and marks == style * (len(marks) // 2)}
        new = draws.choice([style for style in QUOTE_STYLES if style not in used])
        sides = iter(new * (len(line) // 2 + 1))
        line = _QUOTES.sub(lambda _: next(sides), line)
    line = _APOSTROPHE.sub(lambda found: "\u2019" if found[0] == "'" else "'", line)
    return line, pair[1]


def copies(pair: Texts, context: Context) -> Texts:
    """Insert the same untranslated text into both sides: an address, an emoji, a placeholder.

    Its place is the end or the start, or behind one of the marks inside the lines if both sides
    have as many of them.
    """
    draws = context.draws
    token = TOKENS[draws.below(len(TOKENS))](draws)
    inside = [[m.end() for m in _INNER_MARK.finditer(line)] for line in pair]
    places = [(len(pair[0]), len(pair[1]))] * 2 + [(0, 0)]
    if len(inside[0]) == len(inside[1]):
        places += zip(*inside, strict=True)
    chosen = places[draws.below(len(places))]
    src, tgt = (
        " ".join(
            filter(None, (line[:at].rstrip(), _words(token, lang, context), line[at:].lstrip()))
        )
        for line, lang, at in zip(pair, context.langs, chosen, strict=True)
    )
    return src, tgt


# in the order in which several change a pair; the names are those of data.augment
KINDS: dict[str, Kind] = {
    function.__name__: function
    for function in (join, case, accents, typos, punctuation, quotes, copies)
}


# ---------------------------------------------------------------- what the kinds need

_SMALL_WORD = regex.compile(r"(?:^|(?<=[\s(\[\"“„«]))\p{Ll}[\p{L}\p{M}]*")
_MARKS = regex.compile(r"(?<=[\p{Latin}\p{Greek}])\p{Mn}+")
_VOWEL_SIGNS = re.compile("[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c7\u064b-\u0652\u0670]")
_BARE = str.maketrans("đĐłŁøØħĦ\u0131\u0451\u0401", "dDlLoOhHi\u0435\u0415")
_OF_ALPHABET = regex.compile(
    r"(?V1)[[\p{Latin}\p{Greek}\p{Cyrillic}\p{Armenian}\p{Georgian}\p{Arabic}\p{Hebrew}]&&\p{L}]"
)
_LONG_WORD = regex.compile(r"[\p{L}\p{M}]{4,}")
_END_MARKS = regex.compile(r"\s*(?:\p{Sentence_Terminal}|…)+\s*$")
QUOTE_STYLES = ('""', "“”", "„“", "«»")
_QUOTES = re.compile('["“”„«»]')
_SPACE_IN_QUOTES = re.compile(r"(?<=«)\s|\s(?=»)")
_APOSTROPHE = regex.compile(r"(?<=\p{L})['\u2019](?=\p{L})")
_INNER_MARK = regex.compile(r"[,;:\u060c\u3001\uff0c\uff1b\uff1a](?=\s)")


def _title(text: str, lang: str) -> str:
    return _SMALL_WORD.sub(lambda found: letters.capitalized(found[0], lang), text)


def _split_protected(line: str) -> list[str]:
    """Split a line: parts that may change, and between them those that stay."""
    return PROTECTED.split(line) if _MAY_BE_PROTECTED.search(line) else [line]


def _outside_protected(line: str, change: Callable[[str], str]) -> str:
    """Change a line except addresses, placeholders and tags."""
    parts = _split_protected(line)
    parts[::2] = map(change, parts[::2])
    return "".join(parts)


def without_accents(text: str) -> str:
    """Return text without the accents of Latin and Greek letters, and without vowel signs."""
    if text.isascii():
        return text
    bare = _MARKS.sub("", unicodedata.normalize("NFD", text))
    return unicodedata.normalize("NFC", _VOWEL_SIGNS.sub("", bare)).translate(_BARE)


# the rows of the keyboards of languages; "" = of all others of the script
_LATIN = {
    "": "qwertyuiop asdfghjkl zxcvbnm",
    "de cs sk hu sl hr bs sq": "qwertzuiop asdfghjkl yxcvbnm",
    "fr": "azertyuiop qsdfghjklm wxcvbn",
}
_CYRILLIC = {
    "ru ba bua ce cv kk kv ky mdf mhr mrj myv os sah tt tyv udm": (
        "йцукенгшщзх фывапролджэ ячсмитьбю"
    ),
    "uk rue": "йцукенгшщзхї фівапролджє ячсмитьбю",
    "be": "йцукенгшўзх фывапролджэ ячсмітьбю",
    "bg": "явертъуиопшщ асдфгхйкл зьцжбнмч",
    "sr sh bs hr": "љњертзуиопшђ асдфгхјклчћ ѕџцвбнм",
    "mk": "љњертѕуиопшѓ асдфгхјклчќ зџцвбнм",
    "mn": "фцужэнгшүзкъ йыбөахролдп ячёсмитьвю",
}
_ARABIC = {
    "ar arz": "ضصثقفغعهخحج شسيبلاتنمكط ئءؤرىةوزظ",
    "fa": "ضصثقفغعهخحجچ شسیبلاتنمکگ ظطزرذدئو",
    "ur": "قوعرتےءیہپ اسدفغھجکل زشچطبنم",
}
_OTHERS = (
    {"": "ςερτυθιοπ ασδφγηξκλ ζχψωβνμ"},
    {"": "קראטוןםפ שדגכעיחלךף זסבהנמצתץ"},
    {"": "ქწერტყუიოპ ასდფგჰჯკლ ზხცვბნმ"},
)


@functools.cache
def _neighbors(lang: str) -> dict[str, str]:
    """Return the letters next to each key of a language's keyboards; rows are half a key apart."""
    found: dict[str, str] = {}
    for keyboards in (_LATIN, _CYRILLIC, _ARABIC, *_OTHERS):
        of_language = (keys for langs, keys in keyboards.items() if lang in langs.split())
        rows = next(of_language, keyboards.get("", "")).split()
        for r, row in enumerate(rows):
            for i, letter in enumerate(row):
                near = [
                    (r, i - 1),
                    (r, i + 1),
                    (r - 1, i),
                    (r - 1, i + 1),
                    (r + 1, i - 1),
                    (r + 1, i),
                ]
                found[letter] = "".join(
                    rows[y][x] for y, x in near if 0 <= y < len(rows) and 0 <= x < len(rows[y])
                )
    return found


def _typo(text: str, i: int, lang: str, draws: Draws) -> str:
    letter = text[i]
    key = without_accents(letters.lower(letter))
    keys = _neighbors(base_language(lang)).get(key, "")
    changes: list[str | None] = [letter + letter, "", None]
    if keys:
        near = draws.choice(keys)
        near = letters.upper(near, lang) if letter.isupper() else near
        changes[:1] = [near, letter + near]
    changed = changes[draws.below(len(changes))]
    if changed is None:
        return text[: i - 1] + letter + text[i - 1] + text[i + 1 :]
    return text[:i] + changed + text[i + 1 :]


_CONSONANTS, _VOWELS = "bcdfghjklmnprstvz", "aeiou"
EMOJI = (
    *"😀😁😂🤣😃😄😅😆😉😊😋😎😍😘🙂🤗🤔😐🙄😏😮😴😌😛😒😓😔😕🙃😢😭😤😱😡🤒🤓👍👎👌👏🙏💪👋"
    "🎉🎁🎂🔥⭐✨💯💔💕📷📞📅📌🔔🎵☀☔⚡⏰✅❌❗❓➡⬅⚠",
    "❤️",
)
PLACEHOLDERS = (
    *("{0}", "{1}", "{2}", "{name}", "{count}", "{value}", "{title}", "{{name}}", "${name}"),
    *("%s", "%d", "%1$s", "%2$s", "%(name)s", "%@", "<0>"),
)


def _name(draws: Draws) -> str:
    syllables = (
        draws.choice(_CONSONANTS) + draws.choice(_VOWELS) for _ in range(2 + draws.below(3))
    )
    return "".join(syllables) + draws.choice(["", "", str(draws.below(100))])


def _url(draws: Draws) -> str:
    end = draws.choice(["", "/", f"/{_name(draws)}", f"/{_name(draws)}?id={draws.below(1000)}"])
    domain = draws.choice(["com", "org", "net", "info", "io"])
    return f"{draws.choice(['https://', 'http://', 'www.'])}{_name(draws)}.{domain}{end}"


def _mail(draws: Draws) -> str:
    return f"{_name(draws)}@{_name(draws)}.{draws.choice(['com', 'org', 'net'])}"


TOKENS: tuple[Callable[[Draws], str], ...] = (
    _url,
    _mail,
    lambda draws: draws.choice(EMOJI),
    lambda draws: draws.choice(PLACEHOLDERS),
)


def _words(token: str, lang: str, context: Context) -> str:
    if not context.tokenized:
        return token
    return unescaped(" ".join(moses.words_of(token, base_language(lang))))


# ---------------------------------------------------------------- a pair, and a corpus

_ESCAPES = {"&": "&amp;", "|": "&#124;", "<": "&lt;", ">": "&gt;", "'": "&apos;", '"': "&quot;"}
_ESCAPES |= {"[": "&#91;", "]": "&#93;"}
_TO_ESCAPES = str.maketrans(_ESCAPES)
_ESCAPE = re.compile("|".join(map(re.escape, _ESCAPES.values())))


def unescaped(line: str) -> str:
    """Return a line of Moses without its escapes."""
    return _ESCAPE.sub(lambda found: html.unescape(found[0]), line)


class Augmenter:
    """Draw which kinds change a pair, and change it.

    Args:
        shares: of the pairs that each kind changes.
        tokenized: the lines are Moses-tokenized.
    """

    def __init__(self, shares: Mapping[str, float], tokenized: bool) -> None:
        self.shares = {kind: shares[kind] for kind in KINDS if shares.get(kind)}
        self._tokenized = tokenized

    def kinds(self, draws: Draws) -> list[str]:
        """Draw the kinds that change a pair, in order."""
        return [kind for kind, share in self.shares.items() if draws.happens(share)]

    def change(
        self,
        pairs: Sequence[Texts],
        i: int,
        kinds: Collection[str],
        draws: Draws,
        langs: tuple[str, str],
    ) -> Texts:
        """Return one of some pairs of a corpus as some kinds change it; ``join`` takes another."""
        pair = pairs[i]

        def another() -> Texts:
            return self._plain(pairs[draws.below(len(pairs))])

        context = Context(draws, langs, self._tokenized, another)
        plain = self._plain(pair)
        changed = plain
        for kind in kinds:
            changed = KINDS[kind](changed, context)
        if changed == plain or any(map(is_blank, changed)):
            return pair
        if self._tokenized and all(
            text.translate(_TO_ESCAPES) == line for text, line in zip(plain, pair, strict=True)
        ):
            return changed[0].translate(_TO_ESCAPES), changed[1].translate(_TO_ESCAPES)
        return changed

    def _plain(self, pair: Texts) -> Texts:
        return (unescaped(pair[0]), unescaped(pair[1])) if self._tokenized else pair

    def chunks(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """Yield text with the drawn share of its pairs changed, to learn a segmentation from."""
        for chunk in chunks:
            pairs, langs = list(chunk.pairs()), chunk.corpus.langs
            changed = [
                self.change(pairs, i, self.kinds(draws), draws, langs)
                for i, draws in enumerate(map(Draws, chunk.numbers.tolist()))
            ]
            yield Chunk.of(chunk.corpus, changed, chunk.numbers)
