"""The documentation builds as a site without a warning, and its pages need no other server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LOADS = r"""<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=["']?((?:https?:)?//[^"' >]*)"""


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    pytest.importorskip("material", reason='needs pip install -e ".[docs]"')
    folder = tmp_path_factory.mktemp("site")
    # the build must not use a network: a proxy that does not exist answers every request
    environment = {**os.environ, "https_proxy": "http://127.0.0.1:9", "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_pages_load_nothing_from_other_servers(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert re.findall(LOADS, text) == [], page
        assert "fonts.googleapis" not in text
    for style in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?https?:|@import", style.read_text(encoding="utf-8"))


@pytest.mark.slow
def test_files_outside_docs_are_a_part_of_the_site(site):
    tutorial = (site / "howto" / "back-translation.html").read_text(encoding="utf-8")
    assert 'href="../project/recipes/papers/transformers-without-tears/gl-en.yaml"' in tutorial
    assert (site / "project" / "recipes" / "papers/transformers-without-tears/gl-en.yaml").is_file()
    readme = (site / "project" / "index.html").read_text(encoding="utf-8")
    assert 'href="../tutorial.html"' in readme
    assert (site / "search" / "search_index.json").is_file()
