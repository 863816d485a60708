"""The commands for one's own files, run as commands on files in each format."""

import gzip
import itertools
import json
import os
import sys

import polib
import pytest

from data_prep.importers import gettext
from nmt.cli.import_corpus import main

SIZES = ["--dev-size", "20", "--test-size", "20"]


def texts(n):
    """``n`` pairs without a word in common; source words rise, target words are reversed."""
    letters = ("".join(c) for c in itertools.product("abcdefghij", repeat=4))
    for _ in range(n):
        source = " ".join(itertools.islice(letters, 4))
        yield source, source[::-1]


def read_back(out, src="xx", tgt="yy"):
    sides = [
        [line for split in ("train", "dev", "test")
         for line in (out / f"{split}.{lang}").read_text("utf-8").splitlines()]
        for lang in (src, tgt)
    ]  # fmt: skip
    return sorted(zip(*sides, strict=True))


def manifest(out):
    return json.loads((out / "MANIFEST.json").read_text("utf-8"))


def langs(out, *more):
    return ["--src-lang", "xx", "--tgt-lang", "yy", "--output", str(out), *SIZES, *more]


def test_tsv_columns_header_and_filters(tmp_path):
    good = list(texts(100))
    rows = ["id\ttarget\tsource", *(f"{i}\t{t}\t {s}" for i, (s, t) in enumerate(good))]
    rows += ["100\tsame\tsame", "101\t\tx", "102", f"103\t{'y' * 100}\tx"]
    path = tmp_path / "pairs.tsv.gz"
    path.write_bytes(gzip.compress("\n".join(rows).encode("utf-8-sig")))
    out = tmp_path / "out"
    assert main(["tsv", str(path), "--columns", "3,2", "--header", *langs(out)]) == 0
    assert read_back(out) == sorted(good)
    assert manifest(out)["pairs"] == {"train": 60, "dev": 20, "test": 20}
    assert manifest(out)["dropped"] == {
        "identical": {"count": 1, "first": "pairs.tsv.gz:102"},
        "blank": {"count": 1, "first": "pairs.tsv.gz:103"},
        "fewer than 3 columns": {"count": 1, "first": "pairs.tsv.gz:104"},
        "ratio": {"count": 1, "first": "pairs.tsv.gz:105"},
    }


