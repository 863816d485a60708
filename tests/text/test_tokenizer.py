"""Moses tokenization: the words of sacremoses, its corrections, and detokenization."""
# ruff: noqa: RUF001

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacremoses import MosesTokenizer

from nmt.data.lines import clean_line, is_blank, read_lines
from nmt.text.tokenizer import Moses

CORPORA = Path(__file__).parents[2] / "../shared/data"
RAW = Moses(tokenized=False)
TOKENIZED = Moses(tokenized=True)
EXACT = Moses(tokenized=False, exact=True)

# Letters, marks and signs of several scripts, with what Moses gives a meaning.
ALPHABET = "aBß é日語。ไง่ខ្ញعؤ؟ु०x1 ,.'\"-/&;|[]<>@_%$“”„’‘…\u0301\u200d\u00a0"
LINES = st.text(st.sampled_from(ALPHABET), max_size=30).map(clean_line)


def there_and_back(line: str, lang: str) -> str:
    return RAW.detokenize(" ".join(RAW.tokenize(line, lang)), lang)


@pytest.mark.parametrize(
    ("lang", "line", "words"),
    [
        ("en", "It's 5,300 $, isn't it?", "It &apos;s 5,300 $ , isn &apos;t it ?"),
        ("en", 'Mr. "Fox" [ran] & hid.', "Mr. &quot; Fox &quot; &#91; ran &#93; &amp; hid ."),
        ("fr", "L'homme d'ici.", "L&apos; homme d&apos; ici ."),
        ("sk", "Napr. toto, áno!", "Napr. toto , áno !"),  # an abbreviation of Slovak
        ("sk", "tzv. Toto, áno!", "tzv. Toto , áno !"),
        ("en", "tzv. Toto, yes!", "tzv . Toto , yes !"),
        ("ja", "これはペンです。はい", "これはペンです。はい"),
        ("th", "ภาษาไทยง่ายมาก ครับ", "ภาษาไทยง่ายมาก ครับ"),
        ("hi", "नमस्ते दुनिया।", "नमस्ते दुनिया ।"),
        ("fa", "می\u200cخواهم؟", "می\u200cخواهم ؟"),
    ],
)
def test_words_follow_the_language(lang: str, line: str, words: str):
    assert " ".join(RAW.tokenize(line, lang)) == words
    assert RAW.tokenize_reference(line, lang) == words
    assert there_and_back(line, lang) == line


@pytest.mark.parametrize("lang", ["pt-BR", "pt_BR", "PT", "pt"])
def test_region_of_a_language_code_is_ignored(lang: str):
    assert RAW.tokenize("A Dra. Ana", lang) == ["A", "Dra.", "Ana"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "short", "line"),
    [
        ("eng_Latn", "en", "I don't know the boys' dogs, it's Mr. Smith's."),
        ("ita", "it", "Non c'è l'amico d'Anna."),
        ("FRA", "fr", "L'homme d'ici n'est pas là."),
        ("zho-Hans", "zh", "他说:你好,世界。"),
        ("cmn", "zh", "他说:你好,世界。"),
    ],
)
def test_codes_of_three_letters_have_the_rules_of_the_language(code: str, short: str, line: str):
    assert RAW.tokenize(line, code) == RAW.tokenize(line, short)
    assert there_and_back(line, code) == there_and_back(line, short)


def test_contractions_of_eng_come_back():
    assert there_and_back("I don't know, it's Ann's.", "eng_Latn") == "I don't know, it's Ann's."


def test_language_without_rules_gets_the_english_abbreviations():
    assert RAW.tokenize("Habari, Dr. Juma!", "sw") == ["Habari", ",", "Dr.", "Juma", "!"]


@pytest.mark.parametrize(
    ("lang", "line"),
    [
        ("th", "ไม่รู้"),
        ("km", "ខ្ញុំ"),
        ("yo", "Ọ̀rọ̀ ẹ́, bẹ́ẹ̀ ni!"),
        ("vi", "tie\u0302\u0301ng Vie\u0323\u0302t."),  # decomposed
        ("en", "I ❤️ it"),
    ],
)
def test_combining_marks_stay_with_their_letters(lang: str, line: str):
    """sacremoses separates combining marks, and its detokenizer does not join them again."""
    assert " ".join(MosesTokenizer(lang).tokenize(line)).split() != RAW.tokenize(line, lang)
    assert there_and_back(line, lang) == line


