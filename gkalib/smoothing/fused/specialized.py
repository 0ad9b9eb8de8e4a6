"""Gaussian attention for an H100, whose memory is read by descriptors: a block at a time, by one thread.

In a warp-specialized program one warp group loads while two others multiply. Every load of its loop goes
through a descriptor of as many axes as its block has, row sums are plain, and it has four warps, two of
64 rows each. Otherwise the compiler refuses or, with eight, silently splits nothing.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from gkalib.smoothing.fused.gaussian import add_columns, gaussian_block
from gkalib.smoothing.fused.launch import interpreting
from gkalib.smoothing.fused.scores import (
    LOG2_E,
    Head,
    block_width,
    dot,
    edge_block,
    head_of,
    load_again,
    place,
    scale_of,
    store_block,
    walk_of,
)


@triton.jit
def gka_forward_specialized_kernel(
    x, out, total_sum, numbers, half_norms, eps, heads, length, pitch, WIDTH: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr,
):  # fmt: skip
    """out_i = Σ_j E_ij x_j / total_i and total_i = Σ_j E_ij + eps, for one block of rows i of one head."""
    batch, head, sequence, start = place(heads, length, BLOCK_ROWS)
    x = head_of(x, batch, head)
    half_norms += sequence * pitch
    columns = describe_rows(x, length, WIDTH, BLOCK_COLUMNS)
    rows = describe_rows(x, length, WIDTH, BLOCK_ROWS)
    column_norms = tl.make_tensor_descriptor(half_norms, [pitch], [1], [BLOCK_COLUMNS])
    row_norms = tl.make_tensor_descriptor(half_norms, [pitch], [1], [BLOCK_ROWS])
    factor = LOG2_E * scale_of(numbers, head)
    ACC: tl.constexpr = total_sum.dtype.element_ty
    # [BLOCK_ROWS WIDTH], zero past the end, [BLOCK_ROWS]
    row_x, row_norm = rows.load([start, 0]), row_norms.load([start])
    acc = tl.zeros([BLOCK_ROWS, WIDTH], ACC)
    total = tl.zeros([BLOCK_ROWS], ACC)
    for at in tl.range(0, length, BLOCK_COLUMNS, warp_specialize=True):
        # [BLOCK_COLUMNS WIDTH], key and value at once, [BLOCK_COLUMNS], ∞ past the end
        column_x, column_norm = columns.load([at, 0]), column_norms.load([at])
        weight = gaussian_block(row_x, column_x, row_norm, column_norm, factor)
        total += tl.sum(weight, 1)
        acc = dot(weight, column_x, acc)
    row = start + tl.arange(0, BLOCK_ROWS)
    total = tl.where(row < length, total + eps, 1.0)
    tl.store(total_sum + sequence * length + row, total, mask=row < length)
    store_block(head_of(out, batch, head), acc / total[:, None], start, length, WIDTH)


@triton.jit
def describe_rows(head, length, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """A descriptor of a head for blocks of so many rows."""
    return tl.make_tensor_descriptor(head.start, [length, WIDTH], [head.stride, 1], [BLOCK, WIDTH])


@triton.jit
def load_described(tokens, batch, at, head, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Rows at … at + BLOCK of a head, [BLOCK WIDTH], zero past its end, by a descriptor of ``[b n h d]``."""
    return tl.reshape(tokens.load([batch, at, head, 0]), [BLOCK, WIDTH])


@triton.jit
def gka_forward_described_kernel(
    tokens, out, total_sum, numbers, half_norms, mask, eps, heads, length, pitch, WIDTH: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr,
):  # fmt: skip
    """What `gka_forward_kernel` computes, under any mask; blocks are as long as they are wide.

    One instruction of one thread fetches a block, by a descriptor that the host has made.
    """
    MASKED: tl.constexpr = mask.first is not None or mask.left is not None
    batch, head, sequence, start = place(heads, length, BLOCK_ROWS)
    half_norms += sequence * pitch
    factor = LOG2_E * scale_of(numbers, head)
    row = start + tl.arange(0, BLOCK_ROWS)
    walk = walk_of(row, mask, batch, length, length, BLOCK_COLUMNS)
    # [BLOCK_ROWS WIDTH], [BLOCK_ROWS]
    row_x = load_described(tokens, batch, start, head, WIDTH, BLOCK_ROWS)
    row_norm = tl.load(half_norms + row)
    ACC: tl.constexpr = total_sum.dtype.element_ty
    acc = tl.zeros([BLOCK_ROWS, WIDTH], ACC)
    total = tl.zeros([BLOCK_ROWS, 4], ACC)
    for k in tl.range(0, walk.edges):
        at = edge_block(walk, k, BLOCK_COLUMNS)
        # [BLOCK_COLUMNS WIDTH], key and value at once, [BLOCK_COLUMNS], ∞ past the end
        column_x = load_described(tokens, batch, at, head, WIDTH, BLOCK_COLUMNS)
        column_norm = tl.load(half_norms + at + tl.arange(0, BLOCK_COLUMNS))
        acc, total = add_columns(acc, total, row_x, row_norm, column_x, column_norm, walk, at, factor, MASKED)
    for at in tl.range(walk.inner_start, walk.inner_stop, BLOCK_COLUMNS):
        # [BLOCK_COLUMNS WIDTH], [BLOCK_COLUMNS]
        column_x = load_described(tokens, batch, at, head, WIDTH, BLOCK_COLUMNS)
        column_norm = tl.load(half_norms + at + tl.arange(0, BLOCK_COLUMNS))
        acc, total = add_columns(acc, total, row_x, row_norm, column_x, column_norm, walk, at, factor, False)
    total = tl.where(row < length, tl.sum(total, 1) + eps, 1.0)
    tl.store(total_sum + sequence * length + row, total, mask=row < length)
    store_block(head_of(out, batch, head), acc / total[:, None], start, length, WIDTH)


