"""The README of an exported folder."""

from __future__ import annotations

from collections.abc import Sequence

from nmt.config.recipe import DecodeConfig
from nmt.data.segment import Segmenter
from nmt.export.program import TYPICAL, ctranslate2_penalty

_README = """\
# {src}-{tgt} translation model for CTranslate2

Weights: {quantization}. Written by nmt-export.

`pip install {packages}`, then, in this folder, `python translate.py < TEXT`. This is translate.py:

```python
{program}```

For much text give `translate_batch` many lines of similar length at once; on a CPU several
translators of one thread each (`inter_threads=`, `intra_threads=1`) are faster than one of
several threads.

| file | what |
|---|---|
| `model.bin`, `config.json`, `shared_vocabulary.json` | CTranslate2's model |
| `segmenter.json`{files} | how text becomes pieces |
| `vocab.txt` | types, with their counts in the source and the target training text |
| `nmt.json` | languages and decode settings |

Sentences have at most {positions:,} pieces. Source and target share the vocabulary; its special
tokens are written with spaces (`< unk >`), so that no piece of text can be one. CTranslate2 adds
the end of the source itself.

Where translations can differ from those of the toolkit that trained the model:

- Length penalty: CTranslate2 divides a log-probability by n^p, the recipe asks for ((5+n)/6)^a with
  a = {alpha:g}. p = {penalty:g} grows alike at {typical} pieces.
- CTranslate2 ends a sentence when as many hypotheses as the beam is wide have ended.
- It takes forbidden tokens (UNK, an end at the first position) out before the softmax, so the
  others share their probability.
{text_note}"""

_MOSES_NOTE = """\
- translate.py uses sacremoses as it is. nmt-translate also mends quotes, non-Latin marks and words
  with combining characters{bpe}.
"""


def readme(
    segmenter: Segmenter,
    src: str,
    tgt: str,
    decode: DecodeConfig,
    program: str,
    packages: Sequence[str],
    quantization: str | None,
    positions: int,
) -> str:
    """The text of README.md."""
    bpe = ", and protects `@@` in text" if segmenter.kind == "fastbpe" else ""
    return _README.format(
        src=src,
        tgt=tgt,
        quantization=quantization or "fp32",
        packages=" ".join(packages),
        program=program,
        files="".join(f", `{name}`" for name in segmenter.files()),
        positions=positions,
        alpha=decode.length_alpha,
        penalty=round(ctranslate2_penalty(decode.length_alpha), 3),
        typical=TYPICAL,
        text_note=_MOSES_NOTE.format(bpe=bpe) if "sacremoses" in packages else "",
    )
