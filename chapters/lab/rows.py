"""Rows of a head in memory, one after the other; chapters 17 to 19 import them."""

import triton
import triton.language as tl

from gkalib.smoothing.fused.scores import LOG2_E as LOG2_E


@triton.jit
def load_rows(tensor, row, D: tl.constexpr):
    """These rows of a tensor ``[n D]``, as a block ``[B D]``."""
    return tl.load(tensor + row[:, None] * D + tl.arange(0, D)[None, :])


@triton.jit
def store_rows(tensor, row, block, D: tl.constexpr):
    """Write a block ``[B D]`` to these rows of a tensor ``[n D]``, in the tensor's type."""
    place = tensor + row[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(place, block.to(tensor.dtype.element_ty))
