"""Eole, the successor of OpenNMT-py."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.training.contenders import LR
from benchmarks.training.peer import Peer, load_renamed
from nmt.data.vocab import PAD
from nmt.model.transformer import Transformer

NAMES = {
    r"^embed\.": "src_emb.embeddings.",
    r"^out_bias": "generator.bias",
    r"coder\.layers": "coder.transformer_layers",
    r"coder\.norm": "coder.layer_norm",
    r"self_attn_res\.norm": "input_layernorm",
    r"cross_attn_res\.norm": "precontext_layernorm",
    r"ffn_res\.norm": "post_attention_layernorm",
    r"cross_attn\.": "context_attn.",
    r"\.q\.": ".linear_query.",
    r"\.k\.": ".linear_keys.",
    r"\.v\.": ".linear_values.",
    r"\.out\.": ".final_linear.",
    r"ffn\.fc1": "mlp.gate_up_proj",
    r"ffn\.fc2": "mlp.down_proj",
}


class Eole(Peer):
    """Eole, built from its configuration; ``update`` calls its Trainer with its own autocast.

    On a CPU it computes attention by plain products, for any ``self_attn_backend``.
    """

    def build(self, ours: Transformer) -> None:
        from eole.config.run import TrainConfig
        from eole.constants import DefaultTokens
        from eole.inputters.inputter import dict_to_vocabs
        from eole.models.model import get_model_class
        from eole.trainer import Trainer, TrainerConfig
        from eole.utils import Statistics
        from eole.utils.loss import LossCompute
        from eole.utils.optimizers import Optimizer

        size = self.size
        model = {
            "architecture": "transformer",
            "layers": size.layers,
            "heads": size.heads,
            "hidden_size": size.dim,
            "transformer_ff": size.ffn_dim,
            "embeddings": {"word_vec_size": size.dim},
            **dict.fromkeys(("add_qkvbias", "add_final_linear_bias", "add_ffnbias"), True),
            **dict.fromkeys(("share_embeddings", "share_decoder_embeddings"), True),
        }
        training = {
            "compute_dtype": self.precision,
            "use_amp": self.precision == "bf16",  # fp32 then uses its faster Adam where installed
            "dropout": [size.dropout],
            "attention_dropout": [size.dropout],
            "label_smoothing": size.label_smoothing,
            "optim": "adam",
            "learning_rate": LR,
            "max_grad_norm": 1,
            "log_attention_entropy": False,
        }
        config = TrainConfig(src_vocab="none", data={}, model=model, training=training)
        special = [getattr(DefaultTokens, name) for name in ("PAD", "BOS", "EOS", "UNK")]
        words = [*special, *(str(number) for number in range(len(special), self.types))]
        vocabs = dict_to_vocabs({"src": words, "tgt": words, "specials": {}})
        build = get_model_class(config.model).for_training
        self.model = build(config.model, vocabs, config.training, device_id=None)
        nn.init.zeros_(self.model.generator.bias)
        load_renamed(self.model, ours, NAMES)
        optimizer = Optimizer.from_config(self.model, config)
        self.criterion = LossCompute.from_config(config, self.model, vocabs)
        no_dev = (None, None, None)
        with_tokens = TrainerConfig(norm_method="tokens", n_gpu=0)
        self.trainer = Trainer(self.model, self.criterion, *no_dev, optimizer, with_tokens)
        self.statistics = Statistics()
        torch.set_autocast_dtype(self.device.type, torch.bfloat16)  # on a GPU the default is fp16

    def batch(self, number: int) -> dict[str, Any]:
        """Return a batch as its iterator yields it."""
        src, tgt = self.ids(number)
        text = {"src": src, "tgt": tgt, "srclen": (src != PAD).sum(1)}
        return {**text, "images": None, "prefix_len": None, "cid": [], "cid_line_number": []}

    def loss(self, number: int) -> float:
        """Return the loss without attention dropout, which Eole keeps in evaluation on a GPU."""
        self.model.update_dropout(0.0, 0.0)
        loss = super().loss(number)
        self.model.update_dropout(self.size.dropout, self.size.dropout)
        return loss

    def mean_loss(self, number: int) -> Tensor:
        batch = self.batch(number)
        states, attention, _ = self.model(batch["src"], batch["tgt"], batch["srclen"])
        return self.criterion(batch, states, attention)[0] / (batch["tgt"][:, 1:] != PAD).sum()

    def update(self, number: int) -> None:
        """Take one step of its Trainer, including statistics."""
        self.model.train()
        for batches, tokens in self.trainer._accum_batches(iter([(self.batch(number), 0)])):
            self.trainer._train_step(batches, tokens, self.statistics, self.statistics)
