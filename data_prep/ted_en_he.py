"""English-Hebrew of the TED talks corpus, a pair of "Transformers without Tears" (table 1)."""

from __future__ import annotations

import sys

from data_prep.common import command
from data_prep.ted_talks import of_pair

prepare = of_pair("en", "he")


def main(argv: list[str] | None = None) -> int:
    """The command."""
    return command(prepare, __doc__, argv)


if __name__ == "__main__":
    sys.exit(main())
