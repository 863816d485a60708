"""Text without spaces between words is never scored as if each sentence were one word."""

from __future__ import annotations

import pytest

from nmt import train
from nmt.cli.score import main
from nmt.scoring.language import bleu_tokenizer, language_of_files, language_of_text
from nmt.scoring.systems import from_files, from_runs
from nmt.store.folder import RunFolder
from nmt.store.results import read_summary
from tests.scoring.runs import make_run, write_lines
from tests.toy import toy_corpus, toy_recipe

TEXTS = {
    "zh": ["我想看书。", "他走了三公里。"],
    "ja": ["彼は本を読んだ。", "日本語の文です。"],
    "ko": ["나는 책을 읽고 싶다.", "그는 집에 갔다."],
    "th": ["ฉันอยากอ่านหนังสือ", "เขาเดินไปสามกิโลเมตร"],
    "km": ["ខ្ញុំចង់អានសៀវភៅ។", "គាត់ដើរបីគីឡូម៉ែត្រ។"],
    "lo": ["ຂ້ອຍຢາກອ່ານປຶ້ມ", "ລາວຍ່າງສາມກິໂລແມັດ"],
    "my": ["ကျွန်တော်စာအုပ်ဖတ်ချင်တယ်။", "သူသုံးကီလိုမီတာလမ်းလျှောက်ခဲ့တယ်။"],
    "bo": ["ང་དཔེ་ཆ་ཀློག་འདོད་ཡོད།", "ཁོ་སྤྱི་ལེ་གསུམ་འགྲོས་སོང་།"],
}
ENGLISH = ["I want to read a book.", "He walked three kilometers."]
CHARACTERS = ["km", "th", "lo", "my", "bo", "dz", "yue", "wuu", "nan", "hak", "khm_Khmr", "xx_Thai"]


@pytest.mark.parametrize("language", CHARACTERS)
def test_languages_without_spaces_are_scored_by_characters(language):
    assert bleu_tokenizer(language) == "char"


@pytest.mark.parametrize("language", TEXTS)
def test_the_script_of_a_text_names_its_language(language):
    text = TEXTS[language]
    assert language_of_text("", text) == language
    assert bleu_tokenizer(language_of_text("xx", text)) == bleu_tokenizer(language)
    assert language_of_text(language, text) == language


def test_text_with_spaces_keeps_its_language():
    for language in ("", "en", "gn", "zh", "ja"):
        assert language_of_text(language, ENGLISH) == language
        assert language_of_text(language, ["1 2", ""]) == language
    assert language_of_text("yue", TEXTS["zh"]) == "yue"
    assert bleu_tokenizer(language_of_text("nan", ["Góa beh tha̍k-chheh.", "I kiâⁿ."])) == "13a"


@pytest.mark.parametrize(
    ("names", "language"),
    [
        (["r.zh"], "zh"),
        (["a.b/ref.pt-BR.gz"], "pt-BR"),
        (["out.txt", "ref.zho_Hans"], "zho_Hans"),
        (["test.yue.xz"], "yue"),
        (["dev.shp"], "shp"),
        (["dev.quy_Latn.gz"], "quy_Latn"),
        (["ref.txt", "ref", "hyp.hyp", "x.tok", "ref.2"], ""),
        *([[f"dev.{lang}"], lang] for lang in ("bzd", "cni", "hch", "nah", "oto", "tar", "mt")),
        *([[f"dev.{ending}"], ""] for ending in ("src", "tgt", "out", "ref", "TXT", "bpe", "sgm")),
    ],
)
def test_the_language_follows_the_ending_of_a_file(names, language):
    assert language_of_files(names) == language


def test_a_manifest_says_which_endings_are_languages(tmp_path):
    """tok is Toki Pona in ISO 639-3, and usually the ending of tokenized text."""
    for text in ("", "{", "[]", '{"src": "en", "tgt": 3}'):
        (tmp_path / "MANIFEST.json").write_text(text)
        assert language_of_files([str(tmp_path / "dev.tok")]) == ""
    (tmp_path / "MANIFEST.json").write_text('{"src": "en", "tgt": "tok"}')
    assert language_of_files([str(tmp_path / "dev.tok")]) == "tok"


@pytest.mark.parametrize(("name", "said"), [("dev.shp", False), ("dev.txt", True)])
def test_a_language_from_the_name_is_not_assumed(tmp_path, name, said):
    file = str(write_lines(tmp_path / name, ["Jonin noa isianka", "Moa bake"]))
    notes = from_files([file], [file]).notes()
    assert any("--tgt-lang" in note for note in notes) == said


@pytest.mark.slow
@pytest.mark.parametrize("language", ["zh", "km"])
def test_the_ending_or_the_script_of_a_file_is_its_language(tmp_path, language):
    for name in (f"r.{language}", "r.txt"):
        file = str(write_lines(tmp_path / name, TEXTS[language]))
        assert from_files([file], [file]).tgt_lang == language


def test_a_guess_and_a_code_that_does_not_fit_are_noted(tmp_path):
    thai, english = (
        str(write_lines(tmp_path / name, lines))
        for name, lines in (("t.txt", TEXTS["th"]), ("e.txt", ENGLISH))
    )
    assert from_files([thai], [thai]).notes()[0].startswith(f"{thai}: language th, from its script")
    assert from_files([english], [english]).notes()[0].startswith(f"{english}: language en, assum")
    assert "not by the language en, scored as" in from_files([thai], [thai], "en").notes()[0]
    assert from_files([thai], [thai], "th").notes() == []


def test_runs_are_scored_by_the_script_of_their_references(tmp_path):
    """With a code that no table knows, too; here it is en."""
    run = str(make_run(tmp_path, TEXTS["km"], TEXTS["km"], {"u000100": TEXTS["km"]}, "u000100"))
    for split in ("dev", "test"):
        assert bleu_tokenizer(from_runs([run], split).tgt_lang) == "char"


def test_a_training_scores_text_without_spaces_by_characters(tmp_path):
    language = "xx"  # the script decides
    toy_corpus(tmp_path, {"train": 100, "dev": 6, "test": 6}, langs=("gl", language))
    for split in ("train", "dev", "test"):
        file = tmp_path / f"{split}.{language}"
        text = (
            file.read_text().replace(" ", "").translate(str.maketrans("0123456789", "កខគឃចឆជឈញដ"))
        )
        file.write_text(text)
    recipe = toy_recipe(
        tmp_path,
        {
            "tgt": language,
            "data": {"tokenized": False},
            "segment": {"kind": "sentencepiece", "vocab_size": 40},
            "train": {"max_validations": 1},
        },
    )
    assert train(str(recipe), quiet=True).reason == "train.max_validations = 1"
    bleu, _ = read_summary(RunFolder(tmp_path / "run"))["test"]
    assert "tok:char" in bleu["signature"]
    assert main([str(tmp_path / "run"), "--resamples", "0", "--metrics", "bleu"]) == 0
