"""A corpus of the user's own pairs: filter them, and cut missing held-out sets.

All importers of the user's own files make one, and corpora that have no splits of their own.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from data_prep.formats import Option
from data_prep.pairs import MAX_RATIO, unusual_ratio
from data_prep.remote import RemoteFile
from data_prep.splits import GROUPS_PER_SPLIT, cut, near_duplicates
from data_prep.write import Corpus, Request, write_corpus
from nmt.data.pair import Pair
from nmt.data.report import Drops
from nmt.data.rules import BLANK, IDENTICAL, LENGTH, apply_rules, duplicates
from nmt.errors import UserError
from nmt.runtime.progress import counted
from nmt.runtime.words import quantity

MIN_GROUPS = 10  # of --split group
ALONE = (BLANK, IDENTICAL, LENGTH)  # rules that need no other pair
BY_HAND = "choose dev and test yourself (--dev, --test)"


def _count(text: str) -> int:
    if text.isdecimal():
        return int(text)
    raise argparse.ArgumentTypeError(f"{text} is not an integer of at least 0")


def _ratio(text: str) -> float:
    with contextlib.suppress(ValueError):
        number = float(text)
        if 1 < number < float("inf"):
            return number
    raise argparse.ArgumentTypeError(f"{text} is not a finite number above 1")


SPLIT_OPTIONS = (
    Option(
        "--max-ratio",
        group="filters (MANIFEST.json lists how many pairs each of them drops)",
        type=_ratio,
        metavar="R",
        help="largest ratio of the lengths of the two sides, divided by the median ratio of the "
        f"text; default: {MAX_RATIO:g}, or more if the ratios of the text vary more",
    ),
    *(
        Option(
            f"--{split}-size",
            group="splits",
            type=_count,
            default=1000,
            metavar="N",
            help=f"number of pairs to cut for {split}, if it does not exist; 0 = none; default: "
            "1000",
        )
        for split in ("dev", "test")
    ),
    Option(
        "--split",
        group="splits",
        choices=("random", "group"),
        default="random",
        help="hold out random sentences, or complete groups, such as documents; default: random",
    ),
)


def text_options(name: str, metavar: str, text: str, **settings: Any) -> tuple[Option, ...]:
    """Return the options that name the training text and existing dev and test sets.

    Args:
        name: of the training text in the options of a request.
        metavar: what a user names, such as FILE.
        text: help for the training text.
        settings: further ones for it.
    """
    return (
        Option(name, nargs="*", metavar=metavar, help=text, **settings),
        *(
            Option(
                f"--{split}",
                metavar=metavar,
                help=f"existing {split} set, which is not filtered; default: cut from the "
                "training pairs",
            )
            for split in ("dev", "test")
        ),
    )


def file_options(metavar: str) -> tuple[Option, ...]:
    """Return the options that ``write_files`` needs."""
    return text_options("files", metavar, "training pairs", type=Path)


def existing_sets(request: Request) -> dict[str, str]:
    """Return the existing held-out sets that the options name, by split."""
    options = vars(request.options)
    return {split: name for split in ("dev", "test") if (name := options[split])}


def require_text(train: Sequence[object], request: Request, metavar: str) -> None:
    """Raise UserError if neither training pairs nor a held-out set is named."""
    if not train and not existing_sets(request):
        raise UserError("no text is named", at=metavar, fix=f"name a {metavar} with training pairs")


def write_files(
    read: Callable[[Sequence[Path], Request, Drops], Iterable[Pair]],
    request: Request,
    metavar: str,
) -> None:
    """Write the corpus of the files that the options name.

    Args:
        read: yields the pairs of files.
        metavar: of a file.
    """
    drops, files = Drops(), request.options.files
    require_text(files, request, metavar)
    sets = existing_sets(request).items()
    held_out = {split: read([Path(file)], request, drops) for split, file in sets}
    write_own_corpus(read(files, request, drops) if files else (), request, drops, held_out)


def write_own_corpus(
    pairs: Iterable[Pair],
    request: Request,
    drops: Drops,
    held_out: Mapping[str, Iterable[Pair]] = {},
    sources: Sequence[RemoteFile] = (),
    notes: Sequence[str] = (),
    further: Mapping[str, Iterable[Pair]] = {},
) -> None:
    """Filter, split and write pairs.

    Args:
        pairs: training pairs, read after the options are checked. If there are some, dev and test
            are cut from them, unless ``held_out`` has them.
        held_out: existing dev and test sets, which are copied line by line.
        sources, notes: for MANIFEST.json.
        further: further training text by the name of its files. It loses near-duplicates of dev
            and test.
    """
    notes = [*notes]
    kept = {split: list(part) for split, part in held_out.items()}
    splits = _split(_filtered(pairs, "train", request, drops, notes), kept, request, drops)
    order = ("train", "dev", "test")
    splits = {split: splits[split] for split in order if split in splits}
    for name, text in further.items():
        filtered = list(
            apply_rules(_filtered(text, name, request, drops, notes), [duplicates()], drops)
        )
        near = set[int]()
        if tested := [pair for split in order[1:] for pair in splits.get(split, ())]:
            near = near_duplicates(filtered, tested)
        for i in sorted(near):
            drops[f"{name}: near-duplicate in dev or test"].add(filtered[i].place)
        splits[name] = [pair for i, pair in enumerate(filtered) if i not in near]
    if kept:
        notes = [f"Existing sets, with each of their lines: {', '.join(kept)}.", *notes]
    if made := [split for split in splits if split in order[1:] and split not in kept]:
        notes = [
            f"Cut from the training pairs (--split {request.options.split}): {', '.join(made)}. No "
            "cut set has near-duplicates in train or in another set.",
            *notes,
        ]
    write_corpus(Corpus(request.out.name, splits, drops, sources, notes), request)


def _filtered(
    pairs: Iterable[Pair], name: str, request: Request, drops: Drops, notes: list[str]
) -> list[Pair]:
    shown = counted(pairs, f"reading {name}", "pairs")
    kept = list(apply_rules(shown, ALONE, drops))
    rule = unusual_ratio(kept, request.options.max_ratio)
    if kept:
        notes.append(f"What {rule.name} dropped from {name}: {rule.text}")
    return list(apply_rules(kept, [rule], drops))


def _split(
    pairs: Sequence[Pair], kept: Mapping[str, list[Pair]], request: Request, drops: Drops
) -> dict[str, list[Pair]]:
    options = request.options
    sizes = {"dev": options.dev_size, "test": options.test_size}
    sizes = {split: size for split, size in sizes.items() if size > 0 and split not in kept}
    if not sizes or (kept and not pairs):
        train = list(apply_rules(pairs, [duplicates()], drops))
        return {**({"train": train} if pairs or not kept else {}), **kept}
    if sum(sizes.values()) * 2 > len(pairs):
        size = max(GROUPS_PER_SPLIT, len(pairs) // 10)
        smaller = " ".join(f"--{split}-size {size}" for split in sizes)
        fixes = [f"pass smaller sizes, such as {smaller}"] if 4 * size <= len(pairs) else []
        left = f"{quantity(len(pairs), 'pair')} {'is' if len(pairs) == 1 else 'are'}"
        raise UserError(
            f"{left} too few for {' and '.join(map(str, sizes.values()))} in "
            f"{' and '.join(sizes)} (dropped: {drops})",
            at=", ".join(f"--{split}-size" for split in sizes),
            fix=", or ".join(fixes) or "give more text",
        )
    if options.split == "random":  # a sentence with several translations is a group
        pairs = [pair._replace(group=pair.src) for pair in pairs]
    groups = Counter(pair.group for pair in pairs)
    if options.split == "group" and len(groups) < MIN_GROUPS:
        raise UserError(
            f"at least {MIN_GROUPS} groups are required (input files, or values of nmt-import tsv "
            f"--group-column), not {len(groups)}",
            at="--split group",
            fix=f"give a file for each document, {BY_HAND}, or use --split random",
        )
    smallest = min(groups.values())
    needed = smallest * GROUPS_PER_SPLIT
    if small := [split for split, size in sizes.items() if size < needed]:
        enough = 2 * sum(max(size, needed) for size in sizes.values()) <= len(pairs)
        kind, more = "", "use --split random"
        if options.split == "random":
            kind, more = " of pairs with the same source", "give more text"
        raise UserError(
            f"the smallest group{kind} has {quantity(smallest, 'pair')}, over a tenth of the split",
            at=", ".join(f"--{split}-size" for split in small),
            fix=f"ask for at least {needed:,}" if enough else f"{BY_HAND}, or {more}",
        )
    splits = cut(pairs, sizes, drops, [pair for part in kept.values() for pair in part])
    for split, size in sizes.items():
        if (count := len(splits[split])) < size:
            most = size // GROUPS_PER_SPLIT
            print(
                f"note: {split} has {quantity(count, 'pair')} instead of {size:,}, because no "
                f"other fits: each has over {most:,} near-duplicates, has one in another held-out "
                f"set, or is in a group of over {most:,} pairs or of more than are missing",
                file=sys.stderr,
            )
    return {**splits, **kept}
