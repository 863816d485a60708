"""nmt-sweep with runs that end at once: what it starts, repeats, stops, prints and writes."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from nmt.apps.sweep import pool
from nmt.apps.sweep.plan import PlannedRun
from nmt.apps.sweep.pool import Display
from nmt.cli import sweep
from nmt.runtime.signals import PARENT
from nmt.scoring.metrics import score
from nmt.store.lock import FolderLock
from tests.apps.sweep import forked
from tests.text_toy import text_corpus, text_recipe
from tests.toy import toy_corpus, toy_recipe

pytestmark = pytest.mark.slow

FAKE = Path(__file__).with_name("fake_train.py")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory: toy.yaml and its corpus; a stand-in replaces nmt-train."""
    toy_corpus(tmp_path, {"train": 10, "dev": 4, "test": 12})
    toy_recipe(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pool, "TRAIN", (sys.executable, str(FAKE)))
    monkeypatch.setattr(pool, "subprocess", forked)
    monkeypatch.setattr(pool, "POLL", 0.02)
    monkeypatch.setenv("PYTHONPATH", str(FAKE.parents[3]))
    return tmp_path


def variants(*names: str, **keys: object) -> str:
    """Write v.yaml with variants that differ in their number of layers."""
    listed = {name: {"about": name, "model": {"dec_layers": i + 1}} for i, name in enumerate(names)}
    content = {"base": "toy.yaml", "variants": listed, **keys}
    Path("v.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    return "v.yaml"


def started(err: str) -> list[str]:
    return [line.partition(":")[0] for line in err.splitlines() if line.endswith(": started")]


def result() -> dict[str, list[dict[str, object]]]:
    return json.loads(Path("runs/v/results.json").read_text())


@pytest.fixture
def stop_when() -> Iterator:
    """Yield a function that sends this process a signal as soon as a file exists."""
    threads = []

    def watch(file: str, *numbers: int) -> None:
        def wait() -> None:
            while not Path(file).exists():
                time.sleep(0.02)
            for number in numbers:
                os.kill(os.getpid(), number)
                time.sleep(0.3)

        threads.append(threading.Thread(target=wait, daemon=True))
        threads[-1].start()

    yield watch
    for thread in threads:
        thread.join(10)


def test_each_variant_is_trained_with_each_seed_and_never_again(folder, capsys):
    file = variants("a", "b", seeds=[1, 2])
    assert sweep.main([file]) == 0
    out, err = capsys.readouterr()
    assert started(err) == ["a.seed-1", "a.seed-2", "b.seed-1", "b.seed-2"]
    assert "4 finished of 4 runs\n" in err
    assert "nmt-report runs/v/a.seed-1 runs/v/b.seed-1 -o runs/v/report.html" in err
    lines = [line.split() for line in out.splitlines()]
    # dev of a seed is 10 + seed, test twice that; the standard deviations are sqrt(1/2), sqrt(2)
    row = ["a", "2", "11.50", "±", "0.71", "8.00", "±", "0.00", "23.00", "±", "1.41"]
    assert row in [line[:11] for line in lines]
    assert sweep.main([file, "--seeds", "2", "--seeds", "3"]) == 0
    assert started(capsys.readouterr().err) == ["a.seed-3", "b.seed-3"]
    assert sweep.main([file, "--seeds", "2", "3"]) == 0
    assert started(capsys.readouterr().err) == []


def test_the_best_seed_is_that_of_dev_and_every_format_has_the_numbers(folder, capsys):
    assert sweep.main([variants("a", "b", seeds=[1, 3]), "--format", "markdown"]) == 0
    assert "| a | 2 | 12.00 ± 1.41 |" in capsys.readouterr().out
    deviation = pytest.approx(2**1.5)
    best = {"count": 2, "mean": 24.0, "deviation": deviation, "best": 26}
    assert [system["test"] for system in result()["systems"]] == [best, best]
    latex = Path("runs/v/results.tex").read_text()
    assert r"a & 2 & 12.00 $\pm$ 1.41 &" in latex
    assert latex.count(r"\\") == 3
    rows = list(csv.DictReader(Path("runs/v/results.csv").read_text().splitlines()))
    assert [(row["variant"], float(row["test_mean"])) for row in rows] == [("a", 24), ("b", 24)]
    for ending in ("txt", "md", "tex", "csv", "json"):
        assert Path(f"runs/v/results.{ending}").stat().st_size > 0


def test_a_difference_is_that_of_the_mean_scores_of_the_outputs(folder, capsys):
    assert sweep.main([variants("a", "b", seeds=[1, 2])]) == 0
    refs = Path("test.en").read_text().splitlines()

    def mean(name: str) -> float:
        outputs = [Path(f"runs/v/{name}.seed-{seed}/test.hyp") for seed in (1, 2)]
        lines = [file.read_text().splitlines() for file in outputs]
        return sum(score(hyps, refs, ["bleu"], "en")[0].value for hyps in lines) / 2

    difference = result()["systems"][1]["to_baseline"]
    assert (difference["versus"], difference["seeds"]) == ("a", 2)
    assert difference["value"] == pytest.approx(mean("b") - mean("a"))
    assert difference["value"] > 1
    assert 0 < difference["bootstrap"] <= difference["two_sided"] <= 1
    assert 0 < difference["randomization"] <= 1


def test_every_note_is_one_line(folder, capsys):
    """As a comment of LaTeX and as an item of a Markdown list."""
    file = variants("a", "b")
    assert sweep.main([file]) == 0
    Path("runs/v/a.seed-1/test.hyp").unlink()
    assert sweep.main([file, "--results"]) == 0
    note = (
        "b is not compared with a: runs/v/a.seed-1/test.hyp: no test hypotheses of the best "
        "checkpoint\n"
    )
    assert Path("runs/v/results.tex").read_text().startswith(f"% {note}% needs")
    assert Path("runs/v/results.md").read_text().endswith(f"- {note}")


def test_failed_and_diverged_runs_have_reasons_and_the_others_continue(folder, capsys):
    file = variants("fails", "diverges", "killed", "good", baseline="good")
    assert sweep.main([file]) == 3
    out, err = capsys.readouterr()
    assert len(started(err)) == 4
    assert "3 runs ended without a result: fails.seed-1, diverges.seed-1, killed.seed-1" in err
    reasons = [line for line in out.splitlines() if line.startswith("runs/v/")]
    assert reasons == [
        "runs/v/fails.seed-1: failed: toy.yaml:3: wrong -> do it right (exit code 2)",
        "runs/v/diverges.seed-1: diverged: the loss exploded",
        "runs/v/killed.seed-1: failed: killed by SIGKILL, perhaps because the memory was full; "
        "use fewer --jobs",
    ]
    states = {s["variant"]: s["runs"][0]["status"] for s in result()["systems"]}
    assert states == {
        "fails": "failed", "diverges": "diverged", "killed": "failed", "good": "finished"
    }  # fmt: skip
    # what diverged would diverge again; what failed may have been repaired
    assert sweep.main([file]) == 3
    assert started(capsys.readouterr().err) == ["fails.seed-1", "killed.seed-1"]


def test_runs_of_another_recipe_are_no_results(folder, capsys):
    assert sweep.main([variants("a", "b"), "--hours", "1"]) == 0
    toy_corpus(folder / "other", {"train": 10, "dev": 4, "test": 12})

    def results(*options: str) -> tuple[set[object], list[str]]:
        capsys.readouterr()
        assert sweep.main(["v.yaml", "--results", *options]) == 0
        states = {system["runs"][0]["status"] for system in result()["systems"]}
        lines = capsys.readouterr().out.splitlines()
        return states, [line for line in lines if line.startswith("runs/v/a.seed-1: ")]

    assert results("device=cpu") == ({"finished"}, [])
    moved = f"data.dev: {folder}/dev -> {folder}/other/dev"
    assert results("data.dev=other/dev") == (
        {"finished"},
        [f"runs/v/a.seed-1: finished: trained with other paths: {moved}"],
    )
    other = "runs/v/a.seed-1: changed: trained with another recipe: "
    longer = "train.max_validations: 3 -> 9"
    assert results("train.max_validations=9") == ({"changed"}, [other + longer])
    variants("b", "a")
    assert results() == ({"changed"}, [f"{other}model.dec_layers: 1 -> 2"])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stopped_sweep_saves_its_runs_and_continues(folder, capsys, stop_when, number, code):
    file = variants("good", "slow", "later")
    stop_when("runs/v/slow.seed-1/waiting", number)
    assert sweep.main([file]) == code
    err = capsys.readouterr().err
    assert started(err) == ["good.seed-1", "slow.seed-1"]
    assert "slow.seed-1: stopped" in err
    assert "to continue, run the same command again" in err
    assert Path("runs/v/slow.seed-1/saved").exists()
    assert sweep.main([file, "--results"]) == 0
    assert "0 of 1, stopped" in capsys.readouterr().out
    assert sweep.main([file]) == 0
    assert started(capsys.readouterr().err) == ["slow.seed-1", "later.seed-1"]


@pytest.mark.usefixtures("jumping_clock")
def test_a_wall_clock_that_jumps_changes_no_time(folder, capsys):
    assert sweep.main([variants("a", "b", "c")]) == 0
    err = capsys.readouterr().err
    assert len(re.findall(r": finished: .* 0:\d\d$", err, re.MULTILINE)) == 3
    assert re.findall(r"^(\d) finished of 3 runs; about 0:\d\d left$", err, re.MULTILINE) == [
        "1",
        "2",
    ]


def test_a_second_interruption_kills_the_runs(folder, capsys, stop_when, monkeypatch):
    monkeypatch.setattr(forked.Popen, "terminate", lambda self: None)
    stop_when("runs/v/slow.seed-1/waiting", signal.SIGINT, signal.SIGINT)
    assert sweep.main([variants("slow")]) == 130
    assert not Path("runs/v/slow.seed-1/saved").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="a mechanism of Linux")
