"""The loops of ``nmt.model.cpu.kernels``, compiled for one core by Numba.

numpy has no bf16: such numbers come as the 16 bits that they are, the upper half of fp32. Whatever
comes in, sums are fp32. The first run of each type on a machine compiles the loops, which takes
seconds; Numba keeps them on disk.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from numba import njit, types
from numba.extending import intrinsic, overload

LANES = 128  # numbers whose highest are found side by side
BLOCK = 32  # numbers that are looked at one by one if any of them is among the highest
BITS = np.float32(np.log2(np.e))
FAST = {"reassoc", "contract", "arcp", "nsz"}  # sums in any order, but with infinities


def _kernel(loops: Callable) -> Callable:
    """Compiled when it is first called, and kept on disk where there is a folder to write to."""
    compiled = functools.partial(njit, nogil=True, fastmath=FAST)
    try:
        return compiled(cache=True)(loops)
    except RuntimeError:
        return compiled()(loops)


@intrinsic
def _float_of(context, bits):
    """fp32 of these 32 bits."""

    def generate(context, builder, signature, args):
        return builder.bitcast(args[0], context.get_value_type(types.float32))

    return types.float32(types.uint32), generate


@intrinsic
def _bits_of(context, number):
    """The 32 bits of an fp32."""

    def generate(context, builder, signature, args):
        return builder.bitcast(args[0], context.get_value_type(types.uint32))

    return types.uint32(types.float32), generate


def _fp32(x):
    """An element of an array as fp32."""


@overload(_fp32, inline="always")
def _fp32_of(x):
    if x == types.uint16:
        return lambda x: _float_of(np.uint32(x) << np.uint32(16))
    return lambda x: x


def _put(row, place, x):
    """Write an fp32 into an array, rounded to the nearest bf16 if that is what it holds."""


@overload(_put, inline="always")
def _put_into(row, place, x):
    def rounded(row, place, x):
        bits = _bits_of(x)
        even = (bits >> np.uint32(16)) & np.uint32(1)
        row[place] = np.uint16((bits + np.uint32(0x7FFF) + even) >> np.uint32(16))

    def exact(row, place, x):
        row[place] = x

    return rounded if row.dtype == types.uint16 else exact


@njit(inline="always")
def _exp2(x):
    """2^x for x <= 0, as exact as fp32: its whole part is the exponent, the rest a polynomial."""
    x = max(x, np.float32(-126))
    whole = np.rint(x)
    x -= whole
    power = np.float32(1.5353362e-4)
    power = power * x + np.float32(1.3398875e-3)
    power = power * x + np.float32(9.618437e-3)
    power = power * x + np.float32(5.5503324e-2)
    power = power * x + np.float32(0.24022648)
    power = power * x + np.float32(0.6931472)
    power = power * x + np.float32(1)
    return power * _float_of(np.uint32(np.int32(whole) + 127) << np.uint32(23))


@_kernel
def write(qkv, place, cache, first):
    """Copy keys and values into a cache."""
    sentences, _, width = cache.shape
    beam = (len(place) or len(qkv)) // sentences
    for n in range(sentences * beam):
        row = qkv[place[n] if len(place) else n, width // 2 :]
        slot = cache[n // beam, first + n % beam]
        for i in range(width):
            slot[i] = row[i]


@_kernel
def attend(q, which, beam, kv, visible, mixed):
    """Mix values by attention."""
    rows, heads, size = mixed.shape
    keys, values = kv.shape[2] - 2 * heads * size, kv.shape[2] - heads * size
    scale = BITS / np.sqrt(np.float32(size))
    seen = np.empty(visible.shape[2], np.int64)
    weight = np.empty(visible.shape[2], np.float32)
    query, sums = np.empty(size, np.float32), np.empty(size, np.float32)
    for r in range(rows):
        n = which[r] if len(which) else r
        slots = kv[n // beam]
        mask = visible[n // beam, n % beam if visible.shape[1] > 1 else 0]
        count = 0
        for c in range(len(mask)):
            if mask[c]:
                seen[count] = c
                count += 1
        for h in range(heads):
            first, answer = h * size, mixed[r, h]
            asked = q[r, first : first + size]
            for e in range(size):
                query[e] = _fp32(asked[e]) * scale
                sums[e] = 0
            highest = np.float32(-np.inf)
            for i in range(count):
                key = slots[seen[i], keys + first : keys + first + size]
                score = np.float32(0)
                for e in range(size):
                    score += query[e] * _fp32(key[e])
                weight[i] = score
                highest = max(highest, score)
            total = np.float32(0)
            for i in range(count):
                weight[i] = _exp2(weight[i] - highest)
                total += weight[i]
            for i in range(count):
                value = slots[seen[i], values + first : values + first + size]
                share = weight[i] / total
                for e in range(size):
                    sums[e] += share * _fp32(value[e])
            for e in range(size):
                _put(answer, e, sums[e])


@_kernel
def norm(x, gain, bias, eps, centered, length, normed):
    """Normalize rows."""
    size = np.float32(x.shape[1])
    for r in range(len(x)):
        row, to = x[r], normed[r]
        mean = np.float32(0)
        if centered:
            for i in range(len(row)):
                mean += _fp32(row[i])
            mean /= size
        squares = np.float32(0)
        for i in range(len(row)):
            off = _fp32(row[i]) - mean
            squares += off * off
        divisor = max(np.sqrt(squares), eps) if length else np.sqrt(squares / size + eps)
        for i in range(len(row)):
            _put(to, i, (_fp32(row[i]) - mean) / divisor * gain[i] + bias[i])


@_kernel
def log_sum_exp(logits, total):
    """Sum the exponentials of rows."""
    width = logits.shape[1]
    whole = width - width % LANES
    peaks = np.empty(LANES, np.float32)
    for r in range(len(logits)):
        row = logits[r]
        peaks[:] = -np.inf
        for first in range(0, whole, LANES):
            part = row[first : first + LANES]
            for i in range(LANES):
                x = _fp32(part[i])
                peaks[i] = x if x > peaks[i] else peaks[i]
        for i in range(whole, width):
            peaks[0] = max(peaks[0], _fp32(row[i]))
        peak = peaks.max() * BITS
        powers = np.float32(0)
        for i in range(width):
            powers += _exp2(_fp32(row[i]) * BITS - peak)
        total[r] = (peak + np.log2(powers)) / BITS


@_kernel
def top(logits, highest, place):
    """Find the highest numbers of rows."""
    count = highest.shape[1]
    for r in range(len(logits)):
        row, best, where = logits[r], highest[r], place[r]
        for i in range(count):
            best[i], where[i] = -np.inf, i
        for first in range(0, len(row), BLOCK):
            part = row[first : first + BLOCK]
            above = np.int32(0)
            for i in range(len(part)):
                above += np.int32(_fp32(part[i]) > best[-1])
            for i in range(len(part) if above else 0):
                x = _fp32(part[i])
                if x > best[-1]:
                    to = count - 1
                    while to > 0 and best[to - 1] < x:
                        best[to], where[to] = best[to - 1], where[to - 1]
                        to -= 1
                    best[to], where[to] = x, first + i
