"""How far each approximation is from the exact sum, on a trained model's heads: chapters 11, 12 and 13."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, partial
from statistics import fmean

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from chapters.experiments.approximations import features, low_rank, structure
from gkalib.data import Heads, trained_heads
from gkalib.experiments.runner import Measured, Numbers
from gkalib.kernels import Elu, ExpDot, Gaussian
from gkalib.normalizers import Unnormalized
from gkalib.results import load
from gkalib.smoothing import Skyformer, attention_weights, smooth
from gkalib.smoothing.methods.landmarks import pseudo_inverse, segment_means

PASSAGES, LENGTH = 4, 256  # measured on these; as many others are aside, for what has to be fitted


@dataclass(frozen=True)
class Trial:
    """One approximation to make.

    Args:
        size: how many landmarks, features or terms.
        layer: the layer of the model that the heads are of, from 0.
        aside: the same layer's heads on other text, to fit on.
        generator: the source of everything drawn.
    """

    size: int
    layer: int
    aside: Heads
    generator: torch.Generator


@dataclass(frozen=True)
class Arm:
    """An approximation and the exact sum that it stands for.

    Args:
        exact: from a layer's heads to the exact output ``[b h n e]``.
        approximate: from the heads and a trial to the approximate output.
        sizes: the sizes to try.
        flops: from a size and the heads to floating-point operations; None counts matrix products as they
            run, which misses Fourier transforms and decompositions.
    """

    exact: Callable[[Heads], Tensor]
    approximate: Callable[[Heads, Trial], Tensor]
    sizes: tuple[int, ...] = (8, 16, 32, 64, 128)
    flops: Callable[[int, Heads], float] | None = None


def softmax(heads: Heads) -> Tensor:
    """The model's own attention."""
    return smooth(*heads, ExpDot())


def mean_value(heads: Heads, trial: Trial) -> Tensor:
    """The mean of the values for every query: what knowing nothing costs."""
    return heads.value.mean(2, keepdim=True).expand_as(heads.value)


def best_of_rank(heads: Heads, trial: Trial) -> Tensor:
    """The weights cut to their largest singular values: no matrix of that rank is nearer to them."""
    left, middle, right = torch.linalg.svd(attention_weights(heads.query, heads.key, ExpDot()))
    rank = slice(None, trial.size)
    return (left[..., rank] * middle[..., None, rank]) @ (right[..., rank, :] @ heads.value)


def by_features(approximation: Callable[[Heads, int, int], Tensor]) -> Callable[[Heads, Trial], Tensor]:
    """An approximation by random features, with rows of a seed that the trial draws."""
    return lambda heads, trial: approximation(
        heads, trial.size, int(torch.randint(2**31, (), generator=trial.generator))
    )


def kernelized(scale: float) -> Callable[[Heads, Trial], Tensor]:
    """Kernelized attention with relative positions, with features of a seed that the trial draws."""
    return lambda heads, trial: structure.kernelized(
        heads,
        trial.aside,
        trial.size,
        int(torch.randint(2**31, (), generator=trial.generator)),
        scale=scale,
    )


NUMBERS = (16, 32, 64, 128, 256, 512, 1024)  # of features
DIMENSIONS = (1, 2, 3, 4, 6, 8, 16, 32)  # kept of queries and keys

ARMS = {
    "mean": Arm(softmax, mean_value, sizes=(1,)),
    "truncated-svd": Arm(softmax, best_of_rank),
    "nystrom": Arm(softmax, lambda heads, trial: low_rank.nystrom(heads, trial.size, 6)),
    "nystrom-inverse": Arm(softmax, lambda heads, trial: low_rank.nystrom(heads, trial.size, None)),
    "linformer-means": Arm(
        softmax,
        lambda heads, trial: low_rank.linformer_of_means(heads, trial.size),
        flops=low_rank.linformer_flops,
    ),
    "linformer": Arm(
        softmax,
        lambda heads, trial: low_rank.linformer_fitted(heads, trial.size, trial.layer, trial.generator),
        flops=low_rank.linformer_flops,
    ),
    "skyformer": Arm(
        low_rank.gaussian_sum, lambda heads, trial: low_rank.skyformer(heads, trial.size, trial.generator)
    ),
    "performer": Arm(softmax, by_features(features.positive), sizes=NUMBERS),
    "performer-centered": Arm(softmax, by_features(features.centered), sizes=NUMBERS),
    "random-fourier": Arm(softmax, by_features(features.fourier), sizes=NUMBERS),
    "elu": Arm(softmax, lambda heads, trial: smooth(*heads, Elu()), sizes=(32,)),
    "lag-table": Arm(softmax, lambda heads, trial: structure.lags_only(heads, trial.aside), sizes=(1,)),
    "cosine-and-lags": Arm(
        softmax,
        lambda heads, trial: structure.cosine_and_lags(heads, trial.aside, float(trial.size)),
        sizes=(1, 2, 4, 8),  # what the cosine is multiplied with
    ),
    "fft-rpe": Arm(softmax, kernelized(1.0), flops=structure.toeplitz_flops),
    "fft-rpe-scale-4": Arm(softmax, kernelized(4.0), flops=structure.toeplitz_flops),
    "few-dimensions": Arm(
        softmax, lambda heads, trial: structure.few_dimensions(heads, trial.size), sizes=DIMENSIONS
    ),
    "fast-gauss": Arm(
        softmax,
        lambda heads, trial: structure.fast_gauss(heads, trial.size),
        sizes=(1, 2, 4, 8, 32),
        flops=structure.fast_gauss_flops,
    ),
}


