"""The block sizes that each fused program is shipped with, read from configs.json beside this file.

The file says for each program, width of head and kind of entry what is ``shipped`` and which ``candidates`` a
tuner may choose from, as [rows, columns, warps, stages], all compiled ahead of time. An entry's kind is
the number of bits of an element, 16 or 32, alone or with ``masked``, ``short`` or both.
"""

import functools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
import triton

TABLE = Path(__file__).with_name("configs.json")
SHORT = 256
"""Up to so many rows a problem is short: a few blocks hold a whole head of it."""
INTERPRETED = 32
"""The interpreter pays by the block and tests want edges: no block is longer there, unless forced."""


@dataclass(frozen=True)
class Config:
    """Block sizes and what the compiler is told.

    Args:
        rows: of the block that a program owns.
        columns: of the blocks that it loops over.
        warps, stages: of a program, and of the pipeline of loads.
    """

    rows: int
    columns: int
    warps: int = 4
    stages: int = 2


_forced: tuple[Config, tuple[str, ...]] | None = None


def config(
    program: str, *, width: int, dtype: torch.dtype, masked: bool = False, length: int | None = None
) -> Config:
    """The block sizes of a program for heads of ``width`` numbers (a power of two from 16 to 256).

    Args:
        program: its name.
        dtype: of the tensors.
        masked: whether the mask has edges, for programs that then want other sizes.
        length: of the rows, for programs that want other sizes for short problems.
    """
    program = program.removesuffix("_kernel")
    if _forced is not None and (not _forced[1] or program in _forced[1]):
        return _forced[0]
    chosen = _lookup(program, width, dtype.itemsize == 2, masked, length is not None and length <= SHORT)
    if triton.knobs.runtime.interpret:
        return Config(min(chosen.rows, INTERPRETED), min(chosen.columns, INTERPRETED))
    return chosen


@functools.cache
def _lookup(program: str, width: int, half: bool, masked: bool, short: bool) -> Config:
    """The entry of the table that fits best; what has none, as programs without a loop, gets blocks of 64."""
    entries = table().get(program, {}).get(str(width), {})
    for kind in kinds("16" if half else "32", masked, short):
        if kind in entries:
            return Config(*entries[kind]["shipped"])
    return Config(64, 64 if width <= 128 else 32)


def kinds(bits: str, masked: bool, short: bool) -> list[str]:
    """The kinds of entry that would serve, the closest first."""
    words = [f"{bits} masked short"] if masked and short else []
    words += [f"{bits} short"] if short else []
    words += [f"{bits} masked"] if masked else []
    return [*words, bits]


@functools.cache
def table() -> dict[str, dict[str, dict[str, dict[str, list]]]]:
    """What configs.json holds: program, width, kind, then ``shipped`` and ``candidates``."""
    return json.loads(TABLE.read_text())


@contextmanager
def forced(config: Config, *programs: str) -> Iterator[None]:
    """Within it these programs, or all, get this configuration: for tests of block edges, and the tuner."""
    global _forced
    _forced = config, programs
    try:
        yield
    finally:
        _forced = None
