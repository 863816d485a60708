"""nmt-synthesize: counts, resuming after any kill, and files that are never replaced.

The model is imitated: it reverses each word. tests/test_pages.py runs the command with a real one.
"""

from __future__ import annotations

import gzip
import itertools
import json
import os
import resource
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nmt.cli import search_options, synthesize, translate
from nmt.config.entries import Directions
from nmt.config.load import recipe_from_text
from nmt.decoding.codec import Translation
from nmt.runtime import files
from nmt.store.model import Description
from nmt.text.sentences import UsualLine
from tests.cli.imitation import Imitation

LINES = ["one two", "", "three four five", "cut", "one two", "level", "six"]
KEPT = (["one two", "three four five", "six"], ["eno owt", "eerht ruof evif", "xis"])
COUNTS = {
    "source blank": 1,
    "cut": 1,
    "source duplicate": 1,
    "partly-copied": 1,
}
Command = Callable[..., tuple[int, str]]


@dataclass
class Reversing(Imitation):
    """A translator that reverses each word, cuts lines with "cut", and ends at ``stop``."""

    tokenized: bool = False
    stop: Callable[[int], None] = lambda line: None
    translated: list[str] = field(default_factory=list)

    @property
    def codec(self) -> Any:
        segmenter = types.SimpleNamespace(
            moses=types.SimpleNamespace(
                tokenized=self.tokenized, detokenize_reference=lambda line, lang: line
            ),
            decode_tokenized=lambda pieces, lang: " ".join(pieces),
        )
        directions = Directions("en", "gl")
        return types.SimpleNamespace(
            usual=UsualLine(),
            segmenter=segmenter,
            directions=directions,
            langs=lambda options: ("en", "gl"),
        )

    def stream(self, lines: Iterator[str], skip: int = 0, **options: Any) -> Iterator[Any]:
        for number, line in enumerate(itertools.islice(lines, skip, None), skip):
            self.stop(number)
            self.translated.append(line)
            pieces = [word[::-1] for word in line.split()]
            text = " ".join(pieces).replace(" &apos;", "'")
            yield [Translation(pieces, text, -1.0, -1.0, "cut" not in line)]


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Reversing:
    model = Reversing()
    monkeypatch.setattr(search_options, "_load", lambda args: model)
    return model


@pytest.fixture
def command(tmp_path, model, monkeypatch, capsys):
    """Return a function that writes the corpus bt of the text mono.en: (exit code, stderr)."""
    monkeypatch.chdir(tmp_path)
    recipe = "src: en\ntgt: gl\ndata: {train: a, dev: a}"
    Path("run").mkdir()
    about = Description.of(recipe_from_text(recipe, "recipe"), "u000001", None)
    Path("run/model.json").write_bytes(about.to_json())
    Path("mono.en").write_text("".join(f"{line}\n" for line in LINES))

    def run(*argv: str, pairs: str = "bt", text: str = "mono.en") -> tuple[int, str]:
        code = synthesize.main(["run", "--input", text, "--output", pairs, *argv])
        return code, capsys.readouterr().err

    return run


def lines_of(path: str) -> list[str]:
    text = Path(path).read_text(encoding="utf-8")
    assert text.endswith("\n")
    return text.split("\n")[:-1]


def listed() -> list[str]:
    return sorted(path.name for path in Path().iterdir() if path.name not in ("run", "mono.en"))


WRITTEN = ["bt.en", "bt.gl", "bt.json"]


# ---------------------------------------------------------------- the corpus


def test_good_pairs_are_written_and_the_others_counted(command: Command, model: Reversing) -> None:
    code, err = command("--max-ratio", "3")
    assert code == 0
    assert err.splitlines() == [
        "bt.en and bt.gl: 3 of 7 pairs kept (42.9%)",
        *(f"  1  {reason}" for reason in COUNTS),
    ]
    assert (lines_of("bt.en"), lines_of("bt.gl")) == KEPT
    assert listed() == WRITTEN
    # blank, skipped and repeated lines are not translated
    assert [line for line in model.translated if line] == [*KEPT[0][:2], "cut", "level", "six"]
    report = json.loads(Path("bt.json").read_text())
    assert report["pairs"] == {"read": 7, "kept": 3, "dropped": COUNTS}
    assert report["filters"] == {"max_ratio": 3.0, "max_copied": 0.5}
    assert report["text"] == "mono.en"
    assert report["files"] == {name: files.file_digest(Path(name)) for name in WRITTEN[:2]}
    translation = report["translation"]
    assert translation["run"] == ["run"]
    assert translation["model"] == "imitation"
    assert translation["input"] == files.file_digest(Path("mono.en"))
    assert (translation["beam"], translation["sample"]) == (4, False)


