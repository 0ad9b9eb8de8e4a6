"""Gaussian attention of one tensor to itself: query, key and value are x. Chapters 15 and 16 teach it."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from gkalib.smoothing.fused.configs import config
from gkalib.smoothing.fused.launch import (
    accumulator, block_width, dense_rows, launch, precision, statistics_type, token_major,
)  # fmt: skip
from gkalib.smoothing.fused.scores import (
    ALL, BAND, GIVEN, LOG2_E, head_start, load_block, loop_bounds, span_of, store_block,
)  # fmt: skip
from gkalib.smoothing.spans import Spans

SHORT = 256
"""Up to this length the norms are formed again for every block, which costs less than reading them."""


@triton.jit
def half_norm(block, c, ACC: tl.constexpr):
    """c/2 |x_i|² of each row of a block, in the type of sums, from the numbers as they were given."""
    wide = block.to(ACC)
    return 0.5 * c * tl.sum(wide * wide, 1)


@triton.jit
def load_vector(pointer, start, length, BLOCK: tl.constexpr, EDGE: tl.constexpr):
    """Numbers start … start + BLOCK of a vector, zero past its length."""
    index = start + tl.arange(0, BLOCK)
    if EDGE:
        return tl.load(pointer + index, mask=index < length, other=0.0)
    else:
        return tl.load(pointer + index)


@triton.jit
def gaussian_block(row_x, column_x, row_norm, column_norm, c, PRECISION: tl.constexpr, ACC: tl.constexpr):
    """E_ij = exp2(c x_i·x_j − n_i − n_j) = exp(−|x_i − x_j|²/(2σ²)): at most 1, and 1 where i = j."""
    product = tl.dot(row_x, tl.trans(column_x), input_precision=PRECISION, out_dtype=ACC)
    return tl.exp2(product * c - (row_norm[:, None] + column_norm[None, :]))


@triton.jit
def block_loops(row, first, last, left, right, length, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """The span of each row, the columns that need no mask, where the others start, and how many blocks they fill.

    Block k of the others starts at start + k BLOCK, or past the inner columns once it has reached them.
    """
    low, high = span_of(row, first, last, left, right, 0, length, length, KIND)
    if KIND == ALL:
        start, inner_start, inner_stop, stop = 0, 0, length // BLOCK * BLOCK, length
    else:
        start, inner_start, inner_stop, stop = loop_bounds(low, high, row, length, length, BLOCK)
    edges = (inner_start - start) // BLOCK + (tl.maximum(stop - inner_stop, 0) + BLOCK - 1) // BLOCK
    return low, high, inner_start, inner_stop, start, edges


@triton.jit
def edge_block(k, start, inner_start, inner_stop, BLOCK: tl.constexpr):
    """Where block k of the edges starts."""
    at = start + k * BLOCK
    return tl.where(at >= inner_start, at + inner_stop - inner_start, at)


@triton.jit
def forward_block(
    acc, total, row_x, row_norm, at, x, norm, low, high, length, stride, c,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, BLOCK_WIDTH: tl.constexpr, NORMS: tl.constexpr,
    EDGE: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Add Σ_j E_ij x_j and Σ_j E_ij over one block of columns."""
    # [BLOCK BLOCK_WIDTH], key and value at once
    column_x = load_block(x, at, length, stride, WIDTH, BLOCK, BLOCK_WIDTH, EDGE)
    if NORMS:
        column_norm = load_vector(norm, at, length, BLOCK, EDGE)
    else:
        column_norm = half_norm(column_x, c, ACC)
    weight = gaussian_block(row_x, column_x, row_norm, column_norm, c, PRECISION, ACC)
    if EDGE:
        column = at + tl.arange(0, BLOCK)
        weight = tl.where((column[None, :] >= low[:, None]) & (column[None, :] < high[:, None]), weight, 0.0)
    total += tl.sum(weight, 1)
    acc = tl.dot(weight.to(column_x.dtype), column_x, acc, input_precision=PRECISION, out_dtype=ACC)
    return acc, total


