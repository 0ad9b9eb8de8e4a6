"""What Gaussian Process Attention's paper states of settings and formulas, cell by cell."""

import numpy as np
import torch

import gkalib
from gkalib.data.text import split_text
from gkalib.kernels import DecayingPeriodicBank
from tests.papers import broken_by, run_of

BANK, RECIPE = "kernels.position", "training.recipes.gpa_dickens"


@broken_by("regression.estimators", ("        return moments\n", "        return 2 * moments\n"))
def test_nadaraya_watson():
    """The library's regression is Σ K(x − x_j) y_j / Σ K(x − x_j), to six digits."""
    x, y = np.linspace(0, 1, 9)[:, None], np.linspace(0, 1, 9) ** 2
    fitted = gkalib.NadarayaWatson(gkalib.kernels.Gaussian, bandwidth=0.2).fit(x, y)
    at = np.array([[0.05], [0.4]])
    kernel = np.exp(-((at - x.T) ** 2) / (2 * 0.2**2))
    np.testing.assert_allclose(fitted.predict(at), kernel @ y / kernel.sum(1), rtol=1e-6)


@broken_by(
    BANK, ("(-2 * (per_term(self.alpha) * sine).square())", "(-1 * (per_term(self.alpha) * sine).square())")
)
def test_a_bank_is_its_formula():
    """G(Δ) is Σ σ² exp(−Δ/ℓ) exp(−2 α² sin²(Δ/τ)) of its parameters at the start, to five digits."""
    bank, lag = DecayingPeriodicBank(1), torch.arange(256.0)[:, None]
    alpha, sigma, length, tau = (
        part[0].detach() for part in (bank.alpha, bank.sigma, bank.log_length.exp(), bank.log_tau.exp())
    )
    by_hand = sigma**2 * (-lag / length).exp() * (-2 * alpha**2 * (lag / tau).sin() ** 2).exp()
    torch.testing.assert_close(bank.lag_table(256)[0], by_hand.sum(-1), rtol=1e-5, atol=0)


@broken_by(
    BANK,
    ("torch.full(shape, float(sigma)))", "torch.full(shape[:1], float(sigma)))"),
    also=("test_a_bank_is_its_formula",),
)
def test_parameters_of_a_bank():
    """A bank of M terms has 4M parameters a head."""
    assert [sum(p.numel() for p in DecayingPeriodicBank(3, m).parameters()) for m in (1, 64)] == [12, 768]


@broken_by("layers.gpa", ("num_terms: int = 64", "num_terms: int = 32"))
def test_terms_of_a_bank():
    """A layer's bank has 64 terms where no other number is asked for."""
    assert gkalib.attention("gpa")(16, 4).kernel.second.alpha.shape == (4, 64)


@broken_by(
    BANK,
    (
        "alpha: float = 1.0,\n        sigma: float = 1.0,\n        length: float = 150.0",
        "alpha: float = 2.0,\n        sigma: float = 1.0,\n        length: float = 150.0",
    ),
    (
        "sigma: float = 1.0,\n        length: float = 150.0",
        "sigma: float = 0.5,\n        length: float = 150.0",
    ),
    ("length: float = 150.0", "length: float = 100.0"),
    ("tau: tuple[float, float] = (4.0, 192.0)", "tau: tuple[float, float] = (2.0, 192.0)"),
    ("torch.linspace(*tau, num_terms).log()", "torch.logspace(0.6, 2.28, num_terms).log()"),
)
def test_start_of_a_bank():
    """α and σ start at 1, ℓ at 150, and τ evenly from 4 to 192."""
    bank = DecayingPeriodicBank(2)
    assert (bank.alpha == 1).all() and (bank.sigma == 1).all()
    torch.testing.assert_close(bank.log_length.exp(), torch.full_like(bank.log_length, 150.0))
    terms = bank.log_tau.shape[1]
    torch.testing.assert_close(bank.log_tau.exp(), torch.linspace(4, 192, terms).repeat(2, 1))


@broken_by(
    RECIPE,
    ("depth=4,", "depth=6,"),
    ("num_heads=4,", "num_heads=8,"),
    ("dim=512,", "dim=256,"),
    ("context=256,", "context=64,"),
)
def test_the_model():
    """The recipe's model has 4 layers of 4 heads, width 512 and context 256."""
    model = run_of("gpa-dickens", "bank-rope").model
    assert (model.depth, model.num_heads, model.dim, model.context) == (4, 4, 512, 256)


@broken_by(
    RECIPE, ("steps=200_000,", "steps=100_000,"), ("batch=256,\n        device", "batch=512,\n        device")
)
def test_training():
    """200,000 steps of 256 windows of 11.7 million characters come to 4.38 epochs of windows."""
    run = run_of("gpa-dickens", "bank-rope")
    assert (run.steps, run.batch) == (200_000, 256)
    assert round(run.steps * run.batch / 11.7e6, 2) == 4.38


@broken_by("data.text", ("cut = len(text) * 9 // 10", "cut = len(text) * 8 // 10"))
def test_split():
    """The first nine tenths of a text's characters are trained on, the last tenth is held out."""
    ([train], [held_out], _) = split_text("state-of-the-union", documents=False)
    assert len(train) == (len(train) + len(held_out)) * 9 // 10
