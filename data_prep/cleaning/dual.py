"""Score pairs with two models of opposite directions (Junczys-Dowmunt 2018)."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from nmt.data.lines import read_lines
from nmt.errors import UserError
from nmt.runtime.progress import counted
from nmt.text.languages import base_language


def dual_cross_entropy(forward: float, backward: float) -> float:
    """Return the dual cross-entropy of a pair (x, y) for models A and B of opposite directions; 0
    is best.

    It is | H_A(y|x) - H_B(x|y) | + (H_A(y|x) + H_B(x|y)) / 2: the models should agree, and both
    sides should be likely. H_A(y|x) is -log P_A(y|x) / |y|, in nats for each piece of y and its
    end. Source: M. Junczys-Dowmunt 2018, "Dual Conditional Cross-Entropy Filtering of Noisy
    Parallel Corpora", equation 2, whose score is e to the power of minus this value.

    Args:
        forward, backward: H_A(y|x) and H_B(x|y).
    """
    value = abs(forward - backward) + (forward + backward) / 2
    return value if math.isfinite(value) else math.inf


def check_direction(run: Path, src: str, tgt: str) -> None:
    """Raise UserError if a folder is no model that translates one language into the other."""
    from nmt.store.model import Model

    about = Model.open(run).require_translation().about
    if [*map(base_language, (about.src, about.tgt))] != [*map(base_language, (src, tgt))]:
        raise UserError(
            f"this model translates {about.src} into {about.tgt}, not {src} into {tgt}",
            at=str(run),
            fix="give the model from --src-lang into --tgt-lang first, and the reverse one second",
        )


def scores(src: Path, tgt: Path, models: tuple[Path, Path], pairs: int) -> array[float]:
    """Return the dual cross-entropy of each pair of two files; memory: 8 bytes a pair.

    Args:
        models: runs of both directions.
        pairs: number of lines, for the progress bar.
    """
    from nmt.decoding.translator import Translator  # here: it loads torch

    sides = src, tgt

    def entropies(run: Path, given: int) -> Iterator[float]:
        translator = Translator.load(run)
        lines = read_lines(sides[given]), read_lines(sides[1 - given])
        for scored in translator.score_stream(*lines):
            yield -scored.log_prob / max(1, len(scored.token_log_probs))

    both = zip(entropies(models[0], 0), entropies(models[1], 1), strict=True)
    return array("d", (dual_cross_entropy(*h) for h in counted(both, "scoring", "pairs", pairs)))


def worst_kept(values: array[float], keep: float) -> float:
    """Return the largest score of the best pairs.

    Args:
        keep: share of the pairs that are kept, over 0 and up to 1.
    """
    ordered = np.sort(np.frombuffer(values, np.float64))
    return float(ordered[max(1, round(keep * len(ordered))) - 1])
