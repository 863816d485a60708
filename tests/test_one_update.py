"""docs/one-update.md: every block of code is in the function that the page names."""

from __future__ import annotations

import ast
import re
from textwrap import dedent

import pytest

from tests.test_papers import ROOT

TEXT = (ROOT / "docs/one-update.md").read_text(encoding="utf-8")
QUOTES = re.findall(r"^`(nmt/\S+\.py)`, `([\w.]+)`:\n\n```python\n(.*?)^```$", TEXT, re.M | re.S)


def function(source: str, name: str) -> str:
    """Return the lines of a function or of ``Class.method``."""
    body = ast.parse(source).body
    for part in name.split("."):
        node = next(node for node in body if getattr(node, "name", None) == part)
        body = node.body
    return "\n".join(source.splitlines()[node.lineno - 1 : node.end_lineno])


def is_quoted(quote: str, source: str) -> bool:
    """Return whether the lines between ``...`` follow each other in a source, in this order."""
    rest = source.splitlines()
    for part in re.split(r"^ *\.\.\.\n", quote, flags=re.M):
        expected = dedent(part).splitlines()
        size = len(expected)
        while len(rest) >= size and dedent("\n".join(rest[:size])).splitlines() != expected:
            rest = rest[1:]
        if len(rest) < size:
            return False
        rest = rest[size:]
    return True


def test_every_block_is_a_quote():
    assert len(QUOTES) == TEXT.count("```python") > 9


@pytest.mark.parametrize(("file", "name", "quote"), QUOTES, ids=[name for _, name, _ in QUOTES])
def test_the_code_is_that_of_the_function(file: str, name: str, quote: str):
    source = (ROOT / file).read_text(encoding="utf-8")
    assert is_quoted(quote, function(source, name))


@pytest.mark.parametrize("quote", ["x = 2\n", "y = 1\n...\nx = 1\n", "x = 1\nz = 1\n"])
def test_other_code_is_found(quote: str):
    assert is_quoted("x = 1\n...\nz = 1\n", "def f():\n    x = 1\n    y = 1\n    z = 1")
    assert not is_quoted(quote, "def f():\n    x = 1\n    y = 1\n    z = 1")
