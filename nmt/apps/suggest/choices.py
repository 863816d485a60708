"""Choose the keys of a recipe for a corpus, each with its reason."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nmt.apps.suggest.corpus import CorpusPaths
from nmt.apps.suggest.facts import CorpusFacts, EncodedSample, looks_tokenized, script_name
from nmt.apps.suggest.morphology import rich_morphology
from nmt.apps.suggest.neighbors import related_corpora
from nmt.config.entries import MAX_WEIGHT
from nmt.config.sizes import CPU, GPU, Size, lengthened, most_passes, size_for, smaller
from nmt.data.batches import make_batches
from nmt.data.bitext import read_pairs
from nmt.data.checks import LIKE_TRAIN
from nmt.runtime.words import quantity
from nmt.text.languages import UNSPACED

VALIDATIONS = 8  # at most, of a run with a fixed number of updates
# With fewer updates, a smaller model with smaller batches and a smaller vocabulary is suggested. In
# 0.1 hours the row of recipes/quickstart.yaml has 640 updates instead of 120. The limit between the
# two was not measured.
ENOUGH_UPDATES = 500
FEW_PASSES = 0.25  # share of the passes of a size: a run with fewer has no dropout
SEARCH_COST = 2.0  # time of a target piece in a validation, in those of a piece in an update
VALIDATION_SHARE = 0.25  # of the time of a short training, at most
LR_SCALE = 0.08  # of Muon: 5e-3 at dim 256 and 6e-3 at dim 192 were measured; lr = 0.08 / sqrt(dim)
# For a target with many forms of each word: 1.0 to 4.4 chrF++ more on nine dev sets, and up to 0.6
# BLEU less (docs/experiments/decoding.md).
LONG_ALPHA, NO_REPEAT_NGRAM = 2.0, 3
FEW_PAIRS = 1000
UPDATES_SHARE = 0.9  # of the time without validations; the start and checkpoints take the rest
LONGER = "more give a better model (nmt-suggest ... --hours)"
HOWTO = "docs/howto/"


@dataclass(frozen=True)
class Choice:
    """A recipe key (``model.dim``), its value, and the reason in a few words."""

    key: str
    value: Any
    why: str = ""


@dataclass(frozen=True)
class Budget:
    """The time limit of a run."""

    hours: float
    tokens: float  # target pieces that this machine trains on in these hours


@dataclass(frozen=True)
class Suggestion:
    """A recipe for a corpus."""

    choices: list[Choice]  # in the order of the recipe
    sample: EncodedSample  # in pieces of this recipe
    updates_per_pass: float
    updates: int  # at most
    tokens_per_pass: int  # target pieces, EOS included
    size: Size | None  # the row whose training it has; None = that of a large parent
    validations: int
    # target pieces that updates could compute in the time that all validations and the test set
    # take together, estimated; 0 on a GPU
    evaluation_tokens: float
    budget: Budget | None  # None = the default length
    parent: Sequence[str] = ()  # notes on the parent, in lines; empty = there is none

    @property
    def smaller_size(self) -> Size | None:
        """The row to suggest instead, because the time is short; None = keep this one."""
        if self.size is None or self.budget is None:
            return None
        enough = min(ENOUGH_UPDATES, self.size.passes * self.updates_per_pass)
        return smaller(self.size) if self.updates < enough else None

    def values(self) -> dict[str, Any]:
        """Return the recipe as nested dictionaries."""
        return nested(self.choices)


def nested(choices: Iterable[Choice]) -> dict[str, Any]:
    """Nest recipe keys as dictionaries."""
    tree: dict[str, Any] = {}
    for choice in choices:
        group, _, key = choice.key.rpartition(".")
        (tree.setdefault(group, {}) if group else tree)[key] = choice.value
    return tree


def suggest(
    paths: CorpusPaths,
    facts: CorpusFacts,
    gpu: bool,
    budget: Budget | None = None,
    row: Size | None = None,
    parts: Sequence[CorpusFacts] = (),
) -> Suggestion:
    """Choose a recipe for a corpus.

    Args:
        gpu: False = choose a model that a CPU trains in hours.
        budget: on a CPU it sets the number of passes over the data, because the learning rate
            falls to 0 at the end of them; on a GPU it sets ``time_limit``.
        row: size of the model; None = by the number of words.
        parts: the corpora of which ``facts`` are the sums; empty = one corpus.
    """
    parts = parts or [facts]
    fitting = size_for(facts.target_words, GPU if gpu else CPU)
    row = row or fitting
    size, validations, why_so_long = row, VALIDATIONS, LONGER
    if budget is not None and not gpu:
        size, validations, why_so_long = fit(
            row, budget, facts, lambda types: segmentation(facts, types)[1]
        )
    segment, sample = segmentation(facts, size.types)
    tokens_per_pass, per_pass = one_pass(facts, sample, size.batch_tokens)
    if gpu:
        training, updates = _until_dev_stops(int(size.passes), per_pass)
    else:
        lr, why_lr = muon_rate(size.dim), "for Muon at this dim"
        training, updates = muon_training(size, lr, why_lr, per_pass, validations, why_so_long)
        training += search(size, parts)
    choices = languages(paths)
    if budget is not None and gpu:
        choices.append(Choice("time_limit", budget.hours, "hours, then the test set is scored"))
    choices += corpora(paths, facts)
    choices += [
        Choice("data.batch_tokens", size.batch_tokens, in_an_update(tokens_per_pass, per_pass)),
        *segment,
        *_model(size, facts.target_words, smaller=row != fitting),
        *training,
        *scores(parts),
    ]
    evaluation_tokens = 0.0 if gpu else time_of_validations(facts, sample, validations)
    return Suggestion(
        choices, sample, per_pass, updates, tokens_per_pass, row, validations, evaluation_tokens,
        budget,
    )  # fmt: skip


def one_pass(facts: CorpusFacts, sample: EncodedSample, batch_tokens: int) -> tuple[int, float]:
    """Return the target pieces and the updates of one pass over the data."""
    scale = facts.pairs / len(sample)
    in_sample = make_batches(sample.src_len, sample.tgt_len, batch_tokens, seed=1, epoch=0)
    return int(sample.target_pieces * scale), len(in_sample) * scale


def in_an_update(tokens_per_pass: int, updates_per_pass: float) -> str:
    """Describe how many pieces an update has."""
    return f"about {tokens_per_pass / updates_per_pass:,.0f} target subwords in an update"


def languages(paths: CorpusPaths) -> list[Choice]:
    """Return the keys of the languages."""
    return [
        Choice("src", paths.src, "source language"),
        Choice("tgt", paths.tgt, "target language"),
    ]


def scores(parts: Sequence[CorpusFacts]) -> list[Choice]:
    """Return the keys of the scores, if the defaults do not fit the target languages."""
    for facts in parts:
        if why := rich_morphology(facts):
            return [Choice("score.select_by", "chrf++", why)]
        if not (facts.tgt.spaced or facts.tokenized):
            why = "does not depend on how text without spaces is split"
            return [Choice("score.select_by", "chrf", why)]
    return []


def fit(
    size: Size, budget: Budget, facts: CorpusFacts, sample_in: Callable[[int], EncodedSample]
) -> tuple[Size, int, str]:
    """Return a row of CPU that fits a budget, its validations, and why it has so many passes.

    Args:
        sample_in: returns the sample in pieces of a vocabulary with so many types.
    """
    fitting, validations = passes_in(sample_in(size.types), budget, facts, most_passes(size))
    fitted = lengthened(size, fitting)
    if fitted.types != size.types:  # with fewer types, a pass takes longer
        sample = sample_in(fitted.types)
        passes, validations = passes_in(sample, budget, facts, most_passes(fitted))
        fitted = replace(fitted, passes=min(fitted.passes, passes))
    if fitted.passes < FEW_PASSES * size.passes:
        fitted = replace(fitted, dropout=0.0, word_dropout=0.0)
    if fitted.passes == most_passes(size):
        return fitted, validations, "more were not better for gl-en (docs/results.md)"
    hours = quantity(budget.hours, "hour", "g")
    return fitted, validations, f"as many as fit into {hours} here"


def passes_in(
    sample: EncodedSample, budget: Budget, facts: CorpusFacts, most: float
) -> tuple[float, int]:
    """Return the passes over the data that fit a budget, at most ``most``, and the validations."""
    test, with_dev = (time_of_validations(facts, sample, count) for count in (0, 1))
    affordable = (VALIDATION_SHARE * budget.tokens - test) / max(1.0, with_dev - test)
    validations = max(1, int(min(VALIDATIONS, affordable)))
    left = budget.tokens - time_of_validations(facts, sample, validations)
    passes = UPDATES_SHARE * left * len(sample) / (facts.pairs * sample.target_pieces)
    passes = min(passes, most)
    return (float(int(passes)) if passes >= 3 else max(0.01, round(passes, 2))), validations


def time_of_validations(facts: CorpusFacts, sample: EncodedSample, validations: int) -> float:
    """Estimate the time of some validations and the test set, in target pieces of an update."""
    splits = facts.report.splits
    dev, test = (splits[name].pairs if name in splits else 0 for name in ("dev", "test"))
    pieces = sample.target_pieces / len(sample)
    return SEARCH_COST * pieces * (validations * dev + test)


def corpora(paths: CorpusPaths, facts: CorpusFacts, tags: Mapping[str, str] = {}) -> list[Choice]:
    """Return the entries of train, dev and test, and ``data.tokenized``.

    Args:
        tags: of the entry of train, whose tags the others have too.
    """
    reasons = {
        "train": quantity(facts.pairs, "pair"),
        "dev": "chooses the best checkpoint",
        "test": "scored once, at the end",
    }
    choices = []
    for name, path in paths.splits.items():
        keys: dict[str, Any] = {**tags} if name == "train" else {}
        why = reasons[name]
        if (form := facts.forms[name]) != facts.tokenized:
            keys = {"tokenized": form, **keys}
            why += "; tokenized" if form else "; not tokenized"
        choices.append(Choice(f"data.{name}", {"path": path, **keys} if keys else path, why))
    if facts.tokenized:
        all_are = all(facts.forms.values())
        why = "the text seems to be Moses-tokenized" if all_are else "as the parent's"
        choices.append(Choice("data.tokenized", True, why))
    return choices


def with_related_text(suggestion: Suggestion, paths: CorpusPaths, facts: CorpusFacts) -> Suggestion:
    """Add the texts of neighbors that lie next to the corpus to the entries of train.

    The corpus itself gets a third of an epoch, as in our measurements (docs/howto/
    related-languages.md).
    """
    texts = [text for corpus in related_corpora(paths) if (text := corpus.entry())]
    if not texts:
        return suggestion
    (own,) = (choice.value for choice in suggestion.choices if choice.key == "data.train")
    entries: list[dict[str, Any]] = [own if isinstance(own, dict) else {"path": own}]
    pairs = 0
    for entry, files in texts:
        form = bool(looks_tokenized(files))
        entries.append(entry if form == facts.tokenized else {**entry, "tokenized": form})
        pairs += sum(1 for _ in read_pairs(files))
    if (weight := round(pairs / (2 * facts.pairs), 1)) > 1:
        entries[0] = {**entries[0], "weight": min(weight, MAX_WEIGHT)}
    neighbors = f"and {quantity(pairs, 'pair')} of a neighbor; updates as without them"
    choices = [
        Choice(choice.key, entries, f"{choice.why}, {neighbors}")
        if choice.key == "data.train"
        else choice
        for choice in suggestion.choices
    ]
    return replace(suggestion, choices=choices)


def segmentation(facts: CorpusFacts, types: int) -> tuple[list[Choice], EncodedSample]:
    """Return the keys of the segmentation, and the sample in its pieces."""
    why_types = "from the same row of sizes as dim"
    if facts.tokenized:
        choices = [
            Choice("segment.kind", "fastbpe", "BPE within the words of tokenized text"),
            Choice("segment.merges", types, why_types),
        ]
        # the merges come on top of the characters, of which Japanese text has over a thousand
        return choices, EncodedSample.learned(facts, types + facts.characters, byte_fallback=False)
    rare = 2 * facts.characters > types  # as in Chinese
    if rare:
        types = -(-(types + facts.characters) // 1000) * 1000
        why_types = f"the corpus has at least {facts.characters:,} characters"
    raw = "works on raw text"
    if not (facts.src.spaced and facts.tgt.spaced):
        raw += ", also without spaces between words"
    choices = [
        Choice("segment.kind", "sentencepiece", raw),
        Choice("segment.vocab_size", types, why_types),
    ]
    if rare:
        choices.append(Choice("segment.byte_fallback", True, "writes rare characters as bytes"))
    return choices, EncodedSample.learned(facts, types, byte_fallback=rare)


def _model(size: Size, words: int, smaller: bool) -> list[Choice]:
    source = "a smaller size, for a short run" if smaller else size.source
    return [
        Choice("model.dim", size.dim, f"{quantity(words, 'target word')}: {source}"),
        Choice("model.ffn_dim", 4 * size.dim, "4 x dim, as in T"),
        Choice("model.heads", size.heads, f"of {size.dim // size.heads} dimensions each"),
        Choice("model.enc_layers", size.layers, "from the same row of sizes as dim"),
        Choice("model.dec_layers", size.layers, "as many as enc_layers"),
        dropout(size),
    ]


def dropout(size: Size) -> Choice:
    """Return the key of the dropout."""
    return Choice("model.dropout", size.dropout, f"for {_count_passes(size.passes)} at most")


def muon_rate(dim: int) -> float:
    """Return the highest learning rate of Muon for random weights."""
    return round(LR_SCALE / math.sqrt(dim), 4)


def muon_training(
    size: Size, lr: float, why_lr: str, per_pass: float, validations: int, reason: str
) -> tuple[list[Choice], int]:
    """Return the keys of a run with Muon and a linear schedule, and its updates."""
    schedule, updates = linear_schedule(lr, why_lr, size.passes, per_pass, validations, reason)
    choices = [
        Choice(
            "model.word_dropout",
            size.word_dropout,
            "for many passes over the data" if size.word_dropout else "costs more than it gives",
        ),
        Choice("optim.kind", "muon", "needs half of Adam's tokens at most (docs/results.md)"),
        Choice("optim.betas", [0.9, 0.98], "of Adam, for all weights that are not matrices"),
        *schedule,
    ]
    return choices, updates


def search(size: Size, parts: Sequence[CorpusFacts]) -> list[Choice]:
    """Return the keys of the search with a model of this size."""
    long = "as recipes/best/gl-en.yaml, for a long run"
    choices = [Choice("decode.beam", size.beam, long)] if size.long else []
    alpha = size.length_alpha
    why = long if size.long else "0.6 gives short outputs after few updates"
    if any(map(rich_morphology, parts)):
        alpha, why = LONG_ALPHA, "gives more chrF++ (docs/experiments/decoding.md)"
        choices.append(
            Choice("decode.no_repeat_ngram", NO_REPEAT_NGRAM, "against repeated phrases")
        )
    tune = "after training, nmt-score RUN --tune-length tries others on dev"
    return [*choices, Choice("decode.length_alpha", alpha, f"{why}; {tune}")]


def linear_schedule(
    lr: float, why_lr: str, passes: float, per_pass: float, validations: int, reason: str
) -> tuple[list[Choice], int]:
    """Return the keys of a schedule of so many passes with validations, and its updates."""
    every = _round(passes * per_pass / validations)
    updates = validations * every
    warmup = min(_round(updates / 20), updates - 1)
    return [
        Choice("schedule.kind", "linear", "falls to 0 at the end"),
        Choice("schedule.lr", lr, why_lr),
        Choice("schedule.warmup_updates", warmup, "5 % of all"),
        Choice(
            "schedule.total_updates",
            updates,
            f"{_count_passes(passes)}, {quantity(round(per_pass), 'update')} each; {reason}",
        ),
        Choice("train.validate_every", every, quantity(validations, "validation")),
    ], updates


def _count_passes(passes: float) -> str:
    return f"{passes:g} pass{'' if passes == 1 else 'es'} over the data"


def _until_dev_stops(passes: int, per_pass: float) -> tuple[list[Choice], int]:
    """Return the keys of T's training, and its updates if it does not stop earlier."""
    every = min(2000, max(50, _round(per_pass)))
    patience = 50 if passes == 1000 else 20
    return [
        Choice("model.word_dropout", 0.1, "T appendix A"),
        Choice("schedule.kind", "inverse_sqrt", "with Adam, as T trains"),
        Choice("schedule.warmup_updates", 8000, "T"),
        Choice("train.validate_every", every, _passes_between(every / per_pass)),
        Choice("train.max_validations", passes, f"at most {passes * every:,} updates"),
        Choice("train.stop_patience", patience, "ends earlier: validations without a better score"),
    ], passes * every


