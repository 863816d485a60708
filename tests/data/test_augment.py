"""data.augment: what each kind does to a line, how often, and to which pairs of an epoch."""

# ruff: noqa: RUF001

from __future__ import annotations

import unicodedata
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from nmt.cli.import_corpus import main
from nmt.config.load import recipe_from_text
from nmt.config.recipe import AugmentKind, SentencePieceConfig
from nmt.data import augment
from nmt.data.augment import EMOJI, KINDS, PLACEHOLDERS, QUOTE_STYLES, Augmenter, Draws, unescaped
from nmt.data.bitext import TrainingText
from nmt.data.encoded import EncodeChunk, EncodedCorpus, encode_training
from nmt.data.lines import Texts
from nmt.data.segmenters import learn_segmenter
from nmt.data.vocab import UNK
from nmt.errors import UserError
from tests.toy import CORPUS, numbered, one_corpus

OTHER = ("Iná veta.", "Another sentence.")
PAIR = (
    'Povedal: "Dobrý deň, {name}", a šiel na https://a.sk/Aký?x=1 dnes.',
    'He said "Good day, {name}", and went to https://a.sk/Aký?x=1 today.',
)


def changed(kind: str, pair: Texts, tokenized: bool = False, langs=("sk", "en")) -> set[Texts]:
    """Return what 200 draws of a kind make of a pair."""
    one, pairs = Augmenter({kind: 1.0}, tokenized), [pair, OTHER]
    # a join with the pair itself is left out
    seeds = [i for i in range(400) if kind != "join" or Draws(i).below(2)]
    return {one.change(pairs, 0, [kind], Draws(i), langs) for i in seeds[:200]}


def test_the_recipe_names_every_kind():
    assert set(get_args(AugmentKind)) == KINDS.keys()


def test_case_changes_both_sides_but_no_address_or_placeholder():
    assert changed("case", PAIR) == {
        (
            'POVEDAL: "DOBRÝ DEŇ, {name}", A ŠIEL NA https://a.sk/Aký?x=1 DNES.',
            'HE SAID "GOOD DAY, {name}", AND WENT TO https://a.sk/Aký?x=1 TODAY.',
        ),
        (
            'Povedal: "Dobrý Deň, {name}", A Šiel Na https://a.sk/Aký?x=1 Dnes.',
            'He Said "Good Day, {name}", And Went To https://a.sk/Aký?x=1 Today.',
        ),
        (
            'povedal: "dobrý deň, {name}", a šiel na https://a.sk/Aký?x=1 dnes.',
            'he said "good day, {name}", and went to https://a.sk/Aký?x=1 today.',
        ),
    }


@pytest.mark.parametrize(
    ("langs", "pair", "expected"),
    [
        (("tr", "en"), ("ışık İZMİR", "it"), {("IŞIK İZMİR", "IT"), ("ışık izmir", "it")}),
        (("en", "tr"), ("It", "Iğdır için"), {("IT", "IĞDIR İÇİN"), ("it", "ığdır için")}),
        (("ar", "en"), ("مرحبا", "Hello"), {("مرحبا", "Hello")}),  # no capitals to learn from
        (("en", "ar"), ("Hello", "مرحبا"), {("HELLO", "مرحبا"), ("hello", "مرحبا")}),
        (("hy", "en"), ("և տևել", "and"), {("ԵՎ ՏԵՎԵԼ", "AND"), ("Եվ Տևել", "And")}),
        (("ga", "en"), ("an tAthair", "x"), {("AN tATHAIR", "X"), ("An tAthair", "X")}),
    ],
)
def test_case_follows_the_language_and_the_script(langs, pair, expected):
    assert expected <= changed("case", pair, langs=langs)


