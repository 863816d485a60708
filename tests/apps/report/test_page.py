"""The report of runs in every state: its content, and that it is one safe, complete file."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import nmt
from nmt.apps.report.outputs import Outputs, text_direction
from nmt.apps.report.page import relative_paths, render
from nmt.apps.report.runs import read_runs
from nmt.cli import report, train
from nmt.store.folder import RunFolder
from nmt.store.results import read_summary, write_summary
from tests import final_reports
from tests.apps.report.conftest import HEBREW, HOSTILE
from tests.apps.report.page import Page
from tests.text_toy import text_corpus, text_recipe
from tests.toy import toy_corpus, toy_recipe

pytestmark = pytest.mark.slow

STORED = Path(__file__).parents[2] / "fixtures" / "runs" / "fastbpe"
CURVES = 7  # BLEU, tokenized BLEU, perplexity; closed: loss, learning rate, gradient norm, speed


@pytest.fixture(scope="session")
def plain(folder) -> Page:
    """The report that the training of ``plain`` ended with."""
    return Page.read(folder / "plain" / "report.html")


@pytest.fixture(scope="session")
def both(folder) -> Page:
    output = folder / "both.html"
    runs = [str(folder / name) for name in ("plain", "layernorm")]
    assert report.main([*runs, "-o", str(output), "--force"]) == 0
    return Page.read(output)


def written(run: Path, output: Path) -> Page:
    assert report.main([str(run), "-o", str(output), "--force"]) == 0
    return Page.read(output)


def replace_outputs(run: Path, text: str) -> None:
    """Write other translations of test, as if the run had scored them."""
    (run / "test.hyp").write_text(text, encoding="utf-8")
    values = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    values = {name: value for name, value in values.items() if name not in ("files", "sha256")}
    write_summary(RunFolder(run), values)


# ---------------------------------------------------------------- the file


def test_the_file_is_complete_and_asks_for_nothing(plain, both, several_sets):
    for page in (plain, both, Page.read(several_sets)):
        assert len(page.source.encode()) < 5e6
        assert not re.search(r"(?:src|href)=\"(?!#|data:)|url\((?!#)|@import|<link", page.source)
        assert not page.all("script")
        assert page.all("meta", content="width=device-width, initial-scale=1")
        (policy,) = page.all("meta", http_equiv="x") or page.all(
            "meta", **{"http-equiv": "Content-Security-Policy"}
        )
        assert str(policy["content"]).startswith("default-src 'none'")


def test_an_existing_file_is_replaced_with_force_only(folder, tmp_path, capsys):
    output = tmp_path / "train.en"
    output.write_text("a sentence\n", "utf-8")
    assert report.main([str(folder / "plain"), "-o", str(output)]) == 2
    assert "add --force to replace it" in capsys.readouterr().err
    assert output.read_text("utf-8") == "a sentence\n"
    assert report.main([str(folder / "plain"), "-o", str(output), "--force"]) == 0
    vocab = folder / "plain" / "model" / "vocab.txt"
    assert report.main([str(folder / "plain"), "-o", str(vocab), "--force"]) == 2
    assert "is an existing file of the model" in capsys.readouterr().err


def test_ids_are_unique_and_references_resolve(plain, both, several_sets):
    for page in (plain, both, Page.read(several_sets)):
        ids = page.ids()
        assert len(set(ids)) == len(ids)
        assert set(re.findall(r"(?:href=\"|url\()#([^\")]+)", page.source)) <= set(ids)


def test_figures_have_the_colors_of_the_page(plain):
    drawings = re.findall(r"<svg.*?</svg>", plain.source, re.DOTALL)
    assert "var(--series-1)" in "".join(drawings)
    fixed = set(re.findall(r"#[0-9a-f]{6}\b", "".join(drawings)))
    assert fixed <= {"#000000"}  # the color of what is not visible


def test_text_of_the_corpus_is_text(plain):
    assert "<script>" not in plain.source
    assert HOSTILE in plain.section("outputs").text
    assert "<b>LICENSE" not in plain.source
    assert "CC0, see <b>LICENSE</b>" in plain.section("data").text


@pytest.mark.parametrize(
    ("lines", "direction"),
    [
        (["NATO", "NATO פועלת בלי אישור", "42"], "rtl"),
        (["ناتو", "a"], "rtl"),
        (["שלום means peace", "1"], "ltr"),
        (["1 2 .", ""], "auto"),
    ],
)
def test_most_letters_decide_about_the_direction(lines, direction):
    assert text_direction(lines) == direction


def test_text_from_right_to_left(tmp_path):
    toy_corpus(tmp_path, {"train": 40, "dev": 4})
    toy_corpus(tmp_path / "other", {"train": 40})
    for lang, text in (("gl", "1 2 3 4"), ("he", f"x 3 2 1 {HEBREW}")):
        (tmp_path / f"other/test.{lang}").write_text(f"{text}\n" * 4, encoding="utf-8")
    test = {"path": "other/test", "src": "gl", "tgt": "he"}
    keys = {"data": {"test": test, "checks": "off"}}
    run = nmt.train(toy_recipe(tmp_path, keys), quiet=True).run
    replace_outputs(run, f"{HEBREW}\n" * 4)
    page = written(run, tmp_path / "page.html")
    directions = {(cell["lang"], cell["dir"]) for cell in page.all("dd") if "lang" in cell}
    assert directions == {("gl", "auto"), ("he", "rtl")}


# ---------------------------------------------------------------- one run


def test_scores_are_those_of_the_run_with_signatures_and_intervals(folder, plain):
    text = plain.section("scores").text
    bleu, tokenized = read_summary(RunFolder(folder / "plain"))["test"]
    assert f"Test BLEU {bleu['value']:.2f} {bleu['low']:.2f} to {bleu['high']:.2f}" in text
    assert bleu["signature"] in text
    assert tokenized["signature"] in text
    assert "not comparable with BLEU" in text


def test_faults_are_counted(folder, plain):
    text = plain.section("outputs").text
    records = map(json.loads, (folder / "plain/metrics.jsonl").read_text().splitlines())
    test = next(record for record in records if record["kind"] == "test")
    assert f"Cut off cut at the length limit {test['cut_off']} " in text
    assert "Unknown contains the unknown token 0 " in text


def test_examples_are_compared_word_by_word(plain):
    outputs = plain.section("outputs")
    assert [name for name in ("Random", "Best", "Worst") if f"{name} Line" in outputs.text]
    assert outputs.all("mark", class_="extra")
    assert outputs.all("mark", class_="missing")


def test_the_recipe_marks_what_differs_from_the_defaults(plain):
    marked = re.findall(
        r"<code>([\w.]+)</code>(?:(?!</tr>).)*?class=\"changed\">([^<]+)<",
        plain.section("recipe").source,
        re.DOTALL,
    )
    assert ("model.dim", "16") in marked
    assert ("segment.kind", "whitespace") in marked
    assert not {"out", "src", "data.test", "model.norm", "seed"} & {name for name, _ in marked}


def test_the_data_card_has_sizes_lengths_and_hashes(folder, plain):
    data = plain.section("data")
    assert "train 60 60 0" in data.text
    assert "Lengths in subwords" in data.text
    hashes = json.loads((folder / "plain/data_report.json").read_text())["inputs"]
    assert len(hashes) == 6
    for path, digest in hashes.items():
        assert f" ../{Path(path).name}{digest}" in data.text


def test_paths_are_relative_because_reports_are_sent_to_others(folder, plain, several_sets):
    assert str(folder) not in plain.source
    assert str(folder) not in several_sets.read_text("utf-8")
    run = Path("/home/ana/mt/runs/x")
    text = "/home/ana/mt/runs/x/best: /home/ana/mt/data/a.gl, /home/ana/mt, /srv/home/ana/mt, /etc"
    relative = "best: ../../data/a.gl, ../.., /srv/home/ana/mt, /etc"
    assert relative_paths(text, run) == relative


def test_the_head_has_the_test_scores_and_translations_come_first(folder, plain):
    head = plain.text.partition(" Scores ")[0]
    bleu = read_summary(RunFolder(folder / "plain"))["test"][0]["value"]
    assert f"Test BLEU {bleu:.2f} " in head
    titles = re.findall('<h2 id="([a-z]+)"', plain.source)
    assert " ".join(titles) == "scores outputs curves recipe data environment"
    assert "<figure" not in plain.source.partition('<h2 id="curves"')[0]


def test_a_count_of_faults_opens_its_lines(folder, plain, monkeypatch):
    def opened(page: Page) -> str:
        found = r'<details class="fault"><summary><span><b>Repetition.*?</details>'
        return re.findall(found, page.section("outputs").source, re.DOTALL)[0]

    (fault,) = (
        f for f in Outputs(read_runs([folder / "plain"]), "test").faults() if f.name[0] == "R"
    )
    (count,), (lines,) = fault.counts, fault.lines
    assert count is not None
    assert count > 2
    assert re.findall(r"Line (\d+)", opened(plain)) == [str(example.line) for example in lines]
    assert f"<b>{count}</b>" in opened(plain)
    monkeypatch.setattr("nmt.apps.report.outputs.FAULTY_LINES", 2)
    assert f"The first 2 of {count}." in opened(Page(render(read_runs([folder / "plain"]))))


def test_all_translations_are_a_list_and_a_table(folder, plain):
    runs = read_runs([folder / "plain"])
    outputs = Outputs(runs, "test")
    rows = outputs.rows()
    assert [row.number for row in rows] == list(range(1, 13))
    shown = plain.section("outputs").text.partition("All translations")[2]
    for row in rows:
        assert f" {row.number} {' '.join(row.source.split())} " in shown


def test_a_long_set_is_listed_in_part(folder, monkeypatch):
    monkeypatch.setattr("nmt.apps.report.page.LISTED", 5)
    page = Page(render(read_runs([folder / "plain"])))
    assert "List of 5 of 12 lines" in page.text


def test_the_environment_names_versions_and_hardware(folder, plain):
    text = plain.section("environment").text
    summary = read_summary(RunFolder(folder / "plain"))
    for value in (summary["processor"], summary["versions"]["torch"], "fp32", "Seed 1"):
        assert value in text
    assert re.search(r"Target tokens/s [\d,]+", text)


# ---------------------------------------------------------------- several runs


def test_several_runs_are_compared_with_the_first(both):
    scores = both.section("scores").text
    assert re.search(r"plain [\d.]+ [\d.]+ to [\d.]+ baseline", scores)
    assert re.search(r"layernorm [\d.]+ [\d.]+ to [\d.]+ [+-][\d.]+ [01]\.\d{3}", scores)
    assert "Koehn 2004" in scores
    recipe = both.section("recipe").source
    assert re.search(r'model\.norm.*?changed">scalenorm<.*?changed">layernorm<', recipe, re.DOTALL)
    assert "Largest difference" in both.section("outputs").text
    assert len(both.section("curves").all("figure")) == CURVES


def test_perplexities_of_other_vocabularies_are_noted(folder, tmp_path):
    note = (
        "The runs differ in vocabulary: they predict other tokens, so their ppl does not compare."
    )
    other = tmp_path / "other"
    shutil.copytree(folder / "plain", other)
    assert note not in render(read_runs([folder / "plain", other]))
    vocab = other / "checkpoints" / "text" / "vocab.txt"
    vocab.write_text(vocab.read_text(encoding="utf-8") + "other\t1\t1\n", encoding="utf-8")
    assert note in render(read_runs([folder / "plain", other]))


def test_skipped_updates_are_counted(folder, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(folder / "plain", other)
    assert "Skipped updates" not in render(read_runs([other]))
    summary = read_summary(RunFolder(other))
    write_summary(RunFolder(other), {**summary, "skipped_updates": 3})
    assert "Skipped updates" in render(read_runs([other]))


def test_each_test_set_has_its_sections(several_sets):
    page = Page.read(several_sets)
    assert [bool("open" in attrs) for attrs in page.all("details", class_="set")] == [True, False]
    for number, (name, lines) in enumerate((("short", 12), ("long", 30)), 1):
        outputs = page.section(f"outputs-{number}")
        assert f"Faults in {lines} lines of test.{name}" in outputs.text
        assert f"Translations: test.{name}" in outputs.text
        assert "Largest difference" in outputs.text
        assert page.all("a", href=f"#outputs-{number}")
        scores = page.section("scores").text
        assert re.search(
            rf"test\.{name} BLEU Run .*? second [\d.]+ .*? [+-][\d.]+ [01]\.\d", scores
        )


def test_a_set_that_a_run_lacks_has_no_section(several_sets, folder, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(folder / "second", run)
    (run / "test.long.hyp").unlink()
    output = tmp_path / "page.html"
    assert report.main([str(folder / "first"), str(run), "-o", str(output)]) == 0
    page = Page.read(output)
    assert not page.all("details", class_="set")
    assert "12 lines of test.short" in page.section("outputs").text


def test_runs_with_other_references_are_shown_without_a_comparison(folder, tmp_path):
    corpus = tmp_path / "old"
    shutil.copytree(STORED, corpus)
    config = corpus / "run" / "config.yaml"
    config.write_text(config.read_text().replace("/corpus", str(corpus)))
    output = tmp_path / "page.html"
    assert report.main([str(folder / "plain"), str(corpus / "run"), "-o", str(output)]) == 0
    page = Page.read(output)
    assert "Translations are not shown and scores are not compared: " in page.text
    assert "differs from" in page.text
    scores = page.section("scores").text
    assert "Test BLEU" in scores
    assert "These scores were not compared" in page.text
    assert "paired bootstrap" not in page.text


# ---------------------------------------------------------------- other states


def test_a_run_whose_corpus_and_checkpoints_are_gone(folder, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(folder / "plain", run)
    config = run / "config.yaml"
    config.write_text(config.read_text().replace(str(folder), str(tmp_path / "gone")))
    page = written(run, tmp_path / "page.html")
    assert "Translations are not shown" in page.text
    assert "no such file" in page.text
    assert "Test BLEU" in page.section("scores").text
    shutil.copyfile(folder / "plain" / "config.yaml", config)
    page = written(run, tmp_path / "page.html")
    assert "Best" in page.section("outputs").text


def test_runs_whose_names_are_not_utf8_keep_their_own_scores(folder, tmp_path):
    runs = [tmp_path / os.fsdecode(name) for name in (b"run\xfe", b"run\xff")]
    for run, name in zip(runs, ("plain", "layernorm"), strict=True):
        shutil.copytree(folder / name, run)
        (run / "test.hyp").unlink()  # without outputs, the scores are those in summary.json
        shutil.rmtree(run / "dev")
    page = written(runs[0], tmp_path / "page.html")
    assert "gl → en: run\ufffd" in page.text
    summaries = [read_summary(RunFolder(run)) for run in runs]
    summaries[1]["test"][0]["value"] = 77.0
    (runs[1] / "summary.json").write_text(json.dumps(summaries[1]))
    output = tmp_path / "both.html"
    assert report.main([*map(str, runs), "-o", str(output)]) == 0
    scores = Page.read(output).section("scores").text
    for value in (summaries[0]["test"][0]["value"], 77.0):
        assert f"run\ufffd {value:.2f} " in scores


def test_a_run_in_progress(folder, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(folder / "plain", run)
    for name in ("summary.json", "test.hyp", "test.words"):
        (run / name).unlink()
    page = written(run, tmp_path / "page.html")
    assert "Status stopped" in page.text
    assert "has no test scores" in page.text
    assert "Dev BLEU" in page.section("scores").text
    assert "Faults in 4 lines of dev" in page.section("outputs").text
    metrics = run / "metrics.jsonl"
    metrics.write_text(re.sub(r'"bleu": [\d.]+', '"bleu": 0.0', metrics.read_text()))
    scores = written(run, tmp_path / "page.html").section("scores").text
    assert re.search(r"Dev BLEU 0\.00", scores)
    metrics.unlink()
    shutil.rmtree(run / "model")
    page = written(run, tmp_path / "page.html")
    assert "Nothing is logged yet." in page.section("curves").text
    assert "No scores yet." in page.section("scores").text


def test_counts_and_perplexity_of_an_average_are_its_own(folder, tmp_path):
    """They were those of the checkpoint that it has its number from, and of the best before it."""
    run = tmp_path / "run"
    keys = ["data.test=none", "train.average=2", "schedule.lr=2e-6"]  # all BLEU scores are equal
    assert train.main([str(folder / "toy.yaml"), f"out={run}", *keys]) == 0
    assert RunFolder(run).best() == "u000012-avg2"
    metrics = run / "metrics.jsonl"
    *others, average = map(json.loads, metrics.read_text().splitlines())
    assert average["kind"] == "average"
    average.update(cut_off=3, unknown=1, ppl=12.34)
    metrics.write_text("".join(f"{json.dumps(record)}\n" for record in [*others, average]))
    page = written(run, tmp_path / "page.html")
    text = page.section("outputs").text
    assert "cut at the length limit 3 " in text
    assert "contains the unknown token 1 " in text
    assert "Dev perplexity 12.34" in page.text
    # as in an older run
    metrics.write_text("".join(f"{json.dumps(record)}\n" for record in others))
    page = written(run, tmp_path / "page.html")
    assert "cut at the length limit not recorded" in page.section("outputs").text
    assert "Dev perplexity 2" not in page.text.partition("Scores")[0]


def test_language_models_have_no_translations(tmp_path):
    text_corpus(tmp_path)
    assert train.main([str(text_recipe(tmp_path, "causal_lm"))]) == 0
    page = written(tmp_path / "causal_lm", tmp_path / "page.html")
    assert not re.search('id="outputs"', page.source)
    assert "Test perplexity per word" in page.section("scores").text
    assert "Lines Used" in page.section("data").text


# ---------------------------------------------------------------- at the end of a training


def test_a_report_that_fails_costs_nothing(folder, tmp_path, monkeypatch, capsys):
    final_reports.write(monkeypatch)
    monkeypatch.setattr("nmt.apps.report.page.render", lambda *args: 1 / 0)
    run = tmp_path / "my run"
    keys = [f"out={run}", "train.max_validations=1", "data.test=none"]
    assert train.main([str(folder / "toy.yaml"), *keys]) == 0
    err = capsys.readouterr().err
    assert "warning: the report was not written: ZeroDivisionError" in err
    assert f"  -> to write it, run nmt-report '{run}' --force\n" in err
    assert read_summary(RunFolder(run))["status"] == "finished"
    monkeypatch.undo()
    assert report.main([str(run)]) == 0  # this run has no test set
    page = Page.read(run / "report.html")
    assert "lines of dev" in page.section("outputs").text


def test_a_run_without_a_validation_ends_with_a_report(folder, tmp_path, monkeypatch):
    """Its last weights are the model."""
    final_reports.write(monkeypatch)
    run = tmp_path / "run"
    assert train.main([str(folder / "toy.yaml"), f"out={run}", "time_limit=1e-9"]) == 0
    assert "lines of test" in Page.read(run / "report.html").section("outputs").text


def test_a_diverged_training_ends_with_a_report(folder, tmp_path, monkeypatch):
    final_reports.write(monkeypatch)
    keys = ["schedule.lr=1e30", "train.max_bad_updates=1", f"out={tmp_path / 'run'}"]
    assert train.main([str(folder / "toy.yaml"), *keys]) == 3
    page = Page.read(tmp_path / "run" / "report.html")
    assert "Status diverged" in page.text


# ---------------------------------------------------------------- the command


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["TOY"], "nmt-sweep"),
        (["NONE"], "no such run folder"),
        (["FOLDER"], "not a run folder"),
        (["RUN", "RUN"], "given twice"),
    ],
)
def test_wrong_arguments(folder, capsys, argv, message):
    paths = {"TOY": "toy.yaml", "NONE": "none", "FOLDER": "", "RUN": "plain"}
    names = {name: folder / path for name, path in paths.items()}
    assert report.main([str(names.get(word, word)) for word in argv]) == 2
    assert message in capsys.readouterr().err


def test_a_further_reference_counts_in_every_score(folder):
    """The output itself is a reference, so each line that has an output is perfect."""
    outputs = Outputs(read_runs([folder / "plain"]), "test")
    hyps = outputs.texts[0]
    outputs.systems = replace(outputs.systems, other_refs=[hyps])
    perfect = [score for score, hyp in zip(outputs.scores[0], hyps, strict=True) if hyp]
    assert perfect == pytest.approx([100] * len(perfect))
    assert perfect


def test_a_training_from_python_does_not_load_the_command_line():
    """It would change the signals of the program that trains."""
    code = "import sys, nmt.apps.report.final; sys.exit('nmt.cli' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
