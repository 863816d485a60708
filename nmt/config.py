"""Every recipe key, once: type, default, range, meaning and source.

README's key table and the JSON schema for editors are generated from here. Reading a recipe from
YAML is ``config_loader``'s work; this file knows neither files nor line numbers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from nmt.schema import Strict, key
from nmt.training.schedules import InverseSqrt, Schedule

Probability: TypeAlias = Annotated[float, Field(ge=0, lt=1)]


def _one_or_many(value: Any) -> Any:
    return [value] if isinstance(value, (str, Path)) else value


class DataConfig(Strict):
    """Corpora, and how sentences become batches."""

    train: Annotated[list[str], BeforeValidator(_one_or_many)] = key(
        ..., "path prefix(es) PREFIX.SRC and PREFIX.TGT, plain or .gz", "O", min_length=1
    )
    dev: str = key(..., "path prefix of the tuning set", "O")
    test: str | None = key(None, "path prefix of the final set, scored once at the end", "O")
    prepare: str | None = key(
        None, "data_prep module that fetches the corpus when its files are missing", "O"
    )
    tokenised: bool = key(
        False, "true = text comes Moses-tokenised: no tokeniser runs, output is detokenised", "T A"
    )
    max_len: int = key(250, "longer training pairs are dropped; words before segmenting", "A", ge=1)
    batch_tokens: int = key(
        4096, "sentences x longest of source and target, in pieces, at most", "T A", ge=8
    )
    rebatch: bool = key(True, "re-make batches each epoch; A's code does it once", "T, A")
    checks: Literal["error", "warn", "off"] = key(
        "error", "what a failed corpus check does before the first update", "O"
    )
    max_overlap: Probability = key(
        0.05, "share of dev or test pairs that may occur in train before the check fails", "O"
    )
    normalise: Literal["none", "nfc"] = key(
        "none", "Unicode normalisation of the input; references are never altered", "O"
    )


class FastBpeConfig(Strict):
    """Joint byte-pair encoding in fastBPE's format (T appendix A)."""

    kind: Literal["fastbpe"] = "fastbpe"
    merges: int = key(8000, "joint BPE operations to learn; 3000 for gl-en", "T table 1", ge=1)
    codes: str = key("learn", "learn, or the path of a codes file", "O")
    vocab_threshold: int = key(0, "pieces rarer than this in training are split again", "O", ge=0)
    dropout: Probability = key(0.0, "BPE-dropout on the training text, drawn at preparation", "O")


class SentencePieceConfig(Strict):
    """SentencePiece, BPE or unigram."""

    kind: Literal["sentencepiece"] = "sentencepiece"
    vocab_size: int = key(8000, "joint vocabulary to learn", "O", ge=16)
    model_type: Literal["bpe", "unigram"] = key("bpe", "kind of SentencePiece model", "O")
    model: str = key("learn", "learn, or the path of a .model file", "O")


class PlainConfig(Strict):
    """White space separates pieces: for text that comes segmented."""

    kind: Literal["plain"] = "plain"
    min_count: int = key(1, "types rarer than this become UNK", "O", ge=1)


SEGMENT_KINDS: dict[str, Any] = {
    "fastbpe": FastBpeConfig,
    "sentencepiece": SentencePieceConfig,
    "plain": PlainConfig,
}
Segment = Annotated[FastBpeConfig | SentencePieceConfig | PlainConfig, Field(discriminator="kind")]


