"""The methods of `smooth` over lengths, beside a Gaussian smoother written in plain PyTorch twice over."""

from collections.abc import Callable

import torch
from torch import Tensor

from gkalib.bench.registry import Benchmark, Case
from gkalib.kernels import Elu, Gaussian
from gkalib.smoothing import smooth

BATCH = HEADS = 4
HEAD_DIM = 64
SIGMA = 8.0**0.5  # √d^½: the temperature of dot-product attention
LENGTHS = {"smoke": (64,), "reduced": (256, 1024), "full": (256, 512, 1024, 2048, 4096, 8192)}
METHODS = ("dense", "padded", "flex", "linear", "auto")


def eager_cdist(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The formula as one would write it first."""
    return torch.softmax(-torch.cdist(query, key).square() / (2 * SIGMA**2), -1) @ value


def eager_matmul(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The square expanded, so that the work is a matrix product."""
    norms = query.square().sum(-1, keepdim=True) + key.square().sum(-1)[..., None, :]
    return torch.softmax((query @ key.mT - norms / 2) / SIGMA**2, -1) @ value


EAGER = {"eager-cdist": eager_cdist, "eager-matmul": eager_matmul}


def cases(scale: str, device: str) -> list[Case]:
    """Every arm at every length; the linear method computes its own kernel, the others the Gaussian."""
    return [
        {
            "arm": arm,
            "n": n,
            "device": device,
            "batch": BATCH,
            "heads": HEADS,
            "head_dim": HEAD_DIM,
            "dtype": "float32",
        }
        for n in LENGTHS[scale]
        for arm in (*EAGER, *METHODS)
    ]


def prepare(case: Case) -> Callable[[], Tensor]:
    """The forward pass of one arm on random inputs."""
    torch.manual_seed(0)
    shape = (case["batch"], case["heads"], case["n"], case["head_dim"])
    query, key, value = (torch.randn(shape, device=case["device"]) for _ in range(3))
    if case["arm"] in EAGER:
        return lambda: EAGER[case["arm"]](query, key, value)
    kernel = Elu() if case["arm"] == "linear" else Gaussian(SIGMA)
    return lambda: smooth(query, key, value, kernel, method=case["arm"])


def gate(device: str) -> None:
    """Every arm against the reference in float64, at a length that is no multiple of a block."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(BATCH, HEADS, 197, HEAD_DIM, device=device) for _ in range(3))
    for arm in (*EAGER, *METHODS):
        kernel = Elu() if arm == "linear" else Gaussian(SIGMA)
        exact = smooth(query.double(), key.double(), value.double(), kernel, method="reference")
        if arm in EAGER:
            actual = EAGER[arm](query, key, value)
        else:
            actual = smooth(query, key, value, kernel, method=arm)
        error = (actual - exact).abs().max().item()
        assert error < 1e-4, f"{arm} is off by {error:.1e} from the reference in float64"


BENCHMARK = Benchmark(cases, prepare, gate, against=tuple(EAGER))
