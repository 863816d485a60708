"""Kill the commands again and again: what they write equals what an undisturbed command writes.

    python -m tests.long.kill_storm --kills 500 --seed 1

Each command runs in a process of its own, on a small corpus. A fault ends it: a signal at a random
moment, death before a random file operation (rename, fsync, mkdir, link, unlink), or a disk that is
full after a random number of bytes. Then the command is started again, with ``--resume`` where it
has that option. When it has ended by itself, its files are compared with those of a command that
nothing disturbed: weights, metrics, translations, all bytes except times.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from nmt.runtime.files import TEMPORARY
from tests import final_reports
from tests.apps.transformers import folders
from tests.text_toy import text_corpus, text_recipe
from tests.toy import lines_of_digits, toy_corpus, toy_recipe, write_lines

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
OPERATIONS = ("rename", "replace", "fsync", "mkdir", "link", "unlink")
DIED = 137  # exit code of a process that a file operation ends
# exit codes that a fault may cause; a signal may come before the command handles it
CODES = {
    "signal": {130, *(128 + number for number in SIGNALS), *(-number for number in SIGNALS)},
    "operation": {DIED},
    "full disk": {3, 4},  # 3: nmt-sweep, where a training had no space
}
# not compared: times and what follows from them, lines for people, locks, and what a later command
# makes where a kill prevented it; drafts of a killed command (.tmp-) are not counted either
TIMES = {"seconds", "hours", "tokens_per_second", "seconds_left", "sha256", "commit", "date"}
NOT_COMPARED = {
    "train.log",
    "manifest.json",
    "report.html",
    "lock",
    "lock.json",
    "ctranslate2",
    "logs",
    "results.csv",
}
NOISY = {"kind": "fastbpe", "merges": 12, "dropout": 0.1, "draws": 3}
MUON = {"kind": "muon", "betas": [0.9, 0.98]}
LINEAR = {"kind": "linear", "lr": 3e-3, "warmup_updates": 4, "total_updates": 60}
DECAY = {"kind": "val_decay", "scale": 0.1, "warmup_updates": 4, "patience": 1}
# the recipes of nmt-train
TRAININGS: dict[str, dict[str, Any]] = {
    "adam, val_decay": {"schedule": DECAY},
    "radam, no_warmup": {"optim": {"kind": "radam"}, "schedule": {"kind": "no_warmup"}},
    "muon, linear, draws": {"optim": MUON, "schedule": LINEAR, "segment": NOISY},
    "adafactor, inverse_sqrt": {
        "optim": {"kind": "adafactor"}, "schedule": {"kind": "inverse_sqrt", "warmup_updates": 9},
    },
    "adamw, accumulate, bf16": {
        "optim": {"kind": "adamw", "accumulate": 2, "weight_decay": 0.01}, "precision": "bf16",
    },
    "lr_ramp": {"schedule": {"kind": "lr_ramp", "lr_per_update": 1e-4}},
    "mixture": {
        "data": {"train": [{"path": "train", "weight": 2}, {"path": "more", "tag": "<more>"}]},
    },
    "parent": {"init": {"from": "trained", "vocab": "parent"}},
    "LoRA": {"init": {"from": "trained", "vocab": "parent"}, "lora": {"rank": 2}},
}  # fmt: skip
TRAINING = {
    "model": {"dropout": 0.3},
    "train": {"validate_every": 20, "max_validations": 3, "log_every": 5, "keep": 2},
}


@dataclass(frozen=True)
class Case:
    """A command that is killed.

    Attributes:
        argv: of ``nmt``, relative to the folder of the case.
        again: what is added when it is started again.
    """

    name: str
    argv: Sequence[str]
    again: Sequence[str] = ()


def make_files(folder: Path) -> None:
    """Write the corpora, the recipes, a trained model and documents that the cases need."""
    toy_corpus(folder, {"train": 150, "dev": 8, "test": 8, "more": 40})
    trained = str(toy_recipe(folder).rename(folder / "trained.yaml"))
    for number, changes in enumerate(TRAININGS.values()):
        merged = {**TRAINING, **changes}
        merged["train"] = {**TRAINING["train"], **changes.get("train", {})}
        toy_recipe(folder, merged).rename(folder / f"{number}.yaml")
    (folder / "text").mkdir()
    text_corpus(folder / "text")
    for task in ("causal_lm", "masked_lm"):
        text_recipe(folder / "text", task, {"train": {"validate_every": 20, "max_validations": 3}})
    variants = {name: {"about": name, "seed": seed} for name, seed in (("a", 1), ("b", 2))}
    (folder / "v.yaml").write_text(json.dumps({"base": "trained.yaml", "variants": variants}))
    folders.marian(folder / "opus")
    lines = lines_of_digits(400, seed=9, longest=12)
    write_lines(folder / "lines.gl", lines)
    for number in range(8):
        paragraphs = "\n\n".join(lines[20 * number : 20 * number + 20])
        (folder / f"{number}.md").write_text(f"# {paragraphs}\n", encoding="utf-8")
    code = run(folder, ["train", trained, f"out={folder / 'trained'}"])
    if code:
        raise SystemExit(f"the model that the cases need cannot be trained: exit code {code}")


def cases() -> list[Case]:
    """Return all commands; they write below ``out``."""
    resume, documents = ["--resume"], [f"{number}.md" for number in range(8)]
    return [
        *(
            Case(f"nmt-train: {name}", ["train", f"{number}.yaml", "out=out/run"], resume)
            for number, name in enumerate(TRAININGS)
        ),
        *(
            Case(f"nmt-train: {task}", ["train", f"text/{task}.yaml", "out=out/run"], resume)
            for task in ("causal_lm", "masked_lm")
        ),
        Case("nmt-prepare", ["prepare", "2.yaml", "out=out/run"]),
        Case("nmt-convert", ["convert", "opus", "-o", "out/model", "--src-lang", "eng",
                             "--tgt-lang", "fra"], ["--force"]),
        Case("nmt-export", ["export", "trained", "-o", "out/export", "--quantization", "int8"],
             ["--force"]),
        Case("nmt-average", ["average", "trained", "--checkpoints", "u000004", "u000012", "-o",
                             "out/model"], ["--force"]),
        Case("nmt-sweep", ["sweep", "v.yaml", "--output", "out/sweep"]),
        Case("nmt-translate", ["translate", "trained", "--input", "lines.gl", "-o",
                               "out/lines.en"], resume),
        Case("nmt-documents", ["documents", "trained", *documents, "-o", "out/docs"], resume),
        Case("nmt-synthesize", ["synthesize", "trained", "--input", "lines.gl", "-o", "out/bt",
                                "--max-copied", "1"], resume),
    ]  # fmt: skip


# ---------------------------------------------------------------- faults


@dataclass(frozen=True)
class Fault:
    """What ends a process.

    Attributes:
        kind: signal, operation or full disk.
        at: seconds after the start, number of the operation, or bytes of a file.
        signal: for the kind signal.
    """

    kind: str
    at: float
    signal: int = signal.SIGKILL

    def __str__(self) -> str:
        what = signal.Signals(self.signal).name if self.kind == "signal" else self.kind
        return f"{what} at {self.at:.3g}"


def run(folder: Path, argv: Sequence[str], fault: Fault | None = None) -> int:
    """Run ``nmt`` in a child process in a folder; return its exit code, or minus the signal."""
    child = start(folder, argv, fault)
    if fault is not None and fault.kind == "signal":
        deadline = time.monotonic() + fault.at
        while time.monotonic() < deadline and not has_ended(child):
            time.sleep(0.005)
        os.kill(child, fault.signal)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def has_ended(child: int) -> bool:
    """Return whether a child process has ended."""
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


def start(folder: Path, argv: Sequence[str], fault: Fault | None = None) -> int:
    """Start ``nmt`` in a folder; return the id of the process."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            os.chdir(folder)
            with open("log.txt", "ab") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            sys.stdout, sys.stderr = open(1, "w"), open(2, "w")  # noqa: SIM115
            # as in a new process: forks share the lock of transformers' bars, and one that was
            # killed may hold it
            tqdm.set_lock(threading.RLock())
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup lets the storm ignore it
            code = _command(argv, fault)
        except KeyboardInterrupt:  # before the command handles it
            code = 130
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        finally:
            os._exit(code)
    return child


