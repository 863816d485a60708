"""Write a suggested recipe as YAML, with facts, expectations and reasons as comments."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from nmt.apps.suggest.choices import Choice, Suggestion, advice
from nmt.apps.suggest.corpus import CorpusPaths
from nmt.apps.suggest.facts import CorpusFacts, SideFacts, script_name
from nmt.apps.suggest.scoreboard import nearest
from nmt.apps.suggest.speed import Setting
from nmt.config.sizes import most_passes
from nmt.data.checks import HeldOutPairs
from nmt.data.report import describe
from nmt.runtime.words import quantity

WIDTH = 100
COLUMN = 30  # where comments begin
PATHS = ("data.train", "data.dev", "data.test", "init.from")
DAY = 86_400  # seconds


@dataclass(frozen=True)
class Expectation:
    """How fast this machine trains the suggested model."""

    device: str  # in words
    parameters: int
    speeds: Mapping[Setting, float]  # measured target tokens per second
    threads: int  # of a run by default; 0 on a GPU
    busy: str = ""  # a sentence if other programs took much of the processor

    @property
    def best(self) -> Setting:
        """The fastest setting."""
        return max(self.speeds, key=lambda setting: self.speeds[setting])

    @property
    def speed(self) -> float:
        """The highest speed, in target tokens per second."""
        return self.speeds[self.best]

    @property
    def environment(self) -> str:
        """The environment variables before nmt-train for the fastest number of threads."""
        threads = self.best.threads
        return f"OMP_NUM_THREADS={threads} " if threads != self.threads else ""

    def seconds(self, tokens: float) -> float:
        """Estimate the time of updates with so many target tokens."""
        return tokens / self.speed


def recipe_text(
    paths: CorpusPaths,
    facts: CorpusFacts,
    suggestion: Suggestion,
    expectation: Expectation,
    folder: Path,
) -> str:
    """Return the text of the recipe, with paths relative to its folder."""
    from_parent = bool(suggestion.parent)
    sections = {
        f"{paths.src}-{paths.tgt}: a recipe that nmt-suggest wrote for this corpus": (
            _corpus_lines(paths, facts)
        ),
        "Parent": suggestion.parent,
        f"Expected time on this machine ({expectation.device})": (
            _time_lines(suggestion, expectation)
        ),
        f"Nearest measured runs{' without a parent' * from_parent}, by target words "
        "(docs/results.md)": _scoreboard_lines(facts),
        "Advice": [
            *advice(paths, facts, from_parent),
            *_time_advice(suggestion, expectation),
            *(f"Check: {warning}" for warning in facts.report.warnings),
        ],
    }
    head = []
    for title, lines in sections.items():
        if comments := [part for line in lines for part in _comment(line)]:
            head.append("\n".join([f"# {title}", *comments]))
    if not from_parent:
        head.append('# T below: "Transformers without Tears" (Nguyen and Salazar 2019)')
    choices = [*suggestion.choices]
    choices[2:2] = [_precision(expectation)]
    return "\n#\n".join(head) + "\n" + _keys(choices, folder)


# --- the comments at the head ---------------------------------------------------------------------


def _corpus_lines(paths: CorpusPaths, facts: CorpusFacts) -> Iterator[str]:
    report = facts.report
    train = report.splits["train"]
    parts = [f"train: {quantity(train.pairs, 'pair')}"]
    if train.dropped:
        parts.append(f"{train.pairs - train.kept:,} dropped ({describe(train.dropped)})")
    yield ", ".join([*parts, quantity(report.found("duplicates", "train").count, "duplicate")])
    for side in (facts.src, facts.tgt):
        yield f"{side.lang}: {_describe_side(side)}"
    for name, split in report.splits.items():
        if name != "train":
            shared = report.found(HeldOutPairs.name, name).count
            yield f"{name}: {quantity(split.pairs, 'pair')}, {shared:,} of them also in train"
    if paths.test is None:
        yield "there is no test set next to train: only dev is scored"
    words = {False: "raw, not tokenized", True: "tokenized"}
    if len({*facts.forms.values()}) == 1:
        yield f"the text seems to be {words[facts.forms['train']]}"
    else:
        seems = (f"{name} {words[form]}" for name, form in facts.forms.items())
        yield f"the text seems to be: {'; '.join(seems)}"


def _describe_side(side: SideFacts) -> str:
    scripts = ", ".join(
        f"{script_name(name)} script" + (f" {share:.0%}" if share < 0.995 else "")
        for name, share in side.scripts.items()
    )
    words = (
        f"{quantity(side.words, 'word')}, {side.mean_words:.1f} a line, at most {side.p99_words} "
        "in 99 % of the lines"
    )
    return f"{words if side.spaced else 'no spaces between words'}; {scripts or 'no letters'}"


def _time_lines(suggestion: Suggestion, expectation: Expectation) -> Iterator[str]:
    yield f"{expectation.parameters:,} parameters; target tokens/s:"
    yield "; ".join(f"{setting}: {speed:,.0f}" for setting, speed in expectation.speeds.items())
    if expectation.busy:
        yield expectation.busy
    one_pass = expectation.seconds(suggestion.tokens_per_pass)
    yield (
        f"{duration(one_pass)} for one pass over the data, "
        f"{duration(_total(suggestion, expectation))} for "
        f"{'all ' * (suggestion.updates > 1)}{quantity(suggestion.updates, 'update')}"
        + (", validations not included" if not suggestion.evaluation_tokens else "")
    )
    if suggestion.size is not None and suggestion.evaluation_tokens:
        most = most_passes(suggestion.size)
        longest = expectation.seconds(most * suggestion.tokens_per_pass)
        yield (
            f"at most {duration(longest)} are of use at this size: {most} passes over the data; "
            "measured for gl-en (docs/results.md)"
        )
    if suggestion.evaluation_tokens:
        yield (
            f"about {duration(expectation.seconds(suggestion.evaluation_tokens))} for "
            f"{quantity(suggestion.validations, 'validation')} and the test set, which depends on "
            "the lengths of the translations"
        )
    if expectation.environment:
        yield (
            f"fastest with {expectation.best}: write {expectation.environment}in front of nmt-train"
        )


def _total(suggestion: Suggestion, expectation: Expectation) -> float:
    passes = suggestion.updates / suggestion.updates_per_pass
    return expectation.seconds(passes * suggestion.tokens_per_pass)


def _time_advice(suggestion: Suggestion, expectation: Expectation) -> Iterator[str]:
    total = _total(suggestion, expectation)
    if suggestion.budget is None and total > DAY:
        yield (
            f"The run takes up to {duration(total)} here. For a shorter one, add --hours to "
            f"nmt-suggest{', or use a GPU' if expectation.threads > 0 else ''}."
        )
    if note := too_few_hours(suggestion, expectation):
        yield note


def too_few_hours(suggestion: Suggestion, expectation: Expectation) -> str:
    """Return advice if the user's hours are too few for one pass on a CPU, else ""."""
    budget, one_pass = suggestion.budget, expectation.seconds(suggestion.tokens_per_pass)
    if budget is None or expectation.threads == 0 or one_pass <= 3600 * budget.hours:
        return ""
    return (
        f"One pass over the data takes {duration(one_pass)} here, longer than the "
        f"{quantity(budget.hours, 'hour', 'g')} of --hours, so the run sees a part of it: use "
        "a GPU, or train on fewer pairs."
    )


