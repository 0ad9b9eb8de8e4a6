"""Timed over lengths: the methods of `smooth`, regression, and the next token of a decoder."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gkalib.bench.cases import Case, Sweep
from gkalib.extras import needed_by
from gkalib.kernels import Elu, Gaussian
from gkalib.models import GPT, GPTConfig, gpt
from gkalib.smoothing import Recurrent, smooth

BATCH = HEADS = 4
HEAD_DIM = 64
SIGMA = 8.0**0.5  # √d^½: the temperature of dot-product attention
LENGTHS = {"smoke": (64,), "reduced": (256, 1024), "full": (256, 512, 1024, 2048, 4096, 8192)}
METHODS = ("dense", "padded", "flex", "linear", "auto")


def eager_cdist(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """A Gaussian smoother as one would write it first."""
    return torch.softmax(-torch.cdist(query, key).square() / (2 * SIGMA**2), -1) @ value


def eager_matmul(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The square expanded, so that the work is a matrix product."""
    norms = query.square().sum(-1, keepdim=True) + key.square().sum(-1)[..., None, :]
    return torch.softmax((query @ key.mT - norms / 2) / SIGMA**2, -1) @ value


EAGER = {"eager-cdist": eager_cdist, "eager-matmul": eager_matmul}


def smooth_cases(scale: str, device: str) -> list[Case]:
    """Every arm at every length; the linear method computes its own kernel, the others the Gaussian."""
    sizes = {"device": device, "batch": BATCH, "heads": HEADS, "head_dim": HEAD_DIM, "dtype": "float32"}
    return [{"arm": arm, "n": n, **sizes} for n in LENGTHS[scale] for arm in (*EAGER, *METHODS)]


def prepare_smooth(case: Case) -> Callable[[], Tensor]:
    """The forward pass of one arm on random inputs."""
    torch.manual_seed(0)
    shape = (case["batch"], case["heads"], case["n"], case["head_dim"])
    query, key, value = (torch.randn(shape, device=case["device"]) for _ in range(3))
    return lambda: _smooth_by(case["arm"], query, key, value)


