"""The next token of a small decoder of text: from all tokens again, from a cache, from a state."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gkalib.bench.registry import Benchmark, Case
from gkalib.models import GPT, GPTConfig, gpt
from gkalib.smoothing import Recurrent

LENGTHS = {"smoke": (16,), "reduced": (128, 512), "full": (128, 256, 512, 1024, 2048)}
WINDOW = 256
ARMS = ("softmax-whole", "softmax-cached", "softmax-window", "gka-cached", "linear-state")


def model(arm: str, n: int) -> GPT:
    """Four layers of width 256 with heads of 64 numbers; with ``window`` three of them see 256 tokens."""
    windows: dict[str, Any] = {"windows": "SSSL", "short": WINDOW} if arm.endswith("window") else {}
    config = GPTConfig(vocab_size=512, context=n, dim=256, depth=4, num_heads=4, positions="none", **windows)
    torch.manual_seed(0)
    return gpt(config, attention=arm.split("-")[0]).eval()


def cases(scale: str, device: str) -> list[Case]:
    """Every arm at every length."""
    return [
        {"arm": arm, "n": n, "device": device, "dtype": "float32"} for n in LENGTHS[scale] for arm in ARMS
    ]


def tokens(n: int, device: str) -> Tensor:
    """One text of n tokens, always the same."""
    return torch.randint(512, (1, n), generator=torch.Generator().manual_seed(0)).to(device)


def prepare(case: Case) -> Callable[[], Tensor]:
    """The logits after n tokens, the first n − 1 of which were read before if the arm remembers them."""
    n, device = case["n"], case["device"]
    decoder, ids = model(case["arm"], n).to(device), tokens(n, device)
    if case["arm"].endswith("whole"):
        return lambda: decoder(ids)[:, -1]
    of_state = case["arm"].endswith("state")
    caches = [Recurrent() for _ in decoder.blocks] if of_state else decoder.cache(1)
    with torch.no_grad():
        decoder(ids[:, :-1], caches)

    def step() -> Tensor:
        for cache in caches:
            cache.filled = n - 1  # the same token again; a state has then read it more than once
        return decoder(ids[:, -1:], caches)[:, -1]

    return step


def gate(device: str) -> None:
    """The first step of every arm against its own model's pass over all tokens."""
    n = WINDOW + 44
    for arm in ARMS:
        with torch.no_grad():
            remembered = prepare({"arm": arm, "n": n, "device": device})()
            whole = model(arm, n).to(device)(tokens(n, device))[:, -1]
        error = (remembered - whole).abs().max().item()
        assert error < 1e-4, f"{arm} is off by {error:.1e} from reading all tokens at once"


BENCHMARK = Benchmark(cases, prepare, gate, against=("softmax-whole",))
