"""What a model costs: parameters by part, bytes, and operations traced through its own modules."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.func import functional_call

from gkalib.layers import Smoother
from gkalib.smoothing import METHODS, Dense, Method, Problem

if TYPE_CHECKING:
    from torch.utils.flop_counter import FlopCounterMode

_ATTENTION = {"attn", "attention", "self_attn"}
_MLP = {"mlp"}


@dataclass(frozen=True)
class Count:
    r"""A model's costs, each in the convention of the paper that prints it.

    Args:
        parameters: all of them, shared ones once.
        attention_parameters, mlp_parameters: those of the attention layers, and of the MLPs.
        embedding_parameters: those of token, value and patch embeddings and of learned tokens and positions.
        mebibytes: the size of what a checkpoint stores, in 2²⁰ bytes.
        flops: 2 × the multiplications of all matrix products in one forward pass of the inputs, as GKA counts
            (matrix products only: no exponentials, sums or norms).
        activation_macs: the multiplications that learned normalizers spend on rows, as KArAt counts.
        flops_per_token: of one training step on one token, as nanochat counts: three forward passes, with
            attention over the keys that the last token sees. None where positions were given.

    Chapter 30 rebuilds three tables from it.
    """

    parameters: int
    attention_parameters: int
    mlp_parameters: int
    embedding_parameters: int
    mebibytes: float
    flops: int
    activation_macs: int
    flops_per_token: int | None

    def __str__(self) -> str:
        width = max(map(len, vars(self)))
        return "\n".join(
            f"{name:<{width}}  {value:,.3f}" if isinstance(value, float) else f"{name:<{width}}  {value:,}"
            for name, value in vars(self).items()
            if value is not None
        )


class _Traced(Method):
    """The linear method where it can run, else ``dense``; keeps every problem and what it cost."""

    name = "traced"

    def __init__(self, counter: "FlopCounterMode"):
        self.counter = counter
        self.problems: list[tuple[Problem, int]] = []
        self.dense = Dense(memory=2**62)

    def refuses(self, problem: Problem) -> str | None:
        return None

    def __call__(self, problem: Problem) -> Tensor:
        before = self.counter.get_total_flops()
        linear = METHODS["linear"]
        out = linear(problem) if linear.refuses(problem) is None else self.dense(problem)
        self.problems.append((problem, self.counter.get_total_flops() - before))
        return out


def count(model: nn.Module, *inputs: Tensor) -> Count:
    """Count a model's parameters, and trace the operations of one forward pass.

    Nothing is computed: tensors are replaced by ones without content, so that a model of any size can be
    counted, also one built under ``torch.device("meta")``. Attention is traced through the ``dense`` method,
    or ``linear`` where that applies; approximations are traced as they are.

    Args:
        model: any module; the parts are told by the usual names of their modules.
        inputs: what it is called with; only their shapes and types matter.

    Raises:
        ValueError: if no inputs are given.
    """
    if not inputs:
        raise ValueError("count: an input is needed to trace the operations, such as one image [1 c h w]")
    # It imports Triton, which reads once whether its interpreter is wanted: not before a chapter has said so.
    from torch.utils.flop_counter import FlopCounterMode

    counter = FlopCounterMode(display=False)
    traced = _Traced(counter)
    changed = [m for m in model.modules() if isinstance(m, Smoother) and m.method == "auto"]
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    empty = {name: tensor.detach().to("meta") for name, tensor in tensors.items()}
    training = model.training
    try:
        for module in changed:
            module.method = traced
        with torch.no_grad(), counter:
            functional_call(model.eval(), empty, tuple(tensor.to("meta") for tensor in inputs))
    finally:
        for module in changed:
            module.method = "auto"
        model.train(training)
    flops = counter.get_total_flops()
    return Count(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        attention_parameters=_below(model, _ATTENTION),
        mlp_parameters=_below(model, _MLP),
        embedding_parameters=_embeddings(model),
        mebibytes=sum(t.nbytes for t in _stored(model)) / 2**20,
        flops=flops,
        activation_macs=sum(_macs(problem) for problem, _ in traced.problems),
        flops_per_token=_per_token(flops, traced.problems),
    )


def _below(model: nn.Module, names: set[str]) -> int:
    """The parameters that a module of one of these names holds, itself or further down."""
    return sum(p.numel() for name, p in model.named_parameters() if names & set(name.split(".")))


def _embeddings(model: nn.Module) -> int:
    """The parameters of embeddings, patch embeddings, and learned vectors that the model holds itself."""
    tied = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    return sum(
        parameter.numel()
        for name, parameter in model.named_parameters()
        if id(parameter) in tied or "patch_embed" in name or ("." not in name and parameter.ndim > 1)
    )


def _stored(model: nn.Module) -> list[Tensor]:
    """The tensors of a checkpoint; one that stands under two names is stored once."""
    state = model.state_dict(keep_vars=True)
    return list({id(tensor): tensor for tensor in state.values()}.values())


def _macs(problem: Problem) -> int:
    """What a learned normalizer spends on the problem's rows."""
    batch, _, queries, _ = problem.sizes
    return batch * queries * getattr(problem.normalizer, "macs_per_row", 0)


def _per_token(flops: int, problems: list[tuple[Problem, int]]) -> int | None:
    """Operations of one training step on one token of a sequence, in nanochat's convention."""
    if not problems or any(problem.positions is not None for problem, _ in problems):
        return None
    batch, _, queries, _ = problems[0][0].sizes
    other = (flops - sum(cost for _, cost in problems)) // (batch * queries)
    return 3 * (other + sum(_last_row(problem) for problem, _ in problems))


def _last_row(problem: Problem) -> int:
    """The multiplications and additions of the last query: a product with each visible key, and its value."""
    _, heads, queries, keys = problem.sizes
    visible = keys
    if problem.mask is not None:
        zero = torch.zeros(1, 1, dtype=torch.long, device="cpu")
        key = torch.arange(keys, device="cpu")[None]
        rules = [
            rule.allows(zero, zero, zero + (queries if rule.reads == "indices" else keys) - 1, key)
            for rule in problem.rules
        ]
        visible = int(torch.stack(rules).all(0).sum())
    return 2 * heads * visible * (problem.query.shape[-1] + problem.value.shape[-1])
