"""The plain text and the words that are scored, from files and from run folders."""

from __future__ import annotations

import gzip
from contextlib import nullcontext
from pathlib import Path

import pytest
from sacremoses import MosesDetokenizer

from nmt.errors import UserError
from nmt.scoring.metrics import tokenized_bleu
from nmt.scoring.systems import Systems, from_files, from_runs
from nmt.store.folder import RunFolder
from tests.scoring.runs import make_run, write_lines

PLAIN = ['He said, "it\'s fine."', "Rock & roll (50%), isn't it?", "A well-known fact.", "Yes!"]
WORDS = [
    "He said , &quot; it &apos;s fine . &quot;",
    "Rock &amp; roll ( 50 % ) , isn &apos;t it ?",
    "A well-known fact .",
    "Yes !",
]
DATA = Path(__file__).parents[2] / "../shared/data"


def test_plain_files_are_tokenized_for_tokenized_bleu(tmp_path):
    hyp, ref = (str(write_lines(tmp_path / name, PLAIN)) for name in ("hyp", "ref"))
    given = from_files([hyp], [ref], "en")
    assert (given.texts, given.refs) == ({hyp: PLAIN}, PLAIN)
    assert (given.words, given.ref_words) == ({hyp: WORDS}, WORDS)
    assert given.tokenizer == "moses-en"
    assert given.notes() == []


def test_tokenized_files_are_detokenized_for_sacrebleu(tmp_path):
    hyp, ref = (str(write_lines(tmp_path / name, WORDS)) for name in ("hyp", "ref"))
    given = from_files([hyp], [ref], "en", tokenized=True)
    assert (given.texts, given.refs) == ({hyp: PLAIN}, PLAIN)
    assert (given.words, given.ref_words) == ({hyp: WORDS}, WORDS)
    assert given.tokenizer == "none"
    assert given.notes() == []


def test_files_are_read_without_changes(tmp_path):
    lines = ["a\tb\x85c", "", "d\u2028e"]
    ref = tmp_path / "ref.gz"
    ref.write_bytes(gzip.compress("".join(f"{line}\r\n" for line in lines).encode()))
    hyp = str(write_lines(tmp_path / "hyp", lines))
    given = from_files([hyp], [str(ref)])
    assert given.refs == given.texts[hyp] == lines
    assert given.count_empty(hyp) == 1


def test_run_on_a_raw_corpus(tmp_path):
    devs = {"u000100": ["x"] * 4, "u000200": PLAIN[::-1]}
    run = str(make_run(tmp_path, PLAIN, PLAIN, devs, "u000200"))
    test = from_runs([run], "test")
    assert (test.texts, test.refs) == ({run: PLAIN}, PLAIN)
    assert (test.words, test.ref_words) == ({run: WORDS}, WORDS)
    assert (test.ref_name, test.tgt_lang) == (str(tmp_path / "data/test.en"), "en")
    dev = from_runs([run], "dev")
    assert dev.texts == {run: PLAIN[::-1]}
    assert dev.ref_name == str(tmp_path / "data/dev.en")


def test_run_on_a_tokenized_corpus(tmp_path):
    """Its hypotheses are plain text, and its reference files are words."""
    run = str(make_run(tmp_path, WORDS, PLAIN, {}, "u000100", "data.tokenized=true"))
    given = from_runs([run], "test")
    assert (given.texts, given.refs) == ({run: PLAIN}, PLAIN)
    assert (given.words, given.ref_words) == ({run: WORDS}, WORDS)
    assert "test.words is missing" in given.notes()[0]


def test_the_stored_words_of_a_run_are_scored(tmp_path):
    run = make_run(tmp_path, WORDS, PLAIN, {}, "u000100", "data.tokenized=true")
    write_lines(run / "test.words", [f"{words} !" for words in WORDS])
    given = from_runs([str(run)], "test")
    assert given.words == {str(run): [f"{words} !" for words in WORDS]}
    assert given.texts == {
        str(run): [f"{text}!" for text in PLAIN]
    }  # detokenized from the words, as the references are
    assert given.tokenizer == "model-words"
    assert given.notes() == []
    write_lines(run / "test.words", WORDS[1:])
    with pytest.raises(UserError, match=r"test.words: 3 lines, but the reference has 4"):
        from_runs([str(run)], "test")


