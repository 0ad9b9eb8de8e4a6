"""Hugging Face's attention layers, taken apart."""

import inspect
import sys
from typing import Any

import torch
from torch import Tensor, nn

from gkalib.masks import Causal
from gkalib.models.swap import Plain

# What the linear layers of one attention layer are called: query, key, value and, last, the output projection
# or None where the block around the layer holds it.
_LINEAR = (
    ("query", "key", "value", None),  # BertSelfAttention and its kin
    ("q_proj", "k_proj", "v_proj", "o_proj"),  # ViTAttention
    ("q_proj", "k_proj", "v_proj", "out_proj"),  # CLIPAttention
)
# What the forward of a layer may take; one that takes more, such as rotations, does more.
_TAKES = {"hidden_states", "attention_mask", "past_key_values", "head_mask", "output_attentions", "kwargs"}


def taken_apart(module: Any) -> Plain | str | None:
    """The parts of a layer, the reason why a variant cannot stand for it, or None for no attention."""
    if "transformers" not in sys.modules:
        return None
    heads = getattr(module, "num_attention_heads", None) or getattr(module, "num_heads", None)
    if heads is None or set(inspect.signature(module.forward).parameters) - _TAKES:
        return None
    for names in _LINEAR:
        linear = {
            ours: getattr(module, theirs, None)
            for ours, theirs in zip(("query", "key", "value", "proj"), names, strict=True)
            if theirs is not None
        }
        weights = {
            f"{ours}.{name}": tensor
            for ours, layer in linear.items()
            if isinstance(layer, nn.Linear)
            for name, tensor in layer.named_parameters()
        }
        # A layer with any other parameter, such as a table of relative positions, is another attention.
        if all(isinstance(layer, nn.Linear) for layer in linear.values()) and len(weights) == len(
            list(module.parameters())
        ):
            inner, dim = weights["query.weight"].shape
            return Plain(
                dim,
                heads,
                inner // heads,
                weights,
                projects="proj" in linear,
                wrap=lambda layer: HiddenStates(layer, causal=bool(getattr(module, "is_causal", False))),
            )
    return None


class HiddenStates(nn.Module):
    """A variant that is called, and answers, like an attention layer of ``transformers``.

    Args:
        layer: the variant.
        causal: whether the model is causal where it gives no mask.
    """

    def __init__(self, layer: nn.Module, *, causal: bool):
        super().__init__()
        self.layer = layer
        self.causal = causal

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Any = None,
        past_key_values: Any = None,
        **_: Any,
    ) -> tuple[Tensor, None]:
        """As those layers: the output, and no weights."""
        if past_key_values is not None:
            raise ValueError(
                "replace_attention: the model keeps a cache of its own; call it with use_cache=False"
            )
        allowed = None if attention_mask is None else _allowed(attention_mask)
        # A mask that is given has the causal rule in it.
        rule = Causal() if self.causal and allowed is None else None
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
