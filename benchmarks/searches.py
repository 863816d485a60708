"""Beam searches of other toolkits, each with its own model and the weights of ours.

Segmentation is ours, and sentences are sorted by length and searched in batches. All use our length
limit and never produce UNK. JoeyNMT and OpenNMT-py use our length penalty; transformers divides by
n^alpha. Each has its own rule for when a sentence is finished, so a few hypotheses differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from benchmarks.common import padded
from benchmarks.training.peer import Peer
from benchmarks.training.peers import HuggingFace, JoeyNMT, OpenNMT
from benchmarks.training.workload import Size, Workload
from nmt.config.model import model_config
from nmt.config.recipe import ModelConfig
from nmt.data.vocab import BOS, EOS, PAD, UNK
from nmt.decoding.codec import codec_of
from nmt.errors import UserError
from nmt.model.transformer import Transformer
from nmt.store.model import Model
from nmt.store.tensors import read_weights

SENTENCES = 64  # in a batch
Ids = list[list[int]]


class PeerTranslator:
    """Translate with a run's weights and another toolkit's search.

    Raises:
        UserError: the toolkit does not support the model.
        ImportError: the toolkit is not installed.
    """

    def __init__(self, toolkit: type[Peer], run: str) -> None:
        model = Model.open(run)
        about, vocab = model.about, model.vocab
        size = _size(about.model, run)
        ours = Transformer(model_config(about.model), len(vocab))
        ours.load_state_dict(read_weights(model))
        workload = Workload(size, len(vocab), [], [], [])
        self.peer: Any = toolkit(workload, "fp32", ours)
        self.peer.model.eval()
        self.decode, self.codec = about.decode, codec_of(model)

    @torch.no_grad()
    def translate(self, lines: Sequence[str], beam: int) -> list[str]:
        pieces, vocab = self.codec.source_pieces, self.codec.vocab
        sources = [[*vocab.ids(pieces(line)), EOS] for line in lines]
        order = sorted(range(len(lines)), key=lambda row: -len(sources[row]))
        texts = [""] * len(lines)
        for first in range(0, len(order), SENTENCES):
            rows = order[first : first + SENTENCES]
            src = padded([sources[row] for row in rows])
            limit = src.shape[1] + self.decode.max_len_offset
            found = SEARCHES[type(self.peer)](self.peer, src, beam, limit, self.decode.length_alpha)
            for row, ids in zip(rows, found, strict=True):
                tgt_pieces = vocab.pieces(ids[: ids.index(EOS)] if EOS in ids else ids)
                if len(sources[row]) > 1:  # otherwise the line is blank
                    texts[row] = self.codec.segmenter.decode(tgt_pieces, self.codec.tgt)
        return texts


def _size(config: ModelConfig, run: str) -> Size:
    supported = ModelConfig(
        norm="layernorm", fixnorm=False, out_bias=False, logit_mask=False, dropout=config.dropout,
        word_dropout=config.word_dropout, attn_dropout=config.attn_dropout,
        ffn_dropout=config.ffn_dropout, dim=config.dim, ffn_dim=config.ffn_dim, heads=config.heads,
        enc_layers=config.enc_layers, dec_layers=config.enc_layers, init=config.init,
    )  # fmt: skip
    differ = [key for key, value in config if value != getattr(supported, key)]
    if differ:
        raise UserError(
            f"other toolkits do not support the run's model.{', model.'.join(differ)}",
            at=run,
            fix="use a run with model.norm=layernorm model.fixnorm=false model.out_bias=false "
            "model.logit_mask=false",
        )
    return Size(config.dim, config.ffn_dim, config.heads, config.enc_layers)


def _joey(peer: Any, src: torch.Tensor, beam: int, limit: int, alpha: float) -> Ids:
    from joeynmt.search import search

    lengths, indices = (src != PAD).sum(1), torch.arange(len(src))
    batch = peer.make_batch(
        src, lengths, None, None, None, indices, peer.device, PAD, EOS, is_train=False
    )
    return search(peer.model, batch, limit, beam, alpha, generate_unk=False)[0].tolist()


def _hugging_face(peer: Any, src: torch.Tensor, beam: int, limit: int, alpha: float) -> Ids:
    out = peer.model.generate(
        input_ids=src,
        attention_mask=(src != PAD).long(),
        use_cache=True,
        do_sample=False,
        num_beams=beam,
        max_new_tokens=limit,
        suppress_tokens=[PAD, BOS, UNK],
        **({"length_penalty": alpha, "early_stopping": True} if beam > 1 else {}),
    )
    return out[:, 1:].tolist()


def _open_nmt(peer: Any, src: torch.Tensor, beam: int, limit: int, alpha: float) -> Ids:
    from onmt.translate import GNMTGlobalScorer, Translator

    translator = Translator(
        peer.model,
        peer.vocabs,
        max_length=limit,
        max_length_ratio=0,
        beam_size=beam,
        ban_unk_token=True,
        global_scorer=GNMTGlobalScorer(alpha, 0.0, "wu", "none"),
        report_score=False,
    )
    lengths = (src != PAD).sum(1)
    batch = {"src": src[..., None], "srclen": lengths, "ind_in_bucket": list(range(len(src)))}
    found = translator.translate_batch(batch, attn_debug=False)["predictions"]
    return [ranks[0].tolist() for ranks in found]


SEARCHES = {JoeyNMT: _joey, HuggingFace: _hugging_face, OpenNMT: _open_nmt}
PEERS = {"JoeyNMT": JoeyNMT, "transformers": HuggingFace, "OpenNMT-py": OpenNMT}
