"""Verify for a recipe, on this machine, that a killed and resumed training loses nothing.

Short trainings run in processes of their own, with this module as their program: one that nothing
disturbs, one that is killed at several places, one that prepares the corpus again in one process,
and one of two processes. All must end alike.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch.distributed.run import main as torchrun

from nmt.config.load import changed_keys, dump_recipe, load_recipe, recipe_from_text
from nmt.config.recipe import Recipe
from nmt.data import bitext, workers
from nmt.data.text import quantity, read_lines
from nmt.errors import MachineError, NmtError, RunError, UserError
from nmt.runtime.cpus import available_cpus, limit_processes
from nmt.runtime.device import resolve_device
from nmt.runtime.distributed import init_distributed
from nmt.runtime.files import file_digest
from nmt.runtime.progress import TerminalBar, progress_bar
from nmt.runtime.signals import PARENT, end_with_parent
from nmt.scoring.results import aligned
from nmt.session import Training, open_run, train_in_other_process
from nmt.store import checkpoint
from nmt.store.folder import RunFolder
from nmt.store.parent import with_keys_of_parent
from nmt.store.results import read_metrics, read_summary
from nmt.training import trainer

PROGRAM = "nmt.apps.verify_resume"
TRAIN = (sys.executable, "-m", PROGRAM)
TORCHRUN = ("--standalone", "--nproc-per-node=2", "-m", PROGRAM)
# where a process kills itself: before this call of a function. The first process begins, and each
# other one continues from the last checkpoint.
PLACES: dict[str, tuple[Any, str, int]] = {
    "in an update": (trainer, "take_step", 3),
    "in a validation": (trainer.Trainer, "write_hypotheses", 1),
    "while a checkpoint is written": (checkpoint, "Manifest", 1),
    "after a checkpoint": (trainer, "Validation", 1),
}
CHANGES = (
    "train.validate_every=2", "train.max_validations=3", "train.log_every=1", "time_limit=none",
    "train.tensorboard=off", "train.wandb=none", "data.test=none", "data.download=none",
    "data.checks=off",
)  # fmt: skip
LINES, DEV_LINES, BATCH_TOKENS = 20_000, 20, 1024  # at most
TIMES = {"seconds", "seconds_left", "tokens_per_second"}
SUMS = ("metric loss ", "metric ppl ", "metric grad_norm ")  # the order of sums changes last digits
TOLERANCE = {"fp32": 1e-3, "bf16": 5e-2, "fp16": 5e-2}  # relative, of SUMS


def verify_resume(recipe: Recipe) -> None:
    """Train a short form of a recipe several times in a temporary folder; print what is equal.

    Raises:
        UserError, MachineError: as in the training.
        RunError: a training failed, or its results differ.
    """
    recipe = with_keys_of_parent(recipe, resume=False)
    device = resolve_device(recipe.device)
    gpu = device.type == "cuda"
    shared = not gpu or (device.index is None and torch.cuda.device_count() > 1)
    with tempfile.TemporaryDirectory(prefix="nmt-verify-resume-") as name:
        batch = min(recipe.data.batch_tokens, max(BATCH_TOKENS, recipe.data.block))
        even = recipe.optim.accumulate + recipe.optim.accumulate % 2  # for two processes
        sizes = f"data.batch_tokens={batch}", f"optim.accumulate={even}", f"out={name}/run"
        short = recipe_from_text(dump_recipe(recipe), "recipe", [*CHANGES, *sizes])
        Path(name, "recipe.yaml").write_text(dump_recipe(short), encoding="utf-8")
        print("short trainings; what is changed for them:")
        print(f"  lines of each corpus: at most {LINES:,}; of dev: at most {DEV_LINES}")
        for key, change in changed_keys(recipe, short).items():
            print(f"  {key}: {change}")
        print(f"one is killed {', '.join(PLACES)}", flush=True)
        total = len(PLACES) + 3 + shared
        with progress_bar("verifying", "trainings", total, slow=True) as bar:
            trainings = _Trainings(Path(name), bar)
            trainings.run(not gpu, even // 2 if shared else 0)
    print("\n".join(aligned([("", "promised", "found"), *trainings.rows], left=3)))
    print("not promised: the same bits in another precision, with another number of threads, on "
          "another processor or on a GPU")  # fmt: skip
    if trainings.broken:
        raise RunError(trainings.broken, fix="report it with this table and the recipe")


class _Trainings:
    """Trainings in a folder; rows say how they differ, and ``broken`` which promise fails first."""

    def __init__(self, folder: Path, bar: TerminalBar) -> None:
        self.folder, self.bar, self.broken = folder, bar, ""
        self.rows: list[tuple[str, str, str]] = []

    def run(self, bitwise: bool, half: int) -> None:
        """Train in all ways; ``half`` is ``accumulate`` of each of two processes, 0 = not tried."""
        self.train("run")
        self.expected = _results(self.folder / "run")
        kills = sum(self.train("killed", kill=place) for place in PLACES)
        self.train("killed")
        what = f"killed {quantity(kills, 'time')} and resumed, corpus from the cache"
        self.compare("killed", what, bitwise)
        self.train("again/run", processes=1)
        self.compare("again/run", "corpus prepared again, by one process", bitwise)
        if half:
            self.train("shared", f"optim.accumulate={half}", launcher=TORCHRUN)
            self.compare("shared", f"2 processes with optim.accumulate={half} each", False)
        else:
            self.rows.append(("2 processes", "", "not tried: needs device: cuda and two GPUs"))

    def train(
        self, run: str, *keys: str, kill: str = "", processes: int = 0, launcher: Sequence[str] = ()
    ) -> bool:
        """Train, or continue, in another process; return whether ``kill``, of PLACES, ended it.

        Args:
            processes: that prepare the corpus; 0 = as many as there are CPUs.
        """
        command = [*TRAIN, *launcher, kill, str(processes or available_cpus())]
        command += [str(self.folder / "recipe.yaml"), f"out={self.folder / run}", *keys]
        log = self.folder / "errors.txt"
        environment = os.environ | {PARENT: str(os.getpid()), "TMPDIR": str(self.folder)}
        with open(log, "wb") as out:  # in a session, so that Ctrl-C reaches only this process
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment,
                start_new_session=True,
            )  # fmt: skip
        try:
            code = child.wait()
        finally:
            child.terminate()
            child.wait()
        self.bar.update()
        killed = bool(kill) and code == -signal.SIGKILL
        if code and not killed:
            reason = log.read_text("utf-8", "replace").strip() or f"exit code {code}"
            raise {2: UserError, 4: MachineError}.get(code, RunError)(f"training failed: {reason}")
        return killed

    def compare(self, run: str, what: str, bitwise: bool) -> None:
        """Add a row for a run, and remove the run."""
        expected, found = self.expected, _results(self.folder / run)
        differ = [n for n in expected | found if expected.get(n) != found.get(n)]
        if bitwise:
            promise, broken = "bit for bit", bool(differ)
            result = f"{len(differ):,} differ; first {', '.join(differ[:1])}"
        else:
            tolerance = TOLERANCE[read_summary(RunFolder(self.folder / "run"))["precision"]]
            sums = [n for n in differ if n.startswith(SUMS)]
            gap = max((_gap(expected.get(n), found.get(n)) for n in sums), default=0.0)
            promise, broken = f"loss, ppl, |g| within {tolerance:g}", gap > tolerance
            result = f"largest difference {gap:.1e}"
        if broken:
            self.broken = self.broken or f"{what}: {result}"
        equal = f"equal: {len(expected):,} tensors, metrics and files"
        self.rows.append((what, promise, result if differ else equal))
        shutil.rmtree(self.folder / run)


def _gap(a: float | None, b: float | None) -> float:
    """Return the relative difference; infinity if only one is a number."""
    return math.inf if a is None or b is None else abs(a - b) / max(abs(a), 1e-9)


def _results(run: Path) -> dict[str, Any]:
    """Return metrics, tensors and files of a run and of its prepared corpus, without times."""
    folder, found = RunFolder(run), dict[str, Any]()
    for record in read_metrics(folder):
        place = f"of {record['kind']} {record['update']}"
        found |= {f"metric {n} {place}": v for n, v in record.items() if n not in TIMES}
    for path in folder.checkpoints():
        saved = checkpoint.read_checkpoint(path)
        for name, tensor in (saved.model | saved.optimizer).items():
            data = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
            found[f"tensor {name} of {path.name}"] = hashlib.sha256(data).digest()
        state = asdict(saved.state)
        state |= state.pop("interval")
        found |= {f"state {n} of {path.name}": v for n, v in state.items() if n not in TIMES}
    for parent in (folder.dev_dir, run.parent / ".cache"):
        files = filter(Path.is_file, sorted(parent.rglob("*")))
        found |= {f"file {path.relative_to(parent)}": file_digest(path) for path in files}
    return found


def main(arguments: Sequence[str]) -> int:
    """Train in this process, which ``_Trainings.train`` started; return the exit code."""
    end_with_parent()
    if arguments[: len(TORCHRUN)] == [*TORCHRUN]:
        torchrun(arguments)
        return 0
    kill, processes, file, *keys = arguments
    try:
        recipe = load_recipe(file, keys)
        _read_first_lines(recipe)
        if kill:
            _die_before(*PLACES[kill])
        if int(processes) > 1:  # also for small corpora
            workers.MIN_PARALLEL_CHUNKS, workers.CHUNK = 1, 100
        with init_distributed() as world, limit_processes(int(processes)):
            if not world.is_main:
                train_in_other_process(world)
                return 0
            run = open_run(recipe, resume=True, world=world)
            if not run.finished:
                Training(run, world, quiet=True).run(lambda run, log: None)
    except NmtError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def _read_first_lines(recipe: Recipe) -> None:
    """Let this process read only the first lines of the corpora."""
    held_out = bitext.RecipeFiles.of(recipe).held_out.values()
    dev = {path for corpus in held_out for path in (*corpus.sides, *corpus.other_refs)}

    def first_lines(path: Path, *options: Any, **named: Any) -> Iterator[str]:
        limit = DEV_LINES if path in dev else LINES
        return itertools.islice(read_lines(path, *options, **named), limit)

    bitext.read_lines = first_lines


def _die_before(owner: Any, name: str, call: int) -> None:
    """Let this process kill itself before a call of a function; the first is 1."""
    real, calls = getattr(owner, name), itertools.count(1)

    def function(*arguments: Any, **named: Any) -> Any:
        if next(calls) == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **named)

    setattr(owner, name, function)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
