"""Every recipe key, once: type, default, range, meaning and source.

docs/recipe-keys.md and the JSON schemas for editors are generated from these classes, and
``nmt.config.load`` reads a recipe from YAML. ``nmt.config.entries`` has the keys of corpora,
``nmt.config.schedules`` those of learning-rate schedules.

The second argument of ``key`` is where the default comes from: T = Transformers without Tears
(Nguyen & Salazar 2019), A = its code, N = NormFormer (Shleifer et al. 2021), V = Vaswani et al.
2017, W = Wu et al. 2016, O = our choice.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, get_args

from pydantic import (
    BaseModel,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from nmt.config.entries import (
    TAG_KEYS,
    CorpusEntries,
    CorpusEntry,
    Direction,
    Directions,
    Entry,
    HeldOutEntries,
    HeldOutEntry,
    Language,
    NonEmpty,
    Tag,
)
from nmt.config.schedules import InverseSqrt, LrRamp, Schedule
from nmt.config.schema import ConfigBase, in_words, is_none, key, keys_of, list_of, models_of

MAX_VOCAB = 1_000_000
MAX_DRAWS = 100

Probability: TypeAlias = Annotated[float, Field(ge=0, lt=1)]
AugmentKind: TypeAlias = Literal[
    "case", "accents", "typos", "punctuation", "quotes", "copies", "join"
]


class DataConfig(ConfigBase):
    """Corpora, and how sentences become batches."""

    train: CorpusEntries = key(..., "O")
    """training corpus, or a list of corpora: path prefix of the files PREFIX.SRC and PREFIX.TGT,
    one sentence per line, plain, .gz, .xz or .bz2"""
    dev: HeldOutEntries = key(..., "O")
    """path prefix of the validation set, or a list of sets; the score, or the mean score of the
    sets without select: false, selects the best checkpoint, decays the learning rate and stops
    training"""
    test: HeldOutEntries | None = key(None, "O")
    """path prefix of the test set, or a list of sets; each set is scored once, at the end of
    training"""
    temperature: float = key(1.0, "Arivazhagan 2019", ge=1, le=100)
    """sampling temperature T: corpora are sampled in proportion to size^(1/T), and the largest is
    seen once an epoch; 1 = off; the weight of an entry multiplies this"""
    download: str | None = key(None, "O")
    """public corpus to download for src and tgt if its files are missing: a name of nmt-import;
    mtdata is followed by its IDs and options"""
    tokenized: bool = key(False, "T, A")
    """true = the corpus files are Moses-tokenized: they are not tokenized again, and output is
    detokenized"""
    max_len: int = key(250, "A", ge=1)
    """maximum length of a training sentence in words, before segmentation; longer pairs are
    dropped"""
    max_pieces: int = key(1000, "O", ge=1)
    """maximum length of a training sentence in subwords; longer pairs are dropped"""
    batch_tokens: int = key(4096, "T, A", ge=8)
    """maximum batch size: number of sentences x length of the longest one in subwords, source or
    target"""
    block: int = key(512, "N 3.1; Liu 2019", ge=8)
    """context length of a language model in subwords; a batch has data.batch_tokens / data.block
    blocks; N uses 2048 for causal models"""
    rebatch: bool = key(True, "T, A")
    """true = form new batches in every epoch; false = form them once and shuffle their order, as A
    does"""
    checks: Literal["error", "warn", "off"] = key("error", "O")
    """effect of a failed corpus check: error = stop before training, warn = print a warning, off =
    nothing"""
    max_overlap: Probability = key(0.05, "O")
    """maximum share of dev or test pairs that also occur in the training corpus; a larger share is
    a failed check"""
    normalize: Literal["clean", "nfc", "none"] = key("clean", "O")
    """Unicode normalization of training and input text: clean = NFC without invisible characters,
    as docs/data.md lists them; references are scored unaltered"""
    augment: dict[AugmentKind, Annotated[float, Field(ge=0, le=1)]] = key(
        {},
        "Belinkov 2018, Bogoychev 2023, Nguyen 2021",
        form=f"a mapping of {', '.join(get_args(AugmentKind))} to numbers from 0 to 1",
    )
    """share of the training pairs that each kind of noise changes, in each of segment.draws
    versions: case = all caps, title case or lowercase on both sides; accents = stripped from the
    source; typos = in the source, by keyboard neighbors; punctuation = final mark removed from both
    sides; quotes = other quotation marks in the source; copies = the same URL, e-mail address,
    emoji or placeholder added to both sides; join = concatenated with another pair; a kind without
    a share is off"""

    @property
    def entries(self) -> dict[str, Sequence[CorpusEntry | HeldOutEntry]]:
        """Return the entries of train, dev and test."""
        return {"train": self.train, "dev": self.dev, "test": self.test or []}

    @property
    def augments(self) -> bool:
        """Return whether some training pairs are changed."""
        return any(self.augment.values())


class SegmentBase(ConfigBase):
    """A kind of segmentation: a subclass has ``kind`` and its keys.

    Attributes:
        file_key: key that may name the file of a learned segmentation; "" = the kind has none.
    """

    file_key: ClassVar[str] = ""

    @property
    def file(self) -> str | None:
        """Return the path of a learned segmentation; None if the recipe names none."""
        value = getattr(self, self.file_key) if self.file_key else "learn"
        return None if value == "learn" else value

    @property
    def learning_entries(self) -> list[CorpusEntry]:
        """Return the entries of ``learn_from``; an empty list means those of ``data.train``."""
        return getattr(self, "learn_from", None) or []

    @property
    def has_noise(self) -> bool:
        """Return whether training text is segmented at random."""
        return getattr(self, "dropout", 0) > 0 or getattr(self, "sampling_alpha", None) is not None


class FastBpeConfig(SegmentBase):
    """Joint byte-pair encoding in fastBPE's format (T appendix A)."""

    file_key = "codes"
    kind: Literal["fastbpe"] = "fastbpe"
    merges: int = key(8000, "T table 1", ge=1, le=MAX_VOCAB)
    """number of BPE merges, learned on both sides together; T uses 3000 for gl-en"""
    codes: str = key("learn", "O")
    """learn = learn the merges; otherwise a file of BPE codes from fastBPE or subword-nmt 0.2"""
    learn_from: CorpusEntries | None = key(None, "O")
    """corpora to learn the segmentation on, in any languages; entries as in data.train; none =
    data.train"""
    dropout: Probability = key(0.0, "O")
    """BPE-dropout (Provilkov et al. 2020): probability of skipping a merge in training text; 0 =
    off, 0.1 = the authors' value"""
    draws: int = key(10, "O", ge=1, le=MAX_DRAWS)
    """random versions of each training pair, if dropout or data.augment is on; consecutive epochs
    read different ones"""


