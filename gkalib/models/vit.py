"""A vision transformer on timm's blocks, whose attention is any variant."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gkalib.extras import needed_by
from gkalib.layers import Attention, Smoother, bind, for_model, layers, reset_parameters
from gkalib.shapes import check_counts, check_known


@dataclass(frozen=True, kw_only=True)
class ViTConfig:
    """The sizes and choices of a vision transformer.

    Args:
        image_size, patch_size: the side of an image and of a patch, in pixels.
        channels: of the image.
        dim, depth, num_heads: D, the number of blocks, h.
        mlp_ratio: the width of the MLP in units of D.
        num_classes: how many logits.
        class_token: whether a learned token collects what the head reads; without it the head reads the mean
            over the patches.
        registers: R, learned tokens that the head does not read.
        positions: ``"learned"`` vectors added to the tokens, ``"rope"`` or ``"susie"`` over the order of the
            patches, or ``"none"``.
        qkv_bias: whether the projections to query, key and value have biases.
        qk_norm: whether each head's query and key are normalized, as timm does it.
        drop_path: the rate at which the last block's branches are dropped; it rises linearly from 0.

    Raises:
        ValueError: if a size is below 1, the patches do not tile the image, or a choice is unknown.
    """

    image_size: int = 224
    patch_size: int = 16
    channels: int = 3
    dim: int = 192
    depth: int = 12
    num_heads: int = 3
    mlp_ratio: float = 4.0
    num_classes: int = 1000
    class_token: bool = True
    registers: int = 0
    positions: str = "learned"
    qkv_bias: bool = True
    qk_norm: bool = False
    drop_path: float = 0.0

    def __post_init__(self):
        """Refuse sizes and choices that no model has."""
        for name in ("image_size", "patch_size", "channels", "dim", "depth", "num_heads", "num_classes"):
            check_counts("vit", **{name: getattr(self, name)})
        if self.image_size % self.patch_size:
            raise ValueError(
                f"vit: patches of {self.patch_size} pixels do not tile an image of {self.image_size}"
            )
        check_counts("vit", registers=self.registers, least=0)
        if not 0 <= self.drop_path < 1:
            raise ValueError(f"vit: drop_path must be at least 0 and below 1, not {self.drop_path}")
        check_known("vit", "positions", self.positions, ("learned", "rope", "susie", "none"))

    @property
    def extra(self) -> int:
        """How many tokens stand before the patches."""
        return self.registers + self.class_token

    @property
    def length(self) -> int:
        """How many tokens there are."""
        return self.extra + (self.image_size // self.patch_size) ** 2


SIZES = {
    "tiny": ViTConfig(dim=192, num_heads=3),
    "small": ViTConfig(dim=384, num_heads=6),
    "base": ViTConfig(dim=768, num_heads=12),
}
"""DeiT's sizes."""


def vit(
    size: str | ViTConfig, *, attention: Attention = "softmax", num_classes: int | None = None, **changes: Any
) -> "ViT":
    """A vision transformer.

    Args:
        size: ``"tiny"``, ``"small"`` or ``"base"``, or a ``ViTConfig``.
        attention: the name of a variant, what ``gkalib.attention`` returned, or a list of either for the
            layers, cycled.
        num_classes: how many logits; None is the config's own, 1000 for the named sizes.
        changes: fields of the config to set otherwise.

    Raises:
        ValueError: if the size or a field is unknown, or sizes do not fit together.

    Chapter 23 teaches it.
    """
    if isinstance(size, str):
        check_known("vit", "size", size, SIZES)
        size = SIZES[size]
    for name in sorted(changes):
        check_known("vit", "setting", name, vars(size))
    if num_classes is not None:
        changes["num_classes"] = num_classes
    return ViT(replace(size, **changes), attention)


class ViT(nn.Module):
    """Patches, learned tokens before them, timm's pre-norm blocks, a linear head.

    Args:
        config: sizes and choices.
        attention: as for ``vit``.

    References:
        Touvron et al., DeiT, 2021, whose parameters it has with softmax attention. Chapter 23 teaches it.
    """

    def __init__(self, config: ViTConfig, attention: Attention = "softmax"):
        # Imported here: a decoder of text needs no timm.
        with needed_by("vit"):
            from timm.layers.patch_embed import PatchEmbed
            from timm.models.vision_transformer import Block

        super().__init__()
        self.config = config
        self.patch_embed = PatchEmbed(config.image_size, config.patch_size, config.channels, config.dim)
        self.class_token = nn.Parameter(torch.zeros(1, 1, config.dim)) if config.class_token else None
        registers = torch.zeros(1, config.registers, config.dim)
        self.register_tokens = nn.Parameter(registers) if config.registers else None
        learned = torch.zeros(1, config.length - config.registers, config.dim)
        self.position = nn.Parameter(learned) if config.positions == "learned" else None
        norm: Any = partial(nn.LayerNorm, eps=1e-6)
        in_heads = config.positions in ("rope", "susie")
        options = {"position": config.positions, "registers": config.extra} if in_heads else {}
        classes = layers(attention, config.depth)
        for layer in classes:
            if issubclass(layer, Smoother) and layer.only_causal:
                raise ValueError(f"vit: {layer.name()} is causal only: {layer.why_not}")
        classes = for_model(classes, config.dim, config.num_heads, length=config.length)
        self.blocks = nn.ModuleList(
            Block(
                config.dim,
                config.num_heads,
                mlp_ratio=config.mlp_ratio,
                qkv_bias=config.qkv_bias,
                qk_norm=config.qk_norm,
                drop_path=config.drop_path * index / max(config.depth - 1, 1),
                norm_layer=norm,
                attn_layer=bind(layer, **options),
            )
            for index, layer in enumerate(classes)
        )
        self.norm = norm(config.dim)
        self.head = nn.Linear(config.dim, config.num_classes)
        self._init()

    def forward(self, images: Float[Tensor, "b channels height width"]) -> Float[Tensor, "b num_classes"]:
        """The logits of each image.

        Args:
            images: ``[b c h w]``, of the size that the config says.
        """
        return self.head(self.features(images))

    def features(self, images: Float[Tensor, "b channels height width"]) -> Float[Tensor, "b dim"]:
        """What the head reads: the class token, or the mean over the patches."""
        x = self.patch_embed(images)
        if self.class_token is not None:
            x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], dim=1)
        if self.position is not None:
            x = x + self.position
        if self.register_tokens is not None:
            x = torch.cat([self.register_tokens.expand(x.shape[0], -1, -1), x], dim=1)
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        registers = self.config.registers
        return x[:, registers] if self.config.class_token else x[:, registers:].mean(1)

    def _init(self) -> None:
        """DeiT's start: matrices and learned tokens from a normal of deviation 0.02, cut at two."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for tokens in (self.class_token, self.register_tokens, self.position):
            if tokens is not None:
                nn.init.trunc_normal_(tokens, std=0.02)
        reset_parameters(self)