def test_runs_of_a_killed_sweep_save_their_state_and_end(folder):
    command = (
        "import sys\nfrom nmt.cli import sweep\nfrom nmt.apps.sweep import pool\n"
        f"pool.TRAIN = (sys.executable, {str(FAKE)!r})\nsweep.main({[variants('slow')]!r})\n"
    )
    process = subprocess.Popen([sys.executable, "-c", command], stderr=subprocess.DEVNULL)
    run = Path("runs/v/slow.seed-1")
    wait_for(run / "waiting")
    process.kill()
    process.wait()
    wait_for(run / "saved")


@pytest.fixture
def when_said(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], None]], None]:
    """Return a function that registers what to do when the sweep prints a line with some words."""

    def register(words: str, act: Callable[[], None]) -> None:
        say = Display.say

        def say_and_act(self: Display, line: str) -> None:
            say(self, line)
            if words in line:
                act()

        monkeypatch.setattr(Display, "say", say_and_act)

    return register


def test_a_run_whose_earlier_process_still_saves_is_waited_for(
    folder, capsys, monkeypatch, when_said
):
    """nmt-train would end with "in use"."""
    file, run = variants("good"), Path("runs/v/good.seed-1")
    run.mkdir(parents=True)
    lock = FolderLock(run)
    lock.acquire()
    start = pool.Pool._start

    def start_unlocked(self: pool.Pool, planned: PlannedRun) -> None:
        assert not FolderLock(run).in_use()
        start(self, planned)

    monkeypatch.setattr(pool.Pool, "_start", start_unlocked)
    when_said("waiting", lambda: threading.Timer(0.1, lock.release).start())
    assert sweep.main([file]) == 0
    assert started(capsys.readouterr().err) == ["good.seed-1"]


