"""The three forms of a report have the same content."""

from __future__ import annotations

import json

import pytest

from nmt.apps.evaluate.report import COLUMNS, report
from nmt.errors import UserError
from nmt.scoring.metrics import USUAL_METRICS, score, tokenized_bleu
from nmt.scoring.systems import Systems
from tests.scoring.texts import hypothesis, reference

REFS = reference(40)
BASE, BETTER = hypothesis(REFS, 50), hypothesis(REFS, 10)


def systems_of(**texts: list[str]) -> Systems:
    # The words differ from the text, so a metric on the wrong form has another score.
    words = {name: [f"{line} ." for line in hyps] for name, hyps in texts.items()}
    ref_words = [f"{line} ." for line in REFS]
    return Systems(texts, REFS, words, ref_words, "test.en", "en", "moses-en")


def test_every_metric_is_computed_on_its_form_of_the_text():
    given = systems_of(base=BASE)
    found = report(given, USUAL_METRICS, resamples=100).scores
    scores = found["base"]
    assert [s.name for s in scores] == USUAL_METRICS
    expected = score(BASE, REFS, ["bleu", "chrf", "chrf++", "ter"], "en", resamples=100)
    assert scores[:4] == expected
    assert scores[4].value == tokenized_bleu(given.words["base"], given.ref_words).value
    assert "tok:moses-en" in scores[4].signature


def test_table_for_people():
    table = report(systems_of(base=BASE, better=BETTER), ["bleu", "tokenized_bleu"], 100).table()
    lines = table.splitlines()
    assert lines[0] == "reference test.en, 40 lines"
    assert any(line.startswith("BLEU") for line in lines)
    assert "tokenized BLEU (multi-bleu.perl), not comparable with BLEU" in lines
    better = [line for line in lines if line.startswith("  better")]
    assert len(better) == 2
    assert all("p = 0.010 *" in line and "[" in line for line in better)
    assert max(map(len, lines)) <= 100
    assert "difference to base; p by paired bootstrap, * where the two-sided p < 0.05" in table


def test_tab_separated_lines_for_pipes():
    found = report(systems_of(base=BASE, better=BETTER), ["bleu", "chrf"], 100)
    header, *rows = [line.split("\t") for line in found.tsv().splitlines()]
    assert tuple(header) == COLUMNS
    names = [[system, metric] for system in ("base", "better") for metric in ("bleu", "chrf")]
    assert [row[:2] for row in rows] == names
    assert all(len(row) == len(COLUMNS) for row in rows)
    assert rows[0][5:7] == ["", ""]
    assert float(rows[2][2]) == pytest.approx(found.scores["better"][0].value, abs=1e-4)


def test_json_for_programs():
    found = report(systems_of(base=BASE, better=BETTER), ["chrf", "tokenized_bleu"], 100)
    read = json.loads(found.json())
    assert read["lines"] == 40
    assert read["baseline"] == "base"
    assert [system["name"] for system in read["systems"]] == ["base", "better"]
    assert read["systems"][1]["empty"] == sum(not line for line in BETTER) > 0
    entry = found.scores["better"][0]
    record = read["scores"][2]
    assert record["score"] == entry.value
    assert (record["low"], record["high"]) == (entry.low, entry.high)
    assert (record["difference"], record["p_value"]) == (entry.difference, entry.p_value)
    assert record["p_two_sided"] == entry.p_two_sided
    assert record["signature"] == entry.signature


def test_without_intervals():
    found = report(systems_of(base=BASE), ["bleu"], resamples=0)
    assert found.scores["base"][0].low is None
    assert found.baseline is None
    assert "interval" not in found.table()
    assert json.loads(found.json())["scores"][0]["high"] is None


def test_impossible_numbers_of_resamples_are_errors():
    with pytest.raises(UserError, match="without resamples"):
        report(systems_of(base=BASE, better=BETTER), ["bleu"], resamples=0)
    with pytest.raises(UserError, match=r"(?s)test.en: .* take 39 GiB.*--resamples 0"):
        report(systems_of(base=BASE), ["bleu"], resamples=10_000_000)
