"""Choose the keys of a recipe that fine-tunes a parent, each with its reason.

A small parent is trained like a model with random weights. For a large one, the settings are those
of recipes/finetune: the rate of mBART's fine-tuning (Liu et al. 2020), or Adafactor with that of
T5's (Raffel et al. 2020) where Adam's moments would need too much memory.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from nmt.apps.suggest.choices import (
    LONGER,
    VALIDATIONS,
    Budget,
    Choice,
    Suggestion,
    corpora,
    dropout,
    fit,
    in_an_update,
    languages,
    linear_schedule,
    muon_rate,
    muon_training,
    nested,
    one_pass,
    passes_in,
    scores,
    search,
    segmentation,
    time_of_validations,
)
from nmt.apps.suggest.corpus import CorpusPaths
from nmt.apps.suggest.facts import CorpusFacts, EncodedSample
from nmt.config.entries import TAG_KEYS, Directions
from nmt.config.recipe import DataConfig, Recipe
from nmt.config.sizes import CPU, Size, size_for
from nmt.data.cache import NOISE_KEYS
from nmt.data.prepare import GivenText
from nmt.data.vocab import SPECIALS
from nmt.errors import UserError
from nmt.runtime.files import human_bytes
from nmt.runtime.memory import free_memory, memory_to_train, parameter_count
from nmt.runtime.words import quantity
from nmt.store.model import Description, Model
from nmt.store.parent import text_of_parent, with_keys_of_parent
from nmt.text.languages import base_language
from nmt.training.tasks import model_without_memory

SMALL = CPU[3]  # the largest model measured here; a parent that is larger is fine-tuned
RATE_OF_SAME_PAIR = 0.25  # of that for random weights, as recipes/finetune/corrections.yaml
PASSES = 5  # of a large parent over the training data, at most: not measured
UNKNOWN = 0.02  # share of the pieces of a side; nmt-train warns above it
LARGE_VOCAB = 20_000  # types; a smaller vocabulary is not trimmed
LEFT_BY_TRIM = 0.5  # share of the types, at most
BATCH_TOKENS = 2048  # at most, as in recipes/finetune
# of the free memory, for weights, gradients and moments: batches need the rest; not measured
MEMORY_SHARE = 0.5


@dataclass(frozen=True)
class ParentModel:
    """A model to start from."""

    path: str  # as the user gives it
    model: Model
    same_pair: bool  # whether it translates between the languages of the corpus
    tags: Mapping[str, str]  # of the corpus, by key: as the parent has them for its languages
    notes: Sequence[str]  # on its languages and tags
    lines: Sequence[str]  # what it is, for the head of the recipe; the notes are among them

    @property
    def about(self) -> Description:
        """The description of the model."""
        return self.model.about

    @property
    def text(self) -> GivenText:
        """Its segmenter and its vocabulary."""
        return GivenText(self.model.segmenter, self.model.vocab)

    @property
    def small(self) -> bool:
        """Whether it is trained like a model with random weights."""
        return SMALL.holds(self.about.model)

    @classmethod
    def open(cls, path: str, paths: CorpusPaths) -> ParentModel:
        """Read the small files of a model.

        Raises:
            UserError: it is no translation model, or both languages differ from those
                of the corpus.
        """
        model = _open(path).require_translation()
        about = model.about
        other_pair = _notes_on_languages(about.trained, paths)
        tags = _tags_of(about.trained, paths)
        notes = [*other_pair, *_notes_on_tags(about.trained, tags)]
        size = quantity(len(model.vocab) - len(SPECIALS), "subword")
        lines = [f"{path}: {about.src}-{about.tgt}, {size} ({model.segmenter.kind})"]
        if (origin := about.origin) is not None:
            lines.append(f"{origin.describe()}; the license stays valid for what it becomes")
        return cls(path, model, not other_pair, tags, notes, [*lines, *notes])

    def require_another_folder(self, output: Path) -> None:
        """Raise UserError if a recipe with this name would train into the folder of the parent."""
        out = Path("runs") / output.stem
        if os.path.realpath(out) == os.path.realpath(self.path):
            raise UserError(
                f"a recipe with this name trains in {out}, which is the parent",
                at=str(output),
                fix=f"choose another name, such as -o {output.with_stem(output.stem + '-tuned')}",
            )


def _open(path: str) -> Model:
    try:
        return Model.open(path)
    except UserError as error:
        raise UserError(f"{error.at}: {error.what}", at="--parent", fix=error.fix) from error


def _notes_on_languages(directions: Directions, paths: CorpusPaths) -> list[str]:
    """Return a note if one language differs; raise UserError if both do."""
    same_src = base_language(paths.src) in {base_language(d.src) for d in directions.trained}
    same_tgt = base_language(paths.tgt) in {base_language(d.tgt) for d in directions.trained}
    if same_src and same_tgt:
        return []
    parent, corpus = f"{directions.src}-{directions.tgt}", f"{paths.src}-{paths.tgt}"
    if not (same_src or same_tgt):
        raise UserError(
            f"the parent translates {parent} and the corpus is {corpus}: no side has the same "
            "language",
            at="--parent",
            fix=f"choose a parent from {paths.src} or to {paths.tgt} (nmt-convert has --src-lang "
            f"and --tgt-lang), or the other direction of the corpus: --src-lang {paths.tgt} "
            f"--tgt-lang {paths.src}",
        )
    tags = directions.default_tags
    other, key = (paths.tgt, "tgt_tag") if same_src else (paths.src, "tag")
    if "tgt_tag" not in tags:  # then a tag is that of the target language
        key = "tag" if same_src else ""
    note = f"the parent translates {parent} and the corpus is {corpus}"
    if key in tags:
        note += (
            f"; {key} {tags[key]} of data.train may be that of another language: if the parent has "
            f"one for {other}, write that, else see init.tag_rows in docs/howto/transfer.md"
        )
    return [note]


def _tags_of(directions: Directions, paths: CorpusPaths) -> dict[str, str]:
    """Return the tags of the parent for the languages of a corpus, by key.

    They are those of its directions between both languages. If there is none, the tag of a language
    is that of the directions that have this language on the same side.
    """
    trained, found = directions.trained, directions.default_tags
    for key in TAG_KEYS:
        # tags before sources tell the target language, unless the targets have tags for this
        side = "src" if key == "tag" and any(one.tgt_tag for one in trained) else "tgt"
        forms: tuple[Callable[[str], str], ...] = (str, base_language)
        for sides, same in itertools.product((("src", "tgt"), (side,)), forms):
            tags = {
                getattr(direction, key)
                for direction in trained
                if all(same(getattr(direction, s)) == same(getattr(paths, s)) for s in sides)
            }
            if tags:  # the nearest directions decide
                break
        if len(tags) == 1 and (tag := tags.pop()):
            found.setdefault(key, tag)
    return found


def _notes_on_tags(directions: Directions, known: Mapping[str, str]) -> list[str]:
    notes = []
    for key in TAG_KEYS:
        if key in known:
            continue
        tags = {getattr(direction, key) for direction in directions.trained}
        if None not in tags and len(tags) > 1:
            listed = ", ".join(sorted(tags))
            notes.append(f"each corpus of the parent has a {key}: add one to data.train ({listed})")
    return notes


@dataclass(frozen=True)
class Start:
    """The choices that do not depend on the measured speed."""

    sample: EncodedSample | None  # in pieces of the recipe; None = the recipe learns its own
    data: Sequence[Choice]  # languages and corpora
    init: Sequence[Choice]  # parent and vocabulary


def resolve(choices: Sequence[Choice]) -> Recipe:
    """Complete a recipe by the sizes of its parent."""
    values = {**nested(choices), "out": os.devnull}
    return with_keys_of_parent(Recipe.model_validate(values), resume=False)


def choose_start(
    paths: CorpusPaths, facts: CorpusFacts, parent: ParentModel, progress: bool
) -> Start:
    """Choose the vocabulary for facts in the form of text that the parent has.

    Raises:
        UserError: the pieces do not fit, and the segmentation of the parent cannot be extended.
    """
    data = [*languages(paths), *corpora(paths, facts, parent.tags)]
    learned = parent.about.model.positions == "learned"
    longest = min(512, parent.about.model.max_positions - 3)  # two tags and EOS
    if learned and longest < DataConfig.model_fields["max_pieces"].default:
        data.append(Choice("data.max_pieces", longest, "as the parent's, whose positions end"))
    init = [Choice("init.from", parent.path, "the model to fine-tune")]
    usual = "fastbpe" if facts.tokenized else "sentencepiece"
    if parent.small and not parent.same_pair and parent.about.segment.kind == usual:
        why = "gives shorter sentences; subwords that the parent has keep its rows"
        return Start(None, data, [*init, Choice("init.vocab", "new", why)])
    vocabulary, text = _vocabulary(facts, parent, [*data, *init], progress)
    return Start(_sample(facts, parent, text), data, [*init, *vocabulary])


def _sample(facts: CorpusFacts, parent: ParentModel, text: GivenText) -> EncodedSample:
    segment = parent.about.segment
    fields = type(segment).model_fields
    # a measurement needs no noise
    quiet = {key: fields[key].default for key in NOISE_KEYS if key in fields}
    config = segment.model_copy(update=quiet)
    return EncodedSample(facts, config, text.segmenter, text.vocab)


def _vocabulary(
    facts: CorpusFacts, parent: ParentModel, data: Sequence[Choice], progress: bool
) -> tuple[list[Choice], GivenText]:
    """Return the keys of ``init`` for the vocabulary, and the text of a run that has them."""

    def adapted(keys: Sequence[Choice]) -> GivenText:
        text = text_of_parent(resolve([*data, *keys]), parent.model, progress)
        assert text is not None, "init.vocab is not new"
        return text

    unknown = _sample(facts, parent, parent.text).unknown
    shares = " and ".join(
        f"{share:.1%} of the {side.lang} subwords"
        for side, share in zip((facts.src, facts.tgt), unknown, strict=True)
    )
    kind = "extend" if max(unknown) > UNKNOWN else "parent"
    keys = [Choice("init.vocab", kind, f"{shares} are unknown to the parent")]
    before = len(parent.text.vocab) - len(SPECIALS)
    if before > LARGE_VOCAB:
        trim = Choice("init.trim", True)
        with contextlib.suppress(UserError):  # a segmentation into words cannot be trimmed
            text = adapted([*keys, trim])
            left = len(text.vocab) - len(SPECIALS)
            if left <= LEFT_BY_TRIM * before:
                why = f"{left:,} of {before:,} subwords: the corpus does not need the others"
                return [*keys, Choice(trim.key, trim.value, why)], text
    try:
        return keys, adapted(keys)
    except UserError as error:
        if kind == "parent":
            raise
        raise UserError(
            f"{shares} are unknown to the parent, and {error.what}",
            at="--parent",
            fix="choose another parent, or leave out --parent and add init.from to the recipe, "
            "which then has a vocabulary of its own (docs/howto/transfer.md)",
        ) from error


def suggest_from(
    facts: CorpusFacts,
    parent: ParentModel,
    start: Start,
    device: torch.device,
    budget: Budget | None = None,
) -> Suggestion:
    """Choose the optimizer and the number of updates; without a budget, a default number."""
    if not parent.small:
        return _fine_tuning(facts, parent, start, device, budget)
    row = size_for(facts.target_words, CPU)
    while True:  # smaller batches, as long as few updates fit into the hours
        suggestion = _as_from_scratch(facts, parent, start, budget, row)
        smaller = suggestion.smaller_size
        if smaller is None:
            return suggestion
        row = smaller


def _as_from_scratch(
    facts: CorpusFacts, parent: ParentModel, start: Start, budget: Budget | None, row: Size
) -> Suggestion:
    """Choose the training settings of a row, with the sizes of the parent."""

    def segment(types: int) -> tuple[list[Choice], EncodedSample]:
        return segmentation(facts, types) if start.sample is None else ([], start.sample)

    size = replace(row, dim=parent.about.model.dim)
    validations, why_so_long = VALIDATIONS, LONGER
    if budget is not None:
        size, validations, why_so_long = fit(size, budget, facts, lambda types: segment(types)[1])
    keys, sample = segment(size.types)
    tokens_per_pass, per_pass = one_pass(facts, sample, size.batch_tokens)
    lr, why_lr = muon_rate(size.dim), "for Muon at this dim: the parent has another pair"
    if parent.same_pair:
        lr = round(RATE_OF_SAME_PAIR * lr, 5)
        why_lr = "a quarter of Muon's at this dim, as recipes/finetune/corrections.yaml"
    training, updates = muon_training(size, lr, why_lr, per_pass, validations, why_so_long)
    batch = Choice("data.batch_tokens", size.batch_tokens, in_an_update(tokens_per_pass, per_pass))
    choices = [
        *start.data, batch, *start.init, *keys, dropout(size), *training,
        *search(size, [facts]), *scores([facts]),
    ]  # fmt: skip
    validations += 1  # that of the parent
    evaluation_tokens = time_of_validations(facts, sample, validations)
    return Suggestion(
        choices, sample, per_pass, updates, tokens_per_pass, row, validations, evaluation_tokens,
        budget, parent.lines,
    )  # fmt: skip


def _fine_tuning(
    facts: CorpusFacts,
    parent: ParentModel,
    start: Start,
    device: torch.device,
    budget: Budget | None,
) -> Suggestion:
    """Choose the training settings for a large parent, as in recipes/finetune."""
    assert start.sample is not None, "a large parent keeps its vocabulary"
    sample, passes, validations = start.sample, float(PASSES), VALIDATIONS
    why_so_long = "not measured; train.stop_patience may end it earlier"
    if budget is not None:
        passes, validations = passes_in(sample, budget, facts, PASSES)
        if passes < PASSES:
            why_so_long = f"as many as fit into {quantity(budget.hours, 'hour', 'g')} here"
    batch_tokens = min(BATCH_TOKENS, size_for(facts.target_words, CPU).batch_tokens)
    tokens_per_pass, per_pass = one_pass(facts, sample, batch_tokens)
    batch = Choice("data.batch_tokens", batch_tokens, in_an_update(tokens_per_pass, per_pass))
    noise = [
        Choice("model.dropout", 0.1, "as recipes/finetune"),
        Choice("model.word_dropout", 0.0, "as recipes/finetune"),
    ]
    optimizer, lr, why_lr, recompute = _optimizer(
        [*start.data, *start.init, *noise], sample, device
    )
    schedule, updates = linear_schedule(lr, why_lr, passes, per_pass, validations, why_so_long)
    patience = Choice("train.stop_patience", 3, "ends earlier: validations without a better score")
    choices = [
        *start.data, batch, *start.init, *noise, optimizer, *schedule, patience, *recompute,
        *scores([facts]),
    ]  # fmt: skip
    validations += 1  # that of the parent
    evaluation_tokens = time_of_validations(facts, sample, validations)
    return Suggestion(
        choices, sample, per_pass, updates, tokens_per_pass, None, validations, evaluation_tokens,
        budget, parent.lines,
    )  # fmt: skip


def _optimizer(
    choices: Sequence[Choice], sample: EncodedSample, device: torch.device
) -> tuple[Choice, float, str, list[Choice]]:
    """Return the optimizer that fits in memory, its rate with the reason, and what saves memory."""
    empty = model_without_memory(resolve(choices), len(sample.vocab))
    needed = memory_to_train(parameter_count(empty), 0, "adamw")
    free = free_memory(device)
    if free is None or needed <= MEMORY_SHARE * free:
        adam = Choice("optim.kind", "adamw", "as mBART's fine-tuning (Liu et al. 2020)")
        return adam, 3e-5, "of Liu et al. 2020", []
    why = (
        f"Adam's weights, gradients and moments would take {human_bytes(needed)} of the "
        f"{human_bytes(free)} that are free, and batches need memory too"
    )
    adafactor = Choice("optim.kind", "adafactor", why)
    recompute = Choice("train.recompute", True, "less memory for batches, a third more time")
    why_lr = "relative to the weights, as T5's fine-tuning (Raffel et al. 2020)"
    return adafactor, 1e-3, why_lr, [recompute]
