"""Each branch of the choices, and the text of the recipe."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from random import Random

import pytest
import yaml

from nmt.apps.suggest.choices import Budget, Suggestion, advice, suggest
from nmt.apps.suggest.corpus import CorpusPaths
from nmt.apps.suggest.facts import CorpusFacts, SideFacts
from nmt.apps.suggest.speed import Setting
from nmt.apps.suggest.text import Expectation, _comment, duration, recipe_text
from nmt.config.load import load_recipe
from nmt.config.recipe import Recipe
from nmt.config.sizes import CPU, GPU
from nmt.data.report import CorpusReport, SplitReport
from tests.toy import lines_of_digits, reverse

PATHS = CorpusPaths("gl", "en", "corpus/train", "corpus/dev", "corpus/test")
LINES = lines_of_digits(300)
SPEEDS = {Setting("fp32", 2): 1000.0, Setting("fp32", 1): 600.0, Setting("bf16", 2): 400.0}
ON_CPU = Expectation("CPU", 1_234_567, SPEEDS, threads=2)
SLOW = dataclasses.replace(ON_CPU, speeds={Setting("fp32", 2): 1.0})


def side(lang: str, words: int, script: str = "LATIN", spaced: bool = True) -> SideFacts:
    return SideFacts(lang, words, 20.0, 60, {script: 1.0}, spaced)


def facts_of(words: int = 240_000, pairs: int | None = None, **changes) -> CorpusFacts:
    pairs = words // 20 if pairs is None else pairs
    train = SplitReport(pairs, pairs)
    report = CorpusReport({"train": train})
    found = CorpusFacts(
        src=side("gl", words),
        tgt=side("en", words),
        pairs=pairs,
        target_words=words,
        tokenized=False,
        forms={"train": False, "dev": False, "test": False},
        characters=11,
        lacking=[],
        report=report,
        sample=[(line, reverse(line)) for line in LINES],
    )
    return dataclasses.replace(found, **changes)


def values(facts: CorpusFacts, gpu: bool = False) -> Recipe:
    return Recipe.model_validate(suggest(PATHS, facts, gpu).values())


def text(facts: CorpusFacts, suggestion: Suggestion, expectation=ON_CPU, paths=PATHS) -> str:
    return recipe_text(paths, facts, suggestion, expectation, Path())


def words_of(written: str) -> str:
    """Return a recipe on one line, so that comments may be broken anywhere."""
    return " ".join(written.replace("#", "").split())


def test_a_cpu_gets_muon_and_a_fixed_number_of_updates():
    found = suggest(PATHS, facts_of(), gpu=False)
    recipe = values(facts_of())
    assert (recipe.model.dim, recipe.model.enc_layers, recipe.model.dropout) == (256, 3, 0.1)
    assert (recipe.optim.kind, recipe.optim.betas) == ("muon", (0.9, 0.98))
    schedule, train = recipe.schedule, recipe.train
    assert (schedule.kind, schedule.peak) == ("linear", 0.005)
    assert schedule.total_updates == found.updates == 8 * train.validate_every
    passes = found.updates / found.updates_per_pass
    assert passes == pytest.approx(CPU[2].passes, rel=0.06)  # rounded to two digits
    assert schedule.warmup_updates == pytest.approx(found.updates / 20, rel=0.06)
    assert train.max_validations >= 8
    assert recipe.model.word_dropout == 0


def test_one_thing_is_singular():
    facts = facts_of(words=20, pairs=1, sample=[(LINES[0], reverse(LINES[0]))])
    fast = dataclasses.replace(ON_CPU, speeds={Setting("fp32", 2): 1e6})
    budget = Budget(1.0, 1.0)
    written = words_of(text(facts, suggest(PATHS, facts, gpu=False, budget=budget), fast))
    for part in ("train: 1 pair,", "1 second for", "1 update each", "1 hour here"):
        assert part in written
    assert not re.search(r"\b1 (pairs|duplicates|seconds|updates|hours)\b", written)


def passes_in(facts: CorpusFacts, passes: float) -> Suggestion:
    """Return the suggestion for the time of so many passes on a CPU, validations included."""
    tokens = passes * suggest(PATHS, facts, gpu=False).tokens_per_pass / 0.9
    return suggest(PATHS, facts, gpu=False, budget=Budget(2.5, tokens))


def test_hours_set_the_passes_on_a_cpu():
    found = passes_in(facts_of(), 20.5)
    assert found.updates == pytest.approx(20 * found.updates_per_pass, rel=0.06)
    recipe = Recipe.model_validate(found.values())
    assert recipe.schedule.total_updates == found.updates
    assert recipe.time_limit is None  # it would end the run before the rate is 0
    assert recipe.model == values(facts_of()).model
    written = words_of(text(facts_of(), found))
    assert "20 passes over the data" in written
    assert "as many as fit into 2.5 hours here" in written


def facts_of_interfaces() -> CorpusFacts:
    """Return facts of 22,000 pairs with dev and test sets of 1,000 pairs."""
    facts = facts_of(130_000, pairs=22_000)
    held_out = SplitReport(1000, 1000)
    facts.report.splits.update(dev=held_out, test=held_out)
    return facts


def test_hours_that_allow_few_updates_get_a_smaller_model():
    facts = facts_of_interfaces()
    tokens_of_update = 2048
    few, many = (
        suggest(PATHS, facts, gpu=False, budget=Budget(0.1, updates * tokens_of_update))
        for updates in (300, 3000)
    )
    assert few.smaller_size == CPU[1]
    assert many.smaller_size is None
    assert suggest(PATHS, facts, gpu=False).smaller_size is None  # no limit of time
    smallest = suggest(PATHS, facts, gpu=False, budget=Budget(0.1, 100.0), row=CPU[0])
    assert smallest.smaller_size is None
    found = suggest(PATHS, facts, gpu=False, budget=few.budget, row=CPU[1])
    recipe = Recipe.model_validate(found.values())
    quickstart = load_recipe(Path(__file__).parents[3] / "recipes" / "quickstart.yaml")
    assert found.updates > 1.4 * few.updates
    assert recipe.model.dim == quickstart.model.dim
    assert recipe.model.dropout == quickstart.model.dropout == 0
    assert recipe.segment.vocab_size == quickstart.segment.vocab_size
    assert recipe.data.batch_tokens == quickstart.data.batch_tokens
    assert "a smaller size, for a short run" in words_of(text(facts, found))


@pytest.mark.parametrize("updates", [50, 100, 300, 1000, 20_000])
def test_updates_and_validations_fit_into_the_hours(updates):
    facts, tokens = facts_of_interfaces(), updates * 2048
    found = suggest(PATHS, facts, gpu=False, budget=Budget(0.1, tokens))
    of_updates = found.updates / found.updates_per_pass * found.tokens_per_pass
    assert of_updates + found.evaluation_tokens <= tokens
    assert 1 <= found.validations <= 8
    assert found.validations == 1 or found.evaluation_tokens <= 0.25 * tokens
    assert found.updates == found.validations * found.values()["train"]["validate_every"]
    assert f"{found.validations} validation" in words_of(text(facts, found))


def test_a_target_without_spaces_is_selected_by_chrf():
    thai = facts_of(tgt=side("th", 240_000, "THAI", spaced=False))
    assert values(thai).score.select_by == "chrf"
    assert values(facts_of()).score.select_by == "bleu"


def test_a_long_training_gets_fewer_types_more_dropout_larger_batches_and_a_larger_beam():
    recipe = Recipe.model_validate(passes_in(facts_of(), 50).values())
    best = load_recipe(Path(__file__).parents[3] / "recipes" / "best" / "gl-en.yaml")
    assert recipe.segment.vocab_size == best.segment.merges
    assert recipe.model == best.model
    assert recipe.optim == best.optim
    assert recipe.decode == best.decode
    assert recipe.data.batch_tokens == best.data.batch_tokens
    assert recipe.schedule.peak == best.schedule.peak


def test_a_training_is_not_longer_than_the_longest_that_was_measured():
    found = passes_in(facts_of(), 1000)
    assert found.updates == pytest.approx(44 * found.updates_per_pass, rel=0.06)
    written = words_of(text(facts_of(), found))
    assert "more were not better for gl-en (docs/results.md)" in written


def test_hours_that_are_too_few_for_one_pass_get_advice():
    found = passes_in(facts_of(2_000_000), 0.5)
    assert found.updates == pytest.approx(0.5 * found.updates_per_pass, rel=0.06)
    written = words_of(text(facts_of(), found, SLOW))
    assert "longer than the 2.5 hours of --hours" in written
    assert "so the run sees a part of it" in written
    assert "0.5 passes over the data," in written
    assert "of --hours" not in text(facts_of(), passes_in(facts_of(), 20))


def test_hours_set_the_time_limit_on_a_gpu():
    budget = Budget(2.5, 10**9)
    recipe = Recipe.model_validate(suggest(PATHS, facts_of(), gpu=True, budget=budget).values())
    assert recipe.time_limit == 2.5
    without = values(facts_of(), gpu=True)
    assert recipe == without.model_copy(update={"time_limit": 2.5})


def test_learning_rates_are_those_that_were_measured():
    assert values(facts_of(50_000)).schedule.peak == pytest.approx(0.0058)  # quickstart: 0.006
    assert values(facts_of(240_000)).schedule.peak == 0.005  # gl-en-cpu


def test_a_gpu_gets_the_papers_training():
    recipe = values(facts_of(1_200_000), gpu=True)
    paper = load_recipe(
        Path(__file__).parents[3]
        / "recipes"
        / "papers"
        / "transformers-without-tears"
        / "sk-en.yaml"
    )
    assert recipe.model == paper.model
    assert (recipe.optim, recipe.schedule) == (paper.optim, paper.schedule)
    train = recipe.train
    assert (train.max_validations, train.stop_patience) == (200, 20)
    found = suggest(PATHS, facts_of(1_200_000), gpu=True)
    assert train.validate_every == pytest.approx(found.updates_per_pass, rel=0.06)
    assert found.updates == 200 * train.validate_every


def test_a_line_separator_in_a_quoted_text_does_not_end_a_comment():
    (line,) = _comment("Check: train:3: Hello\u2028data: {x: 1")
    assert yaml.safe_load(f"{line}\na: 1") == {"a": 1}


@pytest.mark.parametrize(
    ("words", "pairs", "passes", "train"),
    [
        (1_200_000, None, "one pass", None),
        (60_000, 300, "50 passes", (50, 1000, 50)),
        (10**9, None, None, (2000, None, None)),
    ],
)
def test_a_gpu_validates_after_50_to_2000_updates_told_in_passes(words, pairs, passes, train):
    facts = facts_of(words, pairs)
    (reason,) = (c.why for c in suggest(PATHS, facts, gpu=True).choices if "validate" in c.key)
    assert passes is None or reason == f"about {passes} over the data"
    if train:
        found = values(facts, gpu=True).train
        keys = (found.validate_every, found.max_validations, found.stop_patience)
        assert all(expected in (None, key) for key, expected in zip(keys, train, strict=True))


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("words", [0, 10, 1000, 10**5, 10**6, 10**7, 10**8])
def test_every_size_is_a_valid_recipe(gpu, words):
    recipe = values(facts_of(words, pairs=max(1, words // 20)), gpu)
    row = next(size for size in (GPU if gpu else CPU) if words <= size.words)
    assert (recipe.model.dim, recipe.segment.vocab_size) == (row.dim, row.types)


def test_numbers_are_those_of_all_pairs_not_of_the_sample():
    one, ten = (suggest(PATHS, facts_of(20_000, pairs), False) for pairs in (300, 3000))
    assert ten.updates_per_pass == pytest.approx(10 * one.updates_per_pass)
    assert ten.tokens_per_pass == pytest.approx(10 * one.tokens_per_pass)
    assert one.tokens_per_pass == one.sample.target_pieces


@pytest.mark.parametrize(
    ("changes", "segment"),
    [
        ({"tokenized": True}, {"kind": "fastbpe", "merges": 8000}),
        ({}, {"kind": "sentencepiece", "vocab_size": 8000, "byte_fallback": False}),
        ({"characters": 3500}, {"vocab_size": 8000, "byte_fallback": False}),
        ({"characters": 4500}, {"vocab_size": 13_000, "byte_fallback": True}),
    ],
)
def test_the_segmentation_depends_on_the_text(changes, segment):
    recipe = values(facts_of(**changes))
    assert recipe.data.tokenized == ("tokenized" in changes)
    assert segment.items() <= recipe.segment.model_dump().items()


def test_tokenized_text_may_have_more_characters_than_merges():
    line = "".join(chr(0x4E00 + i) for i in range(1200))
    words = " ".join(line[i : i + 2] for i in range(0, len(line), 2))
    facts = facts_of(20_000, tokenized=True, characters=1212)
    facts.sample.append((words, words))
    segment = values(facts).segment
    assert (segment.kind, segment.merges) == ("fastbpe", 1000)


def test_a_corpus_without_test_set():
    paths = dataclasses.replace(PATHS, test=None)
    facts = facts_of()
    found = suggest(paths, facts, gpu=False)
    assert "test" not in found.values()["data"]
    assert "no test set next to train" in text(facts, found, paths=paths)


def test_advice_for_a_very_small_corpus_and_for_a_script_without_spaces():
    found, *_ = advice(PATHS, facts_of(9000, pairs=999))
    assert found.startswith("A corpus of 999 pairs is too small")
    for page in ("related-languages.md", "transfer.md", "back-translation.md"):
        assert page in found
    assert "too small" not in advice(PATHS, facts_of(20_000, pairs=1000))[0]
    assert advice(PATHS, facts_of(5_000_000)) == []
    facts = facts_of(5_000_000, src=side("ja", 100_000, "HIRAGANA", spaced=False))
    (found,) = advice(PATHS, facts)
    assert "ja has no spaces between words (Hiragana)" in found
    assert "also without spaces between words" in text(facts, suggest(PATHS, facts, False))
    assert advice(PATHS, dataclasses.replace(facts, tokenized=True)) == []


def test_a_training_of_days_gets_advice():
    facts = facts_of(5_000_000)
    found = suggest(PATHS, facts, gpu=False)
    fast = dataclasses.replace(ON_CPU, speeds={Setting("fp32", 2): 1e9})
    assert "add --hours" in text(facts, found, SLOW)
    assert "add --hours" not in text(facts, found, fast)


def test_the_recipe_names_the_fastest_precision_and_number_of_threads():
    facts = facts_of()
    found = suggest(PATHS, facts, gpu=False)
    assert "\nprecision: fp32 " in text(facts, found)
    assert "OMP_NUM_THREADS" not in text(facts, found)
    one = {Setting("fp32", 1): 600.0, Setting("fp32", 2): 500.0}
    assert "OMP_NUM_THREADS=1" in text(facts, found, dataclasses.replace(ON_CPU, speeds=one))
    gpu = Expectation("H100", 1, {Setting("fp32", 0): 9e4, Setting("bf16", 0): 1e5}, threads=0)
    written = text(facts, found, gpu)
    assert "\nprecision: bf16 " in written
    assert "fp32: 90,000; bf16: 100,000" in written


def test_expected_time_is_tokens_divided_by_the_best_speed():
    facts = facts_of(20_000, pairs=3000)
    found = suggest(PATHS, facts, gpu=False)
    written = text(facts, found)
    one_pass = found.tokens_per_pass / 1000
    assert f"{duration(one_pass)} for one pass" in written
    total = one_pass * found.updates / found.updates_per_pass
    assert f"{duration(total)} for all {found.updates:,} updates" in written


def test_durations():
    seconds = (0.01, 45, 119, 120, 3599, 5220, 90_000, 200_000)
    assert [*map(duration, seconds)] == [
        "1 second", "45 seconds", "119 seconds", "2 minutes", "60 minutes", "1.4 hours",
        "25.0 hours", "2.3 days",
    ]  # fmt: skip


def test_each_key_has_a_reason_and_the_text_reads_as_the_recipe(tmp_path):
    facts = facts_of(tokenized=True)
    found = suggest(PATHS, facts, gpu=False)
    written = text(facts, found)
    keys = [line for line in written.splitlines() if ": " in line and not line.startswith("#")]
    assert len(keys) == len(found.choices) + 1  # and precision
    assert [line for line in keys if "# " not in line] == []
    assert max(map(len, written.splitlines())) <= 100
    path = tmp_path / "gl-en.yaml"
    path.write_text(written)
    recipe = load_recipe(path)
    assert recipe.data.train[0].path == str(tmp_path / "corpus" / "train")
    expected = Recipe.model_validate(found.values())
    assert recipe.model == expected.model
    assert recipe.schedule == expected.schedule


def test_paths_are_relative_to_the_recipe_and_odd_values_are_quoted():
    facts = facts_of()
    found = suggest(PATHS, facts, gpu=False)
    assert "train: ../corpus/train " in recipe_text(PATHS, facts, found, ON_CPU, Path("recipes"))
    odd = dataclasses.replace(PATHS, train="/data/train: 1", src="no")  # in YAML a truth value
    written = recipe_text(odd, facts, suggest(odd, facts, gpu=False), ON_CPU, Path("x"))
    assert "train: '/data/train: 1'" in written
    assert "src: 'no'" in written


def sample_of(stems: int, suffixes: int, pairs: int = 1500) -> list[tuple[str, str]]:
    """Return pairs whose target words have so many forms, and whose source words have one."""
    rng = Random(1)
    alphabet = "abcdefghijklmnop"

    def word(number: int) -> str:
        return "".join(alphabet[int(digit)] for digit in f"{number:03}")

    sources = [[rng.randrange(stems) for _ in range(6)] for _ in range(pairs)]
    return [
        (
            " ".join(map(word, line)),
            " ".join(word(stem) + "q" + word(rng.randrange(suffixes)) for stem in line),
        )
        for line in sources
    ]


@pytest.mark.parametrize("spaced", [True, False])
@pytest.mark.parametrize(
    ("stems", "suffixes", "rich"),
    [(500, 1, False), (900, 1, False), (500, 40, True), (50, 40, True)],
)
def test_a_target_with_many_forms_selects_by_chrf(stems, suffixes, rich, spaced):
    facts = facts_of(sample=sample_of(stems, suffixes), tgt=side("shp", 240_000, spaced=spaced))
    chosen = values(facts).score.select_by
    assert chosen == ("chrf" if not spaced else "chrf++" if rich else "bleu")
    search = values(facts).decode
    assert (search.length_alpha, search.no_repeat_ngram) == (
        (2.0, 3) if rich and spaced else (1.0, 0)
    )
    written = words_of(text(facts, suggest(PATHS, facts, False)))
    assert ("words are different" in written) == (rich and spaced)
    few = dataclasses.replace(facts, sample=facts.sample[:100])
    assert values(few).score.select_by == chosen
