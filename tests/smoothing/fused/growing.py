"""Prints how many programs a step of decoding compiles while a cache grows, in a process that may compile.

A line a case: whether there is a table of lags, whether keys are masked, the number of programs.
"""

import itertools

import torch

from gkalib.gpu.ahead import source_of
from gkalib.smoothing.fused.decode import decode
from gkalib.smoothing.fused.launch import collected

PLACES = 2048
LENGTHS = (1, 2, 15, 16, 17, 31, 32, 33, 64, 65, 128, 129, 189, 192, 500, 1024, 1025, 2032, 2047, 2048)
"""Triton compiles anew for a number of 1, for multiples of 16 and for the rest: both sides of each, often."""


def programs(batch: int, heads: int, groups: int, *, table: bool, masked: bool) -> int:
    """How many from the first token to the last that the cache has a place for; groups of dot products."""
    store, query = (
        torch.empty(batch, h, n, 64, dtype=torch.bfloat16) for h, n in ((groups, PLACES), (heads, 1))
    )
    scale, distinct = torch.ones(heads), set()
    norm = scale if groups == heads else None
    for filled in LENGTHS:
        key = store[:, :, :filled]
        lags = torch.empty(1, heads, PLACES)[:, :, PLACES - filled :] if table else None
        seen = torch.ones(batch, 1, 1, filled, dtype=torch.bool) if masked else None
        with collected() as launches:
            decode(query, key, key, scale, norm, lags, seen, True)
        distinct |= {(launch.name, launch.config, source_of(launch)[0].hash()) for launch in launches}
    return len(distinct)


if __name__ == "__main__":
    for sizes in ((1, 2, 2), (4, 16, 16), (4, 16, 4)):
        for table, masked in itertools.product((False, True), repeat=2):
            print(*sizes, table, masked, programs(*sizes, table=table, masked=masked))
