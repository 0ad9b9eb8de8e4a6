"""Hugging Face's attention layers: slots between their own projections, or a variant in a layer's place."""

import inspect
import re
import sys
from typing import Any, cast

import torch
from torch import Tensor, nn

from gkalib.masks import CAUSAL, Mask, Pairs, added, mask_and_bias
from gkalib.models.swap import Parts, layer_weights, smooth_inside

NAME = "gkalib"  # of our function, and of the mask that goes with it, in the interfaces of transformers

_HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head")

# What the linear layers of one attention layer are called: query, key, value and, last, the output projection
# or None where the block around the layer holds it.
_LINEAR = (
    ("query", "key", "value", None),  # BertSelfAttention and its kin
    ("q_proj", "k_proj", "v_proj", "o_proj"),  # ViTAttention
    ("q_proj", "k_proj", "v_proj", "out_proj"),  # CLIPAttention
)
# What the forward of a layer may take; one that takes more, such as rotations, does more.
# From transformers 5.24 on, a layer calls its past_key_values cache.
_CACHES = {"past_key_values", "cache"}
_TAKES = {"hidden_states", "attention_mask", *_CACHES, "head_mask", "output_attentions", "kwargs"}
# What a layer may hand to the interface that changes the weights in a way that no slot does.
_REFUSED = {
    "s_aux": "adds a learned attention sink to each row (s_aux)",
    "sinks": "adds a learned attention sink to each row (sinks)",
    "block_indices": "chooses blocks of keys by itself (block_indices)",
    "cache": "keeps its keys in pages (cache)",
}


def read_layer(path: str, module: Any) -> Parts | str | None:
    """The parts of a layer, the reason why no variant can stand for it, or None for no attention."""
    if "transformers" not in sys.modules:
        return None
    called = _calls_the_interface(module)
    if not called and not any(cls.__module__.startswith("transformers") for cls in type(module).__mro__):
        return None
    weights = _linear(module)
    if weights is None and not called:
        heads = any(hasattr(module, name) for name in _HEADS)
        if not heads or "Attention" not in type(module).__name__:
            return None
        return (
            f"is a {type(module).__name__}, which computes its attention by itself, not through "
            "transformers' AttentionInterface"
        )
    if re.search("cross|encoder_attn|EncDec", f"{path}.{type(module).__name__}", re.IGNORECASE):
        return "is cross-attention"
    if getattr(module, "sinks", None) is not None:  # it says so before it is called
        return f"is a {type(module).__name__}, which {_REFUSED['sinks']}"
    heads, head_dim = _sizes(module)
    if heads is None or head_dim is None:
        return f"is a {type(module).__name__}, which does not say how many heads it has"
    return Parts(
        heads * head_dim if weights is None else weights["query.weight"].shape[1],
        heads,
        head_dim,
        weights or dict(module.named_parameters()),
        projects=weights is not None and "proj.weight" in weights,
        wrap=lambda layer: HiddenStates(layer, causal=bool(getattr(module, "is_causal", False))),
        inside=called,
        whole=weights is not None,
        causal=_is_causal(module),
    )