@triton.jit
def gka_forward_kernel(
    x, out, total_sum, scale, norm, first, last, left, right, eps, heads, length,
    x_batch, x_head, x_row, out_batch, out_head, out_row, span_batch,
    KIND: tl.constexpr, NORMS: tl.constexpr, WIDTH: tl.constexpr, BLOCK_WIDTH: tl.constexpr,
    PRECISION: tl.constexpr, ACC: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr,
):  # fmt: skip
    """out_i = Σ_j E_ij x_j / total_i and total_i = Σ_j E_ij + eps, for one block of rows i of one head."""
    blocks = tl.cdiv(length, BLOCK_ROWS)
    sequence = tl.program_id(0) // blocks
    # The last rows of a causal mask see the most keys, so they start first.
    start = (blocks - 1 - tl.program_id(0) % blocks) * BLOCK_ROWS
    batch, head = sequence // heads, sequence % heads
    x += head_start(batch, head, x_batch, x_head)
    norm += sequence.to(tl.int64) * length
    c = LOG2_E * tl.load(scale + head)
    row = start + tl.arange(0, BLOCK_ROWS)
    low, high, inner_start, inner_stop, edge, edges = block_loops(
        row, first + batch * span_batch, last + batch * span_batch, left, right, length, KIND, BLOCK_COLUMNS
    )
    # [BLOCK_ROWS BLOCK_WIDTH]
    row_x = load_block(x, start, length, x_row, WIDTH, BLOCK_ROWS, BLOCK_WIDTH, True)
    if NORMS:
        row_norm = load_vector(norm, start, length, BLOCK_ROWS, True)
    else:
        row_norm = half_norm(row_x, c, ACC)
    acc = tl.zeros([BLOCK_ROWS, BLOCK_WIDTH], ACC)
    total = tl.zeros([BLOCK_ROWS], ACC)
    for k in tl.range(0, edges):
        at = edge_block(k, edge, inner_start, inner_stop, BLOCK_COLUMNS)
        acc, total = forward_block(
            acc, total, row_x, row_norm, at, x, norm, low, high, length, x_row, c,
            WIDTH, BLOCK_COLUMNS, BLOCK_WIDTH, NORMS, True, PRECISION, ACC,
        )  # fmt: skip
    for at in tl.range(inner_start, inner_stop, BLOCK_COLUMNS):
        acc, total = forward_block(
            acc, total, row_x, row_norm, at, x, norm, low, high, length, x_row, c,
            WIDTH, BLOCK_COLUMNS, BLOCK_WIDTH, NORMS, False, PRECISION, ACC,
        )  # fmt: skip
    total = tl.where(row < length, total + eps, 1.0)
    tl.store(total_sum + sequence.to(tl.int64) * length + row, total, mask=row < length)
    out += head_start(batch, head, out_batch, out_head)
    store_block(out, acc / total[:, None], start, length, out_row, WIDTH, BLOCK_ROWS, BLOCK_WIDTH)


@triton.jit
def gka_norm_kernel(
    x, norm, scale, heads, length, x_batch, x_head, x_row,
    WIDTH: tl.constexpr, BLOCK_WIDTH: tl.constexpr, ACC: tl.constexpr, BLOCK_ROWS: tl.constexpr,
):  # fmt: skip
    """n_i = |x_i|² log2(e)/(2σ²) for one block of rows of one head."""
    blocks = tl.cdiv(length, BLOCK_ROWS)
    sequence = tl.program_id(0) // blocks
    start = tl.program_id(0) % blocks * BLOCK_ROWS
    batch, head = sequence // heads, sequence % heads
    c = LOG2_E * tl.load(scale + head)
    x += head_start(batch, head, x_batch, x_head)
    # [BLOCK_ROWS BLOCK_WIDTH]
    block = load_block(x, start, length, x_row, WIDTH, BLOCK_ROWS, BLOCK_WIDTH, True)
    row = start + tl.arange(0, BLOCK_ROWS)
    tl.store(norm + sequence.to(tl.int64) * length + row, half_norm(block, c, ACC), mask=row < length)