def test_bad_lines_are_skipped_not_refused(command: Command) -> None:
    """Among them lines that --output refuses: not UTF-8, or too long."""
    bad = [b"\xff\xfe", b"x" * 200_000, b"x " * 251, "слово слово".encode(), b"\x00 \t", b""]
    good = ["\ufeffone".encode(), b"two\tthree\r", b"four"]
    Path("mono.en.gz").write_bytes(gzip.compress(b"\n".join([good[0], *bad, *good[1:]])))
    code, err = command(text="mono.en.gz")
    assert (code, "bt.en and bt.gl: 3 of 9 pairs kept" in err) == (0, True)
    assert (lines_of("bt.en"), lines_of("bt.gl")) == (
        ["one", "two three", "four"],
        ["eno", "owt eerht", "ruof"],
    )
    assert json.loads(Path("bt.json").read_text())["pairs"]["dropped"] == {
        "source blank": 2,
        "source not UTF-8": 1,
        "source characters": 1,
        "source length": 1,
        "source script": 1,
    }


def test_translations_are_tokenized_if_the_training_text_was(command, model):
    """With escapes, as the other side of the corpus."""
    Path("mono.en").write_text("eno ;sopa& two\n")
    for tokenized, expected in ((False, "one' owt"), (True, "one &apos; owt")):
        model.tokenized = tokenized
        assert command("--force")[0] == 0
        assert lines_of("bt.gl") == [expected]


def test_other_names_and_folders(command: Command) -> None:
    Path("data").mkdir()
    assert command(pairs="data/bt.v1")[0] == 0
    assert sorted(p.name for p in Path("data").iterdir()) == [f"bt.v1{n[2:]}" for n in WRITTEN]


def test_paths_that_are_not_utf8(command: Command) -> None:
    """The report has them, as JSON escapes."""
    text, prefix = (os.fsdecode(name) for name in (b"mono\xff.en", b"bt\xff"))
    Path("mono.en").rename(text)
    assert command(pairs=prefix, text=text)[0] == 0
    report = json.loads(Path(f"{prefix}.json").read_text(encoding="utf-8"))
    assert (report["text"], list(report["files"])) == (text, [f"{prefix}.en", f"{prefix}.gl"])
    assert "the corpus is complete already" in command("--resume", pairs=prefix, text=text)[1]


# ---------------------------------------------------------------- resuming


def test_the_files_and_filters_have_the_language_of_the_text(command: Command) -> None:
    """A model of several source languages may translate another one than the recipe's ``src``."""
    Path("mono.ru").write_text("день\nлюди\n", encoding="utf-8")
    code, err = command("--src-lang", "ru", text="mono.ru")
    assert (code, "target script: 2" in err) == (3, True), err  # not the source
    assert command("--src-lang", "pt", "--force")[0] == 0
    assert (lines_of("bt.pt"), lines_of("bt.gl")) == KEPT
    assert not Path("bt.en").exists()
    code, err = command("--src-lang", "../pt")
    assert (code, "--src-lang: ../pt is not" in err) == (2, True), err


def test_a_kill_while_translating(command: Command, model: Reversing) -> None:
    """Wherever it cut the partial output, --resume gives the same files."""
    expected = {}
    assert command()[0] == 0
    for name in WRITTEN:
        expected[name] = Path(name).read_bytes()
        Path(name).unlink()

    def interrupt(line: int) -> None:
        if line == 5:
            raise KeyboardInterrupt

    model.stop = interrupt
    code, err = command()
    assert code == 130
    assert "note: finished lines are in bt.part; the same command with --resume continues" in err
    part = Path("bt.part").read_bytes()
    assert part == b"1\teno owt\n1\t\n1\teerht ruof evif\n0\ttuc\n1\t\n"
    model.stop = lambda line: None
    assert "contains the lines of an interrupted translation" in command()[1]
    for cut in range(0, len(part) + 1, 3):
        Path("bt.part").write_bytes(part[:cut])
        assert command("--resume")[0] == 0
        assert listed() == WRITTEN
        for name in WRITTEN:
            assert Path(name).read_bytes() == expected[name]
            Path(name).unlink()
    Path("bt.part").write_bytes(part)
    assert command("--resume", "--max-ratio", "9")[0] == 0  # filters may change


