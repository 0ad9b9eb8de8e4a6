"""What a caller may give: fewer axes than four, NumPy arrays, whole numbers; and the way back."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from gkalib.kernels import Kernel
from gkalib.normalizers import Normalizer
from gkalib.smoothing.problem import Problem, make_problem

Array = TypeVar("Array", Tensor, np.ndarray)
Back = Callable[..., Any]


def problem_of(
    name: str,
    query: Any,
    key: Any,
    value: Any,
    kernel: Kernel,
    mask: Any,
    bias: Any,
    normalizer: Normalizer,
    positions: Any,
) -> tuple[Problem, Back]:
    """The problem that arrays of one to four axes pose, and what gives its output their axes and kind.

    Args:
        name: of the function called, for errors.
        query, key: ``[n]``, ``[n d]``, ``[h n d]`` or ``[b h n d]``, both alike.
        value: the same, or ``[m]`` or ``[m e]``, which serves every head and sequence.
        kernel, mask, bias, normalizer, positions: as for ``smooth``; arrays where the query is one.

    Raises:
        ValueError: as ``make_problem``, or if the three are of different kinds or axes.
    """
    if _has_four(query) and (key is None or _has_four(key)) and (value is None or _has_four(value)):
        problem = make_problem(
            query,
            key,
            value,
            kernel,
            mask=mask,
            bias=bias,
            normalizer=normalizer,
            positions=positions,
            name=name,
        )
        return problem, _same
    three = {"query": query, "key": key, "value": value}
    given = {label: each for label, each in three.items() if each is not None}
    _check(name, given)
    made = _numbers(name, given)
    slots = {"mask": mask, "bias": bias, "positions": positions}
    if isinstance(query, np.ndarray):
        slots = {slot: _as_tensor(name, slot, each) for slot, each in slots.items()}
    *_, last = given.values()  # the value, or what serves as one
    batch = query.shape[0] if query.ndim == 4 else 1

    def with_four(x: Tensor) -> Tensor:
        x = x[:, None] if x.ndim == 1 else x
        if x.ndim < 4:
            x = x[(None,) * (4 - x.ndim)].expand(batch, -1, -1, -1)
        return x

    four = {id(each): with_four(made[id(each)]) for each in given.values()}  # one tensor stays one
    q, k, v = four[id(query)], four.get(id(key)), four.get(id(value))
    problem = make_problem(q, k, v, kernel, **slots, normalizer=normalizer, name=name)

    def back(out: Tensor, of_values: bool = True) -> Any:
        out = out[..., 0] if of_values and last.ndim == 1 else out
        out = out[(0,) * min(4 - query.ndim, 2)]
        return out.detach().numpy() if isinstance(query, np.ndarray) else out

    return problem, back


def _has_four(given: Any) -> bool:
    """Whether it is what ``make_problem`` takes."""
    return isinstance(given, Tensor) and given.ndim == 4 and given.is_floating_point()


def _same(out: Tensor, of_values: bool = True) -> Tensor:
    return out


def _check(name: str, given: dict[str, Any]) -> None:
    """Raise unless the inputs are of one kind and have axes that go together."""
    query = given["query"]
    for label, each in given.items():
        if not isinstance(each, Tensor | np.ndarray):
            hint = f"; write kernel={each!r}" if isinstance(each, Kernel) else ""
            raise ValueError(f"{name}: {label} must be a tensor or a NumPy array, not {each!r}{hint}")
        if isinstance(each, np.ndarray) != isinstance(query, np.ndarray):
            kinds = ("a tensor", "a NumPy array")
            one, other = kinds[isinstance(query, np.ndarray)], kinds[isinstance(each, np.ndarray)]
            raise ValueError(f"{name}: {label} is {other}, query {one}: give both as one kind")
    shapes = ", ".join(f"{label} [{' '.join(map(str, each.shape))}]" for label, each in given.items())
    if not 1 <= query.ndim <= 4:
        raise ValueError(f"{name}: query must be [n], [n d], [h n d] or [b h n d], not of {query.ndim} axes")
    for label, each in given.items():
        if each.ndim != query.ndim and not (label == "value" and each.ndim in (1, 2)):
            shared = ", or be [m] or [m e]" if label == "value" else ""
            raise ValueError(f"{name}: {label} must have as many axes as query{shared} ({shapes})")


def _numbers(name: str, given: dict[str, Any]) -> dict[int, Tensor]:
    """The inputs as tensors of floating point, by the ``id`` of what was given.

    Whole numbers take the type of the others, or the default one: PyTorch's of tensors, NumPy's of arrays.
    """
    tensors = {id(each): _as_tensor(name, label, each) for label, each in given.items()}
    default = torch.float64 if isinstance(given["query"], np.ndarray) else torch.get_default_dtype()
    dtype = next((x.dtype for x in tensors.values() if x.is_floating_point()), default)
    for label, each in given.items():
        x = tensors[id(each)]
        if x.dtype == torch.bool or x.is_complex():
            raise ValueError(f"{name}: {label} must be real numbers, not {x.dtype}")
        tensors[id(each)] = x if x.is_floating_point() else x.to(dtype)
    return tensors


def _as_tensor(name: str, label: str, given: Any) -> Any:
    """A NumPy array, or each of a tuple of them, as a tensor; anything else as it is."""
    if isinstance(given, tuple):
        return tuple(_as_tensor(name, label, each) for each in given)
    if not isinstance(given, np.ndarray):
        return given
    try:
        return torch.tensor(given.astype(given.dtype.newbyteorder("=")))  # its own, whatever the strides
    except TypeError:
        raise ValueError(f"{name}: {label} must be real numbers, not an array of {given.dtype}") from None
