"""What every kernel must be, and what each claims to be."""

import math

import pytest
import torch
from sklearn.gaussian_process import kernels as oracle

from gkalib import kernels
from tests.cases import HEADS, KERNELS, SIGMAS
from tests.tolerance import equal

COUNT, DIM = 30, 3
CONTENT = [name for name, case in KERNELS.items() if not case.make(DIM).of_lag]


def _points(scale: float = 1.0) -> torch.Tensor:
    return scale * torch.randn(1, HEADS, COUNT, DIM, dtype=torch.float64)


def _lag(count: int = COUNT) -> torch.Tensor:
    return torch.arange(count)[:, None] - torch.arange(count)


def _claim(claim: str, names=KERNELS) -> list[str]:
    return [name for name in names if getattr(KERNELS[name], claim)]


@pytest.mark.parametrize("name", KERNELS)
def test_values_are_the_exponential_of_the_logarithm(name):
    kernel = KERNELS[name].make(DIM)
    query, key = _points(), _points()
    values = kernel(query, key, _lag())
    assert values.shape == (1, HEADS, COUNT, COUNT)
    if kernel.signed:
        with pytest.raises(ValueError, match="negative"):
            kernel.log(query, key, _lag())
    else:
        assert (values >= 0).all()
        equal(values, kernel.log(query, key, _lag()).exp())


@pytest.mark.parametrize("name", KERNELS)
def test_symmetry_is_as_claimed(name):
    kernel = KERNELS[name].make(DIM)
    query, key = _points(), _points()
    values, swapped = kernel(query, key, _lag()), kernel(key, query, -_lag().T).mT
    if KERNELS[name].symmetric:
        equal(values, swapped)
    else:
        assert ((values - swapped).abs() > 1e-3).any()


@pytest.mark.parametrize("name", _claim("semidefinite"))
def test_positive_semidefinite(name):
    x = _points()
    gram = KERNELS[name].make(DIM)(x, x, _lag())
    smallest = torch.linalg.eigvalsh(gram).min(-1).values
    assert (smallest > -1e-12 * gram.abs().amax((-1, -2)) * COUNT).all()


@pytest.mark.parametrize("name", [n for n in KERNELS if n not in _claim("semidefinite")])
def test_not_positive_semidefinite(name):
    """The kernels that do not claim it have a Gram matrix with a clearly negative eigenvalue."""
    smallest = 0.0
    for scale in (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0):
        x = _points(scale)
        smallest = min(smallest, torch.linalg.eigvalsh(KERNELS[name].make(DIM)(x, x, _lag())).min().item())
    assert smallest < -1e-3


@pytest.mark.parametrize("name", CONTENT)
def test_shift_invariance_is_as_claimed(name):
    kernel = KERNELS[name].make(DIM)
    query, key, shift = _points(), _points(), torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
    moved, still = kernel(query + shift, key + shift), kernel(query, key)
    if KERNELS[name].shift_invariant:
        equal(moved, still)
    else:
        assert ((moved - still).abs() > 1e-3).any()


@pytest.mark.parametrize("name", CONTENT)
def test_rotation_invariance_is_as_claimed(name):
    kernel = KERNELS[name].make(DIM)
    query, key = _points(), _points()
    rotation = torch.linalg.qr(torch.randn(DIM, DIM, dtype=torch.float64)).Q
    turned, still = kernel(query @ rotation, key @ rotation), kernel(query, key)
    if KERNELS[name].rotation_invariant:
        equal(turned, still)
    else:
        assert ((turned - still).abs() > 1e-3).any()


@pytest.mark.parametrize("name", KERNELS)
def test_form_is_the_logarithm(name):
    kernel = KERNELS[name].make(DIM)
    form = kernel.form(DIM)
    if form is None:
        assert name not in ("gaussian", "expdot", "bank", "product", "product-with-bank")
        return
    query, key = _points(), _points()
    scale, norm = (
        torch.as_tensor(number, dtype=torch.float64).reshape(-1, 1, 1) for number in (form.scale, form.norm)
    )
    squares = query.square().sum(-1)[..., None] + key.square().sum(-1)[..., None, :]
    scores = scale * (query @ key.mT) - norm / 2 * squares
    if form.key_bias is not None:
        scores = scores + form.key_bias(key)[..., None, :]
    if form.lag_table is not None:
        scores = scores + form.lag_table(COUNT, COUNT)[:, _lag() + COUNT - 1]
    equal(scores, kernel.log(query, key, _lag()))