@pytest.mark.parametrize(
    "line",
    [
        "𞤀𞤣𞤤𞤢𞤥 𞤆𞤵𞤤𞤢𞤪",  # Adlam
        "𐓏𐓘𐓻𐓘𐓻𐓟",  # Osage
        "ᎣᏏᏲ Ꭰꮒꮳꮇꭹ",  # Cherokee, with small letters
        "ᲥᲐᲠᲗᲣᲚᲘ",  # Georgian capitals
        "𐴌𐴟𐴇𐴥𐴝𐴚𐴒𐴙𐴝 𐴱𐴲",  # Rohingya, with digits
        "𑄌𑄋𑄴𑄟𑄳𑄦",  # Chakma
        "ࢻࢶب",  # Arabic letters of African languages
    ],
)
def test_letters_that_sacremoses_does_not_know_stay_in_their_word(line: str):
    assert RAW.tokenize(line, "ff") == line.split()
    assert MosesTokenizer("en").tokenize(line) != line.split()


@settings(max_examples=100, deadline=None)
@given(LINES, st.sampled_from(["en", "fr", "ar", "th", "cs"]))
def test_tokenization_only_changes_white_space(line: str, lang: str):
    """The model must see every character of the line."""
    assert "".join(there_and_back(line, lang).split()) == "".join(line.split())
    assert bool(RAW.tokenize(line, lang)) or is_blank(line)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.text(st.sampled_from("aé日ع.,'?!\"&-/1 "), max_size=30))
def test_words_without_marks_are_those_of_sacremoses(line: str):
    for lang in ("en", "fr", "ja", "ko"):
        assert RAW.tokenize(line, lang) == stock(lang).tokenize(line)


def stock(lang: str, made: dict[str, MosesTokenizer] = {}) -> MosesTokenizer:  # noqa: B006
    if lang not in made:
        made[lang] = MosesTokenizer(lang)
    return made[lang]


@pytest.mark.parametrize(
    ("name", "lang", "lines"),
    [
        ("multi30k/raw/test.fr.gz", "fr", 300),
        ("ui-sk-en/dev.sk.gz", "sk", 300),
        ("tanaka-ja-en/test.ja.gz", "ja", 100),
        ("ui-he-en/dev.he.gz", "he", 300),
    ],
)
def test_words_are_those_of_sacremoses_on_real_text(name: str, lang: str, lines: int):
    if not (CORPORA / name).exists():
        pytest.skip("needs the corpora in ../shared/data")
    for line in itertools.islice(read_lines(CORPORA / name), lines):
        assert RAW.tokenize(line, lang) == stock(lang).tokenize(line)


@pytest.mark.parametrize(
    ("lang", "line"),
    [
        ("ar", "هل فهمت؟ نعم، فهمت؛ شكرا."),
        ("ur", "یہ کتاب ہے۔ کیا؟"),
        ("en", "Wait… “now,” he (“the fox”) said, “here”."),
        ("de", "Er sagte „ja“ und „nein“."),
        ("ja", "他说：“你好，用 Python 吗？”然后走了。"),
        ("ja", "「はい」、と（彼は）言った…。"),
        ("en", "it’s mine, don’t ‘touch’ it"),
        ("fr", "une femme s’entraîne"),
        ("hi", "क्या तुम ठीक हो? हाँ, मैं ठीक हूँ॥"),
        ("bn", "আমি স্কুলে যাই। সে ঢাকা থেকে এসেছে।"),
        ("am", "ፖም፣ ሙዝ እና ብርቱካን ገዛሁ፤ ከዚያ ሄድኩ።"),
        ("ti", "ሰላም፣ ከመይ ኣለኻ፧ ጽቡቕ እየ።"),
        ("km", "គាត់និយាយថា៖ ខ្ញុំមិនទៅទេ។ គាត់មកពីភ្នំពេញ។"),
        ("my", "ပန်းသီး၊ ငှက်ပျောသီး စားတယ်။ သူ လာတယ်။"),
        ("bo", "བཀྲ་ཤིས་བདེ་ལེགས། ང་བོད་པ་ཡིན།"),
        ("hy", "Ինչպե՞ս ես։ Այո՛, գալիս եմ, տանձ՝ նույնպես։"),
        ("el", "Τι κάνεις\u037e Καλά\u0387 ναι."),  # the marks that NFC replaces
        ("syr", "ܫܠܡܐ ܥܠܝܟܘܢ܂ ܐܝܟܢ ܐܝܬܝܟܘܢ܀"),
        ("sat", "ᱤᱧ ᱪᱟᱞᱟᱜ ᱠᱟᱱᱟ᱾ ᱩᱱᱤ ᱦᱮᱡ ᱮᱱᱟ᱿"),
        ("ff", "𞤀𞤣𞤢𞤥 𞤢𞤪𞤭⹁ 𞤱𞤭𞤴𞤭."),
    ],
)
def test_marks_that_sacremoses_leaves_separated_are_attached(lang: str, line: str):
    plain = there_and_back(line, lang)
    if "‘" in line:  # a line that quotes with ‘ keeps its ’ apart: they may be quotes
        assert plain == "it ’ s mine, don ’ t ‘ touch ’ it"
    else:
        assert plain == line


