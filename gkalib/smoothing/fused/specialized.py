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

from gkalib.smoothing.fused.gaussian import add_columns
from gkalib.smoothing.fused.launch import block_width, interpreting
from gkalib.smoothing.fused.scores import (
    ALL,
    LOG2_E,
    block_loops,
    edge_block,
    head_number,
    head_start,
    place,
    store_block,
)


@triton.jit
def gka_forward_specialized_kernel(
    x, out, total_sum, sigma, sigma_step, norm, eps, heads, length, pitch,
    x_strides, out_strides, WIDTH: tl.constexpr, PRECISION: tl.constexpr,
    ACC: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr,
):  # fmt: skip
    """out_i = Σ_j E_ij x_j / total_i and total_i = Σ_j E_ij + eps, for one block of rows i of one head."""
    batch, head, sequence, start = place(heads, length, BLOCK_ROWS)
    x += head_start(batch, head, x_strides)
    norm += sequence * pitch
    columns = tl.make_tensor_descriptor(x, [length, WIDTH], [x_strides[2], 1], [BLOCK_COLUMNS, WIDTH])
    rows = tl.make_tensor_descriptor(x, [length, WIDTH], [x_strides[2], 1], [BLOCK_ROWS, WIDTH])
    column_norms = tl.make_tensor_descriptor(norm, [pitch], [1], [BLOCK_COLUMNS])
    row_norms = tl.make_tensor_descriptor(norm, [pitch], [1], [BLOCK_ROWS])
    c = LOG2_E * head_number(sigma, head, sigma_step, True)
    # [BLOCK_ROWS WIDTH], zero past the end, [BLOCK_ROWS]
    row_x, row_norm = rows.load([start, 0]), row_norms.load([start])
    acc = tl.zeros([BLOCK_ROWS, WIDTH], ACC)
    total = tl.zeros([BLOCK_ROWS], ACC)
    for at in tl.range(0, length, BLOCK_COLUMNS, warp_specialize=True):
        # [BLOCK_COLUMNS WIDTH], key and value at once, [BLOCK_COLUMNS], ∞ past the end
        column_x, column_norm = columns.load([at, 0]), column_norms.load([at])
        product = tl.dot(row_x, tl.trans(column_x), input_precision=PRECISION, out_dtype=ACC)
        weight = tl.exp2(product * c - (row_norm[:, None] + column_norm[None, :]))
        total += tl.sum(weight, 1)
        acc = tl.dot(weight.to(column_x.dtype), column_x, acc, input_precision=PRECISION, out_dtype=ACC)
    row = start + tl.arange(0, BLOCK_ROWS)
    total = tl.where(row < length, total + eps, 1.0)
    tl.store(total_sum + sequence * length + row, total, mask=row < length)
    out += head_start(batch, head, out_strides)
    store_block(out, acc / total[:, None], start, length, out_strides[2], WIDTH, BLOCK_ROWS, WIDTH)


