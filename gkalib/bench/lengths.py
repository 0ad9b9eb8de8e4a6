"""Timed over lengths: the methods of `smooth`, and the next token of a decoder."""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gkalib.bench import timing
from gkalib.bench.attention import WRONG
from gkalib.bench.problems import Recipe
from gkalib.bench.timing import Row
from gkalib.kernels import Elu, Gaussian
from gkalib.models import GPT, GPTConfig, gpt
from gkalib.smoothing import Recurrent, smooth

KEPT = ("ms", "ms_q10", "ms_q90", "peak_mib", "process_mib")
SECONDS = 6.0  # of repeated runs

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


def smooth_shapes(scale: str, device: str) -> dict[str, Recipe]:
    """Every arm over the lengths; the linear method computes its own kernel, the others the Gaussian."""
    sizes = {"device": device, "batch": BATCH, "heads": HEADS, "head_dim": HEAD_DIM, "dtype": "float32"}
    return {
        arm: {"arm": arm, "lengths": [*LENGTHS[scale]], "scale": scale, **sizes} for arm in (*EAGER, *METHODS)
    }


def prepare_smooth(recipe: Recipe, n: int) -> Callable[[], Tensor]:
    """The forward pass of one arm on random inputs."""
    torch.manual_seed(0)
    shape = (recipe["batch"], recipe["heads"], n, recipe["head_dim"])
    query, key, value = (torch.randn(shape, device=recipe["device"]) for _ in range(3))
    return lambda: _smooth_by(recipe["arm"], query, key, value)


def check_smooth(recipe: Recipe) -> None:
    """An arm against the reference in float64, at a length that is no multiple of a block."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(BATCH, HEADS, 197, HEAD_DIM, device=recipe["device"]) for _ in range(3))
    wide, arm = (query.double(), key.double(), value.double()), recipe["arm"]
    exact = smooth(*wide, _kernel(arm), method="reference")
    error = (_smooth_by(arm, query, key, value) - exact).abs().max().item()
    assert error < 1e-4, f"{arm} is off by {error:.1e} from the reference in float64"


def _kernel(arm: str) -> Elu | Gaussian:
    return Elu() if arm == "linear" else Gaussian(SIGMA)


def _smooth_by(arm: str, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    if arm in EAGER:
        return EAGER[arm](query, key, value)
    return smooth(query, key, value, _kernel(arm), method=arm)


CONTEXTS = {"smoke": (16,), "reduced": (128, 512), "full": (128, 256, 512, 1024, 2048)}
WINDOW = 256
DECODERS = ("softmax-whole", "softmax-cached", "softmax-window", "gka-cached", "linear-state")


def decoder(arm: str, n: int) -> GPT:
    """Four layers of width 256 with heads of 64 numbers; with ``window`` three of them see 256 tokens."""
    windows: dict[str, Any] = {"windows": "SSSL", "short": WINDOW} if arm.endswith("window") else {}
    config = GPTConfig(vocab_size=512, context=n, dim=256, depth=4, num_heads=4, positions="none", **windows)
    torch.manual_seed(0)
    return gpt(config, attention=arm.split("-")[0]).eval()


def decoding_shapes(scale: str, device: str) -> dict[str, Recipe]:
    """Every arm over the lengths: all tokens again, a cache, a cache with a window, a state."""
    sizes = {"device": device, "dtype": "float32", "scale": scale}
    return {arm: {"arm": arm, "lengths": [*CONTEXTS[scale]], **sizes} for arm in DECODERS}


def prepare_decoding(recipe: Recipe, n: int) -> Callable[[], Tensor]:
    """The logits after n tokens, the first n − 1 of which were read before if the arm remembers them."""
    arm, device = recipe["arm"], recipe["device"]
    model, tokens = decoder(arm, n).to(device), _text(n, device)
    if arm.endswith("whole"):
        return lambda: model(tokens)[:, -1]
    caches = [Recurrent() for _ in model.blocks] if arm.endswith("state") else model.cache(1)
    with torch.no_grad():
        model(tokens[:, :-1], caches)

    def step() -> Tensor:
        for cache in caches:
            cache.filled = n - 1  # the same token again; a state has then read it more than once
        return model(tokens[:, -1:], caches)[:, -1]

    return step


def check_decoding(recipe: Recipe) -> None:
    """The first step of an arm against its own model's pass over all tokens."""
    n, arm, device = WINDOW + 44, recipe["arm"], recipe["device"]
    with torch.no_grad():
        actual = prepare_decoding(recipe, n)()
        expected = decoder(arm, n).to(device)(_text(n, device))[:, -1]
    error = (actual - expected).abs().max().item()
    assert error < 1e-4, f"{arm} is off by {error:.1e} from reading all tokens at once"


def _text(n: int, device: str) -> Tensor:
    """n tokens, always the same."""
    return torch.randint(512, (1, n), generator=torch.Generator().manual_seed(0)).to(device)


def time_smooth(recipe: Recipe) -> list[Row]:
    """A row a length of one arm of the methods."""
    return _timed(prepare_smooth, check_smooth, recipe)


def time_decoding(recipe: Recipe) -> list[Row]:
    """A row a length of one decoder."""
    return _timed(prepare_decoding, check_decoding, recipe)


def _timed(
    prepare: Callable[[Recipe, int], Callable[[], Tensor]], check: Callable[[Recipe], None], recipe: Recipe
) -> list[Row]:
    """Times and memory at every length, unless the arm is wrong; the row then says so.

    ``peak_mib`` is what a run takes beyond the inputs, ``process_mib`` the whole process's peak.
    """
    rows: list[Row] = []
    try:
        check(recipe)
    except AssertionError as error:
        return [{"arm": recipe["arm"], "n": "", "ms": "", "reason": f"{WRONG}: {error}"}]
    for n in recipe["lengths"]:
        with torch.no_grad():
            call, start = prepare(recipe, n), time.perf_counter()
            call()  # compiles, allocates, warms caches
            timing.wait(recipe["device"])
            first = 1e3 * (time.perf_counter() - start)
            peak, whole = timing.peak_mib(call, recipe["device"])
            ms = timing.times([call], recipe["device"], seconds=SECONDS)
        row = {"arm": recipe["arm"], "n": n, **timing.columns(ms), "ms_first": first, "runs": len(ms)}
        memory = {"peak_mib": peak, "process_mib": whole}
        rows.append({**row, **memory, "threads": torch.get_num_threads(), "reason": ""})
    return rows


def summarize(rows: list[Row]) -> dict[str, float]:
    """The metrics of an arm, ``<column>_<length>``."""
    timed = [row for row in rows if row["ms"] != ""]
    metrics = {f"{column}_{row['n']}": row[column] for row in timed for column in KEPT}
    return metrics | {"wrong": float(len(rows) - len(timed))}
