"""Floors are arithmetic: they are held to figures worked out by hand for one H100."""

import math

import pytest
import torch

from gkalib.bench import roofline
from gkalib.bench.problems import problem, shapes, softmax
from gkalib.bench.roofline import STATED, Work, band, floor, least, padding, visible, work
from gkalib.kernels import Gaussian
from gkalib.masks import Document
from gkalib.smoothing import Problem, make_problem

H100 = STATED["H100"]


def posed(name: str, shape: str, kind: str = "", **changes) -> Problem:
    """A shape, or softmax attention on three tensors of its sizes."""
    given = problem(shapes(name, "full", "cuda")[shape] | changes, device="meta")
    return softmax(given) if kind == "softmax" else given


# family, shape, pass, kind: GFLOP, then microseconds of products, exponentials and memory
FIGURES = [
    ("gka", "vit-ti", "forward", "softmax", 7.6, 7.7, 7.7, 23.1),
    ("gka", "vit-ti", "forward", "gka", 7.6, 7.7, 7.7, 11.6),
    ("gka", "vit-ti", "backward", "softmax", 19.1, 19.3, 7.7, 46.2),
    ("gka", "vit-ti", "backward", "gka", 19.1, 19.3, 7.7, 23.1),
    ("gka", "vit-s", "forward", "gka", 15.3, 15.4, 15.4, 23.1),
    ("gka", "vit-b", "forward", "softmax", 30.5, 30.9, 30.9, 92.5),
    ("gka", "text", "forward", "gka", 85.9, 86.9, 43.4, 25.0),
    ("gka", "text", "backward", "softmax", 214.9, 217.2, 43.4, 100.2),
    ("gka", "text-1024", "forward", "softmax", 64.4, 65.2, 32.6, 50.1),
    ("gka", "text-512", "backward", "softmax", 94.0, 95.0, 19.0, 100.2),
    ("gpa", "dickens", "forward", "softmax", 17.2, 17.4, 8.7, 80.1),
    ("gpa", "dickens", "backward", "softmax", 43.1, 43.6, 8.7, 160.3),
    ("karat", "vit-ti", "forward", "karat", 10.2, 10.3, 15.4, 23.1),
    ("karat", "vit-b", "forward", "karat", 40.6, 41.1, 61.7, 92.5),
    ("karat", "vit-ti", "backward", "karat", 24.1, 24.4, 15.4, 46.2),  # 2 × 10.16 and 3.82 of scores
    ("decode", "gka", "forward", "gka", 0.1, 0.1, 0.0, 12.5),
    ("decode", "gka", "forward", "softmax", 0.1, 0.1, 0.0, 25.1),
]


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: "-".join(map(str, figure[:4])))
def test_floors_are_those_worked_out_by_hand(figure):
    name, shape, direction, kind, gflop, *microseconds = figure
    done = work(posed(name, shape, kind), direction)
    assert done.flops / 1e9 == pytest.approx(gflop, abs=0.06)
    actual = floor(done, H100)
    parts = (actual.products, actual.exponentials, actual.memory)
    assert [1e6 * part for part in parts] == pytest.approx(microseconds, abs=0.07)
    assert actual.seconds == max(parts)
    assert actual.issue == 0


def test_what_binds_each_shape():
    bound = {
        (f, s): least(posed(f, s, k), "forward", H100)[2] for f, s, d, k, *_ in FIGURES if d == "forward"
    }
    assert {key for key, name in bound.items() if name == "products"} == {
        ("gka", "text"),
        ("gka", "text-1024"),
    }
    assert set(bound.values()) == {"products", "memory"}


def test_exponentials_take_as_long_as_products_at_a_width_of_64():
    """A half, once and twice of 64: 4 d operations a pair at 989e12 a second, beside one exponential."""
    for width in (32, 64, 128):
        done = floor(work(posed("rbf", "article-8192", width=width), "forward"), H100)
        assert done.products / done.exponentials == pytest.approx(width / 64, rel=2e-3)


def test_one_pass_after_the_other_takes_as_long_as_both():
    text = posed("gka", "text-512", "softmax")
    forward, backward, both = (least(text, each, H100)[:2] for each in ("forward", "backward", "both"))
    assert both == (forward[0] + backward[0], forward[1] + backward[1])


def test_instructions_are_counted_when_given():
    assert floor(work(posed("gka", "vit-ti"), "forward"), H100).issue == 0
    assert floor(Work(1, 1, 1, 1, 1e6), H100).bound == "issue"


def test_a_mask_whose_pairs_depend_on_numbers_has_no_floor():
    x = torch.zeros(1, 1, 4, 8)
    given = make_problem(x, None, None, Gaussian(1.0), mask=Document(torch.zeros(4, dtype=torch.long)))
    with pytest.raises(ValueError, match="depend on its numbers"):
        band(given)


def test_the_rates_of_one_card():
    assert H100.exponentials == pytest.approx(3.865e12, rel=1e-3)
    assert H100.issue == pytest.approx(30.9e12, rel=2e-3)
    assert STATED["H200"].memory / H100.memory == pytest.approx(1 / 0.7, rel=0.01)
    assert roofline.stated("NVIDIA H100 80GB HBM3") is H100
    assert roofline.stated("NVIDIA A100") is None


@pytest.mark.parametrize(("queries", "keys"), [(7, 7), (3, 7), (1, 9)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 1, 3])
def test_visible_pairs_are_counted_as_the_mask_counts_them(queries, keys, causal, window):
    lag = torch.arange(keys - queries, keys)[:, None] - torch.arange(keys)
    allowed = torch.ones_like(lag, dtype=torch.bool)
    allowed &= (lag >= 0) | (not causal)
    allowed &= lag.abs() < (window or 10**6)
    assert visible(queries, keys, causal=causal, window=window) == allowed.sum()
    blocks = {(i // 2, j // 2) for i, j in allowed.nonzero().tolist()}  # tiles of two by two that hold a pair
    wasted = padding(queries, keys, causal=causal, window=window, tile=2)
    assert wasted == pytest.approx(4 * len(blocks) / allowed.sum().item())


def test_the_waste_of_tiles():
    assert padding(197, 197) == pytest.approx(1.69, abs=0.005)
    assert padding(2048, 2048, causal=True) == pytest.approx(1.03, abs=0.005)
    assert padding(2048, 2048, causal=True, window=1024) == pytest.approx(1.06, abs=0.005)
    assert padding(2048, 2048, causal=True, window=512) == pytest.approx(1.12, abs=0.005)
    assert padding(256, 256, causal=True) == pytest.approx(1.25, abs=0.005)


def test_ceilings_of_this_machine():
    rates = roofline.ceilings("cpu")
    assert 1e9 < rates.memory < 1e13 and 1e9 < rates.products < 1e14 and 1e6 < rates.exponentials < 1e12
    assert rates.issue == math.inf


def test_intensity_is_operations_for_a_byte():
    assert work(posed("gka", "vit-ti"), "forward").intensity == pytest.approx(2 * 64 * 197 / 2 / 64)
