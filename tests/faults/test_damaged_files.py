"""Each file of a run folder and of an export is damaged: the same results, or an error by name.

A guard over all files, also those that are added later: never a traceback, never silently other
translations or scores.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import ModuleType

import pytest

from nmt.cli import export, score, train, translate
from tests.toy import lines_of_digits, toy_corpus, toy_recipe

pytestmark = pytest.mark.slow

TRAINING = {
    "data": {"tokenized": False},
    "segment": {"kind": "fastbpe", "merges": 12},
    "train": {"validate_every": 4, "max_validations": 2, "keep": 2, "log_every": 4},
}
FLIPS = 2  # bits of each file, one at a time


def flip(content: bytes, random: Random) -> bytes:
    place = random.randrange(len(content))
    bit = bytes([content[place] ^ 1 << random.randrange(8)])
    return content[:place] + bit + content[place + 1 :]


def cut(content: bytes, random: Random) -> bytes:
    return content[: random.randrange(len(content))]


def empty(content: bytes, random: Random) -> bytes:
    return b""


DAMAGES: list[Callable[[bytes, Random], bytes] | None] = [*[flip] * FLIPS, cut, empty, None]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    toy_corpus(folder, {"train": 60, "dev": 4, "test": 4})
    assert train.main([str(toy_recipe(folder, TRAINING))]) == 0
    (folder / "text").write_text("".join(f"{line}\n" for line in lines_of_digits(6, seed=2)))
    return folder / "run"


def outcome(command: ModuleType, arguments: list[str], capsys) -> str | None:
    """Return what a command prints, or None if it ends with an error for people."""
    capsys.readouterr()
    code = command.main(arguments)
    out, err = capsys.readouterr()
    assert code in (0, 2, 4), err
    assert "Traceback" not in err
    assert "internal error" not in err
    assert (code == 0) or "\n  -> " in err, err
    return out if code == 0 else None


def check_all_files(folder: Path, commands: list[tuple[ModuleType, list[str]]], capsys) -> None:
    """Damage each file of a folder in turn, and compare what the commands print."""
    expected = [outcome(*command, capsys) for command in commands]
    assert None not in expected
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.stat().st_size):
        content = path.read_bytes()
        for number, damage in enumerate(DAMAGES):
            if damage is None:
                path.unlink()
            else:
                path.write_bytes(damage(content, Random(f"{path.name} {number}")))
            for command, before in zip(commands, expected, strict=True):
                found = outcome(*command, capsys)
                assert found in (before, None), (path, damage, command[0].__name__)
            path.write_bytes(content)


def test_every_file_of_a_run(trained: Path, tmp_path: Path, capsys):
    run = str(shutil.copytree(trained, tmp_path / "run"))
    text = ["--input", str(trained.parent / "text")]
    commands = [(translate, [run, *text]), (score, [run, "--resamples", "0", "--metrics", "bleu"])]
    check_all_files(Path(run), commands, capsys)


def test_every_file_of_an_export(trained: Path, tmp_path: Path, capsys):
    pytest.importorskip("ctranslate2")
    folder = str(tmp_path / "model")
    assert export.main([str(trained), "--output", folder]) == 0
    text = ["--input", str(trained.parent / "text")]
    check_all_files(Path(folder), [(translate, [folder, *text])], capsys)