@pytest.mark.parametrize(
    ("line", "bare"),
    [
        ("Dobrý deň, łódź đò ø", "Dobry den, lodz do o"),
        ("Thế giới này rất rộng lớn", "The gioi nay rat rong lon"),
        ("Γειά σου", "Γεια σου"),
        ("ещё мой", "еще мой"),  # й is a letter of its own
        ("كَتَبَ", "كتب"),
        ("नमस्ते", "नमस्ते"),  # its marks are vowels
        ("plain text", "plain text"),
    ],
)
def test_accents_are_left_out_of_the_source(line: str, bare: str):
    for form in ("NFC", "NFD"):
        pair = unicodedata.normalize(form, line), "Dobrý"
        [(src, tgt)] = changed("accents", pair)
        assert unicodedata.normalize("NFC", src) == bare
        assert tgt == "Dobrý"


def edits(old: str, new: str) -> int:
    """Return the Damerau-Levenshtein distance (swaps count 1)."""
    cost = {(i, 0): i for i in range(len(old) + 1)} | {(0, j): j for j in range(len(new) + 1)}
    for i in range(1, len(old) + 1):
        for j in range(1, len(new) + 1):
            cost[i, j] = min(
                cost[i - 1, j] + 1,
                cost[i, j - 1] + 1,
                cost[i - 1, j - 1] + (old[i - 1] != new[j - 1]),
            )
            if i > 1 and j > 1 and old[i - 2 : i] == new[j - 2 : j][::-1]:
                cost[i, j] = min(cost[i, j], cost[i - 2, j - 2] + 1)
    return cost[len(old), len(new)]


def test_a_typo_is_one_edit_of_a_long_word_with_a_neighboring_key():
    found = changed("typos", ("Hlava áno", "Head yes"))  # one word of at least four letters
    assert len(found) > 20
    for src, tgt in found:
        word, rest = src.split()
        assert (rest, tgt) == ("áno", "Head yes")
        assert edits("Hlava", word) == 1
        for letter in Counter(word) - Counter("Hlava"):  # a letter that was typed in addition
            assert any(letter in augment._neighbors("sk")[key] for key in "lava")
    assert augment._neighbors("sk")["t"] == "rzfg"  # QWERTZ
    assert set(augment._neighbors("en")["y"]) == set("tugh")
    assert changed("typos", ("日本語の文章", "x")) == {("日本語の文章", "x")}


@pytest.mark.parametrize(
    ("lang", "word", "alphabet"),
    [
        ("uk", "книжкаїєґ", "абвгґдеєжзиіїйклмнопрстуфхцчшщьюя"),
        ("be", "кніжкаўцэ", "абвгдеёжзійклмнопрстуўфхцчшыьэюя"),
        ("bg", "книжкаъщю", "абвгдежзийклмнопрстуфхцчшщъьюя"),
        ("sr_Cyrl", "књижицађ", "абвгдђежзијклљмнњопрстћуфхцчџшѕ"),
        ("mk", "книжицаѓќ", "абвгдѓежзѕијклљмнњопрстќуфхцчџш"),
        ("ru", "книжкащъэ", "абвгдеёжзийклмнопрстуфхцчшщъыьэюя"),
        ("fa", "کتابخانه", "آابپتثجچحخدذرزژسشصضطظعغفقکگلمنوهیئ"),
        ("ps", "ښوونځی", "ښوونځی"),  # a keyboard that is not known: only its own letters
        ("hy", "գրքերի", "գրքերի"),
        ("tg", "китобҳо", "китобҳо"),
    ],
)
def test_typos_have_the_letters_of_the_language(lang: str, word: str, alphabet: str):
    found = {src for src, _ in changed("typos", (word, "x"), langs=(lang, "en"))}
    assert len(found) > 5
    assert set("".join(found)) <= set(alphabet)
    assert all(edits(word, other) <= 1 for other in found)


def test_a_long_line_has_a_typo_in_each_tenth_word_and_none_in_addresses():
    line = " ".join(["slovo"] * 200) + " https://example.org/slovo {slovo}"
    lines = [src for src, _ in changed("typos", (line, "x"))]
    wrong = [sum(word != "slovo" for word in src.split()[:-2]) for src in lines]
    assert all(src.endswith(" https://example.org/slovo {slovo}") for src in lines)
    assert 17 < np.mean(wrong) < 24  # 200 words / 10, and the certain one
    assert min(wrong) >= 1


