"""The baseline of several benchmarks: a model of others in an eager training loop.

The model is ``torch.nn.Transformer``, with the weights of ours, or one of Hugging Face.

The loop does what older toolkits do: padded batches, ``F.cross_entropy``, ``clip_grad_norm_``, and
loss and norm read from the device at each update. Its optimizer is always fused Adam, for any
``optim.kind``; learning rate, betas and eps are those of the recipe.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.common import padded
from benchmarks.torch_transformer import TorchTransformer
from nmt.config.model import model_config
from nmt.config.recipe import ModelConfig, Recipe
from nmt.data.batches import make_batches
from nmt.data.prepare import Prepared
from nmt.data.vocab import BOS, EOS, PAD
from nmt.data.workers import Prefetcher
from nmt.model.transformer import Transformer
from nmt.runtime.device import autocast, resolve_precision


def baseline_recipe(recipe: Recipe) -> Recipe:
    """Return the recipe with a model that nn.Transformer supports: PreNorm and LayerNorm."""
    sizes = {"dim", "ffn_dim", "heads", "enc_layers", "dec_layers", "dropout"}
    model = ModelConfig(
        **recipe.model.model_dump(include=sizes),
        norm="layernorm",
        fixnorm=False,
        logit_mask=False,
        word_dropout=0.0,
    )
    return recipe.model_copy(update={"model": model})


class EagerLoop:
    """Train a model of others, starting from the weights of ours where ``build`` copies them.

    Args:
        recipe: from ``baseline_recipe``.
        prepared: the recipe's data.
        device: where the model is.
        random_order: batch sentences in random order instead of by length.
        build: makes the model, which returns logits for padded ids, from ours.
    """

    def __init__(
        self,
        recipe: Recipe,
        prepared: Prepared,
        device: torch.device,
        random_order: bool = False,
        build: Callable[[Transformer], nn.Module] = TorchTransformer,
    ) -> None:
        self.recipe, self.prepared, self.device = recipe, prepared, device
        self.make_batches = random_batches if random_order else make_batches
        ours = Transformer(model_config(recipe.model), len(prepared.vocab))
        ours.init_weights(torch.Generator().manual_seed(recipe.seed))
        self.model = build(ours).to(device)
        self.precision = resolve_precision(recipe.precision, device)
        adam = {"betas": recipe.optim.betas, "eps": recipe.optim.eps}
        self.optimizer = torch.optim.Adam(self.model.parameters(), fused=True, **adam)
        self.batches = Prefetcher(self._batches())
        self.stream = iter(self.batches)

    @torch.no_grad()
    def loss(self) -> float:
        """Return the fp32 loss per target token of the first batch, without dropout."""
        self.model.eval()
        src, tgt_in, tgt_out = self._padded(first_batch(self.recipe, self.prepared))
        return float(self._loss(src, tgt_in, tgt_out)) / int((tgt_out != PAD).sum())

    def update(self, lr: float = 1e-4) -> int:
        """Train on the next batch and return its number of target tokens."""
        self.optimizer.param_groups[0]["lr"] = lr
        tokens, (src, tgt_in, tgt_out) = next(self.stream)
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        with autocast(self.device, self.precision):
            loss = self._loss(src, tgt_in, tgt_out)
        (loss / tokens).backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.optim.clip_norm)
        if np.isfinite(norm.item()) and np.isfinite(loss.item()):
            self.optimizer.step()
        return tokens

    def _loss(self, src: Tensor, tgt_in: Tensor, tgt_out: Tensor) -> Tensor:
        return F.cross_entropy(
            self.model(src, tgt_in).flatten(0, 1).float(),
            tgt_out.flatten(),
            ignore_index=PAD,
            label_smoothing=self.recipe.optim.label_smoothing,
            reduction="sum",
        )

    def _batches(self) -> Iterator[tuple[int, tuple[Tensor, ...]]]:
        corpus, limit, seed = self.prepared.train, self.recipe.data.batch_tokens, self.recipe.seed
        for epoch in itertools.count():
            for rows in self.make_batches(corpus.src_len, corpus.tgt_len, limit, seed, epoch):
                yield int(corpus.tgt_len[rows].sum()) + len(rows), self._padded(rows)

    def _padded(self, rows: np.ndarray) -> tuple[Tensor, ...]:
        """Return source, target input and target output of these rows, padded: [B, L] each."""
        corpus = self.prepared.train
        eos, bos = np.array([EOS]), np.array([BOS])
        sides = (
            [np.concatenate([corpus.src(row), eos]) for row in rows],
            [np.concatenate([bos, corpus.tgt(row)]) for row in rows],
            [np.concatenate([corpus.tgt(row), eos]) for row in rows],
        )
        hosts = [padded(side) for side in sides]
        if self.device.type == "cuda":
            hosts = [host.pin_memory() for host in hosts]
        return tuple(host.to(self.device, non_blocking=True) for host in hosts)


def first_batch(recipe: Recipe, prepared: Prepared) -> np.ndarray:
    lengths = prepared.train.src_len, prepared.train.tgt_len
    return make_batches(*lengths, recipe.data.batch_tokens, recipe.seed, 0)[0]


def random_batches(
    src_len: np.ndarray, tgt_len: np.ndarray, batch_tokens: int, seed: int, epoch: int
) -> Iterator[np.ndarray]:
    """Yield batches within ``batch_tokens`` like ``make_batches``, but of rows in random order."""
    lengths = np.maximum(src_len, tgt_len) + 1
    batch: list[int] = []
    batch_width = 0
    for row in np.random.default_rng([seed, epoch]).permutation(len(lengths)).tolist():
        width = max(batch_width, int(lengths[row]))
        if batch and (len(batch) + 1) * width > batch_tokens:
            yield np.array(batch)
            batch, width = [], int(lengths[row])
        batch.append(row)
        batch_width = width
    yield np.array(batch)
