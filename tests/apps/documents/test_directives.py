"""Directives of gettext catalogs are kept, or the message is fuzzy and named: msgfmt -c passes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.apps.documents.formats.directives import changed
from nmt.apps.documents.lines import from_function
from tests.apps.documents.test_formats import run
from tests.apps.documents.test_protected import hostile
from tests.apps.documents.translators import same, upper

msgfmt = pytest.mark.skipif(shutil.which("msgfmt") is None, reason="gettext is not installed")
HEADER = (
    'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n'
    '"Plural-Forms: nplurals=2; plural=({});\\n"\n\n'
)
PLURALS = ["n != 1", "n > 1", "n % 10 != 1"]
C = ["%d", "% d", "%s", "%<PRIu64>", "%-5<PRId32>", "%*d", "%.*f", "%'d", "%+.2f", "%hhd", "%lld",
     "%zu", "%5.1f", "%#x", "%%", "%c", "%jd", "% i", "% a", "%m"]  # fmt: skip
# flag without -format -> directives; what is around them may be part of them
DIRECTIVES = {
    "c": C,
    "objc": [*C, "%@"],
    "c-numbered": ["%1$s", "%2$d", "%1$ d", "%2$-5d", "%%"],
    "python": ["%(name)s", "%(n) d", "%(x)-10s", "%(y).2f", "%%"],
    "python-plain": ["%s", "% d", "%r", "%5.1f", "%%"],
    "python-brace": ["{name}", "{0}", "{x:>10}", "{y!r}", "{{", "}}"],
    "java": ["{0}", "{1,number}", "''"],
    "java-printf": ["%s", "%d", "%,d", "%tY", "%n", "%1$s", "%<s"],
    "csharp": ["{0}", "{1:N2}"],
    "javascript": ["%s", "%d", "%%"],
    "ruby": ["%<name>s", "%{name}", "%-<x>5d", "%%"],
    "php": ["%s", "%1$s", "%'010d", "%%"],
    "perl": ["%s", "%1$s", "%vd", "%%"],
    "perl-brace": ["{name}", "{other}"],
    "sh": ["$name", "${name}"],
    "awk": ["%s", "%d", "%5d"],
    "lua": ["%s", "%d", "%q"],
    "tcl": ["%s", "%d", "%1$s"],
    "qt": ["%1", "%2", "%L1"],
    "qt-plural": ["%n", "%L1"],
    "kde": ["%1", "%2"],
    "boost": ["%1%", "%2%", "%|1$d|", "%s"],
    "object-pascal": ["%s", "%0:s", "%1:d", "%%"],
    "lisp": ["~a", "~s", "~d", "~5d", "~%"],
    "scheme": ["~a", "~s", "~d"],
    "elisp": ["%s", "%d", "%c"],
    "librep": ["%s", "%d"],
    "gcc-internal": ["%qs", "%<", "%>", "%d", "%qE"],
    "gfc-internal": ["%s", "%d", "%L", "%C"],
    "ycp": ["%1", "%2"],
    "smalltalk": ["%1", "%2"],
}
WORDS = ["one", "Two", "100%", "50 % of", "naïve", "it's", "<b>three</b>", "files.", "{", "~", "$"]


@st.composite
def catalog(draw: st.DrawFn) -> str:
    entries = []
    for number in range(12):
        kind = draw(st.sampled_from([*DIRECTIVES]))
        flag = re.sub("-(?:numbered|plain)$", "", kind)
        words = st.lists(st.sampled_from(WORDS[:-3] + DIRECTIVES[kind]), min_size=1, max_size=6)
        one, many = (f"{name}{number} {' '.join(draw(words))}" for name in ("a", "b"))
        texts = f'msgid "{one}"\nmsgstr ""\n'
        if draw(st.booleans()):
            texts = f'msgid "{one}"\nmsgid_plural "{many}"\nmsgstr[0] ""\nmsgstr[1] ""\n'
        entries.append(f"#, {flag}-format\n{texts}")
    return HEADER.format(draw(st.sampled_from(PLURALS))) + "\n".join(entries)


def errors_of(data: bytes, folder: Path) -> str:
    """Return what msgfmt -c refuses."""
    path = folder / "a.po"
    path.write_bytes(data)
    command = ["msgfmt", "-c", "-o", str(folder / "a.mo"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr


@msgfmt
@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(catalog(), st.integers(0, 10_000), st.sampled_from(["hostile", "upper", "words"]))
def test_msgfmt_accepts_what_any_translator_makes_of_any_directive(
    tmp_path_factory, text, seed, kind
):
    rng = Random(seed)

    def other_words(lines: list[str]) -> list[str]:
        return [" ".join(rng.choice((word, *WORDS, "%d", "%s")) for word in line.split())
                for line in lines]  # fmt: skip

    translate = {
        "hostile": hostile(seed, True),
        "upper": from_function(upper),
        "words": from_function(other_words),
    }[kind]
    result, _ = run("a.po", text.encode(), translate)
    assert errors_of(result, tmp_path_factory.mktemp("po")) == ""


@msgfmt
@pytest.mark.parametrize("flag", DIRECTIVES)
def test_a_faithful_translation_is_not_fuzzy(flag: str, tmp_path: Path) -> None:
    name = re.sub("-(?:numbered|plain)$", "", flag)
    entries = (
        f'#, {name}-format\nmsgid "See {each} now"\nmsgstr ""\n' for each in DIRECTIVES[flag]
    )
    text = HEADER.format(PLURALS[0]) + "\n".join(entries)
    result, report = run("a.po", text.encode(), from_function(lambda lines: [
        line.replace("See", "Vedi").replace("now", "adesso") for line in lines]))  # fmt: skip
    assert report.problems == []
    assert b"fuzzy" not in result
    assert result.count(b'msgstr "Vedi') == len(DIRECTIVES[flag])
    assert errors_of(result, tmp_path) == ""


@pytest.mark.parametrize(
    ("source", "translation", "flag", "wrong"),
    [
        ("%s of %d", "%d von %s", "c", ["%s %d"]),
        ("%1$s of %2$d", "%2$d von %1$s", "c", []),
        ("100%% sure", "zu 100 %% sicher", "c", []),
        ("100%% sure", "zu 100 % sicher", "c", ["% s"]),
        ("%d files", "Dateien", "c", ["%d"]),
        ("{0} of {1}", "l'{0} {1}", "java", ["{0}", "{1}"]),
        ("{0} of {1}", "{1} {0}", "java", []),
        ("~a ~d", "~d ~a", "lisp", ["~a ~d"]),
        ("%1 of %n, 100 %", "%n %1", "qt", []),
        ("%s", "x", "no-c", []),
    ],
)
def test_directives_are_compared_as_msgfmt_does(source, translation, flag, wrong):
    assert changed(source, translation, [f"{flag}-format", "fuzzy"]) == wrong


def test_a_rare_plural_form_may_lack_directives_at_its_end() -> None:
    entry = '#, c-format\nmsgid "One of %s"\nmsgid_plural "%s has %d"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    for plural, count in (("n != 1", 0), ("n > 1", 0), ("n % 10 != 1", 1)):
        _, report = run("a.po", (HEADER.format(plural) + entry).encode(), from_function(same))
        assert len(report.problems) == count, plural
    three = HEADER.format("n != 1") + entry.replace("msgstr[1]", 'msgstr[1] ""\nmsgstr[2]')
    _, report = run("a.po", three.encode(), from_function(same))
    assert "nplurals=2" in report.problems[0].problem