@triton.jit
def gka_backward_specialized_kernel(
    x, g, pairs, numbers, grad_x, share, heads, length, pitch, WIDTH: tl.constexpr, BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):  # fmt: skip
    """dx_i = Σ_j E_ij g_j + W_ij (x_j − x_i), and (<O_i, dO_i> − <x_i, dx_i>)/σ, for one block."""
    batch, head, sequence, start = place(heads, length, BLOCK_ROWS)
    x = head_of(x, batch, head)
    g = Head(g + sequence * length * WIDTH, WIDTH)
    pairs += 2 * sequence * pitch
    x_columns = describe_rows(x, length, WIDTH, BLOCK_COLUMNS)
    x_rows = describe_rows(x, length, WIDTH, BLOCK_ROWS)
    g_columns = describe_rows(g, length, WIDTH, BLOCK_COLUMNS)
    g_rows = describe_rows(g, length, WIDTH, BLOCK_ROWS)
    norm_columns = tl.make_tensor_descriptor(pairs, [pitch], [1], [BLOCK_COLUMNS])
    norm_rows = tl.make_tensor_descriptor(pairs, [pitch], [1], [BLOCK_ROWS])
    delta_columns = tl.make_tensor_descriptor(pairs + pitch, [pitch], [1], [BLOCK_COLUMNS])
    delta_rows = tl.make_tensor_descriptor(pairs + pitch, [pitch], [1], [BLOCK_ROWS])
    scale = scale_of(numbers, head)
    ACC: tl.constexpr = share.dtype.element_ty
    # [BLOCK_ROWS WIDTH] twice, [BLOCK_ROWS] twice
    row_x, row_g = x_rows.load([start, 0]), g_rows.load([start, 0])
    row_norm, row_delta = norm_rows.load([start]), delta_rows.load([start])
    acc = tl.zeros([BLOCK_ROWS, WIDTH], ACC)
    slope_sum = tl.zeros([BLOCK_ROWS], ACC)
    for at in tl.range(0, length, BLOCK_COLUMNS, warp_specialize=True):
        # [BLOCK_COLUMNS WIDTH] twice, [BLOCK_COLUMNS] twice
        column_x, column_g = x_columns.load([at, 0]), g_columns.load([at, 0])
        column_norm, column_delta = norm_columns.load([at]), delta_columns.load([at])
        weight = gaussian_block(row_x, column_x, row_norm, column_norm, LOG2_E * scale)
        product = dot(row_x, tl.trans(column_g), dot(row_g, tl.trans(column_x)))
        slope = weight * (product * scale - (row_delta[:, None] + column_delta[None, :]))
        acc = dot(slope, column_x, dot(weight, column_g, acc))
        slope_sum += tl.sum(slope, 1)
    row = start + tl.arange(0, BLOCK_ROWS)
    # [BLOCK_ROWS WIDTH]
    again = load_again(x, row, length, WIDTH).to(ACC)
    grad = acc - again * slope_sum[:, None]
    share += sequence * length + row
    euler = tl.load(share, mask=row < length, other=0.0) - tl.sum(again * grad, 1)
    tl.store(share, euler * tl.sqrt(scale), mask=row < length)
    store_block(head_of(grad_x, batch, head), grad, start, length, WIDTH)


def described(x: Tensor, block: int) -> TensorDescriptor:
    """A descriptor of ``[b n h d]`` as it lies in memory, for blocks of so many tokens of one head."""
    tokens = x.transpose(1, 2)
    return TensorDescriptor(tokens, list(tokens.shape), list(tokens.stride()), [1, block, 1, x.shape[3]])


def fits(x: Tensor) -> bool:
    """Whether descriptors can describe x: half precision on an H100, 64 or 128 wide, aligned to 16 bytes."""
    apart = [x.stride(at) * x.itemsize for at in range(3)]
    aligned = x.data_ptr() % 16 == 0 and all(step > 0 and step % 16 == 0 for step in apart)
    if interpreting():
        return aligned and x.shape[-1] == block_width(x.shape[-1])
    hopper = x.device.type == "cpu" or torch.cuda.get_device_capability(x.device)[0] == 9
    return hopper and aligned and x.itemsize == 2 and x.shape[-1] in (64, 128)