class ModelConfig(Strict):
    """The encoder-decoder transformer and every normalisation choice of both papers."""

    dim: int = key(512, "model dimension d", "T appendix A", ge=2)
    ffn_dim: int = key(2048, "inner dimension of the feed-forward sublayer", "T appendix A", ge=1)
    heads: int = key(8, "attention heads; must divide dim (4 for gl-en)", "T table 1", ge=1)
    enc_layers: int = key(6, "encoder layers (4 for gl-en)", "T table 1", ge=1)
    dec_layers: int = key(6, "decoder layers (4 for gl-en)", "T table 1", ge=1)
    activation: Literal["relu", "gelu", "relu2", "geglu"] = key(
        "relu", "feed-forward non-linearity; relu2 = ReLU squared", "T; N 2.1, table 2, 5"
    )
    bias: bool = key(True, "biases in linear layers", "A")
    norm: Literal["layernorm", "rmsnorm", "scalenorm"] = key(
        "scalenorm", "normalisation of sublayers and stack outputs", "T 2.3, table 7"
    )
    norm_place: Literal["pre", "post"] = key(
        "pre", "PreNorm (equation 3) or PostNorm (equation 2)", "T 2.1"
    )
    norm_eps: float = key(
        1e-5, "epsilon of the norms; ScaleNorm clamps the length", "T app. C", gt=0
    )
    scalenorm_gain: Literal["learned", "fixed"] = key(
        "learned", "fixed = sqrt(d) everywhere but the last decoder norm", "T table 7"
    )
    fixnorm: bool = key(True, "embedding rows normalised to length 1 in every forward", "T 2.3")
    tie: Literal["src_tgt_out", "tgt_out", "none"] = key(
        "src_tgt_out", "which of source, target and output tables are one matrix", "T appendix A"
    )
    out_bias: bool = key(True, "a bias per type on the logits", "A")
    logit_mask: bool = key(
        True, "types that the target side of the training data never has are masked", "T appendix A"
    )
    init: Literal["small", "xavier"] = key(
        "small", "SmallInit: attention N(0, 2/(5d)); xavier: equation 4", "T 2.2"
    )
    dropout: Probability = key(
        0.3, "on embeddings and sublayer outputs (0.4 for gl-en)", "T table 1"
    )
    attn_dropout: Probability | None = key(None, "on attention weights; none = dropout", "T app. A")
    ffn_dropout: Probability | None = key(None, "after the activation; none = dropout", "T app. A")
    word_dropout: Probability = key(0.1, "input tokens replaced by UNK", "T appendix A")
    normformer: bool = key(
        False, "preset: head_scale, post_attn_norm and ffn_norm together", "N 2.1"
    )
    head_scale: bool = key(False, "HeadScale: a learned factor per attention head", "N 2.1")
    post_attn_norm: bool = key(False, "a norm on each attention output", "N 2.1")
    ffn_norm: bool = key(False, "a norm after the activation of the feed-forward", "N 2.1")
    qkv_norm: bool = key(False, "norms on queries, keys and values (+3 More LN)", "N table 4")
    res_scale: Literal["none", "ffn", "all", "scalar"] = key(
        "none",
        "ResScale: learned factors on the skip of the FFN, of all sublayers, or a scalar on each",
        "N 2.2, 4.2",
    )
    extra_norm: Literal["layernorm", "rmsnorm", "scalenorm"] = key(
        "layernorm", "norm used by post_attn_norm, ffn_norm and qkv_norm", "N 2.1"
    )

    @model_validator(mode="before")
    @classmethod
    def _expand_preset(cls, values: Any) -> Any:
        if not isinstance(values, dict) or str(values.get("normformer", "")).lower() != "true":
            return values
        parts = ("head_scale", "post_attn_norm", "ffn_norm")
        for part in parts:
            if str(values.get(part, "true")).lower() == "false":
                raise ValueError(
                    f"model.normformer: true contradicts model.{part}: false; "
                    f"leave normformer out and set {', '.join(parts)} one by one"
                )
        return {**values, **dict.fromkeys(parts, True)}

    @model_validator(mode="after")
    def _consistent(self) -> ModelConfig:
        if self.dim % self.heads:
            raise ValueError(f"model.heads ({self.heads}) must divide model.dim ({self.dim})")
        if self.dim % 2:
            raise ValueError(f"model.dim ({self.dim}) must be even: sinusoids come in pairs")
        if self.scalenorm_gain == "fixed" and self.norm != "scalenorm":
            raise ValueError(
                f"model.scalenorm_gain: fixed contradicts model.norm: {self.norm}; "
                "a fixed gain exists for norm: scalenorm only"
            )
        extra = self.post_attn_norm or self.ffn_norm or self.qkv_norm
        if self.extra_norm != "layernorm" and not extra:
            raise ValueError(
                f"model.extra_norm: {self.extra_norm} has no effect without one of "
                "model.post_attn_norm, model.ffn_norm, model.qkv_norm"
            )
        return self

    @property
    def attention_dropout(self) -> float:
        """Dropout on attention weights, ``dropout`` unless set."""
        return self.dropout if self.attn_dropout is None else self.attn_dropout

    @property
    def feedforward_dropout(self) -> float:
        """Dropout after the activation, ``dropout`` unless set."""
        return self.dropout if self.ffn_dropout is None else self.ffn_dropout


