"""Compare the numbers of a pair: one number can be written in several ways.

Languages write numbers as words, group digits by three or by four, have units such as 万 and lakh,
count years from different events, and hours to 12 or to 24.
"""

from __future__ import annotations

from collections import Counter

import regex

from nmt.text.numbers import digit_rows

_CHINESE = str.maketrans("零〇一二三四五六七八九", "00123456789")
# three in a row are the digits of a year or of a telephone number, such as 一九四五
_CHINESE_NUMBER = regex.compile("[零〇一二三四五六七八九]{3,}")
FEWEST = 4  # digits on both sides that conflict; fewer are often a converted unit, or words
MOST_SPELLED = 8  # digits that one side may have as words
# years between other calendars and the Gregorian one: Buddhist, Hebrew, Nepali, Ethiopian, Korean,
# Indian, Bengali, Persian, Burmese, Kurdish, Amazigh; of the Republic of China and of Japanese
# emperors; Islamic
_CALENDARS = {
    *(543, 544, 3760, 3761, 56, 57, 7, 8, 2333, 78, 79, 593, 594, 621, 622, 638, 639, 700),
    *(949, 950, 1911, 660, 1867, 1925, 1988, 2018, *range(576, 590)),
}
_GREGORIAN = range(1600, 2200)


def _numbers(text: str) -> set[str]:
    """Return the runs of digits of a text as Latin digits, without zeros where all are zeros."""
    text = _CHINESE_NUMBER.sub(lambda found: found[0].translate(_CHINESE), text)
    return {number for number in digit_rows(text) if number.isascii() and _without_zeros(number)}


def _without_zeros(number: str) -> str:
    return number.replace("0", "")


def _is_same_time(one: str, other: str) -> bool:
    """Return whether two numbers may be the same year, or the same hour after noon."""
    if len(one) > 4 or len(other) > 4:
        return False
    low, high = sorted((int(one), int(other)))
    if high < 25:
        return high - low == 12
    return high - low in _CALENDARS and (low in _GREGORIAN or high in _GREGORIAN)


def conflicting_digits(src: str, tgt: str) -> float:
    """Return the share of the digits of both sides that the other side lacks, 0 to 1.

    It is 0 if both sides may mean the same numbers. Each run of digits is a number, and zeros are
    not compared: 1.5 million and 1,500,000 are the same. Years of other calendars and hours after
    noon count as equal. What remains is a conflict if each side has at least four digits, and those
    of one side are not a part of the other's, which may be grouped in another way. A side may have
    up to eight digits as words.
    """
    sides = _numbers(src), _numbers(tgt)
    known = [{_without_zeros(number) for number in side} for side in sides]
    missing = [
        {number for number in side if _without_zeros(number) not in other}
        for side, other in zip(sides, known[::-1], strict=True)
    ]
    rest = [
        [one for one in side if not any(_is_same_time(one, number) for number in other)]
        for side, other in zip(missing, missing[::-1], strict=True)
    ]
    few, many = sorted((Counter(_without_zeros("".join(r))) for r in rest), key=Counter.total)
    lengths = [sorted(map(len, numbers)) for numbers in rest]
    regrouped = few <= many and lengths[0] != lengths[1]
    differ = min(map(sum, lengths)) >= FEWEST and not regrouped
    if not differ and (many - few).total() <= MOST_SPELLED:
        return 0.0
    return (few.total() + many.total()) / len(_without_zeros("".join((*sides[0], *sides[1]))))
