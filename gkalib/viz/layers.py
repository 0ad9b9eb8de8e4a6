"""What the attention layers of a model do in one forward pass, and measures of it that fit every variant."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gkalib.evaluation.mode import evaluating
from gkalib.layers import Smoother
from gkalib.layers.mixed import Attention as Mixed
from gkalib.shapes import Weights
from gkalib.smoothing import Method, Problem, solve, weights_of

Rows = Float[Tensor, "*b n m"]


def layers(model: nn.Module, *inputs: Any, **given: Any) -> list["Layer"]:
    r"""The weights of every attention layer in one forward pass, in the order in which the layers ran.

    $$\mathrm{out}_i = \sum_j w_{ij} v_j$$

    They are the weights that the layer applies to its values. Where its method is exact they come from the
    definition, whatever method the layer takes itself; a method that is not exact (Nyström, Skyformer,
    Linformer) is given the identity for values, and answers with its weights. What a variant does to the
    output afterwards (RBF's ``xsa``, Nyström's convolution) is in no weight.

    The pass is in evaluation mode and without gradients; afterwards the model is in the mode in which it was.
    Memory: b h n m numbers a layer.

    Args:
        model: with attention of this library in it. A timm or Hugging Face model has none until
            ``gkalib.replace_attention(model, "softmax")``, which changes no output.
        inputs, given: what the model is called with.

    Raises:
        ValueError: if no attention of this library ran, or it ran with a cache.

    References:
        Kundu et al., Gaussian Kernel Attention, 2026, section 7. Taught in: chapter 23.
    """
    seen: list[tuple[str, Smoother, Problem]] = []

    def see(path: str) -> Callable[[Any, tuple, dict], None]:
        def hook(module: Any, inputs: tuple, given: dict) -> None:
            if given.get("cache") is not None:
                raise ValueError("look: the model is to be called without a cache, which a look would fill")
            seen.append((path, module, module.problem(*inputs, **given)))

        return hook

    with evaluating(model), _hooks(model, see):
        model(*inputs, **given)
        if not seen:
            raise ValueError(
                f"look: no attention of this library ran in {type(model).__name__}; "
                "gkalib.replace_attention(model, 'softmax') puts it into a timm or Hugging Face model"
            )
        owner = _owners(model)
        found: list[Layer] = []
        here: set[str] = set()  # the variants of one layer that the last entry already has
        for path, module, problem in seen:
            names = (module.name(),) * module.num_heads
            one = Layer(owner.get(path, path), names, (problem,), _applied(module, problem))
            beside = path in owner and found and found[-1].path == one.path and path not in here
            here = here | {path} if beside else {path}
            found = [*found[:-1], found[-1].beside(one)] if beside else [*found, one]
    return found


def magnitudes(weights: Rows) -> Rows:
    r"""Each row's absolute weights as shares, $p_{ij} = |w_{ij}| / \sum_l |w_{il}|$.

    For rows of an average these are the weights. KArAt's rows have signs and any sum: here only how much a
    token matters is left of them, not in which direction. A row of zeros stays one.

    Args:
        weights: ``[… n m]``.

    Taught in: chapter 23.
    """
    size = weights.abs()
    return size / size.sum(-1, keepdim=True).clamp_min(torch.finfo(size.dtype).tiny)


def neighbors(weights: Rows) -> Float[Tensor, "*b n"]:
    r"""How many keys a query effectively averages over, $(\sum_j |w_{ij}|)^2 / \sum_j w_{ij}^2$.

    From 1, one key, to m, all alike; 0 for a row of zeros. The scale of every row does not matter.

    Args:
        weights: ``[… n m]``.

    Taught in: chapters 1 and 23.
    """
    squares = magnitudes(weights).square().sum(-1)
    return torch.where(squares > 0, 1 / squares.clamp_min(torch.finfo(squares.dtype).tiny), 0.0)


def entropy(weights: Rows) -> Float[Tensor, "*b n"]:
    r"""The entropy of each row, $-\sum_j p_{ij} \ln p_{ij}$ in nats, of ``magnitudes``.

    From 0, one key, to ln m, all alike. Its exponential is another count of neighbors, never below
    ``neighbors``.

    Args:
        weights: ``[… n m]``.

    Taught in: chapter 23.
    """
    return torch.special.entr(magnitudes(weights)).sum(-1)


def own(weights: Rows) -> Float[Tensor, "*b n"]:
    """The share of each row that a query's own key has; the last query is the last key.

    Args:
        weights: ``[… n m]``.

    Raises:
        ValueError: if there are more queries than keys.

    Taught in: chapter 23.
    """
    queries, keys = weights.shape[-2:]
    if queries > keys:
        raise ValueError(f"look: {queries} queries have no own keys among {keys}")
    return magnitudes(weights).diagonal(keys - queries, -2, -1)


def received(weights: Rows) -> Float[Tensor, "*b m"]:
    r"""What each key receives, $\frac{m}{n} \sum_i p_{ij}$: 1 is an equal share, m is all there is.

    A sink is a key with a large one. Under a causal mask the first keys have more queries: with all rows
    uniform the first of m receives 1 + 1/2 + … + 1/m, about ln m + 0.58, and the last 1/m.

    Args:
        weights: ``[… n m]``.

    Taught in: chapter 23.
    """
    return weights.shape[-1] * magnitudes(weights).mean(-2)


def mass(weights: Rows) -> Float[Tensor, "*b n"]:
    """The sum of each row with its signs: 1 for an average.

    Args:
        weights: ``[… n m]``.

    Taught in: chapter 23.
    """
    return weights.sum(-1)


def negative(weights: Rows) -> Float[Tensor, "*b n"]:
    """The share of each row's absolute weight that is below zero.

    Args:
        weights: ``[… n m]``.

    Taught in: chapter 23.
    """
    return (magnitudes(weights) * (weights < 0)).sum(-1)


def measures(weights: Weights, *, token: int | None = None) -> dict[str, Float[Tensor, " h"]]:
    """Every measure for each head, in the mean over items and queries.

    Args:
        weights: ``[b h n m]``, of one layer.
        token: a key whose share of all rows is measured too, as ``token``; the class token for one.

    Returns:
        ``neighbors``, ``entropy``, ``own``, ``mass``, ``negative``, and ``largest``: the share of all rows,
        from 1/m to 1, of the key that receives most in an item.

    Raises:
        ValueError: if there are more queries than keys.

    Taught in: chapter 23.
    """
    rows = {"neighbors": neighbors, "entropy": entropy, "own": own, "mass": mass, "negative": negative}
    found = {name: measure(weights).mean((0, 2)) for name, measure in rows.items()}
    share = received(weights) / weights.shape[-1]
    found["largest"] = share.amax(-1).mean(0)
    return found if token is None else found | {"token": share[..., token].mean(0)}


@final
@dataclass(frozen=True, eq=False)
class Layer:
    """One attention layer in one forward pass.

    Args:
        path: its name in the model.
        variants: the name of each head's variant, h of them.
        problems: what was smoothed; one, or one a variant where a layer mixes them.
        weights: ``[b h n m]``, the heads in their order.

    Taught in: chapter 23.
    """

    path: str
    variants: tuple[str, ...]
    problems: tuple[Problem, ...]
    weights: Tensor

    def beside(self, other: "Layer") -> "Layer":
        """The same layer with the heads of another variant after its own."""
        return Layer(
            self.path,
            self.variants + other.variants,
            self.problems + other.problems,
            torch.cat([self.weights, other.weights], dim=1),
        )


@contextmanager
def _hooks(model: nn.Module, see: Callable[[str], Callable]) -> Iterator[None]:
    """A hook before every attention layer, while inside."""
    handles = [
        module.register_forward_pre_hook(see(path), with_kwargs=True)
        for path, module in model.named_modules()
        if isinstance(module, Smoother)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _owners(model: nn.Module) -> dict[str, str]:
    """For the path of a variant in a layer of several, the path of the layer."""
    return {
        f"{path}.branches.{name}" if path else f"branches.{name}": path
        for path, module in model.named_modules()
        if isinstance(module, Mixed)
        for name in module.branches
    }


def _applied(module: Smoother, problem: Problem) -> Tensor:
    """The weights ``[b h n m]`` that the layer's method gives the values."""
    if not isinstance(module.method, Method) or module.method.exact:
        return weights_of(problem)
    batch, _, _, keys = problem.sizes
    each = torch.eye(keys, dtype=problem.query.dtype, device=problem.query.device)
    values = each.expand(batch, problem.grouped_key.shape[1], keys, keys)
    return solve(replace(problem, grouped_value=values, one_tensor=False), module.method)
