"""Language models through the trainer: losses, epochs, resume, ranks, and what is refused."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from nmt import Translator
from nmt.cli import average, export, plot, score, translate
from nmt.cli.prepare import main as prepare_command
from nmt.cli.train import main
from nmt.config.load import load_recipe
from nmt.data.prepare import prepare
from nmt.errors import UserError
from nmt.runtime.distributed import World
from nmt.store.checkpoint import Checkpoint, load_checkpoint
from nmt.store.folder import RunFolder
from nmt.store.lifecycle import TrainingFolder
from nmt.store.metrics_log import MetricsLog
from nmt.store.results import read_result, read_summary
from nmt.training.tasks import make_task
from nmt.training.trainer import Trainer
from tests.decoding.ctranslate2.cases import model_folder
from tests.text_toy import text_corpus, text_recipe
from tests.toy import toy_corpus, toy_recipe
from tests.training.helpers import FakeCapture, equal, gradients, records, script_values, weights

TASKS = pytest.mark.parametrize("task", ["causal_lm", "masked_lm"])
NO_DROPOUT = "model.dropout=0"
CPU = torch.device("cpu")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """Return a folder with a text and a recipe for each task."""
    path = tmp_path_factory.mktemp("text")
    text_corpus(path)
    for task in ("causal_lm", "masked_lm"):
        text_recipe(path, task)
    return path


@pytest.fixture
def start(folder, tmp_path) -> Iterator[Callable[..., Trainer]]:
    """Return a function that makes trainers of a task, each with its own run folder."""
    with contextlib.ExitStack() as stack:

        def make(
            task: str,
            *overrides: str,
            checkpoint: Checkpoint | None = None,
            stop_after: int = 10**9,
            world: World = World(),  # noqa: B008  it is immutable
        ) -> Trainer:
            recipe = load_recipe(folder / f"{task}.yaml", [*overrides])
            number = len(list(tmp_path.glob("run*")))
            run = stack.enter_context(TrainingFolder(tmp_path / f"run{number}", recipe))
            log = stack.enter_context(MetricsLog(run))
            made = make_task(recipe, prepare(recipe), CPU, "fp32")

            def stop() -> bool:
                return trainer.state.update >= stop_after

            trainer = Trainer(made, run, log, stop, checkpoint, world=world)
            return trainer

        yield make


def plain_nll(trainer: Trainer, batch: Any) -> tuple[float, int]:
    """Return the cross-entropy of a batch by torch's own function, and its predictions."""
    logits = trainer.model(*batch.inputs).double()
    targets = trainer.task.targets(batch)
    assert logits.shape == (len(targets), len(trainer.task.prepared.vocab))
    return float(F.cross_entropy(logits, targets, reduction="sum").detach()), len(targets)


@pytest.mark.slow
@TASKS
def test_several_dev_and_test_sets_are_reported_each(start, folder, task, capsys):
    """The mean selects; a set alone has the perplexity that it has among others."""
    two = f"[{{path: {folder}/dev, name: a}}, {{path: {folder}/test, name: b}}]"
    trainer = start(task, f"data.dev={two}", f"data.test={two}", "train.max_validations=1")
    trainer.run()
    found = trainer.evaluate("dev")
    a, b = (found.values[f"{name}/ppl"] for name in "ab")
    assert a != b
    assert found.values["ppl"] == (a + b) / 2
    assert -trainer.state.history[0][1] == pytest.approx(found.values["ppl"], rel=1e-5)
    alone = start(task, f"data.dev={folder}/test")
    alone.model.load_state_dict(trainer.model.state_dict())
    assert alone.evaluate("dev").values["ppl"] == pytest.approx(b, rel=1e-6)
    lines = trainer.task.results(trainer.run_folder.path, trainer.evaluate("test")).splitlines()
    assert [line for line in lines if "test scores" in line] == [
        "test scores, mean",
        "test scores a",
        "test scores b",
    ]


@TASKS
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_cross_entropy_over_the_predictions(start, task, smoothing):
    trainer = start(task, f"optim.label_smoothing={smoothing}", "model.logit_mask=false")
    trainer.model.eval()
    rows = trainer.task.plan(0)[0]
    batch = trainer.task.make_batch(0, rows, pad=False)
    nll, count = plain_nll(trainer, batch)
    sums = trainer.task.loss(trainer.model, batch)
    assert float(sums["nll"]) == pytest.approx(nll, rel=1e-6)
    assert trainer.task.tokens(0, rows) == batch.tokens == count
    logits, targets = trainer.model(*batch.inputs).double(), trainer.task.targets(batch)
    expected = F.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)
    torch.testing.assert_close(sums["smoothed"].double(), expected, rtol=1e-6, atol=0)


