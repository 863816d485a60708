"""Identify the language of a line: by lingua, or by a fastText model such as GlotLID or OpenLID."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from data_prep.languages import iso639_3, language_group, match_language
from data_prep.pairs import require_file
from nmt.errors import UserError, install_fix
from nmt.text.languages import scripts_of

# the probability that words are not in the language of a side (0 = source, 1 = target)
Identify: TypeAlias = Callable[[str, int], float]

_CANDIDATES = 5  # of a fastText model, which has up to 2,000 languages
_LABEL = "__label__"


def by_lingua(langs: tuple[str, str]) -> Identify | None:
    """Return the identifier of the package lingua; None without it, or without a language in it.

    It decides only between the two languages. If it does not know one of them in the script of a
    line, such as Serbian in Latin letters, the line passes.
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
    if wanted[0] == wanted[1]:
        return None
    detector = LanguageDetectorBuilder.from_languages(*wanted).build()
    by_script = {
        "LATIN": Language.all_with_latin_script(),
        "CYRILLIC": Language.all_with_cyrillic_script(),
        "ARABIC": Language.all_with_arabic_script(),
        "DEVANAGARI": Language.all_with_devanagari_script(),
    }

    def probability(text: str, side: int) -> float:
        scripts = scripts_of(text)
        script = scripts.most_common(1)[0][0]
        if script in by_script and wanted[side] not in by_script[script]:
            return 0.0
        if scripts.keys() == {"CJK"}:  # Japanese too is written in Chinese characters alone
            return 0.0
        return float(detector.compute_language_confidence(text, wanted[1 - side]))

    return probability


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
    for lang in langs:
        if iso639_3(lang) not in map(iso639_3, labels):
            match_language(lang, labels, str(path))
    own = [
        {f"{_LABEL}{label}" for label in labels if language_group(label) == language_group(lang)}
        for lang in langs
    ]

    def probability(text: str, side: int) -> float:
        # model.predict would do the same, but fails with NumPy 2 in most builds of the package
        predictions = model.f.predict(f"{text}\n", _CANDIDATES, 0.0, "strict")
        # a language has a label for each script
        return max(
            (min(1.0, share) for share, label in predictions if label not in own[side]), default=0
        )

    return probability
