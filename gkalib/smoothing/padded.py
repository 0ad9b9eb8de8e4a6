"""A Gaussian, or any kernel with a form, inside PyTorch's scaled dot-product attention."""

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from gkalib.masks import Causal
from gkalib.normalizers import RowSum
from gkalib.smoothing.method import Method
from gkalib.smoothing.problem import Problem


class Padded(Method):
    r"""Scaled dot-product attention over vectors with a column more for the key's bias.

    $$s\,q^\top k + b(k) = s\,[q, 1]^\top [k, b(k) / s]$$

    The query's bias cancels in the row sum. In half precision the last column is split into a high part and
    the remainder, in two columns: one rounded column would put its rounding error into the score. A scale
    that is one number is PyTorch's to apply, in float32; one that differs by head is multiplied into the
    query and rounded with it. Vectors are padded to a multiple of 8, values to the same width, so memory is
    linear in the number of keys.

    Chapter 14 teaches it.
    """

    name = "padded"

    def refuses(self, problem: Problem) -> str | None:
        form = problem.form()
        if form is None:
            return f"{type(problem.kernel).__name__} has no form scale · q·k + a(q) + b(k)"
        if form.lag_table is not None:
            return "a bias of the lag would need a mask of n × m numbers"
        if not (isinstance(problem.normalizer, RowSum) and problem.normalizer.eps == 0):
            return f"scaled dot-product attention normalizes by the row sum only, not {problem.normalizer!r}"
        here, precise = problem.query.device.type == "cpu", problem.query.dtype == torch.float64
        if here and precise and torch.compiler.is_compiling() and problem.needs_grad:
            # A tracer takes the log-sums for float32 (PyTorch's issue 185539), eager mode is right.
            return "inside torch.compile PyTorch has no gradient of it in float64 on a CPU"
        return None

    def __call__(self, problem: Problem) -> Tensor:
        query, key, value = problem.upcast()
        form = problem.form()
        assert form is not None  # else it refuses
        dtype, width = problem.query.dtype, value.shape[-1]
        if isinstance(form.scale, float) and form.scale > 0:
            query, scale = problem.query, form.scale
        else:
            query, scale = (form.scale * query).to(dtype), 1.0
        columns = [problem.key]
        if form.key_bias is not None:
            bias = form.key_bias(key)[..., None] / scale
            columns += [bias.to(dtype)] if dtype == bias.dtype else _two_columns(bias, dtype)
        ones = len(columns) - 1
        size = -(-max(query.shape[-1] + ones, width) // 8) * 8
        query = pad(pad(query, (0, ones), value=1.0), (0, size - query.shape[-1] - ones))
        key = torch.cat(columns, dim=-1)
        key = pad(key, (0, size - key.shape[-1]))
        value = pad(problem.value, (0, size - width))
        causal = (
            isinstance(problem.mask, Causal)
            and not problem.given_positions
            and query.shape[2] == key.shape[2]
        )
        allowed = None if causal else problem.allowed()
        if allowed is None:
            return scaled_dot_product_attention(query, key, value, scale=scale, is_causal=causal)[..., :width]
        # A row without a key would be 0/0: let it see everything, then put zeros in its place.
        empty = ~allowed.any(-1, keepdim=True)
        allowed = (allowed | empty).expand(*allowed.shape[:-2], query.shape[2], key.shape[2])
        out = scaled_dot_product_attention(query, key, value, attn_mask=allowed, scale=scale)
        return out[..., :width].masked_fill(empty, 0.0)


def _two_columns(bias: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """A number as the sum of two of lower precision."""
    high = bias.detach().to(dtype)
    return [high, (bias - high.to(bias.dtype)).to(dtype)]
