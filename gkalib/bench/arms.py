"""What is timed on one shape: our methods, and everything that a user could take in their place."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, final, no_type_check

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

from gkalib.bench.cases import Case
from gkalib.kernels import ExpDot, Gaussian, Kernel, LagKernel
from gkalib.masks import Causal, Mask, Window, joined
from gkalib.normalizers import Fourier, RowOperator, Unnormalized
from gkalib.smoothing import Method, smooth
from gkalib.smoothing.fused import Fused

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
    positions = torch.arange(length, device=device)
    lag = positions[:, None] - positions
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
        score, value = scores(i), i["value"]
        if allowed is not None:
            score = score.masked_fill(~allowed, -torch.inf)
        return torch.softmax(score, -1).to(value.dtype) @ value

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
def flex(case: Case, prepare: Callable[[Tensors], tuple[float, Callable | None]]) -> Forward:
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
            tensors = i["query"], i["key"], i["value"]
            return flex_attention(*tensors, score_mod=score_mod, block_mask=block_mask, scale=scale)

        return torch.compile(forward, dynamic=False)

    sizes, masked = (case["queries"], case["keys"]), mask_of(case) is not None
    device = case["device"]

    @cache
    def compiled():
        return with_blocks(create_block_mask(sees, None, None, *sizes, device=device) if masked else None)

    return lambda i: compiled()(i)


def flex_softmax(i: Tensors) -> tuple[float, None]:
    """Softmax attention for ``flex``: a scaled dot product, and no score that is changed."""
    return i["query"].shape[-1] ** -0.5, None


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


HARMONICS, RANK = 3, 12  # KArAt's Fourier units


@final
@dataclass(frozen=True)
class Arm:
    """One way to compute an attention.

    Args:
        forward: from the inputs to the output ``[b h n d]``.
        exact: the same by the definition, on inputs in float64.
        leaves: the inputs that it reads and that get a gradient.
        ours: whether it is a fused operation: then a wrong result stops the benchmark.
    """

    forward: Forward
    exact: Forward
    leaves: tuple[str, ...]
    ours: bool = False

    @property
    def kind(self) -> str:
        """What its work is counted as: one tensor, three, or a learned operator on rows."""
        if "operator" in self.leaves:
            return "karat"
        return "softmax" if "value" in self.leaves else "gka"


@final
class Lags(LagKernel):
    """The exponential of a table given for the lags 0, 1, …: GPA's prior as a tensor that gets a gradient."""

    def __init__(self, values: Tensor):
        super().__init__()
        self.values = values

    def at(self, lag: Tensor) -> Tensor:
        return self.values[:, lag.abs()]

    def heads(self) -> int:
        return self.values.shape[0]


def inputs(case: Case, seed: int) -> Tensors:
    """Random inputs as a projection leaves them: in memory b, n, h, d.

    Bandwidths are d^¼, the temperature of softmax attention; tables of lags fall from one to zero.
    """
    generator = torch.Generator(case["device"]).manual_seed(seed)
    options = {"device": case["device"], "dtype": getattr(torch, case["dtype"]), "generator": generator}
    heads, width, keys = case["heads"], case["width"], case["keys"]

    def tensor(length: int) -> Tensor:
        return torch.randn(case["batch"], length, heads, width, **options).transpose(1, 2)

    tensors: Tensors = {
        "query": tensor(case["queries"]),
        "key": tensor(keys),
        "value": tensor(keys),
        "grad": tensor(case["queries"]),
        "sigma": torch.full((heads,), width**0.25, device=case["device"]),
        "table": torch.linspace(1, 0, keys, device=case["device"]).repeat(heads, 1),
    }
    if case["family"] == "karat":
        torch.manual_seed(seed)
        operator = RowOperator(heads, keys, basis=Fourier(HARMONICS), rank=RANK, device=case["device"])
        tensors["operator"] = operator
    return tensors


def _definition(case: Case) -> str:
    """The method that results are compared with, in float64: by definition where its memory suffices."""
    return "reference" if case["keys"] <= 512 else "dense"