def _command(argv: Sequence[str], fault: Fault | None) -> int:
    import torch

    from nmt.cli.main import main

    torch.set_num_threads(1)
    final_reports.leave_out()  # drawing takes longer than these trainings
    if fault is not None and fault.kind == "full disk":
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(fault.at), resource.RLIM_INFINITY))
    count_operations(fault.at if fault is not None and fault.kind == "operation" else None)
    return main(argv)


def count_operations(last: float | None) -> None:
    """Count the file operations of this process in the file ``operations``; die before ``last``."""
    counter = os.open("operations", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*arguments: Any, **named: Any) -> Any:
            os.write(counter, b".")
            if last is not None and os.fstat(counter).st_size >= last:
                os._exit(DIED)
            return real(*arguments, **named)

        return operation

    for name in OPERATIONS:
        setattr(os, name, counted(getattr(os, name)))


# ---------------------------------------------------------------- results


def result(folder: Path) -> dict[str, Any]:
    """Return the content of all files of a folder, without times and lines for people."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if not path.is_file() or NOT_COMPARED & {*parts} or path.name.endswith(".lock"):
            continue
        if any(part.startswith(TEMPORARY) for part in parts):
            continue
        content: Any = path.read_bytes()
        if path.suffix in (".json", ".jsonl"):
            content = [_timeless(json.loads(row)) for row in _records(path, content)]
        found[str(path.relative_to(folder))] = content
    return found


def _records(path: Path, content: bytes) -> list[bytes]:
    return content.splitlines() if path.suffix == ".jsonl" else [content]


def _timeless(value: Any) -> Any:
    if isinstance(value, list):
        return list(map(_timeless, value))
    if not isinstance(value, Mapping):
        return value
    return {name: _timeless(inner) for name, inner in value.items() if name not in TIMES}


def difference(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Name the files that only one has, or that differ."""
    return [name for name in sorted(a.keys() | b.keys()) if a.get(name) != b.get(name)]


