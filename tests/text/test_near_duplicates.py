"""Near-duplicates: what counts as one, and the search in a large corpus."""

from __future__ import annotations

import pytest

from nmt.text import near_duplicates
from nmt.text.near_duplicates import NearIndex, Recurrence, RecurringTexts, is_short, normalized

TEXTS = [
    "The commission will examine the proposal in the second half of the year.",
    "Nobody had told us that the bridge was closed for repairs until October.",
    "She bought a ticket for the night train and slept through two borders.",
]


def found(lines: list[str], texts: list[str] = TEXTS) -> Recurrence:
    recurring = RecurringTexts({"dev": texts})
    for number, line in enumerate(lines, 1):
        recurring.add(line, f"train:{number}")
    return recurring.report("dev")


@pytest.mark.parametrize(
    "line",
    [
        TEXTS[0].lower().rstrip("."),
        TEXTS[0].replace("second", "first"),
        TEXTS[0].replace("will examine", "examines"),
        TEXTS[0].replace("proposal in", "proposal, in 2009,"),
        TEXTS[0].removesuffix(" of the year."),
    ],
)
def test_a_change_in_one_place_is_found(line: str):
    report = found([*TEXTS[1:2], line])
    assert (report.same, report.near, report.of) == (1, 1, 3)
    assert report.examples[1] == f"train:2: {line} ~ {TEXTS[0]}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("मेरा नाम हिन्दी है।", ("मेरा", "नाम", "हिन्दी", "है")),
        ("Ko\u0323\u0301 12 e\u0300de\u0300.", ("k\u1ecd\u0301", "\u00e8d\u00e8")),
        ("שָׁלוֹם לְכֻלָּם", ("שָׁלוֹם", "לְכֻלָּם")),
        ("ភាសា", tuple("ភាសា")),
        ("မြန်မာ", tuple("မြန်မာ")),
        ("བོད་སྐད་ཡིན།", ("བོད", "སྐད", "ཡིན")),
        ("ใช้ ๑๒ บาท", tuple("ใช้บาท")),
        ("コーヒー、人々。", tuple("コーヒー人々")),
        ("我用Python写程序", ("我", "用", "python", "写", "程", "序")),
    ],
)
def test_words_have_their_vowel_signs_and_accents(text: str, words: tuple[str, ...]):
    assert normalized(text) == words


def test_a_text_of_two_words_with_vowel_signs_is_short():
    assert is_short("हिन्दी भाषा")
    assert not is_short("मेरा नाम हिन्दी है")


def test_text_with_the_same_beginning_is_not_a_near_duplicate():
    report = found(["The commission will examine whether any of them had been there before."])
    assert (report.same, report.near, report.share) == (0, 0, 0.0)


def test_text_that_recurs_twice_counts_once():
    line = TEXTS[0].replace("second", "first")
    report = found([TEXTS[0], line, TEXTS[0], line])
    assert (report.same, report.near, report.share) == (1, 0, 1 / 3)


def test_splits_are_counted_separately_and_may_be_empty():
    recurring = RecurringTexts({"dev": TEXTS[:2], "test": TEXTS[1:], "none": ["", "Thank you."]})
    recurring.add(TEXTS[1], "train:1")
    assert [recurring.report(name).same for name in ("dev", "test", "none")] == [1, 1, 0]
    empty = RecurringTexts({"dev": []})
    empty.add("anything at all, and more", "train:1")
    assert empty.report("dev").of == 0


def test_number_of_comparisons_is_limited(monkeypatch):
    compared = []
    real = NearIndex.near
    monkeypatch.setattr(
        NearIndex, "near", lambda self, line: compared.append(line) or real(self, line)
    )
    monkeypatch.setattr(near_duplicates, "MIN_COMPARISONS", 3)
    found([TEXTS[0].replace("second", f"s{n}") for n in range(200)])
    assert len(compared) == 3 + 200 // near_duplicates.LINES_PER_COMPARISON


def test_long_texts_take_little_memory():
    """Variants without one word each would take memory quadratic in the length."""
    words = [f"w{chr(97 + i % 26)}{chr(97 + i // 26 % 26)}" for i in range(3000)]
    index = NearIndex([" ".join(words)])
    assert len(index._variants) == 1
    assert index.near(" ".join([*words[:100], "other", *words[101:]])) == {0}


def test_unspaced_scripts_count_letters():
    text = "\u6211\u5011\u660e\u5929\u65e9\u4e0a\u4e00\u8d77\u53bb\u5317\u4eac\u5427"
    report = found([text.replace("\u65e9", "\u665a")], [text])
    assert (report.of, report.near) == (1, 1)
