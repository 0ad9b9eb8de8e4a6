"""What a kernel touches is recorded in the interpreter, and an attempt at a puzzle is judged."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from chapters.lab import puzzles
from chapters.lab.watch import attempt, picture, products, times, watched
from gkalib.smoothing.fused.launch import interpreting
from tests.lab import page_kernels as kernels

pytestmark = pytest.mark.skipif(not interpreting(), reason="Triton's interpreter is off")


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(37, 16, dtype=torch.float64), torch.empty(37, dtype=torch.float64)


def test_each_program_loads_its_rows_once():
    x, out = inputs()
    with watched(x=x, out=out) as accesses:
        kernels.norms_kernel[(3,)](x, out, 37, B=16, D=16)
    assert (times(accesses, "x", x) == 1).all() and (times(accesses, "out", out) == 1).all()
    last = times(accesses, "x", x, program=2)
    assert (last[:32] == 0).all() and (last[32:] == 1).all()
    assert [one.kind for one in accesses] == 3 * ["load", "store"]


def test_keys_are_loaded_by_every_program():
    q, k, v = torch.randn(3, 32, 16, dtype=torch.float64)
    out, scale = torch.empty_like(q), torch.ones(1, dtype=torch.float64)
    with watched(key=k, query=q) as accesses:
        kernels.row_kernel[(2,)](q, k, v, out, scale, 32, B=16, D=16)
    assert (times(accesses, "key", k) == 2).all() and (times(accesses, "query", q) == 1).all()
    weights = (q @ k.mT).softmax(-1)
    torch.testing.assert_close(out, weights @ v)
    figure = picture(accesses, key=k, query=q)
    assert len(figure.axes) == 4
    np.testing.assert_array_equal(
        figure.axes[1].images[0].get_array(), times(accesses, "query", q, program=0)
    )


def test_products_are_counted_by_program():
    q, k, v = torch.randn(3, 32, 16, dtype=torch.float64)
    given = q, k, v, torch.empty_like(q), torch.ones(1, dtype=torch.float64), 32
    with products() as found:
        kernels.row_kernel[(2,)](*given, B=16, D=16)
    assert found == [0] * 4 + [1] * 4, "two tiles of two products each"
    kernels.row_kernel[(2,)](*given, B=16, D=16)
    assert len(found) == 8


def test_nothing_is_recorded_afterwards():
    x, out = inputs()
    with watched(x=x) as accesses:
        pass
    kernels.norms_kernel[(3,)](x, out, 37, B=16, D=16)
    assert accesses == []


def test_an_attempt_is_judged(capsys):
    x, out = inputs()
    expected = {"out": x.square().sum(-1)}
    attempt(kernels.nothing_kernel, 3, x, out, 37, expected=expected, B=16, D=16)
    assert "out: 37 of 37 elements are wrong, 37 of them NaN" in capsys.readouterr().out
    figure = attempt(kernels.norms_kernel, 3, x, out, 37, expected=expected, B=16, D=16)
    assert "out: right" in capsys.readouterr().out
    # a title stands where the style in use has it
    titles = [axes.get_title("left") + axes.get_title("center") for axes in figure.axes[:2]]
    assert titles == ["x", "out"]


def test_what_follows_a_right_attempt_is_printed_and_only_then(capsys):
    x, out = inputs()
    for kernel, right in ((kernels.norms_kernel, True), (kernels.nothing_kernel, False)):
        expected = {"out": x.square().sum(-1)}
        attempt(kernel, 3, x, out, 37, expected=expected, then=lambda: "then", B=16, D=16)
        assert ("then" in capsys.readouterr().out.splitlines()) == right


def test_what_lies_outside_is_said(capsys):
    """Tensors that are neighbors in memory: what is read past the one is not the other."""
    x, out = torch.randn(2, 37, 1, dtype=torch.float64)
    for _ in range(20):
        attempt(kernels.loose_kernel, 3, x, out, 37, expected={"out": 2 * x}, then=lambda: "then", B=16)
        said = ["instance 2 loads 11 elements outside x", "instance 2 stores 11 elements outside out"]
        assert capsys.readouterr().out.splitlines()[:2] == said


def test_nothing_is_stored_outside():
    x, around, strays = torch.ones(48).double(), torch.full((48,), 7.0).double(), []
    out = around[:37]
    with watched(strays, x=x, out=out):
        kernels.loose_kernel[(3,)](x, out, 37, B=16)
    assert (out == 2).all() and (around[37:] == 7).all()
    assert [(one.kind, one.tensor, one.elements.tolist()) for one in strays] == [
        ("store", "out", list(range(37, 48)))
    ]


def test_a_masked_element_without_other_is_nan(capsys):
    x, out = torch.randn(100).double(), torch.empty(1).double()
    attempt(kernels.sum_kernel, 1, x, out, 100, expected={"out": x.sum()[None]}, B=128)
    assert "out: 1 of 1 elements are wrong, 1 of them NaN" in capsys.readouterr().out


def test_a_hidden_score_of_zero_is_found(capsys):
    puzzles.online(kernels.zero_kernel)
    assert "out: 1 of 3 elements are wrong" in capsys.readouterr().out
