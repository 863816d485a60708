"""Moses tokenization and detokenization, with the rules of each language.

A language without rules in sacremoses gets the English abbreviations. Text of scripts without
spaces is not split into words. In Japanese and Chinese, the text between two punctuation marks is
one word; in Thai, Khmer and others, the text between two spaces. Byte-pair encoding finds the
pieces. Detokenization adds no spaces, but it may attach a sign that had a space before it.
``segment.kind: sentencepiece`` keeps these too.
"""

from __future__ import annotations

from nmt.text import moses
from nmt.text.languages import base_language
from nmt.text.unicode import normalize


class Moses:
    """Tokenize and detokenize text, depending on whether the corpus is tokenized.

    Args:
        tokenized: the corpus is Moses-tokenized, with escapes such as ``&apos;``. Then white space
            separates the words, and references are detokenized for scoring.
        form: Unicode form of the input, of ``data.normalize``; references are never changed.
        exact: the words of plain text come back without added spaces; false = as in version 0.2.
    """

    def __init__(self, tokenized: bool, form: str = "none", exact: bool = False) -> None:
        self.tokenized, self.form, self.exact = tokenized, form, exact

    def normalize(self, line: str) -> str:
        """Return the line in the Unicode form of the recipe."""
        return normalize(line, self.form)

    def tokenize(self, line: str, lang: str) -> list[str]:
        """Return the words of an input line."""
        line = self.normalize(line)
        if self.tokenized:
            return line.split()
        split = moses.exact_words if self.exact else moses.words_of
        return split(line, base_language(lang))

    def detokenize(self, words: str, lang: str) -> str:
        """Return tokenized text as plain text, without escapes."""
        return moses.detokenize(words.split(), base_language(lang), self.exact)

    def tokenize_reference(self, line: str, lang: str) -> str:
        """Return a reference line as tokenized text, for tokenized BLEU."""
        if self.tokenized:
            return line
        return " ".join(moses.words_of(line, base_language(lang)))

    def detokenize_reference(self, line: str, lang: str) -> str:
        """Return a reference line as plain text, for sacreBLEU.

        Tokenized text is detokenized by sacremoses alone, so that others get the same reference
        from the same file.
        """
        if not self.tokenized:
            return line
        return moses.detokenize_unchanged(line.split(), base_language(lang))

    def text_to_score(self, text: str, words: str, lang: str) -> str:
        """Return the form of a hypothesis that sacreBLEU scores, from its plain and tokenized
        text."""
        return self.detokenize_reference(words, lang) if self.tokenized else text

    def words_to_score(self, text: str, words: str, lang: str) -> str:
        """Return a hypothesis for tokenized BLEU, tokenized like the references."""
        return self.tokenize_reference(text, lang) if self.exact else words