@triton.jit
def gka_prepare_kernel(
    grad_out, x, out, total_sum, scale, scaled, delta, norm, share, heads, length,
    grad_batch, grad_head, grad_row, x_batch, x_head, x_row, out_batch, out_head, out_row,
    WIDTH: tl.constexpr, BLOCK_WIDTH: tl.constexpr, ACC: tl.constexpr, BLOCK_ROWS: tl.constexpr,
):  # fmt: skip
    """What the backward pass needs of each row once: g_i = dO_i / total_i, <g_i, O_i>/σ² and n_i.

    The inner product takes g as it was rounded, so that the gradient is that of a nearby dO.
    """
    blocks = tl.cdiv(length, BLOCK_ROWS)
    sequence = tl.program_id(0) // blocks
    start = tl.program_id(0) % blocks * BLOCK_ROWS
    batch, head = sequence // heads, sequence % heads
    precision = tl.load(scale + head)
    row = start + tl.arange(0, BLOCK_ROWS)
    vector = sequence.to(tl.int64) * length
    x += head_start(batch, head, x_batch, x_head)
    grad_out += head_start(batch, head, grad_batch, grad_head)
    out += head_start(batch, head, out_batch, out_head)
    scaled += vector * WIDTH
    # [BLOCK_ROWS BLOCK_WIDTH] three times, [BLOCK_ROWS]
    block = load_block(x, start, length, x_row, WIDTH, BLOCK_ROWS, BLOCK_WIDTH, True)
    grad = load_block(grad_out, start, length, grad_row, WIDTH, BLOCK_ROWS, BLOCK_WIDTH, True)
    result = load_block(out, start, length, out_row, WIDTH, BLOCK_ROWS, BLOCK_WIDTH, True)
    total = tl.load(total_sum + vector + row, mask=row < length, other=1.0)
    g = (grad.to(ACC) / total[:, None]).to(x.dtype.element_ty)
    store_block(scaled, g, start, length, WIDTH, WIDTH, BLOCK_ROWS, BLOCK_WIDTH)
    tl.store(share + vector + row, tl.sum(grad.to(ACC) * result.to(ACC), 1), mask=row < length)
    inner = tl.sum(g.to(ACC) * result.to(ACC), 1) * precision
    tl.store(delta + vector + row, inner, mask=row < length)
    tl.store(norm + vector + row, half_norm(block, LOG2_E * precision, ACC), mask=row < length)