def relative_error(approximate: Tensor, exact: Tensor) -> Tensor:
    """‖approximate − exact‖ / ‖exact‖ of each head, over all passages and tokens, ``[h]``."""
    difference, whole = (part.square().sum((0, 2, 3)) for part in (approximate - exact, exact))
    return (difference / whole).sqrt()


def by_steps(heads: Heads, rank: int, iterations: int | None) -> Tensor:
    """What some steps toward the inverse do, ``[3 h]``; None is the inverse itself.

    The residual ‖AZA − A‖/‖A‖ of the inverse for segment means, the error of softmax attention through these
    landmarks, and the error of the Gaussian sum through as many queries and as many keys, with λ = 0.001.
    """
    few_queries, few_keys = segment_means(heads.query, rank, None), segment_means(heads.key, rank, None)
    middle = attention_weights(few_queries, few_keys, ExpDot())
    again = middle @ pseudo_inverse(middle, iterations) @ middle
    kernel = Gaussian(heads.query.shape[-1] ** 0.25)
    lift = Skyformer(2 * rank, ridge=1e-3, iterations=iterations)
    lifted = smooth(*heads, kernel, normalizer=Unnormalized(), method=lift)
    return torch.stack(
        [
            relative_error(again, middle),
            relative_error(low_rank.nystrom(heads, rank, iterations), softmax(heads)),
            relative_error(lifted, low_rank.gaussian_sum(heads)),
        ]
    )


@cache
def _trained() -> tuple[list[Heads], list[Heads]]:
    """Every layer's heads on the text measured on, and on the text that is aside."""
    layers = trained_heads(2 * PASSAGES, LENGTH).heads
    on, aside = (
        [Heads(*(part[first::2].double() for part in heads)) for heads in layers] for first in (0, 1)
    )
    return on, aside


def errors(arm: str, seed: int) -> Numbers:
    """The mean error by size, with its share of the exact sum's operations, and a row for every head."""
    chosen, metrics, rows = ARMS[arm], {}, []
    for size in chosen.sizes:
        by_layer, counted = [], 0.0
        for layer, (heads, aside) in enumerate(zip(*_trained(), strict=True)):
            generator = torch.Generator().manual_seed(seed * 1000 + layer)
            # Counting watches every operation, which makes loops over small tensors many times slower.
            counter = FlopCounterMode(display=False)
            with counter if chosen.flops is None else nullcontext():
                approximate = chosen.approximate(heads, Trial(size, layer, aside, generator))
            counted += counter.get_total_flops() if chosen.flops is None else chosen.flops(size, heads)
            by_layer.append(relative_error(approximate, chosen.exact(heads)))
            rows += [
                {"size": size, "layer": layer, "head": head, "error": error}
                for head, error in enumerate(by_layer[-1].tolist())
            ]
        table = torch.stack(by_layer)
        metrics[f"err_{size}"] = table.mean().item()
        metrics[f"median_{size}"] = table.median().item()
        metrics |= {f"err_layer{n}_{size}": row.mean().item() for n, row in enumerate(table, start=1)}
        metrics[f"gflops_{size}"] = counted / 1e9
    return metrics, rows


def recorded(arm: str) -> tuple[list[int], list[float]]:
    """The sizes of an arm and its recorded error at each of them, the mean over seeds."""
    runs = load("approximations", arm=arm)
    sizes = [size for size in ARMS[arm].sizes if f"err_{size}" in runs[0].metrics]
    return sizes, [fmean(run.metrics[f"err_{size}"] for run in runs) for size in sizes]


MEASURED = Measured(
    name="approximations",
    arms={name: partial(errors, name) for name in ARMS},
    recipe=lambda name: {
        "arm": name,
        "passages": PASSAGES,
        "length": LENGTH,
        "sizes": list(ARMS[name].sizes),
    },
)

EXPERIMENTS = {MEASURED.name: MEASURED}
