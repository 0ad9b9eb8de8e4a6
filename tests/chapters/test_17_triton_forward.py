"""Chapter 17: shifts, sums and bounds of the fused forward pass, what it loads, and what rounding costs."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.runtime import interpreter

from gkalib.smoothing.fused.configs import Config, forced
from gkalib.smoothing.fused.forward import smooth_forward, smooth_forward_kernel
from gkalib.smoothing.fused.scores import loop_bounds
from gkalib.smoothing.spans import Spans
from tests.smoothing.fused.formula import random_inputs, smoothed
from tests.tolerance import oracle

FLOAT64 = pytest.mark.skipif(torch.cuda.is_available(), reason="float64 is the interpreter's oracle")


def scores_of(query: Tensor, key: Tensor, factor: float) -> Tensor:
    """s_ij = f (q·k − |k|²/2)."""
    return factor * (query @ key.mT - key.square().sum(-1)[..., None, :] / 2)


def test_any_shift_gives_the_output():
    query, key, value = torch.randn(3, 30, 8, dtype=torch.float64)
    scores, shift = scores_of(query, key, 0.4), 5 * torch.randn(30, 1, dtype=torch.float64)
    weights = torch.exp2(scores - shift)
    by_definition = (-0.2 * torch.log(torch.tensor(2.0)) * (query[:, None] - key).square().sum(-1)).softmax(
        -1
    )
    assert torch.allclose(weights @ value / weights.sum(-1, keepdim=True), by_definition @ value)


def test_the_sum_lies_between_one_and_the_gap():
    query, key = torch.randn(2, 50, 8, dtype=torch.float64)
    scores = scores_of(query, key, 3.0)
    for own in (scores.diagonal(), scores[:, 0], scores.amax(-1)):
        total = torch.exp2(scores - own[:, None]).sum(-1)
        assert (total >= 1).all()
        assert (total <= 50 * torch.exp2(scores.amax(-1) - own)).all()


@FLOAT64
def test_half_the_squared_query_bounds_the_scores():
    """So plain sums need no other shift: a weight is the kernel's value, at most one."""
    inputs = random_inputs(33, 40, Spans(80, 80), norm=True, normalize=False).to(torch.float64)
    scores = scores_of(inputs.query, inputs.key, 1.0)
    assert (scores <= inputs.query.square().sum(-1, keepdim=True) / 2).all()
    assert torch.allclose(
        scores_of(inputs.query, inputs.query, 1.0).diagonal(dim1=-2, dim2=-1).mul(2),
        inputs.query.square().sum(-1),
    )
    with forced(Config(32, 16)):
        oracle(smooth_forward(*inputs.all())[0], smoothed(inputs)[0])


@triton.jit
def bounds_kernel(low, high, out, length, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.arange(0, ROWS)
    start, inner_start, inner_stop, stop = loop_bounds(
        tl.load(low + row), tl.load(high + row), row, length, columns, BLOCK
    )
    tl.store(out, start)
    tl.store(out + 1, inner_start)
    tl.store(out + 2, inner_stop)
    tl.store(out + 3, stop)


@pytest.mark.parametrize("length", [1, 11, 16])
def test_inner_tiles_are_those_that_every_row_sees_whole(length: int, device: torch.device):
    columns = 60
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        ends = torch.randint(0, columns + 1, (2, 16), generator=generator).sort(-1).values
        low, high = ends.amin(0), ends.amax(0) + (0, 30)[seed % 2]
        high = high.clamp(max=columns)
        out = torch.zeros(4, dtype=torch.int32, device=device)
        arguments = [each.int().to(device) for each in (low, high)]
        bounds_kernel[(1,)](*arguments, out, length, columns, ROWS=16, BLOCK=8)
        start, inner_start, inner_stop, stop = out.tolist()
        low, high = low[:length], high[:length]
        tiles = torch.arange(0, 64, 8)
        whole = ((low[:, None] <= tiles) & (tiles + 8 <= high[:, None])).all(0)
        assert [int(at) for at in tiles if inner_start <= at < inner_stop] == tiles[whole].tolist()
        some = ((low[:, None] < tiles + 8) & (tiles < high[:, None]) & (low < high)[:, None]).any(0)
        assert not some.any() or set(tiles[some].tolist()) <= set(range(start, stop, 8))


@contextmanager
def counted(**tensors: Tensor) -> Iterator[dict[str, int]]:
    """How many numbers of each tensor the programs within load."""
    builder = interpreter.interpreter_builder
    numbers, plain = dict.fromkeys(tensors, 0), builder.create_masked_load

    def load(pointers, mask, *rest):
        at = pointers.data[mask.data].astype("int64")
        for name, tensor in tensors.items():
            first = tensor.data_ptr()
            if at.size and at.min() >= first and at.max() < first + tensor.nbytes:
                numbers[name] += at.size
        return plain(pointers, mask, *rest)

    builder.create_masked_load = load
    try:
        yield numbers
    finally:
        del builder.create_masked_load


@FLOAT64
@pytest.mark.parametrize("block", [16, 32, 64])
def test_numbers_that_a_pass_loads(block: int):
    """2 n d for queries and own keys, and ⌈n/B⌉ m 2 d for keys and values."""
    n, m, d = 64, 80, 16
    query, key, value = (torch.randn(1, 1, size, d, dtype=torch.float64) for size in (n, m, m))
    one = torch.ones(1, dtype=torch.float64)
    with counted(query=query, key=key, value=value) as numbers, forced(Config(block, 16)):
        smooth_forward(query, key, value, one, None, None, Spans(200, 200), True)
    blocks = -(-n // block)
    assert numbers == {"query": n * d, "key": n * d + blocks * m * d, "value": blocks * m * d}


def test_a_factor_folded_into_queries_costs_what_the_bound_says():
    query, key = torch.randn(2, 100, 64, dtype=torch.float64).bfloat16().double()
    factor = 0.36
    folded = (factor * query).bfloat16().double() @ key.mT
    off = (folded - factor * query @ key.mT).abs()
    bound = 2.0**-8 * factor * query.abs() @ key.abs().mT
    assert (off <= bound).all()
    assert off.max() > 0.01 * bound.max()


def test_the_chapter_names_every_argument_of_the_librarys_kernel():
    text = (Path(__file__).parents[2] / "chapters/text/17-triton-forward.md").read_text()
    table = text[text.index("| for | here | in the library |") :].split("\n\n")[0]
    named = set(re.findall(r"`(\w+)`", table))
    assert set(smooth_forward_kernel.arg_names) <= named
    assert {"own_scores", "walk_of", "smooth_block"} <= set(smooth_forward_kernel.fn.__code__.co_names)