@triton.jit
def backward_block(
    acc, weight_sum, row_x, row_g, row_norm, row_delta, at, x, scaled, norm, delta, low, high, length, stride,
    precision, SEES: tl.constexpr, SEEN: tl.constexpr, EDGE: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr, BLOCK_WIDTH: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Add Σ_j [E_ij g_j] + W_ij x_j and Σ_j W_ij over one block of columns.

    SEES: columns that a row sees give W_ij the part E_ij (g_i·x_j − D_i)/σ².
    SEEN: columns that see a row give it E_ij (x_i·g_j − D_j)/σ², and the sum in brackets.
    """
    # [BLOCK BLOCK_WIDTH]
    column_x = load_block(x, at, length, stride, WIDTH, BLOCK, BLOCK_WIDTH, EDGE)
    column_norm = load_vector(norm, at, length, BLOCK, EDGE)
    weight = gaussian_block(row_x, column_x, row_norm, column_norm, LOG2_E * precision, PRECISION, ACC)
    if EDGE:
        column = at + tl.arange(0, BLOCK)
        weight = tl.where((column[None, :] >= low[:, None]) & (column[None, :] < high[:, None]), weight, 0.0)
    if SEEN:
        # [BLOCK BLOCK_WIDTH]
        column_g = load_block(scaled, at, length, WIDTH, WIDTH, BLOCK, BLOCK_WIDTH, EDGE)
        column_delta = load_vector(delta, at, length, BLOCK, EDGE)
        product = tl.dot(row_x, tl.trans(column_g), input_precision=PRECISION, out_dtype=ACC)
        if SEES:
            product = tl.dot(row_g, tl.trans(column_x), product, input_precision=PRECISION, out_dtype=ACC)
            slope = weight * (product * precision - (row_delta[:, None] + column_delta[None, :]))
        else:
            slope = weight * (product * precision - column_delta[None, :])
        acc = tl.dot(weight.to(column_g.dtype), column_g, acc, input_precision=PRECISION, out_dtype=ACC)
    else:
        product = tl.dot(row_g, tl.trans(column_x), input_precision=PRECISION, out_dtype=ACC)
        slope = weight * (product * precision - row_delta[:, None])
    acc = tl.dot(slope.to(column_x.dtype), column_x, acc, input_precision=PRECISION, out_dtype=ACC)
    return acc, weight_sum + tl.sum(slope, 1)


@triton.jit
def backward_span(
    acc, weight_sum, row, row_x, row_g, row_norm, row_delta, x, scaled, norm, delta, first, last, left, right,
    length, stride, precision, SEES: tl.constexpr, SEEN: tl.constexpr, KIND: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr, BLOCK_WIDTH: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """The sums of `backward_block` over all columns of a span."""
    low, high, inner_start, inner_stop, edge, edges = block_loops(
        row, first, last, left, right, length, KIND, BLOCK
    )
    for k in tl.range(0, edges):
        at = edge_block(k, edge, inner_start, inner_stop, BLOCK)
        acc, weight_sum = backward_block(
            acc, weight_sum, row_x, row_g, row_norm, row_delta, at, x, scaled, norm, delta, low, high, length,
            stride, precision, SEES, SEEN, True, WIDTH, BLOCK, BLOCK_WIDTH, PRECISION, ACC,
        )  # fmt: skip
    for at in tl.range(inner_start, inner_stop, BLOCK):
        acc, weight_sum = backward_block(
            acc, weight_sum, row_x, row_g, row_norm, row_delta, at, x, scaled, norm, delta, low, high, length,
            stride, precision, SEES, SEEN, False, WIDTH, BLOCK, BLOCK_WIDTH, PRECISION, ACC,
        )  # fmt: skip
    return acc, weight_sum


@triton.jit
def gka_backward_kernel(
    x, scaled, norm, delta, scale, grad_x, share, first, last, left, right, seen_first, seen_last, heads, length,
    x_batch, x_head, x_row, grad_batch, grad_head, grad_row, span_batch,
    KIND: tl.constexpr, MUTUAL: tl.constexpr, WIDTH: tl.constexpr, BLOCK_WIDTH: tl.constexpr,
    PRECISION: tl.constexpr, ACC: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr,
):  # fmt: skip
    """dx_i = Σ_j m_ji E_ij g_j + Σ_j W_ij (x_j − x_i), for one block of rows i of one head.

    MUTUAL: j sees i wherever i sees j, so that one walk over the columns does; else there are two.
    """
    blocks = tl.cdiv(length, BLOCK_ROWS)
    sequence = tl.program_id(0) // blocks
    start = (blocks - 1 - tl.program_id(0) % blocks) * BLOCK_ROWS
    batch, head = sequence // heads, sequence % heads
    vector = sequence.to(tl.int64) * length
    x += head_start(batch, head, x_batch, x_head)
    scaled += vector * WIDTH
    norm += vector
    delta += vector
    precision = tl.load(scale + head)
    row = start + tl.arange(0, BLOCK_ROWS)
    # [BLOCK_ROWS BLOCK_WIDTH] twice, [BLOCK_ROWS] twice
    row_x = load_block(x, start, length, x_row, WIDTH, BLOCK_ROWS, BLOCK_WIDTH, True)
    row_g = load_block(scaled, start, length, WIDTH, WIDTH, BLOCK_ROWS, BLOCK_WIDTH, True)
    row_norm = load_vector(norm, start, length, BLOCK_ROWS, True)
    row_delta = load_vector(delta, start, length, BLOCK_ROWS, True)
    acc = tl.zeros([BLOCK_ROWS, BLOCK_WIDTH], ACC)
    weight_sum = tl.zeros([BLOCK_ROWS], ACC)
    first += batch * span_batch
    last += batch * span_batch
    acc, weight_sum = backward_span(
        acc, weight_sum, row, row_x, row_g, row_norm, row_delta, x, scaled, norm, delta, first, last, left, right,
        length, x_row, precision, True, MUTUAL, KIND, WIDTH, BLOCK_COLUMNS, BLOCK_WIDTH, PRECISION, ACC,
    )  # fmt: skip
    if not MUTUAL:
        seen_first += batch * span_batch
        seen_last += batch * span_batch
        acc, weight_sum = backward_span(
            acc, weight_sum, row, row_x, row_g, row_norm, row_delta, x, scaled, norm, delta, seen_first, seen_last,
            right, left, length, x_row, precision, False, True, KIND, WIDTH, BLOCK_COLUMNS, BLOCK_WIDTH,
            PRECISION, ACC,
        )  # fmt: skip
    grad_x += head_start(batch, head, grad_batch, grad_head)
    grad = acc - row_x.to(ACC) * weight_sum[:, None]
    of_out = tl.load(share + vector + row, mask=row < length, other=0.0)
    tl.store(share + vector + row, of_out - tl.sum(row_x.to(ACC) * grad, 1), mask=row < length)
    store_block(grad_x, grad, start, length, grad_row, WIDTH, BLOCK_ROWS, BLOCK_WIDTH)


def kind_of(spans: Spans, length: int) -> int:
    """Which of the three ways a program finds its spans."""
    if spans.first is not None:
        return GIVEN.value
    return ALL.value if spans.all(length, length) else BAND.value


def vectors(spans: Spans, other: Tensor) -> tuple[Tensor, Tensor, int]:
    """The spans' vectors and their batch stride; any tensor in their place where there are none."""
    if spans.first is None or spans.last is None:
        return other, other, 0
    return spans.first, spans.last, spans.first.stride(0) if len(spans.first) > 1 else 0


def gka_forward(x: Tensor, scale: Tensor, spans: Spans, eps: float) -> tuple[Tensor, Tensor]:
    r"""$O_i = \sum_j E_{ij} x_j / t_i$ and $t_i = \sum_j E_{ij} + \varepsilon$ over the keys that i sees.

    $E_{ij} = \exp(-|x_i - x_j|^2 / 2\sigma^2)$ is largest at j = i, where it is 1: no maximum to be found.

    Args:
        x: ``[b h n d]``; scale: 1/σ² ``[h]`` in the type of statistics; spans: each query sees itself.

    Returns:
        O as ``[b h n d]``, t as ``[b h n]`` in the type of statistics.
    """
    x = dense_rows(x)
    batch, heads, length, width = x.shape
    out = token_major(x)
    total = torch.empty(batch, heads, length, dtype=statistics_type(x), device=x.device)
    if x.numel() == 0:
        return out, total
    kind, (first, last, span_batch) = kind_of(spans, length), vectors(spans, scale)
    sizes = {"WIDTH": width, "BLOCK_WIDTH": block_width(width), "ACC": accumulator(x)}
    strides = {"x_batch": x.stride(0), "x_head": x.stride(1), "x_row": x.stride(2)}
    norm = total
    if length > SHORT:
        norm = torch.empty_like(total)
        chosen = config("gka_norm_kernel", width=sizes["BLOCK_WIDTH"], dtype=x.dtype)
        launch(
            gka_norm_kernel, batch * heads * triton.cdiv(length, chosen.rows), chosen,
            x=x, norm=norm, scale=scale, heads=heads, length=length, **strides, **sizes,
        )  # fmt: skip
    chosen = config(
        "gka_forward_kernel",
        width=sizes["BLOCK_WIDTH"],
        dtype=x.dtype,
        masked=kind != ALL.value,
        length=length,
    )
    launch(
        gka_forward_kernel, batch * heads * triton.cdiv(length, chosen.rows), chosen,
        x=x, out=out, total_sum=total, scale=scale, norm=norm, first=first, last=last, left=spans.left,
        right=spans.right, eps=eps, heads=heads, length=length, **strides, out_batch=out.stride(0),
        out_head=out.stride(1), out_row=out.stride(2), span_batch=span_batch, KIND=kind, NORMS=length > SHORT,
        PRECISION=precision(x), **sizes,
    )  # fmt: skip
    return out, total


def gka_backward(
    grad_out: Tensor, x: Tensor, out: Tensor, total: Tensor, scale: Tensor, spans: Spans
) -> tuple[Tensor, Tensor]:
    r"""The gradient by x, with $g_i = dO_i / t_i$, $D_i = \langle g_i, O_i \rangle$ and $m_{ij}$ = 1 if i sees j:

    $dx_i = \sum_j m_{ji} E_{ij} g_j + \sigma^{-2} \sum_j W_{ij} (x_j - x_i)$,
    $W_{ij} = E_{ij} (m_{ij} (g_i \cdot x_j - D_i) + m_{ji} (x_i \cdot g_j - D_j))$.

    One walk over the columns and five products a block where the mask is symmetric, two walks and seven
    products where it is not; no atomics, so the same bits every time. O(λx, λσ) = λ O(x, σ), so by
    Euler's identity $\sigma\, dL/d\sigma = \sum_i \langle O_i, dO_i \rangle - \langle x_i, dx_i \rangle$.

    Args:
        grad_out, x, out: ``[b h n d]``; total: ``[b h n]``; scale: ``[h]``; spans: as in `gka_forward`.

    Returns:
        dx as ``[b h n d]``, and each row's term of Euler's sum as ``[b h n]``.
    """
    x, grad_out, out = dense_rows(x), dense_rows(grad_out), dense_rows(out)
    batch, heads, length, width = x.shape
    grad_x = token_major(x)
    if x.numel() == 0:
        return grad_x, torch.empty_like(total)
    kind, (first, last, span_batch) = kind_of(spans, length), vectors(spans, scale)
    # Where every query sees itself, documents are symmetric, and a band is if both its sides are alike.
    mutual = kind == ALL.value or spans.left == spans.right
    seen_first, seen_last = (first, last) if mutual else vectors(spans.inverse(length, length), scale)[:2]
    total = total.contiguous()
    scaled = torch.empty(batch, heads, length, width, dtype=x.dtype, device=x.device)
    delta, norm, share = (torch.empty_like(total) for _ in range(3))
    sizes = {"WIDTH": width, "BLOCK_WIDTH": block_width(width), "ACC": accumulator(x)}
    strides = {"x_batch": x.stride(0), "x_head": x.stride(1), "x_row": x.stride(2)}
    chosen = config("gka_prepare_kernel", width=sizes["BLOCK_WIDTH"], dtype=x.dtype)
    launch(
        gka_prepare_kernel, batch * heads * triton.cdiv(length, chosen.rows), chosen,
        grad_out=grad_out, x=x, out=out, total_sum=total, scale=scale, scaled=scaled, delta=delta, norm=norm,
        share=share,
        heads=heads, length=length, grad_batch=grad_out.stride(0), grad_head=grad_out.stride(1),
        grad_row=grad_out.stride(2), **strides, out_batch=out.stride(0), out_head=out.stride(1),
        out_row=out.stride(2), **sizes,
    )  # fmt: skip
    chosen = config(
        "gka_backward_kernel", width=sizes["BLOCK_WIDTH"], dtype=x.dtype, masked=not mutual, length=length
    )
    launch(
        gka_backward_kernel, batch * heads * triton.cdiv(length, chosen.rows), chosen,
        x=x, scaled=scaled, norm=norm, delta=delta, scale=scale, grad_x=grad_x, share=share, first=first, last=last,
        left=spans.left, right=spans.right, seen_first=seen_first, seen_last=seen_last, heads=heads, length=length,
        **strides, grad_batch=grad_x.stride(0), grad_head=grad_x.stride(1), grad_row=grad_x.stride(2),
        span_batch=span_batch, KIND=kind, MUTUAL=mutual, PRECISION=precision(x), **sizes,
    )  # fmt: skip
    return grad_x, share
