"""A decoder of text whose attention is any causal variant: from characters to nanochat's depth 20."""

import math
import warnings
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import relu

from gkalib.layers import Attention, Smoother, for_model, layers, reset_parameters
from gkalib.layers.parts import split
from gkalib.masks import Causal, Mask, Window
from gkalib.models.gpt_config import GATED, PRESETS, GPTConfig
from gkalib.shapes import check_counts, check_known
from gkalib.smoothing import Cache, State


def gpt(config: str | GPTConfig, *, attention: Attention = "softmax", **changes: Any) -> "GPT":
    """A decoder of text.

    Args:
        config: the name of a preset (``PRESETS``), or a ``GPTConfig``.
        attention: the name of a variant, what ``gkalib.attention`` returned, or a list of either for the
            layers, cycled.
        changes: fields of the config to set otherwise.

    Raises:
        ValueError: if the preset or a field is unknown, a size is wrong, or a variant cannot be causal.

    Chapter 22 teaches it.
    """
    if isinstance(config, str):
        check_known("gpt", "preset", config, PRESETS)
        config = PRESETS[config]
    for name in sorted(changes):
        check_known("gpt", "setting", name, vars(config))
    return GPT(replace(config, **changes), attention)


class Mlp(nn.Module):
    """Two linear maps with an activation between.

    Args:
        config: the model's.
    """

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.fc = nn.Linear(config.dim, config.mlp_ratio * config.dim, bias=config.bias)
        self.proj = nn.Linear(config.mlp_ratio * config.dim, config.dim, bias=config.bias)
        self.activation = nn.GELU() if config.activation == "gelu" else lambda x: relu(x).square()

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(self.activation(self.fc(x)))


def _norm(config: GPTConfig) -> nn.Module:
    return nn.LayerNorm(config.dim) if config.norm == "layer" else _rms(config)


def _rms(config: GPTConfig) -> nn.Module:
    """Every token at root mean square one, without parameters."""
    return nn.RMSNorm(config.dim, eps=torch.finfo(torch.float32).eps, elementwise_affine=False)


class Block(nn.Module):
    """Attention and MLP, each on normalized tokens and added to them.

    Args:
        config: the model's.
        index: the layer's number, from 0.
        layer: the class of its attention.
    """

    def __init__(self, config: GPTConfig, index: int, layer: type[nn.Module]):
        super().__init__()
        window = config.window(index)
        self.mask: Mask = Causal() if window is None else Causal() & Window(window)
        self.norm1, self.norm2 = _norm(config), _norm(config)
        self.attn: Any = layer(
            config.dim,
            config.num_heads,
            qkv_bias=config.bias,
            proj_bias=config.bias,
            qk_norm=config.qk_norm,
            position=config.positions if config.positions in ("rope", "susie") else None,
            registers=config.registers,
        )
        self.mlp = Mlp(config)
        has_values = config.value_embeddings and index % 2 == (config.depth - 1) % 2
        self.values = nn.Embedding(config.vocab_size, config.dim) if has_values else None
        self.gate = nn.Linear(GATED, config.num_heads, bias=False) if has_values else None

    def forward(self, x: Tensor, ids: Tensor, cache: Cache | State | list | None = None) -> Tensor:
        tokens = self.norm1(x)
        x = x + self.attn(tokens, mask=self.mask, cache=cache, value_bias=self._value_bias(tokens, ids))
        return x + self.mlp(self.norm2(x))

    def _value_bias(self, tokens: Tensor, ids: Tensor) -> Tensor | None:
        """The gated value embeddings of the tokens, ``[b h n d]``; registers have none."""
        if self.values is None or self.gate is None:
            return None
        gate = 2 * torch.sigmoid(self.gate(tokens[..., :GATED])).mT[..., None]
        values = split(self.values(ids), gate.shape[1]).to(gate.dtype)  # autocast leaves tables as they are
        return gate * nn.functional.pad(values, (0, 0, tokens.shape[1] - ids.shape[1], 0))


