"""The code of the authors of "Transformers without Tears"."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.training.contenders import LR
from benchmarks.training.peer import Peer, decoder_input
from nmt.data.vocab import PAD
from nmt.model.transformer import Transformer


class Authors(Peer):
    """The code of "Transformers without Tears", with LayerNorm and without FixNorm like all peers.

    It adds a language embedding, which starts at zero. Its built-in mask of BOS and PAD is switched
    off, because it changes the loss.
    """

    def build(self, ours: Transformer) -> None:
        import all_constants  # noqa: F401  same ids as ours: PAD, BOS, EOS, UNK = 0 to 3
        from model import Transformer as Theirs

        size = self.size
        options = {
            "embed_dim": size.dim,
            "ff_dim": size.ffn_dim,
            "num_heads": size.heads,
            "num_enc_layers": size.layers,
            "num_dec_layers": size.layers,
            "label_smoothing": size.label_smoothing,
            "joint_vocab_size": self.types,
            "lang_vocab_size": 2,
            "word_dropout": 0.0,
            **dict.fromkeys(("dropout", "att_dropout", "ff_dropout"), size.dropout),
            **dict.fromkeys(("use_bias", "pre_act"), True),
            **dict.fromkeys(("fix_norm", "scnorm", "mask_logit"), False),
        }
        self.model = Theirs(SimpleNamespace(**options))
        self.model.logit_mask = torch.ones(self.types, dtype=torch.bool, device=self.device)
        copy_to_authors(ours, self.model)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=LR)

    def mean_loss(self, number: int) -> Tensor:
        src, tgt = self.ids(number)
        total = self.model(src, decoder_input(tgt), tgt[:, 1:], 0, 1, None)["loss"]
        return total / (tgt[:, 1:] != PAD).sum()


@torch.no_grad()
def copy_to_authors(ours: Transformer, theirs: Any) -> None:
    """Copy our weights: each of its attentions has one matrix, each stack one list of norms."""
    theirs.word_embedding.copy_(ours.embed.weight)
    theirs.lang_embedding.zero_()
    for mine, other in ((ours.encoder, theirs.encoder), (ours.decoder, theirs.decoder)):
        norms = []
        for i, block in enumerate(mine.blocks):
            copy_joined(other.atts[i], block.self_attn.qkv, block.self_attn.out)
            norms.append(block.self_attn_res.norm)
            if block.cross_attn is not None:
                cross = block.cross_attn
                copy_joined(other.cross_atts[i], cross.q, cross.kv, cross.out)
                norms.append(block.cross_attn_res.norm)
            other.ffs[i].in_proj.load_state_dict(block.ffn.fc1.state_dict())
            other.ffs[i].out_proj.load_state_dict(block.ffn.fc2.state_dict())
            norms.append(block.ffn_res.norm)
        for norm, scale in zip([*norms, mine.norm], other.scales, strict=True):
            scale.load_state_dict(norm.state_dict())


def copy_joined(theirs: Any, *parts: nn.Linear) -> None:
    theirs.weights.copy_(torch.cat([part.weight for part in parts]))
    theirs.biases.copy_(torch.cat([part.bias for part in parts]))
