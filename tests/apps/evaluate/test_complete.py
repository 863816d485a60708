"""nmt-score with several references, parts, sentences and an external metric."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sacrebleu.significance import estimate_ci

from nmt.apps.evaluate.external import ExternalMetric
from nmt.cli.score import main
from nmt.config.load import dump_recipe, load_recipe
from nmt.data.prepare import prepare
from nmt.errors import RunError, UserError
from nmt.scoring.metrics import score
from nmt.scoring.systems import from_runs
from tests.scoring.runs import make_run, write_lines
from tests.scoring.texts import hypothesis, reference

REFS, OTHER = reference(30), reference(30, seed=2)
BASE, BETTER = hypothesis(REFS, 40), hypothesis(REFS, 5)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    texts = {
        "ref": REFS,
        "other": OTHER,
        "base": BASE,
        "better": BETTER,
        "src": [f"s {line}" for line in REFS],
    }
    return {name: str(write_lines(tmp_path / name, lines)) for name, lines in texts.items()}


def program(folder: Path, body: str) -> str:
    """Write a stub of a metric's command; return how it is called."""
    path = folder / "metric.py"
    path.write_text(f"import sys, time\nsrc, hyp, ref = sys.argv[1:]\n{body}\n", encoding="utf-8")
    return f"{sys.executable} {path} {{src}} {{hyp}} {{ref}}"


def run_json(capsys: pytest.CaptureFixture[str], *argv: str) -> Any:
    assert main([*argv, "--json", "--resamples", "100"]) == 0
    return json.loads(capsys.readouterr().out)


def test_several_references(files, capsys):
    found = run_json(
        capsys, "--hyp", files["base"], files["better"], "--ref", files["ref"],
        "--ref", files["other"], "--metrics", "bleu,tokenized_bleu",
    )  # fmt: skip
    assert found["references"] == 2
    assert all("nrefs:2" in s["signature"] for s in found["scores"])
    (expected,) = score(BASE, REFS, ["bleu"], "", other_refs=[OTHER])
    assert found["scores"][0]["score"] == pytest.approx(expected.value)


def test_a_person_gets_a_table_and_a_script_gets_lines(files, capsys, monkeypatch):
    argv = ["--hyp", files["base"], files["better"], "--ref", files["ref"], "--metrics", "bleu"]
    argv += ["--resamples", "100"]
    (expected,) = score(BASE, REFS, ["bleu"], "")
    assert main(argv) == 0
    rows = {tuple(line.split("\t")[:2]): line for line in capsys.readouterr().out.splitlines()}
    assert f"\t{expected.value:.4f}\t" in rows[files["base"], "bleu"]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert main(argv) == 0
    table = capsys.readouterr().out
    assert table.startswith(f"reference {files['ref']}, 30 lines")
    assert "\t" not in table


def test_sentences_are_a_table_for_spreadsheets(tmp_path, files, capsys):
    out = tmp_path / "sentences.tsv"
    hyp = str(write_lines(tmp_path / "hyp", [REFS[0], 'a\t"quote', *BASE[2:]]))
    argv = [
        "--hyp",
        hyp,
        files["better"],
        "--ref",
        files["ref"],
        "--metrics",
        "bleu,tokenized_bleu",
    ]
    argv += ["--src", files["src"], "--resamples", "100"]
    assert main([*argv, "--sentences", str(out)]) == 0
    assert "wrote the scores of 60 lines" in capsys.readouterr().err
    with out.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    assert len(rows) == 60
    assert list(rows[0]) == [
        "system", "line", "bleu", "source", "reference", "hypothesis",
    ]  # fmt: skip
    assert (rows[0]["system"], rows[0]["line"], rows[0]["bleu"]) == (hyp, "1", "100.0000")
    assert rows[1]["hypothesis"] == 'a "quote'
    assert (rows[31]["system"], rows[31]["line"]) == (files["better"], "2")