class SentencePieceConfig(SegmentBase):
    """SentencePiece, BPE or unigram."""

    file_key = "model"
    kind: Literal["sentencepiece"] = "sentencepiece"
    vocab_size: int = key(8000, "O", ge=16, le=MAX_VOCAB)
    """vocabulary size, learned on both sides together"""
    model_type: Literal["bpe", "unigram"] = key("bpe", "O")
    """SentencePiece model type"""
    model: str = key("learn", "O")
    """learn = learn the model; otherwise the path of a .model file"""
    learn_from: CorpusEntries | None = key(None, "O")
    """corpora to learn the segmentation on, in any languages; entries as in data.train; none =
    data.train"""
    byte_fallback: bool = key(False, "O")
    """true = rare and unseen characters become UTF-8 bytes and never UNK; adds 256 subwords"""
    dropout: Probability = key(0.0, "O")
    """BPE-dropout for model_type: bpe, as in fastbpe; 0 = off"""
    sampling_alpha: float | None = key(None, "O", ge=0)
    """subword regularization (Kudo 2018) for model_type: unigram: segmentations of training text
    are sampled in proportion to probability^alpha; 0 = uniformly, 0.2 = the author's value; none =
    off"""
    draws: int = key(10, "O", ge=1, le=MAX_DRAWS)
    """random versions of each training pair, if dropout, sampling_alpha or data.augment is on;
    consecutive epochs read different ones"""

    def _broken_rules(self) -> Iterator[str]:
        learned, sampling = self.file is None, self.sampling_alpha is not None
        if sampling and self.dropout > 0:
            yield "sampling_alpha and dropout exclude each other; only unigram has sampling_alpha"
        if learned and self.dropout > 0 and self.model_type != "bpe":
            yield "dropout requires model_type: bpe; for unigram, set sampling_alpha: 0.2"
        if learned and sampling and self.model_type != "unigram":
            yield "sampling_alpha requires model_type: unigram; for bpe, set dropout: 0.1"


class WhitespaceConfig(SegmentBase):
    """Words as pieces, split at white space: for text that is already segmented."""

    kind: Literal["whitespace"] = "whitespace"
    min_count: int = key(1, "O", ge=1)
    """words that occur less often than this in the training data become UNK"""


SegmentConfig = Annotated[
    FastBpeConfig | SentencePieceConfig | WhitespaceConfig, Field(discriminator="kind")
]


TRUE = ("true", "yes", "on", "1", "t", "y")  # as pydantic reads them
PRESET = ("head_scale", "post_attn_norm", "ffn_norm")


