"""Find the files of a corpus: its languages, and the sets and monolingual text next to it."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from nmt.data.bitext import read_pairs
from nmt.data.corpus_manifest import languages_of
from nmt.data.lines import OPENERS, find_side
from nmt.errors import UserError
from nmt.runtime.files import require_usable
from nmt.runtime.words import quantity
from nmt.text.languages import base_language

# names of a validation and of a test set next to train, the first that exists counts
HELD_OUT = {"dev": ("dev", "valid", "validation", "val"), "test": ("test",)}
MONOLINGUAL = "mono"  # name of a text of one language next to train
HELD_OUT_SIZE = 1000  # pairs that data_prep holds out for dev, and again for test
MIN_HELD_OUT = 10  # as data_prep refuses fewer

# languages in file names: ISO 639 codes, also with a script or region
_LANG = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]+)*")


@dataclass(frozen=True)
class CorpusPaths:
    """The languages of a corpus and the path prefixes of its files."""

    src: str
    tgt: str
    train: str
    dev: str
    test: str | None  # None = there is no test set next to the training text
    mono: str | None = None  # text of the target language alone, mono.TGT; None = there is none

    @property
    def splits(self) -> dict[str, str]:
        """The path prefixes by the name of the split."""
        splits = {"train": self.train, "dev": self.dev, "test": self.test}
        return {name: path for name, path in splits.items() if path is not None}

    def files(self) -> list[str]:
        """List the files of the corpus."""
        langs = self.src, self.tgt
        files = [str(find_side(path, lang)) for path in self.splits.values() for lang in langs]
        return files if self.mono is None else [*files, str(find_side(self.mono, self.tgt))]


def find_corpus(
    prefix: str, src: str | None, tgt: str | None, mono: str | None = None
) -> CorpusPaths:
    """Find the languages of a corpus and its prefixes.

    Args:
        prefix: of the training files PREFIX.SRC and PREFIX.TGT.
        src, tgt: language codes; None = as MANIFEST.json says, else from the names of the files.
        mono: prefix of text of the target language; None = mono next to the training files.

    Raises:
        UserError: a file is missing, the languages are ambiguous, or there is no dev set.
    """
    require_usable(prefix)
    src, tgt = _languages(prefix, src, tgt)
    for lang in (src, tgt):
        find_side(prefix, lang)
    dev, test = (_held_out(prefix, split, src, tgt) for split in ("dev", "test"))
    if dev is None:
        raise _no_dev(prefix, src, tgt)
    if mono is not None:
        find_side(mono, tgt)
    elif has_side(_next_to(prefix, MONOLINGUAL), tgt):
        mono = _next_to(prefix, MONOLINGUAL)
    return CorpusPaths(src, tgt, prefix, dev, test, mono)


def _languages(prefix: str, src: str | None, tgt: str | None) -> tuple[str, str]:
    if src and tgt:
        if src == tgt:
            raise UserError(
                f'"{src}" is both the source and the target language',
                at="--src-lang, --tgt-lang",
                fix="name two languages: the endings of the two files",
            )
        return src, tgt
    said = languages_of(Path(prefix).parent)
    if said and not (src or tgt) and all(has_side(prefix, lang) for lang in said):
        return said[0], said[1]
    langs = _endings(prefix)
    if not langs:
        raise _no_files(prefix)
    if len(langs) == 1:
        raise UserError(
            f"there is only a file for {langs[0]}, and a corpus needs two languages",
            at=prefix,
            fix=f"save the translations of its lines next to it, as {Path(prefix).name}.LANG",
        )
    chosen = src or tgt
    others = [lang for lang in langs if lang != chosen]
    if chosen and len(others) == 1:
        return (chosen, others[0]) if src else (others[0], chosen)
    english = [lang for lang in langs if base_language(lang) == "en"]
    if not chosen and len(langs) == 2 and len(english) == 1:
        # most people translate from the language with little data
        (other,) = set(langs) - set(english)
        return other, english[0]
    first, second = src or others[0], tgt or others[-1]
    raise UserError(
        f"it is not clear which language to translate from and to: there are files for "
        f"{', '.join(langs)}",
        at=prefix,
        fix=f"name both: {command(prefix, first, second)}",
    )


def command(prefix: str, src: str, tgt: str) -> str:
    """Return the command that suggests a recipe for these languages."""
    return f"nmt-suggest {shlex.quote(prefix)} --src-lang {src} --tgt-lang {tgt}"


def _endings(prefix: str) -> list[str]:
    """List the endings of the files PREFIX.ENDING that look like language codes."""
    folder, stem = Path(prefix).parent, f"{Path(prefix).name}."
    names = [file.name for file in folder.iterdir()] if folder.is_dir() else []
    endings = {
        name.removesuffix(Path(name).suffix if Path(name).suffix in OPENERS else "")[len(stem) :]
        for name in names
        if name.startswith(stem)
    }
    return sorted(filter(_LANG.fullmatch, endings))


def _no_files(prefix: str) -> UserError:
    stem = re.sub(rf"\.{_LANG.pattern}(\.gz|\.xz|\.bz2)?$", "", prefix)
    if Path(prefix).is_file() and stem != prefix:
        return UserError(
            "is one file; a corpus has two, PREFIX.SRC and PREFIX.TGT",
            at=prefix,
            fix=f"leave out the language: nmt-suggest {shlex.quote(stem)}",
        )
    return UserError(
        "there are no files PREFIX.SRC and PREFIX.TGT with this prefix",
        at=prefix,
        fix="for corpus/train.gl and corpus/train.en, write nmt-suggest corpus/train",
    )


def _held_out(prefix: str, split: str, src: str, tgt: str) -> str | None:
    for name in HELD_OUT[split]:
        other = _next_to(prefix, name)
        if all(has_side(other, lang) for lang in (src, tgt)):
            return other
    return None


def _next_to(prefix: str, name: str) -> str:
    """Return the prefix of a set next to the training text: ``corpus/dev`` of ``corpus/train``."""
    path = Path(prefix)
    own = re.sub(r"(?<![^\W\d_])train(ing)?(?![^\W\d_])", name, path.name)  # a word of its name
    return str(path.with_name(own if own != path.name else name))


def has_side(prefix: str, lang: str) -> bool:
    """Check whether a corpus has a file of a language."""
    return any(Path(f"{prefix}.{lang}{suffix}").is_file() for suffix in OPENERS)


def _no_dev(prefix: str, src: str, tgt: str) -> UserError:
    names = " or ".join(HELD_OUT["dev"])
    what = f"there is no dev set next to it ({names}), which chooses the best checkpoint"
    pairs = sum(1 for _ in read_pairs((find_side(prefix, src), find_side(prefix, tgt))))
    size = min(HELD_OUT_SIZE, pairs // 10)
    if size < MIN_HELD_OUT:
        dev = _next_to(prefix, HELD_OUT["dev"][0])
        return UserError(
            f"{what}, and a corpus of {quantity(pairs, 'pair')} is too small to split",
            at=prefix,
            fix=f"collect at least {10 * MIN_HELD_OUT} pairs, or save other pairs as {dev}.{src} "
            f"and {dev}.{tgt}",
        )
    sizes = "" if size == HELD_OUT_SIZE else f" --dev-size {size} --test-size {size}"
    out = Path(prefix).parent / f"{src}-{tgt}"
    return UserError(
        what,
        at=prefix,
        fix=f"split the corpus: nmt-import moses {shlex.quote(prefix)} "
        f"--src-lang {src} --tgt-lang {tgt} -o {shlex.quote(str(out))}{sizes}\n     then run: "
        f"{command(str(out / 'train'), src, tgt)}",
    )
