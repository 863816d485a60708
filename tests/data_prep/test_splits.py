"""Splits do not divide groups, and no near-duplicate is in two splits."""

import itertools

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from data_prep.splits import cut, hold_out, near_duplicates, split_by_group
from nmt.data.pair import Pair
from nmt.data.report import Drops
from nmt.data.rules import Rule
from nmt.text.near_duplicates import NearIndex, normalized


def test_normalized_leaves_words_only():
    assert normalized("Lock {lock_id} is 20% OPEN, see https://x.y/z!") == (
        "lock", "is", "open", "see",
    )  # fmt: skip
    assert normalized("猫が好き") == ("猫", "が", "好", "き")


@pytest.mark.parametrize(
    ("text", "other", "near"),
    [
        ("Failed to connect to {host}", "failed to connect to {device}!", True),
        ("Step 6", "Step 7", True),
        ("Set the fan speed now", "Set the pump speed now", True),  # one word replaced
        ("Set the fan speed now", "Set the fan speed", True),  # one word less
        ("Set the fan speed", "Set the big fan speed", True),  # one word more
        ("Battery level low", "Battery level high", False),  # short: another text
        ("Battery level", "battery level", True),
        ("Set the fan speed now", "Turn the pump on now", False),
        (
            "The device could not be reached because the network is down today",
            "Sorry but the device could not be reached because the network is down",
            True,
        ),  # most trigrams are common
    ],
)
def test_near(text, other, near):
    assert bool(NearIndex([text]).near(other)) is near
    assert bool(NearIndex([other]).near(text)) is near  # symmetric


def test_one_near_side_is_enough():
    pairs = [Pair("jedna dve", "one two"), Pair("tri", "three"), Pair("päť", "five")]
    others = [Pair("jedna dve", "something else"), Pair("iné", "Three."), Pair("x", "y")]
    assert near_duplicates(pairs, others) == {0, 1}


def words(n):
    """``n`` sentences of six words with no word twice."""
    letters = ("".join(c) for c in itertools.product("abcdefgh", repeat=5))
    return [" ".join(itertools.islice(letters, 6)) for _ in range(n)]


def test_groups_are_not_divided_and_sizes_are_met():
    pairs = [Pair(w, w[::-1], "", str(i // 5)) for i, w in enumerate(words(500))]
    splits = split_by_group(pairs, {"dev": 50, "test": 60})
    groups = [{p.group for p in part} for part in splits.values()]
    assert [len(part) for part in splits.values()] == [390, 50, 60]
    assert all(not a & b for a, b in itertools.combinations(groups, 2))
    assert split_by_group(pairs, {"dev": 50, "test": 60}) == splits  # nothing random
    one_is_huge = [pair._replace(group="huge") for pair in pairs[:300]] + pairs[300:]
    assert all(pair.group != "huge" for pair in split_by_group(one_is_huge, {"dev": 50})["dev"])


@pytest.mark.slow
def test_hold_out_drops_what_recurs_and_train_keeps_it():
    texts = words(300)
    pairs = [Pair(w, w[::-1], str(i), str(i)) for i, w in enumerate(texts)]
    # Every sentence comes twice more, differing in digits, in groups of its own.
    pairs += [Pair(f"{p.src} 1", f"{p.tgt} 2", f"x{i}", f"x{i}") for i, p in enumerate(pairs)]
    drops = Drops()
    splits = hold_out(pairs, {"dev": 60, "test": 60}, drops)
    seen = [{normalized(p.src) for p in part} for part in splits.values()]
    assert all(not a & b for a, b in itertools.combinations(seen, 2))
    assert len(splits["train"]) == 480
    dropped = sum(found.count for reason, found in drops.items() if "near-duplicate" in reason)
    assert dropped == 120 - len(splits["dev"]) - len(splits["test"]) > 0


def test_held_out_filters_do_not_apply_to_train():
    pairs = [Pair(w, w, "", str(i)) for i, w in enumerate(words(200))]
    drops = Drops()
    splits = hold_out(pairs, {"dev": 50}, drops, [Rule("odd", lambda p, _: int(p.group) % 2 == 1)])
    assert all(int(p.group) % 2 == 0 for p in splits["dev"])
    assert any(int(p.group) % 2 == 1 for p in splits["train"])
    assert drops["odd"].count == 50 - len(splits["dev"])


@given(
    repeats=st.lists(st.integers(1, 4), min_size=50, max_size=80),
    dev=st.integers(10, 15),
    test=st.sampled_from([0, 10, 15, 20]),
    apart=st.integers(0, 10),
)
@pytest.mark.slow
@settings(max_examples=10, deadline=None, phases=[Phase.explicit, Phase.generate])
def test_cut_sets_have_their_size_and_train_loses_what_resembles_them(repeats, dev, test, apart):
    """Each sentence is in the corpus one to four times, with other digits."""
    texts = words(len(repeats) + apart)
    pairs = [
        Pair(f"{text} {copy}", text[::-1], str(i), f"{i}-{copy}")
        for i, (text, count) in enumerate(zip(texts, repeats, strict=False))
        for copy in range(count)
    ]
    existing = [Pair(text, text[::-1]) for text in texts[:apart]]
    drops = Drops()
    splits = cut(pairs, {"dev": dev, "test": test}, drops, existing)
    seen = {name: {normalized(p.src) for p in part} for name, part in splits.items()}
    assert all(not a & b for a, b in itertools.combinations(seen.values(), 2))
    assert not (seen["dev"] | seen["test"]) & {normalized(p.src) for p in existing}
    dropped = sum(found.count for found in drops.values())
    assert sum(map(len, splits.values())) + dropped == len(pairs)
    few = sum(count <= 2 for count in repeats[apart:])  # others would cost over a tenth of a split
    assert (len(splits["dev"]), len(splits["test"])) == (dev, test) or few < dev + test


@pytest.mark.slow
def test_what_is_said_everywhere_stays_in_train_and_its_document_can_be_held_out():
    pairs = [Pair(w, w[::-1], "", str(i // 5)) for i, w in enumerate(words(500))]
    thanks = [Pair("Thank you .", "Graciñas .", "", str(i)) for i in range(100)]
    thanks = [p._replace(tgt=f"{p.tgt} {i}") for i, p in enumerate(thanks)]
    splits = cut([*pairs, *thanks], {"dev": 60, "test": 60}, Drops())
    assert [len(part) for part in splits.values()] == [480, 60, 60]
    assert sum(pair.src == "Thank you ." for pair in splits["train"]) == 100
