"""Gaussian attention of one tensor to itself: query, key and value are x. Chapters 15 and 16 teach it."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from gkalib.smoothing.fused.configs import Config, config, edge_columns, stand_in
from gkalib.smoothing.fused.gaussian import backward_span, end_rows, forward_block, prepare_rows
from gkalib.smoothing.fused.launch import (
    accumulator,
    block_width,
    dense_rows,
    interpreting,
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
    load_block,
    load_pairs,
    place,
    store_block,
)
from gkalib.smoothing.fused.specialized import (
    described,
    fits,
    gka_backward_specialized_kernel,
    gka_forward_described_kernel,
    gka_forward_specialized_kernel,
)
from gkalib.smoothing.fused.unordered import gka_backward_unordered_kernel, gka_end_kernel, whole_rows
from gkalib.smoothing.spans import Spans

SHORT = 256
"""Up to this length the norms are formed again for every block, which costs less than reading them."""
PITCH = 128
"""Numbers of tokens, such as norms, fill a multiple of this. No block is longer, so none reads past them."""


@triton.jit
def gka_forward_kernel(
    x, out, total_sum, sigma, sigma_step, norm, first, last, left, right, eps, heads, length, pitch,
    x_strides, out_strides, span_batch, KIND: tl.constexpr, NORMS: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr, BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr, BLOCK_EDGE: tl.constexpr,
):  # fmt: skip
    """out_i = Σ_j E_ij x_j / total_i and total_i = Σ_j E_ij + eps, for one block of rows i of one head.

    Without a mask the columns behind the last whole block come in blocks of BLOCK_EDGE.
    """
    batch, head, sequence, start = place(heads, length, BLOCK_ROWS)
    x += head_start(batch, head, x_strides)
    norm += sequence * pitch
    c = LOG2_E * head_number(sigma, head, sigma_step, True)
    row = start + tl.arange(0, BLOCK_ROWS)
    low, high, inner_start, inner_stop, edge, edges = block_loops(
        row, first + batch * span_batch, last + batch * span_batch, left, right, 0, length, length,
        KIND, BLOCK_COLUMNS,
    )  # fmt: skip
    # [BLOCK_ROWS BLOCK_WIDTH]
    row_x = load_block(x, start, length, x_strides[2], WIDTH, BLOCK_ROWS, BLOCK_WIDTH, True)
    row_norm = tl.load(norm + row) if NORMS else half_norm(row_x, c, ACC)
    acc = tl.zeros([BLOCK_ROWS, BLOCK_WIDTH], ACC)
    total = tl.zeros([BLOCK_ROWS, 4], ACC)
    if BLOCK_EDGE != BLOCK_COLUMNS:
        edges = tl.cdiv(length - inner_stop, BLOCK_EDGE)
    for k in tl.range(0, edges):
        at = edge_block(k, edge, inner_start, inner_stop, BLOCK_EDGE)
        acc, total = forward_block(
            acc, total, row_x, row_norm, at, x, norm, low, high, length, x_strides[2], c,
            True, KIND, NORMS, WIDTH, BLOCK_EDGE, BLOCK_WIDTH, PRECISION, ACC,
        )  # fmt: skip
    for at in tl.range(inner_start, inner_stop, BLOCK_COLUMNS):
        acc, total = forward_block(
            acc, total, row_x, row_norm, at, x, norm, low, high, length, x_strides[2], c,
            False, KIND, NORMS, WIDTH, BLOCK_COLUMNS, BLOCK_WIDTH, PRECISION, ACC,
        )  # fmt: skip
    total = tl.where(row < length, tl.sum(total, 1) + eps, 1.0)
    tl.store(total_sum + sequence * length + row, total, mask=row < length)
    out += head_start(batch, head, out_strides)
    store_block(out, acc / total[:, None], start, length, out_strides[2], WIDTH, BLOCK_ROWS, BLOCK_WIDTH)


@triton.jit
def gka_norm_kernel(
    x, norm, sigma, sigma_step, heads, length, pitch, x_strides, WIDTH: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr, ACC: tl.constexpr, BLOCK_ROWS: tl.constexpr,
):  # fmt: skip
    """n_i = |x_i|² log2(e)/(2σ²) for one block of rows of one head, and ∞ past its end."""
    batch, head, sequence, start = place(heads, pitch, BLOCK_ROWS)
    c = LOG2_E * head_number(sigma, head, sigma_step, True)
    x += head_start(batch, head, x_strides)
    # [BLOCK_ROWS BLOCK_WIDTH]
    block = load_block(x, start, length, x_strides[2], WIDTH, BLOCK_ROWS, BLOCK_WIDTH, True)
    row = start + tl.arange(0, BLOCK_ROWS)
    found = tl.where(row < length, half_norm(block, c, ACC), float("inf"))
    tl.store(norm + sequence * pitch + row, found, mask=row < pitch)


@triton.jit
def gka_prepare_kernel(
    grad_out, x, out, total_sum, sigma, sigma_step, scaled, pairs, share, heads, length, pitch, grad_strides,
    x_strides, out_strides, SIDE_BY_SIDE: tl.constexpr, WIDTH: tl.constexpr, BLOCK_WIDTH: tl.constexpr,
    ACC: tl.constexpr, BLOCK_ROWS: tl.constexpr,
):  # fmt: skip
    """`prepare_rows` of one block of rows of one head."""
    batch, head, sequence, start = place(heads, pitch, BLOCK_ROWS)
    vector = sequence * length
    grad_out += head_start(batch, head, grad_strides)
    x += head_start(batch, head, x_strides)
    out += head_start(batch, head, out_strides)
    prepare_rows(
        start, grad_out, x, out, total_sum + vector, scaled + vector * WIDTH, pairs + 2 * sequence * pitch,
        share + vector, head_number(sigma, head, sigma_step, True), length, pitch, grad_strides[2],
        x_strides[2], out_strides[2], SIDE_BY_SIDE, WIDTH, BLOCK_ROWS, BLOCK_WIDTH, ACC,
    )  # fmt: skip


@triton.jit
def gka_backward_kernel(
    x, scaled, pairs, sigma, sigma_step, grad_x, share, first, last, left, right, seen_first, seen_last,
    heads, length, pitch, x_strides, grad_strides, span_batch, KIND: tl.constexpr, MUTUAL: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK_WIDTH: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr,
):  # fmt: skip
    """dx_i = Σ_j m_ji E_ij g_j + Σ_j W_ij (x_j − x_i), and (<O_i, dO_i> − <x_i, dx_i>)/σ for a block of rows.

    MUTUAL: j sees i wherever i sees j, so that one walk over the columns does; else there are two.
    """
    batch, head, sequence, start = place(heads, length, BLOCK_ROWS)
    vector = sequence * length
    x += head_start(batch, head, x_strides)
    scaled += vector * WIDTH
    pairs += 2 * sequence * pitch
    precision = head_number(sigma, head, sigma_step, True)
    row = start + tl.arange(0, BLOCK_ROWS)
    # [BLOCK_ROWS BLOCK_WIDTH] twice, [BLOCK_ROWS] twice
    row_x = load_block(x, start, length, x_strides[2], WIDTH, BLOCK_ROWS, BLOCK_WIDTH, True)
    row_g = load_block(scaled, start, length, WIDTH, WIDTH, BLOCK_ROWS, BLOCK_WIDTH, True)
    row_norm, row_delta = load_pairs(pairs, start, BLOCK_ROWS)
    acc = tl.zeros([BLOCK_ROWS, BLOCK_WIDTH], ACC)
    weight_sum = tl.zeros([BLOCK_ROWS, 4], ACC)
    acc, weight_sum = backward_span(
        acc, weight_sum, row, row_x, row_g, row_norm, row_delta, x, scaled, pairs, first + batch * span_batch,
        last + batch * span_batch, left, right, length, x_strides[2], precision, True, MUTUAL, KIND, WIDTH,
        BLOCK_COLUMNS, BLOCK_WIDTH, PRECISION, ACC, BLOCK_COLUMNS,
    )  # fmt: skip
    if not MUTUAL:
        acc, weight_sum = backward_span(
            acc, weight_sum, row, row_x, row_g, row_norm, row_delta, x, scaled, pairs,
            seen_first + batch * span_batch, seen_last + batch * span_batch, right, left, length,
            x_strides[2], precision, False, True, KIND, WIDTH, BLOCK_COLUMNS, BLOCK_WIDTH, PRECISION, ACC,
            BLOCK_COLUMNS,
        )  # fmt: skip
    grad_x += head_start(batch, head, grad_strides)
    end_rows(
        acc, weight_sum, start, x, grad_x, share + vector, sigma + head * sigma_step, length,
        x_strides[2], grad_strides[2], WIDTH, BLOCK_ROWS, BLOCK_WIDTH, ACC,
    )  # fmt: skip


@triton.jit
def gka_backward_head_kernel(
    grad_out, x, out, total_sum, sigma, sigma_step, scaled, pairs, grad_x, share, heads, length, pitch,
    out_grad_strides, x_strides, out_strides, grad_strides, WIDTH: tl.constexpr, BLOCK_WIDTH: tl.constexpr,
    PRECISION: tl.constexpr, ACC: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr,
    BLOCK_EDGE: tl.constexpr,
):  # fmt: skip
    """The two programs of a backward pass without a mask, one after the other, for a whole short head."""
    sequence = tl.program_id(0).to(tl.int64)
    batch, head = tl.program_id(0) // heads, tl.program_id(0) % heads
    grad_out += head_start(batch, head, out_grad_strides)
    x += head_start(batch, head, x_strides)
    out += head_start(batch, head, out_strides)
    grad_x += head_start(batch, head, grad_strides)
    total_sum += sequence * length
    share += sequence * length
    scaled += sequence * length * WIDTH
    sigma += head * sigma_step
    pairs += 2 * sequence * pitch
    precision = head_number(sigma, 0, 0, True)
    for start in tl.range(0, pitch, BLOCK_ROWS):
        prepare_rows(
            start, grad_out, x, out, total_sum, scaled, pairs, share, precision, length,
            pitch, out_grad_strides[2], x_strides[2], out_strides[2], True, WIDTH, BLOCK_ROWS, BLOCK_WIDTH,
            ACC,
        )  # fmt: skip
    tl.debug_barrier()  # what follows reads what other threads have written
    for start in tl.range(0, length, BLOCK_ROWS):
        row = start + tl.arange(0, BLOCK_ROWS)
        # [BLOCK_ROWS BLOCK_WIDTH] twice, [BLOCK_ROWS] twice
        row_x = load_block(x, start, length, x_strides[2], WIDTH, BLOCK_ROWS, BLOCK_WIDTH, True)
        row_g = load_block(scaled, start, length, WIDTH, WIDTH, BLOCK_ROWS, BLOCK_WIDTH, True)
        row_norm, row_delta = load_pairs(pairs, start, BLOCK_ROWS)
        acc = tl.zeros([BLOCK_ROWS, BLOCK_WIDTH], ACC)
        weight_sum = tl.zeros([BLOCK_ROWS, 4], ACC)
        acc, weight_sum = backward_span(
            acc, weight_sum, row, row_x, row_g, row_norm, row_delta, x, scaled, pairs, sigma, sigma, 0, 0,
            length, x_strides[2], precision, True, True, ALL, WIDTH, BLOCK_COLUMNS, BLOCK_WIDTH, PRECISION,
            ACC, BLOCK_EDGE,
        )  # fmt: skip
        end_rows(
            acc, weight_sum, start, x, grad_x, share, None, length, x_strides[2], grad_strides[2], WIDTH,
            BLOCK_ROWS, BLOCK_WIDTH, ACC,
        )  # fmt: skip
    tl.debug_barrier()
    for start in tl.range(0, length, BLOCK_ROWS):  # here, where σ crowds out nothing
        row = start + tl.arange(0, BLOCK_ROWS)
        euler = tl.load(share + row, mask=row < length, other=0.0)
        tl.store(share + row, euler / head_number(sigma, 0, 0), mask=row < length)


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


def instead(program: Any, x: Tensor, *, masked: bool = False) -> Config | None:
    """The block sizes of a program that runs in the place of the plain one, or None."""
    wide, length = block_width(x.shape[3]), x.shape[2]
    return stand_in(name_of(program), width=wide, dtype=x.dtype, length=length, masked=masked)


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
    masked = kind != ALL.value
    program, block, tokens = gka_forward_kernel, None, None
    if fits(x) and not masked and (block := instead(gka_forward_specialized_kernel, x)):
        program = gka_forward_specialized_kernel
    elif fits(x) and (block := instead(gka_forward_described_kernel, x, masked=masked)):
        program, tokens = gka_forward_described_kernel, described(x, block.rows)
    norm, norms = total, block is not None or length > SHORT
    if norms:
        norm = total.new_empty(batch, heads, pitch_of(x))
        start_program(gka_norm_kernel, x, sigma, rows=pitch_of(x), norm=norm)
    start_program(
        program, x, sigma, block=block, masked=masked, tokens=tokens, out=out, total_sum=total, norm=norm,
        left=spans.left, right=spans.right, eps=eps, **span_arguments(spans, sigma) | strides("out", out),
        KIND=kind, NORMS=norms,
    )  # fmt: skip
    return out, total


def gka_backward(
    grad_out: Tensor, x: Tensor, out: Tensor, total: Tensor, sigma: Tensor, spans: Spans, ordered: bool = True
) -> tuple[Tensor, Tensor]:
    r"""The gradient by x. With $g_i = dO_i / t_i$, $D_i = \langle g_i, O_i \rangle$, $m_{ij}$ 1 if i sees j:

    $dx_i = \sum_j m_{ji} E_{ij} g_j + \sigma^{-2} \sum_j W_{ij} (x_j - x_i)$,
    $W_{ij} = E_{ij} (m_{ij} (g_i \cdot x_j - D_i) + m_{ji} (x_i \cdot g_j - D_j))$.

    One walk over the columns and five products a block where the mask is symmetric, two walks and seven
    products where it is not; no atomics, so the same bits every time. O(λx, λσ) = λ O(x, σ), so by
    Euler's identity $dL/d\sigma = \sum_i (\langle O_i, dO_i \rangle - \langle x_i, dx_i \rangle)/\sigma$.

    Args:
        grad_out, x, out: ``[b h n d]``; total: ``[b h n]``; sigma, spans: as in `gka_forward`.
        ordered: without it five products do under any mask, where a program can add to memory by descriptors
            and ε is 0. **That is not deterministic**: two runs differ in their last bits.

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
    unordered = not ordered and not mutual and fits(x)
    scaled = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    pairs = total.new_empty(*x.shape[:2], pitch_of(x), 2)
    if kind == ALL.value and length <= SHORT and (head := instead(gka_backward_head_kernel, x)):
        start_program(
            gka_backward_head_kernel, x, sigma, block=head, rows=1, grad_out=grad_out, out=out,
            total_sum=total, scaled=scaled, pairs=pairs, grad_x=grad_x, share=share,
            **strides("out_grad", grad_out) | strides("out", out) | strides("grad", grad_x),
        )  # fmt: skip
        return grad_x, share
    special = instead(gka_backward_specialized_kernel, x) if kind == ALL.value and fits(x) else None
    start_program(
        gka_prepare_kernel, x, sigma, rows=pitch_of(x), grad_out=grad_out, out=out, total_sum=total,
        scaled=scaled, pairs=pairs, share=share, SIDE_BY_SIDE=special is None,
        **strides("grad", grad_out) | strides("out", out),
    )  # fmt: skip
    if unordered:
        sums = torch.zeros(x.shape, dtype=total.dtype, device=x.device)
        size = config("gka_backward_unordered", width=x.shape[3], dtype=x.dtype, length=length)
        start_program(
            gka_backward_unordered_kernel, x, sigma, block=size, scaled=scaled, pairs=pairs,
            sums=whole_rows(sums, size.columns), own_sums=whole_rows(sums, size.rows), left=seen.left,
            right=seen.right, **span_arguments(seen, sigma), KIND=kind, DESCRIBED=not interpreting(),
        )  # fmt: skip
        start_program(
            gka_end_kernel, x, sigma, sums=sums, grad_x=grad_x, share=share, **strides("grad", grad_x)
        )
        return grad_x, share
    start_program(
        gka_backward_specialized_kernel if special else gka_backward_kernel, x, sigma, block=special,
        masked=not mutual, scaled=scaled, pairs=pairs, grad_x=grad_x, share=share, left=spans.left,
        right=spans.right, **span_arguments(spans, sigma) | span_arguments(seen, sigma, "seen_"),
        **strides("grad", grad_x), KIND=kind, MUTUAL=mutual,
    )  # fmt: skip
    return grad_x, share
