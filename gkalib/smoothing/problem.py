"""One smoothing problem, checked once: what every method is given."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from gkalib.kernels import Form, Kernel, Product
from gkalib.kernels.base import owner_of_heads
from gkalib.masks import Mask, MaskFunction, as_mask, parts
from gkalib.normalizers import Dropout, Normalizer, RowSum
from gkalib.shapes import Scores, Weights
from gkalib.smoothing.local_line import line_normalizer

Positions = tuple[Tensor, Tensor]
Rule = Mask | Tensor | Callable[..., Tensor]
ROW_SUM = RowSum()  # one for all: to make a module costs more than a small problem


@dataclass(eq=False)
class Problem:
    """Queries, keys, values, and the slots that say how to smooth.

    Args:
        query: ``[b h n d]``.
        grouped_key, grouped_value: ``[b g m d]`` and ``[b g m e]``, where g divides h.
        kernel, mask, normalizer: the slots; no mask means that every query sees every key.
        positions: of queries and keys, ``[n]`` and ``[m]`` or with a batch axis in front; None puts the last
            query on the last key.
        one_tensor: whether query, key and value are one and the same tensor.
        bias: four axes that broadcast to ``[b h n m]``, added to log κ; None is zero.
        form: the kernel's, asked for once, where the positions allow its table of lags to be read.
        rules: the single rules of the mask, none where there is no mask.
    """

    query: Tensor
    grouped_key: Tensor
    grouped_value: Tensor
    kernel: Kernel
    mask: Mask | None
    normalizer: Normalizer
    positions: Positions | None
    one_tensor: bool
    bias: Tensor | None = None
    form: Form | None = field(init=False)
    rules: list[Mask] = field(init=False)

    def __post_init__(self) -> None:
        form = self.kernel.form(self.query.shape[-1])
        if form is not None and form.lag_table is not None and self.positions is not None:
            form = None if any(position.is_floating_point() for position in self.positions) else form
        self.form, self.rules = form, parts(self.mask)

    @property
    def key(self) -> Tensor:
        """``[b h m d]``, a grouped key repeated so that each query head has its own."""
        return _for_every_head(self.grouped_key, self.query.shape[1])

    @property
    def value(self) -> Tensor:
        """``[b h m e]``, likewise."""
        return _for_every_head(self.grouped_value, self.query.shape[1])

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """b, h, n and m."""
        batch, heads, queries, _ = self.query.shape
        return batch, heads, queries, self.grouped_key.shape[2]

    @property
    def needs_grad(self) -> bool:
        """Whether a gradient will be asked for; assumed so while a graph is traced."""
        if not torch.is_grad_enabled():
            return False
        if torch.compiler.is_compiling():
            return True
        if self.query.requires_grad or self.grouped_key.requires_grad or self.grouped_value.requires_grad:
            return True
        of_bias = self.bias is not None and self.bias.requires_grad
        return of_bias or _has_grad(self.kernel) or _has_grad(self.normalizer)

    @property
    def query_position(self) -> Tensor:
        """``[n]`` or ``[b n]``."""
        if self.positions is not None:
            return self.positions[0]
        _, _, queries, keys = self.sizes
        return torch.arange(keys - queries, keys, device=self.query.device)

    @property
    def key_position(self) -> Tensor:
        """``[m]`` or ``[b m]``."""
        if self.positions is not None:
            return self.positions[1]
        return torch.arange(self.sizes[3], device=self.query.device)

    def lag(self, rows: slice | None = None) -> Tensor:
        """Query position minus key position for some of the queries, ``[n m]`` or ``[b n m]``."""
        return self.query_position[..., _all_if_none(rows), None] - self.key_position[..., None, :]

    def lag_table(self) -> tuple[Tensor, int]:
        """The form's table of lags ``[h l]``, and the index of lag 0 in it."""
        assert self.form is not None and self.form.lag_table is not None
        _, _, queries, keys = self.sizes
        if self.positions is not None:
            queries = keys = int(self.lag().abs().max()) + 1
        return self.form.lag_table(queries, keys).to(self.query.device), queries - 1

    def lag_scores(self, rows: slice | None = None) -> Tensor:
        """The form's share of the score that depends on the lag, ``[h n m]`` or ``[b h n m]``.

        One query that was given a position has as few lags as keys: no table, whose length a device would
        have to be asked for.
        """
        of_lag, others = factors(self.kernel)
        single = self.positions is not None and self.sizes[2] == 1
        if single and of_lag and not any(kernel.of_lag for kernel in others):
            lag = self.lag(rows)
            query = self.query.new_zeros(lag.shape[0] if lag.ndim == 3 else 1, self.sizes[1], 1, 1)
            key = query.expand(-1, -1, self.sizes[3], -1)
            return torch.stack([kernel.log(query, key, lag) for kernel in of_lag]).sum(0)
        table, zero = self.lag_table()
        scores = table[:, self.lag(rows) + zero]
        return scores.transpose(0, 1) if scores.ndim == 4 else scores

    def allowed(self, rows: slice | None = None) -> Tensor | None:
        """Which keys some of the queries may see, broadcasting to ``[b h n m]``; None is all."""
        if self.mask is None:
            return None
        rows = _all_if_none(rows)
        b, h, i, j = (torch.arange(size, device=self.query.device) for size in self.sizes)
        b, h, i = b[:, None, None, None], h[:, None, None], i[rows, None]
        allowed = None
        for rule in self.rules:
            q, k = i, j
            if rule.reads == "rows":
                q = i + (self.sizes[3] - self.sizes[2])
            elif rule.reads == "positions":
                q, k = self.query_position[..., rows, None], self.key_position[..., None, :]
                if q.ndim == 3:
                    q, k = q[:, None], k[:, None]
            by_rule = rule.allows(b, h, q, k)
            allowed = by_rule if allowed is None else allowed & by_rule
        return allowed

    def bias_of(self, rows: slice | None) -> Tensor | None:
        """The bias of some of the queries."""
        if self.bias is None or rows is None or self.bias.shape[2] == 1:
            return self.bias
        return self.bias[:, :, rows]

    def upcast(self) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value, in float32 where they are in half precision."""
        if self.query.dtype in (torch.float16, torch.bfloat16):
            return self.query.float(), self.key.float(), self.value.float()
        return self.query, self.key, self.value

    def masked(self, scores: Tensor, rows: slice | None) -> Scores:
        """Scores of some of the queries with the bias added and −∞ where masked."""
        bias, allowed = self.bias_of(rows), self.allowed(rows)
        if bias is not None:
            scores = scores + bias.to(scores.dtype)
        return scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)

    def scores(self, query: Tensor, key: Tensor, rows: slice | None = None) -> Scores:
        """The score by definition, log κ and the bias, for some of the queries; −∞ where masked."""
        lag = self.lag(rows) if self.kernel.of_lag else None
        return self.masked(self.kernel.log(query[:, :, _all_if_none(rows)], key, lag), rows)

    def weights(self, scores: Scores, query: Tensor, key: Tensor, rows: slice | None) -> Weights:
        """The normalizer's weights of the scores of some of the queries."""
        if self.normalizer.of_vectors:
            return self.normalizer(scores, query[:, :, _all_if_none(rows)], key, rows)
        return self.normalizer(scores)


