"""Train on a corpus of digits: what one update does, and what ends a run."""

from __future__ import annotations

import json
import math
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from nmt.cli.train import main
from nmt.data.batches import PlannedBatch, UpdateBatches, collate
from nmt.decoding.translator import Translator
from nmt.errors import Diverged
from nmt.runtime import memory
from nmt.scoring.results import Score
from nmt.store import checkpoint as checkpoint_module
from nmt.store.checkpoint import (
    Checkpoint,
    average_checkpoints,
    load_checkpoint,
    read_checkpoint,
)
from nmt.store.folder import RunFolder
from nmt.store.manifest import IntervalState
from nmt.store.model import Model
from nmt.store.results import format_number, read_metrics, read_result, read_summary
from nmt.store.tensors import read_weights
from nmt.training import progress as progress_module
from nmt.training import trainer as trainer_module
from nmt.training.ending import finish, source_commit
from nmt.training.evaluation import Evaluation, Stopped, mean_of, score_line
from nmt.training.progress import LogInterval, Validation
from nmt.training.stopping import validations_without_gain
from nmt.training.trainer import Trainer
from tests.training.helpers import (
    NO_DROPOUT,
    CountReads,
    equal,
    gradients,
    moments,
    norm,
    records,
    script_values,
    spoil_gradients,
    weights,
)


def first_update(trainer: Trainer) -> None:
    """Run the first update."""
    trainer.update(next(trainer.updates()))


def script_scores(trainer: Trainer, scores: list[float]) -> None:
    script_values(trainer, *({"bleu": score} for score in scores))


@pytest.mark.parametrize("kind", ["adam", "radam", "muon"])
def test_non_finite_gradients_skip_the_update(start, kind):
    trainer = start(f"optim.kind={kind}")
    spoil_gradients(trainer, {2, 3})
    updates = trainer.updates()
    trainer.update(next(updates))
    kept_weights, kept_moments = weights(trainer), moments(trainer)
    for number in (1, 2):
        trainer.update(next(updates))
        assert int(trainer.bad_updates) == number
        assert equal(weights(trainer), kept_weights)
        assert equal(moments(trainer), kept_moments)
    trainer.update(next(updates))
    assert int(trainer.bad_updates) == 0
    assert trainer.state.update == 4
    assert not equal(weights(trainer), kept_weights)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_too_many_non_finite_updates_in_a_row_end_the_run(start, precision):
    trainer = start("train.max_bad_updates=3", "train.validate_every=2", "train.max_validations=9")
    trainer.precision = precision  # for the message; the model computes in fp32, which is faster
    # two in a row are allowed; three in a row return to update 4
    spoil_gradients(trainer, {2, 4, 5, 6, 7})
    with pytest.raises(Diverged, match="not finite for 3 updates in a row, up to update 7") as e:
        trainer.run()
    assert "lower learning rate" in str(e.value)
    assert ("precision=fp32 --resume" in str(e.value)) == (precision == "bf16")
    assert load_checkpoint(trainer.run_folder).state.update == 6


def test_bad_updates_are_stored_in_the_checkpoint(start):
    trainer = start("train.max_bad_updates=3", "train.validate_every=2", stop_after=4)
    spoil_gradients(trainer, {3, 4, 5})
    trainer.run()
    assert load_checkpoint(trainer.run_folder).state.bad_updates == 2


def test_a_failed_save_is_not_a_divergence(recipe, tmp_path, monkeypatch, capsys):
    nan = {"embed.weight/exp_avg": torch.tensor(math.nan)}
    monkeypatch.setattr(trainer_module, "optimizer_tensors", lambda optimizer, model: nan)
    assert main([str(recipe), f"out={tmp_path / 'run'}", "train.validate_every=1"]) == 3
    assert "NaN or infinity in embed.weight/exp_avg" in capsys.readouterr().err
    assert read_result(tmp_path / "run").status == "stopped"


def test_a_high_loss_does_not_end_an_lr_ramp(start):
    trainer = start("schedule.kind=lr_ramp", "train.log_every=1")
    trainer.interval.lower_of_two = 1e9
    trainer._check_divergence()


