"""Facts of small corpora, counted by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nmt.apps.suggest import facts as module
from nmt.apps.suggest.choices import corpora, nested
from nmt.apps.suggest.corpus import find_corpus
from nmt.apps.suggest.facts import CorpusFacts, collect_facts, describe_side, target_words
from nmt.config.recipe import Recipe
from nmt.errors import UserError
from nmt.text.languages import script_of_letter

LATIN = ["o gato come", "a casa é azul e grande", "si"]


def corpus(folder: Path, src: list[str], tgt: list[str], langs=("gl", "en")) -> CorpusFacts:
    for lang, lines in zip(langs, (src, tgt), strict=True):
        (folder / f"train.{lang}").write_text("".join(f"{line}\n" for line in lines))
        (folder / f"dev.{lang}").write_text(f"{lines[0]}\nnothing else {lang}\n")
    return collect_facts(find_corpus(str(folder / "train"), *langs), progress=False)


def side(lines: list[str]):
    return describe_side("xx", lines, np.array([len(line.split()) for line in lines]))


@pytest.fixture
def lenient(monkeypatch):
    """Let the checks of a corpus only warn."""
    make = module._bare_recipe

    def bare(*arguments):
        recipe = make(*arguments)
        return recipe.model_copy(update={"data": recipe.data.model_copy(update={"checks": "warn"})})

    monkeypatch.setattr(module, "_bare_recipe", bare)


@pytest.mark.usefixtures("lenient")
def test_sizes_and_lengths(tmp_path):
    src = [*LATIN, "", "o gato come"]
    tgt = ["the cat eats", "the house is blue and large", "yes", "blank", "the cat eats"]
    found = corpus(tmp_path, src, tgt)
    assert found.pairs == 4
    assert (found.src.words, found.src.mean_words, found.src.p99_words) == (13, 3.25, 5)
    assert (found.tgt.words, found.target_words) == (13, 13)
    assert found.report.splits["train"].dropped["blank"].count == 1
    assert found.report.found("duplicates", "train").count == 1
    assert found.report.found("also in the training data", "dev").count == 1
    assert found.sample == [pair for pair in zip(src, tgt, strict=True) if pair[0]]
    assert not found.tokenized
    assert found.characters == len(set("".join(src[:3] + tgt[:3])))


def test_a_failed_check_is_an_error_as_in_training(tmp_path):
    failed = r"corpus checks failed(.|\n)*also in the training data"
    with pytest.raises(UserError, match=failed) as error:
        corpus(tmp_path, LATIN, ["the cat eats", "the house is blue", "yes"])
    assert "write a recipe by hand, with data.checks: warn" in str(error.value)


@pytest.mark.usefixtures("lenient")
def test_warnings_do_not_advise_what_the_suggested_recipe_does(tmp_path):
    found = corpus(tmp_path, ["cafe\u0301 de vila", *LATIN], ["coffee", "a cat", "a house", "yes"])
    assert found.report.found("source lines not in the Unicode form clean", "train").count == 1
    assert not [text for text in found.report.warnings if "data.normalize" in text]


@pytest.mark.usefixtures("lenient")
def test_the_sample_is_spread_over_the_corpus(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SAMPLE", 3)
    lines = [f"palabra {n}" for n in range(8)]
    found = corpus(tmp_path, lines, lines)
    assert [pair[0] for pair in found.sample] == ["palabra 0", "palabra 3", "palabra 6"]
    assert found.src.words == 16  # of all lines


@pytest.mark.parametrize(
    ("lines", "scripts", "spaced"),
    [
        (LATIN, {"LATIN": 1.0}, True),
        (["мир", "ab мир"], {"CYRILLIC": 0.75, "LATIN": 0.25}, True),
        (["我们明天去北京看朋友。"], {"CJK": 1.0}, False),
        (["我们 明天 去 北京 看 朋友 。"], {"CJK": 1.0}, True),
        (["打开文件", "保存", "无法连接服务器"], {"CJK": 1.0}, False),  # lines of an interface
        (["打开 文件", "保存", "无法 连接 服务器"], {"CJK": 1.0}, True),
        (["私はテニスをします。"], {"HIRAGANA": 5 / 9, "KATAKANA": 3 / 9, "CJK": 1 / 9}, False),
        (
            ["私 は テニス を し ます 。"],
            {"HIRAGANA": 5 / 9, "KATAKANA": 1 / 3, "CJK": 1 / 9},
            True,
        ),
        (["ฉันจะไปตลาดพรุ่งนี้"], {"THAI": 1.0}, False),
        (["ខ្ញុំទៅផ្សារថ្ងៃស្អែក"], {"KHMER": 1.0}, False),
        (["나는 내일 시장에 간다"], {"HANGUL": 1.0}, True),
        (["1 2 3 !"], {}, True),
    ],
)
def test_scripts_and_spaces(lines, scripts, spaced):
    found = side(lines)
    assert found.scripts == pytest.approx(scripts)
    assert found.spaced == spaced
    assert list(found.scripts) == sorted(scripts, key=lambda name: -scripts[name])


def test_a_few_letters_of_another_script_and_private_characters_are_not_named():
    assert list(side(["a" * 96 + "мир"]).scripts) == ["LATIN"]
    assert script_of_letter("\ue000") == "OTHER"


@pytest.mark.usefixtures("lenient")
@pytest.mark.parametrize(
    ("src", "tgt", "tokenized"),
    [
        ("o gato come .", "the cat eats .", True),
        ("o gato come", "the cat &apos;s house", True),
        ("o gato come.", "the cat eats.", False),
        ("o gato come.", "the cat &amp; dog eat.", False),
    ],
)
def test_tokenized_text_is_recognized(tmp_path, src, tgt, tokenized):
    assert corpus(tmp_path, [src], [tgt]).tokenized == tokenized


TEXTS = {
    True: "una casa , dos casas .\n",
    False: "una casa, dos casas.\n",
    None: "una casa\n",
}


@pytest.mark.usefixtures("lenient")
@pytest.mark.parametrize("train", [True, False, None])
@pytest.mark.parametrize("dev", [True, False, None])
@pytest.mark.parametrize("test", [True, False, None])
def test_each_set_has_its_own_form(tmp_path, train, dev, test):
    """A set that shows no form has that of train; each entry that differs says so."""
    for name, form in (("train", train), ("dev", dev), ("test", test)):
        for lang in ("es", "nah"):
            text = "".join(f"{lang}{name}{n} {TEXTS[form]}" for n in range(20))
            (tmp_path / f"{name}.{lang}").write_text(text)
    paths = find_corpus(str(tmp_path / "train"), "es", "nah")
    facts = collect_facts(paths, progress=False)
    forms = [bool(train if form is None else form) for form in (train, dev, test)]
    assert [*facts.forms.values()] == forms
    assert facts.tokenized == all(forms)
    recipe = Recipe.model_validate({"src": "es", "tgt": "nah", **nested(corpora(paths, facts))})
    entries = [recipe.data.train[0], recipe.data.dev[0], recipe.data.test[0]]
    assert [entry.is_tokenized(recipe.data) for entry in entries] == forms
    assert [entry.tokenized is None for entry in entries] == [f == all(forms) for f in forms]
    if not all(forms):
        assert not any(" ." in line for pair in facts.sample for line in pair)  # detokenized


def test_words_of_a_target_without_spaces_are_those_of_the_source():
    spaced, unspaced = side(["a b c d"]), side(["我们明天去北京看朋友。"])
    assert target_words(unspaced, spaced, 7) == 4
    assert target_words(spaced, unspaced, 11) == 4
    assert target_words(unspaced, unspaced, 11) == 5
