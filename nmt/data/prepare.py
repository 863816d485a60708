"""Prepare the corpora of a recipe for training: read and check, learn, encode, cache.

Training files are read twice: to hash their content, and to check their pairs. The pairs stay in
memory, about two bytes a character, while the segmentation is learned and the text is encoded.
For large corpora, worker processes do both. Noise is drawn here, in several versions of each pair,
so that it costs no training time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nmt.config.entries import Direction
from nmt.config.recipe import Recipe
from nmt.data.augment import Augmenter
from nmt.data.bitext import Bitext, Chunk, InputFiles, RecipeFiles, TrainingText, read_in_form
from nmt.data.cache import build_cache, data_hash, versions
from nmt.data.checks import lacked_by_parent, lacked_by_training, over_batch
from nmt.data.encoded import EncodeChunk, EncodedCorpus, encode_held_out, encode_training
from nmt.data.mixture import LEARNING_SEED, Mixture, mixture_of
from nmt.data.report import CorpusReport, Lengths
from nmt.data.scan import (
    check_augmented,
    read_corpora,
    read_to_learn_from,
    require_training_pairs,
    round_trip,
)
from nmt.data.segmenters import Segmenter, learn_segmenter, load_segmenter, save_segmenter
from nmt.data.vocab import MASK, Vocab
from nmt.errors import MachineError, NmtError, UserError
from nmt.runtime.files import read_text
from nmt.runtime.words import quantity

REPORT = "report.json"


@dataclass(frozen=True)
class EvalSet:
    """A dev or test set with all its lines, including blank ones.

    Attributes:
        src_lines, ref_lines: text as in the files, or converted to the form of the recipe; for a
            language model, the references are empty.
        corpus: ids; a blank side has length 0.
        name: "dev" or "test"; "dev.NAME" of several sets.
        direction: its languages and tags.
        other_refs: the lines of each further reference, in the form of ``ref_lines``.
    """

    src_lines: list[str]
    ref_lines: list[str]
    corpus: EncodedCorpus
    name: str
    direction: Direction
    other_refs: list[list[str]] = field(default_factory=list)


@dataclass(frozen=True)
class GivenText:
    """A fixed segmentation and vocabulary, from a parent or a run.

    Attributes:
        vocab: its counts are added to those of the corpora.
        parts: of a parent, new piece -> the pieces that it replaces; none = they are unknown.
        change: how the text differs from that of the parent, in numbers.
    """

    segmenter: Segmenter
    vocab: Vocab
    parts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    change: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Prepared:
    """The prepared corpora, as training needs them.

    Attributes:
        data_hash: of everything that determines the prepared data.
        content: SHA-256 of each file of train, dev, test and segment; paths do not count.
        mixture: how often an epoch has each training pair; None = once.
    """

    segmenter: Segmenter
    vocab: Vocab
    train: EncodedCorpus
    dev: list[EvalSet]
    test: list[EvalSet] | None
    report: CorpusReport
    data_hash: str
    content: dict[str, list[str]]
    mixture: Mixture | None = None

    @property
    def held_out(self) -> list[EvalSet]:
        """Return all dev and test sets."""
        return [*self.dev, *(self.test or [])]


def prepare(
    recipe: Recipe,
    progress: bool = True,
    given: GivenText | None = None,
    segmenter: Segmenter | None = None,
) -> Prepared:
    """Check, segment and encode the corpora of a recipe, or read them from the cache.

    Args:
        progress: show progress bars on a terminal.
        given: use this, and learn nothing; pieces that the vocabulary lacks are UNK.
        segmenter: use this one and do not learn one, but choose the types.

    Raises:
        UserError: files are missing, unequal, empty or changing, or a check failed
            (``data.checks``).
        MachineError: the cache is damaged, the disk is full, or a worker process was killed.
    """
    fixed_segmenter, fixed_vocab = (given.segmenter, given.vocab) if given else (segmenter, None)
    files = RecipeFiles.of(recipe)
    inputs = InputFiles(files.paths())
    digests = inputs.digests()
    content = files.hashes_by_role(digests)
    key = data_hash(recipe, content, fixed_segmenter, fixed_vocab)
    cache = Path(recipe.out).parent / ".cache" / key[:16]
    if not cache.is_dir():

        def build(folder: Path) -> None:
            report = _write(recipe, files, folder, progress, fixed_segmenter, fixed_vocab)
            inputs.require_unchanged()
            (folder / REPORT).write_text(report.to_json(), encoding="utf-8")

        cache = build_cache(cache, files.encoded_size() * recipe.draws, build)
    report, segmenter, vocab, encoded = _open(cache, files)
    train = encoded["train"]
    # read again: the cache has ids only
    sets = {
        name: _eval_set(name, bitext, encoded[name], recipe)
        for name, bitext in files.held_out.items()
    }
    weights = [bitext.weight for bitext in files.train]
    mixture = mixture_of(weights, train.sizes, recipe.data.temperature)
    report.lengths = {name: _lengths(corpus) for name, corpus in encoded.items()}
    if mixture is not None or vocab.tags or vocab.tgt_tags:
        shares = [1.0] * len(weights) if mixture is None else mixture.weights
        report.draws = [
            _draw(bitext, quantity(size, report.wording.unit), share)
            for bitext, size, share in zip(files.train, train.sizes, shares, strict=True)
        ]
    report.inputs = {str(path): digest for path, digest in digests.items()}
    report.versions = versions()
    if recipe.translates:  # a language model reads blocks, which divide lines
        longest = train.longest().min(1) + 1  # of the shortest version, with EOS
        report.findings += over_batch(longest, recipe.data.batch_tokens)
    report.judge(recipe.data)
    inputs.require_unchanged()
    return Prepared(
        segmenter=segmenter,
        vocab=vocab,
        train=train,
        dev=[sets[name] for name in sets if name.startswith("dev")],
        test=[sets[name] for name in sets if name.startswith("test")] or None,
        report=report,
        data_hash=key,
        content=content,
        mixture=mixture,
    )


def _write(
    recipe: Recipe,
    files: RecipeFiles,
    folder: Path,
    progress: bool,
    segmenter: Segmenter | None,
    fixed_vocab: Vocab | None,
) -> CorpusReport:
    """Read, learn and encode; write everything except the report, which is returned."""
    data = recipe.data
    augmenter = None
    if data.augments:
        augmenter = Augmenter(dict(data.augment.items()), data.tokenized)
    report, training, held_out = read_corpora(recipe, files, progress)
    segmenter = segmenter or _learn(recipe, files, training, augmenter, progress)
    save_segmenter(segmenter, folder)
    train_report = report.splits["train"]
    if recipe.translates and not data.tokenized and recipe.segment.kind != "sentencepiece":
        report.findings += round_trip(segmenter, training)
    known = None if fixed_vocab is None else set(fixed_vocab.types)
    noise = segmenter.noise(recipe.segment, known)
    vocab, left_out, unknown = encode_training(
        EncodeChunk(segmenter, data.max_pieces, recipe.draws, noise, augmenter, known),
        training,
        getattr(recipe.segment, "min_count", 1),
        folder / "train",
        fixed_vocab,
        [] if recipe.translates else [MASK],
    )
    report.findings += lacked_by_parent(unknown, report.wording)
    if augmenter:
        report.findings += check_augmented(augmenter, segmenter, known, training)
    train_report.drop("subwords", left_out)  # over data.max_pieces
    require_training_pairs(train_report, files)
    vocab.save(folder)
    report.types = len(vocab)
    for name, pairs in held_out.items():
        coverage = encode_held_out(pairs, segmenter, vocab, files.held_out[name], folder / name)
        report.findings += lacked_by_training(name, coverage, report, recipe.segment)
    return report


def _learn(
    recipe: Recipe,
    files: RecipeFiles,
    training: TrainingText,
    augmenter: Augmenter | None,
    progress: bool,
) -> Segmenter:
    """Learn the segmentation on the weighted mixture of ``segment.learn_from`` or data.train."""
    data, text = recipe.data, training
    if files.learn:
        text = read_to_learn_from(files.learn, data, progress)
    chunks = read_mixture(text, 1.0 if files.learn else data.temperature)
    chunks = augmenter.chunks(chunks) if augmenter else chunks
    return learn_segmenter(recipe.segment, data.tokenized, data.normalize, chunks, progress)


def read_mixture(text: TrainingText, temperature: float) -> Iterator[Chunk]:
    """Yield the weighted mixture of some corpora to learn a segmentation from.

    The temperature of ``segment.learn_from`` is 1: recipes that have the same learn the same.
    """
    mixture = mixture_of([corpus.weight for corpus in text.corpora], text.sizes, temperature)
    copies = None if mixture is None else mixture.copies(LEARNING_SEED, epoch=0)
    return text.read("learning", copies)


def _open(
    cache: Path, files: RecipeFiles
) -> tuple[CorpusReport, Segmenter, Vocab, dict[str, EncodedCorpus]]:
    """Open what ``_write`` wrote; the corpora by name.

    Raises:
        MachineError: it is damaged.
    """
    try:
        report = CorpusReport.from_json(read_text(cache / REPORT))
        vocab = Vocab.load(cache)
        if len(vocab) != report.types:
            raise ValueError(f"vocab.txt has {len(vocab):,} types, not {report.types:,}")
        corpora = {name: EncodedCorpus(cache / name) for name in ("train", *files.held_out)}
        return report, load_segmenter(cache), vocab, corpora
    except (NmtError, OSError, ValueError) as error:
        raise MachineError(
            f"the prepared data is damaged: {getattr(error, 'what', error)}",
            at=str(cache),
            fix="delete this folder; the next command prepares the data again",
        ) from error


def _eval_set(name: str, bitext: Bitext, encoded: EncodedCorpus, recipe: Recipe) -> EvalSet:
    """Read the lines of a dev or test set in the text form of the recipe.

    Raises:
        UserError: a file cannot be read, or a further reference has another number of lines.
    """
    paths = [*bitext.sides, *bitext.other_refs]
    langs = [*bitext.langs[: len(bitext.sides)], *bitext.langs[1:] * len(bitext.other_refs)]
    src, *refs = (
        read_in_form(path, lang, bitext.tokenized, recipe.data.tokenized)
        for path, lang in zip(paths, langs, strict=True)
    )
    first, *others = refs or [[""] * len(src)]
    for path, lines in zip(bitext.other_refs, others, strict=True):
        if len(lines) != len(first):
            raise UserError(
                f"has {quantity(len(lines), 'line')}, but {bitext.sides[-1].name} has "
                f"{len(first):,}",
                at=str(path),
                fix="line n of each reference must be the translation of line n of the source",
            )
    return EvalSet(src, first, encoded, name, bitext.direction, others)


def _lengths(corpus: EncodedCorpus) -> dict[str, Lengths]:
    sides = {"src": Lengths.of(corpus.src_len), "tgt": Lengths.of(corpus.tgt_len)}
    return {side: lengths for side, lengths in sides.items() if lengths is not None}


def _draw(bitext: Bitext, pairs: str, weight: float) -> str:
    """Describe how often an epoch has the pairs of a corpus."""
    times = "once"
    if weight != 1:
        times = f"{weight:,.0f} times" if weight >= 100 else f"{weight:.3g} times"
    tags = zip(("tag", "target tag"), bitext.direction.tags, strict=True)
    shown = "".join(f", with the {kind} {tag}" for kind, tag in tags if tag)
    return f"{bitext.name}: {pairs}, each {times} an epoch{shown}"
