"""nmt-clean: each rule drops what it says, and nothing goes without a count."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.cleaning import dual
from data_prep.cleaning.identify import by_fasttext, by_lingua
from data_prep.cleaning.rules import RULES
from data_prep.pairs import length_ratio, unusual_ratio
from nmt.apps.synthesize.filters import Thresholds, source_rules, target_rules
from nmt.cli import clean
from nmt.cli.clean import chosen_rules
from nmt.data.rules import LIMITS, duplicates, training_rules
from nmt.errors import UserError
from tests.toy import lines_of_digits, reverse

LANGS = ["--src-lang", "gl", "--tgt-lang", "en"]
OFF = ["--set", "language=off"]  # the package lingua may be installed
WORDS = {"gl": "abcde", "en": "fghij"}  # letters of two languages


def sentence(lang: str, seed: int, count: int = 9) -> str:
    rng = Random(f"{lang}{seed}")
    return " ".join("".join(rng.choices(WORDS[lang], k=6)) for _ in range(count))


GOOD = [(sentence("gl", n), sentence("en", n)) for n in range(60)]
BAD = {
    "blank": ("\u200b", "ghi ghi fgh ijf"),
    "length": ("abc " * 251, "fgh " * 251),
    "characters": ("abcde" * 4001, "fghij" * 4001),
    "lost-characters": ("abc d\ufffd abc bcd", "fgh ghi hij fgi"),
    "leftovers": ("ab@@ cd abc bcd", "fgh ghi hij fgi"),
    "punctuation": ("= = = = = = = abc", "= = = = = = = fgh"),
    "script": ("абв где жзи клм", "fgh ghi hij fgi"),
    "copied": ("fgh ghi hij fji", "FGH ghi hij, fji!"),
    "partly-copied": ("abc fgh ghi hij", "fgh ghi hij fji"),
    "repetition": ("abc bcd cde dea", "fghi ghij fghi ghij fghi ghij fghi ghij"),
    "digits": ("abc 1998 bcd cde", "fgh 2347 ghi hij"),
    "ratio": ("abc bcd", sentence("en", 99, 8)),
    "held-out": (GOOD[0][0], sentence("en", 98)),
    "duplicate": GOOD[2],
    "near-duplicate": (f"{GOOD[3][0]} 7", f"{GOOD[3][1].upper()}! 7"),
    "swapped": (sentence("en", 97), sentence("gl", 97)),
}


def write(prefix: Path, pairs: list[tuple[str, str]]) -> Path:
    prefix.parent.mkdir(parents=True, exist_ok=True)
    for side, lang in enumerate(("gl", "en")):
        text = "".join(f"{pair[side]}\n" for pair in pairs)
        Path(f"{prefix}.{lang}").write_text(text, "utf-8")
    return prefix


def read(prefix: Path) -> list[tuple[str, str]]:
    sides = [Path(f"{prefix}.{lang}").read_text("utf-8").split("\n")[:-1] for lang in ("gl", "en")]
    return list(zip(*sides, strict=True))


def run(*argv: object) -> int:
    return clean.main([*map(str, argv), *LANGS])


def entry(output: Path) -> dict:
    return json.loads(output.with_name("MANIFEST.json").read_text())["cleaned"][output.name]


def test_every_rule_drops_its_pair_and_the_others_stay_in_order(tmp_path, capsys):
    raw = write(tmp_path / "raw" / "web", [*GOOD[1:], *BAD.values()])
    before = [Path(f"{raw}.{lang}").read_bytes() for lang in ("gl", "en")]
    held = write(tmp_path / "dev", [GOOD[0]])
    out = tmp_path / "clean" / "web"
    assert run(raw, "-o", out, "--held-out", held, *OFF) == 0
    assert read(out) == GOOD[1:]
    dropped = {name: found["count"] for name, found in entry(out)["dropped"].items()}
    assert dropped == dict.fromkeys(BAD, 1)
    assert BAD.keys() | {"language"} == {rule.name for rule in RULES}
    assert [Path(f"{raw}.{lang}").read_bytes() for lang in ("gl", "en")] == before
    page = out.with_name("web.html").read_text("utf-8")
    for rule in RULES[:-1]:
        assert f'id="{rule.name}"' in page
    assert "абв где жзи клм" in page
    assert "59 of 75 pairs" in page
    assert "src=" not in page  # self-contained
    assert "http" not in page
    printed = capsys.readouterr().out
    assert "59 of 75 pairs kept (78.7%)" in printed
    assert sorted(p.name for p in out.parent.iterdir()) == [
        "MANIFEST.json", "web.en", "web.gl", "web.html"
    ]  # fmt: skip


def test_a_pair_counts_under_one_rule_and_three_examples_are_shown(tmp_path):
    rng = Random(1)
    pairs = [
        (
            " ".join(rng.choices("abcdefgh <&1", k=rng.randint(0, 9))),
            " ".join(rng.choices("abxy !1", k=rng.randint(0, 40))),
        )
        for _ in range(400)
    ]
    raw = write(tmp_path / "raw", pairs)
    out = tmp_path / "out"
    assert run(raw, "-o", out, *OFF, "--confirm", *(rule.name for rule in RULES[:-1])) == 0
    found = entry(out)
    dropped = sum(rule["count"] for rule in found["dropped"].values())
    assert found["pairs"] == {"read": 400, "kept": len(read(out))}
    assert dropped + len(read(out)) == 400
    page = out.with_name("out.html").read_text("utf-8")
    assert page.count('<td class="side"') == 2 * sum(
        min(3, rule["count"]) for rule in found["dropped"].values()
    )
    remaining = iter(pairs)  # a subsequence
    assert all(pair in remaining for pair in read(out))


def test_the_first_pair_that_is_kept_is_the_original(tmp_path):
    """Of similar pairs, the first one may be dropped by another rule."""
    src, tgt = GOOD[0]
    raw = write(
        tmp_path / "raw", [(f"{src} 12345 6789", tgt), (src, tgt), (src.upper(), tgt), *GOOD]
    )
    out = tmp_path / "out"
    assert run(raw, "-o", out, *OFF) == 0
    assert read(out) == [(src, tgt), *GOOD[1:]]
    counts = {name: found["first"] for name, found in entry(out)["dropped"].items()}
    assert counts == {"digits": "1", "near-duplicate": "3", "duplicate": "4"}


def test_thresholds_can_be_set_and_rules_turned_off(tmp_path):
    rules = {rule.name: rule for rule in chosen_rules(["ratio=2.5", "digits=off"])}
    assert rules["ratio"].threshold == 2.5
    assert "digits" not in rules
    assert "2.5 times" in rules["ratio"].text
    raw = write(tmp_path / "raw", [*GOOD, BAD["digits"], BAD["blank"]])
    out = tmp_path / "out"
    assert run(raw, "-o", out, *OFF, "digits=off", "blank=off", "ratio=off") == 0
    assert len(read(out)) == 62


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        (["--set", "rato=2"], "did you mean ratio?"),
        (["--set", "ratio"], "'' is not a number"),
        (["--set", "ratio=-1"], "'-1' is not a number"),
        (["--set", "ratio=nan"], "'nan' is not a number"),
        (["--keep", "0.8"], "require each other"),
        (["--confirm", "rato"], "did you mean ratio?"),
        (["--confirm", "ratio", "--set", "ratio=off"], "unknown rule 'ratio'"),
        (["--held-out", "nowhere"], "nowhere.gl: no such file"),
        (["--language-model", "nowhere.bin"], "nowhere.bin: no such file"),
        (["--models", "a", "b", "--keep", "1"], "not a share between"),
        (["--models", "a", "b", "--keep", "0.5"], "a: "),
    ],
)
def test_a_wrong_option_has_a_next_step(tmp_path, capsys, argv, part):
    raw = write(tmp_path / "raw", GOOD)
    assert run(raw, "-o", tmp_path / "out", *argv) == 2
    err = capsys.readouterr().err
    assert part in err
    assert "->" in err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["raw.en", "raw.gl"]


@pytest.mark.parametrize("name", ["raw", "../raw", "link"])
def test_the_input_is_never_the_output(tmp_path, monkeypatch, capsys, name):
    folder = tmp_path / "folder"
    raw = write(folder / "raw", GOOD)
    monkeypatch.chdir(folder)
    (folder / "link.gl").symlink_to("raw.gl")
    output = {"raw": raw, "../raw": Path("../folder/raw"), "link": Path("link")}[name]
    assert run(raw, "-o", output, "--force", *OFF) == 2
    assert "the output is the input" in capsys.readouterr().err
    assert read(raw) == GOOD


@pytest.mark.parametrize("name", ["folder", "out.en"])
def test_the_output_is_a_prefix(tmp_path, capsys, name):
    raw = write(tmp_path / "raw", GOOD)
    (tmp_path / "folder").mkdir()
    assert run(raw, "-o", tmp_path / name, *OFF) == 2
    assert "--output takes a prefix" in capsys.readouterr().err


def test_existing_files_stay_without_force(tmp_path, capsys):
    raw = write(tmp_path / "raw", GOOD)
    out = write(tmp_path / "out", [("x", "y")])
    assert run(raw, "-o", out, *OFF) == 2
    assert "exists already" in capsys.readouterr().err
    assert read(out) == [("x", "y")]
    assert run(raw, "-o", out, "--force", *OFF) == 0
    assert read(out) == GOOD


@pytest.mark.parametrize(
    ("text", "part"), [(b"fgh\n\xff\n" * 30, "raw.en:2: not UTF-8"), (b"PK\x03\x04", "zip archive")]
)
def test_damaged_input_is_named_and_nothing_is_written(tmp_path, capsys, text, part):
    raw = write(tmp_path / "raw", GOOD)
    Path(f"{raw}.en").write_bytes(text)
    assert run(raw, "-o", tmp_path / "out", *OFF) == 2
    assert part in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["raw.en", "raw.gl"]


def test_a_text_without_a_good_pair_says_why(tmp_path, capsys):
    raw = write(tmp_path / "raw", [("абв", "fgh")] * 3)
    assert run(raw, "-o", tmp_path / "out", *OFF, "--confirm", "script") == 3
    assert "no pair is left (script: 3)" in capsys.readouterr().err
    assert not (tmp_path / "out.gl").exists()


def test_the_manifest_keeps_origin_and_license(tmp_path):
    raw = write(tmp_path / "raw" / "train", [*GOOD, GOOD[0]])
    old = {"corpus": "web", "sources": [{"license": "CC0"}], "pairs": {"train": 61}, "sha256": {}}
    (tmp_path / "raw" / "MANIFEST.json").write_text(json.dumps(old))
    out = tmp_path / "clean" / "train"
    assert run(raw, "-o", out, *OFF) == 0
    new = json.loads((tmp_path / "clean" / "MANIFEST.json").read_text())
    assert {**new, "cleaned": 0} == {"corpus": "web", "sources": old["sources"], "cleaned": 0}
    assert run(out, "-o", tmp_path / "clean" / "again", *OFF) == 0
    new = json.loads((tmp_path / "clean" / "MANIFEST.json").read_text())
    assert list(new["cleaned"]) == ["train", "again"]
    assert run(raw, "-o", tmp_path / "raw" / "same", *OFF) == 0
    assert old.items() <= json.loads((tmp_path / "raw" / "MANIFEST.json").read_text()).items()


def test_the_page_has_the_rules_and_their_thresholds():
    page = Path(__file__).parents[2] / "docs" / "howto" / "get-and-clean.md"
    table = page.read_text("utf-8").partition("\n| rule |")[2].partition("\n\n")[0]
    rows = [line.split("|") for line in table.splitlines()[2:]]
    assert [(row[1].strip(), row[3].strip()) for row in rows] == [
        *((rule.name, f"{rule.threshold:g}") for rule in RULES),
        ("cross-entropy", "off"),
    ]


def test_a_fault_has_one_name_in_all_commands():
    names = {rule.name for rule in RULES}
    assert {rule.name for rule in training_rules(LIMITS, monolingual=False)} <= names
    assert {duplicates().name, length_ratio(2).name, unusual_ratio([], 2).name} <= names
    synthetic = [*source_rules("gl"), *target_rules("en", Thresholds())]
    faults = {rule.name.removeprefix("source ").removeprefix("target ") for rule in synthetic}
    assert faults - names == {"not UTF-8"}


def test_a_rule_that_would_drop_many_pairs_asks(tmp_path, capsys):
    """What it would have dropped is tried by the other rules."""
    many = [(f"ab@@ {src}", tgt) for src, tgt in GOOD]
    both = [("абв@@ где жзи клм", GOOD[0][1])]
    raw = write(tmp_path / "raw", [*many, *both])
    out = tmp_path / "out"
    assert run(raw, "-o", out, *OFF) == 0
    assert read(out) == many
    assert entry(out)["questions"] == {"leftovers": 61}
    assert "--confirm leftovers" in capsys.readouterr().err
    page = out.with_name("out.html").read_text("utf-8")
    assert "--confirm leftovers" in page
    assert page.count('<td class="side"') == 2 * (3 + 1)
    assert run(raw, "-o", out, *OFF, "--confirm", "leftovers", "--force") == 3


@pytest.mark.parametrize(("count", "kept"), [(2, False), (3, True)])
def test_few_bad_pairs_of_a_small_text_go_without_a_question(tmp_path, count, kept):
    bad = [(f"абв где {n}", sentence("en", n)) for n in range(count)]
    out = tmp_path / "out"
    assert run(write(tmp_path / "raw", [*GOOD, *bad]), "-o", out, *OFF) == 0
    assert read(out) == [*GOOD, *bad * kept]


WORD = st.text("abcdefghij", min_size=3, max_size=8)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    shared=st.floats(0.15, 1.0),
    copies=st.lists(st.lists(WORD, min_size=4, max_size=12), min_size=1, max_size=20),
    seed=st.integers(0, 99),
)
def test_copies_go_unless_the_languages_share_words(tmp_path_factory, shared, copies, seed):
    """In a text of related languages, all pairs stay; in one of unrelated ones, all copies go."""
    rng = Random(seed)

    def pairs(share: float) -> list[tuple[str, str]]:
        made = []
        for n in range(60):
            src = sentence("gl", n).split()
            new = sentence("en", n).split()
            same = round(share * len(src))
            words = [*src[:same], *new[same:]]
            rng.shuffle(words)
            made.append((" ".join(src), " ".join(words)))
        return made

    untranslated = [
        (f"{' '.join(c)} {n}.", f"{' '.join(c)} {n}".upper()) for n, c in enumerate(copies)
    ]
    folder = tmp_path_factory.mktemp("copies")
    options = ["--set", "language=off", "swapped=off", "near-duplicate=off", "--force"]
    for share, kept in ((0.0, []), (shared, untranslated)):
        made = pairs(share)
        raw = write(folder / "raw", [*made, *untranslated])
        assert run(raw, "-o", folder / "out", *options) == 0
        assert read(folder / "out") == [*dict.fromkeys([*made, *kept])]


# ---------------------------------------------------------------- pairs as in use


def table(name: str) -> list[list[str]]:
    lines = (Path(__file__).parent / name).read_text("utf-8").splitlines()
    return [line.split("\t") for line in lines]


@pytest.mark.parametrize("options", [OFF, pytest.param([], marks=pytest.mark.slow)])
@pytest.mark.parametrize("lang", sorted({row[0] for row in table("good_pairs.tsv")}))
def test_good_pairs_stay_and_bad_ones_go(tmp_path, lang, options):
    """Calendars, clocks, words for numbers, names, mixed scripts and laughter are no faults."""
    good = [tuple(row[1:]) for row in table("good_pairs.tsv") if row[0] == lang]
    bad = [row[1:] for row in table("bad_pairs.tsv") if row[0] == lang]
    assert len(good) == 30
    assert len(bad) >= 4
    for side, name in enumerate((lang, "en")):
        text = "".join(f"{pair[side]}\n" for pair in [*good, *(row[1:] for row in bad)])
        (tmp_path / f"raw.{name}").write_text(text, "utf-8")
    out = tmp_path / "out"
    langs = ["--src-lang", lang, "--tgt-lang", "en"]
    assert clean.main([str(tmp_path / "raw"), "-o", str(out), *langs, *options]) == 0
    rule_of = {
        int(line): rule
        for rule, found in entry(out)["dropped"].items()
        for line in found["first"].split()
    }
    assert {good[n - 1]: rule for n, rule in rule_of.items() if n <= 30} == {}
    assert [rule_of.get(31 + n) for n in range(len(bad))] == [row[0] for row in bad]


# ---------------------------------------------------------------- languages


@pytest.fixture(scope="module")
def language_model(tmp_path_factory):
    """A real fastText model of Galician and English, in the form of GlotLID's labels."""
    pytest.importorskip("fasttext")
    folder = tmp_path_factory.mktemp("fasttext")
    rows = [f"__label__glg_Latn {src}\n__label__eng_Latn {tgt}\n" for src, tgt in GOOD]
    (folder / "text").write_text("".join(rows), "utf-8")
    # in a process of its own: fastText starts from unset memory, which is zero only there
    code = (
        "import fasttext, sys; model = fasttext.train_supervised(sys.argv[1], minCount=1, minn=1, "
        "maxn=3, dim=8, bucket=5000, epoch=50, thread=1, verbose=0); model.save_model(sys.argv[2])"
    )
    files = [folder / "text", folder / "lid.bin"]
    subprocess.run([sys.executable, "-c", code, *map(str, files)], check=True)
    return folder / "lid.bin"


