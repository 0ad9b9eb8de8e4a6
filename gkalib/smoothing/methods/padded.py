"""A Gaussian, or any kernel with a form, inside PyTorch's scaled dot-product attention."""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from gkalib.kernels import over_heads
from gkalib.masks import Causal
from gkalib.normalizers import Dropout, RowSum
from gkalib.smoothing.methods.method import Method, centered, no_form, wide
from gkalib.smoothing.problem import Problem

HIGH, LOW = 2.0**15, 2.0**4  # what the query holds beside two columns: exact in both halves
FEW = 256  # keys; with gradients at 197 a mask of one row took 0.85 of the column's time, at 512 1.06


class Padded(Method):
    r"""Scaled dot-product attention over vectors with a column more for what the form adds to each key.

    $$s\,q^\top k + b(k) = s\,[q, 1]^\top [k, b(k) / s]$$

    The query's term cancels in the row sum. In half precision the last column is split into a high part and
    the remainder, in two columns: one rounded column would put its rounding error into the score. A scale
    that is one number is PyTorch's to apply, in float32. So is, in half precision on a CPU, each of several:
    one call for each head. Elsewhere a scale that differs by head is multiplied into the query and rounded
    with it. Values are padded to the same width, so memory is linear in the number of keys.

    On a CPU, in float32 or float64, the keys' numbers are handed over as a mask of one row instead, which
    saves the copies. PyTorch forms the weights where such a mask needs a gradient: up to 256 keys that is
    faster still, beyond them the column is.

    Chapter 16 teaches it.
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
        query, key, term = centered(problem, problem.query, problem.key)
        value, width = problem.value, problem.grouped_value.shape[-1]
        # A tracer that keeps lengths open has to decide here: PyTorch takes no open truth.
        causal, allowed = (True, None) if _is_causal(problem) else (False, problem.allowed())
        bias = problem.bias
        applied = _applied(query, form.scale)
        if applied is not form.scale:
            rest = form.scale if isinstance(applied, float) and applied == 1 else form.scale / applied
            query = (over_heads(rest) * wide(query)).to(query.dtype)
        factors, columns = [], []
        if term is not None and not causal and _takes_a_row(problem, allowed):
            bias = term.unsqueeze(2) if bias is None else bias + term.unsqueeze(2)
        elif term is not None:
            factors, columns = _columns(term[..., None] / over_heads(applied), query.dtype)
        size = max(query.shape[-1] + len(columns), width)
        size = -(-size // 8) * 8 if query.device.type == "cuda" else size
        query = _widened(query, size, [query.new_full((*query.shape[:3], 1), factor) for factor in factors])
        key, value = _widened(key, size, columns), _widened(value, size, [])
        drop = problem.normalizer.p if isinstance(problem.normalizer, Dropout) else 0.0
        mask, empty = _mask(problem, allowed, bias)
        out = _by_head(applied, query, key, value, mask, drop=drop, causal=causal)
        out = out if size == width else out[..., :width]
        return out if empty is None else out.masked_fill(empty, 0.0)


def _is_causal(problem: Problem) -> bool:
    """Whether the mask is the one that PyTorch has a name for."""
    if problem.mask is None or problem.positions is not None or problem.bias is not None:
        return False
    return isinstance(problem.mask, Causal) and problem.query.shape[2] == problem.grouped_key.shape[2]


def _takes_a_row(problem: Problem, allowed: Tensor | None) -> bool:
    """Whether what is added to the keys is better a mask of one row than a column."""
    query, keys = problem.query, problem.sizes[3]
    if query.dtype.itemsize == 2 or query.device.type != "cpu" or torch.compiler.is_exporting():
        return False  # what PyTorch writes of a mask of one row for other programs has no certain strides
    one_row = allowed is None or allowed.ndim < 2 or allowed.shape[-2] == 1
    return one_row and (keys <= FEW or not problem.needs_grad)


def _columns(column: Tensor, dtype: torch.dtype) -> tuple[list[float], list[Tensor]]:
    """What the query and what the key hold for a number of each key, ``[b h m 1]``: their product is it.

    In half precision the sum of two products; a number of 2³¹, half a squared length, is within float16 so.
    """
    if column.dtype == dtype:
        return [1.0], [column]
    top = torch.finfo(dtype).max
    high = (column.detach() / HIGH).clamp(-top, top).to(dtype)
    return [HIGH, LOW], [high, ((column - HIGH * high.float()) / LOW).to(dtype)]


def _widened(tensor: Tensor, size: int, columns: list[Tensor]) -> Tensor:
    """A tensor with columns behind its own, and zeros up to a size."""
    missing = size - tensor.shape[-1] - len(columns)
    # `torch.nn.functional.pad` fills all of the new tensor before it copies.
    zeros = [tensor.new_zeros(*tensor.shape[:3], missing)] if missing else []
    return torch.cat([tensor, *columns, *zeros], dim=-1) if columns or zeros else tensor


def _mask(
    problem: Problem, allowed: Tensor | None, bias: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """Four axes to be added, or True where a key is seen; and which rows see no key. None is no mask, no row.

    Such a row would be 0/0: it sees everything, and its caller puts zeros in its place.
    """
    if bias is None:
        if allowed is None:
            return None, None
        empty = ~allowed.any(-1, keepdim=True)
        mask = allowed | empty
    else:
        mask = bias.to(problem.query.dtype)
        if allowed is None and problem.bias is None:
            return mask, None  # one row for all queries, which PyTorch reads as it is
        if allowed is not None:
            mask = mask.masked_fill(~allowed, -torch.inf)
        empty = mask.isneginf().all(-1, keepdim=True)
        mask = mask.masked_fill(empty, 0.0)
    mask = mask[(None,) * (4 - mask.ndim)]
    return mask.expand(-1, -1, problem.query.shape[2], problem.grouped_key.shape[2]), empty


def _applied(query: Tensor, scale: float | Tensor) -> float | Tensor:
    """Of the scale what PyTorch is to apply, one number or one for each head; the query holds the rest."""
    if not isinstance(scale, Tensor):
        return scale if scale > 0 else 1.0
    # To read it from a GPU is to wait for it; in higher precision the query's rounding does not matter.
    if query.device.type != "cpu" or query.dtype.itemsize > 2 or torch.compiler.is_compiling():
        return 1.0
    scales = scale.detach()
    if not (scales > 0).all():
        return 1.0
    return scales if (scales != scales.reshape(-1)[0]).any() else scales.reshape(-1)[0].item()


def _by_head(
    scale: float | Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    *,
    drop: float,
    causal: bool,
) -> Tensor:
    """Scaled dot-product attention, called once, or once for each head where the scales differ."""
    if not isinstance(scale, Tensor):
        return scaled_dot_product_attention(query, key, value, mask, drop, causal, scale=scale)
    outs = []
    for head, own_scale in enumerate(scale.tolist()):
        rows = slice(head, head + 1)
        own_mask = mask[:, rows] if mask is not None and mask.shape[1] > 1 else mask
        own = (query[:, rows], key[:, rows], value[:, rows])
        outs.append(scaled_dot_product_attention(*own, own_mask, drop, causal, scale=own_scale))
    return torch.cat(outs, dim=1)
