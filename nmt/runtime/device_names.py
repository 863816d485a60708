"""Parse device names without importing torch."""

from __future__ import annotations

import re
from collections.abc import Callable

from nmt.errors import MachineError, UserError


def parse_device(name: str, count_gpus: Callable[[], int], library: str) -> tuple[str, int | None]:
    """Return cpu or cuda, and the number of the GPU; None if the name has no number.

    Args:
        name: of the recipe; ``auto`` is cuda if there is a GPU.
        count_gpus: returns how many GPUs the library finds.
        library: its name, for errors.

    Raises:
        UserError: this is not the name of a device.
        MachineError: the library does not find this GPU.
    """
    match = re.fullmatch(r"(auto|cpu|cuda)(?:(?<=cuda):(\d+))?", name)
    if match is None:
        raise UserError(
            f'"{name}" is not auto, cpu, cuda or cuda:N',
            at="device",
            fix="choose one of these, for example cuda:0",
        )
    kind, index = match[1], None if match[2] is None else int(match[2])
    if kind == "auto":
        return ("cuda" if count_gpus() else "cpu"), None
    if kind == "cuda" and (index or 0) >= (count := count_gpus()):
        raise MachineError(
            f'"{name}" does not exist: {library} finds {count} GPU{"s" * (count != 1)}',
            at="device",
            fix="choose device=cpu, or device=auto to use a GPU only if there is one",
        )
    return kind, index