@pytest.mark.slow
@TASKS
def test_padding_for_graphs_changes_no_loss_and_no_gradient(start, task):
    trainer = start(task, NO_DROPOUT)
    found = []
    for pad in (False, True):
        trainer.model.zero_grad()
        # the last batch of an epoch may be smaller than the others
        for rows in trainer.task.plan(0):
            batch = trainer.task.make_batch(0, rows, pad)
            sums = trainer.task.loss(trainer.model, batch)
            sums["smoothed"].backward()
        assert (batch.buffer is not None) == pad
        found.append((float(sums["nll"]), gradients(trainer)))
    (nll, unpadded), (padded_nll, padded) = found
    assert padded_nll == pytest.approx(nll, rel=1e-5)
    for name, gradient in unpadded.items():
        torch.testing.assert_close(padded[name], gradient, atol=2e-4, rtol=1e-4)


def test_copies_of_a_block_fit_a_padded_batch_with_draws_of_their_own(start, folder):
    """An entry of weight 5 has each block five times in an epoch, often twice in one batch."""
    entry = f"data.train=[{{path: {folder}/train, weight: 5}}]"
    trainer = start("masked_lm", NO_DROPOUT, entry)
    task = trainer.task
    examples = np.concatenate(task.plan(0))
    assert sorted(examples % task.size) == np.repeat(np.arange(task.size), 5).tolist()
    twice = next(some for some in task.plan(0) if len(set(some % task.size)) < len(some))
    plain, padded = (task.make_batch(0, twice, pad) for pad in (False, True))
    assert plain.rows.tolist() == padded.rows.tolist() == (twice % task.size).tolist()
    assert padded.bucket is not None
    sums = [float(task.loss(trainer.model, batch)["nll"]) for batch in (plain, padded)]
    assert sums[1] == pytest.approx(sums[0], rel=1e-5)
    copies = [task.make_batch(0, np.array([3 + copy * task.size]), pad=False) for copy in range(5)]
    assert len({tuple(batch.ids.tolist()) for batch in copies}) > 2  # two draws may be equal
    assert len({task.tokens(0, batch.rows) for batch in copies}) == 1


@pytest.mark.slow
@TASKS
def test_captured_updates_equal_eager_ones(start, task, monkeypatch):
    """A replay draws the same dropout masks; blocks have few sizes, so most are captured."""
    monkeypatch.setattr("nmt.training.cuda_graphs.CAPTURE_AT_VISIT", 2)
    capture, captured, eager = FakeCapture(), start(task), start(task)
    captured.use_cuda_graphs(capture)
    eager.use_cuda_graphs(lambda work: pytest.fail("captured"))
    eager.cuda_graphs.failed = True
    for trainer in (captured, eager):
        trainer.run()
    assert capture.replayed > 3
    assert equal(weights(captured), weights(eager))


@TASKS
def test_an_epoch_predicts_everything_once(start, task):
    made = start(task).task
    rows = np.concatenate(made.plan(0))
    assert sorted(rows) == list(np.flatnonzero(made.train.targets))
    batches = [made.make_batch(0, part, pad=False) for part in made.plan(0)]
    assert sum(len(made.targets(batch)) for batch in batches) == made.train.targets.sum()
    again = [list(part) for part in made.plan(0)]
    assert again == [list(part) for part in made.plan(0)]
    assert again != [list(part) for part in made.plan(1)]


def test_masks_change_from_epoch_to_epoch_but_not_on_dev(start):
    made = start("masked_lm").task
    rows = made.plan(0)[0]

    def ids(epoch: int, rows: np.ndarray = rows) -> list[int]:
        batch = made.make_batch(epoch, rows, pad=False)
        return batch.ids.tolist()

    assert ids(0) == ids(0)
    assert ids(0) != ids(1)
    other = start("masked_lm", "seed=7").task
    blocks = [text.held_out["dev"].collate(np.arange(3), epoch=0) for text in (made, other)]
    masked = [block.ids.tolist() for block in blocks]
    assert masked[0] == masked[1]


@TASKS
def test_the_evaluation_equals_plain_perplexities(start, task):
    trainer = start(task, "model.logit_mask=false")
    found = trainer.evaluate("dev")
    text = trainer.task.held_out["dev"]
    nll, count = 0.0, 0
    with torch.no_grad():
        for row in np.flatnonzero(text.targets):  # each block alone
            of_block = plain_nll(trainer, text.collate(np.array([row]), epoch=0))
            nll, count = nll + of_block[0], count + of_block[1]
    assert found.values["ppl"] == pytest.approx(math.exp(nll / count), rel=1e-5)
    signature = found.scores[0].signature
    assert signature == f"task:{task}|block:16|predictions:{count}|unk:0"
    if task == "causal_lm":
        lines = Path(trainer.recipe.data.dev[0].path + ".en").read_text().splitlines()
        words = sum(len(line.split()) + 1 for line in lines)  # and the end of each line
        assert found.values["word_ppl"] == pytest.approx(math.exp(nll / words), rel=1e-5)
        assert found.scores[1].signature == f"{signature}|words:{words}"