def test_an_external_command_gets_plain_text_of_all_three(tmp_path, files, capsys):
    """The stub prints a log line and the share of equal lines."""
    command = program(
        tmp_path,
        "lines = [open(f, encoding='utf-8').read().split('\\n')[:-1] for f in (src, hyp, ref)]\n"
        "assert [s == 's ' + r for s, _, r in zip(*lines)] == [True] * 30\n"
        "print('loaded model v2.2\\n')\n"
        "print(f'{hyp}\\tscore: {sum(h == r for _, h, r in zip(*lines)) / 30:.4f}\\n')",
    )
    argv = ["--hyp", files["base"], files["better"], "--ref", files["ref"], "--src", files["src"]]
    found = run_json(capsys, *argv, "--metrics", "chrf", "--metric", f"comet={command}")
    base, better = (s for s in found["scores"] if s["metric"] == "comet")
    for entry, hyps in ((base, BASE), (better, BETTER)):
        share = sum(hyp == ref for hyp, ref in zip(hyps, REFS, strict=True)) / 30
        assert entry["score"] == pytest.approx(share, abs=1e-4)
        assert entry["signature"] == command
        assert entry["low"] is None
    assert base["difference"] is None
    assert better["difference"] == pytest.approx(better["score"] - base["score"])


def test_scores_of_lines_have_intervals_and_the_tests_of_a_metric_of_this_toolkit(
    tmp_path, files, capsys
):
    """The stub prints what comet-score does: sentence chrF here, whose corpus score is its mean."""
    command = program(
        tmp_path,
        "from sacrebleu.metrics import CHRF\n"
        "read = [open(f, encoding='utf-8').read().split('\\n')[:-1] for f in (hyp, ref)]\n"
        "scores = [CHRF().sentence_score(h, [r]).score for h, r in zip(*read)]\n"
        "for n, s in enumerate(scores): print(f'{hyp}\\tSegment {n}\\tscore: {s!r}')\n"
        "print(f'{hyp}\\tscore: {sum(scores) / 30:.4f}')",
    )
    out = tmp_path / "sentences.tsv"
    argv = ["--hyp", files["base"], files["better"], "--ref", files["ref"], "--src", files["src"]]
    argv += ["--metrics", "chrf", "--metric", f"mean={command}", "--sentences", str(out)]
    found = run_json(capsys, *argv)
    base, better = (s for s in found["scores"] if s["metric"] == "mean")
    rows = list(csv.DictReader(out.open(encoding="utf-8"), delimiter="\t"))
    assert all(row["mean"] == row["chrf"] for row in rows)
    values = np.array([float(row["chrf"]) for row in rows]).reshape(2, 30)
    chosen = np.random.default_rng(12345).choice(30, size=(100, 30), replace=True)
    means = values[:, chosen].mean(2)
    for entry, sampled, own in zip((base, better), means, values, strict=True):
        assert entry["score"] == pytest.approx(own.mean(), abs=1e-3)
        mean, half = estimate_ci(sampled)
        assert [entry["low"], entry["high"]] == pytest.approx([mean - half, mean + half], abs=1e-3)
    differences = np.abs(means[1] - means[0])
    above = np.sum(differences - differences.mean() > abs(better["difference"]))
    assert better["p_value"] == (above + 1) / 101 < 0.05


def test_a_run_gives_its_source_to_the_command(tmp_path, capsys):
    run = make_run(tmp_path, REFS, REFS, {}, "u000100")
    command = program(tmp_path, "print(open(src).read() == open(ref).read(), -0.25)")
    found = run_json(capsys, str(run), "--metrics", "chrf", "--metric", f"comet={command}")
    assert found["scores"][1]["score"] == -0.25


@pytest.mark.parametrize(
    ("line", "value"), [("score: 0.8532.", 0.8532), ("-1.5e-2", -0.015), ("v2.1 .5", 0.5)]
)
def test_a_number_of_a_command_is_read_completely(tmp_path, line, value):
    """A full stop after the number once made 8532 of 0.8532."""
    command = program(tmp_path, f"print({line!r})")
    assert ExternalMetric("m", command).score(["s"], ["h"], ["r"]) == [value]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("sys.exit('no\\nmodel')", "failed with exit status 1:\n  no\n  model"),
        ("print()", "printed 0 scores for 1 line"),
        ("print('of 2 lines: NaN')", "score 1 is not a finite number: 'of 2 lines: NaN'"),
        ("print('see v2.x')", "its last line is 'see v2.x'"),
        ("print(1); print(2); print(3)", "printed 3 scores for 1 line"),
    ],
)
def test_a_failed_command_says_why(tmp_path, body, message):
    with pytest.raises(RunError) as error:
        ExternalMetric("m", program(tmp_path, body)).score(["s"], ["h"], ["r"])
    assert message in str(error.value)


