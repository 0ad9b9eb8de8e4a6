"""What putting a variant into another library's layer needs whatever the library, and the report of it."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gkalib.kernels import Kernel
from gkalib.layers import Smoother, name_of, reset_parameters
from gkalib.masks import Mask, joined
from gkalib.normalizers import Dropout
from gkalib.smoothing import Problem, compute_output, compute_weights, make_problem


@dataclass(frozen=True)
class Parts:
    """One self-attention layer of another library, taken apart.

    Args:
        dim, num_heads, head_dim: D, h, d.
        weights: its tensors by the names that a variant gives them, such as ``query.weight``.
        norms: what normalizes each head's query and key; None where nothing does.
        projects: whether its output projection is its own.
        attn_drop, proj_drop: the rates of dropout of the weights, and after that projection.
        wrap: gives a variant the calls of the layer that it replaces; None where those are a variant's own.
        inside: whether slots can be put between the layer's own projections.
        whole: whether a variant can stand in the layer's place.
        causal: whether the layer may be causal.
    """

    dim: int
    num_heads: int
    head_dim: int
    weights: Mapping[str, Tensor]
    norms: tuple[nn.Module, nn.Module] | None = None
    projects: bool = True
    attn_drop: float = 0.0
    proj_drop: float = 0.0
    wrap: Callable[[nn.Module], nn.Module] | None = None
    inside: bool = False
    whole: bool = True
    causal: bool = False


@dataclass(frozen=True)
class Swap:
    """What ``replace_attention`` did to a model; print it for a summary.

    Args:
        model: the model given, or what stands in its place where it was itself an attention layer.
        layers: the class of the variant in each layer, by the layer's name in the model.
        copied: the names of the parameters that hold what the old layers had learned.
        fresh: the names of those that start as the variant starts.
        dropped: the weights for which a variant has no place, by the names that they would have in it.
        left: the attention layers that stay what they were, with the reason.
    """

    model: nn.Module
    layers: dict[str, str]
    copied: list[str]
    fresh: list[str]
    dropped: list[str]
    left: dict[str, str]

    def __str__(self) -> str:
        alike: dict[tuple[str, ...], list[str]] = {}
        for path, variant in self.layers.items():
            lists = (_under(path, names) for names in (self.copied, self.fresh, self.dropped))
            alike.setdefault((variant, *lists), []).append(path)
        lines = []
        for (variant, copied, fresh, dropped), paths in alike.items():
            lines += [f"{_folded(paths)}: {variant}", f"  copied   {copied}", f"  fresh    {fresh}"]
            lines += [f"  dropped  {dropped}"]
        reasons: dict[str, list[str]] = {}
        for path, reason in self.left.items():
            reasons.setdefault(reason, []).append(path)
        lines += [f"{_folded(paths)}: left as it is, since it {reason}" for reason, paths in reasons.items()]
        return "\n".join(lines)

    __repr__ = __str__


def packed_weights(proj: nn.Module, packed: Mapping[str, Tensor | None]) -> dict[str, Tensor]:
    """The weights of a layer whose query, key and value are one matrix, by the names that a variant has."""
    weights: dict[str, Tensor] = {f"proj.{name}": tensor for name, tensor in proj.named_parameters()}
    for name, tensor in packed.items():
        if tensor is not None:
            parts = zip(("query", "key", "value"), tensor.chunk(3), strict=True)
            weights |= {f"{ours}.{name}": part for ours, part in parts}
    return weights


def build(path: str, parts: Parts, cls: Any) -> tuple[nn.Module, list[str]]:
    """A layer of a class with the weights that fit, and which of its parameters they are.

    Raises:
        ValueError: if the class does not fit where the layer stands.
    """
    like = parts.weights["query.weight"]
    options: dict[str, Any] = {
        "qkv_bias": "query.bias" in parts.weights,
        "device": like.device,
        "dtype": like.dtype,
    }
    if parts.head_dim * parts.num_heads != parts.dim:
        options["head_dim"] = parts.head_dim
    if parts.norms:
        options["qk_norm"] = True
    if parts.projects:
        options |= {"proj_bias": "proj.bias" in parts.weights, "proj_drop": parts.proj_drop}
    else:
        options["project_out"] = False
        if not issubclass(cls, Smoother):
            raise ValueError(f"replace_attention: {name_of(cls)} has an output projection, {path} must not")
    if getattr(cls, "only_causal", False):
        raise ValueError(f"replace_attention: {path} need not be causal, {name_of(cls)} must: {cls.why_not}")
    layer: Any = cls(parts.dim, parts.num_heads, **options)
    inner = parts.weights["value.weight"].shape[0]
    if not parts.projects and layer.num_heads * layer.head_dim != inner:
        raise ValueError(
            f"replace_attention: {name_of(cls)} gives {layer.num_heads * layer.head_dim} channels, the "
            f"projection after {path} takes {inner}"
        )
    if parts.norms and isinstance(layer, Smoother):
        layer.query_norm, layer.key_norm = parts.norms
    return layer, _copy(parts, layer)


def between_projections(path: str, parts: Parts, cls: Any) -> Smoother | None:
    """A variant without its projections, to smooth between those of a layer; None where it has others.

    Raises:
        ValueError: if the variant places tokens, or cannot be causal where the layer may be.
    """
    if not has_usual_projections(cls):
        return None
    probe: Any = cls(8 * parts.num_heads, parts.num_heads)
    if probe.projections != cls.projections or probe.head_dim != 8:
        return None
    if probe.position is not None:
        raise ValueError(
            f"replace_attention: {cls.name()} has position=, but the model places its tokens itself"
        )
    if parts.causal and getattr(probe, "xsa", False):
        raise ValueError(
            f"replace_attention: xsa takes out a token's own value, which a cache of {path} may hold anywhere"
        )
    if parts.causal and not probe.causal:
        raise ValueError(f"replace_attention: {path} is causal, {cls.name()} cannot be: {probe.why_not}")
    like = next(iter(parts.weights.values()))
    # The projections, which go, are as small as they can be.
    layer: Any = cls(
        1, parts.num_heads, head_dim=parts.head_dim, project_out=False, device=like.device, dtype=like.dtype
    )
    layer.dim = parts.num_heads * parts.head_dim
    for projection in layer.projections:
        delattr(layer, projection)
    return layer


def has_usual_projections(cls: type[nn.Module]) -> bool:
    """Whether a variant projects tokens to a query, a key and a value, as other libraries' layers do."""
    return getattr(cls, "projections", None) == ("query", "key", "value") and not getattr(cls, "gates", ())