def interval(trainer: Trainer, *losses: float) -> LogInterval:
    """Return the interval after log lines with these losses, resumed after each line."""
    trainer.state.interval = IntervalState()
    for loss in losses:
        found = LogInterval(trainer.state)
        trainer.state.update += 1
        found.add({"smoothed": torch.tensor(loss), "nll": torch.tensor(loss)}, 1)
        found.close(1.0, torch.tensor(1.0))
        seen = found.diverged(20)
        found.store()
    found.seen = seen  # type: ignore[attr-defined]
    return found


def test_a_loss_of_zero_is_a_log_line_like_any_other(start):
    trainer = start()
    interval(trainer, 1.0, 0.0, 0.0)
    assert trainer.state.interval.loss_ratio == 0


def test_divergence_needs_two_lines_with_a_high_loss(start):
    trainer = start()
    high = 101 * math.log(20)
    assert not interval(trainer, high).seen
    assert not interval(trainer, 3.0, high, 3.0, high, 0.9 * high).seen
    assert interval(trainer, high, 2 * high).seen
    assert interval(trainer, 3.0, high, high).seen


def test_printed_numbers_stay_short():
    assert [format_number(x) for x in (1.5, 999_999.0, 1e6, -2e8)] == [
        "1.50",
        "999999.00",
        "1.0e+06",
        "-2.0e+08",
    ]
    assert format_number(2.34567, 3) == "2.346"
    assert format_number(math.exp(700)) == "1.0e+304"


def test_the_line_of_several_sets_has_the_mean_perplexity():
    """By ``select_by: ppl`` it selects the best checkpoint."""

    def evaluation(ppl: float) -> Evaluation:
        values = {"bleu": 20.0, "ppl": ppl}
        return Evaluation([Score("bleu", 20.0, "")], values, f"ppl {ppl:g}", {"ppl": 1 / ppl})

    mean = mean_of({"a": evaluation(10.0), "b": evaluation(20.0)}, ["a", "b"])
    assert mean.line == "bleu 20.00  ppl 15.00  [a: ppl 10]  [b: ppl 20]"
    assert mean.values == {"bleu": 20, "ppl": 15, "a/bleu": 20, "a/ppl": 10} | {
        "b/bleu": 20, "b/ppl": 20
    }  # fmt: skip
    assert mean.bars == {"ppl": pytest.approx(0.075)}
    of_a = mean_of({"a": evaluation(10.0), "b": evaluation(20.0)}, ["a"])  # b: select: false
    assert (of_a.values["ppl"], of_a.values["b/ppl"]) == (10, 20)
    assert of_a.line == "bleu 20.00  ppl 10.00  [a: ppl 10]  [b: ppl 20]"


def test_perplexities_of_a_hundred_digits_are_short():
    one = Evaluation([Score("ppl", 1e200, "signature")], {"ppl": 1e200}, "", {})
    mean = mean_of({"a": one, "b": one}, ["a", "b"])
    assert mean.line.startswith("ppl 1.0e+200  [a: ")
    assert [score_line(score) for score in mean.scores] == ["  ppl        1.0e+200  mean of a, b"]


