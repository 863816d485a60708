"""What a run folder has logged, as curves: the numbers of the papers' figures.

Legend: a Curve is (updates, values), both [points]; a value that was not finite is NaN.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nmt.errors import UserError


class Curve(NamedTuple):
    """Values over updates."""

    updates: np.ndarray
    values: np.ndarray


class RunMetrics:
    """The records of one run.

    Attributes:
        path: the run folder.
        recipe: what it trains.
    """

    def __init__(self, path: str | Path) -> None:
        """Read it; a run that is under way will do.

        Raises:
            UserError: there is no run folder here.
        """
        from nmt.run.folder import RunFolder
        from nmt.run.results import records

        run = RunFolder(path)
        if not run.config_file.is_file():
            raise UserError(
                "not a run folder: it has no config.yaml",
                at=str(path),
                fix="give the folder that nmt-train wrote",
            )
        self.path, self.recipe = Path(path), run.recipe()
        self._records = list(records(run.metrics_file))

    def curve(self, kind: str, name: str) -> Curve:
        """A value of all records of a kind: ``dev`` ``bleu``, ``observed`` ``grad_total``."""
        found = [r for r in self._records if r.get("kind") == kind and name in r]
        values = [np.nan if r[name] is None else r[name] for r in found]
        return Curve(np.array([r["update"] for r in found]), np.array(values, dtype=float))

    def by_layer(self, observer: str, stack: str, module: str) -> list[Curve]:
        """What an observer saw of the same module in each layer of a stack, lowest layer first."""
        layers = range(self._layers(stack))
        curves = [self.curve("observed", f"{observer}/{stack}.layers.{i}.{module}") for i in layers]
        return [curve for curve in curves if len(curve.updates)]

    def modules(self, observer: str, stack: str) -> list[str]:
        """Modules of a layer that an observer saw, such as ``ffn.fc2``, without deviations."""
        pattern = re.compile(rf"{observer}/{stack}\.layers\.\d+\.(.+?)(\.std)?$")
        names = (name for r in self._records if r.get("kind") == "observed" for name in r)
        found = (match.group(1) for name in names if (match := pattern.match(name)))
        return list(dict.fromkeys(found))

    def _layers(self, stack: str) -> int:
        model = self.recipe.model
        return model.enc_layers if stack == "encoder" else model.dec_layers


def labels(paths: Sequence[Path]) -> list[str]:
    """The ends of the paths, as short as tells them apart."""
    parts = [path.absolute().parts for path in paths]
    for length in range(1, max(map(len, parts)) + 1):
        ends = ["/".join(p[-length:]) for p in parts]
        if len(set(ends)) == len(ends):
            return ends
    return [str(path) for path in paths]


def smooth(curve: Curve, width: int) -> Curve:
    """A running mean over ``width`` points, at the place of their middle; short curves stay."""
    if len(curve.values) < 2 * width:
        return curve
    means = np.convolve(curve.values, np.full(width, 1 / width), mode="valid")
    first = (width - 1) // 2
    return Curve(curve.updates[first : first + len(means)], means)


def late_mean(curve: Curve) -> float:
    """The mean over the last twentieth of the updates, as N's figure 7: 950 to 1,000 of 1,000."""
    late = curve.updates >= 0.95 * curve.updates.max(initial=0)
    return float(curve.values[late].mean())