def test_lines_of_another_language_are_dropped_by_a_fasttext_model(tmp_path, language_model):
    other = (sentence("en", 5), sentence("en", 6))
    short = ("fgh ghi", "fgi ghj")
    raw = write(tmp_path / "raw", [*GOOD, other, short])
    out = tmp_path / "out"
    assert run(raw, "-o", out, "--language-model", language_model, "--set", "swapped=off") == 0
    assert read(out) == [*GOOD, short]
    assert entry(out)["dropped"]["language"]["first"] == "61"


def test_a_fasttext_model_must_know_the_languages(tmp_path, language_model):
    with pytest.raises(UserError, match="unknown language 'sw'"):
        by_fasttext(language_model, ("sw", "en"))
    (tmp_path / "text.bin").write_text("no model")
    with pytest.raises(UserError, match="is not a fastText model"):
        by_fasttext(tmp_path / "text.bin", ("gl", "en"))


def test_lingua_is_used_only_if_it_knows_both_languages():
    pytest.importorskip("lingua")
    assert by_lingua(("gl", "en")) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("langs", "text", "side", "sure"),
    [
        (("sk", "eng_Latn"), "toto je veľmi pekný deň na prechádzku", 0, False),
        (("sk", "eng_Latn"), "toto je veľmi pekný deň na prechádzku", 1, True),
        (("sk", "eng_Latn"), "this is a very nice day for a long walk in the woods", 0, True),
        (("sk", "eng_Latn"), "this is a very nice day for a long walk in the woods", 1, False),
        (("sr", "en"), "ovo je veoma lep dan za dugu šetnju", 0, False),  # lingua: Cyrillic only
        (("ja", "zh"), "東京都知事選挙開票速報", 0, False),
        (("ja", "zh"), "これはとても良い日です", 0, False),
        (("ja", "zh"), "これはとても良い日です", 1, True),
    ],
)
def test_lingua_may_be_sure_of_the_other_language(langs, text, side, sure):
    pytest.importorskip("lingua")
    identify = by_lingua(langs)
    assert identify is not None
    assert (identify(text, side) > 0.9) == sure