def test_a_model_that_exceeds_memory_is_refused_before_writing(
    recipe, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(memory, "free_memory", lambda device: 1000)
    assert main([str(recipe), f"out={tmp_path / 'run'}"]) == 4
    assert "cpu has 1000 B free" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_the_summary_names_device_and_versions(start):
    trainer = start("train.max_validations=1", "train.validate_every=1")
    finish(trainer, trainer.run())
    summary = read_summary(trainer.run_folder)
    assert (summary["device"], summary["precision"]) == ("cpu", "fp32")
    assert summary["versions"]["torch"] == str(torch.__version__)
    assert set(summary["versions"]) == {"nmt", "commit", "python", "torch"}
    assert summary["processor"]
    assert (summary["threads"], summary["processes"]) == (torch.get_num_threads(), 1)


def test_the_commit_is_that_of_a_checkout_of_the_toolkit_only(tmp_path):
    package = tmp_path / "site-packages" / "nmt"
    package.mkdir(parents=True)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C"]
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    assert source_commit(package) is None  # the repository of a user that holds an environment
    subprocess.run(["git", "init", "-q", str(package.parent)], check=True)
    (package / "code.py").write_text("x = 1\n")
    subprocess.run([*git, str(package.parent), "add", "."], check=True)
    subprocess.run([*git, str(package.parent), "commit", "-qm", "a"], check=True)
    commit = source_commit(package)
    assert commit is not None
    assert re.fullmatch("[0-9a-f]{40}", commit)
    (package / "code.py").write_text("x = 2\n")
    assert source_commit(package) == f"{commit}-dirty"


def test_records_have_the_training_time_and_dev_records_the_outputs_that_were_cut_off(start):
    trainer = start("train.max_validations=1", "train.validate_every=2", "decode.max_len_offset=1")
    finish(trainer, trainer.run())
    *train, dev, test = read_metrics(trainer.run_folder)
    times = [record["seconds"] for record in [*train, dev]]
    assert times == sorted(times)
    assert 0 < times[-1] <= trainer.state.seconds  # which includes the validation
    for record in (dev, test):  # an untrained model rarely ends a sentence
        assert 0 < record["cut_off"] <= 20
        assert record["unknown"] == 0


def test_updates_read_nothing_between_log_lines(start):
    trainer = start("train.log_every=4", "optim.accumulate=2", "train.max_bad_updates=3")
    trainer.check_every = 4  # as on a GPU
    spoil_gradients(trainer, {2, 3, 4, 5, 6, 7, 8})
    updates = trainer.updates()
    with CountReads() as reads:
        for _ in range(3):
            trainer.update(next(updates))
    assert reads.count == 0
    assert trainer.state.update == 3
    with CountReads() as reads, pytest.raises(Diverged, match="3 updates in a row, up to update 4"):
        trainer.update(next(updates))
    assert reads.count > 0


@pytest.mark.parametrize("kind", ["adam", "radam", "muon"])
def test_gradients_are_clipped_to_the_norm(start, kind):
    optim = ["optim.kind=" + kind, *NO_DROPOUT]
    free, clipped = (start(f"optim.clip_norm={limit}", *optim) for limit in (0, 0.25))
    first_update(free)
    first_update(clipped)
    expected = norm(gradients(free))
    assert expected > 0.25
    assert norm(gradients(clipped)) == pytest.approx(0.25, rel=1e-5)
    for name, gradient in gradients(free).items():
        torch.testing.assert_close(gradients(clipped)[name], gradient * (0.25 / expected))
    # the logged norm is the one before clipping
    logged = records(clipped.run_folder.path, "train")[0]["grad_norm"]
    assert logged == pytest.approx(expected, rel=1e-5)


def test_gradients_below_the_norm_are_not_clipped(start):
    free, loose = (start(f"optim.clip_norm={limit}", *NO_DROPOUT) for limit in (0, 1000))
    first_update(free)
    first_update(loose)
    assert equal(gradients(free), gradients(loose))


def test_two_half_batches_equal_one_batch(start):
    found = []
    for halves in (1, 2):
        trainer = start("optim.clip_norm=0", *NO_DROPOUT)
        trainer.model.double()
        corpus = trainer.task.prepared.train
        # sorted: halves of unequal numbers of tokens, for which a mean of means would be wrong
        rows = np.split(np.argsort(corpus.tgt_len, kind="stable"), halves)
        planned = [
            PlannedBatch(0, number, collate(corpus, half), half) for number, half in enumerate(rows)
        ]
        trainer.update(
            UpdateBatches(planned, sum(p.batch.tokens for p in planned), 0, len(planned))
        )
        loss = records(trainer.run_folder.path, "train")[0]["loss"]
        found.append((planned, gradients(trainer), loss))
    (_, whole, loss), (planned, accumulated, loss_too) = found
    assert planned[0].batch.tokens < 0.8 * planned[1].batch.tokens
    for name, gradient in whole.items():
        torch.testing.assert_close(accumulated[name], gradient, atol=1e-6, rtol=0)
    assert loss_too == pytest.approx(loss, abs=1e-6)


def test_an_update_has_accumulate_batches(start):
    trainer = start("optim.accumulate=3", "data.batch_tokens=64", "train.validate_every=100")
    stream = trainer.updates()
    updates = [next(stream) for _ in range(8)]
    assert {len(update.own) for update in updates} == {3}
    assert all(u.tokens == sum(p.batch.tokens for p in u.own) for u in updates)
    places = [(p.epoch, p.index) for update in updates for p in update.own]
    assert places == sorted(places)
    assert len(set(places)) == len(places)
    first_pass = [r for u in updates for p in u.own if p.epoch == 0 for r in p.batch.rows]
    assert sorted(first_pass) == list(range(100))  # every pair once, no batch dropped
    assert places[-1][0] > 0


def test_the_learning_rate_follows_the_schedule(start):
    trainer = start("schedule.kind=inverse_sqrt", "schedule.warmup_updates=2", "train.log_every=1")
    trainer.run()
    rates = [r["lr"] for r in records(trainer.run_folder.path, "train")]
    d = trainer.recipe.model.dim
    wanted = [d**-0.5 * min(n**-0.5, n * 2**-1.5) for n in range(1, 13)]
    assert rates == pytest.approx(wanted)
    assert trainer.optimizer.param_groups[0]["lr"] == pytest.approx(wanted[-1])


def test_a_stop_is_noticed_before_the_search_of_a_validation(start, monkeypatch):
    """The perplexity of a large dev set takes long, too."""
    monkeypatch.setattr(Translator, "translate_ids", lambda *arguments: 1 / 0)
    trainer = start(stop_after=0)
    with pytest.raises(Stopped):
        trainer.evaluate("dev")


@pytest.mark.slow
def test_early_stopping(start):
    trainer = start("train.stop_patience=2", "train.validate_every=1", "train.max_validations=50")
    script_scores(trainer, [1.0, 3.0, 2.0, 3.5, 3.5, math.nan])  # neither a tie nor NaN is a gain
    assert trainer.run() == "no better bleu in 2 validations"
    assert trainer.state.update == 6
    assert trainer.state.best_update == 5  # the later of two equal ones
    assert trainer.run_folder.best() == "u000005"
    assert (
        read_result(trainer.run_folder.path).ppl
        == records(trainer.run_folder.path, "dev")[4]["ppl"]
    )
    trainer = start("train.stop_patience=1", "train.validate_every=1")
    script_scores(trainer, [3.0, 2.0])
    assert trainer.run() == "no better bleu in 1 validation"


@pytest.mark.slow
def test_patience_counts_from_the_last_gain_of_the_history(start):
    """A resumed run has the history only, and ends at the same update."""
    keys = ("train.stop_patience=3", "train.validate_every=1", "train.max_validations=50")
    ended = []
    for stop in (10**9, 3):
        trainer = start(*keys, stop_after=stop)
        script_scores(trainer, [0.0])
        reason = trainer.run()
        if reason is None:
            trainer = start(*keys, checkpoint=load_checkpoint(trainer.run_folder))
            script_scores(trainer, [0.0])
            reason = trainer.run()
        ended.append((reason, trainer.state.update, trainer.state.best_update))
    assert ended == [("no better bleu in 3 validations", 4, 4)] * 2


def test_patience_with_nan_and_equal_scores():
    nan = math.nan
    for scores, waited in (
        ([], -1), ([nan], 0), ([nan, nan], 1), ([nan, 0.0], 0), ([0.0, nan, 0.0], 2),
        ([1.0, 2.0, 2.0, 1.0], 2), ([1.0, 1.0, 3.0], 0),
    ):  # fmt: skip
        assert validations_without_gain(list(enumerate(scores, 1))) == waited


@pytest.mark.slow
@pytest.mark.parametrize(("score", "warned"), [(0.0, True), (None, False)])
def test_equal_dev_scores_are_a_warning_if_chrf_moves(start, capsys, score, warned):
    trainer = start(
        "train.validate_every=1", "train.max_validations=5", "score.metrics=[bleu,chrf]"
    )
    values = [
        {"bleu": number if score is None else score, "chrf": chrf}
        for number, chrf in enumerate([37.5, 69.7, 82.4, 84.4, 84.5])
    ]
    script_values(trainer, *values)
    trainer.run()
    shown = capsys.readouterr().err
    assert shown.count("warning: dev bleu is 0.00 in all 3 validations") == warned
    assert shown.count("score.select_by: chrf") == warned


def test_skipped_updates_are_counted_and_logged(start, capsys):
    trainer = start("train.log_every=4", "train.validate_every=8", "train.max_validations=1")
    spoil_gradients(trainer, {2, 3, 7})
    finish(trainer, trainer.run())
    run = trainer.run_folder
    assert [r["skipped_updates"] for r in records(run.path, "train")] == [2, 1]
    assert read_summary(run)["skipped_updates"] == 3
    shown = [line for line in capsys.readouterr().err.splitlines() if line.startswith("update")]
    assert "2 updates skipped: gradients not finite" in shown[0]
    assert "1 update skipped" in shown[1]


def test_a_resumed_run_counts_the_updates_that_were_skipped_before(start):
    keys = ("train.log_every=4", "train.validate_every=8", "train.max_validations=1")
    stopped = start(*keys, stop_after=6)
    spoil_gradients(stopped, {2, 6})
    assert stopped.run() is None
    resumed = start(*keys, checkpoint=load_checkpoint(stopped.run_folder))
    spoil_gradients(resumed, {8})
    resumed.run()
    assert [r["skipped_updates"] for r in records(resumed.run_folder.path, "train")] == [2]
    assert load_checkpoint(resumed.run_folder).state.skipped_updates == 3


def test_a_learning_rate_below_min_lr_ends_the_run(start):
    trainer = start(
        "schedule.kind=no_warmup",
        "schedule.lr=1e-3",
        "schedule.decay=0.1",
        "schedule.patience=1",
        "train.min_lr=5e-5",
        "train.validate_every=1",
        "train.max_validations=50",
    )
    script_scores(trainer, [2.0, 1.0])
    assert trainer.run() == "learning rate 1.0e-05 below train.min_lr = 5e-05"
    assert trainer.state.update == 3  # two decays after the first validation


def test_a_rising_rate_does_not_end_the_run(start):
    trainer = start(
        "schedule.kind=inverse_sqrt",
        "schedule.warmup_updates=1000",
        "train.min_lr=1e-3",  # the rate of the first updates is far below
        "train.validate_every=2",
        "train.max_validations=2",
    )
    assert trainer.run() == "train.max_validations = 2"


@pytest.mark.parametrize(("warmup", "total", "validated"), [(2, 5, [4, 5]), (0, 1, [1])])
def test_a_linear_schedule_ends_the_run(start, warmup, total, validated):
    keys = [f"schedule.warmup_updates={warmup}", f"schedule.total_updates={total}"]
    trainer = start("schedule.kind=linear", "schedule.lr=1e-3", *keys)
    assert trainer.run() == "all updates done"
    assert load_checkpoint(trainer.run_folder).state.update == total
    assert [update for update, _ in trainer.state.history] == validated  # an epoch has 4 updates


@pytest.mark.slow
def test_a_run_stopped_by_time_limit_can_be_resumed(recipe, tmp_path):
    run = tmp_path / "run"
    command = [str(recipe), f"out={run}"]
    assert main([*command, "time_limit=1e-9"]) == 0
    summary = json.loads((run / "summary.json").read_text())
    assert summary["status"] == "stopped"
    assert summary["reason"].startswith("time_limit")
    assert summary["updates"] == 1
    assert main([*command, "time_limit=none", "--resume"]) == 0
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["status"], summary["updates"]) == ("finished", 12)
    assert main([*command, "time_limit=none", "--resume"]) == 0  # nothing is left to do
    assert json.loads((run / "summary.json").read_text()) == summary

    assert main([str(recipe), f"out={tmp_path / 'uninterrupted'}"]) == 0
    models = [
        load_checkpoint(RunFolder.open(path)).model for path in (run, tmp_path / "uninterrupted")
    ]
    assert equal(*models)
    # the test score of the run that was cut short is not the run's
    assert [r["update"] for r in records(run, "test")] == [12]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("last", "keys", "reason"),
    [
        (4, "train.max_validations=1", "train.max_validations = 1"),
        (
            5,
            "schedule.kind=linear schedule.lr=1e-3 schedule.warmup_updates=2 "
            "schedule.total_updates=5",
            "all updates done",
        ),
    ],
)
def test_a_run_that_ends_by_its_rules_is_finished_also_if_its_time_is_over(
    start, last, keys, reason
):
    """So --resume has nothing to do."""

    def exceed_limit(validation: Validation) -> None:
        if validation.update == last:
            trainer.state.seconds = 3601.0

    trainer = start("time_limit=1", *keys.split(" "))
    trainer.on_validation = exceed_limit
    assert trainer.run() == reason
    finish(trainer, reason)
    assert read_summary(trainer.run_folder)["status"] == "finished"