def test_references_are_changed_by_sacremoses_alone(tmp_path):
    """Tokenized text is detokenized by sacremoses alone; plain text keeps every character."""
    words = ["“ so ” he said …", "a \u2019 b \u060c c", "x"]
    file = str(write_lines(tmp_path / "ref", words))
    expected = [MosesDetokenizer("en").detokenize(line.split()) for line in words]
    assert from_files([file], [file], "en", tokenized=True).refs == expected
    odd = ["e\u0301\u00a0x ", "", " \u200b\u2028 y\t"]
    file = str(write_lines(tmp_path / "plain", odd))
    assert from_files([file], [file], "en").refs == odd


def test_a_moved_reference_can_be_given(tmp_path):
    run = str(make_run(tmp_path, PLAIN, PLAIN, {}, "u000100"))
    moved = (tmp_path / "data/test.en").rename(tmp_path / "elsewhere.en")
    with pytest.raises(UserError, match="no such file"):
        from_runs([run], "test")
    assert from_runs([run], "test", [str(moved)]).refs == PLAIN


def test_runs_are_compared_on_one_reference(tmp_path):
    one, two, other = (
        str(make_run(tmp_path / place, refs, PLAIN[::-1], {}, "u000100", name=place))
        for place, refs in (("one", PLAIN), ("two", PLAIN), ("other", ["x"] * 4))
    )
    given = from_runs([one, two], "test")
    assert list(given.texts) == list(given.words) == [one, two]
    with pytest.raises(UserError, match="differs from"):
        from_runs([one, other], "test")
    with pytest.raises(UserError, match="twice"):
        from_runs([one, one], "test")


@pytest.mark.parametrize("corpus", ["ted-gl-en/dev.en.gz", "multi30k/tok/dev.de.gz"])
def test_words_of_real_corpora_survive_detokenizing(tmp_path, corpus):
    """So tokenized BLEU of a run without stored words is that of its words."""
    file = DATA / corpus
    if not file.exists():
        pytest.skip("needs the corpora in ../shared/data")
    lang = file.name.split(".")[1]
    plain = from_files([str(file)], [str(file)], lang, tokenized=True)
    again = from_files([str(write_lines(tmp_path / "plain", plain.refs))], [str(file)], lang)
    (words,) = again.words.values()
    assert tokenized_bleu(words, plain.ref_words).value == pytest.approx(100)


def notes(hyps: list[str], refs: list[str], sources: list[str] | None = None) -> str:
    return "\n".join(Systems({"h": hyps}, refs, {}, [], "ref", "en", "none", sources or []).notes())


def test_notes_on_unusual_text():
    assert notes(PLAIN, PLAIN) == ""
    assert notes(["", " ", "\u200b", "d"], PLAIN) == "h: 3 of 4 hypotheses are empty"
    assert "ref: every line is empty" in notes(PLAIN, [""] * 4)
    assert notes(PLAIN, WORDS).startswith("ref: looks tokenized")
    assert notes(WORDS, WORDS).startswith("ref, h: looks tokenized")
    assert notes(["th@@ is is"] * 4, PLAIN).startswith("h: looks split into subwords")
    assert notes(["▁th is ▁is"] * 4, PLAIN).startswith("h: looks split into subwords")
    decomposed = [*PLAIN[:3], "e\u0301\u200f"]
    assert notes(decomposed, decomposed) == ""
    assert notes(PLAIN, decomposed).startswith(
        "ref: 1 of 4 lines (25.0%) are not in the Unicode form clean (not in Unicode NFC in 1, "
        "U+200F RIGHT-TO-LEFT MARK in 1), and"
    )
    assert notes(decomposed, PLAIN).startswith("h: 1 of 4 lines (25.0%)")
    assert notes(PLAIN, PLAIN, [*PLAIN[:3], "x"]) == "h: 3 of 4 hypotheses repeat the source"


@pytest.mark.parametrize(
    "line",
    ["Qui est là ? « Moi » !", "foo@bar.com costs 3.50, not 4", "... and so on"],
)
def test_plain_text_of_other_languages_is_not_called_tokenized(line):
    assert "tokenized" not in notes([line] * 4, PLAIN)


@pytest.mark.parametrize(("state", "step"), [("stopped", "--resume"), ("training", "wait")])
def test_the_error_of_an_unfinished_run_says_what_gives_it_hypotheses(tmp_path, state, step):
    run = make_run(tmp_path, PLAIN, None, {}, "u000100")
    lock = RunFolder(run).lock if state == "training" else nullcontext()
    with lock, pytest.raises(UserError) as error:
        from_runs([str(run)], "test")
    assert error.value.at == str(run / "test.hyp")
    assert step in error.value.fix
