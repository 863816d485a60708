"""Scores equal those of sacreBLEU's command; tokenized BLEU equals multi-bleu.perl."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nmt.errors import UserError
from nmt.scoring.metrics import (
    MOST_WORDS,
    RESAMPLES,
    USUAL_METRICS,
    bleu_tokenizer,
    score,
    sentence_scores,
    tokenized_bleu,
)
from tests.scoring.runs import write_lines
from tests.scoring.texts import hypothesis, reference

CHINESE = ["我想看书。", "他走了 3 公里", "", "你好世界"]
ON_TEXT = ["bleu", "chrf", "chrf++", "ter"]


def sacrebleu_output(
    folder: Path, texts: dict[str, list[str]], references: Sequence[str], *options: str
) -> str:
    """Run sacreBLEU's command on files with these names and texts; ``hyp`` is scored."""
    for name, lines in texts.items():
        write_lines(folder / name, lines)
    command = [sys.executable, "-m", "sacrebleu", *references, "-i", "hyp", "-w", "6", *options]
    return subprocess.run(
        command, cwd=folder, check=True, capture_output=True, encoding="utf-8"
    ).stdout


def sacrebleu_command(
    folder: Path, hyps: list[str], refs: list[str], *options: str
) -> list[dict[str, Any]]:
    texts = {"hyp": hyps, "ref": refs}
    found = json.loads(sacrebleu_output(folder, texts, ["ref"], "-f", "json", *options))
    return found if isinstance(found, list) else [found]


@pytest.mark.slow
def test_equals_the_sacrebleu_command_with_its_intervals(tmp_path):
    refs = reference(60)
    hyps = hypothesis(refs, 25)
    expected = sacrebleu_command(tmp_path, hyps, refs, "-m", "bleu", "chrf", "ter", "--confidence")
    found = score(hyps, refs, ["bleu", "chrf", "ter"], "en", RESAMPLES)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.value == pytest.approx(theirs["score"], abs=1e-6)
        assert ours.signature == theirs["signature"]
        mean, half = theirs["confidence_mean"], theirs["confidence_var"]
        assert ours.low == pytest.approx(mean - half, abs=1e-5)
        assert ours.high == pytest.approx(mean + half, abs=1e-5)
        assert ours.low < ours.value < ours.high


def test_several_references_and_word_ngrams_equal_the_sacrebleu_command(tmp_path):
    refs, other = reference(30), reference(30, seed=2)
    hyps = hypothesis(refs[:15] + other[15:], 25)
    texts = {"hyp": hyps, "ref": refs, "other": other}
    options = ("-f", "json", "--chrf-word-order", "2", "-m", "bleu", "chrf", "ter")
    expected = json.loads(sacrebleu_output(tmp_path, texts, ["ref", "other"], *options))
    found = score(hyps, refs, ["bleu", "chrf++", "ter"], "en", other_refs=[other])
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.value == pytest.approx(theirs["score"], abs=1e-6)
        assert ours.signature == theirs["signature"]
        assert "nrefs:2" in ours.signature
    assert "nw:2" in found[1].signature
    assert tokenized_bleu(hyps, refs, other_refs=[other]).value > tokenized_bleu(hyps, refs).value


@pytest.mark.parametrize("metric", ["bleu", "chrf"])
def test_sentences_equal_the_sacrebleu_command(tmp_path, metric):
    refs, other = reference(20), reference(20, seed=2)
    hyps = hypothesis(refs, 25)
    texts = {"hyp": hyps, "ref": refs, "other": other}
    options = ("--sentence-level", "-m", metric)
    output = sacrebleu_output(tmp_path, texts, ["ref", "other"], *options)
    (found,) = sentence_scores(hyps, refs, [metric], "en", [other])
    for value, line in zip(found.values, output.splitlines(), strict=True):
        name, _, result = line.partition(" = ")
        assert value == pytest.approx(float(result.split()[0]), abs=1e-6)
        assert name.endswith(found.signature)


def test_a_correct_short_line_has_the_full_score():
    found = sentence_scores(["a cat", ""], ["a cat", "a dog"], ON_TEXT, "en")
    assert [s.values for s in found] == [[pytest.approx(100), 0]] * 3 + [[0, 100]]


def test_chinese_uses_sacrebleus_tokenizer(tmp_path):
    assert {bleu_tokenizer(code) for code in ("zh", "zh-CN", "zh_TW", "cmn")} == {"zh"}
    refs = CHINESE * 3
    hyps = [line[:-1] for line in refs]
    (expected,) = sacrebleu_command(tmp_path, hyps, refs, "-l", "en-zh", "-m", "bleu")
    (ours,) = score(hyps, refs, ["bleu"], "zho_Hans")
    assert ours.value == pytest.approx(expected["score"], abs=1e-6)
    assert "tok:zh" in ours.signature
    assert ours.value != pytest.approx(score(hyps, refs, ["bleu"], "en")[0].value)


def test_japanese_without_mecab_is_scored_by_characters(monkeypatch):
    from sacrebleu.tokenizers import tokenizer_ja_mecab

    monkeypatch.setattr(tokenizer_ja_mecab, "MeCab", None)
    for language in ("ja", "jpn_Jpan"):
        (found,) = score(["彼は本を読んだ"], ["彼が本を読んだ"], ["bleu"], language)
        assert "tok:char" in found.signature
        assert 0 < found.value < 100


@pytest.mark.parametrize("language", ["en", "no", "vi", "gl", "eng_Latn", "chr", ""])
def test_other_languages_use_13a(language):
    assert bleu_tokenizer(language) == "13a"


def test_intervals_are_optional():
    refs = reference(20)
    for found in score(refs, refs, USUAL_METRICS, "en"):
        assert (found.low, found.high) == (None, None)
        assert "bs:" not in found.signature
        assert found.value == (0 if found.name == "ter" else pytest.approx(100))


