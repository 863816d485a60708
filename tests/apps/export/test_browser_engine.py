"""The engine of a page computes and searches as torch does, for every setting of a model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nmt.data.vocab import BOS, EOS, PAD, UNK
from nmt.decoding.engine import SearchInput, ignore
from nmt.decoding.options import SearchOptions
from nmt.decoding.translator import Translator
from tests.apps.export.pages import NODE, VARIANTS, in_node, script_of, words
from tests.decoding.ctranslate2.cases import made, pairs
from tests.model_cases import batch_of, log_probs, short

needs_node = pytest.mark.skipif(NODE is None, reason="needs node")
SEARCHES: list[dict[str, Any]] = [
    {"beam": 1},
    {"beam": 4},
    {"beam": 4, "stop_rule": "bound"},
    {"beam": 3, "length_penalty": "mean", "length_alpha": 1.0, "allow_unk": True},
    {"beam": 3, "no_repeat_ngram": 1},
    {"beam": 4, "no_repeat_ngram": 2, "stop_rule": "bound"},
]
OFFSET = 6


def encoded(count: int) -> tuple[list[list[int]], list[list[int]]]:
    """Return sources with EOS and targets with BOS."""
    segmenter, vocab = words()
    sides = [
        [vocab.ids(segmenter.encode(pair[side], "gl")) for pair in pairs()[:count]]
        for side in (0, 1)
    ]
    return [[*ids, EOS] for ids in sides[0]], [[BOS, *ids[:12]] for ids in sides[1]]


def case_of(translator: Translator, script: str) -> dict[str, Any]:
    """Return a case of engine.js."""
    sources, targets = encoded(6)
    searches = []
    for keys in SEARCHES:
        options = SearchOptions(**keys)
        for source in sources:
            searches.append(
                [
                    source,
                    {
                        "beam": options.beam,
                        "alpha": options.length_alpha,
                        "penalty": options.length_penalty,
                        "rule": options.stop_rule,
                        "noRepeat": options.no_repeat_ngram,
                        "limit": len(source) + OFFSET,
                        "start": [BOS],
                        "forbidden": [PAD, BOS, *([] if options.allow_unk else [UNK])],
                    },
                ]
            )
    return {
        "script": script,
        "forced": list(zip(sources, targets, strict=True)),
        "searches": searches,
    }


def assert_equal(translator: Translator, result: dict[str, Any]) -> None:
    sources, targets = encoded(6)
    batch = batch_of(sources, [ids[1:] for ids in targets])
    expected = log_probs(translator.transformer, batch).numpy()
    actual = np.concatenate([np.array(rows) for rows in result["logProbs"]])
    possible = expected > -5000  # not of a masked type
    np.testing.assert_allclose(actual[possible], expected[possible], atol=1e-4)
    found = iter(result["found"])
    for keys in SEARCHES:
        options = SearchOptions(max_len_offset=OFFSET, **keys)
        inputs = [SearchInput(np.array(source[:-1])) for source in sources]
        for (best, *_), ours in zip(
            translator.engine.search(inputs, options, ignore, ignore), found, strict=False
        ):
            assert ours["ids"] == best.ids, keys
            assert ours["finished"] == best.finished
            assert abs(ours["score"] - best.score) < 1e-4


def translators(variants: list[dict[str, Any]]) -> list[Translator]:
    return [made(seed, words(), **keys) for seed, keys in enumerate(variants)]


@needs_node
@pytest.mark.slow
def test_every_setting_of_a_model_in_node(tmp_path):
    models = translators(VARIANTS)
    cases = [case_of(t, script_of(t, tmp_path / str(n))) for n, t in enumerate(models)]
    for keys, translator, result in zip(VARIANTS, models, in_node(cases, tmp_path), strict=True):
        try:
            assert_equal(translator, result)
        except AssertionError as error:
            raise AssertionError(short(keys)) from error