def test_tsv_groups_are_not_divided(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{s}\t{t}\t{i // 2}\n" for i, (s, t) in enumerate(texts(200))))
    out = tmp_path / "out"
    argv = [str(path), "--group-column", "3", "--split", "group", *langs(out)]
    assert main(["tsv", *argv]) == 0
    place = {source: i // 2 for i, (source, _) in enumerate(texts(200))}
    groups = [
        {place[line] for line in (out / f"{split}.xx").read_text().splitlines()}
        for split in ("train", "dev", "test")
    ]
    assert all(not a & b for a, b in itertools.combinations(groups, 2))


@pytest.mark.parametrize(
    ("documents", "fix"),
    [(40, "ask for at least 50\n"), (39, "choose dev and test yourself (--dev, --test)")],
)
def test_the_advice_about_long_documents_can_be_followed(tmp_path, capsys, documents, fix):
    path, out = tmp_path / "pairs.tsv", tmp_path / "out"
    rows = [f"{s}\t{t}\t{i // 5}\n" for i, (s, t) in enumerate(texts(5 * documents))]
    path.write_text("".join(rows))
    argv = [str(path), "--group-column", "3", "--split", "group", *langs(out)]
    assert main(["tsv", *argv]) == 2
    assert (
        "--dev-size, --test-size: the smallest group has 5 pairs, over a tenth of the split\n  -> "
        + fix
    ) in capsys.readouterr().err
    assert main(["tsv", *argv, "--dev-size", "50", "--test-size", "50"]) == 2 * (documents < 40)


def test_nothing_to_hold_out_needs_no_groups_and_one_pair_is_enough(tmp_path, capsys):
    path, out = tmp_path / "pairs.tsv", tmp_path / "out"
    path.write_text("one source\tanother target\n")
    assert main(["tsv", str(path), *langs(out)]) == 2
    assert "1 pair is too few for 20 and 20 in dev and test" in capsys.readouterr().err
    none = ["--dev-size", "0", "--test-size", "0", "--split", "group"]
    assert main(["tsv", str(path), *langs(out), *none]) == 0
    assert "out (xx-yy): train 1 pair in" in capsys.readouterr().err
    assert manifest(out)["pairs"] == {"train": 1}
    assert "Dev and test" not in json.dumps(manifest(out))


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        *(("--max-ratio", value, "a finite number above 1") for value in ("nan", "inf", "1")),
        *(("--dev-size", value, "an integer of at least 0") for value in ("-5", "1.5", "nan")),
        ("--test-size", "-1", "an integer of at least 0"),
        ("--columns", "1,0", "a column"),
        ("--columns", "1", "two columns"),
        ("--group-column", "0", "a column"),
    ],
)
def test_numbers_out_of_range_are_refused(tmp_path, capsys, option, value, allowed):
    with pytest.raises(SystemExit) as caught:
        main(["tsv", "pairs.tsv", *langs(tmp_path / "out", option, value)])
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert f"argument {option}: " in error
    assert allowed in error


def test_names_of_files_may_have_any_bytes(tmp_path):
    rows = [f"{s}\t{t}\n" for s, t in texts(100)]
    files = [tmp_path / os.fsdecode(b"%d\xff.tsv" % i) for i in range(50)]
    for i, path in enumerate(files):
        path.write_text("".join([*rows[2 * i : 2 * i + 2], "same\tsame\n"]))
    out = tmp_path / "out"
    assert main(["tsv", *map(str, files), "--split", "group", *langs(out)]) == 0
    assert manifest(out)["pairs"] == {"train": 60, "dev": 20, "test": 20}
    assert f"{files[7].name}:3" in manifest(out)["dropped"]["identical"]["first"]


@pytest.mark.parametrize(
    ("argv", "parts"),
    [
        (["--columns", "1,5"], ["no row has 5 columns (at most 2)", "--columns"]),
        (["--group-column", "3"], ["no row has 3 columns (at most 2)", "--group-column"]),
        (["--split", "group"], ["--split group: at least 10 groups", "(--dev, --test)"]),
        (["--dev-size", "9"], ["--dev-size: ", "has 1 pair", "ask for at least 10\n"]),
        (["--dev-size", "40"], ["for 40 and 20 in dev and test", "--dev-size 10 --test-size 10\n"]),
        (["--dev-size", "60", "--test-size", "0"], ["for 60 in dev ", "such as --dev-size 10\n"]),
        (["--tgt-lang", "xx"], ["'xx' and 'xx' cannot be source and target"]),
        ([], ["none.tsv: no such file"]),
    ],
)
def test_bad_input_is_an_error_and_nothing_is_written(tmp_path, monkeypatch, capsys, argv, parts):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in texts(100)))
    path = "pairs.tsv" if argv else "none.tsv"
    assert main(["tsv", path, *langs("out"), *argv]) == 2
    error = capsys.readouterr().err
    assert all(part in error for part in parts)
    assert [path.name for path in tmp_path.iterdir()] == ["pairs.tsv"]


def moses(folder, name, pairs):
    pairs = list(pairs)
    for lang, side in (("xx", 0), ("yy", 1)):
        (folder / f"{name}.{lang}").write_text("".join(f"{p[side]}\n" for p in pairs), "utf-8")
    return pairs


def test_moses_keeps_given_splits(tmp_path):
    good = list(texts(12))
    moses(tmp_path, "train", [*good[:8], good[0], ("same", "same"), ("", "x")])
    moses(tmp_path, "dev", [good[8], ("same", "same"), ("y\u00a0 ", "")])
    moses(tmp_path, "test", good[9:])
    out = tmp_path / "out"
    argv = [str(tmp_path / "train"), "--dev", str(tmp_path / "dev"), "--test"]
    assert main(["moses", *argv, str(tmp_path / "test"), *langs(out)]) == 0
    assert read_back(out) == sorted([*good, ("same", "same"), ("y\u00a0 ", "")])
    assert manifest(out)["pairs"] == {"train": 8, "dev": 3, "test": 3}
    assert manifest(out)["dropped"]["blank"] == {"count": 1, "first": "train:11"}


