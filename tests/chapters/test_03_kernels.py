"""The numbered equations of chapter 3, each computed by the library and by its formula."""

import numpy as np
import pytest
import torch

import gkalib
from gkalib import kernels

YEARS = torch.arange(-150.0, 151.0, dtype=torch.float64)
FREQUENCIES = np.array([0.0, 0.03, 1 / 11, 0.2, 0.31])


def column(x) -> torch.Tensor:
    return torch.as_tensor(x, dtype=torch.float64).reshape(1, 1, -1, 1)


def gram(kernel, a, b) -> torch.Tensor:
    return kernel(column(a), column(b))[0, 0]


def waves() -> torch.Tensor:
    """One wave a column, symmetric about the middle of the years."""
    return torch.cos(2 * torch.pi * YEARS[:, None] * torch.as_tensor(FREQUENCIES))


def cosine_sum(kernel) -> np.ndarray:
    kappa = gram(kernel, [0.0], YEARS)[0].numpy()
    return np.cos(2 * np.pi * np.outer(FREQUENCIES, YEARS)) @ kappa


@pytest.mark.parametrize(
    "kernel", [kernels.Boxcar(8.0), kernels.Gaussian(4.0), kernels.Laplace(5.0)], ids=repr
)
def test_smoothing_multiplies_a_wave(kernel):
    out = gkalib.smooth(column([0.0]), column(YEARS), waves()[None, None], kernel)[0, 0, 0]
    total = cosine_sum(kernel)
    np.testing.assert_allclose(out, total / total[0], atol=1e-10)


def test_products_add_scores():
    delta = np.abs(np.subtract.outer(YEARS.numpy(), YEARS.numpy()))
    score = -delta / 40 - 2 * np.sin(np.pi * delta / 11) ** 2 / 0.8**2
    built = kernels.Laplace(40.0) * kernels.Periodic(0.8, period=11.0)
    np.testing.assert_allclose(built.log(column(YEARS), column(YEARS))[0, 0], score, rtol=1e-10, atol=1e-12)


def test_sums_mix_scores():
    delta = np.abs(np.subtract.outer(YEARS.numpy(), YEARS.numpy()))
    score = np.logaddexp(-delta / 40, -(delta**2) / 50)
    built = kernels.Laplace(40.0) + kernels.Gaussian(5.0)
    np.testing.assert_allclose(built.log(column(YEARS), column(YEARS))[0, 0], score, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("kernel", "formula"),
    [
        (kernels.Gaussian(1.0), lambda w: np.sqrt(2 * np.pi) * np.exp(-(w**2) / 2)),
        (kernels.Laplace(1.0), lambda w: 2 / (1 + w**2)),
        (kernels.Matern(1.0, nu=1.5), lambda w: 12 * np.sqrt(3) / (3 + w**2) ** 2),
        (kernels.Matern(1.0, nu=2.5), lambda w: 400 * np.sqrt(5) / 3 / (5 + w**2) ** 3),
        (kernels.RationalQuadratic(1.0, alpha=2.0), lambda w: np.pi * (1 + 2 * w) * np.exp(-2 * w)),
        (kernels.Boxcar(1.0), lambda w: 2 * np.sinc(w / np.pi)),
        (kernels.Epanechnikov(1.0), lambda w: 4 * (np.sin(w) - w * np.cos(w)) / w**3),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, kernels.Kernel) else "formula",
)
def test_spectrum(kernel, formula):
    lag = np.arange(-40, 40.001, 0.004)
    kappa = gram(kernel, [0.0], lag)[0].numpy()
    w = np.linspace(0.5, 12, 12)
    numbers = [np.trapezoid(kappa * np.cos(one * lag), lag) for one in w]
    np.testing.assert_allclose(numbers, formula(w), atol=5e-3)


def test_process_multiplies_a_wave():
    kernel, noise = kernels.Laplace(5.0), 0.7
    K = gram(kernel, YEARS, YEARS)
    row = torch.linalg.solve(K + noise * torch.eye(len(YEARS), dtype=torch.float64), K[150])
    total = cosine_sum(kernel)
    np.testing.assert_allclose(row @ waves(), total / (total + noise), atol=1e-8)


def test_much_noise_makes_a_process_an_average():
    kernel = kernels.Gaussian(6.0)
    y = torch.stack([torch.sin(YEARS / 9) + YEARS / 100, torch.ones_like(YEARS)], dim=1)
    average = gkalib.smooth(column(YEARS), column(YEARS), y[None, None, :, :1], kernel)[0, 0, :, 0]
    K, gaps = gram(kernel, YEARS, YEARS), []
    for noise in (1e4, 1e5):
        mean = K @ torch.linalg.solve(K + noise * torch.eye(len(YEARS), dtype=torch.float64), y)
        gaps.append((mean[:, 0] / mean[:, 1] - average).abs().max().item())
    assert gaps[1] < 1e-3
    assert gaps[0] / gaps[1] == pytest.approx(10, rel=0.05)


def test_exp_dot_is_positive_and_not_shift_invariant():
    x = torch.randn(1, 1, 40, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    kernel = kernels.ExpDot(0.3)
    K = kernel(x, x)[0, 0]
    series = sum((0.3 * (x @ x.mT)[0, 0]) ** n / np.prod(np.arange(1.0, n + 1)) for n in range(60))
    torch.testing.assert_close(K, series, rtol=1e-9, atol=1e-9)
    assert torch.linalg.eigvalsh(K)[0] > 0
    assert not torch.allclose(kernel(x + 1, x + 1)[0, 0], K)


def test_a_term_of_the_bank_is_a_product():
    bank = kernels.DecayingPeriodicBank(
        1, 1, alpha=1 / 0.8, length=40.0, tau=(11 / np.pi, 11 / np.pi)
    ).double()
    product = kernels.Laplace(40.0) * kernels.Periodic(0.8, period=11.0)
    expected = gram(product, [0.0], np.arange(120.0))[0]
    torch.testing.assert_close(bank.lag_table(120)[0].detach(), expected, rtol=1e-5, atol=1e-6)


def test_exponential_of_the_bank_is_positive():
    generator = torch.Generator().manual_seed(2)
    bank = kernels.DecayingPeriodicBank(6, 8).double()
    for parameter in bank.parameters():
        parameter.data += 0.7 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    G = bank.lag_table(128).detach()
    alpha, sigma, length, tau = (bank.alpha, bank.sigma, bank.log_length.exp(), bank.log_tau.exp())
    lag = torch.arange(128.0, dtype=torch.float64)[:, None, None]
    terms = sigma**2 * (-lag / length).exp() * (-2 * alpha**2 * torch.sin(lag / tau) ** 2).exp()
    torch.testing.assert_close(G, terms.sum(-1).T.detach())
    position = torch.arange(128)
    relative = (G[:, (position[:, None] - position).abs()] - G[:, :1, None]).exp()
    assert torch.linalg.eigvalsh(relative).min() > -1e-10
