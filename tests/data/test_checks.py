"""Corpus checks: what is dropped, counted, warned of, and an error."""

from __future__ import annotations

import json
import re
from random import Random

import pytest
import regex

from nmt.config.entries import Direction
from nmt.config.recipe import DataConfig, FastBpeConfig, SentencePieceConfig
from nmt.data.bitext import Bitext, first_misaligned
from nmt.data.checks import (
    LIKE_TRAIN,
    MIN_HELD_OUT,
    HeldOutPairs,
    OtherForm,
    WordSpaces,
    lacked_by_training,
    pair_hash,
)
from nmt.data.pair import Pair
from nmt.data.report import (
    MAX_LISTED,
    CorpusReport,
    Coverage,
    Finding,
    Lengths,
    Places,
    describe,
    summary,
    usual_line,
)
from nmt.data.rules import Limits, training_rules, why_dropped
from nmt.data.scan import Scan
from nmt.errors import UserError
from nmt.text.sentences import UsualLine
from tests.toy import numbered

BPE = FastBpeConfig()
PLAIN = [(f"fonte {i}", f"source {i}") for i in range(2 * MIN_HELD_OUT)]
ALSO = HeldOutPairs.name


def data(**keys) -> DataConfig:
    return DataConfig(train="t", dev="d", **keys)


def add(scan: Scan, split: str, pairs, tokenized: bool = False, name: str = "") -> list[int]:
    """Check pairs; return the lines of those that passed."""
    corpus = Bitext(name or split, (), Direction("glg", "en"), tokenized)
    if split != "train":
        scan.scanned.held_out[split] = pairs
    return [passed.number for passed in scan.filter(split, corpus, numbered(pairs, corpus.name))]


def checked(tokenized: bool = False, form: str = "clean", **splits) -> CorpusReport:
    """Check the pairs of splits, dev and test first."""
    scan = Scan(data(normalize=form), monolingual=False)
    for split, pairs in splits.items():
        add(scan, split, pairs, tokenized)
    return scan.report()


def failures(report: CorpusReport, **keys) -> list[str]:
    try:
        report.judge(data(**keys))
    except UserError as error:
        return error.what.split("\n  ")[1:]
    return []


def warnings(report: CorpusReport, **keys) -> list[str]:
    """Return the warnings that are no errors."""
    failed = failures(report, **keys)
    report.judge(data(checks="warn", **keys))
    return report.warnings[len(failed) :]


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (("a", "b"), None),
        (("", ""), "blank"),
        (("\u00a0\u3000", "\u200b"), "blank"),
        (("\ufeff", "b"), "blank"),
        (("a", " \t"), "blank"),
        (("a b c", "d"), None),
        (("a b c d", "d"), "length"),
        (("a", "b c d e"), "length"),
        (("a" * 20, "b"), None),
        (("a", "b" * 21), "characters"),
    ],
)
def test_rules_of_training_text(pair, reason):
    assert why_dropped(Pair(*pair), training_rules(Limits(words=3, pieces=1), False)) == reason


def test_held_out_lines_and_words_of_monolingual_text_may_be_many():
    assert why_dropped(Pair("a " * 10_000, "b"), training_rules(None, False)) is None
    rules = training_rules(Limits(words=3, pieces=1), True)
    assert [why_dropped(Pair(line, ""), rules) for line in ("a b c d", "a" * 21)] == [
        None,
        "characters",
    ]


def test_drops_are_counted_and_the_first_are_listed():
    report = checked(train=[("", "x")] * (MAX_LISTED + 5) + [("a", "b")]).splits["train"]
    lines = [f"train:{n}" for n in range(1, MAX_LISTED + 1)]
    assert report.dropped == {"blank": Places(MAX_LISTED + 5, lines)}
    assert describe(report.dropped) == f"blank: {MAX_LISTED + 5}"
    assert (report.pairs, report.kept) == (MAX_LISTED + 6, 1)


def test_pairs_that_pass_have_the_numbers_of_their_lines():
    assert add(Scan(data(), False), "train", [("a", "b"), ("", "b"), ("a", "c")]) == [1, 3]
    assert add(Scan(data(), False), "train", []) == []


