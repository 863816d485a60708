"""Corpus checks: what is dropped, counted, warned of, and an error."""

from __future__ import annotations

import json
import re

import pytest

from nmt.config.recipe import DataConfig, FastBpeConfig, SentencePieceConfig
from nmt.data import checks
from nmt.data.bitext import Bitext, first_misaligned
from nmt.data.near_duplicates import Recurrence, RecurringTexts
from nmt.data.report import (
    MAX_LISTED,
    MIN_HELD_OUT,
    CorpusReport,
    Coverage,
    Finding,
    LanguageFindings,
    Lengths,
    Overlap,
    SharedPairs,
    SplitReport,
    summary,
    usual_line,
)
from nmt.data.scan import Limits, SplitCheck, pair_hash, reason_to_drop
from nmt.data.sentences import UsualLine
from tests.toy import numbered

BPE = FastBpeConfig()
PLAIN = [(f"fonte {i}", f"source {i}") for i in range(2 * MIN_HELD_OUT)]
NOTHING = Recurrence(of=0, same=0, near=0, share=0.0, examples=[])


def add(check: SplitCheck, pairs, name: str = "train", tokenized: bool = False) -> list[int]:
    """Check pairs; return the lines of those that passed."""
    corpus = Bitext(name, (), ("glg", "en"), None, tokenized)
    return [passed.number for passed in check.filter(corpus, numbered(pairs))]


def checked(pairs, tokenized: bool = False, **keys) -> SplitCheck:
    check = SplitCheck(**keys)
    add(check, pairs, tokenized=tokenized)
    return check


def failures(report: CorpusReport, max_overlap: float, segment=BPE) -> list[str]:
    data = DataConfig(train="t", dev="d", max_overlap=max_overlap)
    return checks.failures(report, data, segment)


def warnings(report: CorpusReport, max_overlap: float, form: str = "clean") -> list[str]:
    data = DataConfig(train="t", dev="d", max_overlap=max_overlap, normalize=form)
    return checks.warnings(report, data, BPE)


def reported(overlap: dict[str, Overlap] | None = None, **splits: SplitReport) -> CorpusReport:
    """Return the report of splits in the right languages."""
    return CorpusReport(splits, overlap or {}, SharedPairs(0, 0.0), LanguageFindings([], []))


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


def test_length_is_no_reason_without_limits():
    assert reason_to_drop("a " * 10_000, "b", None) is None


def test_finding_counts_all_and_lists_the_first():
    check = checked([("", "x")] * (MAX_LISTED + 5) + [("a", "b")])
    report = check.report()
    ((name, finding),) = report.dropped.items()
    assert name == "source blank"
    assert finding.count == MAX_LISTED + 5
    assert finding.lines == [f"train:{n}" for n in range(1, MAX_LISTED + 1)]
    assert report.describe_drops() == f"source blank: {MAX_LISTED + 5}"
    assert (report.pairs, report.kept) == (MAX_LISTED + 6, 1)


def test_pairs_that_pass_have_the_numbers_of_their_lines():
    assert add(SplitCheck(), [("a", "b"), ("", "b"), ("a", "c")]) == [1, 3]
    assert add(SplitCheck(), []) == []


def test_duplicates_are_pairs_that_are_the_same_on_both_sides():
    pairs = [("a", "b"), ("a", "c"), ("a", "b"), ("a", "b"), ("ab", ""), ("ab", "")]
    assert checked(pairs).report().duplicates == 2
    assert pair_hash("a", "b c") != pair_hash("a b", "c")
    assert pair_hash("a", "b") != pair_hash("b", "a")


def test_overlap_counts_distinct_pairs_of_the_held_out_split():
    dev = checked([*PLAIN[:3], ("not", "there")])
    train = checked(
        [PLAIN[0], *PLAIN],
        held_out={"dev": set(dev.hashes), "test": set()},
        recurring=[RecurringTexts({"dev": [], "test": []})] * 2,
    )
    overlap = train.overlap()
    assert overlap["dev"].pairs == 3
    assert overlap["dev"].share == 0.75
    assert overlap["dev"].examples[0] == "train:1: fonte 0 ||| source 0"
    assert overlap["test"] == Overlap(0, 0.0, [], NOTHING, NOTHING)
    report = reported(overlap)
    assert failures(report, 0.75) == []
    (failure,) = failures(report, 0.7)
    assert failure.startswith("dev: 75.0% of the pairs (3) are also in the training data")
    assert "train:1: fonte 0 ||| source 0" in failure