def register() -> None:
    """Let layers that look their function up find ours, and with it masks of pairs."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)


def model_class() -> Any:
    """The class of all models of ``transformers``, or None where it is not in use."""
    return sys.modules["transformers"].PreTrainedModel if "transformers" in sys.modules else None


def use_interface(model: nn.Module) -> None:
    """Let the layers of a model look our function up."""
    if (ours := model_class()) is None:
        return
    register()
    for module in model.modules():
        if isinstance(module, ours):
            cast(Any, module).set_attn_implementation(NAME)


def _linear(module: Any) -> dict[str, Tensor] | None:
    """The tensors of a layer that only projects and attends; None where a variant cannot stand."""
    if set(inspect.signature(module.forward).parameters) - _TAKES:
        return None
    for names in _LINEAR:
        linear: dict[str, Any] = {
            ours: getattr(module, theirs, None)
            for ours, theirs in zip(("query", "key", "value", "proj"), names, strict=True)
            if theirs is not None
        }
        if not all(isinstance(layer, nn.Linear) for layer in linear.values()):
            continue
        weights = {
            f"{ours}.{name}": tensor
            for ours, layer in linear.items()
            for name, tensor in layer.named_parameters()
        }
        # A layer with any other parameter, such as a table of relative positions, is another attention.
        if len(weights) == len(list(module.parameters())):
            return weights
    return None


def _calls_the_interface(module: Any) -> bool:
    """Whether a layer looks up the function that compares its queries with its keys."""
    code = getattr(inspect.unwrap(type(module).forward), "__code__", None)
    return code is not None and "ALL_ATTENTION_FUNCTIONS" in code.co_names


def _is_causal(module: Any) -> bool:
    return bool(getattr(module, "is_causal", True))


def _sizes(module: Any) -> tuple[int | None, int | None]:
    """The number of query heads and of dimensions in one, where a layer says them."""
    config = getattr(module, "config", None)

    def first(names: tuple[str, ...], *owners: Any) -> int | None:
        numbers = (getattr(owner, name, None) for owner in owners for name in names)
        return next((number for number in numbers if isinstance(number, int)), None)

    heads = first(_HEADS, module, config)
    width = first(("qk_head_dim", "head_dim", "attention_head_size", "key_value_proj_dim"), module)
    whole = getattr(config, "hidden_size", None)
    return heads, width if width or not heads or not whole else whole // heads


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    **given: Any,
) -> tuple[Tensor, Tensor | None]:
    """What a layer of ``transformers`` calls between its projections: smoothing by the slots put into it.

    Queries and keys come with the model's positions written into them and, of a cache, the earlier keys.
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    causal = _is_causal(module) if is_causal is None else is_causal
    layer: Any = getattr(module, "smoother", None)
    if layer is None:  # cross-attention of this model, or any layer of one that shares its configuration
        return sdpa_attention_forward(
            module,
            query,
            key,
            value,
            attention_mask,
            dropout=dropout,
            scaling=scaling,
            is_causal=causal,
            position_bias=position_bias,
            **given,
        )
    for argument, reason in _REFUSED.items():
        if given.get(argument) is not None:
            raise ValueError(f"replace_attention: {type(module).__name__} {reason}, which no slot does")
    queries = query.shape[2]
    mask, numbers = mask_and_bias(_hidden_by_infinity(attention_mask), name="replace_attention")
    bias = added(position_bias, numbers)
    if attention_mask is None and causal and queries > 1:
        mask = CAUSAL
        # Without a mask nothing is filled beyond the queries of a cache of a fixed length.
        key, value = key[:, :, :queries], value[:, :, :queries]
        bias = None if bias is None else bias[..., :queries]
    positions = _positions(layer, mask, causal, query, key, given.get("position_ids"))
    if positions is not None and mask is CAUSAL:  # a rule of positions, where the order of tokens is meant
        mask = Pairs(torch.ones(queries, queries, dtype=torch.bool, device=query.device).tril())
    out, problem = smooth_inside(
        layer,
        query,
        key,
        value,
        scale=scaling,
        softcap=given.get("softcap"),
        mask=mask,
        bias=bias,
        dropout=dropout,
        positions=positions,
    )
    weights = layer_weights(layer, problem) if given.get("output_attentions") else None
    return out.transpose(1, 2).contiguous(), weights


def _hidden_by_infinity(mask: Tensor | None) -> Tensor | None:
    """A mask of numbers with −∞ where these models write the least number of a type."""
    if mask is None or not mask.is_floating_point():
        return mask
    return mask.masked_fill(mask <= torch.finfo(mask.dtype).min / 2, -torch.inf)


def _positions(
    layer: Any, mask: Mask | None, causal: bool, query: Tensor, key: Tensor, position_ids: Tensor | None
) -> tuple[Tensor, Tensor] | None:
    """Where queries and keys stand, for slots that read it; None puts the last query on the last key.

    The interface hands over the positions of the new tokens only. With a cache, tokens are counted in it: in
    a causal model a query stands on the last key that it sees, however much longer the cache is.
    """
    if not layer.kernel.of_lag and layer.mask is None:
        return None
    batch, queries, keys = query.shape[0], query.shape[2], key.shape[2]
    if queries == keys:
        if position_ids is None:
            return None
        if position_ids.ndim != 2:
            raise ValueError(
                f"{layer.name()}: position_ids of shape {list(position_ids.shape)} are no lags between tokens"
            )
        positions = position_ids.expand(batch, -1)
        return positions, positions
    if mask is None or not causal:
        return None
    assert isinstance(mask, Pairs)  # fewer queries than keys come with the model's own mask
    allowed = mask.allowed.expand(batch, -1, queries, keys)[:, 0]
    last = keys - 1 - allowed.flip(-1).int().argmax(-1)
    return last, torch.arange(keys, device=key.device).expand(batch, -1)


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
        **given: Any,
    ) -> tuple[Tensor, None]:
        """As those layers: the output, and no weights."""
        if any(given.get(name) is not None for name in _CACHES):
            raise ValueError(
                "replace_attention: the model keeps a cache of its own; call it with use_cache=False"
            )
        if attention_mask is None:  # a mask that is given has the causal rule in it
            return self.layer(hidden_states, mask=CAUSAL if self.causal else None), None
        if not isinstance(attention_mask, Tensor) or attention_mask.ndim != 4:
            raise ValueError(
                "replace_attention: the mask must be a tensor [b h n m]; use attn_implementation='sdpa'"
            )
        return self.layer(hidden_states, _hidden_by_infinity(attention_mask)), None
