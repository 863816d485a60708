"""Settings of this process that decide how fast memory is allocated; torch is not needed."""

from __future__ import annotations

import os
import sys

_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8  # from glibc's malloc.h


def keep_freed_memory() -> None:
    """Make glibc keep freed memory for the next allocation; other platforms are not affected.

    By default a large freed buffer goes back to the operating system. The next one of its size
    costs a page fault for each page: up to ten times the computation that fills it. With no mmap,
    no trimming and one heap for all threads, the process keeps freed memory.
    """
    if sys.platform != "linux":  # ctypes.CDLL(None) is an error on Windows
        return
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, -1)
        mallopt(_MMAP_MAX, 0)
        mallopt(_ARENA_MAX, 1)


def limit_onednn_cache(count: int) -> None:
    """Limit how many compiled matrix products oneDNN and torch keep.

    Call it before the first product; later calls have no effect, and environment variables that
    the user has set take precedence. Each number of rows is compiled separately. Where nearly every
    batch has a new one, the default of 1,024 entries grows to a gigabyte and saves no time.
    """
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, str(count))


def cached_products(precision: str) -> int:
    """Return how many compiled matrix products of oneDNN a training should keep.

    In bf16, batches are padded to a few sizes, and the products of all sizes are used again. In
    other precisions nearly every batch has a size of its own, so those of one update are enough.
    """
    return 768 if precision == "bf16" else 64