def test_moses_without_files_is_an_error_and_splits_one_corpus(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    good = moses(tmp_path, "all", texts(100))
    for argv, part in ((["none"], "none.xx: no such file"), ([], "PREFIX")):
        assert main(["moses", *argv, *langs("out")]) == 2
        assert part in capsys.readouterr().err
        assert not (tmp_path / "out").exists()
    assert main(["moses", "all", *langs("out")]) == 0
    assert read_back(tmp_path / "out") == sorted(good)


@pytest.mark.parametrize("importer", ["moses", "tsv", "tmx", "gettext"])
@pytest.mark.parametrize(
    "names",
    [names for n in (1, 2, 3) for names in itertools.combinations(("train", "dev", "test"), n)],
)
def test_what_does_not_exist_is_cut_from_train(tmp_path, importer, names):
    """Each importer takes any of train, dev and test; existing sets keep each of their pairs."""
    good = list(texts(140))
    parts = {"train": good[:100], "dev": good[100:115], "test": good[115:]}
    options = []
    for name in names:
        path = tmp_path / name
        if importer == "moses":
            moses(tmp_path, name, parts[name])
        elif importer == "tsv":
            path.write_text("".join(f"{s}\t{t}\n" for s, t in parts[name]), "utf-8")
        elif importer == "tmx":
            path.write_text(tmx(parts[name]), "utf-8")
        else:
            text = "".join(f'msgid "{s}"\nmsgstr "{t}"\n\n' for s, t in parts[name])
            path.write_text(text, "utf-8")
        options += [*([] if name == "train" else [f"--{name}"]), str(path)]
    out = tmp_path / "out"
    assert main([importer, *options, *langs(out)]) == 0
    sizes = {name: len(parts[name]) for name in names}
    if "train" in names:
        for name in {"dev", "test"} - set(names):
            sizes[name] = 20
            sizes["train"] -= 20
    assert manifest(out)["pairs"] == sizes
    for name in set(names) - {"train"}:
        sides = [(out / f"{name}.{lang}").read_text("utf-8").splitlines() for lang in ("xx", "yy")]
        assert list(zip(*sides, strict=True)) == parts[name]
    if sizes.keys() == {"train", "dev", "test"}:
        assert read_back(out) == sorted(pair for name in names for pair in parts[name])


def test_a_cut_set_has_no_near_duplicate_of_an_existing_one_and_both_have_all_pairs(tmp_path):
    good = list(texts(200))
    test = [(f"{s} 1", f"{t} 2") for s, t in good[:90]]
    moses(tmp_path, "train", good)
    moses(tmp_path, "test", test)
    out = tmp_path / "out"
    argv = [str(tmp_path / "train"), "--test", str(tmp_path / "test"), *langs(out)]
    assert main(["moses", *argv]) == 0
    assert manifest(out)["pairs"] == {"train": 180, "dev": 20, "test": 90}
    assert not set((out / "dev.xx").read_text().splitlines()) & {s for s, _ in good[:90]}


def test_a_size_that_cannot_be_met_is_said(tmp_path, capsys):
    """Three quarters of the pairs are one sentence with other digits."""
    path, out = tmp_path / "pairs.tsv", tmp_path / "out"
    rows = [f"{s}\t{t}\n" for s, t in texts(25)]
    rows += [f"chapter {i} of a b\tkapitel {i} von c d\n" for i in range(75)]
    path.write_text("".join(rows), "utf-8")
    assert main(["tsv", str(path), *langs(out)]) == 0
    assert "note: test has 5 pairs instead of 20" in capsys.readouterr().err
    assert manifest(out)["pairs"] == {"train": 75, "dev": 20, "test": 5}


def test_the_long_glosses_of_a_dictionary_stay_and_misaligned_pairs_go(tmp_path):
    """The ratio of the corpus decides, whatever its median is."""
    words = list(texts(200))
    glosses = [(s * (1 + i % 12), t[:9]) for i, (s, t) in enumerate(words)]
    talks = [(s * 5, t * 20) for s, t in words]
    wrong = [("a", "bbbbbbb " * 200)]
    for name, pairs, max_ratio in (
        ("glosses", glosses, []), ("talks", talks, []), ("talks", talks, ["--max-ratio", "1.5"]),
    ):  # fmt: skip
        moses(tmp_path, name, [*pairs, *wrong])
        out = tmp_path / "out"
        none = ["--dev-size", "0", "--test-size", "0", "--force", *max_ratio]
        assert main(["moses", str(tmp_path / name), *langs(out, *none)]) == 0
        assert manifest(out)["pairs"] == {"train": 200}
    assert manifest(out)["dropped"]["ratio"]["count"] == 1
    assert any("over 1.5 times the median" in note for note in manifest(out)["notes"])


def test_carriage_returns_as_line_ends_are_an_error(tmp_path, capsys):
    """The file is one line, which would become one wrong pair."""
    (tmp_path / "a.tsv").write_bytes(b"a b\tc d\re f\tg h\r")
    moses(tmp_path, "all", texts(9))
    for path in tmp_path.glob("all.*"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r"))
    options = langs(tmp_path / "out", "--dev-size", "0", "--test-size", "0")
    moses(tmp_path, "one-side", texts(9))
    path = tmp_path / "one-side.xx"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r"))
    for form, name in (("tsv", "a.tsv"), ("moses", "all"), ("moses", "one-side")):
        assert main([form, str(tmp_path / name), *options]) == 2
        assert " inside: its lines end with CR" in capsys.readouterr().err
        assert not (tmp_path / "out").exists()


def tmx(pairs):
    side = '<tuv xml:lang="{}"><seg>{}</seg></tuv>'
    units = "".join(f"<tu>{side.format('XX-AA', s)}{side.format('yy', t)}</tu>" for s, t in pairs)
    return f'<?xml version="1.0"?><tmx version="1.4"><header/><body>{units}</body></tmx>'


def test_files_of_one_name_are_groups_of_their_own(tmp_path):
    paths = []
    for i in range(100):
        paths.append(tmp_path / f"talk{i}" / "memory.tmx")
        paths[-1].parent.mkdir()
        paths[-1].write_text(tmx(list(texts(200))[2 * i : 2 * i + 2]), "utf-8")
    argv = [*map(str, paths), "--split", "group", *langs(tmp_path / "out")]
    assert main(["tmx", *argv]) == 0


@pytest.mark.parametrize("suffix", ["po", "mo"])
@pytest.mark.parametrize("msgid_lang", ["xx", "yy"])
def test_gettext(tmp_path, suffix, msgid_lang):
    good = list(texts(100))
    catalog = polib.POFile()
    catalog.metadata = {"Content-Type": "text/plain; charset=UTF-8"}
    for source, target in good[2:]:
        catalog.append(polib.POEntry(msgid=source, msgstr=target))
    plural = {0: good[0][1], 1: "between", 2: good[1][1]}
    catalog.append(polib.POEntry(msgid=good[0][0], msgid_plural=good[1][0], msgstr_plural=plural))
    catalog.append(polib.POEntry(msgid="_Open the door", msgstr="Tür ö_ffnen"))
    catalog.append(polib.POEntry(msgid="set file_name", msgstr="stelle file_name"))
    catalog.append(polib.POEntry(msgid="guess", msgstr="unsure", flags=["fuzzy"]))
    catalog.append(polib.POEntry(msgid="not done", msgstr=""))
    (tmp_path / "po").mkdir()
    path = tmp_path / "po" / f"app.{suffix}"
    catalog.save(str(path)) if suffix == "po" else catalog.save_as_mofile(str(path))
    out = tmp_path / "out"
    assert main(["gettext", str(tmp_path / "po"), *langs(out, "--msgid-lang", msgid_lang)]) == 0
    expected = [*good, ("Open the door", "Tür öffnen"), ("set file_name", "stelle file_name")]
    if msgid_lang == "yy":
        expected = [pair[::-1] for pair in expected]
    assert read_back(out) == sorted(expected)


def test_a_compiled_catalog_next_to_its_source_is_not_read(tmp_path):
    """The same messages would be in two groups."""
    for name in ("a.po", "a.mo", "b.mo"):
        (tmp_path / name).touch()
    assert gettext._catalogs(tmp_path) == [tmp_path / "a.po", tmp_path / "b.mo"]


def test_gettext_needs_polib_and_whole_catalogs(tmp_path, capsys, monkeypatch):
    (tmp_path / "bad.po").write_text('msgid "x"\nrubbish\n', "utf-8")
    (tmp_path / "bad.mo").write_bytes(b"\xde\x12\x04\x95\x00")
    for name in ("bad.po", "bad.mo"):
        assert main(["gettext", str(tmp_path / name), *langs(tmp_path / "out")]) == 2
        assert f"{name}: cannot be read" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "polib", None)
    assert main(["gettext", str(tmp_path / "bad.po"), *langs(tmp_path / "out")]) == 2
    assert '-e ".[gettext]"\n' in capsys.readouterr().err


@pytest.mark.parametrize(
    "damaged",
    [
        'msgid "no closing quote\nmsgstr "x"',
        'msgid "x"\nmsgstr "no closing quote',
        'msgid "x"\nmsgstr ""\n"no closing quote',
        'msgid "x"\nmsgstr "no closing quote\\"',
        'msgid "x"\nmsgid_plural "x"\nmsgstr[0] "y"\nmsgstr[1] "no closing quote',
        '#~ msgid "no closing quote\n#~ msgstr "x"',
    ],
)
def test_a_string_without_closing_quote_is_an_error_with_its_line(tmp_path, capsys, damaged):
    path = tmp_path / "app.po"
    good = "".join(f'msgid "{s}"\nmsgstr "{t} \\"\\\\"\n\n' for s, t in texts(100))
    path.write_text(f'{good}# a comment with a "\n{damaged}\n', "utf-8")
    lines = path.read_text("utf-8").splitlines()
    (line,) = [i for i, text in enumerate(lines, 1) if "no closing" in text]
    assert main(["gettext", str(path), *langs(tmp_path / "out")]) == 2
    assert f"{path}:{line}: this string has no closing quote" in capsys.readouterr().err
    path.write_text(good, "utf-8")
    assert main(["gettext", str(path), *langs(tmp_path / "out")]) == 0
    assert read_back(tmp_path / "out") == sorted((s, f'{t} "\\') for s, t in texts(100))
