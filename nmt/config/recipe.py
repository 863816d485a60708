"""Every recipe key, once: type, default, range, meaning and source.

docs/recipe-keys.md and the JSON schema for editors are generated from here. Reading a recipe from
YAML is ``config_loader``'s work; this file knows neither files nor line numbers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from nmt.config.schema import ConfigBase, check_rules, keys_of, option
from nmt.training.schedules import SCHEDULES, InverseSqrt, LrRamp, Schedule

TYPES = 1_000_000  # of a vocabulary, at most
Probability: TypeAlias = Annotated[float, Field(ge=0, lt=1)]
Language: TypeAlias = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9_-]+$",
        json_schema_extra={"form": "a language code of letters, digits, - and _"},
    ),
]
Prefix: TypeAlias = Annotated[str, Field(min_length=1, json_schema_extra={"form": "a path prefix"})]


def _one_or_many(value: Any) -> Any:
    return [value] if isinstance(value, (str, Path)) else value


_PREFIX_SCHEMA = {"type": "string", "minLength": 1, "form": "a path prefix"}
Prefixes: TypeAlias = Annotated[
    list[Prefix],
    Field(min_length=1),
    BeforeValidator(_one_or_many),
    WithJsonSchema(
        {
            "anyOf": [_PREFIX_SCHEMA, {"type": "array", "minItems": 1, "items": _PREFIX_SCHEMA}],
            "form": "a path prefix, or a list of them",
        }
    ),
]


class DataConfig(ConfigBase):
    """Corpora, and how sentences become batches."""

    train: Prefixes = option(..., "path prefix(es) PREFIX.SRC and PREFIX.TGT, plain or .gz", "O")
    dev: Prefix = option(..., "path prefix of the tuning set", "O")
    test: Prefix | None = option(None, "path prefix of the final set, scored once at the end", "O")
    download: str | None = option(
        None, "corpus of data_prep to make, of src and tgt, when its files are missing", "O"
    )
    tokenized: bool = option(
        False, "true = text comes Moses-tokenized: no tokenizer runs, output is detokenized", "T A"
    )
    max_len: int = option(
        250, "longer training pairs are dropped; words before segmenting", "A", ge=1
    )
    max_pieces: int = option(
        1000, "longer training pairs are dropped; pieces of a side after segmenting", "O", ge=1
    )
    batch_tokens: int = option(
        4096, "sentences x longest of source and target, in pieces, at most", "T A", ge=8
    )
    rebatch: bool = option(True, "re-make batches each epoch; A's code does it once", "T, A")
    checks: Literal["error", "warn", "off"] = option(
        "error", "what a failed corpus check does before the first update", "O"
    )
    max_overlap: Probability = option(
        0.05, "share of dev or test pairs that may occur in train before the check fails", "O"
    )
    normalize: Literal["none", "nfc"] = option(
        "none", "Unicode normalization of the input; references are never altered", "O"
    )


class FastBpeConfig(ConfigBase):
    """Joint byte-pair encoding in fastBPE's format (T appendix A)."""

    kind: Literal["fastbpe"] = "fastbpe"
    merges: int = option(
        8000, "joint BPE operations to learn; 3000 for gl-en", "T table 1", ge=1, le=TYPES
    )
    codes: str = option("learn", "learn, or the path of a codes file", "O")
    vocab_threshold: int = option(
        0, "pieces rarer than this in training are split again", "O", ge=0
    )
    dropout: Probability = option(
        0.0, "BPE-dropout on the training text, drawn at preparation", "O"
    )


class SentencePieceConfig(ConfigBase):
    """SentencePiece, BPE or unigram."""

    kind: Literal["sentencepiece"] = "sentencepiece"
    vocab_size: int = option(8000, "joint vocabulary to learn", "O", ge=16, le=TYPES)
    model_type: Literal["bpe", "unigram"] = option("bpe", "kind of SentencePiece model", "O")
    model: str = option("learn", "learn, or the path of a .model file", "O")
    byte_fallback: bool = option(
        False, "rare characters become their UTF-8 bytes, 256 more types: none is unknown", "O"
    )


class WhitespaceConfig(ConfigBase):
    """White space separates pieces: for text that comes segmented."""

    kind: Literal["whitespace"] = "whitespace"
    min_count: int = option(1, "types rarer than this become UNK", "O", ge=1)


