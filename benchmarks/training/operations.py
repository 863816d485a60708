"""Count the operations that torch dispatches, a cost that is equal on every machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

# views describe existing memory and launch no kernel
VIEWS = {
    "view", "_unsafe_view", "reshape", "t", "transpose", "permute", "expand", "select", "slice",
    "unbind", "split", "split_with_sizes", "chunk", "detach", "alias", "as_strided", "squeeze",
    "unsqueeze", "narrow", "unfold", "view_as", "flatten", "lift_fresh", "diagonal",
}  # fmt: skip


class _Counter(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        self.names[name] = self.names.get(name, 0) + 1
        return func(*args, **(kwargs or {}))


def count_operations(work: Callable[[], object]) -> int:
    """Return how many operations ``work`` dispatches, without views, including backward."""
    return sum(operations(work).values())


def operations(work: Callable[[], object]) -> dict[str, int]:
    """Return the count of each operation, most frequent first."""
    with _Counter() as counter:
        work()
    kept = {name: n for name, n in counter.names.items() if name not in VIEWS}
    return dict(sorted(kept.items(), key=lambda item: -item[1]))
