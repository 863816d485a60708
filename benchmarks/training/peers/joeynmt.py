"""JoeyNMT."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from benchmarks.training.contenders import LR
from benchmarks.training.peer import SPECIALS, Peer, load_renamed
from nmt.data.vocab import EOS, PAD
from nmt.model.transformer import Transformer

NAMES = {
    r"^embed\.": "src_embed.lut.",
    r"coder\.norm": "coder.layer_norm",
    r"(encoder.*)self_attn_res\.norm": r"\1layer_norm",
    r"self_attn_res\.norm": "x_layer_norm",
    r"cross_attn_res\.norm": "dec_layer_norm",
    r"ffn_res\.norm": "feed_forward.layer_norm",
    r"(encoder.*)self_attn\.": r"\1src_src_att.",
    r"self_attn\.": "trg_trg_att.",
    r"cross_attn\.": "src_trg_att.",
    r"\.(q|k|v)\.": r".\1_layer.",
    r"\.out\.": ".output_layer.",
    r"ffn\.fc1": "feed_forward.pwff_layer.0",
    r"ffn\.fc2": "feed_forward.pwff_layer.3",
}


class JoeyNMT(Peer):
    """JoeyNMT's model, smoothed loss, training step, clipping and Adam.

    Differences from ours: the epsilon of LayerNorm is 1e-6, and the output has no bias.
    """

    def build(self, ours: Transformer) -> None:
        from joeynmt.batch import Batch
        from joeynmt.builders import build_gradient_clipper, build_optimizer
        from joeynmt.model import build_model
        from joeynmt.training import TrainManager
        from joeynmt.vocabulary import Vocabulary

        size = self.size
        # its special tokens have another order; the model only uses the numbers
        special = ("unk", "pad", "bos", "eos")
        numbered = {f"{name}_id": number for number, name in enumerate(special)}
        named = {f"{name}_token": name for name in special}
        config = SimpleNamespace(**numbered, **named, sep_token=None, lang_tags=[])
        words = Vocabulary([str(number) for number in range(len(special), self.types)], config)
        vars(words).update(SPECIALS)
        side = {
            "type": "transformer",
            "num_layers": size.layers,
            "num_heads": size.heads,
            "hidden_size": size.dim,
            "ff_size": size.ffn_dim,
            "dropout": size.dropout,
            "layer_norm": "pre",
            "embeddings": {"embedding_dim": size.dim, "scale": True, "dropout": size.dropout},
        }
        tied = {"tied_embeddings": True, "tied_softmax": True}
        self.model = build_model({"encoder": side, "decoder": side, **tied}, words, words)
        self.model.loss_function = "crossentropy", size.label_smoothing
        load_renamed(self.model, ours, NAMES)
        self.make_batch, self.train_step = Batch, TrainManager._train_step
        adam = {"optimizer": "adam", "learning_rate": LR}
        self.optimizer = build_optimizer(adam, self.model.parameters())
        self.clip = build_gradient_clipper({"clip_grad_norm": 1.0, "clip_grad_val": None})
        cast = {"dtype": torch.bfloat16, "enabled": self.precision == "bf16"}
        self.manager = SimpleNamespace(  # the attributes that _train_step reads
            model=self.model,
            args=SimpleNamespace(normalization="tokens", batch_multiplier=1),
            n_gpu=0,
            scaler=None,
            autocast={"device_type": self.device.type, **cast},
        )

    def batch(self, number: int) -> Any:
        """Return a batch as its DataLoader yields it."""
        src, tgt = self.ids(number)
        lengths, indices = (src != PAD).sum(1), torch.arange(len(src))
        return self.make_batch(src, lengths, None, tgt, None, indices, self.device, PAD, EOS)

    def mean_loss(self, number: int) -> Tensor:
        """Return its KL divergence plus the entropy of the smoothed target, which it leaves out."""
        batch, eps = self.batch(number), self.size.label_smoothing
        entropy = -(1 - eps) * math.log(1 - eps) - eps * math.log(eps / (self.types - 2))
        total = self.model(return_type="loss", **vars(batch))[0]
        return total / batch.ntokens + entropy

    def update(self, number: int) -> None:
        """Take one step in the order of its TrainManager."""
        self.train_step(self.manager, self.batch(number))
        self.clip(parameters=self.model.parameters())
        self.optimizer.step()
        self.model.zero_grad()
