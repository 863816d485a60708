"""Give changed inputs to each reader of strangers' files for some time, guided by coverage.

``pip install atheris``, then ``python -m tests.long.fuzz --seconds 60``. It prints the inputs that
each reader got, and what it did besides reading and refusing: another exception, over 5 seconds, a
crash. The inputs of those are in a folder, and the exit code is then 1.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

SLOW = 5.0  # seconds of processor time
NAME = re.compile(r"\W+")


def fuzz(name: str, seconds: int, folder: Path) -> None:
    """Fuzz one reader in this process, which then ends."""
    import atheris

    with atheris.instrument_imports(include=["nmt", "data_prep"]):
        from tests import fuzzing
    target = fuzzing.target(name)
    seeds = folder / "seeds"
    seeds.mkdir(parents=True)
    for number, example in enumerate(target.examples):
        (seeds / str(number)).write_bytes(example)
    seen: set[str] = set()

    def keep(data: bytes, fault: str) -> None:
        if fault not in seen:
            seen.add(fault)
            (folder / f"fault-{len(seen)}").write_bytes(data)
            with open(folder / "faults", "a") as file:
                file.write(f"{fault}\n")

    def one(data: bytes) -> None:
        started = time.process_time()
        try:
            fuzzing.refuses(target, data)
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            place = next(f for f in reversed(frames) if "tests" not in f.filename)
            keep(data, f"{type(error).__name__} at {place.filename}:{place.lineno}")
        if time.process_time() - started > SLOW:
            keep(data, "slow")

    settings = [f"-max_total_time={seconds}", "-timeout=60", "-rss_limit_mb=4096"]
    settings += ["-print_final_stats=1", f"-artifact_prefix={folder}/", "-max_len=65536"]
    atheris.Setup([sys.argv[0], *settings, str(seeds)], one)
    atheris.Fuzz()


def main() -> int:
    """Fuzz each reader in a process of its own, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="READER", help="default: all")
    parser.add_argument("--seconds", type=int, default=60, help="for each; default: %(default)s")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        fuzz(args.targets[0], args.seconds, args.worker)
    if not args.targets:
        from tests import fuzzing

        args.targets = list(fuzzing.TARGETS)
    root, failed = Path(tempfile.mkdtemp(prefix="nmt-fuzz-")), False
    print(f"reader\tinputs\tfaults\t(files in {root})", flush=True)
    for name in args.targets:
        folder = root / NAME.sub("-", name)
        command = [sys.executable, "-m", "tests.long.fuzz", name, "--seconds", str(args.seconds)]
        ran = subprocess.run([*command, "--worker", folder], capture_output=True, text=True)
        inputs = re.search(r"number_of_executed_units:\s*(\d+)", ran.stderr)
        found = [f.read_text() for f in folder.glob("faults")]
        found += [
            file.name for kind in ("crash-*", "timeout-*", "oom-*") for file in folder.glob(kind)
        ]
        if ran.returncode and not found:
            found.append(ran.stderr[-1000:])
        failed |= bool(found)
        print(name, inputs and inputs[1], "".join(found).strip() or "none", sep="\t", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