def test_the_end_of_a_run_is_seen_while_another_one_is_waited_for(
    folder, capsys, monkeypatch, when_said
):
    monkeypatch.setattr(pool, "SAVING", 10.0)
    file, run = variants("a", "b"), Path("runs/v/b.seed-1")
    run.mkdir(parents=True)
    lock = FolderLock(run)
    lock.acquire()
    when_said("a.seed-1: finished", lock.release)
    begun = time.monotonic()
    assert sweep.main([file, "--jobs", "2"]) == 0
    assert time.monotonic() - begun < 10
    assert started(capsys.readouterr().err) == ["a.seed-1", "b.seed-1"]


def test_an_interruption_ends_the_waiting(folder, capsys, when_said):
    run = Path("runs/v/good.seed-1")
    run.mkdir(parents=True)
    when_said("waiting", lambda: os.kill(os.getpid(), signal.SIGINT))
    with FolderLock(run):
        assert sweep.main([variants("good")]) == 130
    assert started(capsys.readouterr().err) == []


@pytest.mark.skipif(sys.platform != "linux", reason="a mechanism of Linux")
def test_nmt_train_ends_if_its_parent_has_ended():
    command = [sys.executable, "-m", "nmt.cli.train", "--help"]
    environment = {**os.environ, PARENT: "1"}  # not the parent any more
    ended = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert (ended.returncode, ended.stdout) == (-signal.SIGTERM, b"")


