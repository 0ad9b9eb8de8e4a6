"""Python functions as operators of PyTorch, with launch plans and gradients, at little cost to the host.

A short problem takes less time on a card than its call on the host. ``torch.library.register_autograd`` would
register the same gradients, in Python that takes longer than all that the operators themselves do.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C import DispatchKey, DispatchKeySet
from torch._ops import OpOverload
from torch.library import Library, infer_schema

from gkalib.smoothing.fused.plans import Planned

LIBRARY = Library("gkalib", "FRAGMENT")
NO_SECOND = (
    "smooth: the fused operations have no second derivative. Use method='dense' where one is needed, such as "
    "for a gradient penalty"
)
BELOW = torch._C._after_autograd_keyset
"""What an operator may still have to pass where gradients are seen to."""
BITS = BELOW.raw_repr()
PLAIN = {DispatchKeySet(key).raw_repr() for key in (DispatchKey.CPU, DispatchKey.CUDA)}
"""Of that, what tensors in memory have left if no mode watches operators."""

_planned: dict[OpOverload, Planned] = {}


def operator(function: Callable, growing: Callable[[tuple], Sequence[int]] | None = None) -> OpOverload:
    """Register a function under its own name, for every device and with launch plans.

    Args:
        function: of tensors and numbers.
        growing: says of its arguments which may grow along axis 2 without a new plan.
    """
    name = function.__name__
    schema = infer_schema(function, mutates_args=())
    LIBRARY.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
    planned = Planned(function, growing)
    LIBRARY.impl(name, planned, "CompositeExplicitAutograd")
    registered = getattr(torch.ops.gkalib, name).default
    _planned[registered] = planned
    return registered


def differentiable(operator: OpOverload, gradients: Callable, keep: Callable) -> None:
    """Give an operator a gradient.

    Args:
        operator: without default arguments, of which a dispatcher passes some and others not.
        gradients: from ``ctx`` and the results' gradients to those of all arguments.
        keep: is given ``ctx``, the arguments and the results, and keeps what ``gradients`` needs.
    """
    planned = _planned[operator]

    def compute(keys: DispatchKeySet, arguments: Sequence) -> Any:
        if keys.raw_repr() & BITS in PLAIN:
            return planned(*arguments)
        with torch._C._AutoDispatchBelowAutograd():
            return operator.redispatch(keys & BELOW, *arguments)

    class Gradient(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *arguments):
            *arguments, keys = arguments
            results = compute(keys, arguments)
            keep(ctx, arguments, results)
            return results

        @staticmethod
        def backward(ctx, *grads):
            return *gradients(ctx, *grads), None

    # Function's own looks for functorch's transforms first, which leave no tensor plain.
    apply = super(torch.autograd.Function, Gradient).apply

    def call(keys: DispatchKeySet, *arguments: Any) -> Any:
        if torch.is_grad_enabled() and torch._C._any_requires_grad(*arguments):
            plain = keys.raw_repr() & BITS in PLAIN
            return apply(*arguments, keys) if plain else Gradient.apply(*arguments, keys)
        return compute(keys, arguments)

    LIBRARY.impl(operator._opname, call, "Autograd", with_keyset=True)


def once_only(operator: OpOverload) -> None:
    """Give a backward operator a derivative that says there is none."""

    def refuse(ctx, *grads):
        raise RuntimeError(NO_SECOND)

    differentiable(operator, refuse, lambda ctx, arguments, results: None)
