"""Identify the language of a line: by lingua, or by a fastText model such as GlotLID or OpenLID."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from data_prep.languages import match_language
from data_prep.pairs import require_file
from nmt.data.near_duplicates import PLACEHOLDER, is_short
from nmt.errors import UserError, install_fix

# the probability that a line is in the language of a side (0 = source, 1 = target)
Identify: TypeAlias = Callable[[str, int], float]

CLEAR = 0.5  # a probability of the fast model of lingua that makes the accurate one unnecessary
_CANDIDATES = 5  # of a fastText model, which has up to 2,000 languages
_LABEL = "__label__"


def by_lingua(langs: tuple[str, str]) -> Identify | None:
    """Return the identifier of the package lingua; None without it, or without a language in it.

    Its accurate model takes most of the time, so it decides only about lines that its fast model
    does not recognize.
    """
    try:
        from lingua import Language, LanguageDetectorBuilder
    except ImportError:
        return None
    languages = {language.iso_code_639_3.name.lower(): language for language in Language.all()}
    try:
        wanted = [languages[match_language(lang, languages, "lingua")] for lang in langs]
    except UserError:
        return None
    builder = LanguageDetectorBuilder.from_all_languages
    fast, accurate = builder().with_low_accuracy_mode().build(), builder().build()

    def probability(line: str, side: int) -> float:
        first: float = fast.compute_language_confidence(line, wanted[side])
        if first > CLEAR:
            return first
        return float(accurate.compute_language_confidence(line, wanted[side]))

    return _of_text(probability)


def by_fasttext(path: Path, langs: tuple[str, str]) -> Identify:
    """Return the identifier of a fastText model.

    Raises:
        UserError: the package fasttext is not installed, or the file is no model, or does not know
            a language.
    """
    require_file(path)
    try:
        import fasttext
    except ImportError as error:
        raise UserError(
            "a fastText model needs the package fasttext", at=str(path), fix=install_fix("fasttext")
        ) from error
    try:
        model = fasttext.load_model(str(path))
        labels = [label.removeprefix(_LABEL) for label in model.get_labels()]
    except ValueError as error:
        raise UserError(
            f"is not a fastText model: {error}",
            at=str(path),
            fix="give the .bin or .ftz file of a language identifier, such as GlotLID or OpenLID",
        ) from error
    wanted = [f"{_LABEL}{match_language(lang, labels, str(path))}" for lang in langs]

    def probability(line: str, side: int) -> float:
        # model.predict would do the same, but fails with NumPy 2 in most builds of the package
        found = model.f.predict(f"{line}\n", _CANDIDATES, 0.0, "strict")
        return next((min(1.0, share) for share, label in found if label == wanted[side]), 0.0)

    return _of_text(probability)


def _of_text(probability: Identify) -> Identify:
    """Leave out placeholders and addresses; a line with few words could be in any language."""

    def identify(line: str, side: int) -> float:
        text = PLACEHOLDER.sub(" ", line).replace("\n", " ")
        return 1.0 if is_short(text) else probability(text, side)

    return identify
