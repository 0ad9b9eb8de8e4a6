"""The shapes that tensors have everywhere in the library, as jaxtyping aliases.

Axes: ``b`` batch, ``h`` query head, ``g`` key head (a divisor of ``h``), ``n`` query, ``m`` key, ``d`` head
dimension, ``e`` value dimension. A lag may differ within the batch and then has its axis in front.
"""

import inspect
import math
from collections.abc import Callable, Iterable
from typing import Any, SupportsFloat, SupportsIndex, TypeVar

import torch
from jaxtyping import Float, Real
from torch import Tensor, nn

Query = Float[Tensor, "b h n d"]
Key = Float[Tensor, "b g m d"]
Value = Float[Tensor, "b g m e"]
Scores = Float[Tensor, "b h n m"]
Weights = Float[Tensor, "b h n m"]
Output = Float[Tensor, "b h n e"]
Lag = Real[Tensor, "*lags n m"]

F = TypeVar("F", bound=Callable[..., Any])


def one_number(owner: str, name: str, number: Any) -> float:
    """It as a float; ``ValueError``, for ``owner``, unless it is a number, and one alone."""
    if not isinstance(number, SupportsFloat) or isinstance(number, bool) or getattr(number, "ndim", 0):
        raise ValueError(f"{owner}: {name} must be a number, not {number!r}")
    return float(number)


def check_not_negative(owner: str, name: str, number: Any) -> None:
    """Raise ``ValueError``, for ``owner``, unless it is one number, finite and not below zero."""
    if not (math.isfinite(one_number(owner, name, number)) and number >= 0):
        raise ValueError(f"{owner}: {name} must be zero or positive, not {number}")


def check_counts(owner: str, *, least: int = 1, **counts: Any) -> None:
    """Raise ``ValueError``, for ``owner``, unless each is a whole number and at least ``least``."""
    for name, number in counts.items():
        if isinstance(number, bool) or not isinstance(number, SupportsIndex):
            raise ValueError(f"{owner}: {name} must be a whole number, not {number!r}")
        if int(number) < least:
            raise ValueError(f"{owner}: {name} must be at least {least}, not {number}")


def check_counts_or_none(owner: str, **counts: Any) -> None:
    """As ``check_counts``, where None stands for no number."""
    check_counts(owner, **{name: number for name, number in counts.items() if number is not None})


def check_known(owner: str, what: str, given: Any, known: Iterable[str]) -> None:
    """Raise ``ValueError``, for ``owner``, unless what was given by its name is known."""
    if given not in known:
        raise ValueError(f"{owner}: no {what} {given!r}. Known: {', '.join(known)}")


def takes(function: Callable, count: int) -> bool:
    """Whether a function can be called with so many arguments; one that does not say its own may be."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def readable(tensor: Tensor) -> bool:
    """Whether its numbers can be read without breaking a graph or a ``vmap``, and without waiting for a
    device.
    """
    if not tensor.is_cpu or type(tensor) not in (Tensor, nn.Parameter):
        return False
    traced = torch.compiler.is_compiling() or torch._C._is_tracing()
    return not (traced or torch._C._are_functorch_transforms_active())


def constant(function: F) -> F:
    """Let a traced graph call it once and keep what it gives: ``torch.compiler.assume_constant_result``.

    PyTorch's own decorator imports all of its compiler, and with it Triton, before a chapter can say that
    Triton is to interpret.
    """
    setattr(function, "_dynamo_marked_constant", True)  # noqa: B010  no attribute of a function's type
    return function
