"""The block sizes of each fused program: those in the card's file, else those of configs.json beside this.

That has a line for each program, width of head and bits of an element, 16 or 32, and more of them where a
program wants other sizes with ``one`` tensor, with ``lags``, or if it is ``short`` or ``masked``. A line
lists what `gkalib ready` tries on a card, as [rows, columns, warps, stages]; what comes first is shipped,
and was compiled for an H100 ahead of time.
"""

import functools
import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
import triton

from gkalib.smoothing.fused import cards

TABLE = Path(__file__).with_name("configs.json")
EDGE = 16
"""The fewest columns that a tensor core multiplies at once."""
INTERPRETED = 32
"""The interpreter pays by the block and tests want edges: no block is longer there, unless forced."""
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Config:
    """Block sizes and what the compiler is told.

    Args:
        rows: of the block that a program owns.
        columns: of the blocks that it loops over.
        warps, stages: of a program, and of the pipeline of loads.
        tries: the line of the table that these come from.
    """

    rows: int
    columns: int
    warps: int = 4
    stages: int = 2
    tries: Sequence[list[int]] = field(default=(), compare=False, repr=False, kw_only=True)


_forced: Mapping[str, Config] | None = None


def config(
    program: str,
    *,
    width: int,
    dtype: torch.dtype,
    one: bool = False,
    lags: bool = False,
    length: int | None = None,
    masked: bool = False,
    operation: str = "",
    device: torch.device = CPU,
) -> Config:
    """The block sizes of a program for heads of ``width`` numbers (a power of two from 16 to 256).

    Args:
        program: its name.
        dtype: of the tensors.
        one: whether query, key and value are one tensor, for programs that then want other sizes.
        lags: whether it also has a table of lags to add or to sum, for programs that then want other sizes.
        length: of the rows, for programs that want other sizes for short problems.
        masked: whether the mask has edges, likewise.
        operation, device: what it is part of, and where: a card's file may have sizes for it.
    """
    program = program.removesuffix("_kernel")
    if _forced is not None and (chosen := _forced.get(program) or _forced.get("")):
        return chosen
    if operation and length is not None:
        known = cards.blocks(operation, dtype, width, cards.length_class(length), device)
        if program in known:
            return _small(Config(*known[program]))
    short = length is not None and length <= cards.SHORT
    half = dtype.itemsize == 2
    return _small(_shipped(program, width, half, one=one, lags=lags, short=short, masked=masked))


def _small(chosen: Config) -> Config:
    """As the interpreter wants it, where it is on."""
    if triton.knobs.runtime.interpret:
        return Config(min(chosen.rows, INTERPRETED), min(chosen.columns, INTERPRETED))
    return chosen


def edge_columns(length: int, columns: int, masked: bool = False) -> int:
    """The columns of the blocks behind the last whole one: 16 where they fill at most half of another.

    The edges of a mask take whole blocks.
    """
    return EDGE if 0 < length % columns <= columns // 2 and not masked else columns


@functools.cache
def _shipped(program: str, width: int, half: bool, **given: bool) -> Config:
    """Of the line that fits best: what the table does not split by does not matter there.

    What has none, as programs without a loop, gets blocks of 64.
    """
    start = f"{program} {width} {16 if half else 32}"
    for words in itertools.product(*([f" {word}", ""] for word, on in given.items() if on)):
        if tries := table().get(start + "".join(words)):
            return Config(*tries[0], tries=tries)
    return Config(64, 64 if width <= 128 else 32)


@functools.cache
def table() -> dict[str, list[list[int]]]:
    """What configs.json holds."""
    return json.loads(TABLE.read_text())


@functools.cache
def blocks() -> str:
    """The first 12 digits of the SHA-256 over what configs.json ships."""
    shipped = {line: tries[0] for line, tries in table().items()}
    return hashlib.sha256(json.dumps(shipped, sort_keys=True).encode()).hexdigest()[:12]


@contextmanager
def forced(sizes: Config | Mapping[str, Config]) -> Iterator[None]:
    """Within it all programs get this configuration, or each that is named its own.

    For tests of block edges, and for ``ready``.
    """
    global _forced
    before = _forced
    _forced = {"": sizes} if isinstance(sizes, Config) else sizes
    try:
        yield
    finally:
        _forced = before


def are_forced() -> bool:
    """Whether block sizes are not the table's."""
    return _forced is not None
