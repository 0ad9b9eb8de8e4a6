"""The block sizes of each fused program: those in the card's file, else those of configs.json beside this.

The file says for each program, width of head and kind of entry what is ``shipped`` and which ``candidates``
`gkalib ready` tries on a card, as [rows, columns, warps, stages]; what is shipped was compiled for an H100
ahead of time. An entry's kind is the number of bits of an element, 16 or 32, alone or with some of ``one``,
``lags``, ``short`` and ``masked``.
"""

import functools
import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
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
    """

    rows: int
    columns: int
    warps: int = 4
    stages: int = 2


Entry = tuple[str, int, str]
"""Program, width and kind."""
Table = dict[str, dict[str, dict[str, dict[str, list]]]]
"""For each program, width and kind what is shipped, and the candidates."""

_forced: Mapping[str, Config] | None = None
_served: list[Entry] | None = None


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
    short = length is not None and length <= cards.SHORT
    kind = _kind(program, width, dtype.itemsize == 2, one=one, lags=lags, short=short, masked=masked)
    if _served is not None:
        _served.append((program, width, kind))
    if _forced is not None and (chosen := _forced.get(program) or _forced.get("")):
        return chosen
    if operation and length is not None:
        known = cards.blocks(operation, dtype, width, cards.length_class(length), device)
        if program in known:
            return _small(Config(*known[program]))
    return _small(_lookup(program, width, kind) or Config(64, 64 if width <= 128 else 32))


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
def _kind(program: str, width: int, half: bool, **given: bool) -> str:
    """The kind of the entry that fits best: what the table does not split by does not matter there."""
    kinds = table().get(program, {}).get(str(width), {})
    bits = "16" if half else "32"
    for words in itertools.product(*([word, ""] for word, on in given.items() if on)):
        kind = " ".join([bits, *filter(None, words)])
        if kind in kinds:
            return kind
    return bits


@functools.cache
def _lookup(program: str, width: int, kind: str) -> Config | None:
    """What the table ships; what has no entry, as programs without a loop, gets blocks of 64."""
    entry = table().get(program, {}).get(str(width), {}).get(kind)
    return Config(*entry["shipped"]) if entry else None


@functools.cache
def table() -> Table:
    """What configs.json holds: program, width, kind, then ``shipped`` and ``candidates``."""
    return json.loads(TABLE.read_text())


@functools.cache
def blocks() -> str:
    """The first 12 digits of the SHA-256 over what configs.json ships."""
    shipped = {
        f"{program} {width} {kind}": entry["shipped"]
        for program, widths in table().items()
        for width, kinds in widths.items()
        for kind, entry in kinds.items()
    }
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
    """Whether block sizes are not the table's, or it is listed which are asked for."""
    return _forced is not None or _served is not None


@contextmanager
def served() -> Iterator[list[Entry]]:
    """Within it the entries of the table that programs ask for are listed."""
    global _served
    _served = []
    try:
        yield _served
    finally:
        _served = None