def test_the_other_scores_are_printed_if_the_command_fails(tmp_path, files, capsys):
    argv = ["--hyp", files["base"], "--ref", files["ref"], "--src", files["src"], "--json"]
    command = program(tmp_path, "sys.exit('no model')")
    assert main([*argv, "--metrics", "chrf", "--metric", f"comet={command}"]) == 3
    out, err = capsys.readouterr()
    (entry,) = json.loads(out)["scores"]
    assert (entry["metric"], entry["score"] > 50) == ("chrf", True)
    assert "failed with exit status 1:\n  no model" in err


def test_an_interrupt_ends_the_command_and_its_children(tmp_path, monkeypatch):
    pids = tmp_path / "pids"
    body = f"import os\nos.fork()\nopen({str(pids)!r}, 'a').write(f'{{os.getpid()}}\\n')\n"
    body += "time.sleep(60)"

    def interrupted(process: subprocess.Popen[bytes]) -> None:
        while not pids.exists() or len(pids.read_text().split()) < 2:
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "communicate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ExternalMetric("m", program(tmp_path, body)).score(["s"], ["h"], ["r"])
    time.sleep(0.1)
    for pid in pids.read_text().split():
        assert not Path(f"/proc/{pid}").exists() or b"Z" in Path(f"/proc/{pid}/stat").read_bytes()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("comet-score -t {hyp}", "does not contain {src} or {ref}"),
        ("comet-score -s {src}", "does not contain {hyp}"),
        ("comet-score '{src} {hyp}", "no closing quotation"),
        ("/no/such/program {src} {hyp}", "/no/such/program is not a program that can be run"),
    ],
)
def test_faulty_commands(files, capsys, command, message):
    argv = ["--hyp", files["base"], "--ref", files["ref"], "--src", files["src"]]
    argv += ["--metrics", "chrf", "--resamples", "0", "--metric", f"comet={command}"]
    assert main(argv) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--metric", "comet=cat {src} {hyp}"], "--metric comet requires --src"),
        (["--metric", "chrf=cat {hyp} {ref}"], "--metric: 'chrf' is the name of another metric"),
    ],
)
def test_flags_that_need_others(files, capsys, argv, message):
    given = ["--hyp", files["base"], "--ref", files["ref"], "--metrics", "chrf", "--resamples", "0"]
    assert main([*given, *argv]) in (2, 4)
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


def test_other_refs_of_a_recipe_are_scored_in_training_and_afterwards(tmp_path, capsys):
    """Prepared data has them in the form of the recipe, and nmt-score reads them from the run."""
    write_lines(tmp_path / "more.en", [f"{line} &apos;" for line in OTHER])
    recipe = tmp_path / "r.yaml"
    recipe.write_text(
        "src: gl\ntgt: en\ndata:\n  train: data/train\n  dev: data/dev\n  checks: warn\n"
        "  test: {path: data/test, tokenized: true, other_refs: more.en}\n",
        encoding="utf-8",
    )
    run = make_run(tmp_path, REFS, BASE, {}, "u000100")
    loaded = load_recipe(recipe, [f"out={run}"])
    (run / "config.yaml").write_text(dump_recipe(loaded), encoding="utf-8")
    prepared = prepare(loaded, progress=False)
    assert prepared.test is not None
    assert prepared.dev[0].other_refs == []
    assert len(prepared.content["test"]) == 3
    (other,) = prepared.test[0].other_refs
    assert all(line.endswith("'") and "&" not in line for line in other)
    found = run_json(capsys, str(run), "--metrics", "bleu")
    assert "nrefs:2" in found["scores"][0]["signature"]
    write_lines(tmp_path / "more.en", OTHER[:5])
    for act in (lambda: prepare(loaded, progress=False), lambda: from_runs([str(run)], "test")):
        with pytest.raises(UserError, match=r"more\.en: (has )?5 lines"):
            act()
    (tmp_path / "more.en").unlink()
    with pytest.raises(UserError, match=r"more\.en: is not a file\n  -> check .* other_refs"):
        prepare(loaded, progress=False)
