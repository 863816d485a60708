"""Lines are split after sentences, and the parts together are the line."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.data.sentences import join_in_parts, join_translations, split_sentences, usual_sentences

MARKS = [
    ".",
    "?",
    "!",
    "…",
    "。",
    "\uff01",
    "\u17d4",
    "\u06d4",
    "।",
    '"',
    "'",
    "“",
    "”",
    "(",
    ")",
    "&quot;",
]
SPACES = [" ", "  ", "\u00a0", "\u3000", "\u2028", "\u2029", "\u200b", "\ufeff"]
WORDS = ["a", "Bé", "Mr", "1", "e.g", "好", "ខ", "мир", "😀", "\u0301", "http://a.b/c?d=e"]


@pytest.mark.parametrize(
    ("lang", "parts"),
    [
        ("en", ["Mr. Smith left. ", 'He said "Go. Now." ', "Really?"]),
        ("sk", ["Napríklad sv. Ján prišiel 5. Mája. ", "Potom odišiel."]),
        ("gl", ["D. Manuel veu. ", "Viu os EE.UU."]),
        ("zh", ["你好。", "今天天气很好\uff01", "我们去。"]),
        ("hi", ["यह है। ", "वह है।"]),
        ("ur", ["یہ ایک جملہ ہے\u06d4 ", "دوسرا جملہ\u06d4"]),
        ("km", ["សួស្តី។", "អ្នកសុខសប្បាយទេ។"]),
        ("xx", ["A language without rules. ", "It has sentences."]),
        ("gl", ["&quot; Que ? &quot; ", "Non , dixo el . ", "E marchou ."]),  # Moses
        # numbers, and text without words
        ("en", ["1. First 2. ", "Second. 5."]),
        ("en", ["5. 6. 7."]),
        ("en", ["... ?"]),
        ("en", ["  Tabs.  ", "And\u00a0others.\u3000", "End  "]),
        ("en", ["   "]),
        ("en", [""]),
    ],
)
def test_a_line_is_split_after_each_sentence(lang: str, parts: list[str]) -> None:
    assert split_sentences("".join(parts), lang) == parts


@settings(deadline=None, database=None, derandomize=True, max_examples=500)
@given(
    st.lists(st.sampled_from([*MARKS, *SPACES, *WORDS]), max_size=40).map("".join)
    | st.text(st.characters(exclude_categories=["Cc", "Cs"])),
    st.sampled_from(["en", "sk", "zh", "my", "bo", "de", "xx"]),
)
def test_the_parts_are_the_line_and_one_that_is_not_blank_has_text(line: str, lang: str) -> None:
    """Also at white space that makes sentencex panic."""
    parts = split_sentences(line, lang)
    assert "".join(parts) == line
    assert len(parts) == 1 or all(any(map(str.isalpha, part)) for part in parts)


def test_sentences_are_joined_to_parts_that_fit() -> None:
    sentences = ["a ", "b ", "c ", "d ", "e"]
    assert join_in_parts(sentences, lambda part: False) == sentences
    assert join_in_parts(sentences, lambda part: len(part) <= 2) == ["a b ", "c ", "d e"]
    assert join_in_parts(sentences, lambda part: True) == ["a b c d e"]


@pytest.mark.parametrize(
    ("translations", "sources", "joined"),
    [
        (["One.", "Two.", "Three."], ["A. ", "B.  ", "C."], "One. Two.  Three."),
        (["One.", "Two."], ["A.\u00a0", "B."], "One.\u00a0Two."),
        (["Hello.", "Yes."], ["你好。", "是。"], "Hello. Yes."),
        (["你好。", "是\uff01", "是。"], ["Hello. ", "Yes! ", "Yes."], "你好。是\uff01是。"),
        (["a b", "c"], ["", ""], "a b c"),
    ],
)
def test_translations_have_the_white_space_of_their_sources(
    translations: list[str], sources: list[str], joined: str
) -> None:
    assert join_translations(translations, sources) == joined


@pytest.mark.parametrize(
    ("counts", "usual"),
    [
        ({}, None),
        ({1: 93, 2: 5, 3: 2}, 1),
        ({1: 80, 2: 20}, 1),
        ({1: 79, 2: 21}, 2),
        ({8: 10, 3: 50, 4: 40}, 4),
    ],
)
def test_four_of_five_training_lines_have_at_most_the_usual_number(
    counts: dict[int, int], usual: int | None
) -> None:
    assert usual_sentences(counts) == usual
