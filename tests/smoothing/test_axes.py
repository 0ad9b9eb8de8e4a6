"""Fewer axes than four, NumPy arrays and whole numbers give what four axes of floating point give."""

import subprocess
import sys

import numpy as np
import pytest
import torch

import gkalib
from gkalib import kernels, masks
from gkalib.smoothing.axes import problem_of
from gkalib.smoothing.problem import ROW_SUM

B, H, N, M, D, E = 2, 3, 5, 7, 4, 2
KERNEL = kernels.Gaussian(torch.tensor([0.5, 1.0, 2.0]).double())
SIZES = {1: (), 2: (), 3: (H,), 4: (B, H)}  # in front of the rows


def draw(axes: int, rows: int, width: int = D) -> torch.Tensor:
    return torch.randn(*SIZES[axes], rows, *([width] if axes > 1 else [])).double()


def whole(x: torch.Tensor, axes: int) -> torch.Tensor:
    """With four axes, sequences and heads that share it among them."""
    x = x[:, None] if x.ndim == 1 else x
    return x.reshape(*(1,) * (4 - x.ndim), *x.shape).expand(B if axes == 4 else 1, *(-1,) * 3)


@pytest.mark.parametrize("array", [False, True])
@pytest.mark.parametrize("values", ["none", "alike", "m", "m e"])
@pytest.mark.parametrize("axes", SIZES)
def test_what_is_given_comes_back(axes: int, values: str, array: bool):
    kernel = KERNEL if axes > 2 else kernels.Gaussian(2.0)
    query, key = draw(axes, N), draw(axes, M)
    value = {"none": None, "alike": draw(axes, M, E), "m": draw(1, M), "m e": draw(2, M, E)}[values]
    shown = torch.rand(*SIZES[axes], N, M) > 0.3
    shown[..., 0] = True
    bias = torch.randn(*SIZES[axes], N, M).double()
    given = {"mask": shown, "bias": bias, "positions": (torch.arange(N), torch.arange(M))}
    wanted = gkalib.smooth(
        whole(query, axes), whole(key, axes), None if value is None else whole(value, axes), kernel, **given
    )
    weights = gkalib.attention_weights(whole(query, axes), whole(key, axes), kernel, **given)
    wanted = wanted[..., 0] if (key if value is None else value).ndim == 1 else wanted
    wanted, weights = (x if axes == 4 else x[0] if axes == 3 else x[0, 0] for x in (wanted, weights))
    if array:
        query, key, value = (None if x is None else x.numpy() for x in (query, key, value))
        given = {"mask": shown.numpy(), "bias": bias.numpy(), "positions": (np.arange(N), np.arange(M))}
    have = gkalib.smooth(query, key, value, kernel, **given)
    have_weights = gkalib.attention_weights(query, key, kernel, **given)
    assert type(have) is type(have_weights) is (np.ndarray if array else torch.Tensor)
    torch.testing.assert_close(torch.as_tensor(have), wanted)
    torch.testing.assert_close(torch.as_tensor(have_weights), weights)
    assert "auto takes" in str(gkalib.explain(query, key, value, kernel, **given))


@pytest.mark.parametrize("axes", SIZES)
def test_one_tensor_stays_one_and_learns(axes: int):
    x = draw(axes, N).requires_grad_()
    given = (kernels.Gaussian(1.0), None, None, ROW_SUM, None)
    for array in (x, x.detach().numpy(), torch.arange(5)):
        assert problem_of("smooth", array, array, array, *given)[0].one_tensor
        assert problem_of("smooth", array, None, None, *given)[0].one_tensor
        assert not problem_of("smooth", array, array, array + 1, *given)[0].one_tensor
    out = gkalib.smooth(x, kernel=kernels.Gaussian(1.0, learn=True), mask=masks.Causal())
    assert out.shape == x.shape
    (slope,) = torch.autograd.grad(out.square().sum(), x)
    four = gkalib.smooth(
        x.reshape(B if axes == 4 else 1, H if axes > 2 else 1, N, -1),
        kernel=kernels.Gaussian(1.0),
        mask=masks.Causal(),
    )
    torch.testing.assert_close(slope, torch.autograd.grad(four.square().sum(), x)[0])


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        ((torch.arange(5),), torch.float32),
        ((torch.arange(5), torch.rand(5).double()), torch.float64),
        ((np.arange(5),), np.float64),
        ((np.arange(5), np.ones(5, np.float32)), np.float32),
        ((np.arange(5)[::-1].astype(">f8"),), np.float64),  # backwards, and of another machine
    ],
)
def test_whole_numbers_are_floating_point(given, dtype):
    assert gkalib.smooth(*given, kernel=kernels.Gaussian(1.0)).dtype == dtype


X = torch.randn(N, D)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (([1.0, 2.0],), r"query must be a tensor or a NumPy array, not \[1.0, 2.0\]"),
        ((X, X.numpy()), "key is a NumPy array, query a tensor: give both as one kind"),
        ((X.numpy(), X), "key is a tensor, query a NumPy array: give both as one kind"),
        ((X, X[:, 0]), r"key must have as many axes as query \(query \[5 4\], key \[5\]\)"),
        ((X, X, X[None]), r"value must have as many axes as query, or be \[m\] or \[m e\] \(query"),
        ((X[0, 0],), r"query must be \[n\], \[n d\], \[h n d\] or \[b h n d\], not of 0 axes"),
        ((X > 0,), "query must be real numbers, not torch.bool"),
        ((X.numpy() > 0,), "query must be real numbers, not torch.bool"),
        ((np.array(["a", "b"]),), "query must be real numbers, not an array of <U1"),
        ((np.ma.masked_invalid([1.0, np.nan]),), "query is a masked array; what is hidden is said by mask="),
        ((X, X[:, :2]), "key has head dimension 2, query has 4"),
    ],
)
def test_what_does_not_fit_is_said(given, message: str, as_a_user):
    with pytest.raises(ValueError, match=f"^smooth: {message}"):
        gkalib.smooth(*given)


def test_arrays_of_a_kernel_that_learns():
    out = gkalib.smooth(X.numpy(), kernel=kernels.Gaussian(1.0, learn=True))
    assert isinstance(out, np.ndarray)


def test_arrays_under_autocast_and_another_default_device():
    x = np.random.default_rng(0).normal(size=(N, D)).astype(np.float32)
    exact = gkalib.smooth(x)
    with torch.autocast("cpu", torch.bfloat16):
        np.testing.assert_allclose(gkalib.smooth(x), exact, atol=0.05)
    with torch.device("meta"):
        np.testing.assert_array_equal(gkalib.smooth(x), exact)


COMPILED = """
import torch, gkalib
for shape in ((5,), (5, 4), (3, 5, 4)):
    x = torch.randn(shape)
    def smoothed(x):
        return gkalib.smooth(x, mask=gkalib.masks.Causal()), gkalib.smooth(x, x, x)
    compiled = torch.compile(smoothed, backend="eager", fullgraph=True)
    for length in (5, 6, 7):  # its length is kept open from the second on
        torch.testing.assert_close(compiled(x), smoothed(x))
        x = torch.cat([x, x[..., :1] if x.ndim == 1 else x[..., :1, :]], dim=max(x.ndim - 2, 0))
"""


def test_few_axes_are_compiled_whole():
    """In a process without shape checks."""
    subprocess.run([sys.executable, "-c", COMPILED], check=True)