def test_punctuation_goes_from_both_sides_or_from_none():
    assert changed("punctuation", ("Čo?!", "What?")) == {("Čo", "What")}
    assert changed("punctuation", ("क्या।", "什么。")) == {("क्या", "什么")}
    assert changed("punctuation", ("Čo ?", "What …")) == {("Čo", "What")}
    for pair in (("Čo?", "What"), ("Čo", "What?"), ("...", "..."), ("a, b", "a, b")):
        assert changed("punctuation", pair) == {pair}


def test_quotes_get_another_style_and_stay_in_pairs():
    expected = {(f"On {o}ide{c} l’hôtel", "x") for o, c in QUOTE_STYLES if o != '"'}
    assert changed("quotes", ('On "ide" l\'hôtel', "x")) == expected
    assert ('a "b" c', "x") in changed("quotes", ("a « b » c", "x"))
    assert changed("quotes", ('5" a', "x")) == {('5" a', "x")}  # inches
    assert changed("quotes", ("bez", "x")) == {("bez", "x")}


def test_copies_are_the_same_on_both_sides():
    kinds: Counter[tuple[str, int]] = Counter()
    src_words, tgt_words = ["Áno,", "pane."], ["Yes,", "sir."]
    for src, tgt in changed("copies", (" ".join(src_words), " ".join(tgt_words))):
        [token] = (Counter(src.split()) - Counter(src_words)).elements()
        place = src.split().index(token)
        assert tgt.split() == [*tgt_words[:place], token, *tgt_words[place:]]
        listed = token in EMOJI or token in PLACEHOLDERS
        assert listed or "." in token
        kinds["listed" if listed else "mail" if "@" in token else "address", place] += 1
    assert kinds.keys() == {(k, place) for k in ("listed", "mail", "address") for place in range(3)}
    for src, tgt in changed("copies", ("a, b", "a b")):  # no marks to correspond
        assert src.startswith("a, b ") == tgt.startswith("a b ")


def test_join_appends_a_pair_with_a_space_where_the_script_has_one():
    assert changed("join", ("Áno. ", "Yes.")) == {("Áno. Iná veta.", "Yes. Another sentence.")}
    langs, joined = ("sk", "zh"), {("Áno. Iná veta.", "是。Another sentence.")}
    assert changed("join", ("Áno.", "是。"), langs=langs) == joined
    [(_, tgt)] = changed("join", ("Áno .", "是 。"), True, langs)
    assert tgt == "是 。 Another sentence."


MOSES = (
    "Povedal : &quot; Dobrý deň , { name } &quot; , a don &apos;t &amp; &#91; 1 &#93; .",
    "He said &quot; Good day , { name } &quot; , and didn &apos;t &amp; &#91; 1 &#93; .",
)


@pytest.mark.parametrize("kind", KINDS)
def test_tokenized_text_keeps_its_words_and_escapes(kind: str):
    found = changed(kind, MOSES, tokenized=True)
    assert MOSES not in found
    for pair in found:
        for line in pair:
            assert not set("\"'[]<>|") & set(line)
            assert unescaped(line).count("&") == 1
            assert "  " not in line
            assert line == line.strip()
    if kind == "quotes":
        assert all(" Dobrý deň , { name } " in src for src, _ in found)
    if kind == "punctuation":
        assert found == {tuple(line.removesuffix(" .") for line in MOSES)}
    if kind == "copies":
        assert any(": / / " in src for src, _ in found)  # as Moses splits an address
    raw = ('He said " x "', "y .")  # tokenized without escapes
    assert not any("&quot;" in src for src, _ in changed(kind, raw, tokenized=True))


