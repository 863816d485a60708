"""Slow second implementations, written from the papers' text, to which tests compare the model.

Plain NumPy in float64: one sentence at a time, attention by loops, no batches, masks or caches.
T = Nguyen & Salazar 2019 (Transformers without Tears), N = Shleifer et al. 2021 (NormFormer),
V = Vaswani et al. 2017, Z = Zhang & Sennrich 2019 (RMSNorm), W = Wu et al. 2016. Nothing here
imports ``nmt.model``; only parameter names are shared.

Shapes: L source length, T target length, D model dim, E dim of a head, F inner dim, U types.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from nmt.model.config import ModelConfig

Array = np.ndarray


# ---------------------------------------------------------------- norms (one vector at a time)


def layer_norm(x: Array, weight: Array, bias: Array, eps: float) -> Array:
    """N section 1: (x - E[x]) / sqrt(Var[x] + eps) * gamma + beta, with the biased variance."""
    mean = sum(x) / len(x)
    variance = sum((value - mean) ** 2 for value in x) / len(x)
    return (x - mean) / math.sqrt(variance + eps) * weight + bias


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    """Z equation 4: x / sqrt(mean of squares) * g, a factor per unit; eps under the root."""
    return x / math.sqrt(sum(value**2 for value in x) / len(x) + eps) * weight


def scale_norm(x: Array, g: float, eps: float) -> Array:
    """T equation 5 and its listing: g * x / max(|x|, eps)."""
    return g * x / max(math.sqrt(sum(value**2 for value in x)), eps)


def fix_norm(table: Array, eps: float = 1e-5) -> Array:
    """T section 2.3: every row w of the embedding is w / |w|."""
    return np.stack([scale_norm(row, 1.0, eps) for row in table])


# ---------------------------------------------------------------- initialization


def xavier_std(fan_in: int, fan_out: int) -> float:
    """Return sqrt(2 / (fan_in + fan_out)) (T equation 4)."""
    return math.sqrt(2 / (fan_in + fan_out))


def small_init_std(dim: int) -> float:
    """T section 2.2: attention weights get sqrt(2 / (d + 4d))."""
    return math.sqrt(2 / (dim + 4 * dim))


# ---------------------------------------------------------------- learning rate, loss, penalty


def inverse_sqrt_lr(n: int, dim: int, scale: float, warmup: int) -> float:
    """T equation 7."""
    return scale / math.sqrt(dim) * min(1 / math.sqrt(n), n / warmup**1.5)


def smoothed_loss(
    log_probs: Array, targets: Sequence[int], allowed: Array, smoothing: float
) -> tuple[float, float]:
    """(smoothed, true) cross-entropy, summed over tokens.

    The gold type gets 1 - smoothing; smoothing is shared equally by all allowed types, the gold
    one among them.
    """
    smoothed = true = 0.0
    share = smoothing / sum(bool(ok) for ok in allowed)
    for row, gold in zip(log_probs, targets, strict=True):
        true -= row[gold]
        for kind, ok in enumerate(allowed):
            mass = (1 - smoothing) * (kind == gold) + share * bool(ok)
            if mass:
                smoothed -= mass * row[kind]
    return smoothed, true


def length_penalty(n: int, alpha: float) -> float:
    """W equation 14, without coverage: ((5 + n) / 6) ^ alpha."""
    return ((5 + n) / 6) ** alpha


# ---------------------------------------------------------------- pieces of the model


def sinusoid(position: int, dim: int, kind: str = "sinusoidal") -> Array:
    """V section 3.5: sine at even places, cosine at odd ones, 10000^(2i/d) apart.

    fairseq's begin at position 2 and are 10000^(i/(d/2 - 1)) apart.
    """
    out = np.zeros(dim)
    for i in range(dim // 2):
        angle = position / 10000 ** (2 * i / dim)
        if kind == "fairseq":
            angle = (position + 2) / 10000 ** (i / (dim // 2 - 1))
        out[2 * i], out[2 * i + 1] = math.sin(angle), math.cos(angle)
    return out


def attend(queries: Array, keys: Array, values: Array, causal: bool) -> Array:
    """V equation 1 for one head: softmax(q k / sqrt(E)) v, one query at a time. [T,E] -> [T,E]."""
    out = np.zeros((len(queries), values.shape[1]))
    for t, query in enumerate(queries):
        last = t + 1 if causal else len(keys)
        scores = [float(query @ keys[s]) / math.sqrt(len(query)) for s in range(last)]
        top = max(scores)
        weights = [math.exp(score - top) for score in scores]
        for s, weight in enumerate(weights):
            out[t] += weight / sum(weights) * values[s]
    return out


def activation(name: str, x: Array) -> Array:
    """``x`` [F], or [2F] for geglu, whose first half is the gate."""

    def gelu(values: Array) -> Array:
        return np.array([v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in values])

    if name == "geglu":
        half = len(x) // 2
        return gelu(x[:half]) * x[half:]
    if name == "gelu":
        return gelu(x)
    if name == "swish":
        return np.array([v / (1 + math.exp(-v)) for v in x])
    positive = np.array([max(v, 0.0) for v in x])
    return positive**2 if name == "relu2" else positive


def log_softmax(logits: Array) -> Array:
    top = max(logits)
    return logits - top - math.log(sum(math.exp(v - top) for v in logits))


class Reference:
    """The models of T and N for one configuration and its weights.

    ``log_probs`` is the encoder-decoder of T with the additions of N, ``language_model`` one stack.

    Args:
        config: the model's configuration; dropout is not implemented.
        state: the model's ``state_dict()``.
        allowed: [U] bool, the types that may be produced, or None for all.
    """

    def __init__(
        self, config: ModelConfig, state: Mapping[str, torch.Tensor], allowed: Array | None = None
    ) -> None:
        self.config, self.allowed = config, allowed
        self.state = {name: value.double().cpu().numpy() for name, value in state.items()}

    def log_probs(self, sources: Sequence[Sequence[int]], inputs: Sequence[Sequence[int]]) -> Array:
        """Log-probabilities of every target position, sentence after sentence: [all T, U].

        ``sources`` end with EOS, ``inputs`` begin with BOS; masked types get -inf (T appendix A).
        """
        return np.concatenate(
            [self.sentence(src, tgt) for src, tgt in zip(sources, inputs, strict=True)]
        )

    def sentence(self, src: Sequence[int], tgt_in: Sequence[int]) -> Array:
        src = src if self.config.src_eos else src[:-1]
        memory = self.stack("encoder", self.embed(self.src_name(), src, "src_input"), None)
        return self.predict(self.stack("decoder", self.embed("embed", tgt_in), memory))

    def language_model(self, inputs: Sequence[Sequence[int]], causal: bool) -> Array:
        """Log-probabilities of a language model (N 2.1, 2.2), text after text: [all T, U].

        A causal one is a decoder that has no memory to attend to, a masked one is an encoder.
        """
        side, place = ("decoder", "tgt_input") if causal else ("encoder", "src_input")
        texts = [self.embed("embed", ids, place) for ids in inputs]
        return np.concatenate([self.predict(self.stack(side, x, None)) for x in texts])

    def predict(self, states: Array) -> Array:
        """Log-probabilities from the states of the last layer: [T, D] -> [T, U]."""
        table = self.table("out_embed" if self.config.tie == "none" else "embed")
        rows = []
        for x in states:
            logits = table @ x
            if self.config.out_bias:
                logits = logits + self.state["out_bias"]
            if self.config.logit_mask and self.allowed is not None:
                logits = np.where(self.allowed, logits, -np.inf)
            rows.append(log_softmax(logits))
        return np.stack(rows)

    def src_name(self) -> str:
        return "embed" if self.config.tie == "src_tgt_out" else "src_embed"

    def table(self, name: str) -> Array:
        weight = self.state[f"{name}.weight"]
        return fix_norm(weight) if self.config.fixnorm else weight

    def embed(self, name: str, ids: Sequence[int], place: str = "tgt_input") -> Array:
        """V section 3.4: rows times sqrt(D), plus positions; mBART normalizes the sum."""
        table, config = self.table(name), self.config
        rows = []
        for t, kind in enumerate(ids):
            if config.positions == "learned":
                position = self.state[f"{place}.positions.weight"][t]
            else:
                position = sinusoid(t, config.dim, config.positions)
            rows.append(table[kind] * math.sqrt(config.dim) + position)
        x = np.stack(rows)
        return self.norm(f"{place}.norm", config.norm, x) if config.embed_norm else x

    def stack(self, side: str, x: Array, memory: Array | None) -> Array:
        layers = self.config.enc_layers if side == "encoder" else self.config.dec_layers
        for i in range(layers):
            at = f"{side}.layers.{i}"
            x = self.residual(
                f"{at}.self_attn", x, lambda h, p=f"{at}.self_attn": self.self_attn(p, h, side)
            )
            if memory is not None:
                x = self.residual(
                    f"{at}.cross_attn",
                    x,
                    lambda h, p=f"{at}.cross_attn": self.cross_attn(p, h, memory),
                )
            x = self.residual(f"{at}.ffn", x, lambda h, p=f"{at}.ffn": self.ffn(p, h))
        # T 2.1: "one must append an additional normalization after both encoder and decoder".
        if self.config.norm_place == "pre":
            x = self.norm(f"{side}.norm", self.config.norm, x)
        return x

    def residual(self, at: str, x: Array, branch) -> Array:  # type: ignore[no-untyped-def]
        """T equations 2 and 3; N 2.1 (norm on the attention output), N 2.2 (ResScale)."""
        config, pre = self.config, self.config.norm_place == "pre"
        h = branch(self.norm(f"{at}_res.norm", config.norm, x) if pre else x)
        if config.post_attn_norm and at.endswith("_attn"):
            h = self.norm(f"{at}_res.branch_norm", config.extra_norm, h)
        scaled = config.res_scale in ("all", "scalar") or (
            config.res_scale == "ffn" and at.endswith(".ffn")
        )
        y = (self.state[f"{at}_res.scale"] * x if scaled else x) + h
        return y if pre else self.norm(f"{at}_res.norm", config.norm, y)

    def norm(self, name: str, kind: str, x: Array) -> Array:
        """[T, D] -> [T, D]. A ScaleNorm without a parameter has the fixed g = sqrt(D) (T 4.2)."""
        get, eps = self.state.get, self.config.norm_eps
        if kind == "layernorm":
            weight, bias = self.state[f"{name}.weight"], self.state[f"{name}.bias"]
            return np.stack([layer_norm(row, weight, bias, eps) for row in x])
        if kind == "rmsnorm":
            return np.stack([rms_norm(row, self.state[f"{name}.weight"], eps) for row in x])
        g = float(get(f"{name}.g", np.array(math.sqrt(x.shape[1]))).item())
        return np.stack([scale_norm(row, g, eps) for row in x])

    def linear(self, name: str, x: Array, part: slice = slice(None)) -> Array:
        out = x @ self.state[f"{name}.weight"][part].T
        return out + self.state[f"{name}.bias"][part] if self.config.bias else out

    def self_attn(self, at: str, x: Array, side: str) -> Array:
        d = self.config.dim
        q, k, v = (self.linear(f"{at}.qkv", x, slice(i * d, (i + 1) * d)) for i in range(3))
        return self.heads(at, q, k, v, causal=side == "decoder")

    def cross_attn(self, at: str, x: Array, memory: Array) -> Array:
        d = self.config.dim
        k, v = (self.linear(f"{at}.kv", memory, slice(i * d, (i + 1) * d)) for i in range(2))
        return self.heads(at, self.linear(f"{at}.q", x), k, v, causal=False)

    def heads(self, at: str, q: Array, k: Array, v: Array, causal: bool) -> Array:
        """N 2.1: Concat(gamma_1 h_1, ..., gamma_n h_n) W_O."""
        config = self.config
        if config.qkv_norm:
            q = self.norm(f"{at}.q_norm", config.extra_norm, q)
            k = self.norm(f"{at}.k_norm", config.extra_norm, k)
            v = self.norm(f"{at}.v_norm", config.extra_norm, v)
        width, outs = config.dim // config.heads, []
        gammas = self.state[f"{at}.head_scale"].reshape(-1) if config.head_scale else None
        for i in range(config.heads):
            part = slice(i * width, (i + 1) * width)
            head = attend(q[:, part], k[:, part], v[:, part], causal)
            outs.append(head if gammas is None else gammas[i] * head)
        return self.linear(f"{at}.out", np.concatenate(outs, axis=1))

    def ffn(self, at: str, x: Array) -> Array:
        """N 2.1: LN(sigma(x W1 + b1)) W2 + b2."""
        hidden = np.stack(
            [activation(self.config.activation, row) for row in self.linear(f"{at}.fc1", x)]
        )
        if self.config.ffn_norm:
            hidden = self.norm(f"{at}.norm", self.config.extra_norm, hidden)
        return self.linear(f"{at}.fc2", hidden)
