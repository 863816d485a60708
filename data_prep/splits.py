"""Split pairs by group, and remove near-duplicates between splits.

Otherwise a dev or test score would measure memorization.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from nmt.data.pair import Pair
from nmt.data.report import Drops
from nmt.data.rules import Rule, apply_rules, duplicates
from nmt.runtime.progress import counted
from nmt.text.near_duplicates import NearIndex

GROUPS_PER_SPLIT = 10  # at least; a larger group stays in train
SPARE = 1.25  # pairs that are compared with the others for each that is held out


def near_duplicates(pairs: Sequence[Pair], others: Iterable[Pair]) -> set[int]:
    """Return the indices of the ``pairs`` that have a near-duplicate in ``others``, on either side.

    Only ``pairs`` is indexed: let it be the smaller one. Texts without a word (digits,
    placeholders) are all near-duplicates of each other.
    """
    return set().union(*map(_finder(pairs), others))


def hold_out(
    pairs: Sequence[Pair],
    sizes: Mapping[str, int],
    drops: Drops,
    held_out_filters: Sequence[Rule] = (),
) -> dict[str, list[Pair]]:
    """Split a public corpus by group, and drop near-duplicates from the held-out splits.

    Published scores are for these splits; ``cut`` splits the user's own text.

    A held-out pair is dropped if one of its sides has a near-duplicate in train or in an earlier
    held-out split; train keeps its pair. Exact duplicates are dropped from each split.

    Args:
        sizes: held-out split -> number of pairs before near-duplicates are dropped.
        held_out_filters: filters for the held-out splits alone.

    Returns:
        Split -> pairs; ``train`` first.
    """
    splits = {
        name: list(apply_rules(part, [duplicates()], drops))
        for name, part in split_by_group(pairs, sizes).items()
    }
    earlier = ["train"]
    for split in sizes:
        kept = list(apply_rules(splits[split], held_out_filters, drops))
        others = [pair for name in earlier for pair in splits[name]]
        action = f"looking for near-duplicates of {split}"
        near = near_duplicates(kept, counted(others, action, "pairs", len(others)))
        for i in sorted(near):
            drops[f"{split}: near-duplicate in {' or '.join(earlier)}"].add(kept[i].place)
        splits[split] = [pair for i, pair in enumerate(kept) if i not in near]
        earlier.append(split)
    return splits


def cut(
    pairs: Iterable[Pair], sizes: Mapping[str, int], drops: Drops, apart: Sequence[Pair] = ()
) -> dict[str, list[Pair]]:
    """Cut held-out splits from train, group by group, and drop their near-duplicates from train.

    A pair stays in train if a tenth of the split's size would be lost with it, because it has so
    many near-duplicates, or if it has one in another held-out set. So does a group with more pairs
    than that. Exact duplicates are dropped.

    Args:
        sizes: held-out split -> number of pairs; it gets fewer if no other group fits.
        apart: pairs of existing held-out sets.

    Returns:
        Split -> pairs in their given order; ``train`` first.
    """
    pairs = list(apply_rules(pairs, [duplicates()], drops))
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for number, pair in enumerate(pairs):
        groups[pair.group].append(number)
    order = iter(_hash_order(groups))
    limit = max(sizes.values(), default=0) // GROUPS_PER_SPLIT
    split_of: dict[int, str] = {}  # of each pair that is held out
    resembling: set[int] = set()
    left = dict(sizes)
    while any(left.values()):
        batch: list[list[int]] = []
        for group in order:
            if len(groups[group]) <= limit:
                batch.append(groups[group])
            if sum(map(len, batch)) >= SPARE * sum(left.values()):
                break
        if not batch:
            break
        near = _near(pairs, [number for group in batch for number in group], apart, limit)
        for group_pairs in batch:
            for split, size in sizes.items():
                fits = [
                    number
                    for number in group_pairs
                    if number in near and all(split_of.get(n, split) == split for n in near[number])
                ]
                if 0 < len(fits) <= min(left[split], size // GROUPS_PER_SPLIT):
                    left[split] -= len(fits)
                    split_of.update(dict.fromkeys(fits, split))
                    resembling.update(*(near[number] for number in fits))
                    break
    splits: dict[str, list[Pair]] = {"train": [], **{name: [] for name in sizes}}
    for number, pair in enumerate(pairs):
        if number in resembling and number not in split_of:
            drops[f"train: near-duplicate in {' or '.join(sizes)}"].add(pair.place)
        else:
            splits[split_of.get(number, "train")].append(pair)
    return splits


def _near(
    pairs: Sequence[Pair], numbers: Sequence[int], apart: Iterable[Pair], limit: int
) -> dict[int, set[int]]:
    """Return the near-duplicates of pairs, by number, without themselves.

    Pairs with over ``limit`` near-duplicates, or one in ``apart``, are left out.
    """
    near: dict[int, set[int]] = {number: set() for number in numbers}
    find = _finder([pairs[number] for number in numbers])
    for pair in apart:
        for i in find(pair):
            near.pop(numbers[i], None)
    action = "looking for near-duplicates of dev and test"
    for other, pair in enumerate(counted(pairs, action, "pairs", len(pairs))):
        for number in (numbers[i] for i in find(pair)):
            if number != other and number in near:
                near[number].add(other)
                if len(near[number]) > limit:
                    del near[number]
    return near


def _finder(pairs: Sequence[Pair]) -> Callable[[Pair], set[int]]:
    """Return a function that finds the indices of ``pairs`` that resemble a pair on either side."""
    sources, targets = NearIndex([p.src for p in pairs]), NearIndex([p.tgt for p in pairs])
    return lambda pair: sources.near(pair.src) | targets.near(pair.tgt)


def split_by_group(pairs: Sequence[Pair], sizes: Mapping[str, int]) -> dict[str, list[Pair]]:
    """Assign complete groups to each split of ``sizes`` until it is full, and the rest to train.

    A group of more than a tenth of a split's size stays in train, so that no split is dominated by
    one group.

    Returns:
        Split -> pairs in their given order; ``train`` first.
    """
    group_sizes = Counter(pair.group for pair in pairs)
    split_of: dict[str, str] = {}
    groups = iter(_hash_order(group_sizes))
    for split, size in sizes.items():
        filled = 0
        for group in groups:
            if group_sizes[group] * GROUPS_PER_SPLIT <= size:
                split_of[group] = split
                filled += group_sizes[group]
            if filled >= size:
                break
    splits: dict[str, list[Pair]] = {"train": [], **{name: [] for name in sizes}}
    for pair in pairs:
        splits[split_of.get(pair.group, "train")].append(pair)
    return splits


def _hash_order(groups: Iterable[str]) -> list[str]:
    """Sort names by their hash: in a new version of a corpus most groups keep their split."""

    def digest(name: str) -> str:  # a group can be the name of a file, of any bytes
        return hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()

    return sorted(set(groups), key=digest)