def make_problem(
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    kernel: Kernel,
    *,
    mask: Rule | None = None,
    bias: Tensor | None = None,
    normalizer: Normalizer = ROW_SUM,
    positions: Positions | None = None,
    degree: int = 0,
    ridge: float | Tensor | None = None,
    name: str = "smooth",
) -> Problem:
    """Check the arguments of ``smooth`` and its kin and make a problem of them.

    Under autocast query, key and value are taken in its type, as PyTorch's own attention takes them; the
    slots' numbers keep theirs.

    Raises:
        ValueError: in the caller's words, for ``name``, if anything does not fit.
    """
    if not isinstance(kernel, Kernel):
        raise ValueError(f"{name}: kernel must be a gkalib kernel such as Gaussian(1.0), not {kernel!r}")
    given = query, key, value = _cast(query, key, value)
    key = query if key is None else key
    value = key if value is None else value
    if not _fit(query, key, value):
        raise ValueError(f"{name}: {_misfit(dict(zip(_AXES, given, strict=True)))}")
    if normalizer is not ROW_SUM and not isinstance(normalizer, Normalizer):
        raise ValueError(
            f"{name}: normalizer must be a gkalib normalizer such as RowSum(), not {normalizer!r}"
        )
    if normalizer is not ROW_SUM and isinstance(normalizer, Dropout) and not normalizer.drops:
        normalizer = normalizer.normalizer
    if degree or ridge is not None or normalizer.of_vectors:
        normalizer = line_normalizer(name, degree, ridge, normalizer, kernel, query.shape[1])
    batch, heads, queries, _ = query.shape
    keys = key.shape[2]
    kernel_heads = kernel.heads()
    if kernel_heads is not None and kernel_heads not in (1, heads):
        raise ValueError(
            f"{name}: {owner_of_heads(kernel)} has parameters for {kernel_heads} heads, query has {heads}"
        )
    if positions is not None:
        positions = _positions(name, positions, batch, queries, keys)
    if mask is not None:
        mask = _mask(name, mask, positions, (batch, heads, queries, keys))
    if bias is not None:
        if kernel.signed:
            raise ValueError(
                f"{name}: {type(kernel).__name__} may be negative: no logarithm to add a bias to"
            )
        bias = _bias(name, bias, query, keys)
    one_tensor = query is key and key is value
    return Problem(query, key, value, kernel, mask, normalizer, positions, one_tensor, bias)