class ModelConfig(ConfigBase):
    """The encoder-decoder transformer, with the normalization variants of both papers."""

    dim: int = key(512, "T appendix A", ge=2, le=16_384)
    """model dimension d; must be even"""
    ffn_dim: int = key(2048, "T appendix A", ge=1, le=65_536)
    """inner dimension of the feed-forward layers"""
    heads: int = key(8, "T table 1", ge=1)
    """number of attention heads; must divide dim; T uses 4 for gl-en"""
    enc_layers: int = key(6, "T table 1", ge=1, le=1000)
    """number of encoder layers; T uses 4 for gl-en"""
    dec_layers: int = key(6, "T table 1", ge=1, le=1000)
    """number of decoder layers; T uses 4 for gl-en"""
    activation: Literal["relu", "gelu", "relu2", "geglu", "swish"] = key(
        "relu", "T; N 2.1, tables 2, 5; O"
    )
    """activation of the feed-forward layers; relu2 = squared ReLU, geglu = gated GELU, swish = x *
    sigmoid(x), as in OPUS-MT"""
    bias: bool = key(True, "A")
    """true = linear layers have biases"""
    positions: Literal["sinusoidal", "fairseq", "learned"] = key("sinusoidal", "V 3.5; O")
    """positional encoding: sinusoidal = as in the paper; fairseq = sinusoidal from position 2 with
    other frequencies, as in M2M-100 and NLLB-200; learned = learned embeddings, as in mBART-50"""
    max_positions: int = key(1024, "O", ge=640)
    """number of learned positional embeddings; longer sentences do not fit"""
    embed_norm: bool = key(False, "O")
    """true = a norm after the sum of token and positional embeddings, as in mBART-50"""
    src_eos: bool = key(True, "O")
    """true = a source ends with EOS; false = nothing attends to its EOS, as in models of OpenNMT-py
    and OpenNMT-tf, which have none"""
    norm: Literal["layernorm", "rmsnorm", "scalenorm"] = key("scalenorm", "T 2.3, table 7")
    """norm of the sublayers and of the encoder and decoder output"""
    norm_place: Literal["pre", "post"] = key("pre", "T 2.1")
    """pre = norm before each sublayer (PreNorm, equation 3); post = norm after each residual sum
    (PostNorm, equation 2)"""
    norm_eps: float = key(1e-5, "T appendix C", gt=0)
    """epsilon of the norms, added to the variance or mean square; for ScaleNorm, the lower bound of
    the divisor"""
    scalenorm_gain: Literal["learned", "fixed"] = key("learned", "T table 7")
    """gain g of ScaleNorm in residual connections and at the end of a stack; fixed = sqrt(d),
    except in the norm before the logits; that norm, embed_norm and extra_norm learn theirs"""
    fixnorm: bool = key(True, "T 2.3")
    """true = FixNorm: word embeddings are normalized to length 1"""
    tie: Literal["src_tgt_out", "tgt_out", "none"] = key("src_tgt_out", "T appendix A")
    """which embeddings share one matrix: src_tgt_out = source, target and output; tgt_out = target
    and output; none = no sharing"""
    out_bias: bool = key(True, "A")
    """true = the output layer has a bias per vocabulary entry"""
    logit_mask: bool = key(True, "T appendix A")
    """true = vocabulary entries that do not occur on the target side of the training corpus get
    probability 0"""
    init: Literal["small", "xavier"] = key("small", "T 2.2")
    """initialization: small = SmallInit, attention weights from N(0, 2/(5d)); xavier = Xavier
    normal (equation 4)"""
    dropout: Probability = key(0.3, "T table 1")
    """dropout on embeddings and sublayer outputs; T uses 0.4 for gl-en"""
    attn_dropout: Probability | None = key(None, "T appendix A")
    """dropout on attention weights; none = same as dropout"""
    ffn_dropout: Probability | None = key(None, "T appendix A")
    """dropout after the activation of the feed-forward layers; none = same as dropout"""
    word_dropout: Probability = key(0.1, "T appendix A")
    """probability of replacing an input token, source or target, by UNK"""
    normformer: bool = key(False, "N 2.1")
    """true = NormFormer: sets head_scale, post_attn_norm and ffn_norm to true"""
    head_scale: bool = key(False, "N 2.1")
    """true = HeadScale: a learned factor for each attention head"""
    head_scale_place: Literal["inside", "outside"] = key("inside", "N 2.1, 2.2")
    """what HeadScale multiplies: inside = the output of each head; outside = slices of the
    attention output after its projection, as in N's released code"""
    post_attn_norm: bool = key(False, "N 2.1")
    """true = a norm on the output of each attention layer"""
    ffn_norm: bool = key(False, "N 2.1")
    """true = a norm after the activation of the feed-forward layers"""
    qkv_norm: bool = key(False, "N table 4")
    """true = norms on queries, keys and values (+3 More LN)"""
    res_scale: Literal["none", "ffn", "all", "scalar"] = key("none", "N 2.2, 4.2")
    """ResScale: learned factors on the residual connection: ffn = a vector in feed-forward
    sublayers, all = a vector in every sublayer, scalar = one number in every sublayer"""
    extra_norm: Literal["layernorm", "rmsnorm", "scalenorm"] = key("layernorm", "N 2.1")
    """kind of the norms that post_attn_norm, ffn_norm and qkv_norm add"""

    @model_validator(mode="before")
    @classmethod
    def _expand_preset(cls, values: Any) -> Any:
        if not isinstance(values, dict) or str(values.get("normformer")).lower() not in TRUE:
            return values
        return {**dict.fromkeys(PRESET, True), **values}

    def _broken_rules(self) -> Iterator[str]:
        if self.dim % self.heads:
            yield f"model.heads ({self.heads}) must divide model.dim ({self.dim})"
        if self.dim % 2:
            yield f"model.dim ({self.dim}) must be even: positions are pairs of sine and cosine"
        if self.scalenorm_gain == "fixed" and self.norm != "scalenorm":
            yield (
                f"model.scalenorm_gain: fixed contradicts model.norm: {self.norm}; only ScaleNorm "
                "has a gain to fix"
            )
        if self.max_positions != 1024 and self.positions != "learned":
            yield "model.max_positions has no effect without model.positions: learned"
        if self.head_scale_place != "inside" and not self.head_scale:
            yield "model.head_scale_place has no effect without model.head_scale"
        has_extra = self.post_attn_norm or self.ffn_norm or self.qkv_norm
        if self.extra_norm != "layernorm" and not has_extra:
            yield (
                f"model.extra_norm: {self.extra_norm} has no effect without one of "
                "model.post_attn_norm, model.ffn_norm, model.qkv_norm"
            )
        for part in PRESET if self.normformer else ():
            if not getattr(self, part):
                yield (
                    f"model.{part}: false contradicts model.normformer: true; leave normformer "
                    f"out and set {', '.join(PRESET)} one by one"
                )


