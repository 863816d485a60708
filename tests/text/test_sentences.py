"""Lines are split after sentences, and the parts together are the line."""
# ruff: noqa: RUF001

from __future__ import annotations

import itertools

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nmt.text.languages import sentence_space
from nmt.text.sentences import (
    AbbreviationCounts,
    join_in_parts,
    join_translations,
    split_sentences,
    usual_sentences,
)

MARKS = [
    ".",
    "?",
    "!",
    "…",
    "。",
    "\uff01",
    "\u17d4",
    "\u06d4",
    "।",
    '"',
    "'",
    "“",
    "”",
    "(",
    ")",
    "&quot;",
]
SPACES = [" ", "  ", "\u00a0", "\u3000", "\u2028", "\u2029", "\u200b", "\ufeff"]
WORDS = ["a", "Bé", "Mr", "1", "e.g", "好", "ខ", "мир", "😀", "\u0301", "http://a.b/c?d=e"]


@pytest.mark.parametrize(
    ("lang", "parts"),
    [
        ("en", ["Mr. Smith left. ", 'He said "Go. Now." ', "Really?"]),
        ("sk", ["Napríklad sv. Ján prišiel 5. Mája. ", "Potom odišiel."]),
        ("gl", ["D. Manuel veu. ", "Viu os EE.UU."]),
        ("zh", ["你好。", "今天天气很好\uff01", "我们去。"]),
        ("hi", ["यह है। ", "वह है।"]),
        ("ur", ["یہ ایک جملہ ہے\u06d4 ", "دوسرا جملہ\u06d4"]),
        ("ur", ["اس نے ایم\u06d4اے کیا\u06d4 ", "وہ خوش ہے\u06d4"]),
        ("km", ["សួស្តី។", "អ្នកសុខសប្បាយទេ។"]),
        ("hi", ["डॉ. राम आए।", "वे थक गए थे। ", "यह ठीक है. ", "हम चलें?"]),
        ("bn", ["ডা. রহমান এসেছেন। ", "তিনি ভালো আছেন।"]),
        ("am", ["ሰላም ነው፡፡ ", "እንዴት ነህ፧ ", "ደህና ነኝ።", "ቤት ሄደ::", "መጣ።"]),
        ("bo", ["ང་ཁྱིམ་ལ་འགྲོ། ", "ཁྱོད་དང་། ཁོ་ཡང་འགྲོ་གི་ཡོད།། ", "དེ་རེད༎"]),
        ("dz", ["ང་འགྱོ་དོ། ", "ཁྱོད་ག་ཏེ་འགྱོ་ནི།"]),
        ("my", ["သူ၊ ငါ သွားသည်။ ", "“လာပါ။”ဟု ပြောသည်။", "“လာပါ။” ဟု ပြောသည်။"]),
        ("hy", ["Բարեւ ձեզ։ ", "Ինչպե՞ս եք: ", "Լավ եմ։"]),
        ("el", ["Τι κάνεις; ", "Πού πας ; ", "Ο κ. Παππάς και ο Δρ. Λάμπρου ήρθαν. ", "Καλά."]),
        ("ar", ["هل جئت؟ ", "نعم. ", "قال د. أحمد ذلك."]),
        ("he", ["מה שלומך? ", "פרופ' כהן הגיע. ", "הוא עייף."]),
        ("nqo", ["ߌ ߣߌ ߗߋ߫ ߓߊ؟ ", "ߒ ߕߐ߮ ߦߋ߫ ߡߛߊ߫߹ ", "ߊ߬ ߢߌ߲߬."]),
        ("th", ["สวัสดีครับ ผมชื่อสมชาย ไปไหนมา"]),
        ("ko", ["네. ", "그는 서울에 갔다. ", "정말이야?"]),
        (
            "ja",
            ["「行こう。」と言った。", "彼は『はい！』 と答えた。", "「おはよう。」", "「やあ。」"],
        ),
        ("zh", ["“你好。”他说。", "价格是３．５元。", "5月放假。", "他走了!", "(真的。)"]),
        ("sw", ["Dkt. Asha alifika saa 3.30. ", "Alileta vitabu n.k. na kalamu. ", "Basi!"]),
        ("hu", ["Almát, körtét stb. vettem. ", "XIV. Lajos 5. Kerületben élt. ", "Ja?"]),
        ("de", ["Am 5. Juni kam Dr. Ott, z. B. mit dem Bus. ", "»Wohin?« fragte sie. ", "Heim."]),
        ("sk", ["„Kam?“ spýtal sa p. Novák. ", "Má 5 kg. ", "Pozri www.a.sk/x.html. ", "Áno..."]),
        ("sr", ["Krv. ", "To je smrt. ", "Došao je 1. Maja. ", "Dobro."]),
        ("ru", ["«Куда?» — спросил он. ", "Т. е. это А. С. Пушкин. ", "Ушёл... ", "Там."]),
        ("tr", ["Dr. Ayşe 3. Kat’a çıktı. ", "Saat kaçta? ", "Sen mi?!"]),
        ("es", ["¿Qué? ", "¡Nada! ", "La Sra. Gil vino de EE.UU. y se fue."]),
        ("fr", ["« Où vas-tu ? » dit-il. ", "M. Petit est parti ! ", "Il a 3,5 km."]),
        ("en", ["J. R. R. Tolkien paid 3.50. ", "What?! ", "See No. 5. ", "Yahoo! is.[2] ", "So?"]),
        ("en", ["(He left.) ", "We (you and I. Really) stay. ", "All is... good. ", "Ok"]),
        ("en", ["no capitals here. ", "none there"]),
        ("xx", ["A language without rules. ", "It has sentences."]),
        ("gl", ["&quot; Que ? &quot; ", "Non , dixo el . ", "E marchou ."]),  # Moses
        ("ru", ["Он и я . ", "А. Блок пришёл ."]),
        # numbers, and text without words
        ("en", ["1. First 2. ", "Second. 5."]),
        ("en", ["5. 6. 7."]),
        ("en", ["... ?"]),
        ("en", ["  Tabs.  ", "And\u00a0others.\u3000", "End  "]),
        ("en", ["   "]),
        ("en", [""]),
    ],
)
def test_a_line_is_split_after_each_sentence(lang: str, parts: list[str]) -> None:
    assert split_sentences("".join(parts), lang) == parts


