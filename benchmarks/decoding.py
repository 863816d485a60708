"""How much faster is beam search with a key/value cache than without one?

    python -m benchmarks.decoding [--run RUN --input FILE] [--sentences 64] [--beam 4]

The baseline runs the decoder over the complete prefix of every beam at each position. Both use the
same search code, weights and batches, longest first. The share of equal hypotheses is printed.
Rounds alternate and medians are reported. Without a run, the model is untrained and every output
has the length of its source, so that the work is fixed.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import torch
from torch import Tensor

from nmt.data.batches import collate_sources
from nmt.data.vocab import BOS, PAD, UNK
from nmt.decoding.options import SearchOptions
from nmt.decoding.search import beam_search
from nmt.decoding.translator import Translator
from nmt.model.config import ModelConfig
from nmt.model.layout import Layout
from nmt.model.transformer import Transformer


class PrefixState:
    """A decoder state without a cache: each position recomputes the prefix of every beam."""

    def __init__(self, model: Transformer, src: Tensor, layout: Layout, beam: int) -> None:
        src_table, self.tgt_table, self.out_table = model.embedding_tables()
        self.model, self.beam = model, beam
        memory = model.encode(src, layout, src_table)
        parts = memory.split(layout.lengths.tolist())
        self.memory = [part for part in parts for _ in range(beam)]
        self.prefix = torch.empty(layout.shape[0], beam, 0, dtype=torch.int64)

    def advance(self, tokens: Tensor) -> Tensor:
        """Return the logits after the prefixes: [B, K] -> [B * K, V]."""
        self.prefix = torch.cat([self.prefix, tokens[..., None]], dim=-1)
        batch, beam, length = self.prefix.shape
        layout = Layout.of([length] * (batch * beam))
        positions = layout.positions
        x = self.model.tgt_input(self.prefix.flatten(), self.tgt_table, positions, length)
        memory_layout = Layout.of([len(part) for part in self.memory])
        states = self.model.decoder(x, layout, torch.cat(self.memory), memory_layout)
        last = states.view(batch * beam, length, -1)[:, -1]
        return self.model.logits(last, self.out_table).float()

    def select(self, parents: Tensor) -> None:
        index = parents[..., None].expand_as(self.prefix)
        self.prefix = self.prefix.gather(1, index)

    def keep(self, sentences: Tensor) -> None:
        self.prefix = self.prefix[sentences]
        rows = (sentences[:, None] * self.beam + torch.arange(self.beam)).flatten().tolist()
        self.memory = [self.memory[row] for row in rows]


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--run", help="run folder; default: an untrained 3+3 layer model, dim 256")
    p.add_argument("--input", help="source text, with --run")
    p.add_argument("--sentences", type=int, default=64)
    p.add_argument("--beam", type=int, default=4)
    p.add_argument("--rounds", type=int, default=3)
    args = p.parse_args()
    model, sources, offset = _setup(args)
    sources.sort(key=len, reverse=True)
    batches = [collate_sources(sources[i : i + 32]) for i in range(0, len(sources), 32)]

    def search(cached: bool) -> tuple[list[list[int]], float]:
        found, begin = [], time.perf_counter()
        with torch.no_grad():
            for src, layout in batches:
                limit = layout.lengths + offset
                state = (
                    model.start_decoding(src, layout, args.beam, int(limit.max()))
                    if cached
                    else PrefixState(model, src, layout, args.beam)
                )
                forbidden = torch.tensor([PAD, BOS, UNK])
                results = beam_search(state, args.beam, limit, SearchOptions().penalty, forbidden)
                found += [n_best[0].ids for n_best in results]
        return found, time.perf_counter() - begin

    ours, theirs = search(True)[0], search(False)[0]  # also the warm-up
    equal = sum(a == b for a, b in zip(ours, theirs, strict=True))
    tokens = sum(len(ids) + 1 for ids in ours)
    times: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(args.rounds):
        for cached in (True, False):
            times[cached].append(search(cached)[1])
    fast, slow = (statistics.median(times[cached]) for cached in (True, False))
    print(
        f"beam {args.beam}, {len(sources)} sentences, {tokens} output tokens, "
        f"{torch.get_num_threads()} threads, torch {torch.__version__}; "
        f"{equal} of {len(ours)} hypotheses equal"
    )
    print(f"cached         {tokens / fast:8.0f} tokens/s  {len(sources) / fast:7.1f} sentences/s")
    print(f"prefix re-run  {tokens / slow:8.0f} tokens/s  {len(sources) / slow:7.1f} sentences/s")
    print(f"ratio          {slow / fast:8.2f}")


def _setup(args: argparse.Namespace) -> tuple[Transformer, list[np.ndarray], int]:
    if args.run:
        t = Translator.load(args.run, "cpu")
        with open(args.input, encoding="utf-8") as file:
            lines = [line.strip() for line, _ in zip(file, range(args.sentences), strict=False)]
        sources = [
            np.array(t.codec.vocab.ids(t.codec.segmenter.encode(line, t.codec.src)))
            for line in lines
        ]
        return (
            t.transformer.eval(),
            [ids for ids in sources if len(ids)],
            t.info.decode.max_len_offset,
        )
    model = Transformer(
        ModelConfig(dim=256, ffn_dim=1024, heads=4, enc_layers=3, dec_layers=3), 8000
    )
    rng = np.random.default_rng(1)
    lengths = np.clip(rng.normal(25, 6, args.sentences), 5, 45).astype(int)
    return model.eval(), [rng.integers(4, 8000, n) for n in lengths], 0


if __name__ == "__main__":
    main()
