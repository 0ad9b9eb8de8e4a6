"""The least time that an attention can take on a device: its operations and bytes over the device's rates."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gkalib.bench import timing
from gkalib.masks import Causal, Window
from gkalib.normalizers import RowOperator
from gkalib.smoothing import Problem

TILE = 64

Number = int | float


@dataclass(frozen=True)
class Rates:
    """What a device does in a second.

    Args:
        products: floating-point operations of matrix products.
        memory: bytes read from or written to memory.
        exponentials: of the special-function units; sines and cosines run there too.
        issue: instructions, one for each lane.
    """

    products: Number
    memory: Number
    exponentials: Number
    issue: Number = math.inf


CLOCK = 1.83e9
"""Hertz at which 132 processors of an H100 in its SXM form do the products of its data sheet."""
_H100 = {"products": 989e12, "exponentials": 16 * 132 * CLOCK, "issue": 128 * 132 * CLOCK}
STATED = {"H100": Rates(memory=3.35e12, **_H100), "H200": Rates(memory=4.8e12, **_H100)}
"""Of the data sheets, bfloat16; exponentials and issue: 16 and 128 per clock on each of 132 processors."""


@dataclass(frozen=True)
class Work:
    """What has to be done, whatever does it.

    Args:
        pairs: of query and key that the mask allows.
        flops: of matrix products over these pairs; a multiplication and an addition are two.
        exponentials: or sines and cosines.
        bytes: that cross the memory bus.
        instructions: of all lanes.
    """

    pairs: Number
    flops: Number
    exponentials: Number
    bytes: Number
    instructions: Number = 0

    @property
    def intensity(self) -> float:
        """Floating-point operations for each byte."""
        return self.flops / self.bytes


@dataclass(frozen=True)
class Floor:
    """The seconds that each resource needs, and the largest of them, which no program can beat."""

    products: float
    exponentials: float
    memory: float
    issue: float

    @property
    def bound(self) -> str:
        """The resource that needs longest."""
        return max(vars(self), key=vars(self).__getitem__)

    @property
    def seconds(self) -> float:
        return max(vars(self).values())


def floor(work: Work, rates: Rates) -> Floor:
    r"""The least time for some work.

    $$t \ge \max\Big(\frac{\mathrm{flops}}{R_\mathrm{products}}, \frac{\mathrm{exponentials}}{R_\mathrm{exp}},
    \frac{\mathrm{bytes}}{R_\mathrm{memory}}, \frac{\mathrm{instructions}}{R_\mathrm{issue}}\Big)$$

    Chapter 21 teaches it.
    """
    return Floor(
        work.flops / rates.products,
        work.exponentials / rates.exponentials,
        work.bytes / rates.memory,
        work.instructions / rates.issue,
    )


def least(problem: Problem, direction: str, rates: Rates) -> tuple[float, Number, str]:
    """The least seconds of a pass over a problem, its operations, and what binds it.

    ``"both"`` is one pass after the other; what binds the longer one binds it.
    """
    passes = ("forward", "backward") if direction == "both" else (direction,)
    works = [work(problem, each) for each in passes]
    floors = [floor(each, rates) for each in works]
    longest = max(floors, key=lambda each: each.seconds)
    return sum(each.seconds for each in floors), sum(each.flops for each in works), longest.bound


def visible(queries: int, keys: int, *, causal: bool = False, window: int | None = None) -> int:
    """How many pairs of query and key a mask allows; the last query sits on the last key."""
    first, last = _seen(queries, keys, causal, window)
    return int((last - first + 1).clamp(min=0).sum())


def padding(
    queries: int, keys: int, *, causal: bool = False, window: int | None = None, tile: int = TILE
) -> float:
    """The pairs in the square tiles that a mask touches, over the pairs that it allows."""
    first, last = _seen(queries, keys, causal, window)
    low, high = first[::tile], torch.cat([last[tile - 1 :: tile], last[-1:]])  # of the first and last rows
    tiles = int((high[: len(low)] // tile - low // tile + 1).sum())
    return tiles * tile**2 / visible(queries, keys, causal=causal, window=window)


def _seen(queries: int, keys: int, causal: bool, window: int | None) -> tuple[Tensor, Tensor]:
    """The first and the last key that each query sees, ``[n]``."""
    positions = torch.arange(keys - queries, keys)
    last = positions if causal else (positions + (keys if window is None else window - 1)).clamp(max=keys - 1)
    first = torch.zeros_like(positions) if window is None else (positions - window + 1).clamp(min=0)
    return first, last


RANK, GRID = 16, 3  # of a row operator: 12 features, which a program rounds up to 16; harmonics
# How often one [b h n d] tensor crosses the bus: the least, each input read and each output written once
ONE = {"forward": 2, "backward": 4}  # x; out | x, out and its gradient; that of x
THREE = {"forward": 4, "backward": 8}  # query, key, value; out | the same and a gradient for each of the four


def band(problem: Problem) -> tuple[bool, int | None]:
    """Whether a problem's mask is causal, and its window if it has one.

    Raises:
        ValueError: if it has another mask.
    """
    if other := [rule for rule in problem.rules if not isinstance(rule, Causal | Window)]:
        raise ValueError(f"roofline: the pairs of {other[0]!r} depend on its numbers")
    windows = [rule.size for rule in problem.rules if isinstance(rule, Window)]
    return any(isinstance(rule, Causal) for rule in problem.rules), min(windows, default=None)


def work(problem: Problem, direction: str) -> Work:
    """The least work of any program for one pass over a problem.

    Of tensors only sizes are read, so that they may lie on ``"meta"``. Where query, key and value are one
    tensor it is read once, and in decoding nothing but the cache counts.

    Args:
        problem: with a causal mask, a window or none.
        direction: ``"forward"`` or ``"backward"``.
    """
    (batch, heads, queries, keys), width = problem.sizes, problem.query.shape[3]
    causal, window = band(problem)
    heads *= batch
    pairs, size = heads * visible(queries, keys, causal=causal, window=window), problem.query.element_size()
    if queries != keys:
        caches = 1 if problem.grouped_key is problem.grouped_value else 2
        return Work(pairs, 4 * width * pairs, pairs, heads * width * (caches * keys + 2 * queries) * size)
    moved = (ONE if problem.one_tensor else THREE)[direction] * heads * queries * width * size
    products = 2 if direction == "forward" else 5
    if isinstance(problem.normalizer, RowOperator):
        return Work(pairs, _row_operator(heads, queries, keys, width, direction), 2 * pairs, moved)
    return Work(pairs, 2 * products * width * pairs, pairs, moved)


def _row_operator(heads: int, queries: int, keys: int, width: int, direction: str) -> int:
    """Operations of H = features · coefficients and H (Wᵀ V); backward twice that and the scores again."""
    pairs = heads * queries * keys
    scores, features = 2 * width * pairs, 2 * 2 * GRID * RANK * pairs
    mixed = 2 * RANK * width * heads * (queries + keys)
    forward = scores + features + mixed
    return forward if direction == "forward" else 2 * forward + scores


def ceilings(device: str) -> Rates:
    """What this device reaches in a copy, a large matrix product and exponentials.

    On a GPU: 1 GiB copied, counting bytes read and written, and a bfloat16 product of 8192³; exponentials at
    the clock of an H100. On a CPU a smaller copy and a float32 product.
    """
    on_gpu = device == "cuda"
    side, kind = (8192, torch.bfloat16) if on_gpu else (1024, torch.float32)
    source = torch.randn(2**28 if on_gpu else 2**24, device=device)
    target = torch.empty_like(source)
    left, right = (torch.randn(side, side, device=device, dtype=kind) for _ in range(2))

    def seconds(call: timing.Call) -> float:
        return timing.columns(timing.times([call], device))["ms"] / 1e3

    products = 2 * side**3 / seconds(lambda: left @ right)
    memory = 2 * source.nbytes / seconds(lambda: target.copy_(source))
    if on_gpu:
        lanes = torch.cuda.get_device_properties(0).multi_processor_count * CLOCK
        return Rates(products, memory, 16 * lanes, 128 * lanes)
    few = torch.randn(2**12)  # numbers that caches hold
    out = torch.empty_like(few)
    return Rates(products, memory, few.numel() / seconds(lambda: torch.exp(few, out=out)))


def stated(device: str) -> Rates | None:
    """The published rates of a device by a part of its name, or None if they are not in the table."""
    return next((rates for name, rates in STATED.items() if name in device), None)
