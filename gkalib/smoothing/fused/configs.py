"""The block sizes that each fused program is shipped with."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch


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
    """The block sizes of a program for heads of ``width`` numbers (a power of two from 16 to 256)."""
    if _forced is not None and (not _forced[1] or program in _forced[1]):
        return _forced[0]
    return Config(64, 64 if width <= 128 else 32, 4, 2)


@contextmanager
def forced(config: Config, *programs: str) -> Iterator[None]:
    """Within it these programs, or all, get this configuration: for tests of block edges, and the tuner."""
    global _forced
    _forced = config, programs
    try:
        yield
    finally:
        _forced = None