def killed_at(step: int, run: Callable[[], object]) -> bool:
    """Run in a child that is killed before file operation ``step``; return whether it was."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 77
    count = itertools.count(1)

    def wrap(real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*argv: Any, **named: Any) -> Any:
            if next(count) == step:
                os._exit(77)
            return real(*argv, **named)

        return operation

    for name in ("fsync", "replace", "unlink", "open"):
        setattr(os, name, wrap(getattr(os, name)))
    run()
    os._exit(0)


@pytest.mark.slow
@pytest.mark.parametrize("force", [False, True])
def test_a_kill_while_the_files_get_their_names(command, force, monkeypatch):
    """Both sides are never those of different corpora, and --resume completes them."""
    monkeypatch.setattr(os, "fsync", lambda file: None)  # the slowest part of the command

    def state() -> dict[str, bytes]:
        return {name: Path(name).read_bytes() for name in WRITTEN if Path(name).exists()}

    assert command()[0] == 0
    expected = state()
    for name in WRITTEN:
        Path(name).unlink()
    seen, old = set(), {name: b"old\n" for name in WRITTEN if force}
    for step in range(1, 99):
        for name in WRITTEN:
            Path(name).unlink(missing_ok=True)
        for name, content in old.items():
            Path(name).write_bytes(content)
        if not killed_at(step, lambda: command(*["--force"] * force)):
            break
        found = state()
        if set(WRITTEN[:2]) <= found.keys():
            sides = {name: found[name] for name in WRITTEN[:2]}
            assert sides in ({n: old.get(n) for n in sides}, {n: expected[n] for n in sides})
        seen.add(tuple(found))
        if Path("bt.part").exists() and found != old:
            code, err = command("--resume")
            left = {name for name in found if found[name] != expected[name]}
            if left:  # an old file, which only a person may delete
                assert (code, "exists already" in err) == (2, True)
                for name in left:
                    Path(name).unlink()
                code, err = command("--resume")
            assert (code, state()) == (0, expected), err
            assert listed() == WRITTEN
        for name in set(listed()) - {".bt.nmt-lock"}:
            Path(name).unlink()
    assert 8 < step < 99
    assert state() == expected
    assert {("bt.en",), ("bt.en", "bt.gl"), tuple(WRITTEN)} <= seen


def test_a_complete_corpus_is_not_translated_again(command: Command, model: Reversing) -> None:
    """Unless the command asks for another one."""
    assert command()[0] == 0
    model.translated.clear()
    code, err = command("--resume")
    assert (code, err) == (0, "note: bt: the corpus is complete already\n")
    assert "exists already" in command()[1]
    code, err = command("--resume", "--max-ratio", "9")
    assert (code, "exists already" in err) == (2, True)
    Path("bt.gl").write_text("edited\n")
    assert "exists already" in command("--resume")[1]
    Path("bt.json").write_text("[]")
    assert "exists already" in command("--resume")[1]
    assert (model.translated, listed()) == ([], WRITTEN)


def test_a_text_that_changes_is_noticed(command: Command, model: Reversing) -> None:
    def change(line: int) -> None:
        if line == 3:
            Path("mono.en").write_text("short\n")

    model.stop = change
    code, err = command()
    assert code == 2
    assert "mono.en: changed while it was translated\n  -> restore it and add --resume" in err
    assert listed() == ["bt.part"]


def test_a_text_that_disappears_is_noticed(command: Command, model: Reversing) -> None:
    model.stop = lambda line: Path("mono.en").unlink(missing_ok=True)
    code, err = command()
    assert (code, "mono.en: No such file or directory\n  -> it existed before" in err) == (4, True)
    assert listed() == ["bt.part"]
    Path("mono.en").write_text("".join(f"{line}\n" for line in LINES))
    assert command("--resume")[0] == 0
    assert listed() == WRITTEN


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize("name", WRITTEN)
def test_an_existing_corpus_is_replaced_only_with_force(command, model, name):
    Path(name).write_text("precious\n")
    for argv in ((), ("--resume",)):
        code, err = command(*argv)
        assert (code, f"{name}: exists already" in err) == (2, True)
        assert Path(name).read_text() == "precious\n"
        assert listed() == [name]
    assert model.translated == []
    assert command("--force")[0] == 0
    assert (lines_of("bt.en"), lines_of("bt.gl")) == KEPT
    assert listed() == WRITTEN


@pytest.mark.parametrize("name", WRITTEN)
def test_a_file_that_appears_while_translating_is_kept(command, model, name):
    def create(line: int) -> None:
        Path(name).write_text("precious\n")

    model.stop = create
    code, err = command()
    assert (code, f"{name}: exists already\n  -> rename or delete it, then run" in err) == (2, True)
    assert Path(name).read_text() == "precious\n"
    assert listed() == sorted([name, "bt.part"])
    Path(name).unlink()
    assert command("--resume")[0] == 0
    assert listed() == WRITTEN


def test_the_text_is_never_overwritten(command: Command) -> None:
    for argv in ((), ("--force",)):
        code, err = command(*argv, pairs="mono")
        assert (code, "mono.en: is also an input, which would be overwritten" in err) == (2, True)
    assert lines_of("mono.en") == LINES


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--max-ratio", "1"], "--max-ratio: 1 is not a number over 1"),
        (["--max-ratio", "nan"], "--max-ratio: nan is not a number over 1"),
        (["--max-copied", "1.1"], "--max-copied: 1.1 is not a number from 0 to 1"),
        (["--input", "/dev/null"], "/dev/null: --input must be a regular file"),
        (["--input", "none"], "none: No such file"),
        (["--output", "bt.gl"], "leave out the suffix: --output bt"),
        (["--src-lang", "gl"], "the text and its translations are both gl"),
        (["--output", "."], ".: --output takes a prefix of file names, not a folder"),
        (["--output", "run/"], "write, for example, --output run/bt"),
        (["--output", "none/bt"], "none: the folder does not exist"),
        (["--output", "run/model"], "run/model.json: is an existing file of the model in"),
        (["--top-k", "3"], "--top-k requires --sample"),
    ],
)
def test_flags_that_contradict_each_other(command: Command, argv: list[str], message: str) -> None:
    code, err = command(*argv)
    assert (code, message in err) == (2, True), err
    assert listed() == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "no line can be translated (the file is empty)"),
        (b"\n \n", "no line can be translated (source blank)"),
        ("ολα\n".encode(), "no line can be translated (source script)"),
        ("one\n".encode("utf-16"), "mono.en: is not a text file\n  -> this is UTF-16: convert"),
        (b"tw\xf6\n", "no line can be translated (source not UTF-8)"),
        (b"x" * 10_000_001, "mono.en:1: this line has over 10,000,000 bytes"),
    ],
)
def test_a_text_without_sentences(command: Command, text: bytes, message: str) -> None:
    Path("mono.en").write_bytes(text)
    code, err = command()
    assert (code, message in err) == (2, True), err
    assert listed() == []


def test_a_partial_output_of_another_kind_is_not_continued(command, model, capsys):
    def interrupt(line: int) -> None:
        if line == 2:
            raise KeyboardInterrupt

    model.stop = interrupt
    argv = ["run", "--input", "mono.en", "--output", "bt"]
    assert translate.main(argv) == 130
    code, err = command("--resume")
    assert (code, "its lines are not those of nmt-synthesize" in err) == (2, True)
    assert Path("bt.part").read_text() == "eno owt\n\n"


def test_a_corpus_without_pairs_fails_and_keeps_the_translations(command: Command) -> None:
    Path("mono.en").write_text("level\nkayak\n")
    code, err = command()
    assert code == 3
    assert "bt: no pair is left (partly-copied: 2)" in err
    assert (
        "read the translations in bt.part; then add --resume with a larger --max-copied, or add "
        "--force and use a better model\n"
    ) in err
    assert listed() == ["bt.part"]
    assert command("--resume", "--max-copied", "1")[0] == 0
    assert lines_of("bt.gl") == ["level", "kayak"]


def test_a_full_disk_keeps_the_translations(command: Command) -> None:
    """A limit on file sizes imitates it, once the translations are written."""
    Path("mono.en").write_text("".join(f"first{n} second{n}\n" for n in range(200)))
    size = sum(len(f"1\tfirst{n} second{n}\n") for n in range(200))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size - 200, hard))
    try:
        code, err = command()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert code == 4, err
    assert "must not grow larger than" in err
    assert "run the same command with --resume" in err
    assert listed() == ["bt.part"]
    assert command("--resume")[0] == 0
    assert len(lines_of("bt.gl")) == 200
    assert listed() == WRITTEN