class OptimConfig(Strict):
    """The optimizer and the loss."""

    kind: Literal["adam", "adamw", "radam"] = key("adam", "optimizer", "T appendix A, section 5")
    betas: tuple[Probability, Probability] = key((0.9, 0.999), "Adam's betas", "T appendix A")
    eps: float = key(1e-8, "Adam's epsilon", "T appendix A", gt=0)
    weight_decay: float = key(0.0, "weight decay", "T appendix C", ge=0)
    clip_norm: float = key(
        1.0, "gradients are scaled to at most this global norm; 0 = off", "T appendix A", ge=0
    )
    label_smoothing: Probability = key(0.1, "mass spread over the target's types", "T appendix A")
    accumulate: int = key(1, "batches per update", "T appendix C", ge=1)


class TrainConfig(Strict):
    """The length of training, and what is kept."""

    epoch_updates: int = key(1500, "updates between validations", "T table 1", ge=1)
    max_epochs: int = key(200, "validations at most", "T table 1", ge=1)
    min_lr: float = key(1e-6, "training ends when the learning rate falls below", "T app. A", ge=0)
    stop_patience: int = key(
        20, "validations without a better score before the end (50 for gl-en)", "T app. A", ge=1
    )
    keep: int = key(1, "newest checkpoints kept, beside the best", "O", ge=1)
    average: int = key(0, "average the last n checkpoints at the end; 0 = off", "V 6.1", ge=0)
    max_bad_updates: int = key(
        10, "updates in a row with non-finite gradients before the run stops", "O", ge=1
    )
    log_every: int = key(100, "updates between log lines", "O", ge=1)


class DecodeConfig(Strict):
    """Search, for validation and as nmt-translate's defaults."""

    beam: int = key(4, "beam size; 1 = greedy", "A", ge=1)
    length_alpha: float = key(0.6, "exponent of the penalty ((5+n)/6)^alpha; 0 = off", "W, A", ge=0)
    max_len_offset: int = key(
        50, "output has at most source length + this many pieces", "V, A", ge=1
    )
    allow_unk: bool = key(False, "whether UNK may be produced", "A")
    batch_tokens: int = key(4096, "source pieces x beam per batch, at most", "O", ge=1)


class ScoreConfig(Strict):
    """What is measured on dev and test."""

    metrics: list[Literal["bleu", "chrf", "ter"]] = key(
        ["bleu", "chrf"], "sacreBLEU metrics on detokenised text", "O", min_length=1
    )
    select_by: Literal["bleu", "chrf", "paper_bleu"] = key(
        "bleu",
        "dev score that picks the best checkpoint; paper_bleu = multi-bleu.perl's",
        "T app. A",
    )

    @model_validator(mode="after")
    def _consistent(self) -> ScoreConfig:
        if self.select_by != "paper_bleu" and self.select_by not in self.metrics:
            raise ValueError(
                f"score.select_by: {self.select_by} is not among score.metrics: {self.metrics}"
            )
        return self


def _default_kind(kind: str) -> Any:
    def fill(value: Any) -> Any:
        return {"kind": kind, **value} if isinstance(value, dict) else value

    return BeforeValidator(fill)


class Recipe(Strict):
    """A whole recipe, resolved: what a person wrote plus every default."""

    src: str = key(..., "source language code", "O", pattern=r"^[A-Za-z0-9_-]+$")
    tgt: str = key(..., "target language code", "O", pattern=r"^[A-Za-z0-9_-]+$")
    out: str = key("", "run folder; empty = runs/NAME beside the working directory", "O")
    seed: int = key(1, "everything random is a function of it", "O", ge=0)
    device: str = key("auto", "auto, cpu, cuda or cuda:N", "O", pattern=r"^(auto|cpu|cuda(:\d+)?)$")
    precision: Literal["auto", "fp32", "bf16"] = key(
        "auto", "auto = bf16 on a GPU that has it, fp32 on CPU", "O"
    )
    time_limit: float | None = key(None, "hours after which training saves and ends", "O", gt=0)
    data: DataConfig
    segment: Annotated[Segment, _default_kind("fastbpe")] = FastBpeConfig()
    model: ModelConfig = ModelConfig()
    optim: OptimConfig = OptimConfig()
    schedule: Annotated[Schedule, _default_kind("inverse_sqrt")] = InverseSqrt()
    train: TrainConfig = TrainConfig()
    decode: DecodeConfig = DecodeConfig()
    score: ScoreConfig = ScoreConfig()

    @model_validator(mode="after")
    def _consistent(self) -> Recipe:
        if self.src == self.tgt:
            raise ValueError(f"src and tgt are the same language ({self.src})")
        peak = getattr(self.schedule, "lr_start", getattr(self.schedule, "peak", None))
        if peak is not None and self.train.min_lr >= peak:
            raise ValueError(
                f"train.min_lr ({self.train.min_lr}) is not below schedule.lr ({peak}); "
                "training would end at once"
            )
        return self
