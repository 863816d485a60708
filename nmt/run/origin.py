"""Where the weights of a run come from, if another toolkit trained them: converted.json.

A run that starts from such a run (``init.from``) has the same in its init.json.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from nmt.run.folder import RunFolder
from nmt.runtime.files import read_text, write_atomic

FILE = "converted.json"


@dataclass(frozen=True)
class Origin:
    """A model that another toolkit trained.

    Attributes:
        source: its name, such as facebook/nllb-200-distilled-600M.
        family: its architecture, such as NLLB-200.
        license: of the weights; None = not known.
        files: SHA-256 of the files that were read, by name.
        version: of this toolkit, which converted it.
    """

    source: str
    family: str
    license: str | None
    files: dict[str, str]
    version: str

    def describe(self) -> str:
        """Return the name and the license in one line."""
        return f"{self.source} ({self.family}; license: {self.license or 'not known'})"

    def save(self, run: RunFolder) -> None:
        """Write converted.json."""
        text = json.dumps(asdict(self), indent=1, ensure_ascii=False)
        write_atomic(run.path / FILE, text + "\n")


def is_converted(run: RunFolder) -> bool:
    """Return whether nmt-convert wrote the run, so that its corpora are not known."""
    return (run.path / FILE).is_file()


def read_origin(run: RunFolder) -> Origin | None:
    """Return where the weights of a run come from; None if this toolkit trained them."""
    for path, key in ((run.path / FILE, None), (run.init_file, "origin")):
        try:
            values: Any = json.loads(read_text(path))
            return Origin(**(values if key is None else values[key]))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue
    return None