def test_shares_are_independent_and_a_function_of_the_draws():
    one, n = Augmenter({"case": 0.2, "typos": 0.5, "join": 1.0, "quotes": 0.0}, False), 20_000
    assert list(one.shares) == ["join", "case", "typos"]
    drawn = [tuple(one.kinds(Draws(i))) for i in range(n)]
    assert drawn[7] == tuple(one.kinds(Draws(7)))
    counts = Counter(drawn)
    expected = {
        ("join",): 0.4,
        ("join", "case"): 0.1,
        ("join", "typos"): 0.4,
        ("join", "case", "typos"): 0.1,
    }
    assert counts.keys() == expected.keys()
    for kinds, share in expected.items():
        sigma = (share * (1 - share) / n) ** 0.5
        assert abs(counts[kinds] / n - share) < 5 * sigma


LINES = [
    (f"Dobrý deň, suseda číslo {i}, dnes je pekne.", f"Good day, neighbor {i}, it is nice today.")
    for i in range(60)
]


class Corpus:
    """A small corpus in several versions, as preparation writes it."""

    def __init__(
        self, folder: Path, shares: dict[str, float], longest: int = 200, lacking: str = ""
    ) -> None:
        one = Augmenter(shares, False)
        config = SentencePieceConfig(vocab_size=300)
        self.segmenter = learn_segmenter(config, False, "none", one.chunks(one_corpus(LINES)))
        text = TrainingText(progress=False)
        text.add(CORPUS, numbered(LINES))
        work = EncodeChunk(self.segmenter, longest, DRAWS, augmenter=one)
        self.vocab, _, _ = encode_training(work, text, 1, folder, None, [])
        if lacking:
            kept = {t for t in self.vocab.types if not set(t) & set(lacking)}
            given = self.vocab.with_types(kept)
            work = EncodeChunk(self.segmenter, longest, DRAWS, augmenter=one, known=kept)
            self.vocab, _, _ = encode_training(work, text, 1, folder, given, [])
        self.corpus = EncodedCorpus(folder)

    def text(self) -> list[list[Texts]]:
        """Return the pairs of each version."""
        decoded: list[list[Texts]] = [[] for _ in range(DRAWS)]
        for row in range(DRAWS * len(LINES)):
            both = self.corpus.src(row), self.corpus.tgt(row)
            src, tgt = (self.segmenter.decode(self.vocab.pieces(ids), "en") for ids in both)
            decoded[row % DRAWS].append((src, tgt))
        return decoded


DRAWS = 4


def test_each_version_has_the_changed_text_of_the_drawn_pairs(tmp_path: Path):
    shares = {"punctuation": 0.5, "join": 0.2}
    versions = Corpus(tmp_path, shares).text()
    known = {*LINES, *((s[:-1], t[:-1]) for s, t in LINES)}
    known |= {(f"{a} {b}", f"{c} {d}") for a, c in LINES for b, d in known}
    assert len({tuple(version) for version in versions}) == DRAWS
    assert versions == Corpus(tmp_path / "again", shares).text()
    for version in versions:
        assert known.issuperset(version)
        assert 15 < sum(not src.endswith(".") for src, _ in version) < 45
        assert 2 < sum(src.count("Dobrý") == 2 for src, _ in version) < 25


def test_the_segmentation_is_learned_from_the_text_of_the_first_version(tmp_path: Path):
    shares = {"punctuation": 0.5, "join": 0.2}
    chunks = Augmenter(shares, False).chunks(one_corpus(LINES))
    assert [pair for chunk in chunks for pair in chunk.pairs()] == Corpus(tmp_path, shares).text()[
        0
    ]


def test_a_pair_that_would_be_too_long_or_unknown_keeps_its_text(tmp_path: Path):
    corpus = Corpus(tmp_path / "a", {"punctuation": 1.0})
    longest = int(corpus.corpus.longest().max()) + 1  # with the mark
    assert Corpus(tmp_path / "b", {"join": 1.0}, longest).text() == [LINES] * DRAWS
    corpus = Corpus(tmp_path / "c", {"copies": 1.0}, lacking="{@")
    changed = [pair for version in corpus.text() for pair in version if pair not in LINES]
    assert 0 < len(changed) < DRAWS * len(LINES)
    assert not any({"{", "@"} & set(line) for pair in changed for line in pair)
    allowed = corpus.vocab.types_of("tgt")
    assert allowed[corpus.corpus.ids("tgt")].all()
    assert UNK not in corpus.corpus.ids("src")