# (lines, damage) -> the output of multi-bleu.perl
PERL = {(300, 5): 91.89, (300, 20): 66.77, (300, 60): 18.89, (300, 90): 4.85, (40, 40): 40.45}


@pytest.mark.parametrize(("case", "expected"), PERL.items())
def test_tokenized_bleu_is_multi_bleu_perl(case, expected):
    lines, damage = case
    refs = reference(lines)
    assert f"{tokenized_bleu(hypothesis(refs, damage), refs).value:.2f}" == f"{expected:.2f}"


@pytest.mark.parametrize("damage", [0, 10, 35, 70, 100])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_tokenized_bleu_equals_the_formula(damage, seed):
    refs = reference(25, seed)
    hyps = hypothesis(refs, damage, seed + 100)
    assert tokenized_bleu(hyps, refs).value == pytest.approx(slow_bleu(hyps, refs), abs=1e-9)


def slow_bleu(hyps: list[str], refs: list[str]) -> float:
    """Compute BLEU by Papineni et al. 2002, section 2.3, with words split at ASCII white space."""
    pairs = [
        (hyp.encode().split(), ref.encode().split()) for hyp, ref in zip(hyps, refs, strict=True)
    ]
    hyp_length = sum(len(hyp) for hyp, _ in pairs)
    ref_length = sum(len(ref) for _, ref in pairs)
    log_precisions = []
    for n in range(1, 5):
        matched = total = 0
        for hyp, ref in pairs:
            hyp_grams, ref_grams = (
                Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))
                for words in (hyp, ref)
            )
            matched += (hyp_grams & ref_grams).total()
            total += hyp_grams.total()
        if matched == 0:
            return 0.0
        log_precisions.append(math.log(matched / total))
    penalty = min(1.0, math.exp(1 - ref_length / hyp_length))
    return 100 * penalty * math.exp(sum(log_precisions) / 4)


@pytest.mark.parametrize("lang", ["zh", "yue", "ja", "th", "lo_Laoo", "km", "my", "bo", "dz"])
def test_one_wrong_character_of_a_language_without_spaces_costs_little(lang):
    ref = "ຂ້ອຍ我们今天去公园散步然后回家abc."
    good, bad = (
        score([hyp], [ref], ["ter", "tokenized_bleu"], lang)
        for hyp in (ref, ref.replace("去", "来"))
    )
    assert [round(found.value) for found in good] == [0, 100]
    ter, bleu = bad
    assert 0 < ter.value < 10
    assert 50 < bleu.value < 100
    assert "|tok:tercom+char|" in ter.signature
    assert "|tok:none+char|" in bleu.signature
    assert "|tok:x+char|" in tokenized_bleu([ref], [ref], "x", lang=lang).signature


def test_languages_with_spaces_and_words_of_tokenized_text_are_scored_by_words():
    for lang in ("en", "ko", "am", "hi", "zh_Latn", ""):
        (ter,) = score(["a 우리는"], ["b 우리는"], ["ter"], lang)
        assert (ter.value, "tok:tercom|" in ter.signature) == (50, True)
    assert tokenized_bleu(["我们 今天"], ["我们 今天"]).value == pytest.approx(0)  # of two words


def test_tokenized_bleu_splits_at_ascii_white_space_only():
    inside = [f"a{chr(code)}b c d e f" for code in (0xA0, 0x85, 0x1C, 0x2009, 0x3000)]
    apart = ["a b c d e f"] * len(inside)
    assert tokenized_bleu(inside, inside).value == pytest.approx(100)
    # one word against two: 4 of 5 words match, and the hypothesis is shorter
    assert tokenized_bleu(inside, apart).value == pytest.approx(slow_bleu(inside, apart))
    tabs = ["a\tb  c\rd e f "] * len(inside)
    assert tokenized_bleu(tabs, apart).value == pytest.approx(100)


@pytest.mark.parametrize("refs", [["a b c d e"], [""], ["a"]])
@pytest.mark.parametrize("hyps", [[""], ["x y z"], ["a b c"]])
def test_degenerate_text_has_a_score(hyps, refs):
    for found in score(hyps, refs, USUAL_METRICS, "en", resamples=10):
        assert math.isfinite(found.value)
        assert math.isfinite(found.low)
        if found.name == "tokenized_bleu":
            assert found.value == 0  # no common 4-gram


@pytest.mark.parametrize(
    ("hyps", "refs"),
    [(["a b c d e", "x"], ["a b c d e", "zz y"]), (["a b c d e", "x"], ["a b c d e", ""])],
)
def test_intervals_where_some_resamples_have_no_match(hyps, refs):
    """sacreBLEU alone raises a TypeError: for chrF in the first case, for TER in the second."""
    for found in score(hyps, refs, USUAL_METRICS, "en", resamples=100):
        assert found.low < found.value < found.high


def test_ter_refuses_lines_that_would_take_minutes():
    """Its time grows with the length and with what is in another order."""
    words = " ".join(map(str, range(MOST_WORDS)))
    assert score([words], [words], ["ter"], "en")[0].value == 0
    for hyp, ref in ((f"{words} x", "x"), ("x", f"{words} x")):
        with pytest.raises(UserError, match=f"{MOST_WORDS + 1:,} words"):
            score([hyp], [ref], ["ter"], "en")
        assert len(score([hyp], [ref], ["bleu", "chrf"], "en")) == 2


def test_line_counts_must_agree():
    with pytest.raises(UserError, match="2 lines, but the reference has 3"):
        score(["a", "b"], ["a", "b", "c"], ["bleu"], "en")
    with pytest.raises(UserError, match="no lines"):
        tokenized_bleu([], [])
