"""nmt-suggest, and the advice on models that are too large."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from nmt.apps.suggest import choices
from nmt.apps.suggest.speed import Setting
from nmt.apps.suggest.text import Expectation
from nmt.cli import suggest, train
from nmt.config import sizes
from nmt.config.load import load_recipe
from nmt.data.bitext import read_pairs
from tests.toy import toy_corpus, toy_recipe


@pytest.mark.slow
def test_the_recipe_passes_the_dry_run_and_trains(corpus, tmp_path, capsys, monkeypatch):
    small = dataclasses.replace(sizes.CPU[0], dim=16, passes=8)
    monkeypatch.setattr(choices, "CPU", (small, *sizes.CPU[1:]))
    assert suggest.main([corpus, "-o", "gl-en.yaml"]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(
        "translating gl to en; for the other direction, add --src-lang en --tgt-lang gl\n"
    )
    assert "target tokens/s" in captured.err
    assert re.search(
        r"wrote gl-en.yaml; next: (OMP_NUM_THREADS=\d+ )?nmt-train gl-en.yaml\n$", captured.err
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "gl-en.yaml"]
    assert train.main(["gl-en.yaml", "--dry-run"]) == 0
    assert train.main(["gl-en.yaml"]) == 0
    summary = json.loads(Path("runs/gl-en/summary.json").read_text())
    assert summary["status"] == "finished"
    records = list(map(json.loads, Path("runs/gl-en/metrics.jsonl").read_text().splitlines()))
    recipe = load_recipe("gl-en.yaml")
    validations = [record["update"] for record in records if record["kind"] == "dev"]
    assert len(validations) == 8
    assert validations[-1] == recipe.schedule.total_updates


@pytest.mark.slow
def test_hours_make_the_training_longer(corpus, capsys):
    assert suggest.main([corpus, "-o", "short.yaml"]) == 0
    assert suggest.main([corpus, "--hours", "100", "-o", "long.yaml"]) == 0
    short, long = load_recipe("short.yaml"), load_recipe("long.yaml")
    # one batch has all 40 pairs, so a pass is one update
    passes = sizes.most_passes(sizes.CPU[0])
    assert long.schedule.total_updates == pytest.approx(passes, rel=0.05)  # 8 validations
    assert short.schedule.total_updates == sizes.CPU[0].passes
    assert long.model.dropout > short.model.dropout


@pytest.mark.slow
def test_few_hours_get_a_smaller_model_and_the_command_has_the_fastest_threads(
    tmp_path, monkeypatch, capsys
):
    toy_corpus(tmp_path / "corpus", {"train": 2000, "dev": 20, "test": 20})
    toy_corpus(tmp_path / "es-as-gl", {"train": 8000})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("nmt.apps.suggest.choices.size_for", lambda words, sizes: sizes[2])
    speeds = {Setting("fp32", 2): 527.0, Setting("fp32", 1): 1169.0}
    measured, reads = [], []

    def count(files):
        reads.append(files)
        return read_pairs(files)

    def measure(recipe, *arguments):
        measured.append(recipe.model.dim)
        return Expectation("CPU", 7_480_020, speeds, threads=2)

    monkeypatch.setattr(suggest, "_measure", measure)
    monkeypatch.setattr(choices, "read_pairs", count)
    for hours, dims in ((0.02, [256, 192, 128]), (100, [256])):
        measured.clear()
        reads.clear()
        command = ["corpus/train", "--hours", str(hours), "-o", f"{hours}.yaml"]
        assert suggest.main(command) == 0
        assert measured == dims
        recipe = load_recipe(f"{hours}.yaml")
        assert recipe.model.dim == dims[-1]
        own, related = recipe.data.train
        assert (own.weight, Path(related.path).parts[-2:]) == (2, ("es-as-gl", "train"))
        assert len(reads) == 1  # a neighbor's corpus is large
        command = f"next: OMP_NUM_THREADS=1 nmt-train {hours}.yaml\n"
        assert capsys.readouterr().err.endswith(command)
    assert "fp32, 2 threads: 527; fp32, 1 thread: 1,169" in Path("100.yaml").read_text()
    busy = replace(measure(recipe), busy="This machine is busy.")
    monkeypatch.setattr(suggest, "_measure", lambda *arguments: busy)
    assert suggest.main(["corpus/train", "--hours", "0.02", "-o", "busy.yaml"]) == 0
    assert load_recipe("busy.yaml").model.dim == 256  # not smaller by a disturbed measurement
    assert "This machine is busy." in Path("busy.yaml").read_text()


@pytest.mark.slow
def test_too_few_hours_are_a_note_on_the_terminal(corpus, capsys):
    assert suggest.main([corpus, "--hours", "1e-9", "-o", "gl-en.yaml"]) == 0
    assert "note: one pass over the data takes" in capsys.readouterr().err


@pytest.mark.slow
def test_the_recipe_goes_to_standard_output(corpus, capsys):
    assert suggest.main([corpus, "--src-lang", "en", "--tgt-lang", "gl"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("# en-gl: a recipe that nmt-suggest wrote")
    for part in (
        "Expected time on this machine",
        "Nearest measured runs, by target words",
        "Advice",
        "40 pairs",
        'T below: "Transformers without Tears"',
    ):
        assert part in captured.out
    (precision,) = re.findall(r"^precision: (\w+)", captured.out, re.M)
    assert precision in ("fp32", "bf16")


@pytest.mark.slow
def test_tokenized_text_gets_bpe_and_passes_the_dry_run(corpus):
    for path in Path("corpus").iterdir():
        path.write_text(path.read_text().replace("\n", " .\n"))
    assert suggest.main([corpus, "-o", "gl-en.yaml"]) == 0
    assert train.main(["gl-en.yaml", "--dry-run"]) == 0
    recipe = load_recipe("gl-en.yaml")
    assert (recipe.data.tokenized, recipe.segment.kind) == (True, "fastbpe")
    assert "like tokenized text" not in Path("gl-en.yaml").read_text()


@pytest.mark.slow
def test_an_existing_file_is_not_overwritten(corpus, capsys):
    Path("mine.yaml").write_text("src: gl\n")
    assert suggest.main([corpus, "-o", "mine.yaml"]) == 2
    assert capsys.readouterr().err == (
        "nmt-suggest: mine.yaml: exists already\n"
        "  -> choose another path, or add --force to replace it\n"
    )
    assert Path("mine.yaml").read_text() == "src: gl\n"
    assert suggest.main([corpus, "-o", "mine.yaml", "--force"]) == 0
    assert load_recipe("mine.yaml").tgt == "en"
    assert suggest.main([corpus, "-o", f"{corpus}.gl", "--force"]) == 2
    assert "is also an input" in capsys.readouterr().err


@pytest.mark.slow
def test_a_recipe_in_a_linked_folder_finds_the_corpus(corpus, tmp_path):
    (tmp_path / "far" / "away").mkdir(parents=True)
    Path("linked").symlink_to("far/away")
    assert suggest.main([corpus, "-o", "linked/gl-en.yaml"]) == 0
    assert load_recipe("linked/gl-en.yaml").data.train[0].path == str(tmp_path / corpus)


@pytest.mark.parametrize("hours", ["0", "-1", "inf", "nan", "two"])
def test_hours_that_are_no_time(hours, capsys):
    with pytest.raises(SystemExit) as ended:
        suggest.main(["corpus/train", "--hours", hours])
    assert ended.value.code == 2
    assert f"argument --hours: {hours} is not a number above 0" in capsys.readouterr().err


ADVICE = "advice: the model is very large for this corpus"


def test_a_model_that_is_far_too_large_gets_advice_unless_it_has_a_parent(tmp_path, capsys):
    toy_corpus(tmp_path)
    recipe = str(toy_recipe(tmp_path, {"train": {"validate_every": 1, "max_validations": 1}}))
    parent = f"out={tmp_path / 'parent'}"
    for options, advised in (
        (["--dry-run"], False),
        (["model.dim=256", parent], True),
        (["model.dim=256", f"init.from={tmp_path / 'parent'}", "--dry-run"], False),
    ):
        assert train.main([recipe, *options]) == 0
        assert (ADVICE in capsys.readouterr().err) == advised
