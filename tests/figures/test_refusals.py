"""What figures of the chapters refuse, in their words.

That they draw what they are given, the digests in the chapters' outputs hold.
"""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from chapters.experiments.walks import random_walk
from chapters.figures import (
    benchmarks,
    bias_and_rows,
    bounded_confidence,
    gpa_dickens,
    karat_cifar,
    kernels,
    language_models,
    looking_inside,
    non_local_means,
    triton_backward,
)
from chapters.figures import landscapes_and_spectra as landscapes
from chapters.figures import vision_transformers as vision
from gkalib.analysis.landscape import Surface, trajectory_plane
from gkalib.bench.roofline import STATED
from gkalib.kernels import Laplace
from gkalib.models import GPTConfig

SIZES = GPTConfig(vocab_size=7, context=8, dim=8, depth=1, num_heads=1)
IMAGES = {"dark": [np.ones((4, 4))] * 3}


def planes() -> dict:
    """Two runs of different lengths."""
    return {name: trajectory_plane(random_walk(count, 50, seed=0)) for name, count in (("a", 10), ("b", 20))}


def axes() -> plt.Axes:
    return plt.figure().subplots()


REFUSALS = {
    "cuDNN has 1 rates for 2 lengths": lambda: benchmarks.shares(
        {("cuDNN", 128): (400,)}, (128, 4096), STATED["H100"]
    ),
    "no tile of 4 at 3, 0": lambda: bias_and_rows.tile(3, 0),
    r"\[n\] in float64, not \[3\] in float32": lambda: bias_and_rows.errors(np.ones(3, np.float32)),
    r"^zip\(\) argument 2 is longer": lambda: bounded_confidence.gallery(IMAGES, ["first"]),
    r"^zip\(\) argument 2 is shorter": lambda: bounded_confidence.gallery(IMAGES, list("abcd")),
    "3 panels do not fill rows of 2": lambda: gpa_dickens.banks(
        dict.fromkeys("abc", np.ones((2, 1))), columns=2
    ),
    r"^bars: each cost needs the arms a, b, in this order": lambda: karat_cifar.bars(
        {"GB": {"a": 1, "b": 2}, "seconds": {"b": 2, "a": 1}}, limits=(0.1, 10)
    ),
    r"shape \[8\]; it must be \[n draws\]": lambda: kernels.draws(Laplace(5.0), np.ones(8)),
    "^components: the runs have 11, 21 snapshots": lambda: landscapes.components(
        planes(), {"a": "black", "b": "blue"}
    ),
    "^surface: needs 0 < lowest": lambda: landscapes.surface(
        axes(), Surface(*torch.eye(3)[:2], torch.eye(3)), lines=(1,), lowest=0, highest=1
    ),
    "an excerpt has 9 tokens, and the text only 9": lambda: language_models.usual_run(
        torch.zeros(9, dtype=torch.long), SIZES, steps=1
    ),
    r"argument 2 is shorter than": lambda: looking_inside.beside(
        torch.rand(2, 8, 8), {"one": torch.rand(1, 4)}
    ),
    "^patch_grid: 5 weights make no square": lambda: looking_inside.beside(
        torch.rand(2, 8, 8), {"one": torch.rand(2, 5)}
    ),
    r"frame 3 around \(0, 3\) leaves the 6 × 7 pixels": lambda: non_local_means.framed(
        {"clean": np.ones((6, 7))}, {"3": (0, 3, "sky")}, radius=1
    ),
    "blur has 4 tokens for 9 pixels": lambda: non_local_means.weight_maps(
        np.zeros((3, 3)), {"blur": torch.zeros(4, 2)}, {}
    ),
    "are not 11 × 11 pixels of 2 × 2": lambda: non_local_means.weight_maps(
        np.zeros((2, 2)), {"blur": torch.zeros(4, 2)}, {"top": (0, 0)}, near={"blur"}
    ),
    r"images are \[2, 2\] and \[3, 2\]": lambda: non_local_means.removed(
        np.ones((2, 2)), np.ones((3, 2)), title=""
    ),
    "two matrices are compared, not 1": lambda: non_local_means.spectra(
        {"one": ([1.0], np.ones((1, 1)))}, shape=(1, 1)
    ),
    "two-sided window, blocks 0 to 7; not causal, 8": lambda: triton_backward.owners("causal", 8),
    "argument 2 is shorter": lambda: vision.images([axes()], []),
}


@pytest.mark.parametrize("said", REFUSALS)
def test_what_cannot_be_drawn_is_refused(said):
    with pytest.raises(ValueError, match=said):
        REFUSALS[said]()
