"""Gaussian attention of one tensor to itself: query, key and value are x. Chapters 15 and 16 teach it."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from gkalib.smoothing.fused.configs import Config, config, edge_columns
from gkalib.smoothing.fused.launch import (
    accumulator,
    block_width,
    dense_rows,
    launch,
    name_of,
    precision,
    statistics_type,
    step_of,
    strides,
    token_major,
)
from gkalib.smoothing.fused.scores import (
    ALL,
    BAND,
    GIVEN,
    LOG2_E,
    block_loops,
    edge_block,
    half_norm,
    head_number,
    head_start,
    lane_sums,
    load_block,
    load_pairs,
    only_spans,
    place,
    store_block,
)
from gkalib.smoothing.fused.specialized import (
    gka_backward_specialized_kernel,
    gka_forward_specialized_kernel,
    instead,
)
from gkalib.smoothing.spans import Spans

SHORT = 256
"""Up to this length the norms are formed again for every block, which costs less than reading them."""
PITCH = 128
"""Numbers of tokens, such as norms, fill a multiple of this. No block is longer, so none reads past them."""


@triton.jit
def gaussian_block(row_x, column_x, row_norm, column_norm, c, PRECISION: tl.constexpr, ACC: tl.constexpr):
    """E_ij = exp2(c x_i·x_j − n_i − n_j) = exp(−|x_i − x_j|²/(2σ²)): at most 1, and 1 where i = j."""
    product = tl.dot(row_x, tl.trans(column_x), input_precision=PRECISION, out_dtype=ACC)
    return tl.exp2(product * c - (row_norm[:, None] + column_norm[None, :]))


@triton.jit
def forward_block(
    acc, total, row_x, row_norm, at, x, norm, low, high, length, stride, c,
    EDGE: tl.constexpr, KIND: tl.constexpr, NORMS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Add Σ_j E_ij x_j and Σ_j E_ij over one block of columns."""
    # [BLOCK BLOCK_WIDTH], key and value at once
    column_x = load_block(x, at, length, stride, WIDTH, BLOCK, BLOCK_WIDTH, EDGE)
    column = at + tl.arange(0, BLOCK)
    column_norm = tl.load(norm + column) if NORMS else half_norm(column_x, c, ACC)
    if EDGE and not NORMS:
        column_norm = tl.where(column < length, column_norm, float("inf"))
    weight = gaussian_block(row_x, column_x, row_norm, column_norm, c, PRECISION, ACC)
    if EDGE and KIND != ALL:
        weight = only_spans(weight, at, low, high, BLOCK)
    total += lane_sums(weight, row_x.shape[0], BLOCK)
    acc = tl.dot(weight.to(column_x.dtype), column_x, acc, input_precision=PRECISION, out_dtype=ACC)
    return acc, total


@triton.jit
def gka_forward_kernel(
    x, out, total_sum, sigma, sigma_step, norm, first, last, left, right, eps, heads, length, pitch,
    x_batch, x_head, x_row, out_batch, out_head, out_row, span_batch,
    KIND: tl.constexpr, NORMS: tl.constexpr, WIDTH: tl.constexpr, BLOCK_WIDTH: tl.constexpr,
    PRECISION: tl.constexpr, ACC: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr,
    BLOCK_EDGE: tl.constexpr,
):  # fmt: skip
    """out_i = Σ_j E_ij x_j / total_i and total_i = Σ_j E_ij + eps, for one block of rows i of one head.

    Without a mask the columns behind the last whole block come in blocks of BLOCK_EDGE.
    """
    batch, head, sequence, start = place(heads, length, BLOCK_ROWS)
    x += head_start(batch, head, x_batch, x_head)
    norm += sequence * pitch
    c = LOG2_E * head_number(sigma, head, sigma_step, True)
    row = start + tl.arange(0, BLOCK_ROWS)
    low, high, inner_start, inner_stop, edge, edges = block_loops(
        row, first + batch * span_batch, last + batch * span_batch, left, right, 0, length, length,
        KIND, BLOCK_COLUMNS,
    )  # fmt: skip
    # [BLOCK_ROWS BLOCK_WIDTH]
    row_x = load_block(x, start, length, x_row, WIDTH, BLOCK_ROWS, BLOCK_WIDTH, True)
    row_norm = tl.load(norm + row) if NORMS else half_norm(row_x, c, ACC)
    acc = tl.zeros([BLOCK_ROWS, BLOCK_WIDTH], ACC)
    total = tl.zeros([BLOCK_ROWS, 4], ACC)
    if BLOCK_EDGE != BLOCK_COLUMNS:
        edges = tl.cdiv(length - inner_stop, BLOCK_EDGE)
    for k in tl.range(0, edges):
        at = edge_block(k, edge, inner_start, inner_stop, BLOCK_EDGE)
        acc, total = forward_block(
            acc, total, row_x, row_norm, at, x, norm, low, high, length, x_row, c,
            True, KIND, NORMS, WIDTH, BLOCK_EDGE, BLOCK_WIDTH, PRECISION, ACC,
        )  # fmt: skip
    for at in tl.range(inner_start, inner_stop, BLOCK_COLUMNS):
        acc, total = forward_block(
            acc, total, row_x, row_norm, at, x, norm, low, high, length, x_row, c,
            False, KIND, NORMS, WIDTH, BLOCK_COLUMNS, BLOCK_WIDTH, PRECISION, ACC,
        )  # fmt: skip
    total = tl.where(row < length, tl.sum(total, 1) + eps, 1.0)
    tl.store(total_sum + sequence * length + row, total, mask=row < length)
    out += head_start(batch, head, out_batch, out_head)
    store_block(out, acc / total[:, None], start, length, out_row, WIDTH, BLOCK_ROWS, BLOCK_WIDTH)