# ---------------------------------------------------------------- models of both directions


@pytest.mark.parametrize(
    ("forward", "backward", "score"),
    [(1, 1, 1), (1, 3, 2 + 2), (0, 0, 0), (math.inf, 1, math.inf), (math.inf, math.inf, math.inf)],
)
def test_dual_cross_entropy(forward, backward, score):
    assert dual.dual_cross_entropy(forward, backward) == score
    assert dual.dual_cross_entropy(backward, forward) == score


@pytest.mark.slow
def test_the_pairs_that_two_models_find_unlikely_are_dropped(tmp_path, trained, monkeypatch):
    """The reverse of a reversed line is the line, so one model serves for both directions."""
    sources = lines_of_digits(40, seed=7, longest=4)
    wrong = {3, 17, 29, 36}
    pairs = [
        (line, " ".join(sorted(line.split())) + " 9" if n in wrong else reverse(line))
        for n, line in enumerate(sources)
    ]
    raw = write(tmp_path / "raw", pairs)
    with pytest.raises(UserError, match="translates gl into en, not en into gl"):
        dual.check_direction(trained, "en", "gl")
    monkeypatch.setattr(dual, "check_direction", lambda *_: None)
    off = ["digits=off", "near-duplicate=off", "copied=off"]
    out = tmp_path / "out"
    models = ["--models", trained, trained, "--keep", "0.9"]
    assert run(raw, "-o", out, *OFF, *off, *models) == 0
    assert read(out) == [pair for n, pair in enumerate(pairs) if n not in wrong]
    found = entry(out)
    assert found["dropped"]["cross-entropy"]["first"] == "4 18 30 37"
    assert found["pairs"]["kept"] == 36
