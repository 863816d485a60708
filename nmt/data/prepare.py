"""From corpus files to encoded, checked, cached data: everything training needs of them.

Two streaming passes over the training files: one counts and learns the segmentation, one encodes;
both in worker processes for large corpora. The result is cached under a hash of all that it depends
on.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib.metadata
import json
import os
import shutil
import sys
import tempfile
import unicodedata
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nmt.config.recipe import Recipe
from nmt.data.bitext import (
    InputFiles,
    Sides,
    TrainingText,
    check_split,
    find_files,
    locate_sides,
    read_pairs,
)
from nmt.data.checks import LISTED, Limits, SplitCheck, failures, warnings
from nmt.data.encoded import EncodeChunk, EncodedCorpus, encode_held_out, encode_training
from nmt.data.languages import wrong_languages
from nmt.data.near_duplicates import Recurring
from nmt.data.segmenters import (
    Segmenter,
    learn_segmenter,
    load_segmenter,
    save_segmenter,
    segmenter_hash,
)
from nmt.data.text import OPENERS, read_lines
from nmt.data.vocab import Vocab
from nmt.errors import MachineError, NmtError, UserError
from nmt.runtime.files import disk_errors

VERSION = "4"  # of what the cache holds; a change of it makes old caches unused
PACKAGES = ("sacremoses", "sentencepiece", "subword-nmt")  # what they do to text depends on them
REPORT = "report.json"  # written last: a folder that has it is whole


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
    """All that training needs of the corpora.

    Attributes:
        data_hash: changes when any of it does.
        content: SHA-256 of each file of train, dev, test and segment, wherever it is.
    """

    segmenter: Segmenter
    vocab: Vocab
    train: EncodedCorpus
    dev: EvalSet
    test: EvalSet | None
    report: dict[str, Any]
    data_hash: str
    content: dict[str, list[str]]


def missing_files(recipe: Recipe) -> list[str]:
    """Prefixes of the recipe's corpora of which a side is not there."""
    langs = (recipe.src, recipe.tgt)
    return [
        p for p in _prefixes(recipe) if not all(isinstance(s, Path) for s in locate_sides(p, langs))
    ]


def prepare(recipe: Recipe, progress: bool = True, segmenter: Segmenter | None = None) -> Prepared:
    """Check, segment and encode the recipe's corpora, or take them from the cache.

    Args:
        progress: show bars on a terminal.
        segmenter: use this one instead of learning one.

    Raises:
        UserError: files missing, unequal, empty or changing, or a check failed (``data.checks``).
        MachineError: the cache is damaged, or a worker process died.
    """
    files = find_files(_prefixes(recipe), (recipe.src, recipe.tgt))
    inputs = InputFiles([*(path for sides in files.values() for path in sides), *_given(recipe)])
    digests = inputs.digests()
    content = {
        role: [digests[path] for prefix in prefixes for path in files[prefix]]
        for role, prefixes in _roles(recipe).items()
    }
    content["segment"] = [digests[path] for path in _given(recipe)]
    data_hash = _data_hash(recipe, content, segmenter)
    cache = Path(recipe.out).parent / ".cache" / data_hash[:16]
    if not cache.is_dir():
        cache = _build(recipe, files, inputs, cache, progress, segmenter)
    sides = files[recipe.data.dev], files.get(recipe.data.test or "")
    prepared = _open(cache, data_hash, content, *sides)
    hashes = {str(path): digest for path, digest in digests.items()}
    prepared.report.update({"inputs": hashes, "versions": versions()})
    prepared.report["over batch_tokens"] = _over_batch(recipe, prepared.train)
    prepared.report["warnings"] = _judge(recipe, prepared.report)
    inputs.require_unchanged()
    return prepared


def _roles(recipe: Recipe) -> dict[str, list[str]]:
    """Prefixes by what they are for."""
    data = recipe.data
    return {"train": data.train, "dev": [data.dev], "test": [data.test] if data.test else []}


