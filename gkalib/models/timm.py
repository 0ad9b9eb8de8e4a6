"""timm's attention layers, taken apart."""

import inspect
import sys
from typing import Any

from torch import nn

from gkalib.models.swap import Parts, packed_weights

# What a layer is called that adds numbers to its scores by the relative position of query and key.
_BIASES = ("relative_position_bias_table", "rel_pos", "rel_pos_h", "attention_biases", "cpb_mlp", "pos_embed")


def read_layer(module: Any) -> Parts | str | None:
    """The parts of a layer of timm, the reason why no variant can stand for it, or None for no attention."""
    if "timm" not in sys.modules:
        return None
    from timm.layers.attention import Attention

    if not isinstance(module, Attention):
        return _reason(module) if type(module).__module__.startswith("timm.") else None
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


def _reason(module: Any) -> str | None:
    """What an attention layer of timm does that a variant does not; None for any other module."""
    if not hasattr(module, "num_heads") or hasattr(module, "attn"):  # a block around such a layer
        return None
    kind = f"is a {type(module).__module__}.{type(module).__name__}"
    if any(hasattr(module, name) for name in _BIASES):
        return f"{kind}, which adds a bias of relative positions to its scores"
    if "rope" in inspect.signature(module.forward).parameters:
        return f"{kind}, whose block hands it rotary positions"
    return f"{kind}, which is no plain attention of one sequence"
