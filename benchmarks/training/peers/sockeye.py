"""Sockeye 3."""

from __future__ import annotations

import tempfile
from argparse import ArgumentParser
from types import SimpleNamespace
from typing import Any

from torch import Tensor, nn

from benchmarks.training.contenders import LR
from benchmarks.training.peer import Peer, decoder_input, load_renamed
from nmt.model.embedding import sinusoids
from nmt.model.transformer import Transformer

MAX_POSITIONS = 1024
NAMES = {
    r"^embed\.": "embedding_source.embedding.",
    r"^out_bias": "output_layer.bias",
    r"coder\.norm": "coder.final_process.layer_norm",
    r"(encoder.*)self_attn_res\.norm": r"\1pre_self_attention.layer_norm",
    r"self_attn_res\.norm": "pre_autoregr_layer.layer_norm",
    r"cross_attn_res\.norm": "pre_enc_attention.layer_norm",
    r"ffn_res\.norm": "pre_ff.layer_norm",
    r"(encoder.*)self_attn\.": r"\1self_attention.",
    r"self_attn\.": "autoregr_layer.",
    r"cross_attn\.": "enc_attention.",
    r"\.qkv\.": ".ff_in.",
    r"\.(q|kv|out)\.": r".ff_\1.",
    r"\.ffn\.fc": ".ff.ff",
}


class Sockeye(Peer):
    """Sockeye 3, built from its command-line options; ``update`` calls its trainer.

    Differences from ours: the epsilon of LayerNorm is 1e-6, and attention has no biases. The model
    is not traced, although its trainer does so except with DeepSpeed: traced updates are slower, in
    bf16 by a third.
    """

    def build(self, ours: Transformer) -> None:
        from sockeye import arguments, data_io, optimizers, train, training
        from sockeye.model import SockeyeModel

        size = self.size
        parser = ArgumentParser()
        arguments.add_model_parameters(parser)
        arguments.add_training_args(parser)
        arguments.add_device_args(parser)
        written = f"""
            --num-layers {size.layers} --transformer-attention-heads {size.heads}
            --transformer-model-size {size.dim} --transformer-dropout-prepost {size.dropout}
            --transformer-feed-forward-num-hidden {size.ffn_dim}
            --transformer-dropout-act {size.dropout} --transformer-dropout-attention {size.dropout}
            --label-smoothing {size.label_smoothing} --label-smoothing-impl torch
            --initial-learning-rate {LR}
            --gradient-clipping-type norm --gradient-clipping-threshold 1"""
        args = parser.parse_args(written.split())
        args.use_cpu = self.device.type == "cpu"
        types = [self.types]  # no factors
        config = train.create_model_config(args, types, types, MAX_POSITIONS, MAX_POSITIONS, None)
        self.model = SockeyeModel(config).to(self.device)
        nn.init.zeros_(self.model.output_layer.bias)
        load_renamed(self.model, ours, NAMES, split_qkv=False)
        for side in (self.model.encoder, self.model.decoder):
            side.pos_embedding.weight.copy_(sinusoids(MAX_POSITIONS, size.dim))
        self.make_batch = data_io.create_batch_from_parallel_sample
        losses = train.create_losses(args, types)
        optimizer_config = train.create_optimizer_config(args)
        make, options, clearing = optimizers.get_optimizer(optimizer_config)
        self.trainer = training.EarlyStoppingTrainer(
            SimpleNamespace(output_dir=tempfile.mkdtemp(), update_interval=1),
            optimizer_config,
            self.model,
            self.cast(training.ModelWithLoss(self.model, losses)),
            make(self.model.parameters(), **options),
            None,
            clearing,
            losses,
            self.device,
        )
        self.trainer.state = training.TrainState("perplexity")

    def batch(self, number: int) -> Any:
        """Return a batch as its iterator yields it."""
        src, tgt = self.ids(number)
        return self.make_batch(src[..., None], decoder_input(tgt)[..., None], tgt[:, 1:, None])

    def mean_loss(self, number: int) -> Tensor:
        batch = self.batch(number)
        sides = batch.source, batch.source_length, batch.target, batch.target_length
        return self.trainer.model_object(*sides, batch.labels)[0]

    def update(self, number: int) -> None:
        """Take one step of its trainer, including metrics."""
        self.model.train()
        self.trainer._step(self.batch(number))
