"""The pretrained encoder run on text, and what its attention layers are given on the way."""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, linear, scaled_dot_product_attention

from gkalib.data.text import Encoder, minilm, state_of_the_union

Attend = Callable[[Tensor, Tensor, Tensor, int], Tensor]


class Heads(NamedTuple):
    """What one attention layer of a trained model smooths.

    Args:
        query, key, value: ``[b h n d]``, float32.
    """

    query: Tensor
    key: Tensor
    value: Tensor


class Reading(NamedTuple):
    """One pass of the encoder.

    Args:
        heads: the queries, keys and values of each layer, the first layer first.
        vectors: ``[b dim]``, the mean of the last layer's tokens, of length one: what the model is used for.
    """

    heads: list[Heads]
    vectors: Tensor


@cache
def _opened() -> tuple[Encoder, list[int]]:
    """The encoder and the addresses as its token numbers, read once: a chapter runs it many times."""
    encoder = minilm()
    encoder.tokenizer.no_padding()
    encoder.tokenizer.no_truncation()
    return encoder, encoder.tokenizer.encode(state_of_the_union()).ids


def passages(count: int, length: int) -> Tensor:
    """Passages ``[count length]`` of running text as token numbers, evenly spaced in the addresses to
    Congress, each between the encoder's two special tokens.

    Raises:
        ValueError: if ``count`` is below 1, or ``length`` below 3 or above the encoder's positions.
    """
    encoder, (first, *text, last) = _opened()
    most = encoder.config["max_position_embeddings"]
    if count < 1 or not 3 <= length <= most:
        raise ValueError(
            f"datasets: count must be at least 1 and length 3 to {most}, not {count} and {length}"
        )
    if count * (length - 2) > len(text):
        raise ValueError(
            f"datasets: the text has {len(text)} tokens, too few for {count} passages of {length}"
        )
    starts = [index * len(text) // count for index in range(count)]
    return torch.tensor([[first, *text[start : start + length - 2], last] for start in starts])


def trained_heads(count: int = 4, length: int = 256, *, attend: Attend | None = None) -> Reading:
    """Queries, keys and values of a trained model on running text, 6 layers of 12 heads with d = 32.

    Its attention is softmax attention, the kernel ``ExpDot()``, without mask.

    Args:
        count: b, the number of passages, spread over twelve addresses to Congress.
        length: n, the tokens of each; no more than 512.
        attend: what takes the place of every layer's attention, from query, key, value and the layer's index
            to the output ``[b h n d]``. None is the model's own.

    Raises:
        ValueError: if ``count`` or ``length`` is out of range, or the model is not here.

    References:
        MiniLM, see :func:`gkalib.data.minilm`. Chapter 4 writes the same pass step by step.
    """
    encoder, _ = _opened()
    parameters, heads = encoder.weights, encoder.config["num_attention_heads"]

    def of(name: str) -> tuple[Tensor, Tensor]:
        return parameters[name + ".weight"], parameters[name + ".bias"]

    def normalized(x: Tensor, name: str) -> Tensor:
        return layer_norm(x, x.shape[-1:], *of(name + ".LayerNorm"), encoder.config["layer_norm_eps"])

    def own(query: Tensor, key: Tensor, value: Tensor, layer: int) -> Tensor:
        return scaled_dot_product_attention(query, key, value)

    tables = "embeddings.{}_embeddings.weight"
    x = parameters[tables.format("word")][passages(count, length)]
    x = x + parameters[tables.format("position")][:length] + parameters[tables.format("token_type")][0]
    read: list[Heads] = []
    x = normalized(x, "embeddings")
    for layer in range(encoder.config["num_hidden_layers"]):
        name = f"encoder.layer.{layer}."
        parts = [linear(x, *of(f"{name}attention.self.{part}")) for part in ("query", "key", "value")]
        read.append(Heads(*(part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in parts)))
        heard = (attend or own)(*read[-1], layer).transpose(1, 2).flatten(2)
        x = normalized(x + linear(heard, *of(f"{name}attention.output.dense")), f"{name}attention.output")
        inner = gelu(linear(x, *of(f"{name}intermediate.dense")))
        x = normalized(x + linear(inner, *of(f"{name}output.dense")), f"{name}output")
    return Reading(read, torch.nn.functional.normalize(x.mean(1), dim=-1))
