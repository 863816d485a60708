"""Read the metrics of a run folder as curves: the numbers of the papers' figures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nmt.store.folder import RunFolder
from nmt.store.results import read_metrics


class Curve(NamedTuple):
    """Values over updates, both [points]. A value that was not finite is NaN."""

    updates: np.ndarray
    values: np.ndarray


class RunMetrics:
    """The logged metrics of one run, finished or in progress.

    Raises:
        UserError: this is not a run folder.
    """

    def __init__(self, path: str | Path) -> None:
        run = RunFolder(path)
        if not run.config_file.is_file():
            RunFolder.open(path)  # says why it is none
        self.path, self.recipe = Path(path), run.recipe()
        self._records = list(read_metrics(run))

    def curve(self, kind: str, name: str) -> Curve:
        """Read one value of a kind of records, such as ``bleu`` of ``dev``; perhaps no points."""
        records = [r for r in self._records if r.get("kind") == kind and name in r]
        values = [r[name] if isinstance(r[name], int | float) else np.nan for r in records]
        return Curve(np.array([r["update"] for r in records]), np.array(values, dtype=float))

    def last(self, kind: str, update: int | None = None) -> dict[str, Any]:
        """Find the last record of a kind, of one update if given; empty if there is none."""
        records = (r for r in reversed(self._records) if r.get("kind") == kind)
        return next((r for r in records if update in (None, r.get("update"))), {})

    def by_layer(self, observer: str, stack: str, module: str) -> dict[int, Curve]:
        """Read an observer's curves of a module, such as ``ffn.fc2``, by layer of a stack, from 0.

        Layers without points are left out: frozen layers have no gradient, for example.
        """
        model = self.recipe.model
        layers = range(model.enc_layers if stack == "encoder" else model.dec_layers)
        name = f"{observer}/{stack}.layers.{{}}.{module}"
        curves = {i: self.curve("observed", name.format(i)) for i in layers}
        return {i: curve for i, curve in curves.items() if len(curve.updates)}

    def modules(self, observer: str, stack: str) -> list[str]:
        """List the observed modules of a stack's layers, such as ``ffn.fc2``."""
        pattern = re.compile(rf"{observer}/{stack}\.layers\.\d+\.(.+?)(\.std)?$")
        names = (name for r in self._records if r.get("kind") == "observed" for name in r)
        modules = (match.group(1) for name in names if (match := pattern.match(name)))
        return list(dict.fromkeys(modules))


def short_labels(paths: Sequence[Path]) -> list[str]:
    """Return the last parts of each path: as few as make the labels differ."""
    parts = [path.absolute().parts for path in paths]
    for length in range(1, max(map(len, parts)) + 1):
        labels = ["/".join(p[-length:]) for p in parts]
        if len(set(labels)) == len(labels):
            return labels
    return [str(path) for path in paths]


def running_mean(curve: Curve, width: int) -> Curve:
    """Average ``width`` neighboring points, each at the update of the middle point.

    A curve of less than ``2 * width`` points is returned unchanged.
    """
    if len(curve.values) < 2 * width:
        return curve
    means = np.convolve(curve.values, np.full(width, 1 / width), mode="valid")
    first = (width - 1) // 2
    return Curve(curve.updates[first : first + len(means)], means)


def final_mean(curve: Curve) -> float:
    """Average the last 5 % of the updates: 950 to 1,000 of 1,000 (N figure 7)."""
    final = curve.updates >= 0.95 * curve.updates.max(initial=0)
    return float(curve.values[final].mean())