SEGMENT_KINDS: dict[str, Any] = {
    "fastbpe": FastBpeConfig,
    "sentencepiece": SentencePieceConfig,
    "whitespace": WhitespaceConfig,
}
SegmentConfig = Annotated[
    FastBpeConfig | SentencePieceConfig | WhitespaceConfig, Field(discriminator="kind")
]


PRESET = ("head_scale", "post_attn_norm", "ffn_norm")


def _is_true(value: Any) -> bool:
    try:
        return TypeAdapter(bool).validate_python(value)
    except ValidationError:
        return False


class ModelConfig(ConfigBase):
    """The encoder-decoder transformer and every normalization choice of both papers."""

    dim: int = option(512, "model dimension d", "T appendix A", ge=2, le=16_384)
    ffn_dim: int = option(
        2048, "inner dimension of the feed-forward sublayer", "T appendix A", ge=1, le=65_536
    )
    heads: int = option(8, "attention heads; must divide dim (4 for gl-en)", "T table 1", ge=1)
    enc_layers: int = option(6, "encoder layers (4 for gl-en)", "T table 1", ge=1, le=1000)
    dec_layers: int = option(6, "decoder layers (4 for gl-en)", "T table 1", ge=1, le=1000)
    activation: Literal["relu", "gelu", "relu2", "geglu"] = option(
        "relu", "feed-forward non-linearity; relu2 = ReLU squared", "T; N 2.1, table 2, 5"
    )
    bias: bool = option(True, "biases in linear layers", "A")
    norm: Literal["layernorm", "rmsnorm", "scalenorm"] = option(
        "scalenorm", "normalization of sublayers and stack outputs", "T 2.3, table 7"
    )
    norm_place: Literal["pre", "post"] = option(
        "pre", "PreNorm (equation 3) or PostNorm (equation 2)", "T 2.1"
    )
    norm_eps: float = option(
        1e-5, "epsilon of the norms; ScaleNorm clamps the length", "T app. C", gt=0
    )
    scalenorm_gain: Literal["learned", "fixed"] = option(
        "learned", "fixed = sqrt(d) everywhere but the last decoder norm", "T table 7"
    )
    fixnorm: bool = option(True, "embedding rows normalized to length 1 in every forward", "T 2.3")
    tie: Literal["src_tgt_out", "tgt_out", "none"] = option(
        "src_tgt_out", "which of source, target and output tables are one matrix", "T appendix A"
    )
    out_bias: bool = option(True, "a bias per type on the logits", "A")
    logit_mask: bool = option(
        True, "types that the target side of the training data never has are masked", "T appendix A"
    )
    init: Literal["small", "xavier"] = option(
        "small", "SmallInit: attention N(0, 2/(5d)); xavier: equation 4", "T 2.2"
    )
    dropout: Probability = option(
        0.3, "on embeddings and sublayer outputs (0.4 for gl-en)", "T table 1"
    )
    attn_dropout: Probability | None = option(
        None, "on attention weights; none = dropout", "T app. A"
    )
    ffn_dropout: Probability | None = option(
        None, "after the activation; none = dropout", "T app. A"
    )
    word_dropout: Probability = option(0.1, "input tokens replaced by UNK", "T appendix A")
    normformer: bool = option(
        False, "preset: head_scale, post_attn_norm and ffn_norm together", "N 2.1"
    )
    head_scale: bool = option(False, "HeadScale: a learned factor per attention head", "N 2.1")
    head_scale_place: Literal["inside", "outside"] = option(
        "inside",
        "inside = each head's output; outside = slices of the projected output, as N's release",
        "N 2.1, 2.2",
    )
    post_attn_norm: bool = option(False, "a norm on each attention output", "N 2.1")
    ffn_norm: bool = option(False, "a norm after the activation of the feed-forward", "N 2.1")
    qkv_norm: bool = option(False, "norms on queries, keys and values (+3 More LN)", "N table 4")
    res_scale: Literal["none", "ffn", "all", "scalar"] = option(
        "none",
        "ResScale: learned factors on the skip of the FFN, of all sublayers, or a scalar on each",
        "N 2.2, 4.2",
    )
    extra_norm: Literal["layernorm", "rmsnorm", "scalenorm"] = option(
        "layernorm", "norm used by post_attn_norm, ffn_norm and qkv_norm", "N 2.1"
    )

    @model_validator(mode="before")
    @classmethod
    def _expand_preset(cls, values: Any) -> Any:
        if not isinstance(values, dict) or not _is_true(values.get("normformer")):
            return values
        return {**dict.fromkeys(PRESET, True), **values}

    @model_validator(mode="after")
    def _consistent(self) -> ModelConfig:
        off = [part for part in PRESET if self.normformer and not getattr(self, part)]
        extra = self.post_attn_norm or self.ffn_norm or self.qkv_norm
        check_rules(
            (
                self.dim % self.heads != 0,
                f"model.heads ({self.heads}) must divide model.dim ({self.dim})",
            ),
            (
                self.dim % 2 != 0,
                f"model.dim ({self.dim}) must be even: sinusoids come in pairs",
            ),
            (
                self.scalenorm_gain == "fixed" and self.norm != "scalenorm",
                f"model.scalenorm_gain: fixed contradicts model.norm: {self.norm}; "
                "only ScaleNorm has a gain to fix",
            ),
            (
                self.head_scale_place != "inside" and not self.head_scale,
                f"model.head_scale_place: {self.head_scale_place} has no effect without "
                "model.head_scale",
            ),
            (
                self.extra_norm != "layernorm" and not extra,
                f"model.extra_norm: {self.extra_norm} has no effect without one of "
                "model.post_attn_norm, model.ffn_norm, model.qkv_norm",
            ),
            *(
                (
                    True,
                    f"model.{part}: false contradicts model.normformer: true; leave normformer "
                    f"out and set {', '.join(PRESET)} one by one",
                )
                for part in off
            ),
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


class OptimConfig(ConfigBase):
    """The optimizer and the loss."""

    kind: Literal["adam", "adamw", "radam", "muon"] = option(
        "adam",
        "optimizer; muon = Muon for the matrices of layers, AdamW for the rest",
        "T appendix A, section 5",
    )
    betas: tuple[Probability, Probability] = option((0.9, 0.999), "Adam's betas", "T appendix A")
    eps: float = option(1e-8, "Adam's epsilon", "T appendix A", gt=0)
    weight_decay: float = option(0.0, "weight decay", "T appendix C", ge=0)
    clip_norm: float = option(
        1.0, "gradients are scaled to at most this global norm; 0 = off", "T appendix A", ge=0
    )
    label_smoothing: Probability = option(
        0.1, "mass spread over the target's types", "T appendix A"
    )
    accumulate: int = option(1, "batches per update", "T appendix C", ge=1, le=10_000)


class TrainConfig(ConfigBase):
    """The length of training, and what is kept."""

    validate_every: int = option(1500, "updates between validations", "T table 1", ge=1)
    max_validations: int = option(200, "validations at most", "T table 1", ge=1)
    min_lr: float = option(
        1e-6, "training ends when the learning rate falls below", "T app. A", ge=0
    )
    stop_patience: int = option(
        20, "validations without a better score before the end (50 for gl-en)", "T app. A", ge=1
    )
    keep: int = option(1, "newest checkpoints kept, beside the best", "O", ge=1)
    average: int = option(0, "average the last n checkpoints at the end; 0 = off", "V 6.1", ge=0)
    max_bad_updates: int = option(
        10, "updates in a row with non-finite gradients before the run stops", "O", ge=1
    )
    log_every: int = option(100, "updates between log lines", "O", ge=1)


class DecodeConfig(ConfigBase):
    """Search, for validation and as nmt-translate's defaults."""

    beam: int = option(4, "beam size; 1 = greedy", "A", ge=1, le=1000)
    length_alpha: float = option(
        0.6, "exponent of the penalty ((5+n)/6)^alpha; 0 = off", "W, A", ge=0, le=10
    )
    max_len_offset: int = option(
        50, "output has at most source length + this many pieces", "V, A", ge=1, le=10_000
    )
    allow_unk: bool = option(False, "whether UNK may be produced", "A")
    batch_tokens: int = option(
        16384, "source pieces x beam per batch, at most", "O", ge=1, le=1_000_000_000
    )


class ScoreConfig(ConfigBase):
    """What is measured on dev and test."""

    metrics: list[Literal["bleu", "chrf", "ter"]] = option(
        ["bleu", "chrf"], "sacreBLEU metrics on detokenized text", "O", min_length=1
    )
    select_by: Literal["bleu", "chrf", "tokenized_bleu"] = option(
        "bleu",
        "dev score that picks the best checkpoint; tokenized_bleu = multi-bleu.perl's",
        "T app. A",
    )

    @model_validator(mode="after")
    def _consistent(self) -> ScoreConfig:
        check_rules(
            (
                self.select_by != "tokenized_bleu" and self.select_by not in self.metrics,
                f"score.select_by: {self.select_by} is not among score.metrics: "
                f"[{', '.join(self.metrics)}]",
            )
        )
        return self


class AnalysisConfig(ConfigBase):
    """What is observed while training, into metrics.jsonl and TensorBoard."""

    every: int = option(0, "updates between two observations; 0 = off", "O", ge=0)
    observe: list[
        Literal["grad_total", "grad_l1", "grad_l2", "gains", "head_scale", "res_scale"]
    ] = option(
        [],
        "what is observed: gradient norms (of all, of each matrix), gains, HeadScale, ResScale",
        "T fig. 2-4; N fig. 3-7",
    )

    @model_validator(mode="after")
    def _consistent(self) -> AnalysisConfig:
        together = "analysis.every and analysis.observe go together; set both, or none"
        check_rules((bool(self.every) != bool(self.observe), together))
        return self


def _with_kind(kind: str) -> BeforeValidator:
    def fill(value: Any) -> Any:
        return {"kind": kind, **value} if isinstance(value, dict) else value

    return BeforeValidator(fill)


class Recipe(ConfigBase):
    """A whole recipe, resolved: what a person wrote plus every default."""

    src: Language = option(..., "source language code", "O")
    tgt: Language = option(..., "target language code", "O")
    out: str = option("", "run folder; empty = runs/NAME beside the working directory", "O")
    seed: int = option(1, "everything random is a function of it", "O", ge=0, le=2**32 - 1)
    device: str = option(
        "auto",
        "auto = a GPU if there is one, else the CPU",
        "O",
        form="auto, cpu, cuda or cuda:N",
        pattern=r"^(auto|cpu|cuda(:\d+)?)$",
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] = option(
        "auto", "auto = bf16 where GPU or CPU has it, fp16 on V100 and T4, else fp32", "O"
    )
    graphs: Literal["auto", "off"] = option("auto", "auto = CUDA graphs of updates on a GPU", "O")
    time_limit: float | None = option(None, "hours after which training saves and ends", "O", gt=0)
    data: DataConfig
    segment: Annotated[SegmentConfig, _with_kind("fastbpe")] = FastBpeConfig()
    model: ModelConfig = ModelConfig()
    optim: OptimConfig = OptimConfig()
    schedule: Annotated[Schedule, _with_kind("inverse_sqrt")] = InverseSqrt()
    train: TrainConfig = TrainConfig()
    decode: DecodeConfig = DecodeConfig()
    score: ScoreConfig = ScoreConfig()
    analysis: AnalysisConfig = AnalysisConfig()

    @model_validator(mode="after")
    def _consistent(self) -> Recipe:
        schedule, min_lr = self.schedule, self.train.min_lr
        warm = max(1, getattr(schedule, "warmup_updates", 1))
        # the last update of a linear schedule has end_lr, and it may be the only one
        peak = getattr(schedule, "peak", None) or schedule.lr(warm, (), self.model.dim)
        cause = "lr" if "lr" in keys_of(type(schedule)) else "scale"
        check_rules(
            (self.src == self.tgt, f'tgt: the same language as src, "{self.src}"'),
            (self.train.average == 1, "train.average: 1 is no average; 0 is off, 2 the least"),
            (
                not isinstance(schedule, LrRamp) and peak < min_lr * (1 - 1e-9),
                f"train.min_lr ({min_lr:g}) is above the highest learning rate ({peak:.3g}, from "
                f"schedule.{cause}); training would end at once",
            ),
            *(
                (
                    name in self.analysis.observe and getattr(self.model, name) in (False, "none"),
                    f"analysis.observe: {name} has nothing to observe without model.{name}",
                )
                for name in ("head_scale", "res_scale")
            ),
        )
        return self


def groups() -> dict[str, dict[str, type[BaseModel]]]:
    """Groups of keys: name -> kind -> model; the kind is "" where there is but one."""
    kinds = {"segment": SEGMENT_KINDS, "schedule": SCHEDULES}
    return {
        name: kinds.get(name) or {"": field.annotation}
        for name, field in Recipe.model_fields.items()
        if name in kinds or isinstance(field.annotation, type(BaseModel))
    }


def default_kind(group: str) -> str:
    """The kind that a group without ``kind`` has; "" for a group that has but one."""
    return "" if "" in groups()[group] else str(Recipe.model_fields[group].default.kind)