def test_duplicates_are_pairs_that_are_the_same_on_both_sides():
    pairs = [("a", "b"), ("a", "c"), ("a", "b"), ("a", "b"), ("ab", ""), ("ab", "")]
    assert checked(train=pairs).found("duplicates", "train").count == 2
    assert pair_hash("a", "b c") != pair_hash("a b", "c")
    assert pair_hash("a", "b") != pair_hash("b", "a")


def test_overlap_counts_distinct_pairs_of_the_held_out_split():
    dev, train = [*PLAIN[:3], ("not", "there")], [PLAIN[0], *PLAIN]
    report = checked(dev=dev, test=[("nor", "here")], train=train)
    found = report.found(ALSO, "dev")
    assert (found.count, found.share) == (3, 0.75)
    assert found.examples[0] == "train:1: fonte 0 ||| source 0"
    assert report.found(ALSO, "test").count == 0
    assert failures(report, max_overlap=0.75) == []
    (failure,) = failures(report, max_overlap=0.7)
    assert failure.startswith("dev: 75.0% of the pairs (3) are also in the training data")
    assert "train:1: fonte 0 ||| source 0" in failure
    assert failure.endswith("raise data.max_overlap (now 0.7)")


LONG = [(f"esta é a fonte {w} aquí", f"this is the source {w} here") for w in "abcdefghijklmnop"]


def test_held_out_side_in_the_training_data_is_a_warning():
    dev = [*LONG[:4], ("Grazas.", "Thank you."), ("nada que ver niso", "nothing like it here")]
    train = [("outra fonte", tgt) for _, tgt in LONG[:2]] + [("grazas", "Thank you.")]
    report = checked(dev=dev, train=[*train, *LONG[5:6]])
    assert report.found(ALSO, "dev").count == 0
    targets = report.found(f"target texts {ALSO}", "dev")  # "Thank you." is short
    assert (targets.share, targets.overlap, targets.count) == (0.8, 0.4, 4)
    assert targets.examples[:2] == [f"train:{n}: {LONG[n - 1][1]}" for n in (1, 2)]
    assert targets.examples[2] == f"train:4: {LONG[5][1]} ~ {LONG[0][1]}"
    sources = report.found(f"source texts {ALSO}", "dev")
    assert (sources.overlap, sources.count) == (0, 4)
    assert failures(report, max_overlap=0.0) == []
    messages = warnings(report)
    share = "80.0% of 5 {} texts of at least 4 words are also in the training data"
    assert messages[0].startswith(f"dev: {share.format('source')}: 0 exactly, 4 nearly, for")
    assert messages[1] == (
        f"dev: {share.format('target')}: 2 exactly, 2 nearly, for example train:1: {LONG[0][1]}"
    )


def test_few_recurring_texts_are_only_in_the_summary():
    dev = [*LONG[:1], *((f"{w} " * 6, f"{w}x " * 6) for w in "qrstuvwxyz")] * 10
    report = checked(dev=dev, train=[("x" * 9, LONG[0][1])])
    assert warnings(report, max_overlap=0.1) == []
    assert "9.1% of 11 target texts of at least 4 words are also in" in summary(report)
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
    pairs = [odd] * MIN_HELD_OUT + PLAIN
    (message,) = warnings(checked(tokenized, train=pairs))
    assert message.startswith(f"train: {MIN_HELD_OUT} pairs (33.3%) {what}")
    assert ", for example train:1; " in message
    if "HTML" in what or "space" in what:  # normal text with the other value of data.tokenized
        assert warnings(checked(not tokenized, train=pairs)) == []


