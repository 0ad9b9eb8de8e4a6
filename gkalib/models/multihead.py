"""PyTorch's own attention layer, alone or inside its transformer layers."""

from typing import Any

import torch
from torch import Tensor, nn

from gkalib.layers import Smoother
from gkalib.masks import CAUSAL, Pairs, added, joined
from gkalib.models.swap import Parts, layer_weights, packed_weights


def read_layer(model: nn.Module, path: str, module: Any) -> Parts | str | None:
    """The parts of an ``nn.MultiheadAttention``, the reason why a variant cannot stand for it, or None."""
    if not isinstance(module, nn.MultiheadAttention):
        return None
    owner = model.get_submodule(path.rpartition(".")[0])
    if isinstance(owner, nn.TransformerDecoderLayer) and module is owner.multihead_attn:
        return "is cross-attention"
    if type(module).forward is not nn.MultiheadAttention.forward:
        return f"is a {type(module).__name__}, whose forward is not nn.MultiheadAttention's"
    if not module._qkv_same_embed_dim:
        return f"has keys and values of width {module.kdim} and {module.vdim}, queries of {module.embed_dim}"
    if module.bias_k is not None or module.add_zero_attn:
        return "appends a key and a value of its own (add_bias_kv or add_zero_attn), which no variant does"
    packed = {"weight": module.in_proj_weight, "bias": module.in_proj_bias}
    return Parts(
        module.embed_dim,
        module.num_heads,
        module.head_dim,
        packed_weights(module.out_proj, packed),
        attn_drop=module.dropout,
        wrap=lambda layer: Multihead(layer, batch_first=module.batch_first),
    )


def leave_fast_path(model: nn.Module) -> None:
    """Let every encoder call its layers, not PyTorch with the weights of an attention that is gone."""
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoder):
            module.use_nested_tensor = False


class Multihead(nn.Module):
    """A variant that is called, and answers, like ``nn.MultiheadAttention``.

    Args:
        layer: the variant.
        batch_first: whether tokens are ``[b n dim]`` rather than ``[n b dim]``.
    """

    def __init__(self, layer: nn.Module, *, batch_first: bool):
        super().__init__()
        self.layer = layer
        self.batch_first = batch_first
        # Without them nn.TransformerEncoderLayer calls this module, whatever it might compute without it.
        self.in_proj_bias = None
        self._qkv_same_embed_dim = False

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """As ``nn.MultiheadAttention.forward``, where the value is the key.

        Raises:
            ValueError: if key and value are two tensors, or weights are asked for that are never formed.
        """
        if not _same(key, value):
            raise ValueError(
                "replace_attention: a variant makes keys and values of the same tokens; "
                "MultiheadAttention was called with a key that is not the value"
            )
        batched, self_attention = query.ndim == 3, _same(query, key)
        x = self._batch_first(query)
        context = x if self_attention else self._batch_first(key)
        # The flag says that attn_mask is the causal mask; the rule is cheaper than its pairs.
        causal = is_causal and x.shape[1] == context.shape[1]
        given = []
        if attn_mask is not None and not causal:
            given.append(attn_mask if attn_mask.ndim == 2 else attn_mask.unflatten(0, (x.shape[0], -1)))
        if key_padding_mask is not None:
            given.append(key_padding_mask.reshape(x.shape[0], 1, 1, -1))
        mask, bias = CAUSAL if causal else None, None
        for numbers in given:
            if numbers.dtype == torch.bool:  # True for a key not seen
                mask = joined(mask, Pairs(~numbers))
            else:
                bias = added(bias, numbers)
        options = {"attn_mask": bias, "mask": mask, "context": None if self_attention else context}
        out = self.layer(x, **options)
        weights = None
        if need_weights:
            problem = self.layer.problem(x, **options) if isinstance(self.layer, Smoother) else None
            weights = layer_weights(self.layer, problem)
            weights = weights.mean(1) if average_attn_weights else weights
        if not batched:
            return out[0], None if weights is None else weights[0]
        return out if self.batch_first else out.transpose(0, 1), weights

    def _batch_first(self, tokens: Tensor) -> Tensor:
        if tokens.is_nested:
            raise ValueError(
                "replace_attention: nested tensors are not taken; pad them, with key_padding_mask"
            )
        if tokens.ndim == 2:
            return tokens[None]
        return tokens if self.batch_first else tokens.transpose(0, 1)


def _same(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are one, or views that show the same of one and pass on the same gradient."""
    if a is b or torch.compiler.is_dynamo_compiling():  # which cannot see where a view begins
        return a is b
    if a.requires_grad != b.requires_grad or a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.stride() != b.stride() or a.storage_offset() != b.storage_offset():
        return False
    one, other = (x if x._base is None else x._base for x in (a, b))
    return one is other or (not a.requires_grad and a.untyped_storage()._cdata == b.untyped_storage()._cdata)