def softmax(case: Case) -> Forward:
    """Softmax attention by the definition."""
    return _smoothing(case, lambda i: ExpDot(), _definition(case))


def _smoothing(case: Case, kernel: Callable[[Tensors], Kernel], method: str | Method, **more: Any) -> Forward:
    def forward(i: Tensors) -> Tensor:
        return smooth(i["query"], i["key"], i["value"], kernel(i), mask=mask_of(case), method=method, **more)

    return forward


def _of_one_tensor(forward: Forward) -> Forward:
    """The same on one tensor in the place of three."""
    return lambda i: forward({**i, "key": i["query"], "value": i["query"]})


def _of_cache(forward: Forward) -> Forward:
    """The same with the cached keys as values."""
    return lambda i: forward({**i, "value": i["key"]})


def _by_programs(programs: tuple[str, ...], forward: Forward) -> Forward:
    """The same where these programs stand in for plain ones, and no others do."""

    def run(i: Tensors) -> Tensor:
        from gkalib.smoothing.fused.configs import standing_in  # imports Triton

        with standing_in(*programs):
            return forward(i)

    return run


def _rivals(case: Case, leaves: tuple[str, ...], forms: dict[str, Any], exact: Forward) -> dict[str, Arm]:
    """Eager, compiled and FlexAttention for one family."""
    wrap = forms.get("wrap", lambda forward: forward)
    plain = wrap(eager(case, forms["scores"]))
    return {
        "eager": Arm(plain, exact, leaves),
        "compiled": Arm(torch.compile(plain, dynamic=False), exact, leaves),
        "flex": Arm(wrap(flex(case, forms["flex"])), exact, leaves),
    }


def _sdpa_arms(case: Case) -> dict[str, Arm]:
    """Softmax attention on separate query, key and value, by each backend."""
    leaves, exact = ("query", "key", "value"), softmax(case)
    backends = {name: Arm(sdpa(case, backend), exact, leaves) for name, backend in BACKENDS.items()}
    if case["window"] is not None:
        # What one would run instead, since these backends skip nothing for a mask given pair by pair
        whole = softmax({**case, "window": None})
        for name in ("sdpa-cudnn", "sdpa-flash"):
            forward = sdpa(case, BACKENDS[name], windowed=False)
            backends[f"{name}-unwindowed"] = Arm(forward, whole, leaves)
        # ... and what skips: FlexAttention with a block mask, on the same pairs as ours
        backends["flex-softmax"] = Arm(flex(case, flex_softmax), exact, leaves)
    return backends


def _gaussian(i: Tensors) -> Kernel:
    return Gaussian(i["sigma"])


def gka(case: Case) -> dict[str, Arm]:
    """Gaussian kernel attention: one tensor and a bandwidth a head, both with a gradient."""
    decoding = case["queries"] != case["keys"]
    wrap = _of_cache if decoding else _of_one_tensor
    leaves = ("query", "key") if decoding else ("query", "sigma")
    exact = wrap(_smoothing(case, _gaussian, _definition(case)))
    ours = {
        name: Arm(wrap(_smoothing(case, _gaussian, name)), exact, leaves, ours=name == "fused")
        for name in ("fused", "padded")
    }
    if case["causal"] and not decoding:
        # Five products backward, in no fixed order, as the rivals do.
        ours["fused-unordered"] = Arm(
            wrap(_smoothing(case, _gaussian, Fused(ordered=False))), exact, leaves, ours=True
        )
        # Reading through pointers and through a descriptor, whichever of them the table ships.
        for name, programs in (("fused-plain", ()), ("fused-described", ("gka_forward_described",))):
            ours[name] = Arm(_by_programs(programs, ours["fused"].forward), exact, leaves, ours=True)
    forms = {"wrap": wrap, "scores": gaussian_scores, "flex": flex_gaussian}
    return {**ours, **_sdpa_arms(case), **_rivals(case, leaves, forms, exact)}


