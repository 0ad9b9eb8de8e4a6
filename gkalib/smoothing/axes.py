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
    **line: Any,
) -> tuple[Problem, Back]:
    """The problem that arrays of one to four axes pose, and what gives its output their axes and kind.

    Args:
        name: of the function called, for errors.
        query, key: ``[n]``, ``[n d]``, ``[h n d]`` or ``[b h n d]``, both alike.
        value: the same, or ``[m]`` or ``[m e]``, which serves every head and sequence.
        kernel, mask, bias, normalizer, positions: as for ``smooth``; arrays where the query is one.
        line: ``degree`` and ``ridge``, likewise.

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
            **line,
        )
        return problem, _same
    labels = ("query", "key", "value")
    given = {label: each for label, each in zip(labels, (query, key, value), strict=True) if each is not None}
    _check(name, given)
    tensors = _numbers(name, given)
    array = isinstance(query, np.ndarray)
    slots = {"mask": mask, "bias": bias, "positions": positions}
    if array:
        slots = {slot: _as_tensor(name, slot, each) for slot, each in slots.items()}
        line = {label: _as_tensor(name, label, each) for label, each in line.items()}
    batch = query.shape[0] if query.ndim == 4 else 1
    four = {label: _with_four(x, batch) for label, x in tensors.items()}
    for label, other in (("key", "query"), ("value", "query"), ("value", "key")):
        if label in given and given[label] is given.get(other):  # one tensor stays one
            four[label] = four[other]
    q, k, v = four["query"], four.get("key"), four.get("value")
    problem = make_problem(q, k, v, kernel, **slots, normalizer=normalizer, name=name, **line)
    *_, last = given.values()  # the value, or what serves as one
    column, axes = last.ndim == 1, query.ndim

    def back(out: Tensor, of_values: bool = True) -> Any:
        out = out[..., 0] if of_values and column else out
        out = out[(0,) * min(4 - axes, 2)]
        if not array:
            return out
        return out.detach().to(torch.float32 if out.dtype == torch.bfloat16 else out.dtype).numpy()

    return problem, back


def _with_four(x: Tensor, batch: int) -> Tensor:
    """With a width, heads and a batch, where these axes are missing."""
    x = x[:, None] if x.ndim == 1 else x
    return x[(None,) * (4 - x.ndim)].expand(batch, -1, -1, -1) if x.ndim < 4 else x


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
    if not 1 <= query.ndim <= 4:
        raise ValueError(f"{name}: query must be [n], [n d], [h n d] or [b h n d], not of {query.ndim} axes")
    for label, each in given.items():
        if each.ndim != query.ndim and not (label == "value" and each.ndim in (1, 2)):
            shared = ", or be [m] or [m e]" if label == "value" else ""
            shapes = ", ".join(f"{one} [{' '.join(map(str, x.shape))}]" for one, x in given.items())
            raise ValueError(f"{name}: {label} must have as many axes as query{shared} ({shapes})")


def _numbers(name: str, given: dict[str, Any]) -> dict[str, Tensor]:
    """The inputs as tensors of floating point.

    Whole numbers take the type of the others, or the default one: PyTorch's of tensors, NumPy's of arrays.
    """
    tensors = {label: _as_tensor(name, label, each) for label, each in given.items()}
    default = torch.float64 if isinstance(given["query"], np.ndarray) else torch.get_default_dtype()
    dtype = next((x.dtype for x in tensors.values() if x.is_floating_point()), default)
    for label, x in tensors.items():
        if x.dtype == torch.bool or x.is_complex():
            raise ValueError(f"{name}: {label} must be real numbers, not {x.dtype}")
        tensors[label] = x if x.is_floating_point() else x.to(dtype)
    return tensors


def _as_tensor(name: str, label: str, given: Any) -> Any:
    """A NumPy array, or each of a tuple of them, as a tensor; anything else as it is."""
    if isinstance(given, tuple):
        return tuple(_as_tensor(name, label, each) for each in given)
    if not isinstance(given, np.ndarray):
        return given
    if isinstance(given, np.ma.MaskedArray):
        raise ValueError(f"{name}: {label} is a masked array; what is hidden is said by mask=")
    try:
        native = given.astype(given.dtype.newbyteorder("="))
        return torch.tensor(native, device="cpu")  # its own, whatever the strides
    except TypeError:
        raise ValueError(f"{name}: {label} must be real numbers, not an array of {given.dtype}") from None
