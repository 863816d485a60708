"""Read two trained models of others, and compare what they compute here and in their own programs.

    python -m benchmarks.foreign_weights aren FOLDER --input TEXT -o OUT
    python -m benchmarks.foreign_weights annalog FOLDER --input MOLECULES -o OUT

``aren`` is ``tests/data/models/v2/aren-transliteration`` of the repository OpenNMT/CTranslate2:
Arabic names to Latin letters; TEXT is any Arabic text. ``annalog`` is the package ANNalog 1.0.6,
unpacked: molecules to molecules. Its search needs ``pip install rdkit partialsmiles``; MOLECULES is
a file of rdkit, rdkit/Data/NCI/first_5K.smi. OUT gets the model folders.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import ctranslate2
import torch
from torch import Tensor

import nmt
from benchmarks.foreign_models import ANNALOG, BEAM, SEARCH, START, convert_annalog, convert_aren
from nmt.apps.transformers.marian import export_transformers
from nmt.decoding.ctranslate2.folder import export
from nmt.errors import UserError
from nmt.store.model import Model

Hypotheses = list[list[tuple[list[str], float]]]  # of each input: pieces, and a log-probability


class Annalog:
    """ANNalog's own model and search."""

    def __init__(self, folder: Path) -> None:
        sys.path.insert(0, str(folder))
        from annalog import SMILESModelHandler
        from annalog.model_files import multi_gen_final

        weights, vocab = (str(folder / name) for name in ANNALOG)
        handler = SMILESModelHandler(vocab, vocab, weights, "cpu")
        self.field, self.model = handler.TRG, handler.model
        self.find = multi_gen_final.beam_search_decode
        self.split = self.field.tokenize

    def ids(self, tokens: list[str]) -> Tensor:
        """Return the ids of a molecule, with <sos> and <eos>: [1, L]."""
        return self.field.process([tokens])

    def n_best(self, tokens: list[str]) -> list[tuple[list[str], float]]:
        """Return what its beam search finds, and the log-probabilities."""
        src, model, device = self.ids(tokens), self.model, torch.device("cpu")
        longest = model.encoder.pos_embedding.num_embeddings
        mask = model.make_src_mask(src)
        best = self.find(model, src, mask, self.field, BEAM, longest, device, use_masking=True)
        itos = self.field.vocab.itos
        return [([itos[i] for i in ids[1:-1]], score) for ids, score in best]

    @torch.no_grad()
    def score(self, source: list[str], targets: list[list[str]]) -> list[float]:
        """Return the log-probabilities of targets."""
        tgt = self.field.process(targets)
        logits = self.model(self.ids(source).expand(len(tgt), -1), tgt[:, :-1])[0]
        scores = logits.log_softmax(-1).gather(2, tgt[:, 1:, None])[..., 0]
        return (scores * (tgt[:, 1:] != self.model.trg_pad_idx)).sum(1).tolist()


# --- compare ------------------------------------------------------------------------------------


def ours(model: Path, inputs: list[str], engine: str, **options: Any) -> Hypotheses:
    """Return the n-best lists of this toolkit, with log-probabilities."""
    translator = nmt.Translator.load(str(model), engine=engine)
    lists = translator.n_best(inputs, BEAM, split="line", **options)
    return [[(h.pieces, h.log_prob) for h in hypotheses] for hypotheses in lists]


def by_ctranslate2(folder: Path, inputs: Iterable[list[str]]) -> Hypotheses:
    """Return the n-best lists of CTranslate2 alone, with log-probabilities of forced decoding."""
    translator = ctranslate2.Translator(str(folder))
    sources = list(inputs)
    results = translator.translate_batch(sources, beam_size=BEAM, num_hypotheses=BEAM)
    lists = [result.hypotheses for result in results]
    pairs = [(src, tgt) for src, targets in zip(sources, lists, strict=True) for tgt in targets]
    scores = translator.score_batch(*map(list, zip(*pairs, strict=True)))
    totals = iter(sum(score.log_probs) for score in scores)
    return [[(tgt, next(totals)) for tgt in targets] for targets in lists]


def row(name: str, theirs: Hypotheses, ours: Hypotheses) -> None:
    """Print how many n-best lists are equal, and the largest difference of a log-probability."""
    pairs = list(zip(theirs, ours, strict=True))
    equal = sum([h[0] for h in a] == [h[0] for h in b] for a, b in pairs)
    best = sum(a[0][0] == b[0][0] for a, b in pairs)
    furthest = max(abs(x - y) for a, b in pairs for p, x in a for q, y in b if p == q)
    print(f"| {name} | {len(pairs):,} | {equal:,} | {best:,} | {furthest:.1e} |", flush=True)


