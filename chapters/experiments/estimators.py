"""Which way to fit pairs of keys and values errs least: constants, lines, ridge regression, or memories.

Nothing is trained. Chapters 14 and 15 read the records.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from gkalib.experiments.runner import Measured, Numbers
from gkalib.kernels import Gaussian
from gkalib.smoothing import smooth

DIMENSIONS, LENGTHS = (4, 8, 16), (16, 64, 256, 1024)  # of a key; pairs
DRAWS, CHOOSING, QUERIES = 200, 40, 16  # of pairs; the first of them, for the settings alone; of each draw
NOISE = 0.2  # standard deviation, in every value; the truth has a mean square of 1
TARGETS = ("linear", "smooth", "switch", "edge")
BLOCK = 50  # draws at once, where every query has weights of its own


class Pairs(NamedTuple):
    """Draws of pairs, and queries with their true answers.

    Args:
        key: unit vectors, ``[r n d]``.
        value: with noise, a column for each target, ``[r n e]``.
        query: unit vectors, ``[r q d]``.
        truth: without noise, ``[r q e]``.
    """

    key: Tensor
    value: Tensor
    query: Tensor
    truth: Tensor


def draw(dim: int, length: int, seed: int, *, edge: bool = False, draws: int = DRAWS) -> Pairs:
    r"""Pairs with the columns linear, smooth, switch; or with ``edge`` alone.

    With $z = \sqrt d\, a^\top k$ for a random direction a they are z; $\sqrt 2 \sin(z + \phi)$ with a random
    phase; and z in the first half of the pairs, $z' = \sqrt d\, a'^\top k$ in the second half and for the
    queries. ``edge`` is the second column, with keys from the half of the sphere where the first coordinate
    is positive, and queries on its border.
    """
    generator = torch.Generator().manual_seed(1000 * seed + 10 * dim + length + edge)
    random = partial(torch.randn, generator=generator, dtype=torch.float64)
    key, query, directions = (random(draws, count, dim) for count in (length, QUERIES, 2))
    if edge:
        key[..., 0].abs_()
        query[..., 0] = 0.0
    key, query, directions = (normalize(each, dim=-1) for each in (key, query, directions))
    phase = 2 * torch.pi * torch.rand(draws, 1, generator=generator, dtype=torch.float64)

    def columns(points: Tensor, newer: Tensor) -> Tensor:
        first, second = (dim**0.5 * (points @ directions.mT)).unbind(-1)
        wave = 2**0.5 * (first + phase).sin()
        all_three = [first, wave, torch.where(newer, second, first)]
        return torch.stack(all_three[1:2] if edge else all_three, -1)

    value = columns(key, torch.arange(length) >= length // 2)
    value = value + NOISE * random(*value.shape)
    return Pairs(key, value, query, columns(query, torch.ones((), dtype=torch.bool)))


def local(pairs: Pairs, sigma: float, ridge: float | None = None) -> Tensor:
    """Nadaraya–Watson with a Gaussian; with a ridge a line at every query."""
    line = {} if ridge is None else {"degree": 1, "ridge": ridge}
    query, key, value = (each[:, None].split(BLOCK) for each in (pairs.query, pairs.key, pairs.value))
    return torch.cat(
        [smooth(*part, kernel=Gaussian(sigma), **line)[:, 0] for part in zip(query, key, value, strict=True)]
    )


def ridge_regression(pairs: Pairs, ridge: float) -> Tensor:
    """One linear map for all queries, which all pairs decide alike: the Mesa layer without forgetting."""
    matrix = pairs.key.mT @ pairs.key + ridge * torch.eye(pairs.key.shape[-1], dtype=torch.float64)
    return pairs.query @ torch.linalg.solve(matrix, pairs.key.mT @ pairs.value)


def sums(pairs: Pairs, decay: float = 1.0) -> Tensor:
    """Linear attention's state S = Σ v kᵀ; with a decay retention's, in which old pairs fade."""
    age = torch.arange(pairs.key.shape[1] - 1, -1, -1, dtype=torch.float64)
    return pairs.query @ (pairs.key.mT @ (decay ** age[:, None] * pairs.value))


def delta(pairs: Pairs, rate: float, decay: float = 1.0) -> Tensor:
    """A state that each pair corrects, S ← aS − β (aSk − v) kᵀ, token by token."""
    state = pairs.key.new_zeros(len(pairs.key), pairs.key.shape[2], pairs.value.shape[2])
    for k, v in zip(pairs.key.unbind(1), pairs.value.unbind(1), strict=True):
        state = decay * state
        state = state + rate * k[:, :, None] * (v - (k[:, None] @ state)[:, 0])[:, None]
    return pairs.query @ state


SIGMAS = tuple(2.0 ** (step / 2) for step in range(-6, 5))
DECAYS = tuple(1 - 2.0**-power for power in range(1, 11))
RATES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


@dataclass(frozen=True)
class Estimator:
    """A way to fit, and the settings that are tried.

    Args:
        answer: from pairs and a setting to the answers, ``[r q e]``.
        settings: the values of each number of a setting.
        scaled: whether its answers are sums without a scale of their own, which is chosen with the setting.
    """

    answer: Callable[..., Tensor]
    settings: tuple[tuple[float, ...], ...] = ()
    scaled: bool = False


ARMS = {
    "constant": Estimator(local, (SIGMAS,)),
    "line": Estimator(local, (SIGMAS, (1e-3, 1e-2, 1e-1, 1.0))),
    "ridge": Estimator(ridge_regression, (tuple(10 ** (power / 2) for power in range(-6, 7)),)),
    "linear": Estimator(sums, scaled=True),
    "retention": Estimator(sums, (DECAYS,), scaled=True),
    "delta": Estimator(delta, (RATES,)),
    "gated-delta": Estimator(delta, (RATES, DECAYS)),
}


def errors(estimator: Estimator, pairs: Pairs, setting: tuple[float, ...]) -> Tensor:
    """The mean squared error of every draw, ``[r e]``, at the scale that is best for the first of them."""
    answers, truth = estimator.answer(pairs, *setting), pairs.truth
    if estimator.scaled:
        products, squares = ((answers * each)[:CHOOSING].sum((0, 1)) for each in (truth, answers))
        answers = answers * products / squares
    return (answers - truth).square().mean(1)


def measure(arm: str, seed: int) -> Numbers:
    """The error by target, dimension and count, with half of its 95 % interval, and the chosen settings."""
    estimator, metrics, rows = ARMS[arm], {}, []
    for dim, length, edge in product(DIMENSIONS, LENGTHS, (False, True)):
        pairs = draw(dim, length, seed, edge=edge)
        tried = list(product(*estimator.settings))
        table = torch.stack([errors(estimator, pairs, setting) for setting in tried])  # [settings r e]
        best = table[:, :CHOOSING].mean(1).argmin(0)
        for column, target in enumerate(TARGETS[3:] if edge else TARGETS[:3]):
            found = table[best[column], CHOOSING:, column]
            half = 1.96 * found.std().item() / len(found) ** 0.5
            metrics |= {f"error_{target}_{dim}_{length}": found.mean().item()}
            metrics |= {f"half_{target}_{dim}_{length}": half}
            setting = " ".join(f"{number:g}" for number in tried[int(best[column])])
            rows.append({"target": target, "dim": dim, "length": length, "setting": setting})
    return metrics, rows


MEASURED = Measured(
    name="estimators",
    arms={name: partial(measure, name) for name in ARMS},
    recipe=lambda arm: {
        "arm": arm,
        "dimensions": list(DIMENSIONS),
        "lengths": list(LENGTHS),
        "draws": DRAWS,
        "choosing": CHOOSING,
        "queries": QUERIES,
        "noise": NOISE,
        "settings": [list(numbers) for numbers in ARMS[arm].settings],
    },
    threads=1,
)

EXPERIMENTS = {MEASURED.name: MEASURED}
