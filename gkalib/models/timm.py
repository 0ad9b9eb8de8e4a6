"""timm's attention layers, taken apart."""

import functools
import inspect
import sys
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from gkalib.masks import CAUSAL, joined, mask_and_bias
from gkalib.models.swap import Parts, packed_weights, smooth_inside

# What a layer is called that adds numbers to its scores by the relative position of query and key.
_BIASES = ("relative_position_bias_table", "rel_pos", "rel_pos_h", "attention_biases", "cpb_mlp", "pos_embed")


def read_layer(module: Any) -> Parts | str | None:
    """The parts of a layer of timm, the reason why no variant can stand for it, or None for no attention."""
    if "timm" not in sys.modules:
        return None
    from timm.layers.attention import Attention

    if not type(module).__module__.startswith("timm.") and not isinstance(module, Attention):
        return None
    if _is_rotary(module):
        weights = dict(module.named_parameters())
        heads, head_dim = module.num_heads, module.head_dim
        return Parts(heads * head_dim, heads, head_dim, weights, inside=True, whole=False)
    if not isinstance(module, Attention):
        return _reason(module)
    if type(module).forward is not Attention.forward:
        return f"is a {type(module).__name__}, whose forward is not timm.layers.Attention's"
    for part in ("norm", "gate"):
        if not isinstance(getattr(module, part, None), nn.Identity | None):
            return f"has a {part} of its output, which no variant has"
    if module.proj.out_features != module.qkv.in_features:
        return f"projects to {module.proj.out_features} channels, not back to {module.qkv.in_features}"
    norms = None if isinstance(module.q_norm, nn.Identity) else (module.q_norm, module.k_norm)
    return Parts(
        module.qkv.in_features,
        module.num_heads,
        module.head_dim,
        packed_weights(module.proj, dict(module.qkv.named_parameters())),
        norms,
        attn_drop=module.attn_drop.p,
        proj_drop=module.proj_drop.p,
    )


def use_smoothers(model: nn.Module) -> None:
    """Let the rotary layers of a model call what was put between their projections."""
    module: Any
    for module in model.modules():
        if hasattr(module, "smoother") and _is_rotary(module):
            module.fused_attn = True
            module.forward = functools.partial(_forward, module)


def _is_rotary(module: Any) -> bool:
    """Whether its block hands it rotations, after which it calls PyTorch's attention."""
    code = getattr(type(module).forward, "__code__", None)
    parameters = inspect.signature(type(module).forward).parameters
    return code is not None and "rope" in parameters and "scaled_dot_product_attention" in code.co_names


def _forward(module: Any, *args: Any, **options: Any) -> Tensor:
    """A rotary layer's own forward, which calls its ``smoother`` where it calls PyTorch's attention."""
    with _InPlace(module.smoother):
        return type(module).forward(module, *args, **options)


class _InPlace(TorchFunctionMode):
    """Within it a variant stands in the place of ``scaled_dot_product_attention``."""

    def __init__(self, smoother: Any):
        super().__init__()
        self.smoother = smoother

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is scaled_dot_product_attention:
            return _attend(self.smoother, *args, **(kwargs or {}))
        return function(*args, **(kwargs or {}))


def _attend(
    layer: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    mask, bias = mask_and_bias(attn_mask, name="replace_attention")
    mask = joined(mask, CAUSAL) if is_causal else mask
    return smooth_inside(layer, query, key, value, scale=scale, mask=mask, bias=bias, dropout=dropout_p)[0]


def _reason(module: Any) -> str | None:
    """What an attention layer of timm does that a variant does not; None for any other module."""
    if not hasattr(module, "num_heads") or hasattr(module, "attn") or not any(module.children()):
        return None  # a block around such a layer, or rotations for it
    kind = f"is a {type(module).__module__}.{type(module).__name__}"
    if any(hasattr(module, name) for name in _BIASES):
        return f"{kind}, which adds a bias of relative positions to its scores"
    return f"{kind}, which is no plain attention of one sequence"
