"""The core works without the programs on top of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_architecture import FILES, ROOT, module
from tests.toy import lines_of_digits, toy_corpus, toy_recipe

# an editable installation would find nmt.apps elsewhere
PROGRAM = """
import sys
sys.meta_path = [f for f in sys.meta_path if "editable" not in getattr(f, "__module__", "")]
from nmt.cli.main import main
sys.exit(main())
"""


def test_only_hooks_names_the_apps() -> None:
    core = [path for path in FILES if not module(path).startswith("nmt.apps")]
    named = {module(path) for path in core if '"nmt.apps' in path.read_text(encoding="utf-8")}
    assert named == {"nmt.hooks"}


@pytest.mark.slow
def test_it_trains_translates_and_exports(tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    shutil.copytree(ROOT / "nmt", tmp_path / "nmt", ignore=shutil.ignore_patterns("apps"))
    run, line = tmp_path / "run", lines_of_digits(1)[0]

    def command(*words: str, text: str = "") -> str:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *words],
            input=text,
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    listed = {row.split()[0] for row in command("--help").splitlines() if row.startswith("  ")}
    assert "train" in listed
    assert not {"score", "report", "sweep", "serve", "plot"} & listed
    toy_corpus(tmp_path)
    recipe = toy_recipe(tmp_path, {"train": {"max_validations": 1}})
    command("train", str(recipe))
    assert not (run / "report.html").exists()
    assert len(command("translate", str(run), text=f"{line}\n").splitlines()) == 1
    command("export", str(run))
    assert (run / "export" / "ctranslate2" / "model.bin").is_file()
