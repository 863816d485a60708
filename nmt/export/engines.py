"""Choose the engine that searches: this toolkit with torch, CTranslate2, or the faster of the two.

CTranslate2's beam search ends by the stop rule count (docs/export.md), so ``auto`` uses it only
where both find the same: greedy search, and beam search by that rule, without constraints. There it
takes a third of the time for a single sentence.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import nmt
from nmt.decoding.engine import Hypothesis, Progress, SearchInput, Stop, ignore
from nmt.decoding.options import SearchOptions
from nmt.decoding.translator import Runs, Translator, listed
from nmt.errors import NmtError, UserError
from nmt.export.backend import CTranslate2Engine, load_exported
from nmt.export.metadata import read_metadata, verify_files
from nmt.export.spec import largest_offset
from nmt.run.folder import is_export

ENGINES = ("auto", "torch", "ctranslate2")
WHERE_SAME = "greedy search and stop rule count"
# options that CTranslate2 gets, or that change nothing for it; others must have their defaults
SAME_RESULT = {
    "beam", "stop_rule", "split", "length_alpha", "max_len_offset", "allow_unk", "batch_tokens",
    "tag", "src", "align",
}  # fmt: skip


class AutoEngine:
    """Searches with CTranslate2 where that is equal and faster, and elsewhere with torch.

    The export is made when it is first needed, and kept in the cache of the user.

    Args:
        translator: of a run folder, with torch.
    """

    name = f"torch; ctranslate2 for {WHERE_SAME}, if it can express the model"

    def __init__(self, translator: Translator) -> None:
        from nmt.decoding.torch_engine import TorchEngine

        assert isinstance(translator.engine, TorchEngine)
        self._translator, self._torch = translator, translator.engine
        self.device, self.precision = self._torch.device, self._torch.precision
        self.check_options, self.model_hash = self._torch.check_options, self._torch.model_hash
        self.score = self._torch.score

    def search(
        self,
        inputs: Sequence[SearchInput],
        options: SearchOptions,
        stop: Stop = ignore,
        progress: Progress = ignore,
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each input, best first, from either engine."""
        fits = options.max_len_offset <= largest_offset(self._translator.info.decode)
        faster = self._ctranslate2 if fits and finds_the_same(inputs, options) else None
        return (faster or self._torch).search(inputs, options, stop, progress)

    @functools.cached_property
    def _ctranslate2(self) -> CTranslate2Engine | None:
        """CTranslate2 with this model, or None if that is impossible; says which, once."""
        try:
            engine = self._export()
            print(f"note: engine ctranslate2 for {WHERE_SAME}", file=sys.stderr)
            return engine
        except (NmtError, OSError, RuntimeError) as error:
            reason = error.what if isinstance(error, NmtError) else str(error)
            print(f"note: engine torch, because {reason}", file=sys.stderr)
            return None

    def _export(self) -> CTranslate2Engine:
        """Return CTranslate2 with the cached export, which is made if it is missing.

        Raises:
            NmtError: CTranslate2 is not installed or does not support the model or the device.
        """
        from nmt.export.folder import export
        from nmt.model.transformer import Transformer

        translator, engine = self._translator, self._torch
        if not isinstance(engine.model, Transformer):
            raise UserError("CTranslate2 does not support ensembles")
        if engine.device.type != "cpu" or engine.precision != "fp32":
            raise UserError("auto is for a CPU and fp32")
        digest = hashlib.sha256(f"{nmt.__version__} {engine.model_hash()}".encode())
        for settings in (asdict(engine.model.config), translator.info.decode.model_dump()):
            digest.update(json.dumps(settings).encode())
        folder = cache_folder() / digest.hexdigest()[:32]
        if not _is_intact(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            try:
                export(translator, folder, force=is_export(folder))
            except (UserError, FileExistsError):
                if not _is_intact(folder):  # otherwise another process was faster
                    raise
        metadata = read_metadata(folder)
        return CTranslate2Engine(folder, translator.codec, metadata, "cpu", engine.workers)


def _is_intact(folder: Path) -> bool:
    if not is_export(folder):
        return False
    try:
        verify_files(folder)
    except UserError:
        return False
    return True


def finds_the_same(inputs: Sequence[SearchInput], options: SearchOptions) -> bool:
    """Return whether both engines find the same hypothesis of each input."""
    changed = {
        name
        for name, field in SearchOptions.model_fields.items()
        if getattr(options, name) != field.get_default()
    }
    free = not any(i.prefix.ids or i.require or i.forbid for i in inputs)
    same_rule = options.beam == 1 or options.stop_rule == "count"
    return same_rule and changed <= SAME_RESULT and free


def cache_folder() -> Path:
    """Return the folder of automatic exports, below XDG_CACHE_HOME or ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "nmt" / "ctranslate2"


def load_translator(
    run: Runs,
    device: str = "auto",
    checkpoint: str = "best",
    precision: str = "fp32",
    workers: int = 1,
    engine: str | None = None,
    reverse: Runs | None = None,
) -> Translator:
    """Return the translator of a run folder, of several as an ensemble, or of an exported folder.

    Args:
        run: a run folder from nmt-train; several, for an ensemble; or an exported folder from
            nmt-export, which CTranslate2 searches without torch.
        device, checkpoint, precision, workers: see ``Translator.load``.
        engine: library that searches: torch; ctranslate2; or auto, which uses ctranslate2 if it
            finds the same translations (beam 1, or stop_rule count). None = ctranslate2 for an
            exported folder, else torch.
        reverse: see ``Translator.load``; a run folder, also with engine ctranslate2.

    Raises:
        UserError: the engine is unknown or does not support what is asked for, or a folder cannot
            be loaded.
        MachineError: the device does not exist.
    """
    if engine not in (*ENGINES, None):
        raise UserError(f"engine: {engine!r} is not one of {', '.join(ENGINES)}", fix="choose one")
    for folder in listed(reverse):
        if is_export(Path(folder)):
            raise UserError(
                "an exported folder cannot be the reverse model",
                at=str(folder),
                fix="pass the run folder from nmt-train",
            )
    runs = listed(run)
    exported = [folder for folder in runs if is_export(Path(folder))]
    if engine == "ctranslate2" or (exported and engine != "torch"):
        if len(runs) != 1:
            raise UserError(
                "CTranslate2 does not support ensembles" if runs else "no folder is given",
                fix="pass one folder, or only run folders from nmt-train",
            )
        if precision != "fp32":
            raise UserError(
                "--precision is not supported with CTranslate2",
                fix="run nmt-export with --quantization, and translate with the exported folder",
            )
        back = None if reverse is None else Translator.load(reverse, device)
        return load_exported(runs[0], device, checkpoint, workers, back)
    if exported:
        raise UserError(
            "an exported folder has no weights for torch",
            at=str(exported[0]),
            fix="pass the run folder from nmt-train, or choose engine ctranslate2",
        )
    translator = Translator.load(runs, device, checkpoint, precision, workers, reverse)
    if engine != "auto":
        return translator
    return Translator(AutoEngine(translator), translator.codec, translator.info, translator.reverse)
