"""Text to text through CTranslate2: an exported folder, or a run folder exported on the way."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence, Set
from pathlib import Path
from typing import Any

from nmt.data.segment import load_segmenter
from nmt.data.vocab import Vocab
from nmt.decoding.codec import SearchInput, TextCodec, Translation
from nmt.decoding.found import Hypothesis
from nmt.decoding.options import SearchOptions
from nmt.decoding.translator import Translator
from nmt.decoding.worker_pool import checked_workers
from nmt.errors import UserError
from nmt.export.backend import Engine, resolve_device
from nmt.export.metadata import is_export, read_metadata
from nmt.export.spec import check_expressible, require_ctranslate2

ABLE = {
    "beam", "length_alpha", "max_len_offset", "allow_unk", "batch_tokens", "n_best",
    "no_repeat_ngram", "mbr", "candidates",
}  # fmt: skip


class ExportedTranslator(Translator):
    """A Translator whose search is CTranslate2's; lines, parts and options are treated alike."""

    def __init__(self, folder: Path, device: str, source: str, workers: int) -> None:
        """
        Args:
            folder: an exported one, which is no longer needed afterwards.
            device: auto, cpu, cuda or cuda:N.
            source: where the weights are from, for errors.
            workers: batches that are searched at once on a CPU, by threads.

        Raises:
            UserError: it is damaged.
        """
        self.source, self.workers = source, checked_workers(workers)
        facts, self.decode = read_metadata(folder)
        self.precision = "fp32"  # what its weights are stored in is part of the fingerprint
        self.segmenter, self.vocab = load_segmenter(folder), Vocab.load(folder)
        self.src, self.tgt = facts.src, facts.tgt
        self.sentences = TextCodec(self.segmenter, self.vocab, self.src, self.tgt)
        self.device = resolve_device(device)[0]  # type: ignore[assignment]  # without torch
        self.engine = _open(folder, self.vocab, facts.never, device, workers)
        weights = hashlib.sha256((folder / "model.bin").read_bytes()).hexdigest()
        self._fingerprint = f"{self.text_fingerprint} {weights}"

    def _search(
        self,
        sentences: Sequence[SearchInput],
        options: SearchOptions,
        stop: Callable[[], None] | None = None,
        done: Callable[[Sequence[SearchInput]], None] = lambda searched: None,
    ) -> list[list[Hypothesis]]:
        if stop is not None:
            stop()
        with self._finite_scores(sentences):
            found = self.engine.search([s.ids for s in sentences], options)
        done(sentences)
        return found

    def fingerprint(self) -> str:
        """SHA-256 of the exported model, and of all that gives ids their meaning."""
        return self._fingerprint

    def score_stream(self, *texts: Any, **options: Any) -> Iterator[Translation]:
        """Not with this engine."""
        raise UserError(
            "engine ctranslate2 cannot score given translations",
            fix="give a run folder, with --engine torch",
        )

    def checked(self, given: dict[str, Any], wishes: Set[str] = frozenset()) -> SearchOptions:
        """The options of one call, those that CTranslate2 lacks refused."""
        options = super().checked(given, wishes)
        unable = [
            name.replace("_", "-")
            for name, field in SearchOptions.model_fields.items()
            if name not in ABLE and getattr(options, name) != field.get_default()
        ]
        unable += sorted(wishes)
        if unable:
            raise UserError(
                f"engine ctranslate2 cannot do {', '.join(unable)}",
                fix="leave it out, or translate a run folder with --engine torch",
            )
        return options


def load_exported(
    path: str | Path, device: str = "auto", checkpoint: str = "best", workers: int = 1
) -> Translator:
    """The translator of an exported folder, or of a run folder by way of a temporary export.

    Args:
        path: a folder that nmt-export or nmt-train wrote.
        device: auto, cpu, cuda or cuda:N, as CTranslate2 sees them.
        checkpoint: of a run folder.
        workers: batches that are searched at once on a CPU, by threads.

    Raises:
        UserError: CTranslate2 is not installed or cannot express the model; the folder is damaged,
            or neither of the two.
    """
    require_ctranslate2()
    if is_export(Path(path)):
        if checkpoint != "best":
            raise UserError(
                "an exported folder has the checkpoint that it was made from",
                at="--checkpoint",
                fix="give it to nmt-export, or give the run folder",
            )
        return ExportedTranslator(Path(path), device, str(path), workers)
    original = Translator.load(path, "cpu", checkpoint)
    check_expressible(original.transformer.config)
    with tempfile.TemporaryDirectory(prefix="nmt-export-") as folder:
        from nmt.export.folder import write

        write(original, Path(folder), None)
        assert original.source is not None
        return ExportedTranslator(Path(folder), device, original.source, workers)


def _open(folder: Path, vocab: Vocab, never: Sequence[str], device: str, workers: int) -> Engine:
    try:
        tokens = json.loads((folder / "shared_vocabulary.json").read_text(encoding="utf-8"))
        engine = Engine(folder, vocab, never, device, workers)
        if tokens != engine.tokens:
            raise ValueError("vocab.txt and shared_vocabulary.json differ")
        return engine
    except (OSError, ValueError, RuntimeError, RecursionError) as error:
        raise UserError(
            f"CTranslate2's model cannot be read: {error}",
            at=str(folder),
            fix="export the run again with nmt-export",
        ) from error
