"""The least time that an attention can take on a device: its operations and bytes over the device's rates."""

import math
import time
from dataclasses import dataclass

import torch
from torch import Tensor

from gkalib.bench import timing
from gkalib.bench.cases import Case

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

    Chapter 19 teaches it.
    """
    return Floor(
        work.flops / rates.products,
        work.exponentials / rates.exponentials,
        work.bytes / rates.memory,
        work.instructions / rates.issue,
    )


def least(case: Case, direction: str, kind: str, rates: Rates) -> tuple[float, Number, str]:
    """The least seconds of a pass over a case, its operations, and what binds it.

    ``"both"`` is one pass after the other; what binds the longer one binds it.
    """
    passes = ("forward", "backward") if direction == "both" else (direction,)
    works = [work(case, each, kind) for each in passes]
    floors = [floor(each, rates) for each in works]
    longest = max(floors, key=lambda each: each.seconds)
    return sum(each.seconds for each in floors), sum(each.flops for each in works), longest.bound


def attainable(intensity: Number, rates: Rates) -> Number:
    r"""The most operations a second at an arithmetic intensity I.

    $$\min(R_\mathrm{products}, I \, R_\mathrm{memory})$$
    """
    return min(rates.products, intensity * rates.memory)


def visible(queries: int, keys: int, *, causal: bool = False, window: int | None = None) -> int:
    """How many pairs of query and key a mask allows; the last query sits on the last key."""
    positions = torch.arange(keys - queries, keys)
    last = positions if causal else (positions + (keys if window is None else window - 1)).clamp(max=keys - 1)
    first = torch.zeros_like(positions) if window is None else (positions - window + 1).clamp(min=0)
    return int((last - first + 1).clamp(min=0).sum())


def padding(
    queries: int, keys: int, *, causal: bool = False, window: int | None = None, tile: int = TILE
) -> float:
    """The pairs in the square tiles that a mask touches, over the pairs that it allows."""
    rows = torch.arange(0, queries, tile)
    positions = torch.arange(keys - queries, keys)
    tiles = 0
    for start in rows.tolist():
        inside = positions[start : start + tile]
        low = 0 if window is None else max(0, int(inside[0]) - window + 1)
        high = int(inside[-1]) if causal else keys - 1
        if window is not None:
            high = min(high, int(inside[-1]) + window - 1)
        tiles += high // tile - low // tile + 1
    return tiles * tile**2 / visible(queries, keys, causal=causal, window=window)


SIZE = {"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8}
RANK, GRID = 16, 3  # of a row operator: 12 features, which a program rounds up to 16; harmonics

# How often one [b h n d] tensor crosses the bus: the least, each input read and each output written once
LEAST = {
    ("gka", "forward"): 2,  # x; out
    ("gka", "backward"): 4,  # x, out and its gradient; that of x
    ("softmax", "forward"): 4,  # query, key, value; out
    ("softmax", "backward"): 8,  # the same and a gradient for each of the four
}
# The same for our programs, whose backward pass is two, one after the other
DESIGN = {
    ("gka", "forward"): 2,
    ("gka", "backward"): 7,  # x, out, its gradient and g = dO / total; x, g and the gradient of x
    ("softmax", "forward"): 4,
    ("softmax", "backward"): 12,  # in, out, grad of query; in again, grads of key and value
}


def work(case: Case, direction: str, kind: str, *, designed: bool = False, instructions: float = 0.0) -> Work:
    """The work of one pass over a case.

    Args:
        case: the sizes, the mask and the type.
        direction: ``"forward"`` or ``"backward"``.
        kind: ``"gka"``, where query, key and value are one tensor (in decoding: the cache's keys and values),
            ``"softmax"``, where they are three, or ``"karat"``, a learned operator on rows of scores.
        designed: count what our programs do, seven products and two exponentials in the backward pass where
            they are two loops, instead of the least that any program must do, which is five and one.
        instructions: that a lane spends on a pair, as counted in the compiled program.
    """
    heads, queries, keys, width = (case[name] for name in ("heads", "queries", "keys", "width"))
    heads *= case["batch"]
    pairs = heads * visible(queries, keys, causal=case["causal"], window=case["window"])
    size = SIZE[case["dtype"]]
    if queries != keys:  # decoding: nothing but the cache counts
        caches = 1 if kind == "gka" else 2
        moved = heads * width * (caches * keys + 2 * queries) * size
        return Work(pairs, 4 * width * pairs, pairs, moved, instructions * pairs)
    tensor = heads * queries * width * size
    crossings = (DESIGN if designed else LEAST)["gka" if kind == "gka" else "softmax", direction]
    two_loops = designed and (kind != "gka" or case["causal"])
    if direction == "forward":
        products, exponentials = 2, 1
    else:
        products, exponentials = (7, 2) if two_loops else (5, 1)
    flops = 2 * products * width * pairs
    if kind == "karat":
        flops, exponentials = _row_operator(heads, queries, keys, width, direction), 2 * exponentials
    return Work(pairs, flops, exponentials * pairs, crossings * tensor, instructions * pairs)


def _row_operator(heads: int, queries: int, keys: int, width: int, direction: str) -> int:
    """Operations of H = features · coefficients and H (Wᵀ V); backward twice that and the scores again."""
    pairs = heads * queries * keys
    scores, features = 2 * width * pairs, 2 * 2 * GRID * RANK * pairs
    mixed = 2 * RANK * width * heads * (queries + keys)
    forward = scores + features + mixed
    return forward if direction == "forward" else 2 * forward + scores


def ceilings(device: str) -> tuple[Rates, float | None]:
    """What this device reaches: a copy, a large matrix product, exponentials; and its clock meanwhile in MHz.

    On a GPU: 1 GiB copied, counting bytes read and written, and a bfloat16 product of 8192³; exponentials by
    the clock. On a CPU a smaller copy and a float32 product.
    """
    on_gpu = device == "cuda"
    side, kind = (8192, torch.bfloat16) if on_gpu else (1024, torch.float32)
    source = torch.randn(2**28 if on_gpu else 2**24, device=device)
    target = torch.empty_like(source)
    left, right = (torch.randn(side, side, device=device, dtype=kind) for _ in range(2))
    copied = timing.timed([lambda: target.copy_(source)], device).median
    multiplied = timing.timed([lambda: left @ right], device, busy=True)
    products, memory = 2 * side**3 / multiplied.median * 1e3, 2 * source.nbytes / copied * 1e3
    if on_gpu:
        processors = torch.cuda.get_device_properties(0).multi_processor_count
        clock = multiplied.clock_mhz
        lanes = processors * (clock or CLOCK / 1e6) * 1e6
        return Rates(products, memory, 16 * lanes, 128 * lanes), clock
    return Rates(products, memory, _exponentials(torch.randn(2**12))), None


def better(first: Rates, second: Rates) -> Rates:
    """The higher of two measurements of each rate."""
    return Rates(*(max(getattr(first, name), getattr(second, name)) for name in vars(first)))


def _exponentials(x: Tensor) -> float:
    """Exponentials a second on a CPU, over numbers that its caches hold."""
    out, start, rounds = torch.empty_like(x), time.perf_counter(), 2000
    for _ in range(rounds):
        torch.exp(x, out=out)
    return rounds * x.numel() / (time.perf_counter() - start)


def stated(device: str) -> Rates | None:
    """The published rates of a device by a part of its name, or None if they are not in the table."""
    return next((rates for name, rates in STATED.items() if name in device), None)