def test_an_entry_in_another_form_than_it_says_is_an_error_if_others_are_right():
    right, wrong = [("O gato.", "The cat.")] * 30, [("O gato .", "The cat .")] * 30

    def found(*entries) -> tuple[list[str], list[str]]:
        scan = Scan(data(), monolingual=False)
        for number, pairs in enumerate(entries):
            corpus = Bitext(f"c{number}", (), Direction("gl", "en"))
            list(
                scan.filter(
                    "train",
                    corpus,
                    numbered(pairs, f"c{number}"),
                    f"data.train[{number}] (c{number})",
                )
            )
        report = scan.report()
        return failures(report), warnings(report)

    (failed,), warned = found(right, wrong)
    assert warned == []
    assert failed.startswith("data.train[1] (c1): 30 pairs (100.0%) with a space before the last")
    assert "set tokenized: true in this entry" in failed
    assert (found(wrong, wrong)[0], len(found(wrong, wrong)[1])) == ([], 2)
    assert (found(right, wrong[:9])[0], len(found(right, wrong[:9])[1])) == ([], 1)  # few pairs


def test_rare_suspicious_pair_is_only_in_the_report():
    report = checked(train=[("same", "same"), *PLAIN])
    assert report.found("same text on both sides", "train").count == 1
    assert warnings(report) == []
    assert "same" not in summary(report)


def test_text_that_is_not_in_nfc():
    def found(split: str, pair: tuple[str, str], form: str) -> CorpusReport:
        return checked(form=form, **{split: [pair, ("é", "y"), *PLAIN]})

    report = found("train", ("e\u0301", "x"), "none")
    share = f"1 source line ({1 / (len(PLAIN) + 2):.1%}) not in the Unicode form clean "
    assert f"; {share}(not in Unicode NFC in 1)" in summary(report)
    (message,) = warnings(report)
    assert message.startswith(f"train: {share}(not in Unicode NFC in 1), for example train:1; ")
    assert message.endswith("set data.normalize=clean")
    assert warnings(found("train", ("e\u0301", "x"), "nfc")) == []  # it is set already
    for form in ("nfc", "clean"):
        (message,) = warnings(found("dev", ("x", "e\u0301"), form))
        assert "references, which are compared as they are" in message
        assert f"writes the form {form}," in message


def test_characters_without_a_shape_are_counted_by_name():
    odd = [("\u200bx", "x\u00ad\u200by"), ("a\u200b", "b"), *PLAIN]
    assert OtherForm(src for src, _ in odd).changes == {"U+200B ZERO WIDTH SPACE": 2}
    found = str(OtherForm(tgt for _, tgt in odd))
    assert found == "U+00AD SOFT HYPHEN in 1, U+200B ZERO WIDTH SPACE in 1"
    for form in ("none", "nfc"):
        src, tgt = warnings(checked(form=form, train=odd))
        assert "train: 2 source lines" in src
        assert tgt.endswith("set data.normalize=clean")
    assert warnings(checked(train=odd)) == []
    # the sources of a test set get the form of the recipe
    (message,) = warnings(checked(test=odd))
    assert message.startswith("test: 1 target line (")


def test_small_held_out_split_is_a_warning():
    pairs = [("a", "b"), ("", "")]
    assert warnings(checked(dev=pairs)) == [
        "dev: only 1 pair with text on both sides, so its scores are unreliable; use at least 100"
    ]
    assert warnings(checked(train=pairs)) == []


def test_a_small_corpus_is_profiled_also_after_a_large_one():
    scan = Scan(data(), False)
    add(scan, "train", [(f"fonte {i}", f"source {i}") for i in range(5001)], name="large")
    add(scan, "train", [("мала мова", "other one")] * 400, name="small")
    assert [found.at for found in scan.report().findings if found.name == "languages"] == ["small"]


def coverage(unknown: float, lacking: float) -> Coverage:
    return Coverage(unknown, lacking, ["zz", "qq"])


def with_lacking(src: Coverage, tgt: Coverage, segment=BPE, size: int = 200) -> CorpusReport:
    report = checked(train=PLAIN)
    report.splits["train"].kept = size
    report.findings += lacked_by_training("dev", {"src": src, "tgt": tgt}, report, segment)
    return report


def test_pieces_that_training_lacks():
    fine = coverage(0, 0.002)
    assert warnings(with_lacking(fine, fine)) == []
    report = with_lacking(coverage(0.6, 0.6), coverage(0.6, 0))
    (failed,), (warned,) = failures(report), warnings(report)
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
    (failed,) = failures(with_lacking(coverage(0.6, 0.6), coverage(0, 0), segment, pairs))
    assert re.search(advice, failed), failed


