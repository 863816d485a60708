"""Split pairs by group, and remove near-duplicates between splits.

Without that, a score on dev or test would measure what the model memorized.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from data_prep.pairs import Pair, apply_rules, drop_duplicates
from nmt.data.filters import Rule
from nmt.data.near_duplicates import NearIndex
from nmt.data.report import Drops
from nmt.runtime.progress import counted

GROUPS_PER_SPLIT = 10  # at least; a larger group stays in train


def near_duplicates(pairs: Sequence[Pair], others: Iterable[Pair]) -> set[int]:
    """Return the indices of the ``pairs`` that have a near-duplicate in ``others``, on either side.

    Only ``pairs`` is indexed: let it be the smaller one. Texts without a word (digits,
    placeholders) are all near-duplicates of each other.
    """
    sources, targets = NearIndex([p.src for p in pairs]), NearIndex([p.tgt for p in pairs])
    found: set[int] = set()
    for other in others:
        found |= sources.near(other.src) | targets.near(other.tgt)
    return found


def hold_out(
    pairs: Sequence[Pair],
    sizes: Mapping[str, int],
    drops: Drops,
    held_out_filters: Sequence[Rule] = (),
) -> dict[str, list[Pair]]:
    """Split pairs by group, and drop near-duplicates from the held-out splits.

    A held-out pair is dropped if one of its sides has a near-duplicate in train or in an earlier
    held-out split; train keeps its pair. Exact duplicates are dropped from each split.

    Args:
        sizes: held-out split -> number of pairs before near-duplicates are dropped.
        held_out_filters: filters for the held-out splits alone.

    Returns:
        Split -> pairs; ``train`` first.
    """
    splits = {
        name: list(drop_duplicates(part, drops))
        for name, part in split_by_group(pairs, sizes).items()
    }
    earlier = ["train"]
    for split in sizes:
        kept = list(apply_rules(splits[split], held_out_filters, drops))
        others = [pair for name in earlier for pair in splits[name]]
        action = f"looking for near-duplicates of {split}"
        duplicates = near_duplicates(kept, counted(others, action, "pairs", len(others)))
        for i in sorted(duplicates):
            drops[f"{split}: near-duplicate in {' or '.join(earlier)}"].add(kept[i].place)
        splits[split] = [pair for i, pair in enumerate(kept) if i not in duplicates]
        earlier.append(split)
    return splits


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
