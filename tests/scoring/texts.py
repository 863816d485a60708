"""Synthetic hypotheses and references: the same text on every machine and Python version."""

from __future__ import annotations

from collections.abc import Iterator

NO_BREAK_SPACE = "\u00a0"


def numbers(seed: int) -> Iterator[int]:
    """Yield numbers of Park and Miller's minimal standard generator."""
    state = seed
    while True:
        state = state * 48271 % 2147483647
        yield state


def reference(lines: int, seed: int = 1) -> list[str]:
    """Return sentences of 0 to 24 words; a few are very frequent, one contains a no-break space."""
    draw = numbers(seed)
    words = [f"w{next(draw) % 7}{'aeiou'[i % 5]}{i}" for i in range(200)]
    words[3] = f"p.{NO_BREAK_SPACE}7"
    words[11] = "café"

    def word() -> str:
        return words[(next(draw) % 200) * (next(draw) % 200) // 200]

    return [" ".join(word() for _ in range(next(draw) % 25)) for _ in range(lines)]


def hypothesis(refs: list[str], damage: int, seed: int = 7) -> list[str]:
    """Return the reference with ``damage`` % of its words dropped, replaced or doubled."""
    draw = numbers(seed)
    hyps = []
    for line in refs:
        words: list[str] = []
        for word in line.split(" "):
            kind = next(draw) % 3 if next(draw) % 100 < damage else 3
            words += [[], ["other"], [word, word], [word]][kind]
        hyps.append(" ".join(words))
    return hyps