def wait_for(file: Path) -> None:
    deadline = time.monotonic() + 30
    while not file.exists():
        assert time.monotonic() < deadline, f"{file} was not written"
        time.sleep(0.02)


def test_jobs_share_threads_and_devices(folder, capsys, monkeypatch):
    monkeypatch.setattr("nmt.runtime.cpus.num_threads", lambda: 5)
    file = variants("a", "b", "c")
    assert sweep.main([file, "--devices", "4", "6"]) == 0
    places = set()
    for name in "abc":
        environment = json.loads(Path(f"runs/v/{name}.seed-1/environment.json").read_text())
        places.add((environment["CUDA_VISIBLE_DEVICES"], environment["OMP_NUM_THREADS"]))
    assert places == {("4", "2"), ("6", "2")}


def test_corpora_are_columns_of_the_first_table(folder, capsys):
    toy_corpus(folder / "other", {"train": 10, "dev": 4, "test": 9})
    data = {split: f"other/{split}" for split in ("train", "dev", "test")}
    file = variants("a", "b", corpora={"digits": {}, "other": {"data": data}})
    assert sweep.main([file, "--jobs", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == ["variant", "digits", "other", "mean", "difference"]
    assert lines[4].split()[:3] == ["b", "22.00", "22.00"]
    assert Path("runs/v/other.b.seed-1/summary.json").exists()


def test_perplexities_have_no_bootstrap_and_the_lowest_is_best(folder, capsys):
    toy_recipe(folder, {"score": {"metrics": ["bleu"], "select_by": "ppl"}})
    assert sweep.main([variants("a", "b", seeds=[1, 2])]) == 0
    out = capsys.readouterr().out
    assert "lower is better" in out
    assert "bootstrap" not in out
    a, b = result()["systems"]
    assert a["dev"]["best"] == 11  # of seed 1; seed 2 has a perplexity of 12
    assert b["to_baseline"]["bootstrap"] is None


DOES_NOT_COMPARE = "they predict other tokens, so their ppl does not compare"


def test_perplexities_of_words_compare_segmentations_and_others_do_not(folder, capsys):
    text_corpus(folder)
    text_recipe(folder, "causal_lm", {"segment": {"min_count": 1}})
    Path("causal_lm.yaml").rename("toy.yaml")
    assert sweep.main([variants("a", "b"), "--metric", "word_ppl"]) == 0
    out = capsys.readouterr().out
    assert "difference to a on test; lower is better" in out
    assert "does not compare" not in out
    a, b = result()["systems"]
    assert (a["test"]["mean"], b["to_baseline"]["value"]) == (70, 70)
    assert b["to_baseline"]["bootstrap"] is None
    pieces = {n: {"about": "of words", "segment": {"min_count": i}} for i, n in enumerate("ab", 1)}
    assert sweep.main([variants(variants=pieces), "--output", "other"]) == 0
    note = f"the variants differ in segment: {DOES_NOT_COMPARE}; use --metric word_ppl\n"
    assert note in capsys.readouterr().out


def test_perplexities_next_to_bleu_of_other_pieces_do_not_compare_either(folder, capsys):
    different = {"a": {"about": "all"}, "b": {"about": "two", "segment": {"min_count": 2}}}
    assert sweep.main([variants(variants=different)]) == 0
    assert f"differ in segment: {DOES_NOT_COMPARE}\n" in capsys.readouterr().out
    assert DOES_NOT_COMPARE in Path("runs/v/results.tex").read_text()
    # no perplexity is shown
    assert sweep.main(["v.yaml", "--results", "--output", "empty"]) == 0
    assert "does not compare" not in capsys.readouterr().out


def test_a_vocabulary_of_other_training_text_is_noticed(folder, capsys):
    assert sweep.main([variants("a", "b")]) == 0
    for name, types in (("a", ["1", "2"]), ("b", ["1", "2", " <bt>"])):
        lines = "".join(f"{piece}\t3\t3\n" for piece in types)
        text = Path(f"runs/v/{name}.seed-1/checkpoints/text")
        text.mkdir()
        (text / "vocab.txt").write_text(lines)
    capsys.readouterr()
    assert sweep.main(["v.yaml", "--results"]) == 0
    assert "does not compare" not in capsys.readouterr().out
    (text / "vocab.txt").write_text("1\t3\t3\n3\t3\t3\n")
    assert sweep.main(["v.yaml", "--results"]) == 0
    assert "the variants differ in vocabulary: they predict other tokens" in capsys.readouterr().out


def test_a_printed_score_stands_next_to_the_same_metric(folder, capsys):
    paper = {"about": "lower rate", "paper": {"test": 18.47}, "schedule": {"lr": 0.001}}
    file = variants(variants={"a": {"about": "as the recipe"}, "b": paper})
    assert sweep.main([file]) == 0
    assert "18.47" not in capsys.readouterr().out  # papers print tokenized BLEU
    assert sweep.main([file, "--results", "--metric", "tokenized_bleu"]) == 0
    assert "18.47" in capsys.readouterr().out


def test_a_dry_run_prints_commands_that_train_the_same(folder, capsys):
    file = variants("a", "b")
    options = [file, "model.dim=32", "--hours", "0.5", "--dry-run"]
    assert sweep.main(options) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        "to train  nmt-train v.yaml --variant a model.dim=32 time_limit=0.5 seed=1 "
        "out=runs/v/a.seed-1 --resume"
    )
    assert not Path("runs").exists()
    assert sweep.main(options[:-1]) == 0
    capsys.readouterr()
    assert sweep.main(options) == 0
    listed = [shlex.split(line) for line in capsys.readouterr().out.splitlines()]
    assert [words[0] for words in listed] == ["finished", "finished"]


def test_a_dry_run_lists_the_runs_that_nmt_train_refuses_to_continue(folder, capsys):
    assert sweep.main([variants("a", "b"), "--seeds", "1"]) == 0

    def listed(*options: str) -> list[str]:
        capsys.readouterr()
        assert sweep.main(["v.yaml", "--seeds", "1", "--dry-run", *options]) == 0
        return [
            line.partition("nmt-train")[0].strip() for line in capsys.readouterr().out.splitlines()
        ]

    assert listed() == ["finished", "finished"]
    assert listed("train.max_validations=9") == ["to train", "to train"]  # it continues these
    for options in ([], ["train.max_validations=9"]):
        assert listed("model.dropout=0.5", *options) == ["changed", "changed"]
    variants("c", "b", "a")
    sweep.main(["v.yaml", "--seeds", "1", "--dry-run"])
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()] == ["to", "finished", "changed"]
    assert "runs/v/a.seed-1: trained with another recipe: model.dec_layers: 1 -> 3" in err
    assert "undo the change, delete its folder" in err
    shutil.rmtree("runs/v/a.seed-1/checkpoints")  # it has nothing to continue from
    assert listed() == ["to train", "finished", "to train"]