@pytest.mark.slow
@TASKS
def test_a_resumed_run_equals_one_that_never_stopped(start, task):
    whole = start(task)
    whole.run()
    stopped = start(task, stop_after=7)
    assert stopped.run() is None
    resumed = start(task, checkpoint=load_checkpoint(stopped.run_folder))
    resumed.run()
    assert equal(weights(resumed), weights(whole))
    assert resumed.state.history == whole.state.history


@pytest.mark.slow
@TASKS
def test_two_ranks_share_the_updates_of_one_that_accumulates(start, task):
    alone = start(task, NO_DROPOUT, "optim.accumulate=2")
    ranks = [start(task, NO_DROPOUT, world=World(rank, 2)) for rank in (0, 1)]
    streams = [trainer.updates() for trainer in (alone, *ranks)]
    for complete, *shares in zip(*streams, strict=True):
        assert {share.tokens for share in shares} == {complete.tokens}
        total: dict[str, torch.Tensor] = {}
        for trainer, share in zip(ranks, shares, strict=True):
            trainer.model.zero_grad()
            (planned,) = share.own
            trainer.forward_backward(planned.batch, share.tokens)
            for name, gradient in gradients(trainer).items():
                total[name] = total[name] + gradient if name in total else gradient
        alone.model.zero_grad()
        for planned in complete.own:
            alone.forward_backward(planned.batch, complete.tokens)
        for name, gradient in gradients(alone).items():
            torch.testing.assert_close(total[name], gradient, atol=1e-6, rtol=1e-5)
        if complete.epoch == 1:
            break


@TASKS
def test_parts_of_a_batch_have_its_gradients(start, task):
    """Memory that is too small for a batch divides it; the masks stay."""
    whole, parts = start(task, NO_DROPOUT), start(task, NO_DROPOUT)
    parts.largest_batch = max(1, next(whole.updates()).tokens // 3)
    assert len(list(parts._parts(next(parts.updates())))) > 2
    for trainer in (whole, parts):
        trainer.update(next(trainer.updates()))
    for name, gradient in gradients(whole).items():
        torch.testing.assert_close(gradients(parts)[name], gradient, atol=1e-6, rtol=1e-5)


def test_the_lowest_perplexity_is_the_best(start):
    trainer = start("causal_lm", "train.validate_every=1", "train.max_validations=4")
    script_values(trainer, *({"ppl": ppl} for ppl in (9.0, 4.0, 6.0, 4.0)))
    trainer.run()
    assert trainer.state.history == [(1, -9.0), (2, -4.0), (3, -6.0), (4, -4.0)]
    assert trainer.run_folder.best() == "u000004"  # the later of two equal ones
    assert read_result(trainer.run_folder.path).dev == 4.0
    log = (trainer.run_folder.path / "train.log").read_text()
    assert log.count("  best\n") == 3


@pytest.mark.slow
def test_a_causal_model_learns_a_circle_of_words(folder, tmp_path, capsys):
    run = tmp_path / "run"
    keys = ["train.validate_every=40", "train.max_validations=4", "train.average=2"]
    keys += ["train.keep=2", "model.dropout=0"]
    command = [str(folder / "causal_lm.yaml"), f"out={run}", *keys]
    assert main(command) == 0
    printed = capsys.readouterr()
    assert "causal_lm of en: " in printed.err
    assert f"init.from={run}" in printed.out
    summary = read_summary(RunFolder(run))
    assert (summary["status"], summary["select_by"]) == ("finished", "ppl")
    # the first word of a line and its length are random: at best, this loss is about ln 2
    assert 1 < summary["dev"] < 3
    assert {s["name"] for s in summary["test"]} == {"ppl", "word_ppl"}
    assert min(r["ppl"] for r in records(run, "dev")) >= summary["dev"]  # of the average
    assert "ppl" in records(run, "test")[0]
    assert not list(run.glob("**/*.hyp"))
    assert main([*command, "--resume"]) == 0  # nothing is left to do
    names = [path.name for path in RunFolder(run).checkpoints()]
    output = str(tmp_path / "average")
    assert average.main([str(run), "--checkpoints", *names, "-o", output]) == 0
    assert "dev ppl " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "arguments"),
    [(translate, []), (export, []), (score, []), (score, ["--split", "dev"])],
)
def test_commands_of_translations_refuse_a_language_model(
    start, capsys, monkeypatch, command, arguments
):
    trainer = start("masked_lm", "train.max_validations=1", "train.validate_every=1")
    trainer.run()
    monkeypatch.setattr("sys.stdin", open("/dev/null"))  # noqa: SIM115
    assert command.main([str(trainer.run_folder.path), *arguments]) == 2
    err = capsys.readouterr().err
    assert "this model is one of task: masked_lm, and does not translate" in err
    assert "init.from" in err


