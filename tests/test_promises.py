"""tests/README.md: each promise names tests that exist; docs/promises.md: the page stays short."""

from __future__ import annotations

import re

import pytest

from tests.test_papers import ROOT, definitions

TABLE = (ROOT / "tests/README.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (?!promise |---)(.+) \| (.+) \| (.+) \|$", TABLE, re.M)
PAGE = (ROOT / "docs/promises.md").read_text(encoding="utf-8")
WORDS = 500


def wrong_names(text: str) -> list[str]:
    """Return what is quoted in a text and is no ``path::test_name`` of a test, or its cases."""
    wrong = []
    for quoted in re.findall(r"`([^`]*)`", text):
        named = re.fullmatch(r"(tests/[\w/]+\.py)::(test_\w+)(\[\.\.\.\])?", quoted)
        file = ROOT / named[1] if named else None
        if file is None or not file.is_file() or named[2] not in definitions(file):
            wrong.append(quoted)
    return wrong


def test_every_promise_has_tests_that_exist():
    assert len(ROWS) > 40
    assert [name for _, tests, _ in ROWS for name in wrong_names(tests)] == []
    assert [promise for promise, tests, _ in ROWS if "::" not in tests] == []


@pytest.mark.parametrize(
    "name",
    ["tests/test_promises.py::test_no", "tests/test_no.py::test_no", "tests/test_promises.py", "x"],
)
def test_a_wrong_name_is_found(name):
    assert wrong_names(f"`tests/test_promises.py::test_a_wrong_name_is_found`, `{name}`") == [name]


def test_the_page_is_short():
    assert len(re.findall(r"\S*\w\S*", PAGE)) <= WORDS