def _passes_between(passes: float) -> str:
    if 0.9 < passes < 1.1:
        return "about one pass over the data"
    number = f"{passes:.0f}" if passes >= 10 else f"{passes:.2g}"
    return f"about {number} passes over the data"


def advice(paths: CorpusPaths, facts: CorpusFacts, parent: bool = False) -> list[str]:
    """Return advice that is not a key, for a recipe with or without a parent."""
    sentences = []
    other = "" if parent else f" start from a model of another pair ({HOWTO}transfer.md),"
    related = (
        f"train together with a related language ({HOWTO}related-languages.md),{other} or "
        f"translate {paths.tgt} text back ({HOWTO}back-translation.md)"
    )
    if facts.pairs < FEW_PAIRS:
        sentences.append(
            f"A corpus of {quantity(facts.pairs, 'pair')} is too small for a useful model with any "
            f"settings: {related}."
        )
    elif facts.target_words <= CPU[2].words:
        sentences.append(f"More data helps more than other settings: {related}.")
    if sentences and not parent:
        sentences += _neighbors(paths)
    if facts.report.found(LIKE_TRAIN, "dev").share:
        sentences.append(
            "dev is like train, so its scores do not show how well the model translates other "
            "text: also score a set of the text that you will translate (data.test, or nmt-score)."
        )
    sentences += map(str, facts.lacking)
    for side in (facts.src, facts.tgt):
        if side.spaced or facts.tokenized:
            continue
        names = " and ".join(script_name(name) for name in side.scripts if name in UNSPACED)
        sentences.append(
            f"{side.lang} has no spaces between words ({names}), so its words are not counted. "
            "SentencePiece reads it as it is; do not tokenize it."
        )
    return sentences


def _neighbors(paths: CorpusPaths) -> Iterator[str]:
    for corpus in related_corpora(paths):
        commands = corpus.commands()
        if commands and not corpus.entry():
            by_rules = corpus.neighbor.direction and f", and rules make {corpus.own} of it"
            yield f"{corpus.neighbor.lang} is a neighbor of {corpus.own}{by_rules}:"
            yield from commands
            yield "Then run this command again: it writes the entry."


def _round(number: float) -> int:
    number = max(1.0, number)
    return int(round(number, 1 - math.floor(math.log10(number))))
