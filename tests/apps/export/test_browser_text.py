"""A page cleans, segments and splits text as nmt does: generated lines of thirty scripts."""

# ruff: noqa: E501, RUF001, SIM905

from __future__ import annotations

import io
from collections.abc import Iterator
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import sentencepiece

from nmt.apps.export.browser_rules import to_javascript
from nmt.data.lines import clean_line, is_blank
from nmt.data.segmenters.sentencepiece import SentencePiece, edit_model, read_scores
from nmt.decoding.codec import TextCodec
from nmt.text import unicode
from nmt.text.sentences import KNOWN, space_between, split_sentences
from nmt.text.tokenizer import Moses
from tests.apps.export.pages import NODE, in_node, script_of, words
from tests.decoding.ctranslate2.cases import made

needs_node = pytest.mark.skipif(NODE is None, reason="needs node")
# letters of a script, and its full stop
SCRIPTS = {
    "latin": "aábcčdeéfghiíjklľmnoóprsštuvyzž", "greek": "αβγδεζηθικλμνξοπρστυφχψωάέή",
    "cyrillic": "абвгдежзийклмнопрстуфхцчшщыьэюя", "armenian": "աբգդեզէըթժիլխծկհ",
    "georgian": "აბგდევზთიკლმნოპ", "hebrew": "אבגדהוזחטיכלמנ", "arabic": "ابتثجحخدذرزسـشصضطظع",
    "syriac": "ܐܒܓܕܗܘܙܚܛ", "thaana": "ހށނރބޅކއވ", "nko": "ߊߋߌߍߎߏߐߑ", "devanagari": "अआइकखगघचािीु्",
    "bengali": "অআইকখগঘচািী্", "gurmukhi": "ਅਆਇਕਖਗਘਚਾਿੀ", "gujarati": "અઆઇકખગઘચાિી્", "oriya": "ଅଆଇକଖଗଘଚାିୀ",
    "tamil": "அஆஇகஙசஞடாிீ்", "telugu": "అఆఇకఖగఘచాిీ్", "kannada": "ಅಆಇಕಖಗಘಚಾಿೀ್", "malayalam": "അആഇകഖഗഘചാിീ്",
    "sinhala": "අආඇකඛගඝචාිී්", "thai": "กขคงจฉชซาิี่้", "lao": "ກຂຄງຈຊາິີ່", "khmer": "កខគឃងចឆជាិី្",
    "myanmar": "ကခဂဃငစဆဇာိီ်", "tibetan": "ཀཁགངཅཆཇཉིུ་", "ethiopic": "ሀሁሂለሉሊሐመሠ፡", "cherokee": "ᎠᎡᎢᎣᎤᎥᎦᎧ",
    "hangul": "가나다라마바사아자", "han": "一二三四五六七八九十人大", "hiragana": "あいうえおかきくけこがぎ",
    "adlam": "\U0001e900\U0001e901\U0001e922\U0001e923\U0001e924", "emoji": "😀👩👍🏽🏴⌚❤",
}  # fmt: skip
MARKS = ". . . , ; : ! ? … ؟ ۔ 。 ！ ？ ． । ॥ ။ ። ፡ : ; ། ༎ .. ?! ... .[1] ・ 、 ٫".split()
QUOTES = "\" ' ' “ ” „ ‘ ’ « » ‹ › ( ) [ ] 「 」 （ ） { }".split()
SHORT = "Dr. Prof. z.B. e.g. No. S. A. III. 12. 3. 10:30 Ph.D. tab. kpt. Mgr. EE.UU. č. &quot; &amp; 3 km. к.".split()
SHAPELESS = "\u00ad\u200b\u200c\u200d\u200e\u2066\u2069\ufeff\ufe0f\ufe0e\ufe01\u180b\u3164\u115f\U000e0067\u20e3\u0640\u2060"
SPACES = "   \u00a0\u202f\u3000\t\u2028\x85\x1c"
COMBINING = "\u0301\u0323\u0308\u05b0\u0327\u093c"
ABBREVIATIONS = ["napr", "tzv", "mgr", "об"]


def lines(count: int, seed: int) -> Iterator[str]:
    """Yield lines of words, marks, quotes and characters that are seldom seen."""
    rng = Random(seed)
    names = list(SCRIPTS)
    for number in range(count):
        letters = SCRIPTS[names[number % len(names)]] + rng.choice(("", "", "abcD", "日本", "กข"))
        parts = []
        for _ in range(rng.randint(1, 14)):
            word = "".join(rng.choices(letters, k=rng.randint(1, 8)))
            if rng.random() < 0.3:
                word = word.capitalize() if rng.random() < 0.7 else word.upper()
            if rng.random() < 0.15:
                word = rng.choice((*SHORT, *ABBREVIATIONS, "Napr."))
            for chance, characters in ((0.2, SHAPELESS), (0.15, COMBINING)):
                if rng.random() < chance:
                    place = rng.randint(0, len(word))
                    inserted = "".join(rng.choices(characters, k=rng.choice((1, 1, 2, 40))))
                    word = word[:place] + inserted + word[place:]
            if rng.random() < 0.35:
                word += rng.choice(MARKS)
            if rng.random() < 0.2:
                word = rng.choice(QUOTES) + word + rng.choice(QUOTES)
            parts += [word, rng.choice((*SPACES, " ", " ", " ", ""))]
        if rng.random() < 0.03:
            parts.append("\x00\ud800▁")
        yield "".join(parts)


