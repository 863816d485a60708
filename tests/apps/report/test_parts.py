"""Parts of a report: comparison of words, faults of outputs, licenses, recipes."""

from __future__ import annotations

import itertools

import pytest

from nmt.apps.report.outputs import Part, _is_long, _is_short, _repeats, compare, split_words
from nmt.apps.report.recipes import key_rows
from nmt.config.recipe import Recipe


def marked(text: str, other: str) -> tuple[str, str]:
    """Return both texts with what differs in brackets."""
    sides = compare(text, other)
    for parts, whole in zip(sides, (text, other), strict=True):
        assert "".join(part.text for part in parts) == " ".join(whole.split())
        kinds = [part.differs for part in parts]
        assert all(a != b for a, b in itertools.pairwise(kinds))
    first, second = (
        "".join(f"[{part.text}]" if part.differs else part.text for part in parts)
        for parts in sides
    )
    return first, second


@pytest.mark.parametrize(
    ("text", "other", "expected"),
    [
        ("a b c", "a b c", ("a b c", "a b c")),
        ("a x c", "a b c", ("a [x] c", "a [b] c")),
        ("a x y c.", "a c!", ("a [x y] c[.]", "a c[!]")),
        ("a  b", "", ("[a b]", "")),
        ("", "a b", ("", "[a b]")),
        ("x a", "a y", ("[x] a", "a [y]")),
        ("don't", "do not", ("[don't]", "[do not]")),
        ("我爱你", "我想你", ("我[爱]你", "我[想]你")),
        ("שלום עולם", "שלום לך", ("שלום [עולם]", "שלום [לך]")),
        ("हिन्दी में", "हिन्दी का", ("हिन्दी [में]", "हिन्दी [का]")),
    ],
)
def test_words_that_differ_are_marked(text, other, expected):
    assert marked(text, other) == expected


def test_marks_of_a_word_stay_in_it():
    assert split_words("हिन्दी e\u0301te\u0301") == ["हिन्दी", "e\u0301te\u0301"]
    assert split_words("人々ｶﾅa") == ["人", "々", "ｶ", "ﾅ", "a"]
    assert split_words("“Ja”, ok?") == ["“", "Ja", "”", ",", "ok", "?"]
    assert compare("", "") == ([], [])
    assert compare("a", "a") == ([Part("a", False)], [Part("a", False)])


def test_repetitions():
    assert _repeats("in the U.S., the U.S., the U.S..", "in the U.S.")
    assert _repeats("no no no", "no")
    assert not _repeats("no no", "no")
    assert not _repeats("no no no", "no, no, no!")


def test_lengths():
    assert _is_long("a " * 9, "a b c d")
    assert not _is_long("a " * 8, "a b c d")
    assert not _is_long("a " * 9, "a b c")
    assert _is_short("a", "a b c d")
    assert not _is_short("a b", "a b c d")
    assert not _is_short("", "a b c d")  # which is called empty


def test_keys_of_recipes_of_several_kinds():
    data = {"train": ["t"], "dev": "d"}
    base = {"src": "gl", "tgt": "en", "data": data}
    one = Recipe.model_validate(base)
    two = Recipe.model_validate({**base, "segment": {"kind": "whitespace"}, "seed": 7})
    rows = {row.name: row for row in key_rows([one, two])}
    assert (rows["seed"].values, rows["seed"].changed) == (["1", "7"], [False, True])
    assert rows["segment.kind"].values == ["fastbpe", "whitespace"]
    assert rows["segment.kind"].default == "fastbpe"
    assert rows["segment.merges"].values[1] is None
    assert rows["segment.min_count"].values[0] is None
    assert not any(row.marked for row in key_rows([one]))
    assert rows["data.train"].default is None
    assert rows["data.train"].essential
