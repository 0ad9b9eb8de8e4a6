"""Gaussian attention of one tensor to itself: query, key and value are x. Chapters 17 and 18 teach it."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from gkalib.smoothing.fused.configs import config, edge_columns
from gkalib.smoothing.fused.gaussian import (
    Tokens,
    backward_span,
    end_rows,
    forward_block,
    load_rows,
    prepare_rows,
)
from gkalib.smoothing.fused.launch import (
    dense_rows,
    heads_of,
    launch,
    mask_of,
    name_of,
    numbers_of,
    statistics_type,
    token_major,
)
from gkalib.smoothing.fused.norms import squared_norms
from gkalib.smoothing.fused.scores import (
    LOG2_E,
    Head,
    block_width,
    edge_block,
    half_norm,
    head_of,
    load_block,
    place,
    scale_of,
    store_block,
    sum_type,
    walk_of,
)
from gkalib.smoothing.spans import Spans

SHORT = 256
"""Up to this length the norms are formed again for every block, which costs less than reading them."""
PITCH = 128
"""Numbers of tokens, such as norms, fill a multiple of this. No block is longer, so none reads past them."""


@triton.jit
def gka_forward_kernel(
    x, out, total_sum, numbers, half_norms, mask, eps, heads, length, pitch, WIDTH: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr, BLOCK_EDGE: tl.constexpr,
):  # fmt: skip
    """out_i = Σ_j E_ij x_j / total_i and total_i = Σ_j E_ij + eps, for one block of rows i of one head.

    Without a mask the columns behind the last whole block come in blocks of BLOCK_EDGE.
    """
    MASKED: tl.constexpr = mask.first is not None or mask.left is not None
    batch, head, sequence, start = place(heads, length, BLOCK_ROWS)
    x = head_of(x, batch, head)
    if half_norms is not None:
        half_norms += sequence * pitch
    factor = LOG2_E * scale_of(numbers, head)
    row = start + tl.arange(0, BLOCK_ROWS)
    walk = walk_of(row, mask, batch, length, length, BLOCK_COLUMNS, BLOCK_EDGE)
    # [BLOCK_ROWS block_width], [BLOCK_ROWS]
    row_x = load_block(x, start, length, BLOCK_ROWS, WIDTH, True)
    row_norm = half_norm(row_x, factor) if half_norms is None else tl.load(half_norms + row)
    ACC: tl.constexpr = sum_type(row_x.dtype)
    acc = tl.zeros([BLOCK_ROWS, block_width(WIDTH)], ACC)
    total = tl.zeros([BLOCK_ROWS, 4], ACC)
    for k in tl.range(0, walk.edges):
        at = edge_block(walk, k, BLOCK_EDGE)
        acc, total = forward_block(
            acc, total, row_x, row_norm, x, half_norms, walk, at, length, factor, MASKED, True, WIDTH,
            BLOCK_EDGE,
        )  # fmt: skip
    for at in tl.range(walk.inner_start, walk.inner_stop, BLOCK_COLUMNS):
        acc, total = forward_block(
            acc, total, row_x, row_norm, x, half_norms, walk, at, length, factor, False, False, WIDTH,
            BLOCK_COLUMNS,
        )  # fmt: skip
    total = tl.where(row < length, tl.sum(total, 1) + eps, 1.0)
    tl.store(total_sum + sequence * length + row, total, mask=row < length)
    store_block(head_of(out, batch, head), acc / total[:, None], start, length, WIDTH)


@triton.jit
def gka_prepare_kernel(
    grad_out, x, out, total_sum, numbers, g, pairs, share, heads, length, pitch,
    WIDTH: tl.constexpr, BLOCK_ROWS: tl.constexpr,
):  # fmt: skip
    """`prepare_rows` of one block of rows of one head."""
    batch, head, sequence, start = place(heads, pitch, BLOCK_ROWS)
    vector = sequence * length
    g = Head(g + vector * WIDTH, WIDTH)
    tokens = Tokens(head_of(x, batch, head), g, pairs + 2 * sequence * pitch, length)
    prepare_rows(
        tokens, start, head_of(grad_out, batch, head), head_of(out, batch, head), total_sum + vector,
        share + vector, scale_of(numbers, head), pitch, WIDTH, BLOCK_ROWS,
    )  # fmt: skip


@triton.jit
def gka_backward_kernel(
    x, g, pairs, numbers, grad_x, share, mask, seen_mask, heads, length, pitch, MUTUAL: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr,
):  # fmt: skip
    """dx_i = Σ_j m_ji E_ij g_j + Σ_j W_ij (x_j − x_i), and (<O_i, dO_i> − <x_i, dx_i>)/σ for a block of rows.

    MUTUAL: j sees i wherever i sees j, so that one walk over the columns does; else there are two.
    """
    batch, head, sequence, start = place(heads, length, BLOCK_ROWS)
    vector = sequence * length
    g = Head(g + vector * WIDTH, WIDTH)
    tokens = Tokens(head_of(x, batch, head), g, pairs + 2 * sequence * pitch, length)
    scale = scale_of(numbers, head)
    row = start + tl.arange(0, BLOCK_ROWS)
    rows = load_rows(tokens, start, BLOCK_ROWS, WIDTH)
    ACC: tl.constexpr = sum_type(rows.x.dtype)
    acc = tl.zeros([BLOCK_ROWS, block_width(WIDTH)], ACC)
    slope_sum = tl.zeros([BLOCK_ROWS, 4], ACC)
    acc, slope_sum = backward_span(
        acc, slope_sum, rows, tokens, row, mask, batch, scale, True, MUTUAL, WIDTH, BLOCK_COLUMNS,
        BLOCK_COLUMNS,
    )  # fmt: skip
    if not MUTUAL:
        acc, slope_sum = backward_span(
            acc, slope_sum, rows, tokens, row, seen_mask, batch, scale, False, True, WIDTH, BLOCK_COLUMNS,
            BLOCK_COLUMNS,
        )  # fmt: skip
    end_rows(
        acc, slope_sum, start, tokens.x, head_of(grad_x, batch, head), share + vector,
        numbers.sigma + head * numbers.step, length, WIDTH, BLOCK_ROWS,
    )  # fmt: skip


def pitch_of(x: Tensor) -> int:
    """How far apart two heads' numbers of tokens lie."""
    return triton.cdiv(x.shape[2], PITCH) * PITCH


