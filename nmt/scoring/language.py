"""The language that a text is scored as, which decides what BLEU and TER take for a word.

By spaces, a sentence of a language without spaces would be one word: one wrong character would make
BLEU 0 and TER 100.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

from sacrebleu.metrics import BLEU

from nmt.data.corpus_manifest import languages_of
from nmt.data.lines import OPENERS
from nmt.text.languages import UNSPACED, base_language, script_of, scripts_of

_CHINESE = {"yue", "wuu", "nan", "hak", "gan", "hsn", "cdo", "lzh"}  # written in Han, or in Latin
_LANGUAGE_OF_SCRIPT = {
    "CJK": "zh", "HIRAGANA": "ja", "KATAKANA": "ja", "HANGUL": "ko", "THAI": "th", "LAO": "lo",
    "KHMER": "km", "MYANMAR": "my", "TIBETAN": "bo",
}  # fmt: skip
_KANA = 0.1  # of the letters of a text in Han and kana; with more, it is Japanese
_SAMPLE = 1000  # lines
_ENDING = re.compile(r"([A-Za-z]{2,3})([-_][A-Za-z0-9]+)*")
# Nearly all endings of two or three letters are codes of ISO 639-3. These are so too, or look so,
# and usually are kinds of files.
_NO_LANGUAGES = {
    *("all", "bak", "bpe", "csv", "dev", "doc", "gld", "hyp", "log", "new", "old", "out"),
    *("raw", "ref", "res", "sgm", "sp", "spm", "src", "sys", "tgt", "tmp", "tok", "trg", "tsv"),
    *("tst", "txt", "xml"),
}


def bleu_tokenizer(tgt_lang: str) -> str:
    """Choose sacreBLEU's tokenizer for a language.

    This is sacreBLEU's choice, except that it is ``char`` for languages without spaces between
    words that sacreBLEU has no tokenizer for, and for Japanese and Korean if MeCab is not
    installed. A code with a script, such as nan_Latn, is of this script.
    """
    language = base_language(tgt_lang)
    if language in ("ja", "ko"):
        name = f"{language}-mecab"
        try:
            BLEU(tokenize=name)
        except (ImportError, RuntimeError):
            return "char"
        return name
    if language == "zh":
        return "zh"
    return "char" if lacks_spaces(tgt_lang) else "13a"


def lacks_spaces(lang: str) -> bool:
    """Return whether a language writes words without spaces between them."""
    script = script_of(lang) or ("CJK" if base_language(lang) in _CHINESE else "")
    return script.split(" ")[0] in UNSPACED


def language_of_text(tgt_lang: str, lines: Sequence[str]) -> str:
    """Choose the language that a text is scored as.

    This is ``tgt_lang``, unless the script of most letters shows that its tokenizer does not fit:
    text without spaces between words is scored as the main language of its script, and Chinese
    languages in Latin letters are scored by words.

    Args:
        tgt_lang: empty if unknown.
        lines: the first reference.
    """
    if base_language(tgt_lang) in ("zh", "ja", "ko"):
        return tgt_lang
    scripts = scripts_of("".join(islice(lines, _SAMPLE)))
    kana, most = scripts["HIRAGANA"] + scripts["KATAKANA"], scripts.total() / 2
    if kana + scripts["CJK"] > most:
        lang = "ja" if kana > _KANA * (kana + scripts["CJK"]) else "zh"
    else:
        main = next((name for name, count in scripts.items() if count > most), "")
        lang = _LANGUAGE_OF_SCRIPT.get(main, "")
    spaced = bleu_tokenizer(tgt_lang) == "13a"
    if lang:
        return lang if spaced else tgt_lang
    return tgt_lang if spaced or not scripts else f"{base_language(tgt_lang)}_Latn"


def language_of_files(names: Iterable[str]) -> str:
    """Return the language of the first name that ends in its code: ``zh`` of test.zh.gz, or "".

    A MANIFEST.json in the same folder also says which endings are languages.
    """
    for name in map(Path, names):
        ending = (Path(name.stem) if name.suffix in OPENERS else name).suffix[1:]
        code = _ENDING.fullmatch(ending)
        if (code and code[1].lower() not in _NO_LANGUAGES) or ending in languages_of(name.parent):
            return ending
    return ""
