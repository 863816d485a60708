"""Translators without a model, for the commands around them; they import no torch."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from nmt.config.entries import Directions
from nmt.config.recipe import DecodeConfig
from nmt.decoding.codec import Translation, UnknownPieces
from nmt.decoding.engine import ModelInfo
from nmt.decoding.options import SearchOptions
from nmt.text.sentences import UsualLine
from nmt.text.tokenizer import Moses


class Imitation:
    """All that nmt-translate asks of a translator, but for ``stream``."""

    engine = SimpleNamespace(
        name="imitation", device="cpu", precision="fp32", model_hash=lambda: "imitation"
    )
    info = ModelInfo(DecodeConfig(), "run/checkpoints/u000001")
    unknown = UnknownPieces()
    codec: Any = SimpleNamespace(
        usual=UsualLine(),
        directions=Directions(),
        vocab=SimpleNamespace(tags=["<de>"], tgt_tags=[]),
        segmenter=SimpleNamespace(moses=Moses(tokenized=False)),
        langs=lambda options: ("en", "en"),
    )

    def check_options(self, options: SearchOptions) -> SearchOptions:
        return options.with_defaults(DecodeConfig())

    def engine_for(self, options: SearchOptions) -> Any:
        return self.engine

    def why_torch(self, options: SearchOptions) -> str:
        return ""


class Capitals(Imitation):
    """Returns each line in capitals; it fails at "fail" and hangs at "wait"."""

    def stream(
        self,
        lines: Iterator[str],
        skip: int = 0,
        progress: Callable[[int], None] = lambda count: None,
        **options: Any,
    ) -> Iterator[list[Translation]]:
        for line in itertools.islice(lines, skip, None):
            if line == "fail":
                raise KeyboardInterrupt
            if line == "wait":
                print("waiting", file=sys.stderr, flush=True)
                time.sleep(600)
            if line.startswith("create "):  # as another program may do
                Path(line.removeprefix("create ")).write_text("precious")
            progress(1)
            yield [Translation([], line.upper(), -1.0, -1.0, True)] * options["checked"].n_best