@pytest.mark.slow
@settings(deadline=None, database=None, derandomize=True, max_examples=500)
@given(
    st.lists(st.sampled_from([*MARKS, *SPACES, *WORDS]), max_size=40).map("".join)
    | st.text(st.characters(exclude_categories=["Cc", "Cs"])),
    st.sampled_from(["en", "sk", "zh", "my", "bo", "de", "xx"]),
)
def test_the_parts_are_the_line_and_one_that_is_not_blank_has_text(line: str, lang: str) -> None:
    parts = split_sentences(line, lang)
    assert "".join(parts) == line
    assert len(parts) == 1 or all(any(map(str.isalpha, part)) for part in parts)


def test_the_stops_of_known_abbreviations_end_no_sentence() -> None:
    line = "Tu jest ul. Nowa. Tak."
    assert split_sentences(line, "pl") == ["Tu jest ul. ", "Nowa. ", "Tak."]
    for known in (line, line.replace("ul.", "Ul.")):
        assert len(split_sentences(known, "pl", ["ul"])) == 2


def test_a_quotation_is_not_divided_unless_it_is_long() -> None:
    for left, right in ("“”", "„“", "«»", "»«", "””", '""', "「」", "()", "【】"):
        assert len(split_sentences(f"He said {left}Go. Now.{right} And left.", "en")) == 2
        assert len(split_sentences(f"He said {left}Go. Now. And left.", "en")) == 3
        long = f"He said {left}{'It is so. ' * 50}{right}"
        assert len(split_sentences(long, "en")) == 50