LONG = [(f"esta é a fonte {w} aquí", f"this is the source {w} here") for w in "abcdefghijklmnop"]


def recurring(pairs) -> list[RecurringTexts]:
    return [RecurringTexts({"dev": [pair[side] for pair in pairs]}) for side in (0, 1)]


def test_held_out_side_in_the_training_data_is_a_warning():
    dev = [*LONG[:4], ("Grazas.", "Thank you."), ("nada que ver niso", "nothing like it here")]
    train = [("outra fonte", tgt) for _, tgt in LONG[:2]] + [("grazas", "Thank you.")]
    check = checked(
        [*train, *LONG[5:6]], held_out={"dev": set(checked(dev).hashes)}, recurring=recurring(dev)
    )
    overlap = check.overlap()
    found = overlap["dev"]
    assert found.pairs == 0
    targets = found.targets
    assert (targets.of, targets.same, targets.near) == (5, 2, 2)  # "Thank you." is short
    assert targets.share == 0.8
    assert targets.examples[:2] == [f"train:{n}: {LONG[n - 1][1]}" for n in (1, 2)]
    assert targets.examples[2] == f"train:4: {LONG[5][1]} ~ {LONG[0][1]}"
    assert (found.sources.same, found.sources.near) == (0, 4)
    report = reported(overlap)
    assert failures(report, 0.0) == []
    messages = warnings(report, max_overlap=0.05)
    share = "80.0% of 5 {} texts of at least 4 words are also in the training data"
    assert messages[0].startswith(f"dev: {share.format('source')}: 0 exactly, 4 nearly, for")
    assert messages[1] == (
        f"dev: {share.format('target')}: 2 exactly, 2 nearly, for example train:1: {LONG[0][1]}"
    )


def test_few_recurring_texts_are_only_in_the_summary():
    dev = [*LONG[:1], *((f"{w} " * 6, f"{w}x " * 6) for w in "qrstuvwxyz")]
    check = checked([("x", LONG[0][1])], held_out={"dev": set()}, recurring=recurring(dev))
    report = reported(check.overlap())
    assert warnings(report, max_overlap=0.1) == []
    assert "dev: 9.1% of 11 target texts of at least 4 words are also in" in summary(report)
    assert "source texts" not in summary(report)


@pytest.mark.parametrize(
    ("odd", "tokenized", "what"),
    [
        (("same", "same"), False, "with the same text on both sides"),
        (("short", "a very long one, " * 4), False, "with one side over 3 times as long"),
        (("an@@ ders", "different"), False, "containing @@, like text that is already BPE-encoded"),
        (("it&apos;s", "es ist"), False, "containing HTML escapes"),
        (("O gato come .", "The cat eats ."), False, "with a space before the last full stop"),
        (
            ("O gato come.", "The cat eats."),
            True,
            "without a space before the last punctuation mark",
        ),
    ],
)
def test_suspicious_text(odd, tokenized, what):
    odd_first = checked([odd] * MIN_HELD_OUT + PLAIN, tokenized=tokenized)
    (message,) = warnings(reported(train=odd_first.report()), max_overlap=0.05)
    assert message.startswith(f"train: {MIN_HELD_OUT} pairs (33.3%) {what}")
    assert ", first at train:1; " in message
    if "HTML" in what or "space" in what:  # normal text with the other value of data.tokenized
        other = checked([odd] * MIN_HELD_OUT + PLAIN, tokenized=not tokenized)
        assert warnings(reported(train=other.report()), max_overlap=0.05) == []


def test_rare_suspicious_pair_is_only_in_the_report():
    report = checked([("same", "same"), *PLAIN]).report()
    assert report.suspicious["same text on both sides"].count == 1
    assert warnings(reported(train=report), max_overlap=0.05) == []


