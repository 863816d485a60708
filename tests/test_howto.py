"""The recipe of docs/howto/back-translation.md is what its command says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import yaml

from nmt.config.load import load_recipe
from tests.test_pages import blocks
from tests.words import RECIPE

PAGE = "docs/howto/back-translation.md"


def test_the_recipe_of_the_page_is_what_its_command_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("gl-en.yaml").write_text(yaml.safe_dump(RECIPE), encoding="utf-8")
    [block] = blocks(PAGE, "yaml")
    commands = "".join(block.text for block in blocks(PAGE, "sh")).splitlines()
    [command] = [line for line in commands if "<bt>" in line]
    [_, recipe, *overrides] = shlex.split(command)
    text = Path(recipe).read_text(encoding="utf-8")
    changed = re.sub(r"^  train:.*\n", block.text.removeprefix("data:\n"), text, flags=re.M)
    Path("changed.yaml").write_text(changed, encoding="utf-8")
    by_file = load_recipe(Path("changed.yaml"), ["out=runs/gl-en-bt"])
    assert by_file.data == load_recipe(Path(recipe), overrides).data