def _scoreboard_lines(facts: CorpusFacts) -> Iterator[str]:
    for row in nearest(facts.target_words):
        yield (
            f"{row.pair}, {row.text}: {row.pairs:,} pairs, {row.words:,} target words, "
            f"{row.recipe}, {duration(3600 * row.hours)} on {row.machine}: BLEU {row.bleu}"
        )
    yield "BLEU depends on the languages and the kind of text: compare with the same test set only."


def duration(seconds: float) -> str:
    """Format a time in a unit of its size: ``45 seconds``, ``12 minutes``, ``3.5 hours``."""
    for unit, length, least in (("days", DAY, 2), ("hours", 3600, 1), ("minutes", 60, 2)):
        if seconds >= least * length:
            return f"{seconds / length:.{0 if unit == 'minutes' else 1}f} {unit}"
    return quantity(max(1, round(seconds)), "second")


def _comment(line: str) -> list[str]:
    return textwrap.wrap(
        " ".join(line.split()),  # a quoted text may have U+2028, which ends a line of YAML
        WIDTH,
        initial_indent="#   ",
        subsequent_indent="#     ",
        break_on_hyphens=False,
        break_long_words=False,
    )


# --- the keys -------------------------------------------------------------------------------------


def _precision(expectation: Expectation) -> Choice:
    others = {setting.precision for setting in expectation.speeds} - {expectation.best.precision}
    why = (
        f"the fastest here; also measured: {', '.join(sorted(others))}"
        if others
        else "the only format that this device computes fast"
    )
    return Choice("precision", expectation.best.precision, why)


def _keys(choices: Iterable[Choice], folder: Path) -> str:
    lines, last = [""], ""
    for choice in choices:
        group, _, key = choice.key.rpartition(".")
        if group != last:
            lines += ["", f"{group}:"]
            last = group
        value = choice.value
        if choice.key in PATHS:
            value = _relative(value, folder)
        lines += _line(f"{'  ' if group else ''}{key}: {_scalar(value)}", choice.why)
    return "\n".join([*lines, ""])


def _relative(value: Any, folder: Path) -> Any:
    if isinstance(value, list):
        return [_relative(entry, folder) for entry in value]
    if isinstance(value, dict):
        return {**value, "path": _relative(value["path"], folder)}
    # the folder may be a link, and a recipe is read relative to where it really is
    return value if os.path.isabs(value) else os.path.relpath(value, os.path.realpath(folder))


def _scalar(value: Any) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10_000)
    return text.removesuffix("\n").removesuffix("\n...")


def _line(setting: str, why: str) -> list[str]:
    if not why:
        return [setting]
    column = max(COLUMN, len(setting) + 2)
    if column > WIDTH - 40:  # a mapping: the reason stands above it
        indent = setting[: len(setting) - len(setting.lstrip())]
        return [*(f"{indent}# {line}" for line in textwrap.wrap(why, WIDTH - 4)), setting]
    first, *more = textwrap.wrap(why, WIDTH - column - 2, break_long_words=False)
    return [f"{setting:<{column}}# {first}", *(f"{'':<{column}}# {line}" for line in more)]
