"""A model of Hugging Face transformers of the same size as ours, PreNorm and LayerNorm: M2M-100."""

from __future__ import annotations

from torch import Tensor, nn

from nmt.data.vocab import BOS, EOS, PAD
from nmt.model.transformer import Transformer


class HuggingFaceTransformer(nn.Module):
    """``M2M100ForConditionalGeneration`` with its own random weights and tied embeddings."""

    def __init__(self, ours: Transformer) -> None:
        from transformers import M2M100Config, M2M100ForConditionalGeneration

        super().__init__()
        c = ours.config
        config = M2M100Config(
            vocab_size=len(ours.embed.weight),
            d_model=c.dim,
            encoder_layers=c.enc_layers,
            decoder_layers=c.dec_layers,
            encoder_attention_heads=c.heads,
            decoder_attention_heads=c.heads,
            encoder_ffn_dim=c.ffn_dim,
            decoder_ffn_dim=c.ffn_dim,
            encoder_layerdrop=0.0,
            decoder_layerdrop=0.0,
            dropout=c.dropout,
            attention_dropout=0.0,
            activation_dropout=0.0,
            activation_function="relu",
            use_cache=False,
            pad_token_id=PAD,
            bos_token_id=BOS,
            eos_token_id=EOS,
            decoder_start_token_id=BOS,
        )
        self.body = M2M100ForConditionalGeneration(config)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Return logits for padded ids: [B, S], [B, T] -> [B, T, V]."""
        return self.body(input_ids=src, attention_mask=src != PAD, decoder_input_ids=tgt).logits