_PATTERN = "a pattern of parameter names, such as encoder.*"
Pattern: TypeAlias = Annotated[NonEmpty, in_words(_PATTERN)]
Patterns: TypeAlias = Annotated[list[Pattern], list_of(Pattern, f"{_PATTERN}, or a list of them")]


class InitConfig(ConfigBase):
    """Start from a trained model, the parent: transfer (Zoph et al. 2016) and fine-tuning."""

    parent: str | None = key(
        None, "O", form="the path of a model or of a run folder", min_length=1, alias="from"
    )
    """the parent, the trained model that this run starts from: a model, or a run, whose best model
    it is; none = random initialization"""
    vocab: Literal["new", "parent", "extend"] = key("new", "O")
    """new = learn a vocabulary on this corpus as segment says; subwords that the parent also has
    take its embeddings; parent = the segmentation and vocabulary of the parent; subwords that it
    lacks become UNK; extend = those of the parent, plus new subwords for text that it segments
    poorly, learned on segment.learn_from or data.train"""
    new_pieces: int = key(2000, "O", ge=1, le=MAX_VOCAB)
    """maximum number of new subwords of vocab: extend, for each SentencePiece model of the parent;
    their embeddings start as the mean of those that they replace"""
    trim: bool = key(False, "O")
    """true = with vocab: parent or extend, keep only the subwords of the corpora (data.train,
    data.dev, data.test, segment.learn_from), single characters, bytes, tags, new subwords, and the
    parent's most frequent subwords"""
    keep_pieces: int = key(8000, "O", ge=0, le=MAX_VOCAB)
    """number of the parent's most frequent subwords that trim always keeps"""
    tag_rows: dict[Tag, Tag] = key(
        {}, "O", form="a mapping of tags to tags, such as {<glg_Latn>: <por_Latn>}"
    )
    """new tag -> tag of the parent whose embedding it starts from, such as {<glg_Latn>:
    <por_Latn>}; other tags that the parent lacks start as the mean of its tags, or of all its
    embeddings"""
    freeze: Patterns = key([], "O")
    """patterns of the names of parameters that are not trained; * matches any text; the words
    embeddings, encoder and decoder stand for these parts"""

    @property
    def adapts(self) -> bool:
        """Return whether the segmentation of the parent gets or loses pieces."""
        return self.vocab == "extend" or self.trim

    def _broken_rules(self) -> Iterator[str]:
        own = {name: f for name, f in keys_of(type(self)).items() if name != "from"}
        changed = [name for name, field in own.items() if getattr(self, name) != field.default]
        if self.parent is None:
            for name in changed:
                yield f"init.{name} requires init.from"
            return
        if "new_pieces" in changed and self.vocab != "extend":
            yield "init.new_pieces requires init.vocab: extend"
        if self.trim and self.vocab == "new":
            yield "init.trim requires init.vocab: parent or extend; new has no other subwords"
        if "keep_pieces" in changed and not self.trim:
            yield "init.keep_pieces requires init.trim: true"


class OptimConfig(ConfigBase):
    """The optimizer and the loss."""

    kind: Literal["adam", "adamw", "radam", "muon", "adafactor"] = key(
        "adam", "T appendix A, section 5; O"
    )
    """optimizer; muon = Muon for the weight matrices of the layers and AdamW for all other weights;
    adafactor = Adafactor, which needs little memory; its steps are learning rate x RMS of the
    tensor"""
    betas: tuple[Probability, Probability] = key((0.9, 0.999), "T appendix A")
    """Adam's betas: decay rates of the first and second moments; with muon, of the AdamW part"""
    eps: float = key(1e-8, "T appendix A", gt=0)
    """Adam's epsilon; with muon, of the AdamW part"""
    weight_decay: float = key(0.0, "T appendix C", ge=0)
    """weight decay: for adam and radam, L2 regularization, added to the gradient after clipping;
    for adamw, muon and adafactor, decoupled"""
    clip_norm: float = key(1.0, "T appendix A", ge=0)
    """maximum global gradient norm; larger gradients are scaled down; 0 = off"""
    label_smoothing: Probability = key(0.1, "T appendix A")
    """label smoothing: probability mass spread evenly over the target vocabulary"""
    accumulate: int = key(1, "T appendix C", ge=1, le=10_000)
    """gradient accumulation: batches per update, in each process"""

    def _broken_rules(self) -> Iterator[str]:
        for name in ("betas", "eps") if self.kind == "adafactor" else ():
            if getattr(self, name) != keys_of(type(self))[name].default:
                yield f"optim.{name} has no effect with optim.kind: adafactor; remove it"