# ---------------------------------------------------------------- the storm


class Storm:
    """Kill one command until it was killed often enough.

    Args:
        files: what ``make_files`` wrote.
        scratch: an empty folder.
    """

    def __init__(self, case: Case, files: Path, scratch: Path, rng: random.Random) -> None:
        self.case, self.files, self.scratch, self.rng = case, files, scratch, rng
        self.kills: Counter[str] = Counter()
        self.failures: list[str] = []
        folder = self._fresh("expected")
        started = time.monotonic()
        if code := run(folder, case.argv):
            raise SystemExit(f"{case.name}: exit code {code}; see {folder / 'log.txt'}")
        self.seconds = time.monotonic() - started
        self.operations = (folder / "operations").stat().st_size
        self.expected = result(folder / "out")
        self.bytes = max(path.stat().st_size for path in (folder / "out").rglob("*"))

    def _fresh(self, name: str) -> Path:
        folder = self.scratch / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for path in self.files.iterdir():
            (folder / path.name).symlink_to(path)
        (folder / "log.txt").unlink(missing_ok=True)
        (folder / "operations").unlink(missing_ok=True)
        (folder / "out").mkdir()
        return folder

    def _fault(self) -> Fault:
        kind = self.rng.choice(["signal", "signal", "operation", "full disk"])
        if kind == "signal":
            at = self.rng.uniform(0, self.seconds)
            return Fault(kind, at, self.rng.choice(SIGNALS))
        return Fault(kind, self.rng.randint(1, self.operations if kind == "operation" else
                                            self.bytes))  # fmt: skip

    def round(self, kills: int) -> None:
        """Start the command, kill it up to ``kills`` times, let it end, and compare its files."""
        folder, faults, argv = self._fresh("killed"), [], list(self.case.argv)
        for _ in range(kills):
            fault = self._fault()
            code = run(folder, argv, fault)
            argv = [*self.case.argv, *self.case.again]
            if code == 0 or (code == 2 and faults):  # it ended before its fault; 2: see below
                break
            faults.append(str(fault))
            self.kills[fault.kind] += 1
            if code not in CODES[fault.kind]:
                self._fail(folder, f"exit code {code}", faults)
                return
        code = run(folder, argv)
        if code not in (0, 2):  # 2: it was killed after its last step, so the output exists
            self._fail(folder, f"cannot be finished: exit code {code}", faults)
        elif differ := difference(result(folder / "out"), self.expected):
            self._fail(folder, f"other files: {', '.join(differ)}", faults)

    def _fail(self, folder: Path, what: str, faults: Sequence[str]) -> None:
        self.failures.append(f"{what}, after {'; '.join(faults)}")
        folder.rename(self.scratch / f"failure-{len(self.failures)}")


