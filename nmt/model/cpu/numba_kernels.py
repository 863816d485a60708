"""Functions that ``nmt.model.cpu.kernels`` calls, compiled by Numba for one CPU core.

NumPy has no bf16, so bf16 numbers arrive as uint16, the upper half of the bits of fp32. All sums
are fp32. The first call with each dtype compiles a function, which takes seconds once on a
machine: Numba caches the result on disk.

Shapes are those of ``nmt.model.cpu.kernels``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import njit, types
from numba.extending import intrinsic, overload

from nmt.runtime.compiled import compiled

LANES = 128  # columns whose maxima are computed in parallel
BLOCK = 32  # columns that are compared one by one only if the block has a candidate
LOG2_E = np.float32(np.log2(np.e))
FAST_MATH = {"reassoc", "contract", "arcp", "nsz"}  # sums in any order, but infinities are kept


def _kernel(function: Callable) -> Callable:
    """Compile with sums in any order."""
    return compiled(function, FAST_MATH)


@intrinsic
def _float_of(context, bits):
    """Return the fp32 number with these 32 bits."""

    def generate(context, builder, signature, args):
        return builder.bitcast(args[0], context.get_value_type(types.float32))

    return types.float32(types.uint32), generate


@intrinsic
def _bits_of(context, number):
    """Return the 32 bits of an fp32 number."""

    def generate(context, builder, signature, args):
        return builder.bitcast(args[0], context.get_value_type(types.uint32))

    return types.uint32(types.float32), generate


def _fp32(x):
    """Return an array element as fp32."""


@overload(_fp32, inline="always")
def _fp32_of(x):
    if x == types.uint16:
        return lambda x: _float_of(np.uint32(x) << np.uint32(16))
    return lambda x: x


def _store(row, i, x):
    """Write an fp32 number into an array; a bf16 array gets the nearest bf16, ties to even."""


@overload(_store, inline="always")
def _store_into(row, i, x):
    def rounded(row, i, x):
        bits = _bits_of(x)
        even = (bits >> np.uint32(16)) & np.uint32(1)
        row[i] = np.uint16((bits + np.uint32(0x7FFF) + even) >> np.uint32(16))

    def exact(row, i, x):
        row[i] = x

    return rounded if row.dtype == types.uint16 else exact


@njit(inline="always")
def _exp2(x):
    """Return 2^x for x <= 0 with fp32's accuracy.

    The integer part becomes the exponent, a polynomial computes the power of the fraction.
    """
    x = max(x, np.float32(-126))
    integer = np.rint(x)
    x -= integer
    power = np.float32(1.5353362e-4)
    power = power * x + np.float32(1.3398875e-3)
    power = power * x + np.float32(9.618437e-3)
    power = power * x + np.float32(5.5503324e-2)
    power = power * x + np.float32(0.24022648)
    power = power * x + np.float32(0.6931472)
    power = power * x + np.float32(1)
    return power * _float_of(np.uint32(np.int32(integer) + 127) << np.uint32(23))


@_kernel
def write_cache(qkv, rows, cache, first):
    """See ``kernels.write_cache``."""
    sentences, _, width = cache.shape
    beam = (len(rows) or len(qkv)) // sentences
    for n in range(sentences * beam):
        row = qkv[rows[n] if len(rows) else n, width // 2 :]
        slot = cache[n // beam, first + n % beam]
        for i in range(width):
            slot[i] = row[i]


@_kernel
def cached_attention(q, indices, beam, kv, visible, out):
    """See ``kernels.cached_attention``."""
    rows, heads, size = out.shape
    keys, values = kv.shape[2] - 2 * heads * size, kv.shape[2] - heads * size
    scale = LOG2_E / np.sqrt(np.float32(size))
    seen = np.empty(visible.shape[2], np.int64)
    weight = np.empty(visible.shape[2], np.float32)
    query, sums = np.empty(size, np.float32), np.empty(size, np.float32)
    for r in range(rows):
        n = indices[r] if len(indices) else r
        slots = kv[n // beam]
        mask = visible[n // beam, n % beam if visible.shape[1] > 1 else 0]
        count = 0
        for c in range(len(mask)):
            if mask[c]:
                seen[count] = c
                count += 1
        for h in range(heads):
            first, result = h * size, out[r, h]
            query_in = q[r, first : first + size]
            for e in range(size):
                query[e] = _fp32(query_in[e]) * scale
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
                _store(result, e, sums[e])


@_kernel
def normalize(x, gain, bias, eps, centered, by_length, out):
    """See ``kernels.CompiledNorm``."""
    size = np.float32(x.shape[1])
    for r in range(len(x)):
        row, result = x[r], out[r]
        mean = np.float32(0)
        if centered:
            for i in range(len(row)):
                mean += _fp32(row[i])
            mean /= size
        squares = np.float32(0)
        for i in range(len(row)):
            difference = _fp32(row[i]) - mean
            squares += difference * difference
        divisor = max(np.sqrt(squares), eps) if by_length else np.sqrt(squares / size + eps)
        for i in range(len(row)):
            _store(result, i, (_fp32(row[i]) - mean) / divisor * gain[i] + bias[i])


@_kernel
def log_sum_exp(logits, out):
    """See ``kernels.log_sum_exp``."""
    width = logits.shape[1]
    full_lanes = width - width % LANES
    peaks = np.empty(LANES, np.float32)
    for r in range(len(logits)):
        row = logits[r]
        peaks[:] = -np.inf
        for first in range(0, full_lanes, LANES):
            part = row[first : first + LANES]
            for i in range(LANES):
                x = _fp32(part[i])
                peaks[i] = x if x > peaks[i] else peaks[i]
        for i in range(full_lanes, width):
            peaks[0] = max(peaks[0], _fp32(row[i]))
        peak = peaks.max() * LOG2_E
        powers = np.float32(0)
        for i in range(width):
            powers += _exp2(_fp32(row[i]) * LOG2_E - peak)
        out[r] = (peak + np.log2(powers)) / LOG2_E


@_kernel
def top_k(logits, values, columns):
    """See ``kernels.top_k``."""
    k = values.shape[1]
    for r in range(len(logits)):
        row, best, where = logits[r], values[r], columns[r]
        for i in range(k):
            best[i], where[i] = -np.inf, i
        for first in range(0, len(row), BLOCK):
            part = row[first : first + BLOCK]
            above = np.int32(0)
            for i in range(len(part)):
                above += np.int32(_fp32(part[i]) > best[-1])
            for i in range(len(part) if above else 0):
                x = _fp32(part[i])
                if x > best[-1]:
                    to = k - 1
                    while to > 0 and best[to - 1] < x:
                        best[to], where[to] = best[to - 1], where[to - 1]
                        to -= 1
                    best[to], where[to] = x, first + i
