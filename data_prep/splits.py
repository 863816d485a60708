"""Splits by group, and near-duplicates between them: a score must not measure memory."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from data_prep.pairs import Drops, Filter, Pair, apply_filters, drop_duplicates
from nmt.data.near_duplicates import NearIndex


def near_duplicates(pairs: Sequence[Pair], others: Iterable[Pair]) -> tuple[set[int], set[int]]:
    """Which ``pairs`` and which ``others`` are near-duplicates of one another, on either side.

    Only ``pairs`` is indexed, so let it be the smaller. Texts without a word (digits, placeholders)
    are all near each other.
    """
    sides = NearIndex([p.src for p in pairs]), NearIndex([p.tgt for p in pairs])
    hit: set[int] = set()
    hitting: set[int] = set()
    for j, other in enumerate(others):
        found = sides[0].near(other.src) | sides[1].near(other.tgt)
        hit |= found
        if found:
            hitting.add(j)
    return hit, hitting


def hold_out(
    pairs: Sequence[Pair],
    sizes: Mapping[str, int],
    drops: Drops,
    held_filters: Sequence[Filter] = (),
) -> dict[str, list[Pair]]:
    """Splits by group whose scores are honest: held-out pairs that nearly recur are dropped.

    A pair of a held-out split goes when it nearly recurs, on either side, in train or in an
    earlier held-out split; train keeps its pair. Exact duplicates go from each split, and
    ``held_filters`` apply to the held-out ones, so these end smaller than ``sizes``.
    """
    splits = {
        name: list(drop_duplicates(part, drops))
        for name, part in split_by_group(pairs, sizes).items()
    }
    earlier = ["train"]
    for split in sizes:
        kept = list(apply_filters(splits[split], held_filters, drops))
        hit, _ = near_duplicates(kept, (pair for name in earlier for pair in splits[name]))
        for i in sorted(hit):
            drops.add(f"{split}: nearly recurs in {' or '.join(earlier)}", kept[i].place)
        splits[split] = [pair for i, pair in enumerate(kept) if i not in hit]
        earlier.append(split)
    return splits


def _shuffled(names: Iterable[str]) -> list[str]:
    """An order that depends on the names alone, so a new version of a source moves few groups."""
    return sorted(set(names), key=lambda name: hashlib.sha256(name.encode()).hexdigest())


def split_by_group(pairs: Sequence[Pair], sizes: Mapping[str, int]) -> dict[str, list[Pair]]:
    """Whole groups to each split of ``sizes`` until it has that many pairs, the rest to train.

    Groups over a tenth of a split's size stay in train, so that no split is about one thing.

    Returns:
        Split name -> pairs in their given order; ``train`` first.
    """
    by_group = Counter(pair.group for pair in pairs)
    split_of: dict[str, str] = {}
    names = iter(_shuffled(by_group))
    for split, size in sizes.items():
        have = 0
        for name in names:
            if by_group[name] * 10 <= size:
                split_of[name] = split
                have += by_group[name]
            if have >= size:
                break
    splits: dict[str, list[Pair]] = {"train": [], **{name: [] for name in sizes}}
    for pair in pairs:
        splits[split_of.get(pair.group, "train")].append(pair)
    return splits