def kill_server(files: Path, scratch: Path, rng: random.Random, kills: int) -> list[str]:
    """Kill nmt-serve while it stores corrections; return the promises that it broke.

    Each correction that it has confirmed must be in its file, and the file must be readable.
    """
    scratch.mkdir()
    (scratch / "trained").symlink_to(files / "trained")
    file, confirmed, failures = scratch / "corrections.tsv", [], []
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    argv = ["serve", "trained", "--port", port, "--corrections", file.name]
    for number in range(kills):
        child, signals = start(scratch, argv), rng.choice(SIGNALS)
        while not _answers(f"http://127.0.0.1:{port}/health") and not has_ended(child):
            time.sleep(0.05)
        count, killer = 0, threading.Timer(rng.uniform(0, 0.5), os.kill, (child, signals))
        while not has_ended(child):
            if count == 1:
                killer.start()
            count += 1
            text = f"{number} {count}"
            body = {"q": text, "s": text, "source": "gl", "target": "en"}
            if _answers(f"http://127.0.0.1:{port}/suggest", json.dumps(body).encode()):
                confirmed.append(text)
        killer.join()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code not in CODES["signal"] | {0}:
            failures.append(f"exit code {code} after {signals.name}")
        rows = [line.split("\t")[0] for line in file.read_text("utf-8").splitlines()[1:]]
        if lost := {*confirmed} - {*rows}:
            failures.append(f"lost corrections after {signals.name}: {', '.join(sorted(lost))}")
    return failures if confirmed else [*failures, "no correction was ever confirmed"]


def _answers(url: str, body: bytes | None = None) -> bool:
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def main(argv: Sequence[str] | None = None) -> int:
    """Print a row for each command; return 1 if a promise was broken, else 0."""
    parser = argparse.ArgumentParser(prog="kill_storm", description=__doc__.split("\n\n")[0])
    parser.add_argument("--kills", type=int, default=500, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--only", default="", help="regular expression of the commands")
    parser.add_argument("--keep", action="store_true", help="keep the folders, for debugging")
    args = parser.parse_args(argv)
    chosen = [case for case in cases() if re.search(args.only, case.name)]
    scratch = Path(tempfile.mkdtemp(prefix="kill-storm-"))
    (scratch / "files").mkdir()
    make_files(scratch / "files")
    rng, failures, total = random.Random(args.seed), [], Counter[str]()
    print("| command | kills by signals | at file operations | by a full disk | rounds | broken |")
    print("|---|---:|---:|---:|---:|---:|", flush=True)
    for number, case in enumerate(chosen):
        own = scratch / f"case-{number}"
        own.mkdir()
        storm, rounds = Storm(case, scratch / "files", own, rng), 0
        goal = (number + 1) * args.kills // len(chosen) - number * args.kills // len(chosen)
        while (left := goal - storm.kills.total()) > 0:
            storm.round(min(left, rng.randint(1, 6)))
            rounds += 1
        counts = [storm.kills[kind] for kind in CODES]
        row = [case.name, *counts, rounds, len(storm.failures)]
        print(f"| {' | '.join(map(str, row))} |", flush=True)
        total += storm.kills
        failures += [f"{case.name}: {failure}" for failure in storm.failures]
    if re.search(args.only, "nmt-serve"):
        goal = max(1, args.kills // 20)
        lost = kill_server(scratch / "files", scratch / "server", rng, goal)
        print(f"| nmt-serve with corrections | {goal} | 0 | 0 | 1 | {len(lost)} |")
        total["signal"] += goal
        failures += [f"nmt-serve: {failure}" for failure in lost]
    print(f"\n{total.total()} kills, seed {args.seed}, {len(failures)} promises broken")
    for failure in failures:
        print(failure)
    if args.keep or failures:
        print(f"the folders are in {scratch}")
    else:
        shutil.rmtree(scratch)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
