"""nmt-report --table: every state of a variant's run, next to the paper's figures."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from nmt.apps.report import command as report
from nmt.apps.sweep.variants import load_variants
from nmt.cli import train
from nmt.store.folder import RunFolder
from nmt.store.lifecycle import TrainingFolder
from nmt.store.results import RunResult, read_result, read_summary
from tests.toy import toy_corpus, toy_recipe

FILE = """\
base: toy.yaml
common:
  train: {validate_every: 2, max_validations: 2, max_bad_updates: 1}
variants:
  plain:
    about: the base recipe
    paper: {dev: 28.33, test: 32.5}
  wild:
    about: a learning rate so high that the weights diverge
    paper: {dev: fails}
    schedule: {kind: constant, lr: 1e30}
  later:
    about: not run yet
    seed: 2
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """v.yaml with a finished run of ``plain`` and a diverged one of ``wild``."""
    folder = tmp_path_factory.mktemp("report")
    toy_corpus(folder, {"train": 40, "dev": 3, "test": 3})
    toy_recipe(folder)
    (folder / "v.yaml").write_text(FILE, encoding="utf-8")
    for name, code in (("plain", 0), ("wild", 3)):
        argv = [str(folder / "v.yaml"), "--variant", name, f"out={folder / 'runs' / name}"]
        assert train.main(argv) == code
    return folder


def rows(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, str]]:
    assert report.main(["--table", str(folder / "v.yaml"), "--runs", str(folder / "runs")]) == 0
    header, *lines = (line.split("\t") for line in capsys.readouterr().out.splitlines())
    return {line[0]: dict(zip(header, line, strict=True)) for line in lines}


@pytest.mark.slow
def test_a_finished_run_is_listed_with_the_papers_figures(folder, capsys):
    row = rows(folder, capsys)["plain"]
    run = RunFolder(folder / "runs" / "plain")
    scores = {s["name"]: s["value"] for s in read_summary(run)["test"]}
    assert (row["status"], row["updates"]) == ("finished", "4")
    printed = [row[f"{name}_printed"] for name in ("dev", "test", "ppl")]
    assert printed == ["28.3300", "32.5000", ""]
    assert float(row["dev"]) == pytest.approx(read_summary(run)["dev"], abs=1e-4)
    assert float(row["bleu"]) == pytest.approx(scores["bleu"], abs=1e-4)
    assert float(row["tokenized_bleu"]) == pytest.approx(scores["tokenized_bleu"], abs=1e-4)
    assert float(row["hours"]) >= 0
    records = [json.loads(line) for line in run.metrics_file.read_text().splitlines()]
    best = next(r for r in records if r["kind"] == "dev" and f"u{r['update']:06}" == run.best())
    assert float(row["ppl"]) == pytest.approx(best["ppl"], abs=1e-4)


def test_a_diverged_run_has_status_diverged(folder, capsys):
    row = rows(folder, capsys)["wild"]
    assert (row["status"], row["dev_printed"], row["tokenized_bleu"]) == ("diverged", "fails", "")
    summary = read_summary(RunFolder(folder / "runs" / "wild"))
    assert "gradients were not finite" in summary["reason"]
    assert int(row["updates"]) <= summary["updates"] < 4


def test_a_run_that_has_not_started_has_no_figures(folder, capsys):
    row = rows(folder, capsys)["later"]
    assert {name for name, cell in row.items() if cell} == {"variant", "runs", "status", "updates"}
    assert row["status"] == "not started"


def test_perplexities_of_other_vocabularies_are_noted(folder, tmp_path, capsys):
    for name in ("plain", "wild"):
        shutil.copytree(folder / "runs" / "plain", tmp_path / name)
    argv = ["--table", str(folder / "v.yaml"), "--runs", str(tmp_path)]
    assert report.main(argv) == 0
    assert capsys.readouterr().err == ""
    vocab = tmp_path / "wild" / "checkpoints" / "text" / "vocab.txt"
    vocab.write_text(vocab.read_text() + "other\t1\t1\n")
    assert report.main(argv) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 4
    assert err == (
        "note: the variants differ in vocabulary: they predict other tokens, so their ppl does not "
        "compare\n"
    )


def test_runs_of_a_sweep_are_noted(folder, tmp_path, capsys):
    (tmp_path / "plain.seed-1").mkdir()
    file = str(folder / "v.yaml")
    assert report.main(["--table", file, "--runs", str(tmp_path)]) == 0
    assert f"note: for the runs of nmt-sweep, run nmt-sweep {file} --results" in (
        capsys.readouterr().err
    )


def test_json_has_full_precision(folder, capsys):
    argv = ["--table", str(folder / "v.yaml"), "--json", "--runs", str(folder / "runs")]
    assert report.main(argv) == 0
    found = json.loads(capsys.readouterr().out)["variants"]
    assert [v["variant"] for v in found] == ["plain", "wild", "later"]
    assert found[0]["about"] == "the base recipe"
    assert found[0]["dev"] == read_summary(RunFolder(folder / "runs" / "plain"))["dev"]
    assert found[1]["dev_printed"] == "fails"
    assert found[2]["dev"] is None


def test_each_folder_of_runs_has_its_own_row(folder, tmp_path, capsys):
    dirs = [str(folder / "runs"), str(tmp_path)]
    assert report.main(["--table", str(folder / "v.yaml"), "--runs", *dirs]) == 0
    header, *lines = (line.split("\t") for line in capsys.readouterr().out.splitlines())
    assert header[:3] == ["variant", "runs", "status"]
    assert lines[0][:3] == ["plain", dirs[0], "finished"]
    assert lines[1][:3] == ["plain", dirs[1], "not started"]
    assert len(lines) == 6


def test_the_table_leaves_out_empty_columns(folder):
    runs = folder / "runs"
    rows = [report._row(v, str(runs), runs / v.name) for v in load_variants(folder / "v.yaml")]
    head, plain, wild, _ = report.table(rows).splitlines()
    assert head.split()[:6] == ["variant", "runs", "status", "updates", "hours", "dev"]
    assert "printed dev" in head
    assert "printed ppl" not in head
    assert plain.split()[2:4] == ["finished", "4"]
    assert wild.endswith("-")


def test_status_of_a_run_in_progress_and_of_a_stopped_run(folder, tmp_path):
    run = TrainingFolder(tmp_path / "run", RunFolder(folder / "runs/plain").recipe())
    with run:
        assert read_result(run.path) == RunResult("training")
        lines = [{"kind": "dev", "update": u, "bleu": b, "ppl": 9} for u, b in ((2, 5), (4, 3))]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        run.metrics_file.write_text(text + '{"kind": "dev", "upd', encoding="utf-8")
    assert read_result(run.path) == RunResult("stopped", updates=4, dev=5.0, ppl=9.0)
