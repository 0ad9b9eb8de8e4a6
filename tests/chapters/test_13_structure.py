"""The statements of chapter 13 that no test of the library states as they stand there."""

import torch

from gkalib.kernels import LagTable
from gkalib.normalizers import Unnormalized
from gkalib.smoothing import smooth
from tests.tolerance import equal


def test_a_circle_of_twice_the_length_holds_the_product():
    """T x by Fourier transforms of length 2n, whatever number stands at place n, and by ``smooth``."""
    n = 13
    table = LagTable(1, n).double()
    torch.nn.init.normal_(table.bias)
    t, x = table.bias[0].exp(), torch.randn(n, 3, dtype=torch.float64)
    toeplitz = torch.stack([t[i + n - 1 - torch.arange(n)] for i in range(n)])
    for number in (0.0, -3.0, 50.0):
        circle = torch.cat([t[n - 1 :], torch.full((1,), number, dtype=torch.float64), t[: n - 1]])
        product = torch.fft.fft(circle)[:, None] * torch.fft.fft(x, 2 * n, dim=0)
        equal(torch.fft.ifft(product, dim=0).real[:n], toeplitz @ x)
    query = torch.zeros(1, 1, n, 1, dtype=torch.float64)
    sums = smooth(query, query, x[None, None], table, normalizer=Unnormalized(), method="toeplitz")
    equal(sums[0, 0], toeplitz @ x)


def test_the_rounding_of_a_row_is_relative_to_the_largest_sum():
    """In float32, with weights that grow up to a millionfold; the library's float64 follows the same rule."""
    n, growth = 256, 1e6
    lag = torch.arange(1 - n, n, dtype=torch.float64)
    t = torch.where(lag < 0, 0.0, growth ** (lag / (n - 1)))
    x = torch.rand(n, 1, dtype=torch.float64) + 0.5  # positive, so that a row's sum is that of its sizes
    exact = t[torch.arange(n)[:, None] - torch.arange(n) + n - 1] @ x
    circle = torch.cat([t[n - 1 :], t.new_zeros(1), t[: n - 1]]).float()
    product = torch.fft.fft(circle)[:, None] * torch.fft.fft(x.float(), 2 * n, dim=0)
    error = (torch.fft.ifft(product, dim=0).real[:n] / exact - 1).abs()
    predicted = torch.finfo(torch.float32).eps * exact.max() / exact
    ratio = error / predicted
    assert ratio.max() < 5 and 0.02 < ratio.median() < 5
    assert (error[:20].mean() / error[-20:].mean()) > 1e4  # the early rows' sums are small
    query = torch.zeros(1, 1, n, 1, dtype=torch.float64)
    table = LagTable(1, n).double()
    table.bias.data = t.clamp(min=1e-300).log()[None]
    sums = smooth(query, query, x[None, None], table, normalizer=Unnormalized(), method="toeplitz")
    double = torch.finfo(torch.float64).eps * exact.max() / exact
    assert ((sums[0, 0] / exact - 1).abs() < 5 * double + 1e-12).all()


def test_the_error_of_a_ratio():
    """No errors of numerator and denominator within their bounds move the ratio more than the bound says."""
    votes = torch.rand(200, 30, dtype=torch.float64)
    votes = votes / votes.sum(1, keepdim=True)
    values, kernel = torch.randn(2, 200, 30, dtype=torch.float64)
    kernel = (-kernel.square()).exp()
    share, whole = (votes * kernel).sum(1), (votes * values.abs()).sum(1)
    out = (votes * kernel * values).sum(1) / share
    worst = torch.zeros(200, dtype=torch.float64)
    eps = 0.2 * share
    for first in (-1, 0, 1):
        for second in (-1, 0, 1):
            found = (share * out + first * eps * whole) / (share + second * eps)
            worst = torch.maximum(worst, (found - out).abs())
    bound = eps / (share - eps) * (out.abs() + whole)
    assert (worst <= bound * (1 + 1e-12)).all()
    assert torch.allclose(worst, bound)  # and some of them do