def test_text_that_is_not_in_nfc():
    report = checked([("e\u0301", "x"), ("é", "y"), *PLAIN]).report()
    (message,) = warnings(reported(train=report), 0.05, "none")
    assert message.startswith(
        f"train: 1 source line ({1 / (len(PLAIN) + 2):.1%}) not in the Unicode form clean, "
        "first at train:1 (not in Unicode NFC in 1): "
    )
    assert message.endswith("set data.normalize=clean")
    assert warnings(reported(train=report), 0.05, "nfc") == []  # it is set already
    assert "; 1 source line not in the Unicode form clean (" in summary(reported(train=report))
    split = checked([("x", "e\u0301"), *PLAIN]).report()
    for form in ("nfc", "clean"):
        (message,) = warnings(reported(dev=split), 0.05, form)
        assert "references, which are compared as they are" in message
        assert f"writes the form {form}," in message


def test_characters_without_a_shape_are_counted_by_name():
    odd = [("\u200bx", "x\u00ad\u200by"), ("a\u200b", "b"), *PLAIN]
    report = checked(odd).report()
    assert report.other_form["src"].changes == {"U+200B ZERO WIDTH SPACE": 2}
    assert str(report.other_form["tgt"]) == "U+00AD SOFT HYPHEN in 1, U+200B ZERO WIDTH SPACE in 1"
    for form in ("none", "nfc"):
        src, tgt = warnings(reported(train=report), 0.05, form)
        assert "train: 2 source lines" in src
        assert tgt.endswith("set data.normalize=clean")
    assert warnings(reported(train=report), 0.05) == []
    (message,) = warnings(reported(test=report), 0.05)  # its sources get the form of the recipe
    assert message.startswith("test: 1 target line (")


def test_small_held_out_split_is_a_warning():
    report = checked([("a", "b"), ("", "")]).report()
    assert warnings(reported(dev=report), max_overlap=0.05) == [
        "dev: only 1 pair with text on both sides, so its scores are unreliable; use at least 100"
    ]
    assert warnings(reported(train=report), max_overlap=0.05) == []


def test_shares_count_the_pairs_that_the_checks_saw():
    split = checked([("a" * 80, "b")] * 90 + PLAIN[:1] * 10).report()
    split.drop("longer than 256 subwords", Finding(90, ["train:1"]))
    (found,) = (w for w in warnings(reported(train=split), 0.05) if "3 times as long" in w)
    assert "90 pairs (90.0%)" in found


def test_a_small_corpus_is_profiled_also_after_a_large_one():
    check = SplitCheck()
    add(check, [(f"fonte {i}", f"source {i}") for i in range(5001)], "large")
    add(check, [(f"outra {i}", f"other {i}") for i in range(400)], "small")
    assert all(profile.enough for profile in check.profiles["small"])


def coverage(unknown: float, lacking: float) -> Coverage:
    return Coverage(unknown, lacking, ["zz", "qq"])


def test_pieces_that_training_lacks():
    def messages(src: Coverage, tgt: Coverage) -> tuple[list[str], list[str]]:
        split = checked(PLAIN).report()
        split.coverage = {"src": src, "tgt": tgt}
        report = reported(dev=split)
        return failures(report, 0.0), warnings(report, 0.0)

    fine = coverage(0, 0.002)
    assert messages(fine, fine) == ([], [])
    (failed,), (warned,) = messages(coverage(0.6, 0.6), fine)
    assert failed.startswith(
        "dev: 60% of the source subwords are unknown (UNK), for example zz qq; check"
    )
    assert warned.startswith(
        "dev: 60% of the source subwords are not in the training data, for example zz qq"
    )


@pytest.mark.parametrize(
    ("segment", "pairs", "advice"),
    [
        (
            SentencePieceConfig(),
            3000,
            "so most subwords are complete words: set segment.vocab_size=1500",
        ),
        (SentencePieceConfig(vocab_size=500), 250, "check that its language"),
        (SentencePieceConfig(), 300, "too large for 300 pairs, .* set segment.vocab_size=500; if"),
        (SentencePieceConfig(), 8000, "qq; check that its language .* training data$"),
        (SentencePieceConfig(model="x.model"), 300, "segment.codes or segment.model fits"),
        (FastBpeConfig(), 300, "segment.codes or segment.model fits"),
    ],
)
def test_a_vocabulary_that_is_too_large_is_named_as_the_cause(segment, pairs, advice):
    dev, train = checked(PLAIN).report(), checked(PLAIN).report()
    dev.coverage, train.kept = {"src": coverage(0.6, 0.6), "tgt": coverage(0, 0)}, pairs
    (failed,) = failures(reported(train=train, dev=dev), 0.0, segment)
    assert re.search(advice, failed), failed


