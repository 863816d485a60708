"""Verify for a recipe, on this machine, that a killed and resumed training loses nothing.

Short trainings run in processes of their own, with this module as their program: one that nothing
disturbs, one that is killed again and again, one that prepares the corpus anew in one process, and
one of two processes. All must end alike.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch.distributed import TCPStore

from nmt.config.entries import Entry
from nmt.config.load import changed_keys, dump_recipe, load_recipe, recipe_from_text
from nmt.config.recipe import Recipe
from nmt.data import workers
from nmt.data.bitext import Bitext, RecipeFiles
from nmt.data.download import obtain_corpus
from nmt.data.text import quantity, read_lines
from nmt.errors import MachineError, NmtError, RunError, UserError
from nmt.runtime.cpus import available_cpus, limit_processes, num_threads
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

TRAIN = (sys.executable, "-m", "nmt.apps.verify_resume")
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
LINES, DEV_LINES, CPU_BATCH = 20_000, 20, 1024  # lines of a corpus, tokens of a batch
TIMES = {"seconds", "seconds_left", "tokens_per_second"}
SUMS = ("metric loss ", "metric ppl ", "metric grad_norm ")  # the order of sums changes last digits
TOLERANCE = {"fp32": 1e-3, "bf16": 5e-2, "fp16": 5e-2}  # relative, of SUMS


def verify_resume(recipe: Recipe) -> None:
    """Train a short form of a recipe several times in a temporary folder; print what is equal.

    Raises:
        UserError: the recipe or the data is wrong.
        MachineError: the device, the memory or the disk does not suffice.
        RunError: a training failed, or its results differ.
    """
    recipe = with_keys_of_parent(recipe, resume=False)
    obtain_corpus(recipe)
    device = resolve_device(recipe.device)
    gpu = device.type == "cuda"
    shared = not gpu or (device.index is None and torch.cuda.device_count() > 1)
    with tempfile.TemporaryDirectory(prefix="nmt-verify-resume-") as name:
        short = _shorten(recipe, Path(name), gpu, shared)
        Path(name, "recipe.yaml").write_text(dump_recipe(short), encoding="utf-8")
        print(f"short trainings in {name}; what is changed for them:")
        print(f"  lines of each corpus: at most {LINES:,}; of dev: at most {DEV_LINES}")
        for key, change in changed_keys(recipe, short).items():
            if not key.startswith(("out", "data.train", "data.dev", "segment.learn_from")):
                print(f"  {key}: {change}")
        print(f"one is killed {', '.join(PLACES)}", flush=True)
        total = len(PLACES) + 3 + shared
        with progress_bar("verifying", "trainings", total, slow=True) as bar:
            trainings = _Trainings(Path(name), bar)
            trainings.run(not gpu, short.optim.accumulate // 2 if shared else 0)
    print("\n".join(aligned([("", "promised", "found"), *trainings.rows], left=3)))
    print("not promised: the same bits in another precision, with another number of threads, on "
          "another processor or on a GPU")  # fmt: skip
    if trainings.broken:
        raise RunError(trainings.broken, fix="report it with this table and the recipe")


def _shorten(recipe: Recipe, folder: Path, gpu: bool, shared: bool) -> Recipe:
    """Return the recipe with few updates on the first lines of its corpora, copied to a folder."""
    data, files = recipe.data, RecipeFiles.of(recipe, recipe.init.adapts)
    names = itertools.count()

    def cut(key: str, entries: Sequence[Entry], corpora: Iterable[Bitext], limit: int) -> str:
        values = []
        for entry, corpus in zip(entries, corpora, strict=False):
            path = f"{folder / str(next(names))}{'.tsv' * corpus.table}"
            sides = [path] if corpus.table else [f"{path}.{lang}" for lang in corpus.langs]
            for source, target in zip(corpus.sides, sides, strict=False):
                lines = itertools.islice(read_lines(source, clean=False), limit)
                Path(target).write_bytes("".join(f"{line}\n" for line in lines).encode())
            changes = {"path": path, **({"other_refs": []} if corpus.other_refs else {})}
            values.append(entry.model_copy(update=changes).model_dump(mode="json"))
        return f"{key}={json.dumps(values)}"

    changes = [*CHANGES, f"out={folder / 'run'}", cut("data.train", data.train, files.train, LINES)]
    changes.append(cut("data.dev", data.dev, files.held_out.values(), DEV_LINES))
    if files.learn:
        learn = recipe.segment.learning_entries
        changes.append(cut("segment.learn_from", learn, files.learn, LINES))
    if not gpu:
        most = CPU_BATCH if recipe.translates else max(CPU_BATCH, data.block)
        changes.append(f"data.batch_tokens={min(data.batch_tokens, most)}")
    if shared:  # an even number of batches
        changes.append(f"optim.accumulate={recipe.optim.accumulate + recipe.optim.accumulate % 2}")
    return recipe_from_text(dump_recipe(recipe), "recipe", changes)


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
        self.train("anew/run", processes=1)
        self.compare("anew/run", "corpus prepared anew, by one process", bitwise)
        if half:
            self.train("shared", f"optim.accumulate={half}", ranks=2)
            self.compare("shared", f"2 processes with optim.accumulate={half} each", False)
        else:
            self.rows.append(("2 processes", "", "not tried: needs device: cuda and two GPUs"))

    def train(
        self, run: str, *overrides: str, kill: str = "", processes: int = 0, ranks: int = 1
    ) -> bool:
        """Train, or continue, in other processes; return whether ``kill``, of PLACES, ended it.

        Args:
            processes: that prepare the corpus; 0 = as many as there are CPUs.
            ranks: processes that train together.
        """
        command = [*TRAIN, kill, str(processes or available_cpus())]
        command += [str(self.folder / "recipe.yaml"), f"out={self.folder / run}", *overrides]
        environment = {**os.environ, PARENT: str(os.getpid())}
        if ranks > 1:  # what torchrun sets, whose processes would survive a killed torchrun
            store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            environment |= {
                "TORCHELASTIC_RUN_ID": "verify", "TORCHELASTIC_USE_AGENT_STORE": "True",
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port),
                "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": str(max(1, num_threads() // ranks)),
            }  # fmt: skip
        children, log = [], self.folder / "errors.txt"
        try:
            with open(log, "wb") as out:
                for rank in map(str, range(ranks)):
                    own = {**environment, "RANK": rank, "LOCAL_RANK": rank}
                    children.append(subprocess.Popen(
                        command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=own,
                        start_new_session=True,  # Ctrl-C reaches only this process
                    ))  # fmt: skip
            codes = [child.wait() for child in children]
        finally:
            for child in children:
                child.kill()
                child.wait()
        self.bar.update()
        for code in set(codes) - ({0, -signal.SIGKILL} if kill else {0}):
            reason = log.read_text("utf-8", "replace").strip() or f"exit code {code}"
            raise {2: UserError, 4: MachineError}.get(code, RunError)(f"training failed: {reason}")
        return any(codes)

    def compare(self, run: str, what: str, bitwise: bool) -> None:
        """Add a row for a run, and remove the run."""
        expected, found = self.expected, _results(self.folder / run)
        differ = [n for n in expected | found if expected.get(n) != found.get(n)]
        gap = max(
            (_gap(expected.get(n), found.get(n)) for n in differ if n.startswith(SUMS)), default=0.0
        )
        tolerance = TOLERANCE[read_summary(RunFolder(self.folder / "run"))["precision"]]
        promise = "bit for bit" if bitwise else f"loss, ppl, |g| within {tolerance:g}"
        result = f"equal: {len(expected):,} tensors, metrics and files"
        if differ and not bitwise:
            result = f"largest difference {gap:.1e}"
        elif differ:
            first = {name.split(" ")[0]: name for name in reversed(differ)}
            result = f"{len(differ):,} differ; first {', '.join(first.values())}"
        if differ and (bitwise or gap > tolerance):
            self.broken = self.broken or f"{what}: {result}"
        self.rows.append((what, promise, result))
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
            found[f"tensor {name} of {path.name}"] = hashlib.sha256(data).hexdigest()
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
    kill, processes, file, *overrides = arguments
    if kill:
        owner, name, call = PLACES[kill]
        real, calls = getattr(owner, name), itertools.count(1)

        def killed(*arguments: Any, **named: Any) -> Any:
            if next(calls) == call:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **named)

        setattr(owner, name, killed)
    if int(processes) > 1:  # also for small corpora
        workers.MIN_PARALLEL_CHUNKS, workers.CHUNK = 1, 100
    try:
        with init_distributed() as world, limit_processes(int(processes)):
            if not world.is_main:
                train_in_other_process(world)
                return 0
            run = open_run(load_recipe(file, overrides), resume=True, world=world)
            if not run.finished:
                Training(run, world, quiet=True).run(lambda run, log: None)
    except NmtError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
