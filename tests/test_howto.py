"""The commands of docs/howto/back-translation.md run as printed, in order, on a toy corpus."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from nmt.cli import score, train, translate
from nmt.config.load import load_recipe
from tests.toy import lines_of_digits, reverse, toy_corpus, toy_recipe

PAGE = Path(__file__).parents[1] / "docs" / "howto" / "back-translation.md"
MAINS = {"nmt-train": train.main, "nmt-translate": translate.main, "nmt-score": score.main}


def blocks(language: str) -> list[str]:
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def write(name: str, lines: list[str]) -> None:
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with gl-en.yaml, its corpus, and text of both languages."""
    monkeypatch.chdir(tmp_path)
    toy_corpus(Path("data/gl-en"), longest=3)  # too short for a repetition loop
    recipe = toy_recipe(
        Path(),
        {
            "data": {split: f"data/gl-en/{split}" for split in ("train", "dev", "test")},
            "train": {"validate_every": 30, "max_validations": 1},
            "decode": {"max_len_offset": 10},
            "out": "",
        },
    )
    recipe.rename("gl-en.yaml")
    lines = lines_of_digits(60, seed=9, longest=3)
    known = Path("data/gl-en/train.en").read_text(encoding="utf-8").splitlines()[:5]
    write("data/ar-en/train.en", [*map(reverse, lines[:40]), *known])
    write("mono.gl", lines[40:])
    return tmp_path


def test_back_translation_word_for_word(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands = "".join(blocks("sh")).splitlines()
    for command in commands:
        words = shlex.split(command)
        if words[0] in MAINS:
            assert MAINS[words[0]](words[1:]) == 0, command + capsys.readouterr().err
        elif words[0] == "grep":
            subprocess.run(command, shell=True, check=True)
        else:
            assert words[:3] == ["python", "-m", "data_prep.ted_talks"]  # needs a network
    reverse_model = load_recipe(Path("runs/en-gl/config.yaml"))
    assert (reverse_model.src, reverse_model.tgt) == ("en", "gl")
    known, text, mono = (
        set(Path(name).read_text(encoding="utf-8").splitlines())
        for name in ("data/gl-en/train.en", "data/ar-en/train.en", "mono.en")
    )
    assert mono == text - known < text
    for name, text in (("bt.en", "mono.en"), ("st.gl", "mono.gl")):
        counts = json.loads(Path(f"data/{name[:2]}.json").read_text())["pairs"]
        assert counts["kept"] + sum(counts["dropped"].values()) == counts["read"]
        kept = Path(f"data/{name}").read_text(encoding="utf-8").splitlines()
        assert len(kept) == counts["kept"] > 0
        assert set(kept) <= set(Path(text).read_text(encoding="utf-8").splitlines())
    report = json.loads(Path("data/distilled.json").read_text())
    assert report["translation"]["run"] == ["runs/gl-en", "runs/gl-en-2"]
    assert report["pairs"]["kept"] > 0
    trained = {path.name for path in Path("runs").iterdir()}
    assert {"gl-en", "en-gl", "gl-en-bt", "gl-en-st", "gl-en-2", "gl-en-student"} <= trained


def test_the_recipe_of_the_page_is_what_its_command_says(folder: Path) -> None:
    [block] = blocks("yaml")
    [command] = [line for line in "".join(blocks("sh")).splitlines() if "<bt>" in line]
    [_, recipe, *overrides] = shlex.split(command)
    text = Path(recipe).read_text(encoding="utf-8")
    changed = re.sub(r"^  train:.*\n", block.removeprefix("data:\n"), text, flags=re.M)
    Path("changed.yaml").write_text(changed, encoding="utf-8")
    by_file = load_recipe(Path("changed.yaml"), ["out=runs/gl-en-bt"])
    assert by_file.data == load_recipe(Path(recipe), overrides).data
