"""Puts a variant into the self-attention layers of a timm or a Hugging Face model."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gkalib.layers import Attention, Smoother, bind, layers
from gkalib.masks import Causal
from gkalib.models.share import shared_by, start

# What the linear layers of one attention layer are called: query, key, value and, last, the output projection
# or None where the block around the layer holds it.
_SEPARATE = (
    ("query", "key", "value", None),  # BertSelfAttention and its kin
    ("q_proj", "k_proj", "v_proj", "o_proj"),  # ViTAttention
    ("q_proj", "k_proj", "v_proj", "out_proj"),  # CLIPAttention
)
# What the forward of a Hugging Face layer may take; one that takes more, such as rotations, does more.
_TAKES = {"hidden_states", "attention_mask", "past_key_values", "head_mask", "output_attentions", "kwargs"}


@dataclass(frozen=True)
class _Found:
    """One attention layer of a model, taken apart.

    Args:
        path: its name in the model.
        dim, num_heads, head_dim: D, h, d.
        weights: its tensors by the names that a variant gives them.
        norms: what normalizes query and key; None where nothing does.
        projects: whether its output projection is its own.
        drop: the rate of dropout after that.
        wrapped: whether it speaks Hugging Face's language.
    """

    path: str
    dim: int
    num_heads: int
    head_dim: int
    weights: Mapping[str, Tensor]
    norms: tuple[nn.Module, nn.Module] | None
    projects: bool
    drop: float
    wrapped: bool


def replace_attention(model: nn.Module, attention: Attention, *, length: int | None = None) -> nn.Module:
    """Put a variant into every self-attention layer of a model, in place.

    Weights are copied where the shapes agree: the projections to query, key and value, timm's fused one among
    them, the norms of query and key, and the output projection. Everything else starts as the variant starts.
    ``"softmax"`` therefore changes no output. Dropout of attention weights is not carried over, since no
    variant has it; cross-attention is left as it is; a Hugging Face model must be called without a cache and
    reports no attention weights.

    Args:
        model: a timm model on ``timm.layers.Attention``, such as ``vit_tiny_patch16_224``, or a model of
            ``transformers`` on layers like BertModel's, ViTModel's or CLIP's.
        attention: the name of a variant, what ``gkalib.attention`` returned, or a list of either for the
            layers, cycled.
        length: the number of tokens, for variants that are built for one.

    Returns:
        The model given.

    Raises:
        ValueError: if no attention layer is known, one does what no variant does, or a variant does not fit.

    Chapter 10 uses it.
    """
    found = [(module, one) for path, module in model.named_modules() if (one := _taken_apart(path, module))]
    if not found:
        raise ValueError(
            f"replace_attention: {type(model).__name__} has no attention layer that is known. Known are "
            "timm.layers.Attention, and layers like those of transformers' BertModel, ViTModel and CLIPModel "
            "without relative or rotary positions"
        )
    classes = layers(attention, len(found))
    sized = [cls for cls in classes if getattr(cls, "sized", False)]
    if sized and length is None:
        raise ValueError(
            f"replace_attention: {_name(sized[0])} is built for a number of tokens; give length="
        )
    first = found[0][1]
    registered, arguments = shared_by(classes, first.dim, first.num_heads, length=length or 0)
    for (module, one), cls in zip(found, classes, strict=True):
        layer = _built(one, bind(cls, **arguments[cls]))
        layer = (_HuggingFace(layer, module) if one.wrapped else layer).train(module.training)
        owner, _, name = one.path.rpartition(".")
        setattr(model.get_submodule(owner), name, layer)
    if registered:
        model.add_module("shared_attention", registered)
    return model


class _HuggingFace(nn.Module):
    """A variant that is called, and answers, like an attention layer of ``transformers``."""

    def __init__(self, layer: nn.Module, replaced: nn.Module):
        super().__init__()
        self.layer = layer
        self.is_causal = bool(getattr(replaced, "is_causal", False))

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Any = None,
        past_key_values: Any = None,
        **_: Any,
    ) -> tuple[Tensor, None]:
        if past_key_values is not None:
            raise ValueError(
                "replace_attention: the model keeps a cache of its own; call it with use_cache=False"
            )
        allowed = None if attention_mask is None else _allowed(attention_mask)
        # A mask that is given has the causal rule in it.
        rule = Causal() if self.is_causal and allowed is None else None
        return self.layer(hidden_states, attn_mask=allowed, mask=rule), None


def _allowed(mask: Any) -> Tensor:
    """True where a key is seen, from a boolean mask or from numbers to add to the scores."""
    if not isinstance(mask, Tensor) or mask.ndim != 4:
        raise ValueError(
            "replace_attention: the mask must be a tensor [b h n m]; use attn_implementation='sdpa'"
        )
    if mask.dtype == torch.bool:
        return mask
    hidden = mask <= torch.finfo(mask.dtype).min / 2
    if (mask.masked_fill(hidden, 0) != 0).any():
        raise ValueError("replace_attention: the mask adds numbers to scores, which no variant does")
    return ~hidden


def _taken_apart(path: str, module: Any) -> _Found | None:
    """The parts of an attention layer, or None for any other module."""
    if isinstance(module, Smoother):
        raise ValueError(f"replace_attention: {path} is a variant already; give attention= where it is built")
    if type(module).__module__.startswith("timm.") and type(module).__name__ == "Attention":
        return _of_timm(path, module)
    heads = getattr(module, "num_attention_heads", None) or getattr(module, "num_heads", None)
    if heads is None or set(inspect.signature(module.forward).parameters) - _TAKES:
        return None
    for names in _SEPARATE:
        linear = {
            ours: getattr(module, theirs, None)
            for ours, theirs in zip(("query", "key", "value", "proj"), names, strict=True)
            if theirs is not None
        }
        weights = {
            f"{ours}.{name}": tensor
            for ours, one in linear.items()
            if isinstance(one, nn.Linear)
            for name, tensor in one.named_parameters()
        }
        # A layer with any other parameter, such as a table of relative positions, is another attention.
        if len(linear) == sum(isinstance(one, nn.Linear) for one in linear.values()) and len(weights) == len(
            list(module.parameters())
        ):
            inner, dim = weights["query.weight"].shape
            return _Found(path, dim, heads, inner // heads, weights, None, "proj" in linear, 0.0, True)
    return None


def _of_timm(path: str, module: Any) -> _Found:
    """The parts of timm's attention, whose query, key and value are one matrix."""
    strange = [
        name for name in ("norm", "gate") if not isinstance(getattr(module, name, None), nn.Identity | None)
    ]
    if strange:
        raise ValueError(f"replace_attention: {path} has a {strange[0]} of its output, which no variant has")
    weights = {f"proj.{name}": tensor for name, tensor in module.proj.named_parameters()}
    for name, tensor in module.qkv.named_parameters():
        parts = tensor.chunk(3)
        weights |= {
            f"{ours}.{name}": part for ours, part in zip(("query", "key", "value"), parts, strict=True)
        }
    norms = None if isinstance(module.q_norm, nn.Identity) else (module.q_norm, module.k_norm)
    dim = module.qkv.in_features
    return _Found(
        path, dim, module.num_heads, module.head_dim, weights, norms, True, module.proj_drop.p, False
    )