@pytest.mark.slow
@pytest.mark.parametrize(
    "part",
    ["a", ".", " .", ". ", "。", "「", "」", "「。」", '"', "a. ", "? ", "5. ", "((", "[1]", ".[1]",
     "Dr. ", "a.a.", ". - ", "“”", "’a", "»«", "::", "\u0301", "&quot;", "፡፡", "། "],
)  # fmt: skip
def test_hostile_lines_take_linear_time(part: str) -> None:
    """Quadratic time would be minutes."""
    line = part * (60_000 // len(part))
    assert "".join(split_sentences(line, "de", ["dr"])) == line


def learned(lines: list[str]) -> list[str]:
    counts = AbbreviationCounts()
    for line in lines:
        counts.add(line)
    return counts.learned()


def abbreviations_of(lines: list[str]) -> list[str]:
    return [word for word in learned(lines) if not word.endswith(".")]


NAMES = ["Asha", "Juma", "Ravi", "Zoe", "Ines", "Omar"]


def test_abbreviations_are_words_with_a_stop_inside_lines() -> None:
    lines = [f"Jana aliona dakt. {name} mjini." for name in NAMES] * 3
    lines += ["Alikuja mjini.", "Mji ni mkubwa.", "Watu wa mjini. Walikuja."] * 40
    assert abbreviations_of(lines) == ["dakt"]
    assert abbreviations_of([line.replace("dakt.", "dakt .") for line in lines]) == [
        "dakt"
    ]  # Moses
    assert abbreviations_of([line.replace("dakt.", "dakt") for line in lines]) == []


def test_words_that_often_end_sentences_are_not_abbreviations() -> None:
    """Verbs at the end, sentences of one word, stops before a small letter, paragraphs."""
    verbs = [f"{name} eve geldi. {other} gitti." for name in NAMES for other in NAMES]
    assert abbreviations_of(verbs + [f"Dün {name} geldi." for name in NAMES] * 10) == []
    assert abbreviations_of([f"Evet. {name} burada." for name in NAMES] * 10) == []
    assert abbreviations_of([f"On ma np. {name.lower()} i kota." for name in NAMES] * 10) == []
    paragraphs = [" ".join(f"It was {name}. So it is." for name in NAMES)] * 5
    assert abbreviations_of(paragraphs) == []


def test_abbreviations_of_a_script_without_capitals_are_learned() -> None:
    lines = [f"कल श्री. {name} आए।" for name in ["राम", "गीता", "मोहन"]] * 6
    assert abbreviations_of([*lines, *["वह घर गया।", "यह घर है।"] * 30]) == ["श्री"]


ORDINARY = ["I saw him. ", "OK. ", "It was UNESCO. ", "He left."]
short = st.text(st.characters(categories=["Lu", "Ll"]), min_size=2, max_size=3)
capitals = st.text("BCDFGHJKLMNPQRSTVWXZ", min_size=2, max_size=6)


@given(st.lists(short | capitals, min_size=1, max_size=3))
def test_short_words_and_capitals_end_no_sentence_unless_the_training_text_has_it(titles):
    known = learned([line.strip() for line in ORDINARY * 5])
    assume(not {f"{title.lower()}." for title in titles} & {*known})
    assume(not any(set(title) <= set("IVXL") for title in titles))  # numerals
    assume(all(len(title.lower()) == len(title) for title in titles))  # not İ, which becomes two
    title = " ".join(f"{title}." for title in titles)
    for line in (f"Xin chào {title} Trần Ba. ", f"{title} Trần Ba. "):
        assert split_sentences(line, "xx", known) == [line]
    assert split_sentences("".join(ORDINARY), "xx", known) == ORDINARY
    if set(titles[0].lower()) & set("aeiou"):  # short words without a vowel are abbreviations
        ends = learned([f"Toi la {title}." for title in titles] * 3)
        assert len(split_sentences(f"Toi la {titles[0]}. Trần Ba.", "xx", ends)) == 2


@pytest.mark.parametrize(
    ("lang", "line"),
    [
        ("vi", "PGS. TS. Trần B đến."), ("vi", "BS. Lan của NXB. Trẻ."), ("id", "PT. Maju ada."),
        ("id", "KH. Ali dan CV. Jaya ada."), ("ms", "YB. Datuk tiba."), ("en", "DR. Ali left."),
    ],
)  # fmt: skip
def test_capitals_end_no_sentence_of_an_unknown_language(lang: str, line: str) -> None:
    assert split_sentences(line, lang) == [line]


def test_a_line_in_capitals_has_no_abbreviations_in_capitals() -> None:
    line = ["I SAW THEM THERE. ", "THEY LEFT."]
    assert split_sentences("".join(line), "en") == line
    assert split_sentences("".join(line), "en", learned(["They left."])) == line


def test_titles_at_the_beginning_of_lines_are_learned() -> None:
    lines = [f"Engr. {name} ya zo." for name in NAMES] * 3 + ["Na ga Engr. Musa jiya."]
    assert abbreviations_of([*lines, *["Ya zo nan. Ya tafi.", "Ina nan."] * 30]) == ["engr"]


def test_sentences_are_joined_to_parts_that_fit() -> None:
    sentences = ["a ", "b ", "c ", "d ", "e"]
    assert join_in_parts(sentences, lambda part: False) == sentences
    assert join_in_parts(sentences, lambda part: len(part) <= 2) == ["a b ", "c ", "d e"]
    assert join_in_parts(sentences, lambda part: True) == ["a b c d e"]


@pytest.mark.parametrize(
    ("translations", "sources", "tgt", "joined"),
    [
        (["One.", "Two.", "Three."], ["A. ", "B.  ", "C."], "en", "One. Two.  Three."),
        (["One.", "Two."], ["A.\u00a0", "B."], "en", "One.\u00a0Two."),
        (["Hello.", "Yes."], ["你好。", "是。"], "en", "Hello. Yes."),
        (["Hello.", "Yes."], ["你好。\u3000", "是。"], "en", "Hello. Yes."),
        (["你好。", "是\uff01", "是。"], ["Hello. ", "Yes! ", "Yes."], "zh", "你好。是\uff01是。"),
        (["a b", "c"], ["", ""], "en", "a b c"),
        (["a", "", "c"], ["A. ", "B. ", "C."], "en", "a c"),
    ],
)
def test_translations_are_joined_as_in_their_language(
    translations: list[str], sources: list[str], tgt: str, joined: str
) -> None:
    assert join_translations(translations, sources, sentence_space(tgt)) == joined


ENDS = [
    ".", "!", "?", "…", "……", "。", "\uff01", "\uff1f", "。”", ".”", '."', "。」", "。』", ".)",
    "。\uff09", "。】", "។", "།", "။", "۔", "।", "።", ".»", "5", "a", "XP", "字", "ツ", "ก", "",
]  # fmt: skip
GAPS = ["", " ", "  ", "\u3000", "\u00a0"]


@pytest.mark.parametrize(
    ("space", "langs"),
    [
        ("", "zh ja th km lo my yue zh-Hans zh_TW zho_Hant zho_Hans ja-JP jpn wuu tha_Thai khm"),
        (" ", "en eng_Latn ar arb_Arab hi ko kor_Hang am bo zh_Latn ja-Latn sr ru el xx cy x_1"),
    ],
)
def test_the_script_of_the_target_says_what_is_between_two_sentences(space, langs):
    for lang in langs.split():
        assert sentence_space(lang) == space, lang
        for end, gap in itertools.product(ENDS, GAPS):
            joined = join_translations([end, "b"], [f"A.{gap}", "B."], sentence_space(lang))
            between = joined[len(end) : -1]
            if not space or not end:
                assert between == "", (lang, end, gap)
            else:
                assert between == (gap if gap.strip("\u3000") else " "), (lang, end, gap)


@pytest.mark.parametrize(
    ("counts", "usual"),
    [
        ({}, None),
        ({1: 93, 2: 5, 3: 2}, 1),
        ({1: 80, 2: 20}, 1),
        ({1: 79, 2: 21}, 2),
        ({8: 10, 3: 50, 4: 40}, 4),
    ],
)
def test_four_of_five_training_lines_have_at_most_the_usual_number(
    counts: dict[int, int], usual: int | None
) -> None:
    assert usual_sentences(counts) == usual
