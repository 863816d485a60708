"""Corpus checks: what is dropped, counted, warned of and refused."""

from __future__ import annotations

import pytest

from nmt.data import checks
from nmt.data.checks import (
    FEW_PAIRS,
    LISTED,
    Limits,
    SplitCheck,
    failures,
    first_suspicious,
    pair_hash,
    reason_to_drop,
    summary,
)
from nmt.data.near_duplicates import Recurring

PLAIN = [(f"fonte {i}", f"source {i}") for i in range(2 * FEW_PAIRS)]


def checked(pairs, **keys) -> SplitCheck:
    check = SplitCheck(**keys)
    for number, pair in enumerate(pairs, 1):
        check.admit(*pair, f"train:{number}")
    return check


def reported(**splits) -> dict:
    """What preparation reports of splits whose languages are in order."""
    return {
        "splits": splits,
        "overlap": {},
        "test in dev": {"pairs": 0, "share": 0.0},
        "languages": {"failures": [], "warnings": []},
    }


def warnings(report: dict) -> list[str]:
    return checks.warnings(report, max_overlap=0.05)


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (("a", "b"), None),
        (("", ""), "both sides blank"),
        (("\u00a0\u3000", "\u200b"), "both sides blank"),
        (("\ufeff", "b"), "source blank"),
        (("a", " \t"), "target blank"),
        (("a b c", "d"), None),
        (("a b c d", "d"), "longer than 3 words"),
        (("a", "b c d e"), "longer than 3 words"),
        (("a" * 20, "b"), None),
        (("a", "b" * 21), "longer than 20 characters"),
    ],
)
def test_reasons_to_drop(pair, reason):
    assert reason_to_drop(*pair, Limits(words=3, pieces=1)) == reason


def test_without_a_limit_length_is_no_reason():
    assert reason_to_drop("a " * 10_000, "b", None) is None


def test_a_finding_counts_all_and_lists_some():
    check = checked([("", "x")] * (LISTED + 5) + [("a", "b")])
    ((name, finding),) = check.report()["dropped"].items()
    assert name == "source blank"
    assert finding["count"] == LISTED + 5
    assert finding["lines"] == [f"train:{n}" for n in range(1, LISTED + 1)]
    assert check.drops() == f"{LISTED + 5} source blank"
    assert (check.pairs, check.kept) == (LISTED + 6, 1)


def test_duplicates_are_pairs_that_are_the_same_on_both_sides():
    pairs = [("a", "b"), ("a", "c"), ("a", "b"), ("a", "b"), ("ab", ""), ("ab", "")]
    assert checked(pairs).report()["duplicates"] == 2
    assert pair_hash("a", "b c") != pair_hash("a b", "c")
    assert pair_hash("a", "b") != pair_hash("b", "a")


def test_overlap_counts_distinct_pairs_of_the_held_out_split():
    dev = checked([*PLAIN[:3], ("not", "there")])
    train = checked([PLAIN[0], *PLAIN], held_out={"dev": dev.marks(), "test": set()})
    overlap = train.overlap()
    assert overlap["dev"]["pairs"] == 3
    assert overlap["dev"]["share"] == 0.75
    assert overlap["dev"]["examples"][0] == "train:1: fonte 0 ||| source 0"
    assert overlap["test"] == {"pairs": 0, "share": 0.0, "examples": []}
    report = reported() | {"overlap": overlap}
    assert failures(report, max_overlap=0.75) == []
    (failure,) = failures(report, max_overlap=0.7)
    assert "75.0% of the dev pairs (3)" in failure


LONG = [(f"esta é a fonte {w} aquí", f"this is the source {w} here") for w in "abcdefghijklmnop"]


def recurring(pairs) -> tuple[Recurring, Recurring]:
    return tuple(Recurring({"dev": [pair[side] for pair in pairs]}) for side in (0, 1))


def test_a_held_out_side_in_the_training_data_is_found_and_warned_of():
    dev = [*LONG[:4], ("Grazas.", "Thank you."), ("nada que ver niso", "nothing like it here")]
    train = [("outra fonte", tgt) for _, tgt in LONG[:2]] + [("grazas", "Thank you.")]
    check = checked(
        [*train, *LONG[5:6]],
        held_out={"dev": checked(dev).marks()},
        recurring=recurring(dev),
    )
    overlap = check.overlap()
    found = overlap["dev"]
    assert found["pairs"] == 0
    targets = found["targets"]
    assert (targets["of"], targets["same"], targets["near"]) == (5, 2, 2)  # "Thank you." is short
    assert targets["share"] == 0.8
    assert targets["examples"][:2] == [f"train:{n}: {LONG[n - 1][1]}" for n in (1, 2)]
    assert targets["examples"][2] == f"train:4: {LONG[5][1]} ~ {LONG[0][1]}"
    assert (found["sources"]["same"], found["sources"]["near"]) == (0, 4)
    report = reported() | {"overlap": overlap}
    assert failures(report, max_overlap=0.0) == []
    said = warnings(report)
    assert "dev: 2 of 5 targets are in the training data, 2 more nearly (80.0%" in said[1]
    assert said[1].endswith(f"e.g. train:1: {LONG[0][1]}")
    assert "dev: 0 of 5 sources are in the training data, 4 more nearly (80.0%" in said[0]


