"""The labeled equations of chapter 5, and scikit-image's non-local means taken apart."""

import numpy as np
import pytest
import torch
from skimage.restoration import denoise_nl_means
from torch.nn.functional import pad, unfold

import gkalib
from gkalib.kernels import Dot, ExpDot, Gaussian, Kernel
from gkalib.normalizers import Unnormalized

SIZE, WIDTH, RADIUS = 24, 7, 5


@pytest.fixture
def noisy() -> np.ndarray:
    picture = gkalib.data.picture("brick")[96 : 96 + 2 * SIZE : 2, 96 : 96 + 2 * SIZE : 2]
    return picture + 0.1 * np.random.default_rng(0).standard_normal(picture.shape)


@pytest.fixture
def positions() -> torch.Tensor:
    axis = torch.arange(SIZE, dtype=torch.float64)
    return torch.cartesian_prod(axis, axis)[None, None]


def bump(width: int) -> np.ndarray:
    """The weights of a patch, summing to one."""
    u = np.arange(width) - width // 2
    a = np.exp(-(u[:, None] ** 2 + u**2) / (2 * max((width - 1) / 4, 1) ** 2))
    return a / a.sum()


def patches(picture: np.ndarray) -> torch.Tensor:
    padded = pad(torch.as_tensor(picture)[None, None], [WIDTH // 2] * 4, mode="reflect")
    return unfold(padded, WIDTH).mT[:, None] * torch.as_tensor(bump(WIDTH)).sqrt().reshape(-1)


def tokens(picture: np.ndarray) -> torch.Tensor:
    return torch.as_tensor(picture).reshape(1, 1, -1, 1)


def in_window(positions: torch.Tensor) -> torch.Tensor:
    return ((positions[0, 0, :, None] - positions[0, 0]).abs() <= RADIUS).all(-1)


def test_non_local_means_is_smooth_over_patches(noisy):
    h, r = 0.06, WIDTH // 2
    padded, a = np.pad(noisy, r, mode="reflect"), bump(WIDTH)
    views = np.lib.stride_tricks.sliding_window_view(padded, (WIDTH, WIDTH)).reshape(-1, WIDTH, WIDTH)
    squared = (a * (views[:, None] - views) ** 2).sum((-1, -2))
    weights = np.exp(-squared / (2 * h**2))
    expected = (weights / weights.sum(1, keepdims=True)) @ noisy.ravel()
    query = patches(noisy) / h
    found = gkalib.smooth(query, query, tokens(noisy), Gaussian(1.0)).flatten().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_positions_as_queries_are_a_gaussian_blur(noisy, positions):
    u = np.arange(SIZE)
    line = np.exp(-((u[:, None] - u) ** 2) / (2 * 1.3**2))
    line /= line.sum(1, keepdims=True)
    query = positions / 1.3
    found = gkalib.smooth(query, query, tokens(noisy), Gaussian(1.0)).reshape(SIZE, SIZE).numpy()
    np.testing.assert_allclose(found, line @ noisy @ line.T, rtol=1e-10)


def test_joined_coordinates_are_a_product_of_kernels(noisy, positions):
    values = tokens(noisy)
    joined = torch.cat([positions / 1.5, values / 0.3], -1)
    found = Gaussian(1.0)(joined, joined)
    product = Gaussian(1.5)(positions, positions) * Gaussian(0.3)(values, values)
    torch.testing.assert_close(found, product)


def test_moments_of_the_distance_of_two_noisy_patches():
    level, a = 0.1, bump(WIDTH)
    shots = level * np.random.default_rng(1).standard_normal((2, 20000, WIDTH, WIDTH))
    query, key = (torch.as_tensor(shot * np.sqrt(a)).reshape(20000, 1, 1, -1) for shot in shots)
    squared = -2 * Gaussian(1.0).log(query, key).flatten().numpy()
    # four standard errors of a mean and of a standard deviation of 20,000 draws
    assert abs(squared.mean() / (2 * level**2) - 1) < 4 * np.sqrt(2 * (a**2).sum() / 20000)
    assert abs(squared.std() / squared.mean() / np.sqrt(2 * (a**2).sum()) - 1) < 0.04


class TakenApart(Kernel):
    """scikit-image's exact mode: each of its three departures from a Gaussian can be left out."""

    def __init__(
        self, h: float, noise: float, *, center: bool = False, cut: bool = True, integers: bool = True
    ):
        super().__init__()
        self.h, self.noise, self.center, self.cut, self.integers = h, noise, center, cut, integers

    def log(self, query, key, lag=None):
        middle = WIDTH * WIDTH // 2
        total = torch.zeros((), dtype=query.dtype)
        first = (query[..., middle, None] - key[..., None, :, middle]) ** 2 / self.h**2
        given_up = (first > 1) & self.center
        for row, share in enumerate(bump(WIDTH).sum(1)):
            part = slice(row * WIDTH, (row + 1) * WIDTH)
            given_up = given_up | ((total > 5) & self.cut)
            apart = torch.cdist(query[..., part], key[..., part], compute_mode="donot_use_mm_for_euclid_dist")
            total = total + (apart**2 - 2 * self.noise**2 * share) / self.h**2
        score = -total.clamp(min=0)
        if self.integers:
            # Schraudolph's exponential: y scaled and shifted is the upper half of the bits of exp(y)
            upper = np.trunc(2**20 / np.log(2) * score.numpy()).astype(np.int64) + 1072632447
            score = torch.from_numpy(np.log((upper << 32).view(np.float64)))
        return score.masked_fill(given_up, -torch.inf)


@pytest.mark.parametrize(("h", "noise"), [(0.1, 0.0), (0.06, 0.1), (0.1, 0.1)])
def test_scikit_image_step_by_step(noisy, positions, h, noise):
    theirs = denoise_nl_means(noisy, WIDTH, RADIUS, h, fast_mode=False, sigma=noise)

    def largest(**parts):
        query = patches(noisy)
        kernel = TakenApart(h, noise, **parts)
        ours = gkalib.smooth(query, query, tokens(noisy), kernel, mask=in_window(positions))
        return np.abs(ours.reshape(SIZE, SIZE).numpy() - theirs).max()

    assert largest() < 1e-6
    assert 1e-6 < largest(integers=False) < 1e-2
    assert largest(center=True) > 1e-2  # a rule of older versions: not applied in the one installed
    if noise == 0:
        assert largest(cut=False) > 1e-2


@pytest.fixture
def smoother(noisy):
    query = patches(noisy) / 0.06
    K = Gaussian(1.0)(query, query)[0, 0]
    return gkalib.attention_weights(query, query, Gaussian(1.0))[0, 0], K.sum(1)


def basis(W: torch.Tensor, r: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    S = r.sqrt()[:, None] * W / r.sqrt()
    eigenvalues, u = torch.linalg.eigh((S + S.T) / 2)
    return eigenvalues, u / r.sqrt()[:, None]


def test_detailed_balance_and_spectrum(smoother):
    W, r = smoother
    flow = r[:, None] * W
    torch.testing.assert_close(flow, flow.T)
    S = r.sqrt()[:, None] * W / r.sqrt()
    torch.testing.assert_close(S, S.T)
    eigenvalues = torch.linalg.eigvals(W)
    assert eigenvalues.imag.abs().max() < 1e-10
    assert eigenvalues.real.min() > -1e-10
    assert abs(eigenvalues.real.max() - 1) < 1e-10


def test_steps_are_powers_of_eigenvalues(smoother, noisy):
    W, r = smoother
    eigenvalues, e = basis(W, r)
    y = tokens(noisy)[0, 0]
    beta = e.T @ (r[:, None] * y)
    for t in (1, 2, 5):
        after = torch.linalg.matrix_power(W, t) @ y
        torch.testing.assert_close(e.T @ (r[:, None] * after), eigenvalues[:, None] ** t * beta)


def test_the_two_non_local_averages():
    torch.manual_seed(0)
    theta, phi, g = (torch.randn(2, 1, n, 4, dtype=torch.float64) for n in (9, 6, 6))
    embedded = torch.softmax(theta @ phi.mT, -1) @ g
    torch.testing.assert_close(gkalib.smooth(theta, phi, g, ExpDot(1.0)), embedded)
    dot = theta @ phi.mT @ g / 6
    torch.testing.assert_close(gkalib.smooth(theta, phi, g, Dot(), normalizer=Unnormalized()) / 6, dot)