def rbf(case: Case) -> dict[str, Arm]:
    """RBF attention: separate query, key and value, a bandwidth that is not learned."""
    leaves, unnormalized = ("query", "key", "value"), {"normalizer": Unnormalized()}
    exact = _smoothing(case, _gaussian, _definition(case))
    ours = {
        name: Arm(_smoothing(case, _gaussian, name), exact, leaves, ours=name == "fused")
        for name in ("fused", "padded")
    }
    unordered = _smoothing(case, _gaussian, Fused(ordered=False))
    ours["fused-unordered"] = Arm(unordered, exact, leaves, ours=True)
    ours["fused-unnormalized"] = Arm(
        _smoothing(case, _gaussian, "fused", **unnormalized),
        _smoothing(case, _gaussian, _definition(case), **unnormalized),
        leaves,
        ours=True,
    )
    forms = {"scores": gaussian_scores, "flex": flex_gaussian}
    return {**ours, **_sdpa_arms(case), **_rivals(case, leaves, forms, exact)}


def gpa(case: Case) -> dict[str, Arm]:
    """Softmax attention with a table of lags; without its gradient and without the table for its price."""

    def kernel(i: Tensors) -> Kernel:
        return ExpDot() * Lags(i["table"])

    fixed, leaves = ("query", "key", "value"), ("query", "key", "value", "table")
    exact = _smoothing(case, kernel, _definition(case))
    ours = {
        "fused": Arm(_smoothing(case, kernel, "fused"), exact, leaves, ours=True),
        "fused-fixed-table": Arm(_smoothing(case, kernel, "fused"), exact, fixed, ours=True),
        "fused-no-table": Arm(_smoothing(case, lambda i: ExpDot(), "fused"), softmax(case), fixed, ours=True),
    }
    forms = {"scores": lag_scores, "flex": flex_lags}
    rivals = _rivals(case, leaves, forms, exact)
    rivals["flex-fixed-table"] = Arm(rivals["flex"].forward, exact, fixed)
    return {**ours, **_sdpa_arms(case), **rivals}


def karat(case: Case) -> dict[str, Arm]:
    """Kolmogorov–Arnold attention: rows of scores through a learned operator of rank 12."""
    leaves = ("query", "key", "value", "operator")

    def learned(method: str) -> Forward:
        return lambda i: smooth(
            i["query"], i["key"], i["value"], ExpDot(), normalizer=i["operator"], method=method
        )

    def scores(i: Tensors) -> Tensor:
        return (i["query"] @ i["key"].mT).float() * i["query"].shape[-1] ** -0.5

    def materialized(i: Tensors) -> Tensor:
        return i["operator"](scores(i)).to(i["value"].dtype) @ i["value"]

    def factored(i: Tensors) -> Tensor:
        mixed = i["operator"].mix.mT @ i["value"].float()
        return (i["operator"].features(scores(i)) @ mixed).to(i["value"].dtype)

    exact = learned(_definition(case))
    return {
        "fused": Arm(learned("fused"), exact, leaves, ours=True),
        **_sdpa_arms(case),
        "eager": Arm(materialized, exact, leaves),
        "compiled": Arm(torch.compile(materialized, dynamic=False), exact, leaves),
        "eager-factored": Arm(factored, exact, leaves),
        "compiled-factored": Arm(torch.compile(factored, dynamic=False), exact, leaves),
    }


FAMILIES: dict[str, Callable[[Case], dict[str, Arm]]] = {"gka": gka, "rbf": rbf, "gpa": gpa, "karat": karat}


def arms(case: Case) -> dict[str, Arm]:
    """The arms of a case by name, ours first: those that its ``arms`` name, or all."""
    every = FAMILIES[case["family"]](case)
    chosen = case.get("arms", every)
    if unknown := [name for name in chosen if name not in every]:
        raise ValueError(f"bench: {case['family']} has no arm {unknown[0]!r}. Known: {', '.join(every)}")
    return {name: arm for name, arm in every.items() if name in chosen}
