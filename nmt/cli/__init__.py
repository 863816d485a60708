"""One thin module per command.

A large buffer that is freed goes back to the operating system, which hands out empty pages, one
fault each, for the next one of its size: up to ten times the price of the computation that fills
it. So the commands tell glibc, before any of them imports torch, to keep what it has: no mmap, no
trimming, one heap for all threads. Elsewhere nothing happens.
"""

import os
import sys

_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8  # of glibc's malloc.h


def _keep_freed_memory() -> None:
    if sys.platform != "linux":  # ctypes.CDLL(None) is an error on Windows
        return
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, -1)
        mallopt(_MMAP_MAX, 0)
        mallopt(_ARENA_MAX, 1)


def limit_onednn_cache(count: int) -> None:
    """Set how many compiled matrix products are kept, before the first one; the user's own holds.

    Each number of rows is compiled for itself, and nearly every batch has new ones: the 1,024 that
    oneDNN, and torch's layer over it, keep by default grow to a gigabyte and save no time.
    """
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, str(count))


_keep_freed_memory()