def _prefixes(recipe: Recipe) -> list[str]:
    return [prefix for prefixes in _roles(recipe).values() for prefix in prefixes]


def _given(recipe: Recipe) -> list[Path]:
    """Files of the segmentation that the recipe names."""
    names = (getattr(recipe.segment, key, "learn") for key in ("codes", "model"))
    return [Path(name) for name in names if name != "learn"]


def versions() -> dict[str, str]:
    """Return the versions of what decides how text is cut: packages, and Unicode's tables."""
    found = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {**found, "Unicode": unicodedata.unidata_version}


def _data_hash(recipe: Recipe, content: dict[str, list[str]], segmenter: Segmenter | None) -> str:
    """Return the SHA-256 over all that decides what preparation makes.

    That is the contents of the files, each in its role, some keys, and the versions of what cuts
    the text. Paths are not part of it: a corpus may move.
    """
    data, segment = recipe.data, recipe.segment
    keys = {
        "version": VERSION,
        "versions": versions(),
        "content": content,
        "segmenter": segmenter and segmenter_hash(segmenter),
        "languages": [recipe.src, recipe.tgt],
        "segment": segment.model_dump(exclude={"codes", "model"}),
        "data": [data.tokenized, data.max_len, data.max_pieces, data.normalize],
        "seed": recipe.seed if getattr(segment, "dropout", 0) else None,
    }
    return hashlib.sha256(json.dumps(keys, sort_keys=True).encode()).hexdigest()


def _build(
    recipe: Recipe,
    files: dict[str, Sides],
    inputs: InputFiles,
    cache: Path,
    progress: bool,
    segmenter: Segmenter | None,
) -> Path:
    """Make the cache folder complete or not at all.

    Where it cannot be written, a temporary folder holds the data until the process ends.
    """
    draft = cache.with_name(f".draft-{cache.name}-{uuid.uuid4().hex[:8]}")
    try:
        draft.mkdir(parents=True)
    except OSError as error:
        elsewhere = Path(tempfile.mkdtemp(prefix="nmt-data-"))
        atexit.register(shutil.rmtree, elsewhere, ignore_errors=True)
        print(
            f"note: {draft.parent}: {error.strerror}; preparing in {elsewhere}, "
            "which is removed at the end",
            file=sys.stderr,
        )
        cache, draft = elsewhere / cache.name, elsewhere / "draft"
        draft.mkdir()
    try:
        with disk_errors(cache, _space(files), again="run the same command again"):
            report = _fill(recipe, files, draft, progress, segmenter)
            inputs.require_unchanged()
            (draft / REPORT).write_text(json.dumps(report, indent=1, ensure_ascii=False), "utf-8")
            try:
                os.rename(draft, cache)
            except OSError:
                if not cache.is_dir():  # another process was not faster
                    raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return cache


def _space(files: dict[str, Sides]) -> int:
    """Return about how many bytes the encoded corpora take while they are written."""
    paths = {path for sides in files.values() for path in sides}
    return sum(path.stat().st_size * (8 if path.suffix in OPENERS else 2) for path in paths)