def exports(name: str, model: Path, inputs: list[str], sources: Iterable[list[str]]) -> None:
    """Compare the exports of a model with it."""
    export(Model.open(model), model / "export", force=True)
    expected = ours(model, inputs, "torch", length_alpha=1.0)
    alone = by_ctranslate2(model / "export/ctranslate2", sources)
    row(f"{name}, export for CTranslate2", alone, expected)
    try:
        export_transformers(Model.open(model), model / "transformers", force=True)
    except UserError as error:
        print(f"{name}, export for transformers: {error}")


def fine_tune(parent: Path, words: list[str], best: list[str], out: Path) -> None:
    """Start a child with new letters, and print how many translations equal its parent's."""
    out.mkdir(exist_ok=True)
    new = [word.translate(str.maketrans("\u0628\u062c", "\u067e\u0686")) for word in words]  # p, ch
    for split, sources in (("train", new[:500]), ("dev", words[500:700])):
        targets = best[:500] if split == "train" else best[500:700]
        for lang, lines in (("ar", sources), ("en", targets)):
            (out / f"{split}.{lang}").write_text("".join(f"{x}\n" for x in lines), encoding="utf-8")
    result = nmt.train(
        {
            "src": "ar", "tgt": "en", "out": str(out / "run"), "device": "cpu", "precision": "fp32",
            "data": {"train": str(out / "train"), "dev": str(out / "dev"), "checks": "off",
            "max_pieces": 500},
            "init": {"from": str(parent), "vocab": "extend", "new_pieces": 2},
            "schedule": {"kind": "constant", "lr": 1e-12}, "decode": SEARCH,
            "train": {"validate_every": 1, "max_validations": 1, "min_lr": 1e-13},
        },
        quiet=True,
    )  # fmt: skip
    types = [len(Model.open(path).vocab) for path in (parent, out / "run")]
    pairs = zip(result.translator.translate(words[500:700]), best[500:700], strict=True)
    print(f"\naren, {types[1] - types[0]} new types: {sum(a == b for a, b in pairs)} of 200 equal")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", choices=["aren", "annalog"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--input", type=Path, required=True, help="text, or molecules")
    parser.add_argument("--count", type=int, default=1000, help="of inputs")
    parser.add_argument("--searched", type=int, default=100, help="of these by ANNalog itself")
    parser.add_argument("-o", "--output", type=Path, required=True)
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    model, text = args.output / args.model, args.input.read_text(encoding="utf-8")
    print("| compared | inputs | equal n-best lists | equal best | largest difference |")
    print("|---|---:|---:|---:|---:|")
    if args.model == "aren":
        convert_aren(args.folder, model)
        letters = set(Model.open(model).vocab.types)
        words = [w for w in dict.fromkeys(text.split()) if letters.issuperset(w) and len(w) > 2]
        words = words[: args.count]
        theirs = by_ctranslate2(args.folder, map(list, words))
        for engine in ("torch", "ctranslate2"):
            row(f"aren, {engine}", theirs, ours(model, words, engine))
        exports("aren", model, words, map(list, words))
        fine_tune(model, words, ["".join(h[0][0]) for h in theirs], args.output / "child")
        return
    convert_annalog(args.folder, model)
    reference = Annalog(args.folder)
    types = set(Model.open(model).vocab.types)
    split = [reference.split(line.split()[0]) for line in text.splitlines() if line.strip()]
    split = [tokens for tokens in split if types.issuperset(tokens) and len(tokens) <= 80]
    split = split[: args.count]
    molecules = [" ".join(tokens) for tokens in split]
    lists = ours(model, molecules, "torch")
    forced = []
    for src, hypotheses in zip(split, lists, strict=True):
        pieces = [h for h, _ in hypotheses]
        forced.append(list(zip(pieces, reference.score(src, pieces), strict=True)))
    row("ANNalog, scores of its class", forced, lists)
    row("ANNalog, ctranslate2", lists, ours(model, molecules, "ctranslate2"))
    exports("ANNalog", model, molecules, ([START, *tokens] for tokens in split))
    theirs = [reference.n_best(tokens) for tokens in split[: args.searched]]
    row("ANNalog, its own search", theirs, lists[: args.searched])


if __name__ == "__main__":
    main()
