"""The commands, one thin module each.

Importing this package configures glibc's allocator, before any command imports torch. By default a
large freed buffer goes back to the operating system. The next one of its size costs a page fault
for each page: up to ten times the computation that fills it. With no mmap, no trimming and
one heap for all threads, the process keeps freed memory. Other platforms are not affected.
"""

import os
import sys

_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8  # from glibc's malloc.h


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
    """Limit how many compiled matrix products oneDNN and torch keep.

    Call it before the first product. Environment variables that the user has set take precedence.
    Each number of rows is compiled separately, and nearly every batch has a new one. The default
    of 1,024 entries grows to a gigabyte and saves no time.
    """
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, str(count))


_keep_freed_memory()