def test_summary_lists_the_findings():
    check = checked([("", "x"), ("a", "b"), ("a", "b"), ("same", "same")])
    check.normalized["CRLF read as LF"] = 1234
    overlap = {"dev": Overlap(1, 1.0, [], NOTHING, NOTHING)}
    report = reported(overlap, train=check.report(), dev=checked([("", "x"), ("a", "b")]).report())
    report.warnings = ["look here"]
    assert summary(report).splitlines() == [
        "train: 4 pairs; 1 dropped (source blank: 1); 1 duplicate; CRLF read as LF in 1,234 lines",
        "dev: 2 pairs; 1 with a blank side, kept for scoring (source blank: 1)",
        "dev: 1 pair (100.0%) also in the training data",
        "warning: look here",
    ]


def test_report_has_the_names_of_its_file_format():
    dev = checked([("e\u0301", "x")]).report()
    dev.coverage = {"src": coverage(0, 0), "tgt": coverage(0, 0)}
    report = reported({"dev": Overlap(0, 0.0, [], NOTHING, NOTHING)}, train=dev, dev=dev)
    report.splits["train"] = checked([("", "x"), ("same", "same")]).report()
    values = json.loads(report.to_json())
    assert set(values) == {
        "splits", "overlap", "test in dev", "languages", "types", "inputs", "versions",
        "over batch_tokens", "warnings", "lengths", "draws",
    }  # fmt: skip
    assert values["splits"]["train"] == {
        "pairs": 2,
        "kept": 1,
        "dropped": {"source blank": {"count": 1, "lines": ["train:1"]}},
        "suspicious": {"same text on both sides": {"count": 1, "lines": ["train:2"]}},
        "duplicates": 0,
        "normalized": {},
        "dropped_later": 0,
        "other form": {},
    }
    assert set(values["splits"]["dev"]["coverage"]["src"]) == {"unknown", "lacking", "pieces"}
    assert set(values["overlap"]["dev"]) == {"pairs", "share", "examples", "sources", "targets"}
    assert CorpusReport.from_json(report.to_json()) == report
    with pytest.raises(ValueError, match="splits"):
        CorpusReport.from_json("{}")


def test_sentences_of_the_training_sources_are_counted() -> None:
    pairs = [("Unha. Dúas. Tres.", "x"), ("Unha frase.", "y"), ("Unha. Dúas.", "z"), ("a. b", "")]
    check = checked(pairs, limits=Limits(words=100, pieces=100))
    assert check.report().sentences == {1: 1, 2: 1, 3: 1}
    report = reported(train=check.report())
    assert "train: 4 pairs" in summary(report)
    assert "66.7% of the sources with several sentences" in summary(report)
    report.lengths["train"] = {"src": Lengths(80, 1, 1, 1, 1), "tgt": Lengths(100, 1, 1, 1, 1)}
    assert CorpusReport.from_json(report.to_json()) == report
    assert usual_line(report.to_json()) == UsualLine(3, 1.25)
    assert checked(pairs).report().sentences is None  # a dev or test set


def test_abbreviations_of_the_training_sources_are_learned_for_each_language() -> None:
    pairs = [(f"Vin a dna. {name} onte.", "x") for name in ("Ana", "Xan", "Uxía", "Brais")] * 5
    pairs += [("Unha frase.", "y"), ("Dúas frases. Non.", "z")] * 20
    report = checked(pairs, limits=Limits(words=100, pieces=100)).report()
    assert report.abbreviations == {"gl": ["dna"]}
    assert report.sentences == {1: 40, 2: 20}
    assert usual_line(reported(train=report).to_json()).abbreviations == {"gl": ["dna"]}
    assert checked(pairs).report().abbreviations is None  # a dev or test set


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"splits": {"train": {"sentences": {"a": 1}}}}'])
def test_a_damaged_report_does_not_say_what_lines_are_like(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        usual_line(text)


def test_first_line_where_two_files_differ_in_length():
    assert first_misaligned(PLAIN) is None
    assert first_misaligned([*PLAIN[:5], ("a", "")]) == 6
    assert first_misaligned([*PLAIN[:2], ("a", "b" * 40)]) == 3
