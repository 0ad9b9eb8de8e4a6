"""The block sizes that each fused program is shipped with, read from configs.json beside this file.

The file says for each program, width of head and kind of entry what is ``shipped`` and which ``candidates``
a tuner may choose from, as [rows, columns, warps, stages]; what is shipped was compiled ahead of time. An
entry's kind is the number of bits of an element, 16 or 32, alone or with some of ``lags``, ``short`` and
``masked``. What is shipped of a program that stands in for a plain one may be empty: then the plain one runs.
"""

import functools
import hashlib
import itertools
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
import triton

TABLE = Path(__file__).with_name("configs.json")
SHORT = 256
"""Up to so many rows a problem is short: a few blocks hold a whole head of it."""
EDGE = 16
"""The fewest columns that a tensor core multiplies at once."""
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


Entry = tuple[str, int, str]
"""Program, width and kind."""
Table = dict[str, dict[str, dict[str, dict[str, list]]]]
"""For each program, width and kind what is shipped, and the candidates."""

STAND_INS = {
    "gka_forward_specialized": "gka_forward",
    "gka_forward_described": "gka_forward",
    "gka_backward_head": "gka_backward",
    "gka_backward_specialized": "gka_backward",
}
"""Which program may run in the place of which plain one; of two that can, the first runs."""

_forced: tuple[Config | None, tuple[str, ...]] | None = None
_standing: tuple[str, ...] | None = None
_served: list[Entry] | None = None


def config(
    program: str,
    *,
    width: int,
    dtype: torch.dtype,
    lags: bool = False,
    length: int | None = None,
    masked: bool = False,
) -> Config:
    """The block sizes of a program for heads of ``width`` numbers (a power of two from 16 to 256).

    Args:
        program: its name.
        dtype: of the tensors.
        lags: whether it also has a table of lags to add or to sum, for programs that then want other sizes.
        length: of the rows, for programs that want other sizes for short problems.
        masked: whether the mask has edges, likewise.
    """
    program = program.removesuffix("_kernel")
    kind = _kind(program, width, dtype.itemsize == 2, lags, length is not None and length <= SHORT, masked)
    if _served is not None:
        _served.append((program, width, kind))
    if _forced is not None and _forced[0] is not None and (not _forced[1] or program in _forced[1]):
        return _forced[0]
    return _small(_lookup(program, width, kind) or Config(64, 64 if width <= 128 else 32))


def stand_in(
    program: str, *, width: int, dtype: torch.dtype, length: int, masked: bool = False
) -> Config | None:
    """The block sizes of a program that may stand in for a plain one; None where the plain one is to run.

    It runs where the table ships it, which takes a card on which it was right and faster, or within
    ``standing_in``.
    """
    program = program.removesuffix("_kernel")
    assert program in STAND_INS
    kind = _kind(program, width, dtype.itemsize == 2, False, length <= SHORT, masked)
    if _served is not None:
        _served.append((program, width, kind))
    if _forced is not None and program in _forced[1]:
        return _forced[0]
    if _standing is not None and program in _standing:
        if _forced is not None and not _forced[1]:
            return _forced[0]
        candidates = table().get(program, {}).get(str(width), {}).get(kind, {}).get("candidates", [])
        return _small(Config(*next(filter(None, candidates), (128, 64, 4, 2))))
    if _standing is not None or _forced is not None:
        return None
    chosen = _lookup(program, width, kind)
    return chosen and _small(chosen)


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
def _kind(program: str, width: int, half: bool, lags: bool, short: bool, masked: bool) -> str:
    """The kind of the entry that fits best: what the table does not split by does not matter there."""
    kinds = table().get(program, {}).get(str(width), {})
    bits = "16" if half else "32"
    for words in itertools.product(
        *([word, ""] if on else [""] for word, on in (("lags", lags), ("short", short), ("masked", masked)))
    ):
        kind = " ".join([bits, *filter(None, words)])
        if kind in kinds:
            return kind
    return bits


@functools.cache
def _lookup(program: str, width: int, kind: str) -> Config | None:
    """What the table ships; what has no entry, as programs without a loop, gets blocks of 64."""
    entry = table().get(program, {}).get(str(width), {}).get(kind)
    return Config(*entry["shipped"]) if entry and entry["shipped"] else None


@functools.cache
def table() -> Table:
    """What configs.json holds: program, width, kind, then ``shipped`` and ``candidates``.

    GKALIB_CONFIGS names another file to be read in its place: what was tuned and is not yet shipped.
    """
    return json.loads(Path(os.environ.get("GKALIB_CONFIGS") or TABLE).read_text())


def blocks(chosen: Table | None = None) -> str:
    """The first 12 digits of the SHA-256 over what a table ships: the one in use where none is given."""
    shipped = {
        f"{program} {width} {kind}": entry["shipped"]
        for program, widths in (chosen or table()).items()
        for width, kinds in widths.items()
        for kind, entry in kinds.items()
    }
    return hashlib.sha256(json.dumps(shipped, sort_keys=True).encode()).hexdigest()[:12]


def forget() -> None:
    """Read the file again when it is next asked for."""
    for cached in (table, _kind, _lookup):
        cached.cache_clear()


@contextmanager
def forced(config: Config | None, *programs: str) -> Iterator[None]:
    """Within it these programs, or all, get this configuration: for tests of block edges, and the tuner.

    A program that stands in for another runs only if it is named.
    """
    global _forced
    _forced = config, programs
    try:
        yield
    finally:
        _forced = None


def are_forced() -> bool:
    """Whether programs or block sizes are not the table's, or it is listed which are asked for."""
    return _forced is not None or _served is not None or _standing is not None


@contextmanager
def standing_in(*programs: str) -> Iterator[None]:
    """Within it these programs stand in for plain ones wherever they can, and no others do."""
    global _standing
    before, _standing = _standing, programs
    try:
        yield
    finally:
        _standing = before


@contextmanager
def served() -> Iterator[list[Entry]]:
    """Within it the entries of the table that programs ask for are listed."""
    global _served
    _served = []
    try:
        yield _served
    finally:
        _served = None
