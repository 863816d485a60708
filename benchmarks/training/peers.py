"""Other toolkits as contenders: the same weights, the same batches, each by its own parts.

Each has the size of the workload, PreNorm, LayerNorm, sinusoids and one table for both embeddings
and the output, and begins with the weights of one of ours; so its loss on the first batch must be
ours. Model, loss and optimizer are the toolkit's own, and where it has a function for a whole
update, that one is called. bf16 is ``torch.autocast``, also where a toolkit's own trainer offers it
on GPUs alone.

None of them is needed: one that raises ImportError is left out. The authors' code is no package;
its folder belongs into PYTHONPATH.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.training.contenders import LR
from benchmarks.training.peer import Peer, decoder_input, load_renamed
from nmt.data.vocab import BOS, EOS, PAD, UNK
from nmt.model.embedding import sinusoids
from nmt.model.transformer import Transformer, blocks_of
from nmt.run.device import autocast

SPECIALS = {"pad_index": PAD, "bos_index": BOS, "eos_index": EOS, "unk_index": UNK}


class HuggingFace(Peer):
    """M2M100, the PreNorm model of transformers; its Trainer's smoothed loss and fused AdamW."""

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
        load_renamed(self.model.model, ours, {r"^embed\.": "shared.", **FAIRSEQ_NAMES})
        same_positions(self.model.model, size.dim)
        self.smoother = LabelSmoother(epsilon=size.label_smoothing)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=LR, fused=True)

    def mean_loss(self, number: int) -> Tensor:
        src, tgt = self.ids(number)
        inputs = {"input_ids": src, "attention_mask": (src != PAD).long()}
        out = self.model(**inputs, decoder_input_ids=decoder_input(tgt))
        return self.smoother(out, tgt[:, 1:].masked_fill(tgt[:, 1:] == PAD, -100))


class Fairseq(Peer):
    """Its transformer with normalize_before, its criterion, clipping and Adam."""

    def build(self, ours: Transformer) -> None:
        try:
            import fairseq.criterions.label_smoothed_cross_entropy as criterions
            from fairseq.data import Dictionary
            from fairseq.models.transformer import TransformerConfig, TransformerModelBase
            from fairseq.optim.adam import Adam
            from fairseq.utils import clip_grad_norm_
        except ValueError as e:  # its dataclasses are older than Python 3.11
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
        load_renamed(self.model, ours, {r"^embed\.": "encoder.embed_tokens.", **FAIRSEQ_NAMES})
        same_positions(self.model, size.dim)
        smoothed = criterions.LabelSmoothedCrossEntropyCriterion
        self.criterion = smoothed(task, sentence_avg=False, label_smoothing=size.label_smoothing)
        self.optimizer, self.clip = Adam(self.model.parameters(), lr=LR), clip_grad_norm_

    def sum_loss(self, number: int) -> tuple[Tensor, int]:
        """What its criterion returns: a sum, and the tokens to divide gradients by."""
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
        """In the order of its trainer: gradients of the sum are divided, then clipped."""
        self.model.train()
        self.optimizer.zero_grad()
        with autocast(self.device, self.precision):
            total, tokens = self.sum_loss(number)
        total.backward()
        for parameter in self.model.parameters():
            parameter.grad.mul_(1.0 / tokens)
        self.clip(self.model.parameters(), 1.0)
        self.optimizer.step()


class OpenNMT(Peer):
    """OpenNMT-py, built from its command-line options; the update is its Trainer's.

    Its epsilon of LayerNorm is 1e-6.
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
        load_renamed(self.model, ours, OPENNMT_NAMES)
        self.criterion = LossCompute.from_opts(opts, self.model, words)
        for module in (self.model, self.criterion):  # its Trainer knows autocast on GPUs alone
            module.forward = self.cast(module.forward)
        optimizer = Optimizer.from_opt(self.model, opts)
        no_dev = (None, None, None)
        self.trainer = Trainer(
            self.model, self.criterion, *no_dev, optimizer, norm_method="tokens", n_gpu=0
        )
        self.statistics = Statistics()

    def cast(self, forward: Any) -> Any:
        """The function under autocast."""

        def inside(*args: Any, **kwargs: Any) -> Any:
            with autocast(self.device, self.precision):
                return forward(*args, **kwargs)

        return inside

    def batch(self, number: int) -> dict[str, Tensor]:
        """As its iterator yields it."""
        src, tgt = self.ids(number)
        return {"src": src[..., None], "tgt": tgt[..., None], "srclen": (src != PAD).sum(1)}

    def mean_loss(self, number: int) -> Tensor:
        batch = self.batch(number)
        total, _ = self.criterion(batch, *self.model(batch["src"], batch["tgt"], batch["srclen"]))
        return total / (batch["tgt"][:, 1:] != PAD).sum()

    def update(self, number: int) -> None:
        """Its Trainer's, statistics included."""
        self.model.train()
        for batches, tokens in self.trainer._accum_batches(iter([(self.batch(number), 0)])):
            counts = self.statistics, self.statistics
            self.trainer._gradient_accumulation(batches, tokens, *counts)


