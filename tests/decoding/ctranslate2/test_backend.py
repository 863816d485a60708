"""The search by CTranslate2: hypotheses, scores and limits, independent of batches."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

from nmt.config.recipe import DecodeConfig
from nmt.data.vocab import EOS
from nmt.decoding.codec import MAX_SOURCE_PIECES
from nmt.decoding.ctranslate2.engine import CTranslate2Engine, from_model
from nmt.decoding.engine import Hypothesis, ModelInfo, SearchInput, ignore
from nmt.decoding.options import SearchOptions
from nmt.decoding.translator import Translator
from nmt.errors import UserError
from tests.decoding.ctranslate2.cases import ids, made

pytest.importorskip("ctranslate2")
pytestmark = pytest.mark.cpu
SOURCES = [source for source, _ in ids()[:40]]
INPUTS = [SearchInput(source) for source in SOURCES]


@pytest.fixture(scope="module")
def translator() -> Translator:
    return made(seed=13, norm="layernorm", res_scale="scalar", head_scale=True)


@pytest.fixture(scope="module")
def engine(translator: Translator) -> CTranslate2Engine:
    return converted(translator)


def converted(translator: Translator) -> CTranslate2Engine:
    return from_model(translator.transformer, translator.codec, translator.info.decode, 1)


def search(
    engine: CTranslate2Engine,
    inputs: list[SearchInput],
    options: SearchOptions,
    stop: Callable[[], None] = ignore,
) -> list[list[Hypothesis]]:
    return engine.search(inputs, options, stop, ignore)


@pytest.mark.parametrize(("beam", "offset"), [(1, 3), (4, 1), (4, 20)])
def test_results_do_not_depend_on_batches_or_order(engine, beam, offset):
    """Some hypotheses end before their length limit, some at it."""
    options = SearchOptions(beam=beam, max_len_offset=offset)
    order = list(range(len(SOURCES)))
    Random(1).shuffle(order)
    together = search(engine, INPUTS, options)
    alone = options.model_copy(update={"batch_tokens": 1})
    apart = search(engine, [INPUTS[i] for i in order], alone)
    assert [together[i][0].ids for i in order] == [of_one[0].ids for of_one in apart]
    assert {f.finished for (f,) in together} == {True, False}


@pytest.mark.parametrize("offset", [4, 1600])
def test_the_longest_output_has_positions(offset):
    """Of the longest source with a tag, for a model that always repeats one piece."""
    translator = made(dim=4, heads=1, enc_layers=1, dec_layers=1)
    translator.transformer.out_bias.data[ids()[0][1][0]] = 100
    translator.info = ModelInfo(DecodeConfig(max_len_offset=offset))
    exported = Translator(converted(translator), translator.codec, translator.info)
    largest = max(1533, offset)
    source = np.full(MAX_SOURCE_PIECES + 1, EOS + 2)
    (found,) = exported.translate_ids([source], beam=1, max_len_offset=largest)
    assert len(found.pieces) == MAX_SOURCE_PIECES + 2 + largest
    message = f"does not support max_len_offset above {largest:,} with this model"
    with pytest.raises(UserError, match=message):
        exported.stream([], max_len_offset=largest + 1)


def test_a_beam_wider_than_the_number_of_hypotheses():
    translator = made()
    translator.transformer.allowed[:] = False
    translator.transformer.allowed[[EOS, 7]] = True
    (found,) = search(
        converted(translator), INPUTS[:1], SearchOptions(beam=6, max_len_offset=1, n_best=6)
    )
    assert 1 <= len(found) <= 6
    assert {i for f in found for i in f.ids} <= {7}


@pytest.mark.slow
def test_a_search_can_be_stopped_between_two_batches(engine):
    """CTranslate2 cannot cancel a batch: a few are submitted ahead, and they end before the search.

    Python crashes if it ends while CTranslate2 computes.
    """
    submitted, library = list[Any](), engine.translator

    class Counted:
        def translate_batch(self, *arguments: Any, **options: Any) -> list[Any]:
            submitted.append(library.translate_batch(*arguments, **options))
            return submitted[-1]

    def stop() -> None:
        if len(submitted) == 5:
            raise TimeoutError

    options = SearchOptions(batch_tokens=1)
    expected = [best.ids for (best,) in search(engine, INPUTS, SearchOptions())]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "translator", Counted())
        with pytest.raises(TimeoutError):
            search(engine, INPUTS, options, stop)
        assert len(submitted) == 5
        assert all(future.done() for batch in submitted for future in batch)
    assert [best.ids for (best,) in search(engine, INPUTS, options)] == expected