SKLEARN = {
    "gaussian": (lambda s: kernels.Gaussian(s), lambda s: oracle.RBF(s)),
    "laplace": (lambda s: kernels.Laplace(s), lambda s: oracle.Matern(s, nu=0.5)),
    "matern-1/2": (lambda s: kernels.Matern(s, nu=0.5), lambda s: oracle.Matern(s, nu=0.5)),
    "matern-3/2": (lambda s: kernels.Matern(s, nu=1.5), lambda s: oracle.Matern(s, nu=1.5)),
    "matern-5/2": (lambda s: kernels.Matern(s, nu=2.5), lambda s: oracle.Matern(s, nu=2.5)),
    "rational-quadratic": (
        lambda s: kernels.RationalQuadratic(s, alpha=0.7),
        lambda s: oracle.RationalQuadratic(s, alpha=0.7),
    ),
    "periodic": (
        lambda s: kernels.Periodic(s, period=3.0),
        lambda s: oracle.ExpSineSquared(s, periodicity=3.0),
    ),
}


@pytest.mark.parametrize("sigma", SIGMAS.tolist())
@pytest.mark.parametrize("name", SKLEARN)
def test_equals_scikit_learn(name, sigma):
    ours, theirs = (make(sigma) for make in SKLEARN[name])
    query, key = _points()[:, :1], _points()[:, :1]
    equal(ours(query, key)[0, 0], torch.from_numpy(theirs(query[0, 0].numpy(), key[0, 0].numpy())))


PER_HEAD = {  # kernels by the numbers that they take one a head of
    "rational-quadratic": lambda alpha: kernels.RationalQuadratic(1.0, alpha=alpha),
    "periodic": lambda period: kernels.Periodic(1.0, period=period),
    "both": lambda number: kernels.Periodic(number, period=number) * kernels.Gaussian(2.0),
    "random-fourier": lambda sigma: kernels.RandomFourier(DIM, 8, sigma=sigma),
    "positive-random": lambda scale: kernels.PositiveRandom(DIM, 8, scale=scale),
}


@pytest.mark.parametrize("count", [3, 5])  # as many keys as heads, or another number
@pytest.mark.parametrize("name", PER_HEAD)
def test_a_number_for_each_head_is_that_heads(name, count):
    x, numbers = torch.randn(2, 3, count, DIM, dtype=torch.float64), torch.tensor([0.5, 1.0, 4.0]).double()
    kernel = PER_HEAD[name](numbers)
    assert kernel.heads() == 3
    alone = [
        PER_HEAD[name](number)(x[:, i : i + 1], x[:, i : i + 1]) for i, number in enumerate(numbers.tolist())
    ]
    equal(kernel(x, x), torch.cat(alone, 1))


@pytest.mark.parametrize("name", ["epanechnikov", "boxcar", "tricube"])
def test_compact_kernels_end_at_sigma(name):
    kernel = KERNELS[name].make(1)
    query = torch.zeros(1, HEADS, 1, 1, dtype=torch.float64)
    edge = 3 * SIGMAS[None, :, None, None]
    assert (kernel(query, 0.999 * edge) > 0).all()
    assert (kernel.log(query, edge) == -torch.inf).all()


def test_compact_profiles():
    query, key = torch.zeros(1, 1, 1, 1, dtype=torch.float64), torch.ones(1, 1, 1, 1, dtype=torch.float64)
    assert math.isclose(kernels.Epanechnikov(2.0)(query, key).item(), 3 / 4)
    assert kernels.Boxcar(2.0)(query, key).item() == 1
    assert math.isclose(kernels.Tricube(2.0)(query, key).item(), (7 / 8) ** 3)


def test_bank_as_the_paper_starts_it():
    bank = kernels.DecayingPeriodicBank(3)
    assert sum(p.numel() for p in bank.parameters()) == 3 * 4 * 64
    table = bank.lag_table(256)
    assert table.shape == (3, 256) and torch.allclose(table[:, 0], torch.tensor(64.0))
    tau = torch.linspace(4, 192, 64)
    lag = torch.arange(256.0)[:, None]
    by_hand = (torch.exp(-lag / 150) * torch.exp(-2 * torch.sin(lag / tau) ** 2)).sum(-1)
    torch.testing.assert_close(table[0], by_hand, rtol=1e-5, atol=0)


def test_mixture_of_two_zeros_is_zero_with_zero_gradient():
    kernel = kernels.Boxcar(1.0) + kernels.Epanechnikov(1.0)
    query = torch.zeros(1, 1, 1, 1, requires_grad=True)
    value = kernel.log(query, torch.full((1, 1, 1, 1), 5.0))
    assert value.item() == -torch.inf
    assert torch.autograd.grad(value.exp().sum(), query)[0].item() == 0


def test_random_fourier_features_are_unbiased():
    query, key = torch.randn(2, 1, 1, 6, 4, dtype=torch.float64)
    exact = kernels.Gaussian(1.5)(query, key)
    draws = torch.stack(
        [kernels.RandomFourier(4, 8, sigma=1.5, seed=seed)(query, key) for seed in range(500)]
    )
    error = (draws.mean(0) - exact).abs() / (draws.std(0) / math.sqrt(len(draws)))
    assert error.max() < 4.5