def wide_position(position: Tensor) -> Tensor:
    """In a type in which differences are right: 64-bit whole numbers, or at least float32."""
    if position.is_floating_point():
        return position.float() if position.dtype.itemsize == 2 else position
    return position.long()


def autocasts(device: torch.device) -> bool:
    """Whether autocast is on for tensors of a device."""
    if not torch._C._is_any_autocast_enabled():  # a tenth of the time of the next line
        return False
    return device.type != "meta" and torch.is_autocast_enabled(device.type)


def factors(kernel: Kernel) -> tuple[list[Kernel], list[Kernel]]:
    """The factors of a product that are kernels of the lag alone, and the others."""
    if isinstance(kernel, Product) and kernel.of_content:
        first, second = factors(kernel.first), factors(kernel.second)
        return first[0] + second[0], first[1] + second[1]
    return ([], [kernel]) if kernel.of_content else ([kernel], [])


def _cast(query: Tensor, key: Tensor | None, value: Tensor | None) -> tuple[Any, ...]:
    """Query, key and value in autocast's type where it is on; what was one tensor stays one."""
    if not isinstance(query, Tensor) or not autocasts(query.device):
        return query, key, value
    dtype = torch.get_autocast_dtype(query.device.type)

    def cast(given: Tensor | None) -> Tensor | None:
        if not isinstance(given, Tensor) or not given.is_floating_point() or given.dtype == torch.float64:
            return given
        return given.to(dtype)

    new_query = cast(query)
    new_key = new_query if key is query else cast(key)
    return new_query, new_key, new_query if value is query else new_key if value is key else cast(value)


def _has_grad(module: nn.Module) -> bool:
    """Whether a module's own tensor has a gradient; its ``parameters()`` take longer than a small problem."""
    for tensor in (*module._parameters.values(), *module._buffers.values()):
        if tensor is not None and tensor.requires_grad:
            return True
    return any(map(_has_grad, module.children()))


def _all_if_none(rows: slice | None) -> slice:
    """Every query where none is named (a slice as a default value would break a traced graph)."""
    return slice(None) if rows is None else rows


