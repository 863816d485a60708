"""The Dockerfile: what it installs and copies, and that its command answers. No test builds it."""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
import subprocess
import sys

import pytest

from nmt.apps.serve.command import KEY_VARIABLE, parser
from tests.apps.serve.conftest import KEY
from tests.apps.serve.process import ROOT, SECONDS


@pytest.fixture(scope="module")
def steps() -> list[tuple[str, str]]:
    """The instructions and their arguments, without comments."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    return [(step.split(maxsplit=1)[0], step.split(maxsplit=1)[1]) for step in lines if step]


def arguments(steps: list[tuple[str, str]], name: str) -> list[str]:
    return [value for step, value in steps if step == name]


def test_it_installs_what_the_readme_says_with_the_tested_versions(steps):
    (command,) = [shlex.split(run) for run in arguments(steps, "RUN") if run.startswith("pip")]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (pinned,) = {
        tuple(shlex.split(found))
        for found in re.findall(r"`(pip install -c [^`]*serve[^`]*)`", readme)
    }
    options = {"--no-cache-dir", "--extra-index-url", "https://download.pytorch.org/whl/cpu"}
    assert [word for word in command if word not in options] == [
        word for word in pinned if word != "-e"
    ]
    offline = (ROOT / "docs/howto/offline.md").read_text(encoding="utf-8")
    assert "--extra-index-url https://download.pytorch.org/whl/cpu" in offline


def test_what_it_copies_exists_and_is_all_that_an_installation_reads(steps):
    copied = [word for copy in arguments(steps, "COPY") for word in copy.split()[:-1]]
    assert all((ROOT / name).exists() for name in copied)
    config = (ROOT / "setup.cfg").read_text(encoding="utf-8")
    named = re.findall(r"^(?:long_description = file: |license_files = )(\S+)$", config, re.M)
    assert {"setup.cfg", "pyproject.toml", "constraints.txt", *named} <= set(copied)
    packages = re.findall(r"^    (\w+)\*$", config, re.M)
    assert packages
    assert set(packages) <= set(copied)
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    sent = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    assert set(copied) == sent
    assert "__pycache__" in [line.rpartition("/")[2] for line in ignored]
    assert fnmatch.fnmatch("runs", ignored[0])


def test_it_runs_without_the_rights_of_root(steps: list[tuple[str, str]]) -> None:
    names = [name for name, _ in steps]
    (user,) = arguments(steps, "USER")
    assert user not in ("root", "0")
    assert names.index("USER") > max(i for i, name in enumerate(names) if name in ("RUN", "COPY"))
    assert names.index("USER") < names.index("ENTRYPOINT")


@pytest.mark.slow
def test_it_starts_a_server_that_is_healthy(steps, run, start):
    """The command with a run folder instead of /model, and another port."""
    entry, command = (json.loads(*arguments(steps, name)) for name in ("ENTRYPOINT", "CMD"))
    volumes = json.loads(*arguments(steps, "VOLUME"))
    program, *argv = [*entry, *command]
    assert program == "nmt-serve"
    assert set(command) <= set(volumes)
    parsed = parser().parse_args(argv)
    assert arguments(steps, "EXPOSE") == [str(parsed.port)]
    server = start(*(run if word in volumes else word for word in argv), **{KEY_VARIABLE: KEY})
    (health,) = arguments(steps, "HEALTHCHECK")
    words = shlex.split(health.partition(" CMD ")[2])
    assert words[0] == "python"
    for port, healthy in ((server.port, True), (1, False)):
        check = [sys.executable, *(word.replace(str(parsed.port), str(port)) for word in words[1:])]
        done = subprocess.run(check, check=False, timeout=SECONDS, capture_output=True)
        assert (done.returncode == 0) == healthy