def test_summary_lists_the_findings():
    train = [("", "x"), ("a", "b"), ("a", "b"), ("same", "same")]
    report = checked(dev=[("x", ""), ("a", "b")], train=train)
    report.splits["train"].normalized["CRLF read as LF"] = 1234
    report.warnings = ["look here"]
    assert summary(report).splitlines() == [
        "train: 4 pairs; 1 dropped (blank: 1); CRLF read as LF in 1,234 lines; 1 duplicate; "
        "0.0% of the sources with several sentences",
        "dev: 2 pairs; 1 with a blank side, kept for scoring (blank: 1); 100.0% of the "
        "pairs (1) are also in the training data",
        "warning: look here",
    ]


def test_report_has_the_names_of_its_file_format():
    report = checked(dev=[("e\u0301", "x")], train=[("", "x"), ("same", "same")])
    values = json.loads(report.to_json())
    assert set(values) == {
        "splits", "findings", "types", "inputs", "versions", "warnings", "lengths", "draws",
    }  # fmt: skip
    assert values["splits"]["dev"] == {"pairs": 1, "kept": 1, "dropped": {}, "normalized": {}}
    dropped = {"blank": {"count": 1, "lines": ["train:1"]}}
    assert values["splits"]["train"]["dropped"] == dropped
    same = {
        "name": "same text on both sides",
        "at": "train",
        "text": "1 pair (100.0%) with the same text on both sides",
        "fix": "check that the two files are different, and remove untranslated pairs",
        "share": 1.0,
        "threshold": 0.1,
        "overlap": 0.0,
        "count": 1,
        "examples": ["train:2"],
        "error": False,
        "shown": False,
    }
    assert same in values["findings"]
    assert CorpusReport.from_json(report.to_json()) == report
    assert Finding(**same) in report.findings
    with pytest.raises(ValueError, match="splits"):
        CorpusReport.from_json("{}")


def test_sentences_of_the_training_sources_are_counted() -> None:
    pairs = [("Unha. Dúas. Tres.", "x"), ("Unha frase.", "y"), ("Unha. Dúas.", "z"), ("a. b", "")]
    report = checked(dev=pairs, train=pairs)
    assert report.splits["train"].sentences == {1: 1, 2: 1, 3: 1}
    assert "66.7% of the sources with several sentences" in summary(report)
    report.lengths["train"] = {"src": Lengths(80, 1, 1, 1, 1), "tgt": Lengths(100, 1, 1, 1, 1)}
    assert CorpusReport.from_json(report.to_json()) == report
    assert usual_line(report.to_json()) == UsualLine(3, 1.25, {"gl": ["."]})
    assert report.splits["dev"].sentences is None


def test_abbreviations_of_the_training_sources_are_learned_for_each_language() -> None:
    pairs = [(f"Vin a dna. {name} onte.", "x") for name in ("Ana", "Xan", "Uxía", "Brais")] * 5
    pairs += [("Unha frase.", "y"), ("Dúas frases. Non.", "z")] * 20
    report = checked(dev=pairs, train=pairs)
    train = report.splits["train"]
    learned = train.abbreviations["gl"]
    assert [word for word in learned if not word.endswith(".")] == ["dna"]
    assert "non." in learned
    assert train.sentences == {1: 40, 2: 20}
    assert usual_line(report.to_json()).abbreviations == train.abbreviations
    assert report.splits["dev"].abbreviations is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"splits": {"train": {"sentences": {"a": 1}}}}'])