def start_program(
    program: Any,
    x: Tensor,
    sigma: Tensor,
    *,
    masked: bool = False,
    rows: int | None = None,
    **arguments: Any,
) -> None:
    """Start one program a block of x's rows, or of so many, and a head, with the arguments it names."""
    batch, heads, length, width = x.shape
    wide = block_width(width)
    chosen = config(
        name_of(program), width=wide, dtype=x.dtype, masked=masked, length=length, device=x.device,
        operation="gka",
    )  # fmt: skip
    assert max(chosen.rows, chosen.columns) <= PITCH
    arguments |= {"x": heads_of(x), "numbers": numbers_of(None, None, sigma), "WIDTH": width, "heads": heads}
    arguments |= {"length": length, "pitch": pitch_of(x)}
    arguments |= {"BLOCK_EDGE": edge_columns(length, chosen.columns, masked)}
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
    masked = not spans.all(length, length)
    half_norms = squared_norms(x, PITCH, sigma) if length > SHORT else None
    start_program(
        gka_forward_kernel, x, sigma, masked=masked, out=heads_of(out), total_sum=total,
        half_norms=half_norms, mask=mask_of(spans, length, length), eps=eps,
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
    masked = not spans.all(length, length)
    # Where every query sees itself, documents are symmetric, and a band is if both its sides are alike.
    mutual = not masked or spans.left == spans.right
    seen = spans if mutual else spans.inverse(length, length)
    g = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    pairs = total.new_empty(*x.shape[:2], pitch_of(x), 2)
    prepared = {"g": g, "pairs": pairs, "share": share, "mask": mask_of(spans, length, length)}
    start_program(
        gka_prepare_kernel, x, sigma, rows=pitch_of(x), grad_out=heads_of(grad_out), out=heads_of(out),
        total_sum=total, **prepared,
    )  # fmt: skip
    start_program(
        gka_backward_kernel, x, sigma, masked=not mutual, grad_x=heads_of(grad_x),
        seen_mask=mask_of(seen, length, length), MUTUAL=mutual, **prepared,
    )  # fmt: skip
    return grad_x, share
