"""What every attention layer of a model solves, and the weights with which it does, from one forward pass."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch import Tensor, nn

from gkalib.evaluation import evaluating
from gkalib.layers.mixed import MixedAttention
from gkalib.smoothing import Method, Problem, compute_output, compute_weights


@final
@dataclass(frozen=True, eq=False)
class Captured:
    """One attention layer in one forward pass.

    Args:
        path: its name in the model.
        problems: what was smoothed; one, or one a variant where a layer mixes them.
        weights: ``[b h n m]``, the heads in their order.

    Taught in: chapter 25.
    """

    path: str
    problems: tuple[Problem, ...]
    weights: Tensor


def capture_attention(model: nn.Module, *inputs: Any, **options: Any) -> list[Captured]:
    r"""The problem and the weights of every attention layer in one forward pass, as they ran.

    $$\mathrm{out}_i = \sum_j w_{ij} v_j$$

    They are the weights that the layer applies to its values. Where its method is exact they come from the
    definition, whatever method the layer takes itself; a method that is not exact (Nyström, Skyformer,
    Linformer) is given the identity for values, and answers with its weights. What a variant does to the
    output afterwards (RBF's ``xsa``, Nyström's convolution) is in no weight.

    The pass is in evaluation mode, where nothing is dropped, and without gradients; each layer still computes
    by its own method. Afterwards the model is in the mode in which it was. Memory: b h n m numbers a layer.

    Args:
        model: with attention of this library in it: every module that has a ``method`` for its problem. A
            timm or Hugging Face model has none until ``gkalib.replace_attention(model, "softmax")``, which
            changes no output.
        inputs, options: what the model is called with.

    Raises:
        ValueError: if no attention of this library ran.

    References:
        Kundu et al., Gaussian Kernel Attention, 2026, section 7. Taught in: chapter 25.
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"capture_attention: model must be a module, not {model!r}")
    captured: list[Captured] = []
    owners = _owners(model)

    def record(path: str, problem: Problem, weights: Tensor) -> None:
        owner, earlier = owners.get(path, (path, 0))
        problems = (problem,)
        if earlier:  # the heads of another variant of the same layer
            before = captured.pop()
            problems, weights = (*before.problems, problem), torch.cat([before.weights, weights], dim=1)
        captured.append(Captured(owner, problems, weights))

    with evaluating(model), _recording(model, record):
        model(*inputs, **options)
    if not captured:
        raise ValueError(
            f"capture_attention: no attention of this library ran in {type(model).__name__}; "
            "gkalib.replace_attention(model, 'softmax') puts it into a timm or Hugging Face model"
        )
    return captured


@final
class _Recorder(Method):
    """A layer's own method, which shows each problem and its weights before it computes."""

    name = "recorder"

    def __init__(self, method: str | Method, record: Callable[[Problem, Tensor], None]):
        self.method, self.record = method, record
        self.exact = not isinstance(method, Method) or method.exact

    def refuses(self, problem: Problem) -> str | None:
        """Nothing: the layer's own method answers for itself."""
        return None

    def __call__(self, problem: Problem) -> Tensor:
        # Copies: what was captured stays as it was when the model trains on.
        kernel, normalizer = (
            deepcopy(slot).requires_grad_(False) for slot in (problem.kernel, problem.normalizer)
        )
        self.record(replace(problem, kernel=kernel, normalizer=normalizer), self.weights(problem))
        return compute_output(problem, self.method)

    def weights(self, problem: Problem) -> Tensor:
        """The weights ``[b h n m]`` that the method gives the values."""
        if self.exact:
            return compute_weights(problem)
        batch, _, _, keys = problem.sizes
        each = torch.eye(keys, dtype=problem.query.dtype, device=problem.query.device)
        values = each.expand(batch, problem.grouped_key.shape[1], keys, keys)
        return compute_output(replace(problem, grouped_value=values, one_tensor=False), self.method)


@contextmanager
def _recording(model: nn.Module, record: Callable[[str, Problem, Tensor], None]) -> Iterator[None]:
    """Every attention layer with a recorder for its method, while inside."""
    paths = {path: module for path, module in model.named_modules() if _smooths(module)}
    methods = {path: module.method for path, module in paths.items()}
    try:
        for path, method in methods.items():
            recorder = _Recorder(method, lambda *seen, path=path: record(path, *seen))  # pyright: ignore
            _assign(paths[path], recorder)
        yield
    finally:
        for path, method in methods.items():
            _assign(paths[path], method)


def _smooths(module: nn.Module) -> bool:
    return isinstance(getattr(module, "method", None), str | Method)


def _assign(module: nn.Module, method: Any) -> None:
    """Set a method where it stands: one with parameters keeps its place among the module's."""
    (module._modules if "method" in module._modules else vars(module))["method"] = method


def _owners(model: nn.Module) -> dict[str, tuple[str, int]]:
    """For the path of a variant in a layer of several the path of the layer, and how many run before it."""
    return {
        f"{path}.branches.{name}" if path else f"branches.{name}": (path, number)
        for path, module in model.named_modules()
        if isinstance(module, MixedAttention)
        for number, name in enumerate(module.branches)
    }
