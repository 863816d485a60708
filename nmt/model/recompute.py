"""Compute activations again in the backward pass instead of keeping them (Chen et al. 2016)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor
from torch.utils.checkpoint import checkpoint

from nmt.model.dropout import DropoutRng


def recomputed(function: Callable[..., Tensor], rng: DropoutRng, *arguments: Any) -> Tensor:
    """Return ``function(*arguments)`` without keeping what its backward pass needs.

    The backward pass calls the function again, with the same dropout masks: so gradients are the
    same, for about a third more computation.

    Args:
        rng: of the dropout in the function.
    """
    state = rng.state

    @contextlib.contextmanager
    def again() -> Iterator[None]:
        later, rng.state = rng.state, state
        try:
            yield
        finally:
            rng.state = later

    return checkpoint(
        function,
        *arguments,
        use_reentrant=False,
        context_fn=lambda: (contextlib.nullcontext(), again()),
    )
