"""What chapter 20 states about caches and parts of a row."""

import math

import pytest
import torch

from gkalib.bench.roofline import STATED, floor, work
from gkalib.gpu.survey import recorded
from gkalib.kernels import ExpDot
from gkalib.layers import attention
from gkalib.masks import Causal
from gkalib.models import GPTConfig, gpt
from gkalib.smoothing import Cache, make_problem
from gkalib.smoothing.fused.decode import parts


@pytest.mark.parametrize(
    ("name", "tensors"),
    [("softmax", 2), ("gka", 1), (attention("gka", values="plain"), 2), ("rbf", 2), ("gpa", 2)],
    ids=["softmax", "gka", "gka-plain", "rbf", "gpa"],
)
@torch.no_grad()
def test_bytes_of_a_token(name, tensors: int):
    """c L g d u, and three sequences with room for forty tokens have 120 times as many."""
    config = GPTConfig(vocab_size=7, context=40, dim=48, depth=3, num_heads=4)
    model = gpt(config, attention=name)
    caches = model.cache(3)
    model(torch.zeros(3, 5, dtype=torch.long), caches)
    token = tensors * 3 * 4 * 12 * 4
    assert 4 * sum(cache.numbers for cache in caches) == 3 * 40 * token


@torch.no_grad()
def test_one_tensor_against_groups():
    """Caches of g key heads with keys and values, and of h heads with one tensor: h/2g times as much."""
    tokens = torch.randn(1, 8, 5, 12)
    one = Cache(1, 40)
    one.append(tokens, tokens)
    for groups in (8, 4, 2, 1):
        two = Cache(1, 40)
        two.append(tokens[:, :groups], tokens[:, :groups].clone())
        assert one.numbers / two.numbers == 8 / groups / 2


def step(tensors: int, batch: int, keys: int):
    sizes = {"device": "meta", "dtype": torch.bfloat16}
    query, key, value = (torch.empty(batch, 4, length, 64, **sizes) for length in (1, keys, keys))
    return work(make_problem(query, key, key if tensors == 1 else value, ExpDot(), mask=Causal()), "forward")


@pytest.mark.parametrize("tensors", [1, 2])
def test_the_intensity_of_a_step(tensors: int):
    """4/(c u) operations a byte without groups, whatever the batch, but for a query and an output."""
    for batch in (1, 8):
        intensity = step(tensors, batch, 10**6).intensity
        assert intensity == pytest.approx(4 / (tensors * 2), rel=1e-5)


@pytest.mark.parametrize("tensors", [1, 2])
def test_a_step_takes_the_time_of_its_bytes(tensors: int):
    """A layer's b t β over R_M; beside it exponentials and products take no time."""
    rates = STATED["H100"]
    for batch, keys in ((1, 10**5), (8, 10**6)):
        least = floor(step(tensors, batch, keys), rates)
        seconds = batch * keys * tensors * 4 * 64 * 2 / rates.memory
        assert least.bound == "memory"
        assert least.seconds == pytest.approx(seconds, rel=1e-4) and least.seconds > seconds


@pytest.mark.parametrize("rows", [1, 20, 80, 1000, 5000])
@pytest.mark.parametrize("keys", [1, 33, 2048, 131072])
@pytest.mark.parametrize("columns", [16, 64])
def test_the_number_of_parts(rows: int, keys: int, columns: int):
    """S = max(1, min(⌊660/R⌋, 64, ⌈t/C⌉)) at most, each of ⌈⌈t/C⌉/S⌉ blocks."""
    blocks = math.ceil(keys / columns)
    most = max(1, min(660 // rows, 64, blocks))
    each = math.ceil(blocks / most)
    count = math.ceil(blocks / each)
    assert count <= most
    assert parts(rows, keys, columns) == (count, each)


def test_instructions_of_a_group_for_an_element_of_its_key_and_value():
    """3.6, for all its heads: a thread's in a block, times threads, over the numbers of keys and values."""
    report = recorded()["group_decode 128 bfloat16 all 1024 decode_group"].report
    assert round(sum(report.loops) * 32 * report.warps / (report.columns * 2 * 128), 1) == 3.6
