"""One thin module per command.

A large buffer that is freed goes back to the operating system, which hands out empty pages, one
fault each, for the next one of its size: up to ten times the price of the computation that fills
it. So the commands tell glibc, before any of them imports torch, to keep what it has: no mmap, no
trimming, one heap for all threads. Elsewhere nothing happens.
"""

import ctypes

_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8  # of glibc's malloc.h


def _keep_freed_memory() -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, -1)
        mallopt(_MMAP_MAX, 0)
        mallopt(_ARENA_MAX, 1)


_keep_freed_memory()