@pytest.mark.slow
def test_log_lines_include_the_updates_before_a_validation(start):
    """As if no validation had come between them."""
    keys = ["train.log_every=3", "train.max_validations=3", "model.dropout=0.3"]
    found = []
    for every in (2, 6):
        trainer = start(*keys, f"train.validate_every={every}")
        trainer.run()
        logged = records(trainer.run_folder.path, "train")[:2]
        found.append([(record["update"], record["loss"], record["ppl"]) for record in logged])
    assert [update for update, *_ in found[0]] == [3, 6]
    assert found[0] == found[1]


def test_an_interval_does_not_count_the_time_of_a_validation(start, monkeypatch):
    trainer = start("train.validate_every=2", "train.log_every=50")
    clock = SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: clock.seconds)
    trainer.interval.start_clock(3.0)

    def evaluate(*_: Any, **__: Any) -> Any:
        clock.seconds += 1000
        raise Stopped

    trainer.evaluate = evaluate  # type: ignore[method-assign]
    with pytest.raises(Stopped):
        trainer.validate()
    assert trainer.interval.elapsed() == 3.0


@pytest.mark.slow
@pytest.mark.parametrize(("dev_of_average", "taken"), [(9.0, True), (5.0, True), (4.9, False)])
def test_the_average_becomes_best_unless_it_is_worse(start, dev_of_average, taken):
    trainer = start("train.average=2", "train.validate_every=2")
    script_scores(trainer, [5.0, 3.0, 4.0, dev_of_average])
    reason = trainer.run()
    run = trainer.run_folder
    assert run.best() == "u000002"
    finish(trainer, str(reason))
    names = ("u000004", "u000006") if taken else ("u000002",)
    chosen = [read_checkpoint(run.checkpoints_dir / name) for name in names]
    expected, best = average_checkpoints(chosen), "u000006-avg2" if taken else "u000002"
    assert equal({n: t.detach() for n, t in trainer.model.state_dict().items()}, expected)
    assert equal(read_weights(Model.open(run.path)), expected)
    summary = read_summary(run)
    assert run.best() == summary["best"] == best
    assert (run.dev_dir / "u000006-avg2.hyp").is_file()
    assert summary["dev"] == (dev_of_average if taken else 5.0)


def test_the_end_of_a_training_reads_the_best_checkpoint_once(start, monkeypatch):
    read, function = [], checkpoint_module.read_checkpoint

    def reading(path: Path, with_optimizer: bool = True) -> Checkpoint:
        read.append(path.name)
        return function(path, with_optimizer)

    trainer = start()
    reason = str(trainer.run())
    monkeypatch.setattr(checkpoint_module, "read_checkpoint", reading)
    finish(trainer, reason)
    assert read == [trainer.run_folder.best()]


def test_a_second_end_chooses_between_the_checkpoint_and_the_new_average(start):
    """An average that was the best at the first end is not the best because of that."""
    trainer = start("train.average=2", "train.validate_every=2")
    script_scores(trainer, [5.0, 3.0, 4.0, 9.0, 1.0])
    reason = str(trainer.run())
    finish(trainer, reason)
    assert trainer.run_folder.best() == "u000006-avg2"
    script_scores(trainer, [1.0])
    finish(trainer, reason)
    summary = read_summary(trainer.run_folder)
    assert (summary["best"], summary["dev"]) == ("u000002", 5.0)
