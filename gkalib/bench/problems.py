"""The attentions of the papers' models as problems, each by a recipe of its sizes."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gkalib.kernels import ExpDot, Gaussian, Kernel, LagTable
from gkalib.masks import Causal, Mask, Window, joined
from gkalib.normalizers import Fourier, Normalizer, RowOperator, RowSum
from gkalib.smoothing import Problem, make_problem

Recipe = dict[str, Any]
"""What is timed, as JSON: the sizes, the type, the device and the passes."""
Compute = Callable[[Problem], Tensor]

PASSES = ("forward", "backward", "both")
HARMONICS, RANK = 3, 12  # KArAt's Fourier units


def _recipe(batch: int, heads: int, length: int, width: int, **more: Any) -> Recipe:
    sizes = {"batch": batch, "heads": heads, "queries": length, "keys": length, "width": width}
    plain = {"causal": False, "window": None, "dtype": "bfloat16", "passes": list(PASSES)}
    return sizes | plain | more


TEXT = _recipe(8, 10, 2048, 128, causal=True)  # nanochat at depth 20; its window of S keeps S + 1 keys
VIT = {f"vit-{size}": _recipe(256, heads, 197, 64) for size, heads in (("ti", 3), ("s", 6), ("b", 12))}
ARTICLE = {"causal": True, "dtype": "float16"}  # batch, heads, width and type of the article's own profile
TOKEN = TEXT | {"queries": 1, "causal": False, "passes": ["forward"]}
FAMILIES: dict[str, dict[str, Recipe]] = {
    "gka": VIT
    | {"text": TEXT}
    | {f"text-{window}": TEXT | {"window": window} for window in (1024, 512)}
    | {f"vit-ti-{dtype}": VIT["vit-ti"] | {"dtype": dtype} for dtype in ("float16", "float32")},
    "rbf": {f"article-{length}": _recipe(4, 8, length, 64, **ARTICLE) for length in (2048, 8192)}
    | {"text": TEXT},
    "gpa": {
        "dickens": _recipe(256, 4, 256, 128, causal=True),
        "text": TEXT,
        "encoder": _recipe(32, 12, 512, 64),  # T5-base reads both ways
    },
    "karat": VIT,
    "decode": {"gka": TOKEN, "rbf": TOKEN, "gpa": TOKEN},
}
"""The shapes of each benchmark by name."""


def shapes(name: str, scale: str, device: str) -> dict[str, Recipe]:
    """The shapes of a family.

    Full ones are for a GPU. Reduced ones keep lengths and widths, have small batches and few heads and are in
    float32, so that a CPU can run them; smoke ones only show that everything runs.
    """
    known = FAMILIES[name]
    if scale != "full":
        known = {shape: _smaller(each, scale) for shape, each in known.items()
                 if each["keys"] <= 2048 and not shape.endswith(("float16", "float32"))}  # fmt: skip
    where = {"device": device, "scale": scale}
    return {
        shape: {"family": shape if name == "decode" else name, **where, "shape": shape, **each}
        for shape, each in known.items()
    }


def _smaller(recipe: Recipe, scale: str) -> Recipe:
    small = {"batch": 1, "heads": 2, "dtype": "float32"}
    if scale == "reduced":
        return recipe | ({"dtype": "float32", "batch": 4} if recipe["keys"] < 1024 else small)
    window = None if recipe["window"] is None else 7
    return recipe | small | {"queries": min(recipe["queries"], 20), "keys": 20, "width": 16, "window": window}


def problem(recipe: Recipe, seed: int = 0, *, device: str | None = None) -> Problem:
    """The attention of a recipe on random inputs, in memory as a projection leaves them: b, n, h, d.

    Bandwidths are d^¼, the temperature of softmax attention; tables of lags fall from one to zero. What
    learns has a gradient: GKA's bandwidths, GPA's table, KArAt's operator, not RBF's bandwidth.

    Args:
        recipe: of one of the families.
        seed: of the numbers.
        device: another than the recipe's; on ``"meta"`` there are sizes and no numbers.
    """
    where, family = device or recipe["device"], recipe["family"]
    generator = None if where == "meta" else torch.Generator(where).manual_seed(seed)
    heads, keys, width = recipe["heads"], recipe["keys"], recipe["width"]

    def tensor(length: int) -> Tensor:
        shape = recipe["batch"], length, heads, width
        empty = torch.empty(shape, device=where, dtype=getattr(torch, recipe["dtype"]))
        return empty.normal_(generator=generator).transpose(1, 2)

    kernel: Kernel = ExpDot()
    normalizer: Normalizer = RowSum()
    if family in ("gka", "rbf"):
        kernel = Gaussian(torch.full((heads,), width**0.25, device=where), learn=family == "gka")
    if family == "gpa":
        table, lags = LagTable(heads, keys), torch.arange(1 - keys, keys).abs()
        table.bias.data.copy_(1 - lags / max(1, keys - 1))
        kernel = ExpDot() * table.to(where)
    if family == "karat":
        torch.manual_seed(seed)
        normalizer = RowOperator(heads, keys, basis=Fourier(HARMONICS), rank=RANK, device=where)
    query, key = tensor(recipe["queries"]), None
    value = None
    if recipe["queries"] != keys or family != "gka":
        key = tensor(keys)
        value = key if family == "gka" else tensor(keys)  # GKA's cache holds one tensor
    return make_problem(query, key, value, kernel, mask=_mask(recipe), normalizer=normalizer)


def _mask(recipe: Recipe) -> Mask | None:
    """In decoding every key of the cache is seen."""
    window = None if recipe["window"] is None else Window(recipe["window"])
    return joined(Causal() if recipe["causal"] else None, window)


def softmax(given: Problem) -> Problem:
    """Softmax attention on a query, key and value of its own, at the same sizes and under the same mask."""
    key = given.grouped_key.detach()
    key, value = (torch.empty_like(key).copy_(key.roll(turn, dims=2)) for turn in (1, 2))
    return make_problem(given.query, key, value, ExpDot(), mask=given.mask)


def leaves(given: Problem) -> dict[str, Tensor]:
    """What gets a gradient, by name: query, key and value where they differ, and what learns."""
    tensors = {"query": given.query, "key": given.grouped_key, "value": given.grouped_value}
    first = {id(tensor): name for name, tensor in reversed(tensors.items())}
    parameters = [*given.kernel.named_parameters(), *given.normalizer.named_parameters()]
    named = {name: tensor.requires_grad_() for name, tensor in tensors.items() if first[id(tensor)] == name}
    return named | {name: each for name, each in parameters if each.requires_grad}


def upstream(given: Problem) -> Tensor:
    """What a gradient of the output begins with: random numbers, each time the same."""
    shape = *given.query.shape[:3], given.grouped_value.shape[3]
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(given.query)


def values(compute: Compute, given: Problem, grad: Tensor, *, backward: bool = True) -> dict[str, Tensor]:
    """The output, and where there is a backward pass the gradients of the leaves, by their names.

    Args:
        compute: from a problem to its output.
        given: the problem.
        grad: what a gradient of the output begins with.
        backward: whether there is a backward pass.
    """
    if not backward:
        with torch.no_grad():
            return {"out": compute(given)}
    named = leaves(given)
    out = compute(given)
    # A row operator has scales that its default basis does not use.
    gradients = torch.autograd.grad(out, [*named.values()], grad.to(out.dtype), materialize_grads=True)
    return {"out": out.detach(), **dict(zip(named, gradients, strict=True))}


def exact_problem(given: Problem, batch: int | None = None) -> Problem:
    """The problem in float64, of the first so many sequences or of all."""
    tensors = given.query, given.grouped_key, given.grouped_value
    wide = {id(tensor): tensor.detach().double()[:batch] for tensor in tensors}
    query, key, value = (wide[id(tensor)] for tensor in tensors)
    kernel, normalizer = copy.deepcopy(given.kernel).double(), copy.deepcopy(given.normalizer).double()
    return make_problem(query, key, value, kernel, mask=given.mask, normalizer=normalizer)