@triton.jit
def gka_norm_kernel(
    x, norm, sigma, sigma_step, heads, length, pitch, x_batch, x_head, x_row,
    WIDTH: tl.constexpr, BLOCK_WIDTH: tl.constexpr, ACC: tl.constexpr, BLOCK_ROWS: tl.constexpr,
):  # fmt: skip
    """n_i = |x_i|² log2(e)/(2σ²) for one block of rows of one head, and ∞ past its end."""
    batch, head, sequence, start = place(heads, pitch, BLOCK_ROWS)
    c = LOG2_E * head_number(sigma, head, sigma_step, True)
    x += head_start(batch, head, x_batch, x_head)
    # [BLOCK_ROWS BLOCK_WIDTH]
    block = load_block(x, start, length, x_row, WIDTH, BLOCK_ROWS, BLOCK_WIDTH, True)
    row = start + tl.arange(0, BLOCK_ROWS)
    found = tl.where(row < length, half_norm(block, c, ACC), float("inf"))
    tl.store(norm + sequence * pitch + row, found, mask=row < pitch)


@triton.jit
def gka_prepare_kernel(
    grad_out, x, out, total_sum, sigma, sigma_step, scaled, pairs, share, heads, length, pitch,
    grad_batch, grad_head, grad_row, x_batch, x_head, x_row, out_batch, out_head, out_row,
    SIDE_BY_SIDE: tl.constexpr, WIDTH: tl.constexpr, BLOCK_WIDTH: tl.constexpr, ACC: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
):  # fmt: skip
    """What the backward pass needs of each row: g_i = dO_i / total_i, n_i and <g_i, O_i>/σ², and <dO_i, O_i>.

    Past the end n is ∞, so that no weight there differs from zero.

    The inner product by σ² takes g as it was rounded, so that the gradient is that of a nearby dO.
    """
    batch, head, sequence, start = place(heads, pitch, BLOCK_ROWS)
    precision = head_number(sigma, head, sigma_step, True)
    row = start + tl.arange(0, BLOCK_ROWS)
    vector = sequence * length
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
    pairs += 2 * sequence * pitch
    norm, delta = (
        (pairs + 2 * row, pairs + 2 * row + 1) if SIDE_BY_SIDE else (pairs + row, pairs + pitch + row)
    )
    found = tl.where(row < length, half_norm(block, LOG2_E * precision, ACC), float("inf"))
    tl.store(norm, found, mask=row < pitch)
    tl.store(delta, tl.sum(g.to(ACC) * result.to(ACC), 1) * precision, mask=row < pitch)