class LoraConfig(ConfigBase):
    """LoRA (Hu et al. 2022): low-rank updates of linear layers train, and nothing else."""

    rank: int = key(0, "O", ge=0, le=4096)
    """rank of the updates; 0 = off: all parameters train; the paper uses 4 to 64"""
    alpha: float | None = key(None, "O", gt=0)
    """the updates are scaled by alpha / rank; none = 2 x rank"""
    targets: Patterns = key(["*"], "O")
    """patterns of the names of linear layers that LoRA adapts, such as decoder.*.qkv; * = all"""


class TrainConfig(ConfigBase):
    """When training validates, saves and ends."""

    validate_every: int = key(1500, "T table 1", ge=1)
    """updates between validations; each one scores dev and saves a checkpoint; T calls this an
    epoch"""
    max_validations: int = key(200, "T table 1", ge=1)
    """training ends after this many validations"""
    min_lr: float = key(1e-6, "T appendix A", ge=0)
    """training ends when the learning rate falls below this"""
    stop_patience: int = key(20, "T appendix A", ge=1)
    """early stopping: training ends after this many validations in a row without a new best score;
    T uses 50 for gl-en"""
    keep: int = key(1, "O", ge=1)
    """number of newest checkpoints to keep, in addition to the best one"""
    average: int = key(0, "V 6.1", ge=0)
    """checkpoint averaging: number of newest checkpoints to average when training ends; the average
    is used if its dev score is not worse than the best; 0 = off, otherwise at least 2"""
    max_bad_updates: int = key(10, "O", ge=1)
    """an update with an infinite or NaN gradient is skipped and counted; after this many in a row,
    training returns once to the last validation and continues with half the learning rate; the next
    time, or before a validation, it stops with an error"""
    log_every: int = key(100, "O", ge=1)
    """updates between log lines"""
    recompute: bool = key(False, "O")
    """activation checkpointing: true = the backward pass recomputes the activations of each layer
    and the logits: less memory, about a third more time; on a GPU without CUDA graphs"""
    shard: Literal["off", "full"] = key("off", "N released code")
    """with several processes: off = each process has the complete model; full = weights, gradients
    and optimizer state are sharded, for a model that is too large for one GPU"""
    tensorboard: Literal["auto", "on", "off"] = key("auto", "O")
    """write metrics for TensorBoard to RUN/tensorboard; auto = if the package tensorboard is
    installed; on = a missing package is an error"""
    wandb: str | None = key(
        None, "O", form="PROJECT or ENTITY/PROJECT", pattern=r"^([^/\\#?%:\s]+/)?[^/\\#?%:]{1,128}$"
    )
    """project of Weights & Biases that gets the metrics and the recipe; requires the package wandb;
    none = off"""


class SearchConfig(ConfigBase):
    """Beam search, for validation and test and as defaults of nmt-translate."""

    beam: int = key(4, "A", ge=1, le=1000)
    """beam size; 1 = greedy search"""
    length_alpha: float = key(0.6, "W, A", ge=0, le=10)
    """exponent alpha of the length penalty, which divides scores; 0 = off, higher = longer
    translations"""
    length_penalty: Literal["gnmt", "mean"] = key("gnmt", "W, O")
    """length penalty of n tokens: gnmt = ((5 + n)/6)^length_alpha; mean = n^length_alpha, as in
    fairseq, transformers and CTranslate2, where n counts a target tag too"""
    max_len_offset: int = key(50, "V, A", ge=1, le=10_000)
    """maximum length of a translation in subwords: length of the source plus this"""
    stop_rule: Literal["bound", "count"] = key("count", "O, A")
    """when the search of a sentence ends: count = when as many hypotheses as the beam size have
    ended, as in fairseq and CTranslate2; bound = when no unfinished hypothesis can become the
    best"""
    allow_unk: bool = key(False, "A")
    """true = translations may contain UNK"""
    no_repeat_ngram: int = key(0, "Paulus 2018", ge=0, le=1000)
    """no n-gram of subwords of this length occurs twice; 0 = off"""
    batch_tokens: int = key(16384, "O", ge=1, le=1_000_000_000)
    """maximum batch size: source subwords with padding x beam; affects speed and memory; in bf16
    and fp16, it can also change translations"""


class DecodeConfig(SearchConfig):
    """The search, and how nmt-translate and nmt-serve compute."""

    quantization: Literal["fp32", "int8"] = key("fp32", "O")
    """weights in nmt-translate and nmt-serve: int8 = 8-bit integers, faster on a CPU, with
    CTranslate2 only: where torch searches, fp32; validation and test compute in fp32"""