def test_a_damaged_report_does_not_say_what_lines_are_like(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        usual_line(text)


def test_first_line_where_two_files_differ_in_length():
    assert first_misaligned(PLAIN) is None
    assert first_misaligned([*PLAIN[:5], ("a", "")]) == 6
    assert first_misaligned([*PLAIN[:2], ("a", "b" * 40)]) == 3


# ---------------------------------------------------------------- held-out text unlike train

GOTHIC = {"k": "qu", "w": "hu", "a": "ä", "'": "\u2019"}  # two spellings of one language
SYLLABLES = [c + v for c in "kwtpnsmrhl" for v in "aieo"]


def text(seed: int, lines: int, words: int = 6, apostrophes: bool = False) -> list[str]:
    """Make lines of a language whose words are frequent or rare, as those of a language are."""
    rng = Random(seed)
    lexicon = ["".join(Random(n).choices(SYLLABLES, k=1 + n % 3)) for n in range(800)]
    if apostrophes:
        lexicon = [
            word[:2] + "'" + word[2:] if n % 5 == 0 else word for n, word in enumerate(lexicon)
        ]
    weights = [1 / (n + 5) for n in range(800)]
    return [
        " ".join(rng.choices(lexicon, weights, k=rng.randint(words - 2, words + 2)))
        for _ in range(lines)
    ]


def with_same_sources(train: list[str], dev: list[str]) -> CorpusReport:
    """Check targets whose sources are the same lines in both sets."""
    source = [f"line {n} of the source" for n in range(max(len(train), len(dev)))]
    sets = {"dev": dev, "train": train}
    return checked(**{name: [*zip(source, sets[name], strict=False)] for name in sets})


def unlike(train: list[str], dev: list[str]) -> set[str]:
    """Return what a dev set is warned about, of its target side."""
    report = with_same_sources(train, dev)
    kinds = {"letters unlike train": "letters", "words that train lacks": "words",
             "length of the lines": "length"}  # fmt: skip
    return {
        kind
        for name, kind in kinds.items()
        for found in report.findings
        if found.name.replace("target ", "") == name and found.at == "dev"
        if found.share > found.threshold and "source" not in found.name
    }


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("size", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_set_of_the_same_text_is_like_train(seed, size):
    train, dev = text(seed, 3000), text(seed + 100, size)
    assert unlike(train, dev) == set()
    report = with_same_sources(train, dev)
    assert report.found(LIKE_TRAIN, "dev").share == 1
    assert "scores say nothing about other text" in summary(report)


@pytest.mark.parametrize(
    "letter", ["k", *(pytest.param(x, marks=pytest.mark.slow) for x in GOTHIC if x != "k")]
)
def test_a_letter_of_one_spelling_is_named(letter):
    train = text(1, 2000, apostrophes=True)
    dev = [line.replace(letter, GOTHIC[letter]) for line in text(2, 300, apostrophes=True)]
    assert "letters" in unlike(train, dev)
    assert "letters" in unlike(dev, train)
    report = with_same_sources(train, dev)
    (message,) = [w for w in warnings(report) if "letters differ" in w]
    assert f"{letter} " in message
    assert "--spelling en=FILE" in message
    assert report.found(LIKE_TRAIN, "dev").share == 0


def test_lines_of_another_length_and_other_words_are_warned_about():
    train = text(1, 2000)
    assert unlike(train, text(2, 300, words=12)) == {"length"}
    other = [" ".join(word[::-1] for word in line.split()) for line in text(2, 300)]
    assert "words" in unlike(train, other)


@pytest.mark.parametrize(
    "sample",
    [
        "我今天去了图书馆看书",
        "これはとても良い日です",
        "วันนี้ผมไปห้องสมุดกับเพื่อน",
        "ຂ້ອຍໄປຫໍສະໝຸດມື້ນີ້",
        "ថ្ងៃនេះខ្ញុំទៅបណ្ណាល័យ",
        "ဒီနေ့ကျွန်တော်စာကြည့်တိုက်သွားတယ်",
    ],
)
def test_spaces_between_words_in_one_set_only(sample):
    """A space between phrases, as in raw Thai, is none between words."""
    words = regex.findall(r"\X{2}", sample)
    raw = [(f"line {n}", "".join(words * 2) + " " + "".join(words)) for n in range(100)]
    spaced = [(src, " ".join(words * 3)) for src, _ in raw]

    def found(dev, train) -> list[str]:
        return [f.at for f in checked(dev=dev, train=train).findings if f.name == WordSpaces.name]

    assert found(raw, spaced) == ["train"]
    assert found(spaced, raw) == ["dev"]
    assert found(raw, raw) == found(spaced, spaced) == []
