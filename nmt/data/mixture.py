"""The mixture of training corpora: how often an epoch has each pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nmt.errors import UserError
from nmt.runtime.words import quantity

LEARNING_SEED = 0  # of the draw that a segmentation is learned from: all seeds of a recipe share it


def sampling_weights(
    weights: Sequence[float], sizes: Sequence[int], temperature: float
) -> list[float]:
    """Return the average number of copies of a pair in an epoch, for each entry of ``data.train``.

    With a temperature T >= 1, an entry of n pairs is drawn in proportion to n^(1/T) (Arivazhagan et
    al. 2019, section 4.2), and the largest entry of n_max pairs once: each pair (n_max / n)^(1 -
    1/T) times. The weight of the entry multiplies this.
    """
    largest = max(sizes, default=0)
    return [
        weight * (largest / max(1, size)) ** (1 - 1 / temperature)
        for weight, size in zip(weights, sizes, strict=True)
    ]


@dataclass(frozen=True)
class Mixture:
    """The entries of a training corpus whose pairs are not all drawn once in each epoch.

    Attributes:
        sizes: rows of each entry.
        weights: how often an epoch has each row of each entry, on average.
    """

    sizes: Sequence[int]
    weights: Sequence[float]

    def copies(self, seed: int, epoch: int) -> np.ndarray:
        """Draw the number of copies of each row in an epoch: [sum of sizes] int64, a pure function.

        A row of an entry of weight w occurs floor(w) times, and once more with probability
        w - floor(w).
        """
        weights = np.repeat(np.array(self.weights, np.float64), self.sizes)
        draws = np.random.default_rng([seed, epoch, 2]).random(len(weights))
        always = np.floor(weights)
        return (always + (draws < weights - always)).astype(np.int64)

    def rows(self, seed: int, epoch: int) -> np.ndarray:
        """Return the rows of an epoch, in order, each with its ``copies``."""
        copies = self.copies(seed, epoch)
        return np.repeat(np.arange(len(copies)), copies)


def mixture_of(
    weights: Sequence[float], sizes: Sequence[int], temperature: float
) -> Mixture | None:
    """Return the mixture of a recipe's entries; None if an epoch has each pair once.

    Raises:
        UserError: an epoch has less than one pair on average, so most epochs would be empty.
    """
    drawn = sampling_weights(weights, sizes, temperature)
    if all(weight == 1 for weight in drawn):
        return None
    if np.dot(drawn, sizes) < 1:
        raise UserError(
            "the weights are so small that an epoch has less than one of "
            f"{quantity(sum(sizes), 'example')}",
            at="weight",
            fix="raise the weights of the entries; with weight: 1, an epoch has each example once",
        )
    return Mixture(sizes, drawn)


def copy_numbers(rows: np.ndarray) -> np.ndarray:
    """Number the copies of each row from 0, for sorted rows: [n] -> [n] int64."""
    return np.arange(len(rows)) - np.searchsorted(rows, rows)


def shuffle_copies(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return a random order of the rows of an epoch, with the copies of a row far from each other.

    The c copies of a row lie about 1/c of the epoch apart, so that they are rarely in one batch.
    From sorted rows [n] to indices into them [n].
    """
    copies = np.bincount(rows)
    when = (copy_numbers(rows) + rng.random(len(copies))[rows]) / copies[rows]
    return np.argsort(when, kind="stable")
