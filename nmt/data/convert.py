"""Convert corpora to the text form of the recipe: Moses-tokenized or plain (``data.tokenized``).

An entry of the other form is converted once, into the folder of the prepared data. Checks, learning
and encoding then read one form.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from nmt.data.bitext import Bitext, CorpusFiles, Sides, read_pairs
from nmt.data.text import Pair, read_lines
from nmt.data.tokenizer import Moses
from nmt.data.workers import map_chunks
from nmt.runtime.progress import counted

FOLDER = "converted"


class ConvertLines:
    """Convert the lines of a corpus.

    Args:
        tokenized: the form to convert to.
        langs: source and target language.
    """

    def __init__(self, tokenized: bool, langs: tuple[str, str]) -> None:
        self._tokenized, self._langs = tokenized, langs
        self._moses = Moses(tokenized=not tokenized)

    def line(self, line: str, lang: str) -> str:
        """Return a line in the other form; tokenized text has escapes such as ``&apos;``."""
        if self._tokenized:
            return " ".join(self._moses.tokenize(line, lang))
        return self._moses.detokenize(line, lang)

    def __call__(self, pairs: list[Pair]) -> list[Pair]:
        """Return the pairs of a chunk in the other form."""
        src, tgt = self._langs
        return [(self.line(source, src), self.line(target, tgt)) for source, target in pairs]


def read_in_form(path: Path, lang: str, is_tokenized: bool, tokenized: bool) -> list[str]:
    """Return the lines of a reference in the form that scores need, as training scores them.

    Args:
        lang: language of the file.
        is_tokenized: whether the file is Moses-tokenized.
        tokenized: the form to return. Text that has it already stays as it is.
    """
    if is_tokenized == tokenized:
        return list(read_lines(path, clean=False))
    convert = ConvertLines(tokenized, (lang, lang))
    return [convert.line(line, lang) for line in read_lines(path)]


def converted_files(files: CorpusFiles, tokenized: bool, folder: Path) -> CorpusFiles:
    """Return the files with the converted ones in place of those of the other form.

    Args:
        tokenized: the form of the recipe, ``data.tokenized``.
        folder: of the prepared data.
    """

    def converted(name: str, text: Bitext) -> Bitext:
        if text.original[1] == tokenized:
            return text
        sides = (folder / FOLDER / f"{name}.src", folder / FOLDER / f"{name}.tgt")
        return replace(text, sides=sides[: len(text.sides)])

    return replace(
        files,
        train=[converted(f"train{i}", text) for i, text in enumerate(files.train)],
        held_out={name: converted(name, text) for name, text in files.held_out.items()},
        learn=[converted(f"learn{i}", text) for i, text in enumerate(files.learn)],
    )


def write_converted(files: CorpusFiles, tokenized: bool, progress: bool) -> None:
    """Write the converted files that ``converted_files`` names.

    Args:
        progress: show a bar on a terminal.

    Raises:
        UserError: a corpus cannot be read, or its files have different numbers of lines.
    """
    for text in files.corpora():
        original, form = text.original
        if form != tokenized:
            work = ConvertLines(tokenized, text.langs)
            pairs = counted(read_pairs(original), f"converting {text.name}", "pairs", show=progress)
            _write(map_chunks(work, pairs), text.sides)


def _write(chunks: Iterator[list[Pair]], sides: Sides) -> None:
    sides[0].parent.mkdir(exist_ok=True)
    with ExitStack() as stack:
        files = [stack.enter_context(open(side, "w", encoding="utf-8")) for side in sides]
        for chunk in chunks:
            for side, file in enumerate(files):
                file.writelines(f"{pair[side]}\n" for pair in chunk)