def exactly_there_and_back(line: str, lang: str) -> str:
    return EXACT.detokenize(" ".join(EXACT.tokenize(line, lang)), lang)


@pytest.mark.parametrize(
    ("lang", "line"),
    [
        ("gn", "Che mba'e, ha'e he'i: ka'i oho."),
        ("haw", "ʻO Hawai'i ke aloha o ka ‘āina a’o."),
        ("uz", "O'zbekiston va g'alaba, oʻzbek so‘zi, ma'no."),
        ("uk", "Це п'ять об'єктів, кав’ярня, сім'я."),
        ("ca", "L'aigua d'en Joan, s'ha fet; col·legi, porta'm-ho."),
        ("mt", "L-għalliem ta' Malta, f'dan il-jum; x'inhu?"),
        ("ga", "D'imigh sé go b'fhéidir, t'athair."),
        ("gd", "Tha e a' dol dhan bhùth, b' e sin."),
        ("br", "C'hoari a ran en ur c'hoarzhin."),
        ("oc", "L'ostal d'aquel òme qu'es aquí."),
        ("qu", "Ñuqa t'anta mikhuni, q'aya p'unchaw."),
        ("ay", "Jach'a uta, t'ant'a, k'ari."),
        ("nv", "Diné bizaad yáʼátʼééh, t'áá ákwíí."),
        ("sw", "Ng'ombe wa ng'ambo, na/au gombe."),
        ("tl", "Kaya't siya'y yumaon, iba't iba."),
        ("he", 'צה"ל אמר: ד"ר כהן, ג׳ורג׳ וארה״ב.'),
        ("ru", "Он сказал: «Привет, мир», и ушёл."),
        ("es", "Leyó «El Quijote» y ¿qué dijo?"),
        ("de", "Er sagte »ja« und Kinder/Eltern."),
        ("en", "and/or {forecast_day} #tag a—b 10:30 http://x.org/a_b?c=d 5€ 20°C (s)he word(s)"),
        ("en", "I don't know, it's \"Kids' Food\" 5\" disk."),
        ("en", "👩‍💻 and 👩🏽‍🚀, 🏳️‍🌈 🇬🇱!"),
        ("fa", "می\u200cخواهم کتاب\u200cها؟"),
        ("km", "ខ្ញុំ\u200bទៅ។"),
        ("en", "Moses writes @-@ for a hyphen that it has split: @-@"),
    ],
)
def test_what_the_tokenizer_takes_apart_is_put_together_again(lang: str, line: str):
    assert exactly_there_and_back(line, lang) == line


def test_old_runs_keep_their_words():
    assert RAW.tokenize("mba'e", "gn") == ["mba", "&apos;", "e"]
    assert EXACT.tokenize("mba'e", "gn") == ["mba&apos;e"]
    assert EXACT.words_to_score("mba'e", "mba&apos;e", "gn") == "mba &apos; e"


@settings(max_examples=100, deadline=None)
@given(LINES, st.sampled_from(["en", "fr", "ar", "th", "cs", "gn"]))
def test_detokenization_adds_no_space(line: str, lang: str):
    back = exactly_there_and_back(line, lang)
    assert "".join(back.split()) == "".join(line.split())
    assert len(back.split()) <= len(line.split())


def test_tokenized_text_is_split_at_spaces_and_detokenized():
    line = "it &apos;s a &quot; well @-@ known &quot; 5 &lt; 6 &amp; &#91; x &#93; &#124; , no ?"
    assert TOKENIZED.tokenize(line, "en") == line.split()
    assert TOKENIZED.tokenize_reference(line, "en") == line
    assert TOKENIZED.detokenize_reference(line, "en") == ('it\'s a "well-known" 5 < 6 & [x] |, no?')
    assert RAW.detokenize_reference(line, "en") == line


def test_escapes_in_raw_text_stay_escapes():
    for line in ("&apos; &amp;quot; &lt;b&gt;", "a &#124; b", "&amp;amp;"):
        assert there_and_back(line, "en").replace(" ", "") == line.replace(" ", "")


def test_detokenized_chinese_and_japanese_have_no_spaces():
    assert TOKENIZED.detokenize("私 は テニス 部員 で す 。", "ja") == "私はテニス部員です。"
    assert TOKENIZED.detokenize("한국어 입니다 .", "ko") == "한국어 입니다."


@pytest.mark.parametrize("part", ["a ", "a.", ".", "'", "a'", "@", ",1", "é", "&", " '", "”“ "])
def test_long_repetitive_lines_take_linear_time(part: str):
    """Regular expressions that backtrack would take minutes here."""
    line = part * 10_000
    for back in (there_and_back(line, "en"), exactly_there_and_back(line, "gn")):
        assert "".join(back.split()) == "".join(line.split())
