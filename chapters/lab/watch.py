"""What each program instance loads, stores and multiplies, seen by Triton's interpreter."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from chapters.lab.page import relative
from gkalib.smoothing.fused.launch import interpreting
from gkalib.viz.style import COLUMN

MOST = 6
"""Program instances that a picture shows."""
APART = 4096
"""Elements that ``attempt`` leaves free before and after each tensor."""


@dataclass(frozen=True)
class Access:
    """One load or store of one program instance.

    Args:
        program: its number in the grid's first dimension.
        kind: ``load`` or ``store``.
        tensor: the tensor's name.
        elements: which of its elements in memory, counted from its first; those that a mask leaves.
    """

    program: int
    kind: str
    tensor: str
    elements: np.ndarray


@contextmanager
def watched(strays: list[Access] | None = None, /, **tensors: Tensor) -> Iterator[list[Access]]:
    """A list that gets every access to these tensors within, in order.

    Args:
        strays: gets what lies outside all of them, by the tensor that begins nearest. It is then not done: a
            load gives NaN, as it does without ``other`` where its mask is false. With None the interpreter
            does it, and ends the process where the memory is not its own.
        tensors: by name.

    Raises:
        ValueError: if Triton's interpreter is off.
    """
    if not interpreting():
        raise ValueError("watched: set TRITON_INTERPRET=1 before Triton is imported")
    from triton.runtime.interpreter import TensorHandle, interpreter_builder

    seen: list[Access] = []

    def noted(kind: str, pointers: Any, mask: Any) -> Any:
        """The mask of what is to be done."""
        program, at = int(interpreter_builder.grid_idx[0]), pointers.data.astype(np.int64)
        known, asked = np.zeros_like(mask.data), mask.data.astype(bool)
        for name, tensor in tensors.items():
            elements = (at - tensor.data_ptr()) // tensor.element_size()
            held = 1 + sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
            inside = asked & (elements >= 0) & (elements < held)
            known |= inside
            if inside.any():
                seen.append(Access(program, kind, name, elements[inside]))
        if strays is None or known[asked].all():
            return mask
        outside = at[asked & ~known]
        nearest = min(tensors, key=lambda name: abs(outside[0] - tensors[name].data_ptr()))
        size = tensors[nearest].element_size()
        strays.append(Access(program, kind, nearest, (outside - tensors[nearest].data_ptr()) // size))
        return TensorHandle(asked & known, mask.dtype)

    load, store = interpreter_builder.create_masked_load, interpreter_builder.create_masked_store

    def noted_load(pointers: Any, mask: Any, other: Any, *rest: Any) -> Any:
        done = noted("load", pointers, mask)
        found = load(pointers, done, other, *rest)
        if strays is not None and found.data.dtype.kind == "f":
            found.data[~done.data & (True if other is None else mask.data)] = np.nan
        return found

    def noted_store(pointers: Any, values: Any, mask: Any, *rest: Any) -> Any:
        return store(pointers, values, noted("store", pointers, mask), *rest)

    patched = {"create_masked_load": noted_load, "create_masked_store": noted_store}
    vars(interpreter_builder).update(patched)
    try:
        yield seen
    finally:
        for name in patched:
            del vars(interpreter_builder)[name]


@contextmanager
def products() -> Iterator[list[int]]:
    """A list that gets, for every matrix product of two blocks within, the number of its program instance.

    Raises:
        ValueError: if Triton's interpreter is off.
    """
    if not interpreting():
        raise ValueError("products: set TRITON_INTERPRET=1 before Triton is imported")
    from triton.runtime.interpreter import interpreter_builder

    found: list[int] = []
    dot = interpreter_builder.create_dot

    def noted_dot(*given: Any) -> Any:
        found.append(int(interpreter_builder.grid_idx[0]))
        return dot(*given)

    vars(interpreter_builder)["create_dot"] = noted_dot
    try:
        yield found
    finally:
        del vars(interpreter_builder)["create_dot"]


def times(accesses: list[Access], name: str, tensor: Tensor, program: int | None = None) -> np.ndarray:
    """How often each element of a contiguous tensor is accessed, by one program instance or by all.

    Returns:
        Of the tensor's shape.
    """
    counted = np.zeros(tensor.numel(), dtype=int)
    for one in accesses:
        if one.tensor == name and program in (None, one.program):
            np.add.at(counted, one.elements, 1)
    return counted.reshape(tensor.shape)


def picture(accesses: list[Access], **tensors: Tensor) -> Figure:
    """A row for each program instance, a column for each tensor: white elements are never touched.

    A vector is drawn as a column, a tensor of more than two dimensions with all but the first side by side.
    Darker means more often. Program instances past the sixth are left out.

    Raises:
        ValueError: if no tensor is named.
    """
    if not tensors:
        raise ValueError("picture: name the tensors to be drawn")
    programs = sorted({one.program for one in accesses})[:MOST] or [0]
    figure, axes = plt.subplots(
        len(programs), len(tensors), squeeze=False, figsize=(COLUMN, 0.4 + 1.1 * len(programs))
    )
    most = max((times(accesses, *each).max() for each in tensors.items()), default=1)
    for line, program in zip(axes, programs, strict=True):
        for panel, (name, tensor) in zip(line, tensors.items(), strict=True):
            counted = times(accesses, name, tensor, program)
            drawn = counted.reshape(len(counted), -1)
            panel.imshow(drawn, cmap="Blues", vmin=0, vmax=max(2, most), aspect="auto")
            panel.set(xticks=[], yticks=[0, len(drawn) - 1])
            for side in ("top", "right"):
                panel.spines[side].set_visible(True)
        line[0].set_ylabel(f"instance {program}", fontsize=8)
    for panel, name in zip(axes[0], tensors, strict=True):
        panel.set_title(name, fontsize=9)
    return figure


def attempt(
    kernel: Any,
    grid: int,
    *arguments: Tensor | int | float | None,
    expected: Mapping[str, Tensor],
    then: Callable[[], object] | None = None,
    **constants: Any,
) -> Figure:
    """Run a kernel in the interpreter, say whether it is right, and draw what its program instances touched.

    The kernel gets copies with free memory around them. What it loads there or under a false mask without
    ``other`` is NaN, it stores nothing there, and either is said.

    Args:
        kernel: a function under ``triton.jit``.
        grid: the number of program instances.
        arguments: as in a launch; tensors are contiguous and in float64. Those that are expected are filled
            with NaN.
        expected: what some of them should hold afterwards, by name.
        then: called if everything is right; what it returns is printed.
        constants: the kernel's ``tl.constexpr`` arguments.

    Returns:
        ``picture`` of the expected tensors and of all others but vectors.

    Raises:
        ValueError: if an expected name is none of its tensors.
    """
    given = [_apart(one) if isinstance(one, Tensor) else one for one in arguments]
    named = dict(zip(kernel.arg_names, given, strict=False))
    tensors = {name: one for name, one in named.items() if isinstance(one, Tensor)}
    if unknown := set(expected) - set(tensors):
        raise ValueError(f"attempt: {', '.join(sorted(unknown))} is no tensor among {', '.join(tensors)}")
    for name in expected:
        tensors[name].fill_(torch.nan)
    strays: list[Access] = []
    with watched(strays, **tensors) as accesses, np.errstate(all="ignore"):
        kernel[(grid,)](*given, **constants)
    for one in strays:
        print(f"instance {one.program} {one.kind}s {one.elements.size} elements outside {one.tensor}")
    faulty = bool(strays)
    for name, right in expected.items():
        wrong = ~torch.isclose(tensors[name], right, rtol=1e-9, atol=1e-12)
        missing, faulty = tensors[name].isnan().sum(), faulty or bool(wrong.any())
        if wrong.any():
            print(f"{name}: {wrong.sum()} of {right.numel()} elements are wrong, {missing} of them NaN")
        else:
            print(f"{name}: right, relative error {relative(tensors[name], right):.0e}")
    if then is not None and not faulty:
        print(then())
    drawn = {name: one for name, one in tensors.items() if one.ndim > 1 or name in expected}
    return picture(accesses, **drawn)


def _apart(tensor: Tensor) -> Tensor:
    """A copy with free memory on both sides, so that no element outside it belongs to another tensor."""
    around = tensor.new_empty(tensor.numel() + 2 * APART)
    return around[APART:-APART].view(tensor.shape).copy_(tensor)