def texts(count: int = 2000, seed: int = 1) -> list[str]:
    return list(lines(count, seed))


@needs_node
@pytest.mark.slow
def test_text_is_cleaned_and_split_as_in_python(tmp_path):
    raw = texts()
    clean = [clean_line(line) for line in raw]
    calls: list[tuple[str, list[str], list[Any], list[Any]]] = [
        ("cleanLine", raw, [], clean),
        ("isBlank", [line[:2] for line in raw], [], [is_blank(line[:2]) for line in raw]),
    ]
    for form in unicode.FORMS:
        expected = [unicode.normalize(line, form) for line in clean]
        calls.append(("normalize", clean, [form], expected))
    normal = calls[-1][-1]
    ends = [f"{word.lower()}." for line in normal for word in line.split() if len(word) == 3]
    for lang, learned in (("en", ABBREVIATIONS), ("sk", [*ABBREVIATIONS, KNOWN, *ends[::2]])):
        parts = [split_sentences(line, lang, learned) for line in normal]
        assert sum(len(sentences) > 1 for sentences in parts) > 500
        calls.append(("splitSentences", normal, [lang, learned], parts))
    gaps = ["", " ", "  ", "\u3000", "\n", " \u3000 ", "\t", "\u00a0"]
    for space in ("", " "):
        calls.append(("spaceBetween", gaps, [space], [space_between(gap, space) for gap in gaps]))
    cases = [{"name": name, "lines": given, "args": args} for name, given, args, _ in calls]
    for (name, given, args, expected), actual in zip(calls, in_node(cases, tmp_path), strict=True):
        different = [
            (line, wanted, ours)
            for line, wanted, ours in zip(given, expected, actual, strict=True)
            if wanted != ours
        ]
        assert different[:3] == [], (name, args, len(different))


def segmenters() -> dict[str, SentencePiece]:
    """Return models of each kind, learned on a part of the lines, so others are unknown."""
    known = [clean_line(line) for line in texts(300, seed=2)]
    found = {}
    for name, options in {
        "bpe": {"model_type": "bpe"},
        "unigram": {"model_type": "unigram"},
        "bpe bytes": {"model_type": "bpe", "byte_fallback": True, "character_coverage": 0.98},
        "unigram bytes": {
            "model_type": "unigram",
            "byte_fallback": True,
            "character_coverage": 0.98,
        },
        "bpe symbols": {
            "model_type": "bpe",
            "user_defined_symbols": ["ab", "abc", "Dr.", "日本 x"],
        },
    }.items():
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(" ".join(line.split()) for line in known),
            model_writer=model,
            vocab_size=900,
            hard_vocab_limit=False,
            normalization_rule_name="identity",
            minloglevel=2,
            num_threads=1,
            **{"character_coverage": 1.0, **options},
        )
        found[name] = SentencePiece(Moses(False, "clean"), model.getvalue())
    proto = found["bpe"].files()["spm.model"]
    pieces = read_scores(proto)[1]
    kept = [piece for number, piece in enumerate(pieces) if number % 3 or len(piece) == 1]
    found["bpe with unused pieces"] = SentencePiece(
        Moses(False, "nfc"), edit_model(proto, kept, {})
    )
    return found


@needs_node
@pytest.mark.slow
def test_pieces_are_those_of_sentencepiece(tmp_path):
    raw, vocab = texts(2000, seed=3), words()[1]
    translator, cases, expected = made(words=words()), [], {}
    for number, (name, segmenter) in enumerate(segmenters().items()):
        codec = TextCodec(segmenter, vocab, translator.codec.directions)
        model = SimpleNamespace(
            transformer=translator.transformer, codec=codec, info=translator.info
        )
        cases.append({"script": script_of(model, tmp_path / str(number)), "lines": raw})
        expected[name] = [codec.source_pieces(line) for line in raw]
    for (name, wanted), actual in zip(expected.items(), in_node(cases, tmp_path), strict=True):
        different = [pair for pair in zip(wanted, actual, strict=True) if pair[0] != pair[1]]
        assert different[:2] == [], (name, len(different))


@pytest.mark.parametrize(
    ("pattern", "parts"),
    [
        (r"a++(?:b|c)*+", ["a+(?:b|c)*"]),
        (r"[a-c]+x", ["", r"\u{61}-\u{63}", "+x"]),
        (r"(?V1)[\d--[1-9]]", ["", None, ""]),
        (r"(?r)(a)\.", [r"(?<=(a)\.)"]),
    ],
)
def test_a_pattern_of_python_becomes_one_of_javascript(pattern, parts):
    classes: dict[str, int] = {}
    found = to_javascript(pattern, classes)["parts"]
    names = list(classes)
    found = [names[part] if isinstance(part, int) else part for part in found]
    assert [f if e is not None else None for f, e in zip(found, parts, strict=True)] == parts


def test_a_pattern_that_javascript_lacks_is_an_error():
    with pytest.raises(ValueError, match="Z"):
        to_javascript(r"a\Z", {})