@triton.jit
def load_described(tokens, batch, at, head, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Rows at … at + BLOCK of a head, [BLOCK WIDTH], zero past its end, by a descriptor of ``[b n h d]``."""
    return tl.reshape(tokens.load([batch, at, head, 0]), [BLOCK, WIDTH])


@triton.jit
def gka_forward_described_kernel(
    tokens, out, total_sum, sigma, sigma_step, norm, first, last, left, right, eps, heads, length, pitch,
    out_strides, span_batch, KIND: tl.constexpr, WIDTH: tl.constexpr, PRECISION: tl.constexpr,
    ACC: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr,
):  # fmt: skip
    """What `gka_forward_kernel` computes, under any mask; blocks are as long as they are wide.

    One instruction of one thread fetches a block, by a descriptor that the host has made.
    """
    batch, head, sequence, start = place(heads, length, BLOCK_ROWS)
    norm += sequence * pitch
    c = LOG2_E * head_number(sigma, head, sigma_step, True)
    row = start + tl.arange(0, BLOCK_ROWS)
    low, high, inner_start, inner_stop, edge, edges = block_loops(
        row, first + batch * span_batch, last + batch * span_batch, left, right, 0, length, length, KIND,
        BLOCK_COLUMNS,
    )  # fmt: skip
    # [BLOCK_ROWS WIDTH], [BLOCK_ROWS]
    row_x = load_described(tokens, batch, start, head, WIDTH, BLOCK_ROWS)
    row_norm = tl.load(norm + row)
    acc = tl.zeros([BLOCK_ROWS, WIDTH], ACC)
    total = tl.zeros([BLOCK_ROWS, 4], ACC)
    for k in tl.range(0, edges):
        at = edge_block(k, edge, inner_start, inner_stop, BLOCK_COLUMNS)
        # [BLOCK_COLUMNS WIDTH], key and value at once, [BLOCK_COLUMNS], ∞ past the end
        column_x = load_described(tokens, batch, at, head, WIDTH, BLOCK_COLUMNS)
        column_norm = tl.load(norm + at + tl.arange(0, BLOCK_COLUMNS))
        acc, total = add_columns(
            acc, total, row_x, row_norm, column_x, column_norm, at, low, high, c, KIND != ALL, BLOCK_COLUMNS,
            PRECISION, ACC,
        )  # fmt: skip
    for at in tl.range(inner_start, inner_stop, BLOCK_COLUMNS):
        # [BLOCK_COLUMNS WIDTH], [BLOCK_COLUMNS]
        column_x = load_described(tokens, batch, at, head, WIDTH, BLOCK_COLUMNS)
        column_norm = tl.load(norm + at + tl.arange(0, BLOCK_COLUMNS))
        acc, total = add_columns(
            acc, total, row_x, row_norm, column_x, column_norm, at, low, high, c, False, BLOCK_COLUMNS,
            PRECISION, ACC,
        )  # fmt: skip
    total = tl.where(row < length, tl.sum(total, 1) + eps, 1.0)
    tl.store(total_sum + sequence * length + row, total, mask=row < length)
    out += head_start(batch, head, out_strides)
    store_block(out, acc / total[:, None], start, length, out_strides[2], WIDTH, BLOCK_ROWS, WIDTH)


@triton.jit
def gka_backward_specialized_kernel(
    x, scaled, pairs, sigma, sigma_step, grad_x, share, heads, length, pitch,
    x_strides, grad_strides, WIDTH: tl.constexpr, PRECISION: tl.constexpr,
    ACC: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr,
):  # fmt: skip
    """dx_i = Σ_j E_ij g_j + W_ij (x_j − x_i), and (<O_i, dO_i> − <x_i, dx_i>)/σ, for one block."""
    batch, head, sequence, start = place(heads, length, BLOCK_ROWS)
    x += head_start(batch, head, x_strides)
    scaled += sequence * length * WIDTH
    pairs += 2 * sequence * pitch
    x_columns = tl.make_tensor_descriptor(x, [length, WIDTH], [x_strides[2], 1], [BLOCK_COLUMNS, WIDTH])
    x_rows = tl.make_tensor_descriptor(x, [length, WIDTH], [x_strides[2], 1], [BLOCK_ROWS, WIDTH])
    g_columns = tl.make_tensor_descriptor(scaled, [length, WIDTH], [WIDTH, 1], [BLOCK_COLUMNS, WIDTH])
    g_rows = tl.make_tensor_descriptor(scaled, [length, WIDTH], [WIDTH, 1], [BLOCK_ROWS, WIDTH])
    norm_columns = tl.make_tensor_descriptor(pairs, [pitch], [1], [BLOCK_COLUMNS])
    norm_rows = tl.make_tensor_descriptor(pairs, [pitch], [1], [BLOCK_ROWS])
    delta_columns = tl.make_tensor_descriptor(pairs + pitch, [pitch], [1], [BLOCK_COLUMNS])
    delta_rows = tl.make_tensor_descriptor(pairs + pitch, [pitch], [1], [BLOCK_ROWS])
    precision = head_number(sigma, head, sigma_step, True)
    # [BLOCK_ROWS WIDTH] twice, [BLOCK_ROWS] twice
    row_x, row_g = x_rows.load([start, 0]), g_rows.load([start, 0])
    row_norm, row_delta = norm_rows.load([start]), delta_rows.load([start])
    acc = tl.zeros([BLOCK_ROWS, WIDTH], ACC)
    weight_sum = tl.zeros([BLOCK_ROWS], ACC)
    for at in tl.range(0, length, BLOCK_COLUMNS, warp_specialize=True):
        # [BLOCK_COLUMNS WIDTH] twice, [BLOCK_COLUMNS] twice
        column_x, column_g = x_columns.load([at, 0]), g_columns.load([at, 0])
        column_norm, column_delta = norm_columns.load([at]), delta_columns.load([at])
        product = tl.dot(row_x, tl.trans(column_x), input_precision=PRECISION, out_dtype=ACC)
        weight = tl.exp2(product * (LOG2_E * precision) - (row_norm[:, None] + column_norm[None, :]))
        product = tl.dot(row_g, tl.trans(column_x), input_precision=PRECISION, out_dtype=ACC)
        product = tl.dot(row_x, tl.trans(column_g), product, input_precision=PRECISION, out_dtype=ACC)
        slope = weight * (product * precision - (row_delta[:, None] + column_delta[None, :]))
        acc = tl.dot(weight.to(column_g.dtype), column_g, acc, input_precision=PRECISION, out_dtype=ACC)
        acc = tl.dot(slope.to(column_x.dtype), column_x, acc, input_precision=PRECISION, out_dtype=ACC)
        weight_sum += tl.sum(slope, 1)
    # [BLOCK_ROWS WIDTH], read once more so that registers need not hold it through the loop
    row = start + tl.arange(0, BLOCK_ROWS)
    address = x + row.to(tl.int64)[:, None] * x_strides[2] + tl.arange(0, WIDTH)[None, :]
    again = tl.load(address, mask=(row < length)[:, None], other=0.0, eviction_policy="evict_first").to(ACC)
    grad = acc - again * weight_sum[:, None]
    share += sequence * length + row
    euler = tl.load(share, mask=row < length, other=0.0) - tl.sum(again * grad, 1)
    tl.store(share, euler * tl.sqrt(precision), mask=row < length)
    grad_x += head_start(batch, head, grad_strides)
    store_block(grad_x, grad, start, length, grad_strides[2], WIDTH, BLOCK_ROWS, WIDTH)


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