class GPT(nn.Module):
    """A decoder: token embedding, blocks of causal attention, a map to the vocabulary.

    Args:
        config: sizes and choices.
        attention: as for ``gpt``.

    Raises:
        ValueError: if a variant cannot be causal, or has no values to which embeddings could be added.

    References:
        nanochat (commit 212bdae), RBF attention and GPA are presets of it. Chapter 22 teaches it.
    """

    def __init__(self, config: GPTConfig, attention: Attention = "softmax"):
        super().__init__()
        self.config = config
        classes = [_causal(layer, config) for layer in layers(attention, config.depth)]
        classes = for_model(classes, config.dim, config.num_heads, length=config.registers + config.context)
        self.embedding = nn.Embedding(config.vocab_size, config.dim)
        learned = config.positions == "learned"
        self.position = nn.Embedding(config.context, config.dim) if learned else None
        self.register_tokens = (
            nn.Parameter(config.register_std * torch.randn(config.registers, config.dim))
            if config.registers
            else None
        )
        self.embedding_norm = _rms(config) if config.embedding_norm else nn.Identity()
        self.blocks = nn.ModuleList(Block(config, index, layer) for index, layer in enumerate(classes))
        self.residual_scale = nn.Parameter(torch.ones(config.depth)) if config.residual_scales else None
        self.first_scale = nn.Parameter(torch.full((config.depth,), 0.1)) if config.residual_scales else None
        self.norm = _norm(config)
        self.head = nn.Linear(config.dim, config.vocab_size, bias=config.head_bias)
        if config.tied:
            self.head.weight = self.embedding.weight
        if config.init == "nanochat":
            _init_nanochat(self)
        reset_parameters(self)

    def forward(self, ids: Int[Tensor, "b n"], caches: list | None = None) -> Float[Tensor, "b n vocab_size"]:
        """The logits of the token after each.

        Args:
            ids: ``[b n]``, whole numbers below ``vocab_size``; at most ``context`` of them.
            caches: what ``cache`` made and earlier calls filled; ``ids`` are then the new tokens.

        Raises:
            ValueError: if there are more tokens than the context has places.
        """
        config = self.config
        earlier = 0 if caches is None else max(_filled(caches[0]) - config.registers, 0)
        if earlier + ids.shape[1] > config.context:
            raise ValueError(f"gpt: {earlier + ids.shape[1]} tokens, and the context holds {config.context}")
        x = self.embedding(ids)
        if self.position is not None:
            x = x + self.position(earlier + torch.arange(ids.shape[1], device=ids.device))
        if self.register_tokens is not None and not earlier:
            registers = self.register_tokens.to(x.dtype).expand(ids.shape[0], -1, -1)
            x = torch.cat([registers, x], dim=1)
        x = first = self.embedding_norm(x)
        for index, block in enumerate(self.blocks):
            if self.residual_scale is not None and self.first_scale is not None:
                x = self.residual_scale[index] * x + self.first_scale[index] * first
            x = block(x, ids, None if caches is None else caches[index])
        logits = self.head(self.norm(x[:, x.shape[1] - ids.shape[1] :]))
        cap = config.softcap
        return logits if cap is None else cap * torch.tanh(logits / cap)

    def cache(self, batch: int, length: int | None = None) -> list:
        """Empty caches, one a layer, for ``length`` tokens; None is the context.

        A layer with a window keeps no more than its window.

        Raises:
            ValueError: if a variant cannot decode token by token.
        """
        length = self.config.registers + (self.config.context if length is None else length)
        caches = [block.attn.cache(batch, length) for block in self.blocks if isinstance(block, Block)]
        for index, cache in enumerate(caches):
            _keep(cache, self.config.window(index))
        return caches

    def generate(
        self, ids: Int[Tensor, "b n"], count: int, *, temperature: float = 1.0, seed: int = 0
    ) -> Int[Tensor, "b total"]:
        """The ids with the first ``count`` of ``stream`` after them.

        Args:
            ids, temperature, seed: as for ``stream``.
            count: how many to add, zero or more.

        Raises:
            ValueError: if ``count`` is negative, or as ``stream``.
        """
        check_counts("gpt", count=count, least=0)
        return torch.cat([ids, *islice(self.stream(ids, temperature=temperature, seed=seed), count)], dim=1)

    @torch.no_grad()
    def stream(
        self, ids: Int[Tensor, "b n"], *, temperature: float = 1.0, seed: int = 0
    ) -> Iterator[Int[Tensor, "b 1"]]:
        """Tokens drawn from the model, one after another without end.

        Each is drawn from the last tokens that the context holds. Until it is full, earlier tokens come from
        a cache. Then the window slides: every token in it changes its place, so that all are computed again
        for each new one, and a warning says so.

        Args:
            ids: what they follow, ``[b n]``, at least one token each and at most the context.
            temperature: what the logits are divided by; 0 takes the most probable token.
            seed: of the draws.

        Raises:
            ValueError: if there is nothing to start from or more than the context holds, or the temperature
                is negative.
        """
        context = self.config.context
        if ids.shape[1] < 1 or temperature < 0:
            raise ValueError("gpt: generate needs at least one token and a temperature of zero or more")
        generator = torch.Generator(ids.device).manual_seed(seed)
        caches, new, read = self.cache(ids.shape[0]), ids, ids
        while True:
            logits = (self(read[:, -context:]) if caches is None else self(new, caches))[:, -1]
            if temperature == 0:
                new = logits.argmax(-1, keepdim=True)
            else:
                weights = torch.softmax(logits / temperature, dim=-1)
                new = torch.multinomial(weights, 1, generator=generator)
            yield new
            read = torch.cat([read, new], dim=1)
            if read.shape[1] > context and caches is not None:
                warnings.warn(
                    f"gpt: the context of {context} tokens is full: from here on the window slides, and all "
                    "of it is computed again for each new token",
                    stacklevel=1,
                )
                caches = None


def _filled(cache: Cache | State | list) -> int:
    """How many tokens a layer's cache holds; a layer of several variants has a list of them."""
    return _filled(cache[0]) if isinstance(cache, list) else cache.filled


def _keep(cache: Cache | State | list, window: int | None) -> None:
    """Let a layer's cache, or each of its variants', keep only so many tokens."""
    if isinstance(cache, list):
        for branch in cache:
            _keep(branch, window)
    elif isinstance(cache, Cache):
        cache.window = window


def _causal(layer: type[nn.Module], config: GPTConfig) -> type[nn.Module]:
    """The layer's class, if it can be part of a decoder."""
    if issubclass(layer, Smoother):
        if not layer.causal:
            raise ValueError(f"gpt: {layer.name()} cannot be causal: {layer.why_not}")
        if config.value_embeddings and "value" not in layer.projections:
            raise ValueError(
                f"gpt: {layer.name()} has no projected values for value embeddings to be added to"
            )
    return layer


def _init_nanochat(model: GPT) -> None:
    """nanochat's start: uniform matrices of variance 1/D, output projections and gates of zero."""
    bound = math.sqrt(3 / model.config.dim)
    nn.init.normal_(model.embedding.weight)
    if not model.config.tied:
        nn.init.normal_(model.head.weight, std=0.001)
    for block in model.blocks:
        assert isinstance(block, Block)
        for name, parameter in block.named_parameters():
            if name.endswith(".proj.weight") or name == "gate.weight":
                nn.init.zeros_(parameter)
            elif name.endswith(".weight") and parameter.ndim == 2 and "position" not in name:
                nn.init.uniform_(parameter, -bound, bound)
