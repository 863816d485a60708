"""What a visitor of the repository looks for: CI, hooks before a commit, the form of a report."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
CI = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
SUPPORTED = (ROOT / "setup.cfg").read_text(encoding="utf-8")


def read(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def test_github_runs_the_complete_checks_and_the_plain_tests_on_supported_versions() -> None:
    jobs = read(".github/workflows/ci.yml")["jobs"]
    commands = {name: [step.get("run") for step in job["steps"]] for name, job in jobs.items()}
    assert "bash .ci/run" in commands["complete"]
    assert commands["tests"][-2:] == ['pip install -c constraints.txt -e ".[test]"', "pytest"]
    for version in ["3.11", *jobs["tests"]["strategy"]["matrix"]["python"]]:
        assert f"Python :: {version}\n" in SUPPORTED


def test_the_hooks_before_a_commit_are_the_checks_of_ci() -> None:
    (local,) = read(".pre-commit-config.yaml")["repos"]
    entries = [hook["entry"] for hook in local["hooks"]]
    lint = CI[CI.index("ruff check .") : CI.index("mypy") + 1]
    assert entries == [line.removesuffix(" .") for line in lint]


def test_a_report_of_a_bug_asks_for_version_recipe_and_message() -> None:
    fields = read(".github/ISSUE_TEMPLATE/bug.yml")["body"]
    assert {one["id"] for one in fields if one.get("validations", {}).get("required")} == {
        "version", "recipe", "message"
    }  # fmt: skip
    assert "nmt --version" in fields[0]["attributes"]["description"]


def test_the_picture_in_the_readme_shows_the_page_of_today() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "figures" / "tutorial_page.py"))
    stored = script["DIGEST"].read_text(encoding="utf-8").split()[0]
    assert stored == script["digest"](), f"the page has changed; run: {script['COMMAND']}"
