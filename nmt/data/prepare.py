"""From corpus files to encoded, checked, cached data: everything training needs of them.

Two streaming passes over the training files: one counts and learns the segmentation, one encodes,
in worker processes for large corpora. The result is cached under a hash of all that it depends on.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
import sys
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from nmt.config import Recipe
from nmt.data.checks import SplitCheck, first_suspicious, warnings
from nmt.data.corpus import CorpusWriter, EncodedCorpus
from nmt.data.parallel import CHUNK, Pair, segmented
from nmt.data.segment import Segmenter, learn_segmenter, load_segmenter, save_segmenter
from nmt.data.text import find_side, read_lines
from nmt.data.vocab import UNK, Vocab
from nmt.errors import UserError

VERSION = "1"  # of what the cache holds; a change of it makes old caches unused


@dataclass(frozen=True)
class EvalSet:
    """A split to score: n lines in the files, n here, blank ones included.

    Attributes:
        src_lines, ref_lines: text as in the files.
        corpus: ids; a blank side has length 0.
    """

    src_lines: list[str]
    ref_lines: list[str]
    corpus: EncodedCorpus


@dataclass(frozen=True)
class Prepared:
    """All that training needs of the corpora; ``fingerprint`` changes when any of it does."""

    segmenter: Segmenter
    vocab: Vocab
    train: EncodedCorpus
    dev: EvalSet
    test: EvalSet | None
    report: dict[str, Any]
    fingerprint: str


def missing_files(recipe: Recipe) -> list[str]:
    """Prefixes of the recipe's corpora of which a side is not there."""
    missing = []
    for prefix in _prefixes(recipe):
        try:
            _sides(recipe, prefix)
        except UserError:
            missing.append(prefix)
    return missing


def prepare(recipe: Recipe, progress: bool = True) -> Prepared:
    """Check, segment and encode the recipe's corpora, or take them from the cache.

    Raises:
        UserError: files missing, unequal or empty, or a check failed (``data.checks``).
    """
    files = {prefix: _sides(recipe, prefix) for prefix in _prefixes(recipe)}
    fingerprint = _fingerprint(recipe, files)
    cache = Path(recipe.out).parent / ".cache" / fingerprint[:16]
    if not (cache / "report.json").is_file():
        cache = _build(recipe, files, cache, progress)
    report = json.loads((cache / "report.json").read_text(encoding="utf-8"))
    _judge(recipe, report)
    test = recipe.data.test
    return Prepared(
        segmenter=load_segmenter(cache),
        vocab=Vocab.load(cache),
        train=EncodedCorpus(cache / "train"),
        dev=_eval_set(files[recipe.data.dev], cache / "dev"),
        test=None if test is None else _eval_set(files[test], cache / "test"),
        report=report,
        fingerprint=fingerprint,
    )


def _prefixes(recipe: Recipe) -> list[str]:
    data = recipe.data
    return [*data.train, data.dev, *([data.test] if data.test else [])]


def _sides(recipe: Recipe, prefix: str) -> tuple[Path, Path]:
    return find_side(prefix, recipe.src), find_side(prefix, recipe.tgt)


def _fingerprint(recipe: Recipe, files: dict[str, tuple[Path, Path]]) -> str:
    """SHA-256 over the files' contents and the keys that decide what becomes of them."""
    data = recipe.data
    keys = {
        "version": VERSION,
        "languages": [recipe.src, recipe.tgt],
        "segment": recipe.segment.model_dump(),
        "data": [data.tokenised, data.max_len, data.normalise, len(data.train), bool(data.test)],
        "seed": recipe.seed if getattr(recipe.segment, "dropout", 0) else None,
    }
    total = hashlib.sha256(json.dumps(keys, sort_keys=True).encode())
    given = [getattr(recipe.segment, name, "learn") for name in ("codes", "model")]
    paths = [path for prefix in _prefixes(recipe) for path in files[prefix]]
    for path in paths + [Path(name) for name in given if name != "learn"]:
        if not path.is_file():
            raise UserError("no such file", at=str(path), fix="check segment in the recipe")
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                total.update(block)
    return total.hexdigest()


def _build(
    recipe: Recipe, files: dict[str, tuple[Path, Path]], cache: Path, progress: bool
) -> Path:
    """Make the cache folder whole or not at all; elsewhere, with a note, if it is not writable."""
    draft = cache.with_name(f".draft-{cache.name}-{uuid.uuid4().hex[:8]}")
    try:
        draft.mkdir(parents=True)
    except OSError as error:
        cache = Path(tempfile.mkdtemp(prefix="nmt-data-"))
        print(f"note: {draft.parent}: {error.strerror}; preparing in {cache}", file=sys.stderr)
        draft = cache / "draft"
        draft.mkdir()
        cache = cache / "data"
    try:
        report = _fill(recipe, files, draft, progress)
        (draft / "report.json").write_text(json.dumps(report, indent=1, ensure_ascii=False))
        try:
            os.rename(draft, cache)
        except OSError:
            if not (cache / "report.json").is_file():  # another process was not faster
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return cache