RECIPE = "src: gl\ntgt: en\ndata: {{train: a, dev: b, augment: {0}}}\n{1}"


@pytest.mark.parametrize(
    ("value", "more", "message"),
    [
        ("{typo: 0.1}", "", "data.augment: .typo. is not a key of a mapping of case, accents"),
        ("{case: 1.5}", "", 'data.augment.case: "1.5" is not a mapping of .* from 0 to 1'),
        ("{case: 0.1}", "segment: {kind: whitespace}", "data.augment needs subwords"),
        ("{case: 0.1}", "task: causal_lm", "data.augment has no effect with task: causal_lm"),
    ],
)
def test_mistakes_in_the_recipe(value: str, more: str, message: str):
    text = RECIPE.format(value, more)
    text = text.replace("tgt: en\n", "") if "task" in more else text
    with pytest.raises(UserError, match=message):
        recipe_from_text(text, "x.yaml")


def test_an_override_of_one_kind_keeps_the_others():
    text = RECIPE.format("{case: 0.1, typos: 0.2}", "")
    recipe = recipe_from_text(text, "x.yaml", ["data.augment.case=0.3"])
    assert recipe.data.augment == {"case": 0.3, "typos": 0.2}
    recipe = recipe_from_text(text, "x.yaml", ["data.augment={join: 0.3}"])
    assert recipe.data.augment == {"join": 0.3}


def test_nmt_import_noise_writes_a_set_for_each_kind(tmp_path: Path, capsys):
    for side, lang in enumerate(("sk", "en")):
        (tmp_path / f"test.{lang}").write_text("".join(f"{pair[side]}\n" for pair in LINES))
    command = [str(tmp_path / "test"), "--src-lang", "sk", "--tgt-lang", "en"]
    for out in ("one", "two"):
        assert main(["noise", *command, "-o", str(tmp_path / out)]) == 0
    assert "accents: 60 pairs of 60 changed" in capsys.readouterr().err
    for kind in KINDS:
        for lang in ("sk", "en"):
            lines = (tmp_path / "one" / f"{kind}.{lang}").read_text().splitlines()
            assert len(lines) == 60
            assert lines == (tmp_path / "two" / f"{kind}.{lang}").read_text().splitlines()


def test_each_entry_keeps_its_tags_and_joins_its_own_pairs(tmp_path: Path):
    text, one = TrainingText(progress=False), Augmenter({"join": 1.0}, False)
    entries = {"<a>": "alfa {}", "<b>": "beta {}"}
    for tag, line in entries.items():
        pairs = [(line.format(i), line.format(i)) for i in range(10)]
        direction = replace(CORPUS.direction, tag=tag, tgt_tag=tag)
        text.add(replace(CORPUS, direction=direction), numbered(pairs))
    config = SentencePieceConfig(vocab_size=60)
    segmenter = learn_segmenter(config, False, "none", one.chunks(text.read("")))
    work = EncodeChunk(segmenter, 200, DRAWS, augmenter=one)
    vocab, _, _ = encode_training(work, text, 1, tmp_path, None, [])
    corpus, joined = EncodedCorpus(tmp_path), set()
    for row in range(20 * DRAWS):
        of_sides = []
        for ids in (corpus.src(row), corpus.tgt(row)):
            tag, *pieces = vocab.pieces(ids)
            words = segmenter.decode(pieces, "en").split()
            assert tag.strip() == ("<a>" if row < 10 * DRAWS else "<b>")
            assert [words[0], words[2]] == ["alfa" if row < 10 * DRAWS else "beta"] * 2
            of_sides.append(words[3])
        assert of_sides[0] == of_sides[1]  # the same pair on both sides
        joined.add((row // DRAWS, of_sides[0]))
    assert len(joined) > 2 * 20  # another one in the versions of a pair