class ScoreConfig(ConfigBase):
    """Metrics on dev and test."""

    metrics: list[Literal["bleu", "chrf", "chrf++", "ter"]] = key(
        ["bleu", "chrf"], "O", min_length=1
    )
    """metrics of sacreBLEU, on detokenized text; tokenized BLEU is always added, and that of
    select_by unless this key is set"""
    select_by: Literal["bleu", "chrf", "chrf++", "tokenized_bleu", "ppl"] = key(
        "bleu", "T appendix A"
    )
    """metric whose dev score selects the best checkpoint; tokenized_bleu = the BLEU of
    multi-bleu.perl, which T reports; ppl = perplexity, the default and only choice for tasks other
    than translation"""

    @model_validator(mode="before")
    @classmethod
    def _measure_what_selects(cls, values: Any) -> Any:
        if not isinstance(values, dict) or values.get("select_by") != "chrf++":
            return values
        return {"metrics": [*cls.model_fields["metrics"].default, "chrf++"], **values}

    def _broken_rules(self) -> Iterator[str]:
        if self.select_by not in ("tokenized_bleu", "ppl", *self.metrics):
            listed = ", ".join(self.metrics)
            yield f"score.select_by: {self.select_by} is not among score.metrics: [{listed}]"


class AnalysisConfig(ConfigBase):
    """Observations during training, written to metrics.jsonl and TensorBoard."""

    every: int = key(0, "O", ge=0)
    """updates between observations; 0 = off"""
    observe: list[
        Literal["grad_total", "grad_l1", "grad_l2", "gains", "head_scale", "res_scale"]
    ] = key([], "T figures 2-4; N figures 3-7")
    """what to log: grad_total = L2 norm of all gradients together; grad_l1, grad_l2 = L1 and L2
    norm of the gradient of each weight matrix; gains = gains of the norms; head_scale, res_scale =
    learned factors of HeadScale and ResScale"""

    def _broken_rules(self) -> Iterator[str]:
        if bool(self.every) != bool(self.observe):
            yield "analysis.every and analysis.observe require each other; set both or neither"


# keys without effect on a task; a recipe for that task must leave them at their defaults
_NOT_FOR_TEXT = (
    "data.max_len", "data.rebatch", "data.augment", "model.src_eos", "decode.*", "score.metrics",
)  # fmt: skip
UNUSED_KEYS: dict[str, tuple[str, ...]] = {
    "translation": ("data.block",),
    "causal_lm": (*_NOT_FOR_TEXT, "model.enc_layers"),
    "masked_lm": (*_NOT_FOR_TEXT, "model.dec_layers"),
}


def stacks_of(task: str) -> tuple[str, ...]:
    """Return the stacks of blocks that the model of a task has: encoder, decoder or both."""
    return {"causal_lm": ("decoder",), "masked_lm": ("encoder",)}.get(task, ("encoder", "decoder"))