def _fit(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether the three fit together, asked quickly: a small problem takes less time than all its checks."""
    if not (isinstance(query, Tensor) and query.is_floating_point() and query.ndim == 4):
        return False
    b, h, n, d = query.shape
    if query is key and key is value:
        return h > 0 and n > 0 and d > 0
    if not (isinstance(key, Tensor) and isinstance(value, Tensor) and key.ndim == value.ndim == 4):
        return False
    if query.dtype != key.dtype or query.dtype != value.dtype:
        return False
    if query.device != key.device or query.device != value.device:
        return False
    key_b, key_h, m, key_d = key.shape
    value_b, value_h, value_m, _ = value.shape
    grouped = key_h > 0 and value_h > 0 and h % key_h == 0 and h % value_h == 0
    return grouped and b == key_b == value_b and d == key_d > 0 and m == value_m > 0 and n > 0


def _misfit(given: dict[str, Tensor | None]) -> str:
    """Why query, key and value, where they are given, do not fit together."""
    tensors = {label: tensor for label, tensor in given.items() if tensor is not None}
    for label, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            hint = f"; write kernel={tensor!r}" if isinstance(tensor, Kernel) else ""
            return f"{label} must be a tensor, not {tensor!r}{hint}"
    query = tensors["query"]
    key = tensors.get("key", query)
    value = tensors.get("value", key)
    shapes = [f"{label} {_AXES[label]} = {' '.join(map(str, t.shape))}" for label, t in tensors.items()]
    shown = f"({', '.join(shapes)})"
    for label, tensor in tensors.items():
        if tensor.ndim != 4:
            return f"{label} must have four axes {_AXES[label]}, not {tensor.ndim} {shown}"
        if not tensor.is_floating_point():
            return f"{label} must be floating point, not {tensor.dtype}"
        if tensor.dtype != query.dtype or tensor.device != query.device:
            other = f"query is {query.dtype} on {query.device}"
            return f"{label} is {tensor.dtype} on {tensor.device}, {other}"
        if tensor.shape[0] != query.shape[0]:
            return f"{label} has batch {tensor.shape[0]}, query has {query.shape[0]} {shown}"
        if tensor.shape[1] == 0 or query.shape[1] % tensor.shape[1]:
            heads = f"{tensor.shape[1]} heads, which do not divide the query's {query.shape[1]}"
            return f"{label} has {heads} {shown}"
    if key.shape[3] != query.shape[3]:
        return f"key has head dimension {key.shape[3]}, query has {query.shape[3]} {shown}"
    if value.shape[2] != key.shape[2]:
        return f"value has length {value.shape[2]}, key has {key.shape[2]} {shown}"
    return f"there must be at least one query, one key and one dimension {shown}"


_AXES = {"query": "b h n d", "key": "b h m d", "value": "b h m e"}


def _mask(name: str, mask: Rule, positions: Positions | None, sizes: tuple[int, int, int, int]) -> Mask:
    """What was given as a mask, as one, if it fits b, h, n and m."""
    try:
        mask = as_mask(mask)
        mask.check(*sizes)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    functions = [] if positions is None else [rule for rule in parts(mask) if isinstance(rule, MaskFunction)]
    if functions:
        raise ValueError(
            f"{name}: {functions[0]!r} counts rows, which positions and a cache of the last tokens do not; "
            "a subclass of Mask may read positions"
        )
    return mask


def _bias(name: str, bias: Tensor, query: Tensor, keys: int) -> Tensor:
    """The bias with four axes, if it broadcasts to the scores."""
    wanted = (*query.shape[:3], keys)
    if not isinstance(bias, Tensor) or not bias.is_floating_point():
        kind = bias.dtype if isinstance(bias, Tensor) else repr(bias)
        raise ValueError(f"{name}: bias must be a tensor of numbers to add to log κ, not {kind}")
    if bias.device != query.device:
        raise ValueError(f"{name}: bias is on {bias.device}, query on {query.device}")
    shape = (1,) * (4 - bias.ndim) + tuple(bias.shape)
    if len(shape) != 4 or any(have not in (1, want) for have, want in zip(shape, wanted, strict=True)):
        raise ValueError(
            f"{name}: bias {list(bias.shape)} does not broadcast to the scores' "
            f"(b h n m = {' '.join(map(str, wanted))})"
        )
    return bias.reshape(shape)


def _positions(name: str, positions: Positions, batch: int, queries: int, keys: int) -> Positions:
    """Both positions with the same axes."""
    if len(positions) != 2:
        raise ValueError(f"{name}: positions must be (query positions, key positions)")
    for label, position, length in zip(("query", "key"), positions, (queries, keys), strict=True):
        if not isinstance(position, Tensor) or position.is_complex() or position.dtype == torch.bool:
            kind = position.dtype if isinstance(position, Tensor) else repr(position)
            raise ValueError(f"{name}: {label} positions must be a tensor of numbers, not {kind}")
        if position.shape not in ((length,), (batch, length)):
            raise ValueError(
                f"{name}: {label} positions must have shape [{length}] or [{batch} {length}], "
                f"not {list(position.shape)}"
            )
    query_position, key_position = map(wide_position, positions)
    if query_position.ndim != key_position.ndim:
        return query_position.expand(batch, -1), key_position.expand(batch, -1)
    return query_position, key_position


def _for_every_head(tensor: Tensor, heads: int) -> Tensor:
    """Repeat grouped heads so that each query head has its own."""
    groups = tensor.shape[1]
    return tensor if groups == heads else tensor.repeat_interleave(heads // groups, dim=1)
