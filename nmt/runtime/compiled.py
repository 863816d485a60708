"""Compile functions over arrays by Numba for one CPU core.

The first call with each dtype compiles a function, which takes seconds once on a machine: Numba
caches the result on disk. Importing Numba takes as long, so only modules that need it do.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection

from numba import njit


def compiled(function: Callable, fast_math: Collection[str] = ()) -> Callable:
    """Return the function, compiled at its first call, with a cache where a folder is writable.

    It runs without the lock of Python's interpreter, so other threads continue.

    Args:
        fast_math: LLVM's flags of what may change in floating-point arithmetic.
    """
    decorate = functools.partial(njit, nogil=True, fastmath=set(fast_math))
    try:
        return decorate(cache=True)(function)
    except RuntimeError:
        return decorate()(function)