OUT_IS_A_FILE = "/file: is a file, so the folder of the sweep cannot be here"
ERRORS = {
    ("--output", "file", "--dry-run"): OUT_IS_A_FILE,
    ("--output", "file/sweep", "--dry-run"): OUT_IS_A_FILE,
    ("--seeds", "1", "1"): "--seeds: 1 is listed twice",
    ("time_limit=1", "--hours", "1"): "time_limit: the budget of the sweep sets time_limit already",
    ("--metric", "chrf"): "--metric: the runs of a do not measure chrf; they measure ppl, bleu",
    ("--metric", "blue"): "--metric: the runs of a do not measure blue; they measure ppl, bleu",
    ("model.heads=3",): "model.heads (3) must divide model.dim (16)",
}


@pytest.mark.parametrize("options", ERRORS, ids=list(ERRORS.values()))
def test_wrong_arguments_are_errors_before_anything_is_trained(folder, capsys, options):
    Path("file").write_text("text")
    assert sweep.main([variants("a", "b"), *options]) == 2
    assert ERRORS[options] in capsys.readouterr().err
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("--jobs", "0", "0 is not an integer of at least 1"),
        ("--jobs", "two", "two is not an integer of at least 1"),
    ],
)
def test_numbers_out_of_range(capsys, option, value, allowed):
    with pytest.raises(SystemExit):
        sweep.main(["v.yaml", option, value])
    assert f"argument {option}: {allowed}" in capsys.readouterr().err


def test_two_sweeps_do_not_share_a_folder(folder, capsys):
    Path("runs/v").mkdir(parents=True)
    with FolderLock(Path("runs/v")):
        assert sweep.main([variants("a")]) == 4
    assert "in use by pid" in capsys.readouterr().err
