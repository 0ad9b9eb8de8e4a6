"""Two models on the same questions: the paired error by its definition, McNemar's test by SciPy's."""

import numpy as np
import pytest
from scipy.stats import binomtest

from gkalib.evaluation import compare


def drawn(seed: int, count: int, same: float) -> tuple[list[bool], list[bool]]:
    """Answers of two models, of which the second repeats the first with a probability."""
    rng = np.random.default_rng(seed)
    first = rng.random(count) < 0.6
    second = np.where(rng.random(count) < same, first, rng.random(count) < 0.5)
    return first.tolist(), second.tolist()


@pytest.mark.parametrize("same", [0.0, 0.5, 0.9])
def test_the_error_is_that_of_the_mean_difference(same):
    first, second = drawn(0, 200, same)
    actual = compare(first, second)
    differences = np.array(first, float) - np.array(second, float)
    assert actual.difference == pytest.approx(differences.mean())
    assert actual.error == pytest.approx(differences.std(ddof=1) / np.sqrt(200))
    unpaired = np.sqrt(np.var(first) / 199 + np.var(second) / 199)
    if same:
        assert actual.error < unpaired


def test_the_probability_is_that_of_a_fair_coin():
    for seed in range(5):
        actual = compare(*drawn(seed, 60, 0.7))
        exact = binomtest(actual.only_first, actual.only_first + actual.only_second).pvalue
        assert actual.probability == pytest.approx(exact)
    alike = compare([True, False, True], [True, False, True])
    assert (alike.difference, alike.error, alike.only_first, alike.only_second) == (0, 0, 0, 0)
    assert alike.probability == 1.0
