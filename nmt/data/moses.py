"""Plain text to Moses-tokenised words and back, by sacremoses with each language's rules.

A language that sacremoses has no rules for gets the English ones. Nothing here splits a script
written without spaces (Japanese, Chinese, Thai, ...): there a clause is one word, and byte-pair
encoding or SentencePiece finds the pieces.
"""

from __future__ import annotations

import functools
import unicodedata

from sacremoses import MosesDetokenizer, MosesTokenizer


class Moses:
    """The front of a segmenter: words in, words out.

    Args:
        tokenised: the corpus comes Moses-tokenised, with its escapes (``&apos;``): then words are
            what white space separates, and a reference has to be detokenised to be plain text.
        nfc: compose the input to Unicode NFC; references are never altered.
    """

    def __init__(self, tokenised: bool, nfc: bool) -> None:
        self.tokenised, self.nfc = tokenised, nfc

    def words(self, line: str, lang: str) -> list[str]:
        """Input text -> words."""
        line = self.compose(line)
        return line.split() if self.tokenised else _tokenizer(lang).tokenize(line)

    def compose(self, line: str) -> str:
        """NFC, if the recipe asks for it."""
        return unicodedata.normalize("NFC", line) if self.nfc else line

    def plain(self, words: str, lang: str) -> str:
        """Tokenised text -> plain text, escapes undone."""
        return _detokenizer(lang).detokenize(words.split())

    def reference_words(self, line: str, lang: str) -> str:
        """A reference line -> tokenised text, for tokenised BLEU."""
        return line if self.tokenised else " ".join(_tokenizer(lang).tokenize(line))

    def reference_plain(self, line: str, lang: str) -> str:
        """A reference line -> plain text, for sacreBLEU."""
        return self.plain(line, lang) if self.tokenised else line


@functools.cache
def _tokenizer(lang: str) -> MosesTokenizer:
    return MosesTokenizer(lang.split("-")[0].split("_")[0].lower())


@functools.cache
def _detokenizer(lang: str) -> MosesDetokenizer:
    return MosesDetokenizer(lang.split("-")[0].split("_")[0].lower())
