"""The license of a corpus from the files next to it."""

import json
from pathlib import Path

from nmt.data.download import licenses_of


def test_licenses_are_those_of_the_manifest_or_of_the_readme(tmp_path: Path):
    assert licenses_of(tmp_path) == []
    (tmp_path / "README.md").write_text("# A\n\nThe license is below.\n\n* **License:** CC0\n")
    assert licenses_of(tmp_path) == ["CC0"]
    manifest = {"sources": [{"license": "CC BY 4.0"}, {"license": "CC BY 4.0"}, {"name": "x"}]}
    (tmp_path / "MANIFEST.json").write_text(json.dumps(manifest))
    assert licenses_of(tmp_path) == ["CC BY 4.0"]
    (tmp_path / "MANIFEST.json").write_text("[1]")
    assert licenses_of(tmp_path) == ["CC0"]
