"""How nmt-translate writes a hypothesis, and which line of the input a written one belongs to."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from nmt.decoding.codec import Translation

# number of the line from 0, hypothesis -> a line of output
Render: TypeAlias = "Callable[[int, Translation], str]"


def as_text(number: int, h: Translation) -> str:
    """The translation alone."""
    return h.text


def with_score(number: int, h: Translation) -> str:
    """SCORE, tab, translation."""
    return f"{h.score:.4f}\t{h.text}"


def as_n_best(number: int, h: Translation) -> str:
    """As Moses writes lists of hypotheses."""
    return f"{number} ||| {h.text} ||| {h.log_prob:.4f} ||| {h.score:.4f}"


def as_numbers(number: int, h: Translation) -> str:
    """LOG-PROBABILITY, tab, SCORE: the text was given."""
    return f"{h.log_prob:.4f}\t{h.score:.4f}"


def as_json(number: int, h: Translation) -> str:
    """One object; JSON has no infinity, so that is null."""
    values: dict[str, Any] = {
        "line": number,
        "text": h.text,
        "log_prob": h.log_prob if math.isfinite(h.log_prob) else None,
        "score": h.score if math.isfinite(h.score) else None,
        "finished": h.finished,
        "pieces": h.pieces,
        "token_log_probs": h.token_log_probs,
        "alignment": h.alignment,
    }
    return json.dumps(values, ensure_ascii=False)


def with_alignment(render: Render) -> Render:
    """The same with the alignment behind it, in Pharaoh's format: ``0-0 1-2``."""

    def rendered(number: int, h: Translation) -> str:
        return f"{render(number, h)} ||| {' '.join(f'{i}-{j}' for i, j in h.alignment)}"

    return rendered


def n_best_line(line: bytes) -> int:
    """The input line of what ``as_n_best`` wrote."""
    return int(line.partition(b" ")[0])


def json_line(line: bytes) -> int:
    """The input line of what ``as_json`` wrote."""
    return int(json.loads(line)["line"])


def one_each(line: bytes) -> int:
    """One line of output for each of the input."""
    return -1
