"""Read sentence pairs from files and archives; rules for their lengths."""

from __future__ import annotations

import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import exp, log
from pathlib import Path

import numpy as np

from nmt.data.bitext import read_pairs
from nmt.data.lines import LENGTH_SLACK, LONGEST_LINE
from nmt.data.lines import length_ratio as ratio
from nmt.data.pair import Pair
from nmt.data.report import Drops
from nmt.data.rules import BLANK, Rule, apply_rules
from nmt.errors import UserError
from nmt.runtime.missing import missing_fix

MAX_RATIO = 4.0  # of lengths, in a corpus whose ratios vary little
MAX_DEVIATIONS = 9  # of 20 corpora, only a dictionary gets a higher limit by it: 5.5 instead of 4


def one_line(text: str) -> str:
    """Replace each run of white space, newlines included, by one space; strip both ends."""
    return " ".join(text.split())


def read_aligned(
    src: Path, tgt: Path, split: str, restore: Callable[[str], str] = str
) -> Iterator[Pair]:
    """Yield the line pairs of two files, without line ends and byte-order mark.

    Args:
        split: a pair's place is ``SPLIT:LINE``.
        restore: applied to each line.

    Raises:
        UserError: the files have different numbers of lines, or end them with CR.
    """
    for number, (line, other) in enumerate(read_pairs((src, tgt), clean=False), 1):
        yield Pair(restore(line), restore(other), f"{split}:{number}", number=number)


def clean_training_pairs(pairs: Iterable[Pair], drops: Drops) -> Iterator[Pair]:
    """Yield pairs with single spaces between words, without those that have a blank side."""
    tidy = (pair._replace(src=one_line(pair.src), tgt=one_line(pair.tgt)) for pair in pairs)
    return apply_rules(tidy, [BLANK], drops)


def require_file(path: Path) -> None:
    """Raise UserError if a path is not a regular file."""
    if not path.exists():
        raise UserError("no such file", at=str(path), fix=missing_fix(path))
    if not path.is_file():
        raise UserError("is not a regular file", at=str(path), fix="give the path of a file")


@contextmanager
def archive_errors(path: Path) -> Iterator[None]:
    """Turn the exceptions of a damaged archive into a UserError."""
    try:
        yield
    except (EOFError, zlib.error, lzma.LZMAError, OSError, tarfile.TarError, MemoryError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the system; bz2 and gzip raise a plain OSError for a damaged archive
        raise UserError(
            f"damaged or truncated archive ({error})",
            at=str(path),
            fix="delete this file and download it again",
        ) from error


def member_names(archive: Path) -> list[str]:
    """Return the paths of all files of a tar archive."""
    with archive_errors(archive), tarfile.open(archive, "r:*") as tar:
        return [info.name for info in tar if info.isfile()]


def member_lines(archive: Path, member: str) -> Iterator[str]:
    """Yield the lines of one file of a tar archive, without unpacking it. Tabs stay.

    Args:
        member: the end of the file's path.

    Raises:
        UserError: the archive is damaged, has no such file, or the text is not UTF-8.
    """
    with archive_errors(archive), tarfile.open(archive, "r:*") as tar:
        for info in tar:
            if info.isfile() and f"/{info.name}".endswith(f"/{member}"):
                file = tar.extractfile(info)
                assert file is not None  # a regular file
                lines = iter(partial(file.readline, LONGEST_LINE + 1), b"")
                yield from decode_lines(lines, f"{archive}:{member}")
                return
    raise UserError(
        f"has no {member}", at=str(archive), fix="use the archive that the publisher released"
    )


def decode_lines(lines: Iterable[bytes], name: str) -> Iterator[str]:
    """Yield lines as text, without line ends; ``name`` is for the error."""
    for number, line in enumerate(lines, 1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise UserError(
                f"not UTF-8 at byte {error.start + 1} of the line",
                at=f"{name}:{number}",
                fix="convert the file to UTF-8 (iconv -f OLD -t UTF-8)",
            ) from error
        if len(line) > LONGEST_LINE:
            what = f"this line has over {LONGEST_LINE:,} bytes"
            raise UserError(what, at=f"{name}:{number}", fix="use the released archive")
        yield text.rstrip("\r\n")


def length_ratio(max_ratio: float) -> Rule:
    """Drop pairs if one side has over ``max_ratio`` times the characters of the other, plus ten.

    The splits of two public corpora depend on this rule; ``unusual_ratio`` fits any corpus.
    """
    text = "One side has over {:g} times the characters of the other, plus ten."
    return Rule("ratio", lambda pair, _: ratio(pair.src, pair.tgt), max_ratio, text)


def unusual_ratio(pairs: Sequence[Pair], max_ratio: float | None) -> Rule:
    """Drop pairs whose ratio of lengths is far from the median ratio of these pairs.

    A length is the number of characters plus ten, because the lengths of short texts differ more.

    Args:
        max_ratio: times the median ratio, or its inverse; None = four, or more if the ratios of
            these pairs vary more: nine median absolute deviations, six standard deviations of a
            normal distribution. So the long gloss of one word stays in a dictionary.
    """
    ratios = np.fromiter(map(_log_ratio, pairs), float, len(pairs))
    typical = float(np.median(ratios)) if len(ratios) else 0.0
    if max_ratio is None:
        spread = float(np.median(abs(ratios - typical))) if len(ratios) else 0.0
        max_ratio = max(MAX_RATIO, exp(MAX_DEVIATIONS * spread))
    text = f"The ratio of the lengths is over {max_ratio:.3g} times the median, or its inverse."
    return Rule("ratio", lambda pair, _: abs(_log_ratio(pair) - typical), log(max_ratio), text)


def _log_ratio(pair: Pair) -> float:
    return log((len(pair.tgt) + LENGTH_SLACK) / (len(pair.src) + LENGTH_SLACK))