class JoeyNMT(Peer):
    """Its model, smoothed loss, training step, clipping and Adam.

    Its epsilon of LayerNorm is 1e-6, its output has no bias.
    """

    def build(self, ours: Transformer) -> None:
        from joeynmt.batch import Batch
        from joeynmt.builders import build_gradient_clipper, build_optimizer
        from joeynmt.model import build_model
        from joeynmt.training import TrainManager
        from joeynmt.vocabulary import Vocabulary

        size = self.size
        # it numbers its special tokens in another order; a model looks at these numbers alone
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
        load_renamed(self.model, ours, JOEY_NAMES)
        self.make_batch, self.train_step = Batch, TrainManager._train_step
        adam = {"optimizer": "adam", "learning_rate": LR}
        self.optimizer = build_optimizer(adam, self.model.parameters())
        self.clip = build_gradient_clipper({"clip_grad_norm": 1.0, "clip_grad_val": None})
        cast = {"dtype": torch.bfloat16, "enabled": self.precision == "bf16"}
        self.manager = SimpleNamespace(  # what _train_step reads of a TrainManager
            model=self.model,
            args=SimpleNamespace(normalization="tokens", batch_multiplier=1),
            n_gpu=0,
            scaler=None,
            autocast={"device_type": self.device.type, **cast},
        )

    def batch(self, number: int) -> Any:
        """As its DataLoader yields it."""
        src, tgt = self.ids(number)
        lengths, indices = (src != PAD).sum(1), torch.arange(len(src))
        return self.make_batch(src, lengths, None, tgt, None, indices, self.device, PAD, EOS)

    def mean_loss(self, number: int) -> Tensor:
        """Its KL divergence leaves out the entropy of the smoothed target."""
        batch, eps = self.batch(number), self.size.label_smoothing
        entropy = -(1 - eps) * math.log(1 - eps) - eps * math.log(eps / (self.types - 2))
        total = self.model(return_type="loss", **vars(batch))[0]
        return total / batch.ntokens + entropy

    def update(self, number: int) -> None:
        """In the order of its TrainManager."""
        self.train_step(self.manager, self.batch(number))
        self.clip(parameters=self.model.parameters())
        self.optimizer.step()
        self.model.zero_grad()


class Authors(Peer):
    """The code of Transformers without Tears, with LayerNorm and without FixNorm as all here.

    It adds a vector of the language, zero at first; that BOS and PAD are never written, which it
    builds in, is taken back, since it changes the loss.
    """

    def build(self, ours: Transformer) -> None:
        import all_constants  # noqa: F401  its ids are ours: PAD, BOS, EOS, UNK = 0 to 3
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
    """One matrix an attention; the norms of a stack are numbered through."""
    theirs.word_embedding.copy_(ours.embed.weight)
    theirs.lang_embedding.zero_()
    for mine, other in ((ours.encoder, theirs.encoder), (ours.decoder, theirs.decoder)):
        norms = []
        for i, block in enumerate(blocks_of(mine)):
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
    """Linear layers below each other."""
    theirs.weights.copy_(torch.cat([part.weight for part in parts]))
    theirs.biases.copy_(torch.cat([part.bias for part in parts]))


def same_positions(model: Any, dim: int) -> None:
    """Our sinusoids in the tables of fairseq and its heirs, whose rows begin after PAD's."""
    for side in (model.encoder, model.decoder):
        table = side.embed_positions.weights
        table[PAD + 1 :] = sinusoids(len(table) - PAD - 1, dim)


PEERS = {
    "OpenNMT-py": OpenNMT,
    "JoeyNMT": JoeyNMT,
    "Hugging Face": HuggingFace,
    "fairseq": Fairseq,
    "authors' code": Authors,
}
DROPOUTS = ("dropout", "attention_dropout", "activation_dropout")
FAIRSEQ_NAMES = {
    r"(coder)\.norm": r"\1.layer_norm",
    r"cross_attn_res\.norm": "encoder_attn_layer_norm",
    r"self_attn_res\.norm": "self_attn_layer_norm",
    r"ffn_res\.norm": "final_layer_norm",
    r"cross_attn\.": "encoder_attn.",
    r"\.(q|k|v|out)\.": r".\1_proj.",
    r"\.ffn\.": ".",
}
OPENNMT_NAMES = {
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
JOEY_NAMES = {
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
