"""Trained models that others published, run to see what their attention layers are given on the way."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, linear, normalize, scaled_dot_product_attention

from gkalib.extras import needed_by

Attend = Callable[[Tensor, Tensor, Tensor, int], Tensor]

_VIT_POSITIONS = {  # stored without a name of their own: what the node takes that reads them
    "/backbone/embeddings/Reshape_1": "positions",
    "/backbone/embeddings/Concat_6": "class_position",
}


class Heads(NamedTuple):
    """What one attention layer of a trained model smooths.

    Args:
        query, key, value: ``[b h n d]``, float32.
    """

    query: Tensor
    key: Tensor
    value: Tensor


class Reading(NamedTuple):
    """One pass of a text encoder.

    Args:
        heads: the queries, keys and values of each layer, the first layer first.
        vectors: ``[b dim]``, the mean of the last layer's tokens, of length one: what the model is used for.
    """

    heads: list[Heads]
    vectors: Tensor


def read_minilm(
    weights: Mapping[str, Tensor],
    config: Mapping[str, Any],
    tokens: Tensor,
    *,
    lengths: Tensor | None = None,
    attend: Attend | None = None,
) -> Reading:
    """One pass of a MiniLM, a BERT whose attention is the kernel ``ExpDot()``.

    Args:
        weights: its parameters by name, as it was published.
        config: its sizes, as its ``config.json`` names them.
        tokens: token numbers ``[b n]``, the two special ones included.
        lengths: how many tokens each row holds, ``[b]``; those after them are padding. None is all of them.
        attend: what takes the place of every layer's attention, from query, key, value and the layer's index
            to the output ``[b h n d]``; it masks the padding itself. None is the model's own.

    References:
        Wang et al., MiniLM, 2020. Chapter 4 exchanges its kernel.
    """
    real = None if lengths is None else torch.arange(tokens.shape[1]) < lengths[:, None]
    allowed = None if real is None else real[:, None, None]

    def of(name: str) -> tuple[Tensor, Tensor]:
        return weights[name + ".weight"], weights[name + ".bias"]

    def norm(x: Tensor, name: str) -> Tensor:
        return layer_norm(x, x.shape[-1:], *of(name + ".LayerNorm"), config["layer_norm_eps"])

    def own(query: Tensor, key: Tensor, value: Tensor, layer: int) -> Tensor:
        return scaled_dot_product_attention(query, key, value, attn_mask=allowed)

    tables = "embeddings.{}_embeddings.weight"
    x = weights[tables.format("word")][tokens]
    x = x + weights[tables.format("position")][: tokens.shape[1]] + weights[tables.format("token_type")][0]
    heads: list[Heads] = []
    x = norm(x, "embeddings")
    for layer in range(config["num_hidden_layers"]):
        name = f"encoder.layer.{layer}."
        parts = [linear(x, *of(f"{name}attention.self.{part}")) for part in ("query", "key", "value")]
        split = (part.unflatten(-1, (config["num_attention_heads"], -1)).transpose(1, 2) for part in parts)
        heads.append(Heads(*split))
        smoothed = (attend or own)(*heads[-1], layer).transpose(1, 2).flatten(2)
        x = norm(x + linear(smoothed, *of(f"{name}attention.output.dense")), f"{name}attention.output")
        inner = gelu(linear(x, *of(f"{name}intermediate.dense")))
        x = norm(x + linear(inner, *of(f"{name}output.dense")), f"{name}output")
    if real is not None:
        x = x * real[..., None]
    return Reading(heads, normalize(x.sum(1), dim=-1))


def vit_weights(content: bytes) -> dict[str, Tensor]:
    """Every parameter of a ViT-S/14 stored as ONNX by its name, matrices as they multiply from the right.

    Args:
        content: the bytes of its ``.onnx`` file.

    Raises:
        ValueError: if the reader of such files, the package onnx, is not installed.
    """
    with needed_by("vit_weights"):
        import onnx

    graph = onnx.load_from_string(content).graph
    stored = {
        tensor.name: torch.from_numpy(onnx.numpy_helper.to_array(tensor).copy())
        for tensor in graph.initializer
    }
    weights = {name.removeprefix("backbone."): value for name, value in stored.items() if "backbone." in name}
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in stored:
            name = node.name.removeprefix("/backbone/").removesuffix("/MatMul").replace("/", ".")
            weights[f"{name}.weight"] = stored[node.input[1]]
        if node.name in _VIT_POSITIONS:
            weights[_VIT_POSITIONS[node.name]] = stored[node.input[0]]
    return weights
