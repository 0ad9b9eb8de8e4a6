"""How a fused program is started: counted, in Triton's interpreter, or collected without running it."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from gkalib.smoothing.fused.configs import Config
from gkalib.smoothing.fused.scores import ALL, BAND, GIVEN
from gkalib.smoothing.spans import Spans

LAUNCHES: Counter[str] = Counter()
"""How often each program was started in this process, by its name; tests read it."""

_collected: list["Launch"] | None = None
_thread = threading.local()


@dataclass(frozen=True)
class Launch:
    """One start of a program: what an ahead-of-time compilation needs to know of it."""

    program: Any
    grid: int
    config: Config
    arguments: dict[str, Any]

    @property
    def name(self) -> str:
        return name_of(self.program)


def name_of(program: Any) -> str:
    """The name of a Triton function, interpreted or not."""
    return program.fn.__name__


def interpreting() -> bool:
    """Whether Triton's interpreter is on, so that programs run on CPU tensors."""
    return bool(triton.knobs.runtime.interpret)


def launch(program: Any, grid: int, config: Config, **arguments: Any) -> None:
    """Start ``grid`` programs; the block sizes go in as BLOCK_ROWS, BLOCK_COLUMNS and STAGES where named."""
    sizes = {"BLOCK_ROWS": config.rows, "BLOCK_COLUMNS": config.columns, "STAGES": config.stages}
    arguments |= {name: size for name, size in sizes.items() if name in program.arg_names}
    started = Launch(program, grid, config, arguments)
    if _collected is not None:
        _collected.append(started)
        return
    LAUNCHES[started.name] += 1
    # In a context of its own, so that whoever calls keeps the allocator that they gave Triton.
    kernel = copy_context().run(_start, program, grid, config, arguments)
    if (recorder := getattr(_thread, "recorder", None)) is not None:
        recorder.started(started, kernel)


def _start(program: Any, grid: int, config: Config, arguments: dict[str, Any]) -> Any:
    """Start a program on the device of its tensors, which need not be the current one.

    Returns:
        What it was compiled to, None in the interpreter.
    """
    device = next(each for each in arguments.values() if isinstance(each, Tensor)).device
    # The memory that descriptors lie in; each thread has to say where it comes from.
    triton.set_allocator(lambda size, *_: torch.empty(size, dtype=torch.int8, device=device))
    # A program may try what overflows and then do otherwise: the interpreter is as silent about it as a card.
    with current(device), np.errstate(over="ignore", invalid="ignore"):
        return program[(grid,)](**arguments, num_warps=config.warps, num_stages=config.stages)


def current(device: torch.device) -> AbstractContextManager:
    """Within it this device is where CUDA programs start."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


@contextmanager
def recorded_by(recorder: Any) -> Iterator[None]:
    """Within it a recorder is told of each program that this thread starts."""
    before, _thread.recorder = getattr(_thread, "recorder", None), recorder
    try:
        yield
    finally:
        _thread.recorder = before


def collecting() -> bool:
    """Whether programs are listed instead of run."""
    return _collected is not None


@contextmanager
def collected() -> Iterator[list[Launch]]:
    """Within it programs are listed instead of run; their outputs hold nothing."""
    global _collected
    _collected = []
    try:
        yield _collected
    finally:
        _collected = None


def accumulator(tensor: Tensor) -> Any:
    """The Triton type in which sums over this tensor's type are kept."""
    return tl.float64 if tensor.dtype == torch.float64 else tl.float32


def statistics_type(tensor: Tensor) -> torch.dtype:
    """The same as a torch type: of row sums, scales and tables."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def precision(tensor: Tensor) -> str:
    """How products of this type are formed: float32 as three tf32 products, never as one."""
    return "tf32x3" if tensor.dtype == torch.float32 else "ieee"


def token_major(tensor: Tensor, width: int | None = None) -> Tensor:
    """An empty ``[b h n width]`` whose memory runs b, n, h, width, as the next projection reads it."""
    batch, heads, length, own = tensor.shape
    return tensor.new_empty(batch, length, heads, own if width is None else width).transpose(1, 2)


def strides(name: str, tensor: Tensor) -> dict[str, tuple[int, ...]]:
    """Argument NAME_strides: of the batch, the head and the row."""
    return {f"{name}_strides": tensor.stride()[:3]}


def step_of(numbers: Tensor) -> int:
    """How far the numbers of two heads lie apart: 0 where all heads share one."""
    return numbers.stride(0) if len(numbers) > 1 else 0


def number_arguments(scale: Tensor | None, norm: Tensor | None, sigma: Tensor | None) -> dict[str, Any]:
    """What a program is told of s and ν: both ``[h]``, or σ in the place of both, ``[h]`` or ``[1]``."""
    given = sigma is not None
    first = sigma if given else scale
    return {
        "scale": first,
        "norm": first if given else norm,
        "number_step": step_of(first),
        "OF_SIGMA": given,
    }


def dense_rows(tensor: Tensor) -> Tensor:
    """The tensor itself where each row's numbers lie side by side, else a copy that has them so."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def block_width(width: int) -> int:
    """The power of two, 16 or more, that holds a head's width."""
    return max(16, triton.next_power_of_2(width))


def mask_arguments(spans: Spans, queries: int, keys: int) -> dict[str, Any]:
    """What a program is told of its mask; with rows that are keys, it takes the inverse of spans."""
    kind = ALL if spans.all(queries, keys) else BAND if spans.first is None else GIVEN
    stride = 0 if spans.first is None or len(spans.first) == 1 else spans.first.stride(0)
    return {
        "first": spans.first,
        "last": spans.last,
        "span_stride": stride,
        "left": spans.left,
        "right": spans.right,
        "KIND": kind.value,
    }
