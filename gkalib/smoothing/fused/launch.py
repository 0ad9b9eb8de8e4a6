"""How a fused program is started: counted, in Triton's interpreter, or collected without running it."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
from torch import Tensor
from triton.runtime.errors import OutOfResources

from gkalib.smoothing.fused.configs import Config
from gkalib.smoothing.fused.scores import Heads, Mask, Numbers
from gkalib.smoothing.spans import Spans

LAUNCHES: Counter[str] = Counter()
"""How often each program was started in this process, by its name; tests read it."""

AS_IT_IS = nullcontext()
_collected: list["Launch"] | None = None
_thread = threading.local()


class Size(int):
    """A size of a tensor, as an argument for which a launch plan asks the tensor that it is given."""

    def __new__(cls, tensor: Tensor, axis: int) -> "Size":
        size = super().__new__(cls, tensor.shape[axis])
        size.tensor, size.axis = tensor, axis
        return size


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


def check_interpreter() -> None:
    """Triton 3.6 takes a number out of an array of one, which numpy 2.4 refuses; Triton 3.7 does not.

    Raises:
        ValueError: if the interpreter is on and cannot work with this numpy.
    """
    old = tuple(map(int, triton.__version__.split(".")[:2])) < (3, 7)
    if interpreting() and old and tuple(map(int, np.__version__.split(".")[:2])) >= (2, 4):
        raise ValueError(
            f"fused: the interpreter of Triton {triton.__version__} needs a numpy before 2.4, not "
            f"{np.__version__}: pip install 'gkalib[interpreter]'"
        )


check_interpreter()


def launch(program: Any, grid: int, config: Config, **arguments: Any) -> None:
    """Start ``grid`` programs; the block sizes go in as BLOCK_ROWS, BLOCK_COLUMNS and STAGES where named."""
    sizes = {"BLOCK_ROWS": config.rows, "BLOCK_COLUMNS": config.columns, "STAGES": config.stages}
    arguments |= {name: size for name, size in sizes.items() if name in program.arg_names}
    started = Launch(program, grid, config, arguments)
    if _collected is not None:
        _collected.append(started)
        return
    LAUNCHES[started.name] += 1
    kernel = _start(program, grid, config, arguments)
    if (recorder := getattr(_thread, "recorder", None)) is not None:
        recorder.started(started, kernel)


def _start(program: Any, grid: int, config: Config, arguments: dict[str, Any]) -> Any:
    """Start a program on the device of its tensors, which need not be the current one.

    Returns:
        What it was compiled to, None in the interpreter.

    Raises:
        ValueError: if its blocks do not fit the card.
    """
    device = next(tensors_of(arguments.values())).device
    # A program may try what overflows and then do otherwise: the interpreter is as silent about it as a card.
    with current(device), np.errstate(over="ignore", invalid="ignore"):
        try:
            return program[(grid,)](**arguments, num_warps=config.warps, num_stages=config.stages)
        except OutOfResources as error:
            raise ValueError(
                f"smooth: fused: blocks of {config.rows} rows and {config.columns} columns are too large for "
                f"this card ({name_of(program)}: {error}); `gkalib ready` finds what fits it"
            ) from error


def tensors_of(arguments: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors among a program's arguments, those in groups too."""
    for argument in arguments:
        if isinstance(argument, Tensor):
            yield argument
        elif isinstance(argument, tuple):
            yield from tensors_of(argument)


def current(device: torch.device) -> AbstractContextManager:
    """Within it this device is where CUDA programs start."""
    if device.type != "cuda" or device.index == torch.cuda.current_device():
        return AS_IT_IS
    return torch.cuda.device(device)


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


def statistics_type(tensor: Tensor) -> torch.dtype:
    """The type of row sums, scales and tables, in which sums over numbers of this type are kept."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def empty(like: Tensor, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
    """Memory on a tensor's device, of its type unless told. The programs' Python asks for it here only."""
    made = like.new_empty(shape, dtype=dtype)
    if (recorder := getattr(_thread, "recorder", None)) is not None:
        recorder.made(made)
    return made


def derived(function: Callable[..., Tensor], *given: Tensor) -> Tensor:
    """What PyTorch makes of tensors, each given to an operator or made here; no view or copy else is kept."""
    result = function(*given)
    if (recorder := getattr(_thread, "recorder", None)) is not None:
        recorder.derived(function, given, result)
    return result


def statistics(like: Tensor, *shape: int) -> Tensor:
    """Memory for row sums and such."""
    return empty(like, *shape, dtype=statistics_type(like))


def token_major(tensor: Tensor, width: int | None = None) -> Tensor:
    """An empty ``[b h n width]`` whose memory runs b, n, h, width, as the next projection reads it."""
    batch, heads, length, own = tensor.shape
    return empty(tensor, batch, length, heads, own if width is None else width).transpose(1, 2)


def heads_of(tensor: Tensor) -> Heads:
    """A tensor ``[b h n d]`` as programs are given it."""
    return Heads(tensor, tensor.stride()[:3])


def numbers_of(scale: Tensor | None, norm: Tensor | None, sigma: Tensor | None) -> Numbers:
    """s and ν, both ``[h]``, or σ in the place of both, ``[h]`` or ``[1]``."""
    return Numbers(scale, norm, sigma, step_of(scale if sigma is None else sigma))


def step_of(numbers: Tensor) -> int:
    """How far the numbers of two heads lie apart: 0 where all heads share one."""
    return numbers.stride(0) if len(numbers) > 1 else 0


def dense_rows(tensor: Tensor) -> Tensor:
    """The tensor itself where each row's numbers lie side by side, else a copy that has them so."""
    return tensor if tensor.stride(-1) == 1 else derived(Tensor.contiguous, tensor)


def mask_of(spans: Spans, queries: int, keys: int, band: bool = False) -> Mask:
    """What a program is told of its mask: nothing where all is seen, unless ``band`` wants one as wide.

    Where its rows are keys and its columns queries, it takes the inverse of spans.
    """
    if spans.first is not None:
        return Mask(spans.first, spans.last, spans.first.stride(0) if len(spans.first) > 1 else 0)
    if spans.all(queries, keys) and not band:
        return Mask()
    return Mask(left=spans.left, right=spans.right)
