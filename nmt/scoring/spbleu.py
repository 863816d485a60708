"""BLEU on SentencePiece pieces of many languages (spBLEU; Goyal et al. 2022, FLORES-101,
https://aclanthology.org/2022.tacl-1.30), comparable between languages and scripts.

sacreBLEU downloads the SentencePiece model when it first needs it, and publishes no checksum. Here,
nothing is downloaded. The model is a file in sacreBLEU's folder, and score and signature are
sacreBLEU's; or it is a file at a path, and the signature names its SHA-256.
"""

from __future__ import annotations

import functools
from pathlib import Path

from sacrebleu.metrics import BLEU
from sacrebleu.tokenizers.tokenizer_spm import SPM_MODELS
from sacrebleu.utils import SACREBLEU_DIR

from nmt.errors import UserError
from nmt.runtime.files import file_digest

_DIGITS = 8  # of the SHA-256 in a signature


class _Pieces:
    """A tokenizer of sacreBLEU, with the SentencePiece model of a file."""

    def __init__(self, file: Path) -> None:
        from sentencepiece import SentencePieceProcessor

        self._model = SentencePieceProcessor()
        self._model.Load(str(file))
        self._split = functools.lru_cache(maxsize=1 << 16)(self._pieces)

    def _pieces(self, line: str) -> str:
        return " ".join(self._model.EncodeAsPieces(line))

    def __call__(self, line: str) -> str:
        return self._split(line)


def spbleu(tokenizer: str, file: Path | None = None) -> BLEU:
    """Make sacreBLEU's BLEU on the pieces of a SentencePiece model.

    Args:
        tokenizer: sacreBLEU's name of it: flores200 or flores101.
        file: the model; None = the one in sacreBLEU's folder.

    Raises:
        UserError: there is no such file, or it is not a SentencePiece model.
    """
    path = downloaded_model(tokenizer) if file is None else file
    if not path.is_file():
        url = SPM_MODELS[tokenizer]["url"]
        raise UserError(
            f"spBLEU needs the SentencePiece model {tokenizer}, and there is no such file",
            at=str(path),
            fix=f"download it once: curl -L --create-dirs -o {path} {url}"
            if file is None
            else "give the path of the SentencePiece model to --spbleu-model",
        )
    try:
        if file is None:
            return BLEU(tokenize=tokenizer, force=True)
        bleu = BLEU(tokenize="none", force=True)
        bleu.tokenizer = _Pieces(file)
    except (OSError, RuntimeError) as error:
        raise UserError(
            "is not a SentencePiece model", at=str(path), fix="delete it and download it again"
        ) from error
    bleu.tokenizer_signature = f"{tokenizer}-sha256:{file_digest(file)[:_DIGITS]}"
    return bleu


def downloaded_model(tokenizer: str) -> Path:
    """Locate sacreBLEU's SentencePiece model: in ~/.sacrebleu, or in $SACREBLEU."""
    return Path(SACREBLEU_DIR) / "models" / Path(SPM_MODELS[tokenizer]["url"]).name
