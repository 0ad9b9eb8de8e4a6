"""A Gaussian, or any kernel with a form, inside PyTorch's scaled dot-product attention."""

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from gkalib.masks import Causal
from gkalib.normalizers import RowSum
from gkalib.smoothing.methods.method import Method
from gkalib.smoothing.problem import Problem


class Padded(Method):
    r"""Scaled dot-product attention over vectors with a column more for the key's bias.

    $$s\,q^\top k + b(k) = s\,[q, 1]^\top [k, b(k) / s]$$

    The query's bias cancels in the row sum. In half precision the last column is split into a high part and
    the remainder, in two columns: one rounded column would put its rounding error into the score. A scale
    that is one number is PyTorch's to apply, in float32. So is, in half precision on a CPU, each of several:
    one call for each head. Elsewhere a scale that differs by head is multiplied into the query and rounded
    with it. Vectors are padded to a multiple of 8, values to the same width, so memory is linear in the
    number of keys.

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
        scales, divisor = _applied(problem, form.scale), 1.0
        if scales is None:
            query, scales = (form.scale * query).to(dtype), [1.0]
        elif isinstance(form.scale, Tensor):
            divisor = form.scale.detach()
            # Times one, which is exact, so that the scale gets its gradient.
            query = (form.scale / divisor * query).to(dtype)
        else:
            query, divisor = problem.query, form.scale
        columns = [problem.key]
        if form.key_bias is not None:
            bias = form.key_bias(key)[..., None] / divisor
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
            return _by_head(scales, query, key, value, None, causal)[..., :width]
        # A row without a key would be 0/0: let it see everything, then put zeros in its place.
        empty = ~allowed.any(-1, keepdim=True)
        allowed = (allowed | empty).expand(*allowed.shape[:-2], query.shape[2], key.shape[2])
        allowed = allowed[(None,) * (4 - allowed.ndim)]
        return _by_head(scales, query, key, value, allowed, causal)[..., :width].masked_fill(empty, 0.0)


def _applied(problem: Problem, scale: float | Tensor) -> list[float] | None:
    """The scale that PyTorch is to apply, for all heads or one for each; None if the query must hold it."""
    if not isinstance(scale, Tensor):
        return [scale] if scale > 0 else None
    query = problem.query
    # To read them from a GPU is to wait for it; in higher precision the query's rounding does not matter.
    if query.device.type != "cpu" or query.dtype.itemsize > 2 or torch.compiler.is_compiling():
        return None
    found = scale.detach().reshape(-1).tolist()
    if min(found) <= 0:
        return None
    return found if len(set(found)) > 1 else found[:1]


def _by_head(
    scales: list[float], query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, causal: bool
) -> Tensor:
    """Scaled dot-product attention, called once, or once for each head where the scales differ."""
    if len(scales) == 1:
        return scaled_dot_product_attention(
            query, key, value, attn_mask=allowed, is_causal=causal, scale=scales[0]
        )
    outs = []
    for head, scale in enumerate(scales):
        one = slice(head, head + 1)
        seen = allowed[:, one] if allowed is not None and allowed.shape[1] > 1 else allowed
        outs.append(
            scaled_dot_product_attention(
                query[:, one], key[:, one], value[:, one], attn_mask=seen, is_causal=causal, scale=scale
            )
        )
    return torch.cat(outs, dim=1)


def _two_columns(bias: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """A number as the sum of two of lower precision."""
    high = bias.detach().to(dtype)
    return [high, (bias - high.to(bias.dtype)).to(dtype)]