def _built(found: _Found, cls: type[nn.Module]) -> nn.Module:
    """A layer of that class with the weights that fit."""
    like = found.weights["query.weight"]
    options: dict[str, Any] = {
        "qkv_bias": "query.bias" in found.weights,
        "device": like.device,
        "dtype": like.dtype,
    }
    if found.head_dim * found.num_heads != found.dim:
        options["head_dim"] = found.head_dim
    if found.norms:
        options |= {"qk_norm": True}
    if found.projects:
        options |= {"proj_bias": "proj.bias" in found.weights, "proj_drop": found.drop}
    else:
        options |= {"project_out": False}
        if not issubclass(cls, Smoother):
            raise ValueError(
                f"replace_attention: {_name(cls)} has an output projection, {found.path} must not"
            )
    layer: Any = cls(found.dim, found.num_heads, **options)
    inner = found.weights["value.weight"].shape[0]
    if not found.projects and layer.num_heads * layer.head_dim != inner:
        raise ValueError(
            f"replace_attention: {_name(cls)} gives {layer.num_heads * layer.head_dim} channels, the "
            f"projection after {found.path} takes {inner}"
        )
    if found.norms and isinstance(layer, Smoother):
        layer.query_norm, layer.key_norm = found.norms
    _copy(found.weights, layer)
    start(layer)
    return layer


@torch.no_grad()
def _copy(weights: Mapping[str, Tensor], layer: nn.Module) -> None:
    """Copy each linear layer whose matrix has the same shape, its bias with it."""
    parameters = dict(layer.named_parameters())
    for name, tensor in parameters.items():
        matrix = f"{name.rpartition('.')[0]}.weight"
        if matrix in weights and weights[matrix].shape == parameters[matrix].shape:
            tensor.copy_(weights[name])


def _name(cls: Any) -> str:
    return cls.name() if hasattr(cls, "name") else cls.__name__
