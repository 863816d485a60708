"""fairseq, and M2M100 of transformers, which has the same parameter names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from benchmarks.training.contenders import LR
from benchmarks.training.peer import SPECIALS, Peer, decoder_input, load_renamed
from nmt.data.vocab import BOS, EOS, PAD
from nmt.model.embedding import sinusoids
from nmt.model.transformer import Transformer
from nmt.runtime.device import autocast

DROPOUTS = ("dropout", "attention_dropout", "activation_dropout")
NAMES = {
    r"(coder)\.norm": r"\1.layer_norm",
    r"cross_attn_res\.norm": "encoder_attn_layer_norm",
    r"self_attn_res\.norm": "self_attn_layer_norm",
    r"ffn_res\.norm": "final_layer_norm",
    r"cross_attn\.": "encoder_attn.",
    r"\.(q|k|v|out)\.": r".\1_proj.",
    r"\.ffn\.": ".",
}


class HuggingFace(Peer):
    """M2M100, the PreNorm model of transformers, with its Trainer's loss and fused AdamW."""

    def build(self, ours: Transformer) -> None:
        from transformers import M2M100Config, M2M100ForConditionalGeneration
        from transformers.trainer_pt_utils import LabelSmoother

        size = self.size
        one_side = {
            "layers": size.layers,
            "ffn_dim": size.ffn_dim,
            "attention_heads": size.heads,
            "layerdrop": 0.0,
        }
        config = M2M100Config(
            vocab_size=self.types,
            d_model=size.dim,
            **{f"encoder_{key}": value for key, value in one_side.items()},
            **{f"decoder_{key}": value for key, value in one_side.items()},
            **dict.fromkeys(DROPOUTS, size.dropout),
            pad_token_id=PAD,
            bos_token_id=BOS,
            eos_token_id=EOS,
            decoder_start_token_id=BOS,
            use_cache=False,
            attn_implementation="sdpa",
        )
        self.model = M2M100ForConditionalGeneration(config)
        load_renamed(self.model.model, ours, {r"^embed\.": "shared.", **NAMES})
        copy_positions(self.model.model, size.dim)
        self.smoother = LabelSmoother(epsilon=size.label_smoothing)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=LR, fused=True)

    def mean_loss(self, number: int) -> Tensor:
        src, tgt = self.ids(number)
        inputs = {"input_ids": src, "attention_mask": (src != PAD).long()}
        out = self.model(**inputs, decoder_input_ids=decoder_input(tgt))
        return self.smoother(out, tgt[:, 1:].masked_fill(tgt[:, 1:] == PAD, -100))


class Fairseq(Peer):
    """fairseq's transformer with normalize_before, its criterion, clipping and Adam."""

    def build(self, ours: Transformer) -> None:
        try:
            import fairseq.criterions.label_smoothed_cross_entropy as criterions
            from fairseq.data import Dictionary
            from fairseq.models.transformer import TransformerConfig, TransformerModelBase
            from fairseq.optim.adam import Adam
            from fairseq.utils import clip_grad_norm_
        except ValueError as e:  # its dataclasses fail with Python 3.11 and newer
            raise ImportError(f"this Python cannot import fairseq: {e}") from e
        size = self.size
        words = Dictionary(add_special_symbols=False)
        for number in range(self.types):
            words.add_symbol(str(number))
        vars(words).update(SPECIALS)
        config = TransformerConfig()
        for side in (config.encoder, config.decoder):
            side.embed_dim, side.ffn_embed_dim = size.dim, size.ffn_dim
            side.layers, side.attention_heads = size.layers, size.heads
            side.normalize_before = True
        config.decoder.input_dim = config.decoder.output_dim = size.dim
        vars(config).update(dict.fromkeys(DROPOUTS, size.dropout), share_all_embeddings=True)
        task = SimpleNamespace(source_dictionary=words, target_dictionary=words)
        self.model = TransformerModelBase.build_model(config, task)
        load_renamed(self.model, ours, {r"^embed\.": "encoder.embed_tokens.", **NAMES})
        copy_positions(self.model, size.dim)
        smoothed = criterions.LabelSmoothedCrossEntropyCriterion
        self.criterion = smoothed(task, sentence_avg=False, label_smoothing=size.label_smoothing)
        self.optimizer, self.clip = Adam(self.model.parameters(), lr=LR), clip_grad_norm_

    def sum_loss(self, number: int) -> tuple[Tensor, int]:
        """Return the criterion's sum and the number of tokens to divide gradients by."""
        src, tgt = self.ids(number)
        inputs = {"src_tokens": src, "src_lengths": (src != PAD).sum(1)}
        inputs["prev_output_tokens"] = decoder_input(tgt)
        tokens = int((tgt[:, 1:] != PAD).sum())
        sample = {"net_input": inputs, "target": tgt[:, 1:].contiguous(), "ntokens": tokens}
        return self.criterion(self.model, sample)[:2]

    def mean_loss(self, number: int) -> Tensor:
        total, tokens = self.sum_loss(number)
        return total / tokens

    def update(self, number: int) -> None:
        """Take one step in the order of its trainer: divide gradients by tokens, then clip."""
        self.model.train()
        self.optimizer.zero_grad()
        with autocast(self.device, self.precision):
            total, tokens = self.sum_loss(number)
        total.backward()
        for parameter in self.model.parameters():
            parameter.grad.mul_(1.0 / tokens)
        self.clip(self.model.parameters(), 1.0)
        self.optimizer.step()


def copy_positions(model: Any, dim: int) -> None:
    """Copy our sinusoids into fairseq's tables, whose first position is after the row of PAD."""
    for side in (model.encoder, model.decoder):
        table = side.embed_positions.weights
        table[PAD + 1 :] = sinusoids(len(table) - PAD - 1, dim)