def test_nmt_prepare_counts_blocks(folder, capsys):
    assert prepare_command([str(folder / "masked_lm.yaml")]) == 0
    assert "training lines" in capsys.readouterr().out


def test_a_text_shorter_than_a_block_is_refused_before_writing(folder, tmp_path, capsys):
    run = tmp_path / "run"
    command = [str(folder / "causal_lm.yaml"), f"out={run}"]
    assert main([*command, "data.block=4000", "data.batch_tokens=4000"]) == 2
    err = capsys.readouterr().err
    assert "subwords, less than a block of 4,000" in err
    assert "set data.block to at most" in err
    assert not run.exists()


def test_a_text_of_unknown_words_has_nothing_to_mask(folder, tmp_path, capsys):
    run = tmp_path / "run"
    command = [str(folder / "masked_lm.yaml"), f"out={run}"]
    assert main([*command, "segment.min_count=100000"]) == 2
    assert "task: masked_lm has nothing to predict" in capsys.readouterr().err
    assert not run.exists()


def test_a_block_must_fit_in_a_batch(folder):
    with pytest.raises(
        UserError, match=r"data\.batch_tokens \(64\) must be at least data\.block \(128\)"
    ):
        load_recipe(folder / "causal_lm.yaml", ["data.block=128"])


@pytest.mark.slow
@TASKS
def test_a_translation_model_starts_from_a_language_model(tmp_path, capsys, task):
    """The text of the parent is one side of the parallel corpus, digits."""
    toy_corpus(tmp_path, {"train": 60, "dev": 6, "test": 6})
    few = {"validate_every": 2, "max_validations": 1, "log_every": 1}
    parent = text_recipe(tmp_path, task, {"train": few})
    assert main([str(parent)]) == 0
    out = capsys.readouterr().out
    (command,) = [line for line in out.splitlines() if "init.from" in line]
    child = toy_recipe(tmp_path, {"train": few})
    assert main([str(child), command.split()[-1]]) == 0
    taken = json.loads((tmp_path / "run" / "init.json").read_text())["loaded"]
    stacks = tuple(load_recipe(parent).stacks)
    names = load_checkpoint(RunFolder(tmp_path / "run")).model
    assert {name for name in taken if name.startswith(stacks)} == {
        name
        for name in names
        if name.startswith(stacks) and not (task == "causal_lm" and "cross_attn" in name)
    }


def test_no_translation_has_the_mask_of_the_parent(tmp_path):
    """Without model.logit_mask, a model could produce the mask that the vocabulary has."""
    toy_corpus(tmp_path, {"train": 60, "dev": 6, "test": 6})
    few = {"validate_every": 1, "max_validations": 1}
    assert main([str(text_recipe(tmp_path, "masked_lm", {"train": few}))]) == 0
    init = {"from": "masked_lm", "vocab": "parent"}
    child = toy_recipe(tmp_path, {"train": few, "init": init, "model": {"logit_mask": False}})
    assert main([str(child)]) == 0
    translator = Translator.load(tmp_path / "run", "cpu")
    with torch.no_grad():  # the most likely type of all
        translator.transformer.out_bias[translator.codec.vocab.reserved_ids] = 100.0
    assert "<mask>" not in translator.translate(["1 2 3"])[0]
    model = model_folder(translator, tmp_path / "model")
    exported = Translator.load(model, "cpu", engine="ctranslate2")
    assert "<mask>" not in exported.translate(["1 2 3"])[0]


@pytest.mark.slow
def test_nmt_plot_draws_the_stack_of_a_language_model(folder, tmp_path):
    run, picture = tmp_path / "run", tmp_path / "gains.svg"
    observe = ["analysis.every=2", "analysis.observe=[gains]"]
    assert main([str(folder / "causal_lm.yaml"), f"out={run}", *observe]) == 0
    assert plot.main(["gains", str(run), "-o", str(picture)]) == 0
    assert "decoder" in picture.read_text()
    assert "encoder" not in picture.read_text()
    assert plot.main(["curves", str(run), "-o", str(picture), "--force"]) == 0
    assert "perplexity" in picture.read_text()