@triton.jit
def backward_block(
    acc, weight_sum, row_x, row_g, row_norm, row_delta, at, x, scaled, pairs, low, high, length, stride,
    precision, SEES: tl.constexpr, SEEN: tl.constexpr, EDGE: tl.constexpr, KIND: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, BLOCK_WIDTH: tl.constexpr, PRECISION: tl.constexpr,
    ACC: tl.constexpr,
):  # fmt: skip
    """Add Σ_j [E_ij g_j] + W_ij x_j and Σ_j W_ij over one block of columns.

    SEES: columns that a row sees give W_ij the part E_ij (g_i·x_j − D_i)/σ².
    SEEN: columns that see a row give it E_ij (x_i·g_j − D_j)/σ², and the sum in brackets.
    """
    # [BLOCK BLOCK_WIDTH]
    column_x = load_block(x, at, length, stride, WIDTH, BLOCK, BLOCK_WIDTH, EDGE)
    column_norm, column_delta = load_pairs(pairs, at, BLOCK)
    weight = gaussian_block(row_x, column_x, row_norm, column_norm, LOG2_E * precision, PRECISION, ACC)
    if EDGE and KIND != ALL:
        weight = only_spans(weight, at, low, high, BLOCK)
    if SEEN:
        # [BLOCK BLOCK_WIDTH]
        column_g = load_block(scaled, at, length, WIDTH, WIDTH, BLOCK, BLOCK_WIDTH, EDGE)
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
    return acc, weight_sum + lane_sums(slope, row_x.shape[0], BLOCK)


@triton.jit
def backward_span(
    acc, weight_sum, row, row_x, row_g, row_norm, row_delta, x, scaled, pairs, first, last, left, right,
    length, stride, precision, SEES: tl.constexpr, SEEN: tl.constexpr, KIND: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, BLOCK_WIDTH: tl.constexpr, PRECISION: tl.constexpr,
    ACC: tl.constexpr,
):  # fmt: skip
    """The sums of `backward_block` over all columns of a span."""
    low, high, inner_start, inner_stop, edge, edges = block_loops(
        row, first, last, left, right, 0, length, length, KIND, BLOCK
    )
    for k in tl.range(0, edges):
        at = edge_block(k, edge, inner_start, inner_stop, BLOCK)
        acc, weight_sum = backward_block(
            acc, weight_sum, row_x, row_g, row_norm, row_delta, at, x, scaled, pairs, low, high, length,
            stride, precision, SEES, SEEN, True, KIND, WIDTH, BLOCK, BLOCK_WIDTH, PRECISION, ACC,
        )  # fmt: skip
    for at in tl.range(inner_start, inner_stop, BLOCK):
        acc, weight_sum = backward_block(
            acc, weight_sum, row_x, row_g, row_norm, row_delta, at, x, scaled, pairs, low, high, length,
            stride, precision, SEES, SEEN, False, KIND, WIDTH, BLOCK, BLOCK_WIDTH, PRECISION, ACC,
        )  # fmt: skip
    return acc, weight_sum


