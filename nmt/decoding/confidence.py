"""Predict the sentence chrF of a translation, to rank lines for review.

Among what a model knows of its own translation, the mean log-probability of its pieces says most
about the quality (Fomicheva et al. 2020, https://aclanthology.org/2020.tacl-1.35). The second
feature is the length of a piece: rare words have short ones. ``Calibration.fit`` learns on dev what
sentence chrF to expect: least squares of both features, then a monotone step to chrF (isotonic
regression by pooling adjacent violators, Ayer et al. 1955; for calibration, Zadrozny and Elkan
2002).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from nmt.decoding.codec import BLANK, Translation
from nmt.decoding.options import SearchOptions
from nmt.errors import UserError
from nmt.runtime.files import json_object, read_text
from nmt.runtime.words import quantity
from nmt.store.folder import RunFolder

BEST = 100.0  # chrF of a blank line, which needs no review
LIMITS = (90, 80, 70, 60, 50)  # expected chrF from which a reviewer might skip a line
_GROUP = 20  # lines of which a step has the mean: a single line says little
# options that do not change which translation a search prefers
_NEUTRAL = {"batch_tokens", "n_best", "token_scores", "align", "split", "tag", "tgt_tag", "src"}


@dataclass(frozen=True)
class Calibration:
    """What chrF to expect of a translation.

    Attributes:
        weights: of mean log-probability and length of a piece.
        points: (weighted sum, chrF), both increasing; between them, chrF is interpolated.
        model: SHA-256 of the weights.
        search: options and precision of the search.
        lines: number of lines that it was fitted on.
    """

    weights: tuple[float, float]
    points: tuple[tuple[float, float], ...]
    model: str
    search: dict[str, Any]
    lines: int

    @classmethod
    def fit(
        cls,
        translations: Sequence[Translation],
        chrf: Sequence[float],
        model: str = "",
        search: Mapping[str, Any] = {},
    ) -> Calibration:
        """Fit to the sentence chrF of at least one translation; the others are attributes."""
        x, y = np.array([_features(t) for t in translations]), np.array(chrf, dtype=float)
        columns = np.column_stack([x, np.ones(len(x))])
        weights = np.linalg.lstsq(columns, y, rcond=None)[0][:2]
        points = monotone_points(x @ weights, y)
        pair = float(weights[0]), float(weights[1])
        return cls(pair, tuple(points), model, dict(search), len(y))

    def expect(self, translation: Translation) -> float:
        """Return the expected sentence chrF of a translation, 0 to 100."""
        if translation == BLANK:
            return BEST
        if not translation.text.strip():
            return 0.0
        x, y = zip(*self.points, strict=True)
        return float(np.interp(np.dot(_features(translation), self.weights), x, y))

    def text(self) -> str:
        """Format the content of the file."""
        return json.dumps(asdict(self), indent=1) + "\n"


def _features(translation: Translation) -> tuple[float, float]:
    """Return the mean log-probability of pieces and EOS, and the log of characters per piece."""
    pieces = len(translation.pieces) + 1
    return translation.log_prob / pieces, math.log((len(translation.text) + 1) / pieces)


def monotone_points(x: np.ndarray, y: np.ndarray) -> list[tuple[float, float]]:
    """Fit increasing steps (x, y), with the least squared error, to groups of points."""
    order = np.argsort(x, kind="stable")
    groups = np.array_split(order, max(1, min(len(x) // 2, len(x) // _GROUP)))
    blocks: list[list[float]] = []  # mean x, mean y, number of points
    for group in groups:
        blocks.append([float(x[group].mean()), float(y[group].mean()), len(group)])
        while len(blocks) > 1 and blocks[-2][1] >= blocks[-1][1]:
            (x1, y1, n1), (x2, y2, n2) = blocks[-2:]
            total = n1 + n2
            blocks[-2:] = [[(n1 * x1 + n2 * x2) / total, (n1 * y1 + n2 * y2) / total, total]]
    return [(mean_x, mean_y) for mean_x, mean_y, _ in blocks]


def search_settings(options: SearchOptions, precision: str) -> dict[str, Any]:
    """Select what changes which translation a search prefers, and its log-probabilities."""
    values = options.model_dump(mode="json", exclude=_NEUTRAL) | {"precision": precision}
    return {name: value for name, value in values.items() if value is not None}


def read_calibration(runs: Sequence[str], weights_hash: str) -> Calibration:
    """Read the calibration of a run, or the copy in a model, and check that it is of this model.

    Args:
        weights_hash: of the model that is loaded.

    Raises:
        UserError: several runs, no or a damaged file, another model.
    """
    if len(runs) > 1:
        raise UserError(
            "--confidence is calibrated for the search of one model",
            at=runs[-1],
            fix="pass one run folder, or leave --confidence out",
        )
    file, command = RunFolder(runs[0]).confidence_file, f"nmt-calibrate {runs[0]}"
    try:
        values = json_object(read_text(file))
        points = tuple((float(x), float(y)) for x, y in values.pop("points"))
        first, second = map(float, values.pop("weights"))
        calibration = Calibration(weights=(first, second), points=points, **values)
    except FileNotFoundError:
        fix = f"calibrate it: {command}"
        raise UserError("the run is not calibrated", at=str(file), fix=fix) from None
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise UserError("is damaged", at=str(file), fix=f"write it again: {command}") from error
    if weights_hash != calibration.model:
        what = "was calibrated for another model"
        raise UserError(what, at=str(file), fix=f"calibrate this one: {command}")
    return calibration


class Expectations:
    """The expected chrF of each translation of a text, and a summary of them."""

    def __init__(self, calibration: Calibration) -> None:
        self._calibration = calibration
        self._counts: Counter[int] = Counter()  # of translations with at least a limit
        self._total = 0

    def __call__(self, translation: Translation) -> float:
        """Predict the chrF of a translation, and count it unless the line is blank."""
        value = self._calibration.expect(translation)
        if translation != BLANK:
            self._total += 1
            self._counts.update(limit for limit in LIMITS if value >= limit)
        return value

    def note(self) -> str:
        """Return a line with the share of translations for each expected chrF."""
        total = max(1, self._total)
        shares = (f"{limit}: {self._counts[limit] / total:.1%}" for limit in LIMITS)
        lines = quantity(self._total, "translation")
        return f"share of {lines} with an expected chrF of at least {', '.join(shares)}"
