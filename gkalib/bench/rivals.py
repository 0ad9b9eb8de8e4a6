"""What a user could take in the place of the library's methods: PyTorch's backends, eager, FlexAttention."""

from collections.abc import Callable
from functools import cache
from typing import Any, no_type_check

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

from gkalib.bench.registry import Case
from gkalib.masks import Causal, Mask, Window, joined

BACKENDS = {
    "sdpa-cudnn": SDPBackend.CUDNN_ATTENTION,
    "sdpa-flash": SDPBackend.FLASH_ATTENTION,
    "sdpa-efficient": SDPBackend.EFFICIENT_ATTENTION,
}

Tensors = dict[str, Any]  # query, key, value; sigma, table or operator where the family has one
Forward = Callable[[Tensors], Tensor]


def mask_of(case: Case) -> Mask | None:
    """The rule of a case; in decoding every key of the cache is seen."""
    if case["queries"] != case["keys"]:
        return None
    window = None if case["window"] is None else Window(case["window"])
    return joined(Causal() if case["causal"] else None, window)


@cache
def _allowed(length: int, window: int | None, device: str) -> Tensor:
    at = torch.arange(length, device=device)
    lag = at[:, None] - at
    return (lag >= 0) if window is None else (lag >= 0) & (lag < window)


def allowed_of(case: Case) -> Tensor | None:
    """The same pair by pair, made once, for what can only take it so."""
    return None if mask_of(case) is None else _allowed(case["keys"], case["window"], case["device"])


def sdpa(case: Case, backend: SDPBackend, *, windowed: bool = True) -> Forward:
    """PyTorch's attention by one of its backends; a window is a matrix of ones and zeros to it."""
    window = windowed and case["window"] is not None
    causal = mask_of(case) is not None and not window

    def forward(i: Tensors) -> Tensor:
        with sdpa_kernel(backend):
            return scaled_dot_product_attention(
                i["query"],
                i["key"],
                i["value"],
                attn_mask=allowed_of(case) if window else None,
                is_causal=causal,
            )

    return forward


def eager(case: Case, scores: Callable[[Tensors], Tensor]) -> Forward:
    """Scores in float32, softmax and values, each a tensor of its own."""
    allowed = allowed_of(case)

    def forward(i: Tensors) -> Tensor:
        found = scores(i)
        found = found if allowed is None else found.masked_fill(~allowed, -torch.inf)
        value = i["value"]
        return torch.softmax(found, -1).to(value.dtype) @ value

    return forward


def gaussian_scores(i: Tensors) -> Tensor:
    """log κ of a Gaussian without the query's term, which the row sum takes out."""
    precision = i["sigma"][:, None, None] ** -2
    norms = i["key"].float().square().sum(-1)[..., None, :]
    return precision * ((i["query"] @ i["key"].mT).float() - norms / 2)


def lag_scores(i: Tensors) -> Tensor:
    """Scaled dot products and a table of lags."""
    queries, keys = i["query"].shape[2], i["key"].shape[2]
    lag = torch.arange(keys - queries, keys, device=i["query"].device)[:, None]
    lag = (lag - torch.arange(keys, device=i["query"].device)).abs()
    return (i["query"] @ i["key"].mT).float() * i["query"].shape[-1] ** -0.5 + i["table"][:, lag]


@no_type_check  # FlexAttention counts the arguments of the functions it is given
def flex(case: Case, prepare: Callable[[Tensors], tuple[float, Callable]]) -> Forward:
    """FlexAttention, compiled, skipping the blocks that the mask leaves empty.

    ``prepare`` gives the factor of the dot product and the function that changes a score. The list of blocks
    is made at the first call, outside the clock.
    """
    window = case["window"]

    @no_type_check
    def sees(b, h, i, j):
        return (i >= j) & (i - j < window) if window is not None else i >= j

    def with_blocks(block_mask):
        def forward(i):
            scale, score_mod = prepare(i)
            given = i["query"], i["key"], i["value"]
            return flex_attention(*given, score_mod=score_mod, block_mask=block_mask, scale=scale)

        return torch.compile(forward, dynamic=False)

    made = []

    def forward(i):
        if not made:
            sizes = case["queries"], case["keys"]
            masked = mask_of(case) is not None
            made.append(
                with_blocks(
                    create_block_mask(sees, None, None, *sizes, device=case["device"]) if masked else None
                )
            )
        return made[0](i)

    return forward


def flex_gaussian(i: Tensors) -> tuple[float, Callable]:
    """A Gaussian for ``flex``: the norms of the keys are captured, and get their gradient through it."""
    precision = i["sigma"] ** -2
    bias = -0.5 * precision[:, None] * i["key"].float().square().sum(-1)
    return 1.0, lambda score, b, h, q, k: score * precision[h] + bias[b, h, k]


def flex_lags(i: Tensors) -> tuple[float, Callable]:
    """A table of lags for ``flex``, captured likewise."""
    table, shift = i["table"], i["key"].shape[2] - i["query"].shape[2]
    scale = i["query"].shape[-1] ** -0.5
    return scale, lambda score, b, h, q, k: score + table[h, (q + shift - k).abs()]