@triton.jit
def gka_backward_kernel(
    x, scaled, pairs, sigma, sigma_step, grad_x, share, first, last, left, right, seen_first, seen_last,
    heads, length, pitch, x_batch, x_head, x_row, grad_batch, grad_head, grad_row, span_batch,
    KIND: tl.constexpr, MUTUAL: tl.constexpr, WIDTH: tl.constexpr, BLOCK_WIDTH: tl.constexpr,
    PRECISION: tl.constexpr, ACC: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr,
):  # fmt: skip
    """dx_i = Σ_j m_ji E_ij g_j + Σ_j W_ij (x_j − x_i), and (<O_i, dO_i> − <x_i, dx_i>)/σ for a block of rows.

    MUTUAL: j sees i wherever i sees j, so that one walk over the columns does; else there are two.
    """
    batch, head, sequence, start = place(heads, length, BLOCK_ROWS)
    vector = sequence * length
    x += head_start(batch, head, x_batch, x_head)
    scaled += vector * WIDTH
    pairs += 2 * sequence * pitch
    precision = head_number(sigma, head, sigma_step, True)
    row = start + tl.arange(0, BLOCK_ROWS)
    # [BLOCK_ROWS BLOCK_WIDTH] twice, [BLOCK_ROWS] twice
    row_x = load_block(x, start, length, x_row, WIDTH, BLOCK_ROWS, BLOCK_WIDTH, True)
    row_g = load_block(scaled, start, length, WIDTH, WIDTH, BLOCK_ROWS, BLOCK_WIDTH, True)
    row_norm, row_delta = load_pairs(pairs, start, BLOCK_ROWS)
    acc = tl.zeros([BLOCK_ROWS, BLOCK_WIDTH], ACC)
    weight_sum = tl.zeros([BLOCK_ROWS, 4], ACC)
    acc, weight_sum = backward_span(
        acc, weight_sum, row, row_x, row_g, row_norm, row_delta, x, scaled, pairs, first + batch * span_batch,
        last + batch * span_batch, left, right, length, x_row, precision, True, MUTUAL, KIND, WIDTH,
        BLOCK_COLUMNS, BLOCK_WIDTH, PRECISION, ACC,
    )  # fmt: skip
    if not MUTUAL:
        acc, weight_sum = backward_span(
            acc, weight_sum, row, row_x, row_g, row_norm, row_delta, x, scaled, pairs,
            seen_first + batch * span_batch, seen_last + batch * span_batch, right, left, length, x_row,
            precision, False, True, KIND, WIDTH, BLOCK_COLUMNS, BLOCK_WIDTH, PRECISION, ACC,
        )  # fmt: skip
    # Read once more: held in registers through the loops, x_i would crowd out the sums. Its own policy is
    # what tells this load from the first one, with which the compiler would merge it.
    column = tl.arange(0, BLOCK_WIDTH)
    inside = (row < length)[:, None] & (column < WIDTH)[None, :]
    address = x + row.to(tl.int64)[:, None] * x_row + column[None, :]
    # [BLOCK_ROWS BLOCK_WIDTH]
    again = tl.load(address, mask=inside, other=0.0, eviction_policy="evict_first").to(ACC)
    grad = acc - again * tl.sum(weight_sum, 1)[:, None]
    share += vector + row
    euler = tl.load(share, mask=row < length, other=0.0) - tl.sum(again * grad, 1)
    tl.store(share, euler / head_number(sigma, head, sigma_step), mask=row < length)
    grad_x += head_start(batch, head, grad_batch, grad_head)
    store_block(grad_x, grad, start, length, grad_row, WIDTH, BLOCK_ROWS, BLOCK_WIDTH)


def kind_of(spans: Spans, length: int) -> int:
    """Which of the three ways a program finds its spans."""
    if spans.first is not None:
        return GIVEN.value
    return ALL.value if spans.all(length, length) else BAND.value


def span_arguments(spans: Spans, other: Tensor, name: str = "") -> dict[str, Any]:
    """Arguments NAMEfirst, NAMElast and span_batch; any tensor for the vectors where there are none."""
    if spans.first is None or spans.last is None:
        return {f"{name}first": other, f"{name}last": other, "span_batch": 0}
    stride = spans.first.stride(0) if len(spans.first) > 1 else 0
    return {f"{name}first": spans.first, f"{name}last": spans.last, "span_batch": stride}


def pitch_of(x: Tensor) -> int:
    """How far apart two heads' numbers of tokens lie."""
    return triton.cdiv(x.shape[2], PITCH) * PITCH


def start_program(
    program: Any,
    x: Tensor,
    sigma: Tensor,
    *,
    block: Config | None = None,
    masked: bool = False,
    rows: int | None = None,
    **arguments: Any,
) -> None:
    """Start one program a block of x's rows, or of so many, and a head, with the arguments it names."""
    batch, heads, length, width = x.shape
    wide = block_width(width)
    chosen = block or config(name_of(program), width=wide, dtype=x.dtype, masked=masked, length=length)
    assert max(chosen.rows, chosen.columns) <= PITCH
    arguments |= {"WIDTH": width, "BLOCK_WIDTH": wide, "ACC": accumulator(x), "PRECISION": precision(x)}
    arguments |= strides("x", x) | {"x": x, "heads": heads, "length": length, "pitch": pitch_of(x)}
    arguments |= {"BLOCK_EDGE": edge_columns(length, chosen.columns, masked)}
    arguments |= {"sigma": sigma, "sigma_step": step_of(sigma)}
    grid = batch * heads * triton.cdiv(rows or length, chosen.rows)
    launch(
        program, grid, chosen, **{name: arguments[name] for name in arguments if name in program.arg_names}
    )