def test_few_recurring_texts_are_in_the_summary_alone():
    dev = [*LONG[:1], *((f"{w} " * 6, f"{w}x " * 6) for w in "qrstuvwxyz")]
    check = checked([("x", LONG[0][1])], held_out={"dev": set()}, recurring=recurring(dev))
    report = reported() | {"overlap": check.overlap(), "warnings": []}
    assert checks.warnings(report, max_overlap=0.1) == []
    assert "dev: 1 of 11 targets are in the training data" in summary(report)
    assert "sources" not in summary(report)


@pytest.mark.parametrize(
    ("odd", "tokenized", "what"),
    [
        (("same", "same"), False, "same text on both sides"),
        (("short", "a very long one, " * 4), False, "one side over 3 times as long"),
        (("an@@ ders", "different"), False, "already BPE-encoded"),
        (("it&apos;s", "es ist"), False, "HTML escapes"),
        (("O gato come .", "The cat eats ."), False, "already tokenized"),
        (("O gato come.", "The cat eats."), True, "data.tokenized is true"),
    ],
)
def test_suspicious_text(odd, tokenized, what):
    odd_first = checked([odd] * FEW_PAIRS + PLAIN, tokenized=tokenized)
    (said,) = warnings(reported(train=odd_first.report()))
    assert what in said
    assert f"in {FEW_PAIRS} pairs (33.3%), first at train:1" in said
    fine = "HTML escapes" in what or "tokenized" in what
    if fine:  # the other way round it is as it should be
        turned = checked([odd] * FEW_PAIRS + PLAIN, tokenized=not tokenized)
        assert warnings(reported(train=turned.report())) == []


def test_a_rare_oddity_is_in_the_report_alone():
    report = checked([("same", "same"), *PLAIN]).report()
    assert report["suspicious"]["same text on both sides"]["count"] == 1
    assert warnings(reported(train=report)) == []


def test_text_that_is_not_composed():
    report = checked([("e\u0301", "x"), ("é", "y"), *PLAIN]).report()
    (said,) = warnings(reported(train=report))
    assert "1 pairs are not in" in said
    assert "first at train:1; data.normalize=nfc" in said


def test_a_small_split_is_warned_of_unless_it_trains():
    report = checked([("a", "b"), ("", "")]).report()
    assert warnings(reported(dev=report)) == [
        "dev: only 1 pair with text on both sides; its scores say little"
    ]
    assert warnings(reported(train=report)) == []


def coverage(unknown: float, lacking: float) -> dict:
    return {"unknown": unknown, "lacking": lacking, "pieces": ["zz", "qq"]}


def test_pieces_that_training_lacks():
    def said(src: dict, tgt: dict) -> tuple[list[str], list[str]]:
        split = {**checked(PLAIN).report(), "coverage": {"src": src, "tgt": tgt}}
        report = reported(dev=split)
        return failures(report, 0.0), warnings(report)

    fine = coverage(0, 0.002)
    assert said(fine, fine) == ([], [])
    failed, warned = said(coverage(0.6, 0.6), fine)
    assert failed == [
        "60% of the source pieces of dev are unknown (zz qq): do codes and corpus fit together?"
    ]
    assert warned == ["dev: the training data lacks 60% of the src pieces (zz qq)"]


def test_the_summary_names_what_was_found():
    check = checked([("", "x"), ("a", "b"), ("a", "b"), ("same", "same")])
    check.normalized["CRLF read as LF"] = 1234
    report = {
        "splits": {"train": check.report(), "dev": checked([("", "x"), ("a", "b")]).report()},
        "overlap": {"dev": {"pairs": 1, "share": 1.0, "examples": []}},
        "warnings": ["look here"],
    }
    assert summary(report).splitlines() == [
        "train: 4 pairs, dropped 1 source blank, 1 duplicates, CRLF read as LF in 1,234 lines",
        "dev: 2 pairs, kept for scoring though 1 source blank",
        "dev: 1 pairs (100.0%) are in train too",
        "warning: look here",
    ]


def test_where_two_files_may_have_come_apart():
    assert first_suspicious(PLAIN) is None
    assert first_suspicious([*PLAIN[:5], ("a", "")]) == 6
    assert first_suspicious([*PLAIN[:2], ("a", "b" * 40)]) == 3
