"""One smoothing problem, checked once: what every method is given."""

from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from gkalib.kernels import Form, Kernel
from gkalib.masks import Mask, Pairs, Place
from gkalib.normalizers import Normalizer, RowSum
from gkalib.shapes import Scores

Positions = tuple[Tensor, Tensor]
ROW_SUM = RowSum()  # one for all: to make a module costs more than a small problem


@dataclass(frozen=True, eq=False)
class Problem:
    """Queries, keys, values, and the slots that say how to smooth.

    Args:
        query: ``[b h n d]``.
        grouped_key, grouped_value: ``[b g m d]`` and ``[b g m e]``, where g divides h.
        kernel, mask, normalizer: the slots; no mask means that every query sees every key.
        query_position, key_position: ``[n]`` and ``[m]``, or with a batch axis in front.
        given_positions: whether the caller gave them; otherwise the last query sits on the last key.
        one_tensor: whether query, key and value are one and the same tensor.
    """

    query: Tensor
    grouped_key: Tensor
    grouped_value: Tensor
    kernel: Kernel
    mask: Mask | None
    normalizer: Normalizer
    query_position: Tensor
    key_position: Tensor
    given_positions: bool
    one_tensor: bool

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
        if torch.compiler.is_compiling():
            return torch.is_grad_enabled()
        if not torch.is_grad_enabled():
            return False
        slots = (self.kernel, self.normalizer)
        given = (tensor for slot in slots for tensor in chain(slot.parameters(), slot.buffers()))
        tensors = chain((self.query, self.grouped_key, self.grouped_value), given)
        return any(tensor.requires_grad for tensor in tensors)

    def form(self) -> Form | None:
        """The kernel's form, where the positions allow its table of lags to be read."""
        form = self.kernel.form(self.query.shape[-1])
        if form is not None and form.lag_table is not None and self.query_position.is_floating_point():
            return None
        return form

    def lag(self, rows: slice | None = None) -> Tensor:
        """Query position minus key position for some of the queries, ``[n m]`` or ``[b n m]``."""
        return self.query_position[..., _all_if_none(rows), None] - self.key_position[..., None, :]

    def lag_count(self) -> int:
        """How many lags 0, 1, … a table must hold."""
        if not self.given_positions:
            return max(self.sizes[2], self.sizes[3])
        return int(self.lag().abs().max()) + 1

    def allowed(self, rows: slice | None = None) -> Tensor | None:
        """Which keys some of the queries may see, broadcasting to ``[b h n m]``; None is all."""
        if self.mask is None:
            return None
        rows = _all_if_none(rows)
        batch, heads, queries, keys = (torch.arange(size, device=self.query.device) for size in self.sizes)
        query_position, key_position = self.query_position[..., rows, None], self.key_position[..., None, :]
        if query_position.ndim == 3:
            query_position, key_position = query_position[:, None], key_position[:, None]
        return self.mask.allows(
            Place(
                batch=batch[:, None, None, None],
                head=heads[:, None, None],
                query=queries[rows, None],
                key=keys,
                query_position=query_position,
                key_position=key_position,
                queries=self.sizes[2],
                keys=self.sizes[3],
            )
        )

    def upcast(self) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value, in float32 where they are in half precision."""
        if self.query.dtype in (torch.float16, torch.bfloat16):
            return self.query.float(), self.key.float(), self.value.float()
        return self.query, self.key, self.value


def pose(
    query: Tensor,
    key: Tensor,
    value: Tensor | None,
    kernel: Kernel,
    *,
    mask: Mask | Tensor | None,
    normalizer: Normalizer | None,
    positions: Positions | None,
    name: str,
) -> Problem:
    """Check the arguments of ``smooth`` and its kin and make a problem of them.

    Raises:
        ValueError: in the caller's words, for ``name``, if anything does not fit.
    """
    given_value = key if value is None else value
    _check_tensors(name, query, key, given_value, with_value=value is not None)
    if not isinstance(kernel, Kernel):
        raise ValueError(f"{name}: kernel must be a gkalib kernel such as Gaussian(1.0), not {kernel!r}")
    normalizer = ROW_SUM if normalizer is None else normalizer
    if not isinstance(normalizer, Normalizer):
        raise ValueError(
            f"{name}: normalizer must be a gkalib normalizer such as RowSum(), not {normalizer!r}"
        )
    batch, heads, queries, _ = query.shape
    keys = key.shape[2]
    if kernel.heads() not in (None, 1, heads):
        raise ValueError(
            f"{name}: {type(kernel).__name__} has parameters for {kernel.heads()} heads, query has {heads}"
        )
    if isinstance(mask, Tensor):
        mask = Pairs(mask)
    if mask is not None:
        if not isinstance(mask, Mask):
            raise ValueError(
                f"{name}: mask must be a gkalib mask such as Causal(), or a boolean tensor, not {mask!r}"
            )
        mask.check(batch, heads, queries, keys)
    query_position, key_position = _positions(name, query, keys, positions)
    one_tensor = query is key and key is given_value
    return Problem(
        query,
        key,
        given_value,
        kernel,
        mask,
        normalizer,
        query_position,
        key_position,
        positions is not None,
        one_tensor,
    )


def _all_if_none(rows: slice | None) -> slice:
    """Every query where none is named (a slice as a default value would break a traced graph)."""
    return slice(None) if rows is None else rows


def _check_tensors(name: str, query: Tensor, key: Tensor, value: Tensor, *, with_value: bool) -> None:
    named = {"query": (query, "b h n d"), "key": (key, "b h m d")} | (
        {"value": (value, "b h m e")} if with_value else {}
    )
    shapes = ", ".join(
        f"{label} {axes} = {' '.join(map(str, t.shape))}" for label, (t, axes) in named.items()
    )
    for label, (tensor, axes) in named.items():
        if tensor.ndim != 4:
            raise ValueError(f"{name}: {label} must have four axes {axes}, not {tensor.ndim} ({shapes})")
        if not tensor.is_floating_point():
            raise ValueError(f"{name}: {label} must be floating point, not {tensor.dtype}")
        if tensor.dtype != query.dtype or tensor.device != query.device:
            raise ValueError(
                f"{name}: {label} is {tensor.dtype} on {tensor.device}, "
                f"query is {query.dtype} on {query.device}"
            )
        if tensor.shape[0] != query.shape[0]:
            raise ValueError(
                f"{name}: {label} has batch {tensor.shape[0]}, query has {query.shape[0]} ({shapes})"
            )
        if query.shape[1] % max(tensor.shape[1], 1) or tensor.shape[1] == 0:
            raise ValueError(
                f"{name}: {label} has {tensor.shape[1]} heads, which do not divide the query's "
                f"{query.shape[1]} ({shapes})"
            )
    if key.shape[3] != query.shape[3]:
        raise ValueError(
            f"{name}: key has head dimension {key.shape[3]}, query has {query.shape[3]} ({shapes})"
        )
    if value.shape[2] != key.shape[2]:
        raise ValueError(f"{name}: value has length {value.shape[2]}, key has {key.shape[2]} ({shapes})")
    if 0 in (query.shape[2], query.shape[3], key.shape[2]):
        raise ValueError(f"{name}: there must be at least one query, one key and one dimension ({shapes})")


def _positions(name: str, query: Tensor, keys: int, positions: Positions | None) -> Positions:
    batch, _, queries, _ = query.shape
    if positions is None:
        key_position = torch.arange(keys, device=query.device)
        return torch.arange(keys - queries, keys, device=query.device), key_position
    if len(positions) != 2:
        raise ValueError(f"{name}: positions must be (query positions, key positions)")
    for label, position, length in zip(("query", "key"), positions, (queries, keys), strict=True):
        if position.shape not in ((length,), (batch, length)):
            raise ValueError(
                f"{name}: {label} positions must have shape [{length}] or [{batch} {length}], "
                f"not {list(position.shape)}"
            )
    query_position, key_position = positions
    if query_position.ndim != key_position.ndim:
        return query_position.expand(batch, -1), key_position.expand(batch, -1)
    return query_position, key_position


def _for_every_head(tensor: Tensor, heads: int) -> Tensor:
    """Repeat grouped heads so that each query head has its own."""
    groups = tensor.shape[1]
    return tensor if groups == heads else tensor.repeat_interleave(heads // groups, dim=1)


def scores(problem: Problem, query: Tensor, key: Tensor, rows: slice | None = None) -> Scores:
    """log κ by definition for some of the queries, −∞ where masked."""
    result = problem.kernel.log(query[:, :, _all_if_none(rows)], key, problem.lag(rows))
    allowed = problem.allowed(rows)
    return result if allowed is None else result.masked_fill(~allowed, -torch.inf)