def _fill(
    recipe: Recipe,
    files: dict[str, Sides],
    folder: Path,
    progress: bool,
    segmenter: Segmenter | None,
) -> dict[str, Any]:
    data, src, tgt = recipe.data, recipe.src, recipe.tgt
    held_out = {"dev": data.dev, **({"test": data.test} if data.test else {})}
    checks = {
        name: check_split(name, files[prefix], data.tokenized) for name, prefix in held_out.items()
    }
    marks = {name: check.marks() for name, check in checks.items()}
    pairs = {name: list(read_pairs(files[prefix])) for name, prefix in held_out.items()}
    recurring = tuple(
        Recurring({name: (pair[side] for pair in of_split) for name, of_split in pairs.items()})
        for side in (0, 1)
    )
    limits = Limits(data.max_len, data.max_pieces)
    check = SplitCheck(limits, marks, data.tokenized, (recurring[0], recurring[1]))
    text = TrainingText([(prefix, files[prefix]) for prefix in data.train], check, progress)
    segmenter = segmenter or learn_segmenter(
        recipe.segment, src, tgt, data.tokenized, data.normalize, lambda: text.pairs("learning")
    )
    save_segmenter(segmenter, folder)
    vocab, left_out = encode_training(
        EncodeChunk(segmenter, src, tgt, recipe.seed, data.max_pieces),
        text.pairs("encoding"),
        getattr(recipe.segment, "min_count", 1),
        folder / "train",
    )
    reason = f"longer than {data.max_pieces:,} pieces"
    check.drop(reason, len(left_out), text.places(left_out[:LISTED]))
    text.require_pairs()
    vocab.save(folder)
    splits = {"train": check.report(), **{name: c.report() for name, c in checks.items()}}
    for name in held_out:
        coverage = encode_held_out(iter(pairs[name]), segmenter, vocab, src, tgt, folder / name)
        splits[name]["coverage"] = {side: vars(found) for side, found in coverage.items()}
    held = {name: profiles for c in checks.values() for name, profiles in c.profiles.items()}
    wrong, odd = wrong_languages(check.profiles, held, (src, tgt))
    return {
        "splits": splits,
        "overlap": check.overlap(),
        "test in dev": _shared(marks["dev"], marks.get("test", set())),
        "languages": {"failures": wrong, "warnings": odd},
        "types": len(vocab),
    }


def _shared(dev: set[int], test: set[int]) -> dict[str, Any]:
    """Return how many of the distinct test pairs are dev pairs."""
    both = len(dev & test)
    return {"pairs": both, "share": both / max(1, len(test))}


def _open(
    cache: Path, data_hash: str, content: dict[str, list[str]], dev: Sides, test: Sides | None
) -> Prepared:
    try:
        report = json.loads((cache / REPORT).read_text(encoding="utf-8"))
        vocab = Vocab.load(cache)
        if len(vocab) != report["types"]:
            raise ValueError(f"vocab.txt has {len(vocab):,} types, not {report['types']:,}")
        return Prepared(
            segmenter=load_segmenter(cache),
            vocab=vocab,
            train=EncodedCorpus(cache / "train"),
            dev=EvalSet(*_lines(dev), EncodedCorpus(cache / "dev")),
            test=EvalSet(*_lines(test), EncodedCorpus(cache / "test")) if test else None,
            report=report,
            data_hash=data_hash,
            content=content,
        )
    except (NmtError, OSError, ValueError) as error:
        raise MachineError(
            f"the prepared data is damaged: {getattr(error, 'what', error)}",
            at=str(cache),
            fix="delete this folder; it is made again from the corpus",
        ) from error


def _lines(sides: Sides) -> tuple[list[str], list[str]]:
    src, ref = (list(read_lines(path, clean=False)) for path in sides)
    return src, ref


def _over_batch(recipe: Recipe, train: EncodedCorpus) -> int:
    """Return how many training pairs are longer than a batch, the end of the sentence included."""
    longest = np.maximum(train.src_len, train.tgt_len) + 1
    return int(np.count_nonzero(longest > recipe.data.batch_tokens))


def _judge(recipe: Recipe, report: dict[str, Any]) -> list[str]:
    """What to warn of; failed checks are an error, a warning or nothing, by ``data.checks``."""
    data = recipe.data
    if data.checks == "off":
        return []
    problems = failures(report, data.max_overlap)
    if problems and data.checks == "error":
        raise UserError(
            "\n  ".join(["corpus checks failed:", *problems]),
            at="data",
            fix="correct the corpus, raise data.max_overlap, or set data.checks=warn",
        )
    found = [*problems, *warnings(report, data.max_overlap)]
    if over := report["over batch_tokens"]:
        share = over / report["splits"]["train"]["kept"]
        found.append(
            f"train: {over:,} pairs ({share:.1%}) are longer than data.batch_tokens "
            f"({data.batch_tokens:,} pieces); each of them is a batch of its own"
        )
    return found