def check_smooth(device: str) -> None:
    """Every arm against the reference in float64, at a length that is no multiple of a block."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(BATCH, HEADS, 197, HEAD_DIM, device=device) for _ in range(3))
    for arm in (*EAGER, *METHODS):
        exact = smooth(query.double(), key.double(), value.double(), _kernel(arm), method="reference")
        error = (_smooth_by(arm, query, key, value) - exact).abs().max().item()
        assert error < 1e-4, f"{arm} is off by {error:.1e} from the reference in float64"


def _kernel(arm: str) -> Elu | Gaussian:
    return Elu() if arm == "linear" else Gaussian(SIGMA)


def _smooth_by(arm: str, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    if arm in EAGER:
        return EAGER[arm](query, key, value)
    return smooth(query, key, value, _kernel(arm), method=arm)


BANDWIDTH = 0.05
COMPARED = {"smoke": 200, "reduced": 2_000, "full": 10_000}
ALONE = {"smoke": 1_000, "reduced": 20_000, "full": 100_000}


def regression_cases(scale: str, device: str) -> list[Case]:
    """Both at the size compared, ours alone at ten times that; each predicts at its own training points."""
    if device != "cpu":
        raise ValueError("bench: regression runs on the cpu, as scikit-learn estimators do")
    return [
        {"arm": "kernel-reg", "n": COMPARED[scale], "bandwidth": BANDWIDTH},
        {"arm": "nadaraya-watson", "n": COMPARED[scale], "bandwidth": BANDWIDTH},
        {"arm": "nadaraya-watson", "n": ALONE[scale], "bandwidth": BANDWIDTH},
    ]


def prepare_regression(case: Case) -> Callable[[], np.ndarray]:
    """Fit outside the clock, predict at every training point inside it."""
    random = np.random.default_rng(0)
    x = random.uniform(size=(case["n"], 1))
    y = np.sin(12 * x[:, 0]) + 0.3 * random.normal(size=case["n"])
    if case["arm"] == "kernel-reg":
        with needed_by("bench regression"):
            from statsmodels.nonparametric.kernel_regression import KernelReg

        bandwidth: Any = [case["bandwidth"]]  # statsmodels annotates it as a string only
        theirs = KernelReg(y, x, var_type="c", reg_type="lc", bw=bandwidth, rng=0)
        return lambda: theirs.fit(x)[0]
    from gkalib.regression import NadarayaWatson  # needs scikit-learn, which a GPU machine may not have

    ours = NadarayaWatson(bandwidth=case["bandwidth"]).fit(x, y)
    return lambda: ours.predict(x)


def check_regression(device: str) -> None:
    """Both give the same fit to rounding."""
    theirs, ours = (
        prepare_regression({"arm": arm, "n": 300, "bandwidth": BANDWIDTH})()
        for arm in ("kernel-reg", "nadaraya-watson")
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-10)


CONTEXTS = {"smoke": (16,), "reduced": (128, 512), "full": (128, 256, 512, 1024, 2048)}
WINDOW = 256
DECODERS = ("softmax-whole", "softmax-cached", "softmax-window", "gka-cached", "linear-state")


def decoder(arm: str, n: int) -> GPT:
    """Four layers of width 256 with heads of 64 numbers; with ``window`` three of them see 256 tokens."""
    windows: dict[str, Any] = {"windows": "SSSL", "short": WINDOW} if arm.endswith("window") else {}
    config = GPTConfig(vocab_size=512, context=n, dim=256, depth=4, num_heads=4, positions="none", **windows)
    torch.manual_seed(0)
    return gpt(config, attention=arm.split("-")[0]).eval()


def decoding_cases(scale: str, device: str) -> list[Case]:
    """Every arm at every length: all tokens again, a cache, a cache with a window, a state."""
    return [
        {"arm": arm, "n": n, "device": device, "dtype": "float32"}
        for n in CONTEXTS[scale]
        for arm in DECODERS
    ]


def prepare_decoding(case: Case) -> Callable[[], Tensor]:
    """The logits after n tokens, the first n − 1 of which were read before if the arm remembers them."""
    n, device = case["n"], case["device"]
    model, tokens = decoder(case["arm"], n).to(device), _text(n, device)
    if case["arm"].endswith("whole"):
        return lambda: model(tokens)[:, -1]
    of_state = case["arm"].endswith("state")
    caches = [Recurrent() for _ in model.blocks] if of_state else model.cache(1)
    with torch.no_grad():
        model(tokens[:, :-1], caches)

    def step() -> Tensor:
        for cache in caches:
            cache.filled = n - 1  # the same token again; a state has then read it more than once
        return model(tokens[:, -1:], caches)[:, -1]

    return step


def check_decoding(device: str) -> None:
    """The first step of every arm against its own model's pass over all tokens."""
    n = WINDOW + 44
    for arm in DECODERS:
        with torch.no_grad():
            actual = prepare_decoding({"arm": arm, "n": n, "device": device})()
            expected = decoder(arm, n).to(device)(_text(n, device))[:, -1]
        error = (actual - expected).abs().max().item()
        assert error < 1e-4, f"{arm} is off by {error:.1e} from reading all tokens at once"


def _text(n: int, device: str) -> Tensor:
    """n tokens, always the same."""
    return torch.randint(512, (1, n), generator=torch.Generator().manual_seed(0)).to(device)


BENCHMARKS = {
    "smooth": Sweep(smooth_cases, prepare_smooth, check_smooth, against=tuple(EAGER)),
    "regression": Sweep(regression_cases, prepare_regression, check_regression, against=("kernel-reg",)),
    "decoding": Sweep(decoding_cases, prepare_decoding, check_decoding, against=("softmax-whole",)),
}
