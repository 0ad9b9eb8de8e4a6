"""A Gaussian, or any kernel with a form, inside PyTorch's scaled dot-product attention."""

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from gkalib.kernels import over_heads
from gkalib.masks import Causal
from gkalib.normalizers import Dropout, RowSum
from gkalib.smoothing.methods.method import Method, no_form
from gkalib.smoothing.problem import Problem

FEW = 256  # keys; with gradients at 197 a mask of one row took 0.85 of the column's time, at 512 1.06


class Padded(Method):
    r"""Scaled dot-product attention over vectors with a column more for what the form adds to each key.

    $$s\,q^\top k + b(k) = s\,[q, 1]^\top [k, b(k) / s]$$

    The query's term cancels in the row sum. In half precision the last column is split into a high part and
    the remainder, in two columns: one rounded column would put its rounding error into the score. A scale
    that is one number is PyTorch's to apply, in float32. So is, in half precision on a CPU, each of several:
    one call for each head. Elsewhere a scale that differs by head is multiplied into the query and rounded
    with it. Vectors are padded to a multiple of 8, values to the same width, so memory is linear in the
    number of keys.

    On a CPU, in float32 or float64, the keys' numbers are handed over as a mask of one row instead, which
    saves the copies. PyTorch forms the weights where such a mask needs a gradient: up to 256 keys that is
    faster still, beyond them the column is.

    Chapter 14 teaches it.
    """

    name = "padded"

    def refuses(self, problem: Problem) -> str | None:
        form, query = problem.form, problem.query
        if form is None:
            return no_form(problem)
        if form.lag_table is not None:
            return "a bias of the lag would need a mask of n × m numbers"
        normalizer = problem.normalizer
        if isinstance(normalizer, Dropout):
            normalizer = normalizer.normalizer
        if not (isinstance(normalizer, RowSum) and normalizer.eps == 0):
            return f"scaled dot-product attention normalizes by the row sum only, not {problem.normalizer!r}"
        precise = query.dtype == torch.float64 and query.device.type == "cpu"
        if precise and torch.compiler.is_compiling() and problem.needs_grad:
            # A tracer takes the log-sums for float32 (PyTorch's issue 185539), eager mode is right.
            return "inside torch.compile PyTorch has no gradient of it in float64 on a CPU"
        return None

    def __call__(self, problem: Problem) -> Tensor:
        form = problem.form
        assert form is not None  # else it refuses
        query, key, value = problem.query, problem.key, problem.value
        dtype, width = query.dtype, value.shape[-1]
        half = dtype.itemsize == 2
        term = form.key_term(key.float() if half else key)
        causal = _is_causal(problem)
        allowed = None if causal else problem.allowed()
        bias = problem.bias
        one_row = not causal and (allowed is None or allowed.ndim < 2 or allowed.shape[-2] == 1)
        few = not problem.needs_grad or key.shape[2] <= FEW
        copies_cost = query.device.type == "cpu" and not half and few
        if term is not None and one_row and copies_cost:
            bias = term.unsqueeze(2) if bias is None else bias + term.unsqueeze(2)
            term = None
        scales, divisor = _applied(problem, form.scale), 1.0
        if scales is None:
            query, scales = (over_heads(form.scale) * (query.float() if half else query)).to(dtype), [1.0]
        elif isinstance(form.scale, Tensor):
            divisor = over_heads(form.scale.detach())
            # Times one, which is exact, so that the scale gets its gradient.
            query = (over_heads(form.scale) / divisor * (query.float() if half else query)).to(dtype)
        else:
            divisor = form.scale
        columns = []
        if term is not None:
            column = term[..., None] / divisor
            columns = [column.to(dtype)] if dtype == column.dtype else _two_columns(column, dtype)
        size = max(query.shape[-1] + len(columns), width)
        if query.device.type == "cuda" or query.shape[-1] < size or width < size:
            size = -(-size // 8) * 8
            query = pad(query, (0, len(columns)), value=1.0) if columns else query
            key = torch.cat([key, *columns], dim=-1) if columns else key
            query, key, value = (pad(t, (0, size - t.shape[-1])) for t in (query, key, value))
        drop = problem.normalizer.p if isinstance(problem.normalizer, Dropout) else 0.0
        if allowed is None and bias is None:
            out = _by_head(scales, query, key, value, drop=drop, causal=causal)
            return out if size == width else out[..., :width]
        mask, empty = _mask(problem, allowed, bias)
        out = _by_head(scales, query, key, value, mask, drop=drop)
        out = out if size == width else out[..., :width]
        return out if empty is None else out.masked_fill(empty, 0.0)


def _is_causal(problem: Problem) -> bool:
    """Whether the mask is the one that PyTorch has a name for."""
    square = problem.query.shape[2] == problem.grouped_key.shape[2]
    return isinstance(problem.mask, Causal) and problem.positions is None and square and problem.bias is None


def _mask(problem: Problem, allowed: Tensor | None, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Four axes to be added, or True where a key is seen; and which rows see no key.

    Such a row would be 0/0: it sees everything, and its caller puts zeros in its place.
    """
    if bias is None:
        assert allowed is not None
        empty = ~allowed.any(-1, keepdim=True)
        mask = allowed | empty
    else:
        dtype = problem.query.dtype
        mask = bias if bias.dtype == dtype else bias.to(dtype)
        if allowed is None and problem.bias is None:
            return mask, None  # one row for all queries, which PyTorch reads as it is
        if allowed is not None:
            mask = mask.masked_fill(~allowed, -torch.inf)
        empty = mask.isneginf().all(-1, keepdim=True)
        mask = mask.masked_fill(empty, 0.0)
    mask = mask if mask.ndim == 4 else mask[(None,) * (4 - mask.ndim)]
    return mask.expand(-1, -1, problem.query.shape[2], problem.grouped_key.shape[2]), empty


def _applied(problem: Problem, scale: float | Tensor) -> list[float] | None:
    """The scale that PyTorch is to apply, for all heads or one for each; None if the query must hold it."""
    if not isinstance(scale, Tensor):
        return [scale] if scale > 0 else None
    query = problem.query
    # To read them from a GPU is to wait for it; in higher precision the query's rounding does not matter.
    if query.device.type != "cpu" or query.dtype.itemsize > 2 or torch.compiler.is_compiling():
        return None
    numbers = scale.detach().reshape(-1).tolist()
    if min(numbers) <= 0:
        return None
    return numbers if len(set(numbers)) > 1 else numbers[:1]


def _by_head(
    scales: list[float],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    *,
    drop: float = 0.0,
    causal: bool = False,
) -> Tensor:
    """Scaled dot-product attention, called once, or once for each head where the scales differ."""
    if len(scales) == 1:
        return scaled_dot_product_attention(query, key, value, mask, drop, causal, scale=scales[0])
    outs = []
    for head, scale in enumerate(scales):
        rows = slice(head, head + 1)
        head_mask = mask[:, rows] if mask is not None and mask.shape[1] > 1 else mask
        own = (query[:, rows], key[:, rows], value[:, rows])
        outs.append(scaled_dot_product_attention(*own, head_mask, drop, causal, scale=scale))
    return torch.cat(outs, dim=1)


def _two_columns(bias: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """A number as the sum of two of lower precision."""
    high = bias.detach().to(dtype)
    return [high, (bias - high.to(bias.dtype)).to(dtype)]