def smooth_inside(
    layer: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    scale: float | None,
    softcap: float | None = None,
    mask: Mask | None,
    bias: Tensor | None,
    dropout: float,
    positions: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Problem]:
    """The output ``[b h n e]`` of a variant between a layer's own projections, and the problem it solved.

    The layer's scale s stands where 1/√d does: queries and keys are multiplied by the square root of s√d.
    Where it caps its scores, the logarithm of the kernel is capped.
    """
    width = query.shape[3]
    if scale is not None and not math.isclose(scale, width**-0.5, rel_tol=1e-6):
        root = math.sqrt(scale * math.sqrt(width))
        query, key = query * root, key * root
    problem = make_problem(
        layer.query_norm(query),
        layer.key_norm(key),
        value,
        layer.kernel if softcap is None else Capped(layer.kernel, softcap),
        mask=joined(layer.mask, mask),
        bias=bias,
        normalizer=Dropout(layer.normalizer, dropout) if dropout else layer.normalizer,
        positions=positions,
        name=layer.name(),
    )
    return layer.finish(compute_output(problem, layer.method), problem), problem


class Capped(Kernel):
    r"""A kernel whose logarithm stays within ±c.

    $$\log\kappa_c(q, k) = c \tanh\big(\log\kappa(q, k) / c\big)$$

    Args:
        kernel: κ.
        cap: c, positive.

    Raises:
        ValueError: if the kernel may be negative, and so has no logarithm.

    References:
        Gemma 2, 2024, where it is called soft-capping.
    """

    def __init__(self, kernel: Kernel, cap: float):
        super().__init__()
        if kernel.signed:
            raise ValueError(
                "replace_attention: the model caps its scores (softcap), and "
                f"{type(kernel).__name__}, which may be negative, has none"
            )
        self.kernel, self.cap = kernel, cap
        self.of_lag, self.of_content = kernel.of_lag, kernel.of_content

    def log(self, query: Tensor, key: Tensor, lag: Tensor | None = None) -> Tensor:
        return self.cap * (self.kernel.log(query, key, lag) / self.cap).tanh()

    def heads(self) -> int | None:
        return self.kernel.heads()