def gka_forward(x: Tensor, sigma: Tensor, spans: Spans, eps: float) -> tuple[Tensor, Tensor]:
    r"""$O_i = \sum_j E_{ij} x_j / t_i$ and $t_i = \sum_j E_{ij} + \varepsilon$ over the keys that i sees.

    $E_{ij} = \exp(-|x_i - x_j|^2 / 2\sigma^2)$ is largest at j = i, where it is 1: no maximum to be found.

    Args:
        x: ``[b h n d]``; sigma: σ, ``[h]`` or ``[1]``, in the type of statistics; spans: each query sees
            itself.

    Returns:
        O as ``[b h n d]``, t as ``[b h n]`` in the type of statistics.
    """
    x = dense_rows(x)
    batch, heads, length, _ = x.shape
    out = token_major(x)
    total = torch.empty(batch, heads, length, dtype=statistics_type(x), device=x.device)
    if x.numel() == 0:
        return out, total
    kind = kind_of(spans, length)
    special = instead(gka_forward_specialized_kernel, x) if kind == ALL.value else None
    norm, norms = total, special is not None or length > SHORT
    if norms:
        norm = total.new_empty(batch, heads, pitch_of(x))
        start_program(gka_norm_kernel, x, sigma, rows=pitch_of(x), norm=norm)
    start_program(
        gka_forward_specialized_kernel if special else gka_forward_kernel, x, sigma, block=special,
        masked=kind != ALL.value,
        out=out, total_sum=total, norm=norm, left=spans.left, right=spans.right, eps=eps,
        **span_arguments(spans, sigma) | strides("out", out), KIND=kind, NORMS=norms,
    )  # fmt: skip
    return out, total


def gka_backward(
    grad_out: Tensor, x: Tensor, out: Tensor, total: Tensor, sigma: Tensor, spans: Spans
) -> tuple[Tensor, Tensor]:
    r"""The gradient by x. With $g_i = dO_i / t_i$, $D_i = \langle g_i, O_i \rangle$, $m_{ij}$ 1 if i sees j:

    $dx_i = \sum_j m_{ji} E_{ij} g_j + \sigma^{-2} \sum_j W_{ij} (x_j - x_i)$,
    $W_{ij} = E_{ij} (m_{ij} (g_i \cdot x_j - D_i) + m_{ji} (x_i \cdot g_j - D_j))$.

    One walk over the columns and five products a block where the mask is symmetric, two walks and seven
    products where it is not; no atomics, so the same bits every time. O(λx, λσ) = λ O(x, σ), so by
    Euler's identity $dL/d\sigma = \sum_i (\langle O_i, dO_i \rangle - \langle x_i, dx_i \rangle)/\sigma$.

    Args:
        grad_out, x, out: ``[b h n d]``; total: ``[b h n]``; sigma, spans: as in `gka_forward`.

    Returns:
        dx as ``[b h n d]``, and each row's term of dL/dσ as ``[b h n]``.
    """
    x, grad_out, out = dense_rows(x), dense_rows(grad_out), dense_rows(out)
    length = x.shape[2]
    grad_x, total = token_major(x), total.contiguous()
    share = torch.empty_like(total)
    if x.numel() == 0:
        return grad_x, share
    kind = kind_of(spans, length)
    # Where every query sees itself, documents are symmetric, and a band is if both its sides are alike.
    mutual = kind == ALL.value or spans.left == spans.right
    seen = spans if mutual else spans.inverse(length, length)
    special = instead(gka_backward_specialized_kernel, x) if kind == ALL.value else None
    scaled = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    pairs = total.new_empty(*x.shape[:2], pitch_of(x), 2)
    start_program(
        gka_prepare_kernel, x, sigma, rows=pitch_of(x), grad_out=grad_out, out=out, total_sum=total,
        scaled=scaled, pairs=pairs, share=share, SIDE_BY_SIDE=special is None,
        **strides("grad", grad_out) | strides("out", out),
    )  # fmt: skip
    start_program(
        gka_backward_specialized_kernel if special else gka_backward_kernel, x, sigma, block=special,
        masked=not mutual,
        scaled=scaled, pairs=pairs, grad_x=grad_x, share=share, left=spans.left,
        right=spans.right, **span_arguments(spans, sigma) | span_arguments(seen, sigma, "seen_"),
        **strides("grad", grad_x), KIND=kind, MUTUAL=mutual,
    )  # fmt: skip
    return grad_x, share
