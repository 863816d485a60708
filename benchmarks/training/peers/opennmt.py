"""OpenNMT-py."""

from __future__ import annotations

from torch import Tensor, nn

from benchmarks.training.contenders import LR
from benchmarks.training.peer import Peer, load_renamed
from nmt.data.vocab import PAD
from nmt.model.transformer import Transformer

NAMES = {
    r"^embed\.": "encoder.embeddings.make_embedding.emb_luts.0.",
    r"^out_bias": "generator.bias",
    r"encoder\.layers": "encoder.transformer",
    r"decoder\.layers": "decoder.transformer_layers",
    r"coder\.norm": "coder.layer_norm",
    r"(encoder.*)self_attn_res\.norm": r"\1layer_norm",
    r"self_attn_res\.norm": "layer_norm_1",
    r"cross_attn_res\.norm": "layer_norm_2",
    r"ffn_res\.norm": "feed_forward.layer_norm",
    r"cross_attn\.": "context_attn.",
    r"\.q\.": ".linear_query.",
    r"\.k\.": ".linear_keys.",
    r"\.v\.": ".linear_values.",
    r"\.out\.": ".final_linear.",
    r"ffn\.fc": "feed_forward.w_",
}


class OpenNMT(Peer):
    """OpenNMT-py, built from its command-line options; ``update`` calls its Trainer.

    Difference from ours: the epsilon of LayerNorm is 1e-6.
    """

    def build(self, ours: Transformer) -> None:
        import pyonmttok
        from onmt.constants import DefaultTokens
        from onmt.model_builder import build_base_model
        from onmt.opts import train_opts
        from onmt.trainer import Trainer
        from onmt.utils import Statistics
        from onmt.utils.loss import LossCompute
        from onmt.utils.optimizers import Optimizer
        from onmt.utils.parse import ArgumentParser

        size = self.size
        parser = ArgumentParser()
        train_opts(parser)
        written = f"""
            -data none -src_vocab none -save_model none -encoder_type transformer
            -decoder_type transformer -position_encoding -layers {size.layers} -heads {size.heads}
            -hidden_size {size.dim} -word_vec_size {size.dim} -transformer_ff {size.ffn_dim}
            -dropout {size.dropout} -attention_dropout {size.dropout} -add_qkvbias -add_ffnbias
            -share_vocab -share_embeddings -share_decoder_embeddings -optim adam
            -learning_rate {LR} -max_grad_norm 1 -label_smoothing {size.label_smoothing}
            -normalization tokens"""
        opts = parser.parse_args(written.split())
        ArgumentParser.update_model_opts(opts)
        special = [getattr(DefaultTokens, name) for name in ("PAD", "BOS", "EOS", "UNK")]
        others = [str(number) for number in range(len(special), self.types)]
        words = pyonmttok.build_vocab_from_tokens(others, special_tokens=special)
        self.vocabs = {"src": words, "tgt": words, "decoder_start_token": DefaultTokens.BOS}
        self.model = build_base_model(opts, self.vocabs)
        if ours.out_bias is None:
            nn.init.zeros_(self.model.generator.bias)
        load_renamed(self.model, ours, NAMES)
        self.criterion = LossCompute.from_opts(opts, self.model, words)
        for module in (self.model, self.criterion):
            module.forward = self.cast(module.forward)
        optimizer = Optimizer.from_opt(self.model, opts)
        no_dev = (None, None, None)
        self.trainer = Trainer(
            self.model, self.criterion, *no_dev, optimizer, norm_method="tokens", n_gpu=0
        )
        self.statistics = Statistics()

    def batch(self, number: int) -> dict[str, Tensor]:
        """Return a batch as its iterator yields it."""
        src, tgt = self.ids(number)
        return {"src": src[..., None], "tgt": tgt[..., None], "srclen": (src != PAD).sum(1)}

    def mean_loss(self, number: int) -> Tensor:
        batch = self.batch(number)
        total, _ = self.criterion(batch, *self.model(batch["src"], batch["tgt"], batch["srclen"]))
        return total / (batch["tgt"][:, 1:] != PAD).sum()

    def update(self, number: int) -> None:
        """Take one step of its Trainer, including statistics."""
        self.model.train()
        for batches, tokens in self.trainer._accum_batches(iter([(self.batch(number), 0)])):
            counts = self.statistics, self.statistics
            self.trainer._gradient_accumulation(batches, tokens, *counts)
