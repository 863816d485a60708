"""The reference engine: search and scores with torch, in batches that fit in memory.

``load_torch_engine`` loads it for one or several models.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Sequence

import torch

from nmt.data.batches import collate_sources
from nmt.data.segmenters import segmenter_hash, text_hash
from nmt.data.vocab import BOS, PAD, UNK
from nmt.decoding.batching import HalvingBatcher
from nmt.decoding.codec import TextCodec
from nmt.decoding.engine import (
    MAX_TARGET_PIECES,
    EncodedPair,
    Hypothesis,
    NonFiniteScores,
    Progress,
    SearchInput,
    Stop,
    TokenScores,
)
from nmt.decoding.ensemble import Ensemble
from nmt.decoding.forced import forced_decode
from nmt.decoding.logits_processors import logits_processors
from nmt.decoding.options import SearchOptions
from nmt.decoding.search import beam_search
from nmt.decoding.strategies import selection_strategy
from nmt.errors import UserError
from nmt.model.transformer import Transformer
from nmt.runtime.device import DTYPES, emulation_note, resolve_device, resolve_precision
from nmt.store.model import Model
from nmt.store.tensors import empty_model, read_weights


class TorchEngine:
    """Searches and scores with torch; see ``nmt.decoding.engine.Engine``.

    Args:
        model: on the device.
    """

    name = "torch"

    def __init__(
        self,
        model: Transformer | Ensemble,
        codec: TextCodec,
        device: torch.device,
        precision: str = "fp32",
    ) -> None:
        self.model, self.codec, self.device, self.precision = model, codec, device, precision
        positions = MAX_TARGET_PIECES if model.longest is None else model.longest - 2  # tag, EOS
        self.longest_target = min(MAX_TARGET_PIECES, positions)
        self._allowed_ids = model.allowed.nonzero()[:, 0]
        self._search_batcher = HalvingBatcher(device)
        self._forced_batcher = HalvingBatcher(device)

    def lacks(self, options: SearchOptions) -> list[str]:
        """Support all options."""
        return []

    def model_hash(self) -> str:
        """Compute the SHA-256 of the weights, the vocabulary and the segmenter."""
        digest = hashlib.sha256(text_hash(self.codec.vocab, self.codec.segmenter).encode())
        for name, tensor in self.model.state_dict().items():
            digest.update(name.encode())
            digest.update(tensor.cpu().numpy().tobytes())
        return digest.hexdigest()

    def score(
        self, pairs: Sequence[EncodedPair], options: SearchOptions, stop: Stop, progress: Progress
    ) -> list[TokenScores]:
        """Score the target of each pair given its source."""
        start = self.codec.tag_ids(options.tgt_tag, "tgt")
        model, batcher = self.model.eval(), self._forced_batcher
        return forced_decode(model, pairs, options, batcher, stop, progress, start)

    def search(
        self, inputs: Sequence[SearchInput], options: SearchOptions, stop: Stop, progress: Progress
    ) -> list[list[Hypothesis]]:
        """Search inputs in batches of similar length, the longest first.

        ``stop`` is called between two positions.
        """
        if self.model.training:  # the call visits every module, which takes time for each sentence
            self.model.eval()
        order = sorted(range(len(inputs)), key=lambda row: (-len(inputs[row].ids), row))
        results: list[list[Hypothesis]] = [[] for _ in inputs]
        ordered = [inputs[row] for row in order]
        sizes = [(len(sentence.ids) + 1) * options.beam for sentence in ordered]
        search = functools.partial(self._search_batch, options=options, stop=stop)
        batches = self._search_batcher.map(search, ordered, sizes, options.batch_tokens)
        for batch, batch_hypotheses in batches:
            rows = order[batch.start : batch.stop]
            for row, hypotheses in zip(rows, batch_hypotheses, strict=True):
                results[row] = hypotheses
            progress(sum(inputs[row].part == 0 for row in rows))
        return results

    def _search_batch(
        self, inputs: Sequence[SearchInput], options: SearchOptions, stop: Stop
    ) -> list[list[Hypothesis]]:
        src, layout = collate_sources([sentence.ids for sentence in inputs])
        layout = layout.to(self.device)
        required = torch.tensor([i.required_length for i in inputs], device=self.device)
        max_len = (layout.lengths + options.max_len_offset).maximum(required)
        start = [BOS, *self.codec.tag_ids(options.tgt_tag, "tgt").tolist()]
        if (longest := self.model.longest) is not None:
            max_len = max_len.clamp(max=longest - len(start))
        codec = self.codec.for_tag(options.target_tag)
        processors = logits_processors(inputs, options, codec, self.device)
        strategy = selection_strategy(inputs, options, max_len)
        # a plain search needs logits only of the types that the model can produce
        types = None if processors or strategy is not None else self._allowed_ids
        # a model could produce tags of targets; without model.logit_mask, also others, and MASK
        reserved = [i for i in self.codec.vocab.reserved_ids if self.model.allowed[i]]
        forbidden = [PAD, BOS, *reserved] if options.allow_unk else [PAD, BOS, UNK, *reserved]
        try:
            with torch.no_grad():
                positions = len(start) - 1 + int(max_len.max())
                state = self.model.start_decoding(
                    src.to(self.device), layout, options.beam, positions, types
                )
                return beam_search(
                    state,
                    options.beam,
                    max_len,
                    options.penalty,
                    torch.tensor(forbidden, device=self.device),
                    n_best=options.wanted,
                    processors=processors,
                    strategy=strategy,
                    independent=options.sample,
                    types=types,
                    stop=stop,
                    stop_rule=options.stop_rule,
                    start=start,
                )
        except NonFiniteScores as error:
            raise NonFiniteScores(inputs[error.number].line) from None


# ---------------------------------------------------------------- models


def load_torch_engine(
    models: Sequence[Model], codec: TextCodec, device: str, precision: str
) -> TorchEngine:
    """Load a model, or several as an ensemble; see ``Translator.load``.

    Raises:
        UserError: a file is missing or damaged, or the models cannot form an ensemble.
    """
    resolved = resolve_device(device)
    precision = resolve_precision(precision, resolved)
    if note := emulation_note(precision, resolved):
        print(f"note: {note}", file=sys.stderr)
    transformers = []
    for model in models:
        _require_same_text(model, codec)
        weights, transformer = read_weights(model), empty_model(model)
        assert isinstance(transformer, Transformer)
        transformer.load_state_dict(weights)
        transformers.append(transformer.to(resolved).prepare_for_inference(DTYPES[precision]))
    both = transformers[0] if len(models) == 1 else Ensemble(transformers)
    return TorchEngine(both, codec, resolved, precision)


def _require_same_text(model: Model, codec: TextCodec) -> None:
    """Raise UserError if the ids of a model do not have the same meaning as those of the first."""
    segmenters = segmenter_hash(codec.segmenter) == segmenter_hash(model.segmenter)
    for what, is_same in (
        ("languages", (codec.src, codec.tgt) == (model.about.src, model.about.tgt)),
        ("vocabulary", codec.vocab.hash == model.vocab.hash),
        ("segmenter", segmenters),
    ):
        if not is_same:
            raise UserError(
                f"{what}: not as in the first model, so the models cannot form an ensemble",
                at=str(model.path),
                fix="give models with the same prepared data, or a single model",
            )
