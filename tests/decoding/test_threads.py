"""Batches on several threads: the same text, errors as they are, and torch as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from nmt.decoding.threads import on_threads
from tests.decoding.untrained import LINES, untrained


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_threads_change_no_text(two_threads: None) -> None:
    translator = untrained()
    lines = [*LINES * 4, "", "pan"]
    found = translator.translate(lines, batch_tokens=40)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    assert found == translator.translate(lines, batch_tokens=40)


def test_each_thread_computes_with_one_and_order_is_kept(two_threads: None) -> None:
    assert list(on_threads(lambda n: (n, torch.get_num_threads()), range(20))) == [
        (n, 1) for n in range(20)
    ]


def test_an_error_ends_what_has_not_begun(two_threads: None) -> None:
    begun = []

    def work(n: int) -> None:
        begun.append(n)
        torch.randn(300, 300) @ torch.randn(300, 300)
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        list(on_threads(work, range(10_000)))
    assert len(begun) < 10_000
    assert torch.get_num_threads() == 2
