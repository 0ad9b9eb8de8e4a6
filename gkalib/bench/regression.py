"""Nadaraya–Watson regression beside statsmodels' `KernelReg`, and at ten times that size alone."""

from collections.abc import Callable
from typing import Any

import numpy as np

from gkalib.bench.registry import Benchmark, Case

BANDWIDTH = 0.05
COMPARED = {"smoke": 200, "reduced": 2_000, "full": 10_000}
ALONE = {"smoke": 1_000, "reduced": 20_000, "full": 100_000}


def cases(scale: str, device: str) -> list[Case]:
    """Both at the size compared, ours alone at the larger one; each predicts at its own training points."""
    if device != "cpu":
        raise ValueError("bench: regression runs on the cpu, as scikit-learn estimators do")
    return [
        {"arm": "kernel-reg", "n": COMPARED[scale], "bandwidth": BANDWIDTH},
        {"arm": "nadaraya-watson", "n": COMPARED[scale], "bandwidth": BANDWIDTH},
        {"arm": "nadaraya-watson", "n": ALONE[scale], "bandwidth": BANDWIDTH},
    ]


def _points(n: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    x = random.uniform(size=(n, 1))
    return x, np.sin(12 * x[:, 0]) + 0.3 * random.normal(size=n)


def prepare(case: Case) -> Callable[[], np.ndarray]:
    """Fit outside the clock, predict at every training point inside it."""
    x, y = _points(case["n"])
    if case["arm"] == "kernel-reg":
        from statsmodels.nonparametric.kernel_regression import KernelReg

        bandwidth: Any = [case["bandwidth"]]  # statsmodels annotates it as a string only
        other = KernelReg(y, x, var_type="c", reg_type="lc", bw=bandwidth, rng=0)
        return lambda: other.fit(x)[0]
    from gkalib.regression import NadarayaWatson  # needs scikit-learn, which a GPU machine may not have

    ours = NadarayaWatson(bandwidth=case["bandwidth"]).fit(x, y)
    return lambda: ours.predict(x)


def gate(device: str) -> None:
    """Both give the same fit to rounding."""
    fits = [
        prepare({"arm": arm, "n": 300, "bandwidth": BANDWIDTH})() for arm in ("kernel-reg", "nadaraya-watson")
    ]
    np.testing.assert_allclose(fits[1], fits[0], rtol=1e-10)


BENCHMARK = Benchmark(cases, prepare, gate, against=("kernel-reg",))