def _fill(
    recipe: Recipe, files: dict[str, tuple[Path, Path]], folder: Path, progress: bool
) -> dict[str, Any]:
    data = recipe.data
    held = {"dev": data.dev, **({"test": data.test} if data.test else {})}
    splits: dict[str, Any] = {}
    marks: dict[str, set[int]] = {}
    for name, prefix in held.items():
        check = SplitCheck(tokenised=data.tokenised)
        for pair in _pairs(files[prefix]):
            check.admit(*pair)
        splits[name], marks[name] = check.report(), check.marks()
        if not check.kept:
            raise UserError(
                "no pair with text on both sides", at=f"data.{name} ({prefix})", fix="check it"
            )
    train = SplitCheck(data.max_len, marks, data.tokenised)

    def kept_pairs(check: SplitCheck, what: str) -> Iterator[Pair]:
        pairs = itertools.chain.from_iterable(_pairs(files[prefix]) for prefix in data.train)
        for pair in tqdm(
            pairs, what, unit=" pairs", leave=False, disable=None if progress else True
        ):
            if check.admit(*pair):
                yield pair

    checked = False

    def lines() -> Iterator[Pair]:
        # the first pass over the text is also the one that is counted
        nonlocal checked
        check, checked = (SplitCheck(data.max_len) if checked else train), True
        return kept_pairs(check, "learning the segmentation")

    segmenter = learn_segmenter(
        recipe.segment, recipe.src, recipe.tgt, data.tokenised, data.normalise, lines
    )
    save_segmenter(segmenter, folder)
    pairs = kept_pairs(SplitCheck(data.max_len) if checked else train, "encoding")
    vocab = _encode_train(recipe, segmenter, pairs, folder)
    vocab.save(folder)
    if not train.kept:
        drops = ", ".join(f"{f.count:,} {name}" for name, f in train.dropped.items()) or "none read"
        raise UserError(
            f"no training pair is left ({drops})", at="data.train", fix="check files and max_len"
        )
    for name, prefix in held.items():
        writer = CorpusWriter(folder / name, len(vocab))
        for src, tgt in _pairs(files[prefix]):
            writer.add(
                [vocab.ids(segmenter.encode(src, recipe.src))],
                [vocab.ids(segmenter.encode(tgt, recipe.tgt))],
            )
        splits[name]["unknown"] = _unknown_share(writer.close())
    splits = {"train": train.report(), **splits}
    return {
        "splits": splits,
        "overlap": {
            name: {
                "pairs": len(train.found[name]),
                "share": len(train.found[name]) / max(1, len(marks[name])),
                "examples": train.examples[name],
            }
            for name in held
        },
        "warnings": warnings(splits),
        "types": len(vocab),
    }


def _pairs(sides: tuple[Path, Path]) -> Iterator[Pair]:
    """Cleaned lines of both sides.

    Raises:
        UserError: unequal numbers of lines, with both counts and the first suspicious line.
    """
    counts = [0, 0]
    for src, tgt in itertools.zip_longest(*(read_lines(path) for path in sides)):
        counts[0] += src is not None
        counts[1] += tgt is not None
        if src is not None and tgt is not None:
            yield src, tgt
    if counts[0] != counts[1]:
        line = first_suspicious(zip(*(read_lines(path) for path in sides), strict=False))
        raise UserError(
            f"{counts[0]:,} lines, but {sides[1].name} has {counts[1]:,}"
            + (f"; they may have come apart at line {line}" if line else ""),
            at=str(sides[0]),
            fix="line n of one file must be the translation of line n of the other",
        )


def _encode_train(
    recipe: Recipe, segmenter: Segmenter, pairs: Iterator[Pair], folder: Path
) -> Vocab:
    """Encode with provisional ids in order of appearance, then rename them to the vocabulary's."""
    provisional: dict[str, int] = {}
    counts: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    draft = folder / "provisional"
    writer = CorpusWriter(draft, 1 << 31)
    for chunk in segmented(pairs, segmenter, recipe.src, recipe.tgt, recipe.seed):
        sides = []
        for side, count in zip(chunk, counts, strict=True):
            for pieces in side:
                count.update(pieces)
            sides.append(
                [[provisional.setdefault(p, len(provisional)) for p in pieces] for pieces in side]
            )
        writer.add(*sides)
    corpus = writer.close()
    vocab = Vocab.build(*counts, min_count=getattr(recipe.segment, "min_count", 1))
    final = np.array(vocab.ids(list(provisional)), dtype=np.int64)
    writer = CorpusWriter(folder / "train", len(vocab))
    for first in range(0, len(corpus), CHUNK):
        rows = range(first, min(first + CHUNK, len(corpus)))
        writer.add(
            [final[corpus.src(row)] for row in rows], [final[corpus.tgt(row)] for row in rows]
        )
    writer.close()
    shutil.rmtree(draft)
    return vocab


def _eval_set(sides: tuple[Path, Path], folder: Path) -> EvalSet:
    src, ref = (list(read_lines(path, clean=False)) for path in sides)
    return EvalSet(src, ref, EncodedCorpus(folder))


def _unknown_share(corpus: EncodedCorpus) -> float:
    ids = np.concatenate([corpus.src(row) for row in range(len(corpus))] or [np.empty(0)])
    return float((ids == UNK).mean()) if len(ids) else 0.0


def _judge(recipe: Recipe, report: dict[str, Any]) -> None:
    """Turn failed checks into an error, as ``data.checks`` says."""
    if recipe.data.checks != "error":
        return
    problems = [
        f"{overlap['share']:.1%} of the {name} pairs ({overlap['pairs']:,}) are in the training "
        f"data, e.g. {overlap['examples'][0]}"
        for name, overlap in report["overlap"].items()
        if overlap["share"] > recipe.data.max_overlap
    ]
    problems += [
        f"{split['unknown']:.0%} of the source pieces of {name} are unknown to the vocabulary: "
        "do the codes and the corpus fit together?"
        for name, split in report["splits"].items()
        if split.get("unknown", 0) > 0.5
    ]
    if problems:
        raise UserError(
            "\n  ".join(["corpus checks failed:", *problems]),
            at="data",
            fix="mend the corpus, raise data.max_overlap, or set data.checks=warn",
        )
