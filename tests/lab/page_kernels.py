"""Kernels as a page writes them, for the tests of what compiles and watches them."""

import triton
import triton.language as tl

from gkalib.smoothing.fused.scores import LOG2_E as IMPORTED

LOG2_E = tl.constexpr(1.4426950408889634)
PLAIN = 3
store = "an attribute of tl has this name too"


@triton.jit
def rows_of(tensor, row, D: tl.constexpr):
    return tl.load(tensor + row[:, None] * D + tl.arange(0, D)[None, :])


@triton.jit
def row_kernel(query, key, value, out, scale, m, B: tl.constexpr, D: tl.constexpr):
    row = tl.program_id(0) * B + tl.arange(0, B)
    q, f = rows_of(query, row, D), tl.load(scale) * LOG2_E
    acc, total = tl.zeros([B, D], f.dtype), tl.zeros([B], f.dtype)
    for at in range(0, m, B):
        k, v = (rows_of(key, at + tl.arange(0, B), D), rows_of(value, at + tl.arange(0, B), D))
        weights = tl.exp2(f * tl.dot(q, tl.trans(k), out_dtype=f.dtype))
        total += tl.sum(weights, 1)
        acc = tl.dot(weights.to(v.dtype), v, acc, out_dtype=f.dtype)
    place = row[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(out + place, (acc / total[:, None]).to(q.dtype))


@triton.jit
def norms_kernel(x, out, n, B: tl.constexpr, D: tl.constexpr):
    row = tl.program_id(0) * B + tl.arange(0, B)
    at = row[:, None] * D + tl.arange(0, D)[None, :]
    block = tl.load(x + at, mask=(row < n)[:, None], other=0.0)
    tl.store(out + row, tl.sum(block * block, 1), mask=row < n)


@triton.jit
def nothing_kernel(x, out, n, B: tl.constexpr, D: tl.constexpr):
    pass


@triton.jit
def untyped_kernel(query, key, value, out, scale, m, B: tl.constexpr, D: tl.constexpr):
    row = tl.arange(0, B)
    q, k = rows_of(query, row, D), rows_of(key, row, D)
    weights = tl.exp2(tl.dot(q, tl.trans(k)))
    place = row[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(out + place, tl.dot(weights, rows_of(value, row, D)))


@triton.jit
def plain_kernel(x, out):
    tl.store(out, tl.load(x) * PLAIN)


@triton.jit
def imported_kernel(x, out):
    tl.store(out, tl.load(x) * IMPORTED)


@triton.jit
def one_row_kernel(query, key, out, m, B: tl.constexpr, D: tl.constexpr):
    total = tl.zeros([B], tl.float32)
    q = tl.load(query + tl.arange(0, D))[None, :].to(tl.float32)
    for at in tl.range(0, m, B, num_stages=2):
        total += tl.exp2(tl.sum(q * rows_of(key, at + tl.arange(0, B), D), 1))
    tl.store(out, tl.sum(total))


@triton.jit
def loose_kernel(x, out, n, B: tl.constexpr):
    """Twice a column, without masks."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + at, 2 * tl.load(x + at))


@triton.jit
def sum_kernel(x, out, n, B: tl.constexpr):
    """A sum of elements of which a mask hides some, without ``other``."""
    at = tl.arange(0, B)
    tl.store(out, tl.sum(tl.load(x + at, mask=at < n)))


@triton.jit
def zero_kernel(scores, value, out, m, B: tl.constexpr):
    """An online softmax in which a hidden score is zero."""
    row = tl.program_id(0)
    top = tl.load(scores + row * m)
    total, weighted = 0 * top, 0 * top
    for start in range(0, m, B):
        at = start + tl.arange(0, B)
        s = tl.load(scores + row * m + at, mask=at < m, other=0.0)
        v = tl.load(value + at, mask=at < m, other=0.0)
        higher = tl.maximum(top, tl.max(s))
        factor, weights = tl.exp(top - higher), tl.exp(s - higher)
        total = factor * total + tl.sum(weights)
        weighted = factor * weighted + tl.sum(weights * v)
        top = higher
    tl.store(out + row, weighted / total)