def tie(layer: nn.Module, parts: Parts, copied: list[str], tied: dict[Any, nn.Parameter]) -> None:
    """Let parameters that were copied from one be one; ``tied`` holds those of the layers before."""
    for name in copied:
        source = parts.weights.get(name)
        if source is not None:
            origin = source if source._base is None else source._base
            place = (origin, source.storage_offset(), source.shape)
            first = tied.setdefault(place, layer.get_parameter(name))
            owner, _, last = name.rpartition(".")
            setattr(layer.get_submodule(owner), last, first)


def layer_weights(layer: Any, problem: Problem | None) -> Tensor:
    """The weights of a problem of a layer, ``[b h n m]``.

    Raises:
        ValueError: if the layer mixes variants, or its method never forms weights.
    """
    if problem is None or not getattr(layer.method, "exact", True):
        raise ValueError(
            f"replace_attention: {name_of(layer)} forms no weights; ask for none (need_weights=False, "
            "output_attentions=False)"
        )
    return compute_weights(problem)


@torch.no_grad()
def _copy(parts: Parts, layer: nn.Module) -> list[str]:
    """Copy each linear layer whose matrix has the same shape, its bias with it; the names of what was.

    What was frozen stays frozen.
    """
    parameters = dict(layer.named_parameters())
    copied = {}
    for name, tensor in parameters.items():
        matrix = f"{name.rpartition('.')[0]}.weight"
        if name in parts.weights and parts.weights[matrix].shape == parameters[matrix].shape:
            tensor.copy_(parts.weights[name])
            copied[name] = tensor._version
    reset_parameters(layer)  # a variant may insist on its own start
    copied = [name for name, version in copied.items() if parameters[name]._version == version]
    for name in copied:
        parameters[name].requires_grad_(parts.weights[name].requires_grad)
    norms = ("query_norm.", "key_norm.") if parts.norms else ()
    return copied + [name for name in parameters if name.startswith(norms)]


def _under(path: str, names: list[str]) -> str:
    """Those of the names that belong to a layer, without its name in front."""
    place = f"{path}." if path else ""
    return ", ".join(name.removeprefix(place) for name in names if name.startswith(place)) or "none"


def _folded(paths: list[str]) -> str:
    """Names that differ in their last number only as one, such as ``blocks.0-11.attn``."""
    numbers: dict[tuple[str, str], list[int]] = {}
    single = []
    for path in paths:
        match = re.fullmatch(r"(.*?)(\d+)(\D*)", path)
        if match is None:
            single.append(path or "the model itself")
        else:
            numbers.setdefault((match[1], match[3]), []).append(int(match[2]))
    return ", ".join(
        single + [f"{before}{_ranges(which)}{after}" for (before, after), which in numbers.items()]
    )


def _ranges(numbers: list[int]) -> str:
    """Ascending numbers with runs of them as ranges."""
    runs = [[numbers[0], numbers[0]]]
    for number in numbers[1:]:
        if number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