class Recipe(ConfigBase):
    """A complete recipe: the keys that a file sets, and the default of every other key."""

    task: Literal["translation", "causal_lm", "masked_lm"] = key(
        "translation", "O; N 2.2; Liu 2019"
    )
    """what the model learns: translation; causal_lm = predict each token from those before it;
    masked_lm = predict masked tokens (RoBERTa)"""
    src: Language = key(..., "O")
    """source language code: file extension and rules of the tokenizer; the language of a language
    model's text"""
    tgt: str = key(
        "", "O", form="a language code of letters, digits, - and _", pattern=r"^[A-Za-z0-9_-]*$"
    )
    """target language code: file extension and rules of the tokenizer; required for translation,
    empty for other tasks"""
    out: str = key("", "O")
    """run folder; empty = runs/NAME in the working directory, for the recipe NAME.yaml"""
    seed: int = key(1, "O", ge=0, le=2**32 - 1)
    """random seed of initial weights, batches, dropout and noise"""
    device: str = key(
        "auto", "O", form="auto, cpu, cuda or cuda:N", pattern=r"^(auto|cpu|cuda(:\d+)?)$"
    )
    """where to train; auto = a GPU if torch finds one, otherwise the CPU"""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = key("auto", "O")
    """precision of matrix products; auto = bf16 if the GPU or CPU computes it fast, fp16 on
    V100 and T4, otherwise fp32"""
    graphs: Literal["auto", "off"] = key("auto", "O")
    """auto = on a GPU, record updates as CUDA graphs; off = launch each kernel"""
    time_limit: float | None = key(None, "O", gt=0)
    """hours of training, in all sessions of the run together, after which the run saves its state,
    scores the test set and ends; none = no limit"""
    data: DataConfig
    segment: SegmentConfig = FastBpeConfig()
    model: ModelConfig = ModelConfig()
    init: InitConfig = InitConfig()
    lora: LoraConfig = LoraConfig()
    optim: OptimConfig = OptimConfig()
    schedule: Schedule = InverseSqrt()
    train: TrainConfig = TrainConfig()
    decode: DecodeConfig = DecodeConfig()
    score: ScoreConfig = ScoreConfig()
    analysis: AnalysisConfig = AnalysisConfig()

    @property
    def translates(self) -> bool:
        """Return whether the task has a source and a target language."""
        return self.task == "translation"

    @property
    def has_noise(self) -> bool:
        """Return whether training text is segmented at random or changed."""
        return self.segment.has_noise or self.data.augments

    @property
    def draws(self) -> int:
        """Return the number of versions of each training pair."""
        return self.segment.draws if self.has_noise else 1  # type: ignore[union-attr]

    @property
    def languages(self) -> str:
        """Return ``gl-en``, or the language of a language model."""
        return "-".join(filter(None, (self.src, self.tgt)))

    @property
    def directions(self) -> Directions:
        """Return the directions of the training data, without monolingual text."""
        trained = (
            Direction(*entry.langs(self), entry.tag, entry.tgt_tag)
            for entry in self.data.train
            if not entry.copied
        )
        return Directions(self.src, self.tgt, tuple(dict.fromkeys(trained)))

    def options_for(self, entry: HeldOutEntry) -> dict[str, str]:
        """Return the search options that translate the source of an entry, without defaults."""
        options = Direction(*entry.langs(self), entry.tag, entry.tgt_tag).options
        if options["src"] == self.src or options["src"] not in self.directions.sources:
            del options["src"]
        return options

    @property
    def stacks(self) -> tuple[str, ...]:
        """Return the stacks of blocks that the model has: encoder, decoder or both."""
        return stacks_of(self.task)

    @field_validator("tgt")
    @classmethod
    def _only_for_translation(cls, tgt: str, info: ValidationInfo) -> str:
        task = info.data.get("task")
        if task == "translation" and not tgt:
            raise ValueError('required key "tgt" is missing')
        if task not in ("translation", None) and tgt:
            raise ValueError(
                f"tgt: {tgt} has no effect with task: {task}, whose text has the language src; "
                "remove tgt"
            )
        return tgt

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, values: Any) -> Any:
        """Read empty groups and groups without ``kind``; language models are selected by ppl."""
        if not isinstance(values, dict):
            return values
        filled = dict(values)
        for name in groups().keys() & values.keys():
            value = {} if is_none(values[name]) else values[name]
            if isinstance(value, dict) and (kind := default_kind(name)):
                value = {"kind": kind, **value}
            filled[name] = value
        score = filled.get("score", {})
        if filled.get("task", "translation") != "translation" and isinstance(score, dict):
            filled["score"] = {"select_by": "ppl", **score}
        return filled

    def _broken_rules(self) -> Iterator[str]:
        yield from self._task_rules()
        yield from self._entry_rules()
        yield from self._shard_rules()
        yield from self._position_rules()
        yield from self._lora_rules()
        schedule, min_lr = self.schedule, self.train.min_lr
        peak = schedule.highest_lr(self.model.dim)
        if not isinstance(schedule, LrRamp) and peak < min_lr * (1 - 1e-9):
            cause = "lr" if "lr" in keys_of(type(schedule)) else "scale"
            yield (
                f"train.min_lr ({min_lr:g}) is above the highest learning rate ({peak:.3g}, from "
                f"schedule.{cause}); training would end at once"
            )
        if self.train.average == 1:
            yield "train.average: 1 checkpoint cannot be averaged; write 0 for off, or at least 2"
        for name in ("head_scale", "res_scale"):
            if name in self.analysis.observe and getattr(self.model, name) in (False, "none"):
                yield f"analysis.observe: {name} requires model.{name}"

    def _task_rules(self) -> Iterator[str]:
        task = self.task
        for name in UNUSED_KEYS[task]:
            group, _, pattern = name.partition(".")
            values = getattr(self, group)
            for field, info in type(values).model_fields.items():
                if pattern in ("*", field) and getattr(values, field) != info.default:
                    yield f"{group}.{field} has no effect with task: {task}; remove it"
        if self.translates:
            return
        if (metric := self.score.select_by) != "ppl":
            yield f"score.select_by: {metric} needs translations; with task: {task}, write ppl"
        if self.segment.has_noise:
            yield f"segment.dropout and segment.sampling_alpha have no effect with task: {task}"
        if task in ("causal_lm", "masked_lm") and self.model.tie == "tgt_out":
            yield f"model.tie: tgt_out needs two languages; with task: {task}, write src_tgt_out"
        if self.data.batch_tokens < self.data.block:
            yield (
                f"data.batch_tokens ({self.data.batch_tokens}) must be at least data.block "
                f"({self.data.block})"
            )

    def _entry_rules(self) -> Iterator[str]:
        data, segment = self.data, self.segment
        if self.src == self.tgt:
            yield f'tgt and src must differ, but both are "{self.src}"'
        new_in_each_epoch = {
            "segment.dropout and segment.sampling_alpha": segment.has_noise,
            "data.augment": data.augments,
            "data.temperature": data.temperature != 1,
            "weights such as 2.5": any(entry.weight % 1 for entry in data.train),
        }
        for names, is_on in new_in_each_epoch.items():
            if is_on and not data.rebatch:
                yield (
                    f"data.rebatch: false excludes {names}: the batches of each epoch differ; set "
                    "data.rebatch: true"
                )
        if data.augments and segment.kind == "whitespace":
            yield "data.augment needs subwords; choose another segment.kind"
        if segment.learning_entries and segment.file is not None and not self.init.adapts:
            yield f"segment.learn_from has no effect with segment.{segment.file_key}; remove one"
        with_task = f" with task: {self.task}"
        for i, source in enumerate(segment.learning_entries):
            at = f"segment.learn_from[{i}]"
            yield from _unused(at, source, TAG_KEYS)
            # with the vocabulary of a parent, these are the parent's entries, which are not read
            if not self.translates and self.init.vocab == "new":
                yield from _unused(at, source, ("tgt",), with_task)
        for role, entries in data.entries.items():
            labels: list[str] = []
            for i, entry in enumerate(entries):
                at = f"data.{role}[{i}]"
                src, tgt = entry.langs(self)
                copied = isinstance(entry, CorpusEntry) and entry.copied
                if not self.translates:
                    yield from _unused(at, entry, ("tgt", *TAG_KEYS, "other_refs"), with_task)
                elif (entry.src or entry.tgt) and src == tgt and not copied:
                    side = "tgt" if entry.tgt else "src"
                    yield f"{at}.{side}: source and target language are both {src}"
                if self.translates and role != "train":
                    yield from self._tag_rules(at, entry)
                if isinstance(entry, HeldOutEntry):
                    label = entry.label(self)
                    if label in labels:
                        yield f"{at}: two sets are called {label}; give each a name"
                    labels.append(label)
        if not any(entry.select for entry in data.dev):
            yield "data.dev: no set selects the best checkpoint; one must have select: true"
        for i, entry in enumerate(data.test or []):
            if not entry.select:
                yield f"data.test[{i}].select has no effect; only sets of data.dev select"

    def _tag_rules(self, at: str, entry: Entry) -> Iterator[str]:
        """Yield what is wrong with the tags of a dev or test set."""
        for name, tag in zip(TAG_KEYS, entry.direction(self).tags, strict=True):
            tags = sorted({getattr(train, name) or "" for train in self.data.train} - {""})
            known = f"the {name}s of data.train are {', '.join(tags)}"
            if tag not in (None, *tags):
                known = known if tags else f"data.train has no {name}s; remove it"
                yield f"{at}.{name}: no entry of data.train has the {name} {tag}; {known}"
            elif tag is None and name == "tgt_tag" and self.directions.tgt_tag_required:
                yield f"{at}.{name} is missing, but all of data.train has one; {known}"

    def _shard_rules(self) -> Iterator[str]:
        if self.train.shard != "full":
            return
        excluded = {
            "optim.kind: muon": self.optim.kind == "muon",  # it needs complete matrices
            "optim.kind: adafactor": self.optim.kind == "adafactor",
            "train.recompute": self.train.recompute,
            "analysis.observe and analysis.every": bool(
                self.analysis.observe
            ),  # of a complete model
            "precision: fp16": self.precision == "fp16",
            "lora.rank": self.lora.rank > 0,
        }
        for name, is_set in excluded.items():
            if is_set:
                yield f"{name} excludes train.shard: full; remove it, or set train.shard: off"

    def _lora_rules(self) -> Iterator[str]:
        if not self.lora.rank:
            if self.lora != LoraConfig():
                yield "lora.alpha and lora.targets have no effect without lora.rank"
            return
        if self.init.parent is None:
            yield "lora.rank requires init.from: the weights of a parent stay as they are"
        if self.init.vocab == "extend":
            yield "lora.rank excludes init.vocab: extend, whose new embeddings would not train"
        if self.init.freeze:
            yield "init.freeze has no effect with lora.rank, which freezes all weights; remove it"
        if self.train.average:
            yield "train.average excludes lora.rank: the mean of two updates is not of their rank"

    def _position_rules(self) -> Iterator[str]:
        """Learned positions must suffice for all sentences of training and search."""
        positions = self.model.max_positions
        if self.model.positions != "learned":
            return
        limits = {
            "data.max_pieces": (self.data.max_pieces, 3),  # EOS or BOS, and a tag on each side
            "decode.max_len_offset": (self.decode.max_len_offset, 515),  # 512 pieces, tags, EOS
            "data.block": (0 if self.translates else self.data.block, 0),
        }
        for name, (value, reserved) in limits.items():
            if value > (most := positions - reserved):
                needed = f"with {positions:,} model.max_positions"
                yield f"{name} ({value:,}) must be at most {most:,} {needed}"


def _unused(at: str, entry: Entry, keys: Sequence[str], why: str = "") -> Iterator[str]:
    for name in keys:
        if getattr(entry, name, None):
            yield f"{at}.{name} has no effect{why}; remove it"


# keys that hold entries of corpora
ENTRIES = (
    ("data", "train"), ("data", "dev"), ("data", "test"), ("segment", "learn_from"),
)  # fmt: skip


@functools.cache
def groups() -> dict[str, dict[str, type[BaseModel]]]:
    """Return the groups of keys: name -> kind -> class; the kind is "" if there is only one."""
    found = {name: models_of(field.annotation) for name, field in Recipe.model_fields.items()}
    return {name: models for name, models in found.items() if models}


def default_kind(group: str) -> str:
    """Return the kind of a group without ``kind``; "" if the group has only one."""
    return "" if "" in groups()[group] else str(Recipe.model_fields[group].default.kind)
