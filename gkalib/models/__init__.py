"""Models whose attention is any variant, what they cost, and variants put into other people's models."""

from gkalib.models.count import Count, count
from gkalib.models.gpt import GPT, PRESETS, GPTConfig, gpt

__all__ = [
    "GPT",
    "PRESETS",
    "Count",
    "GPTConfig",
    "ViT",
    "ViTConfig",
    "count",
    "gpt",
    "replace_attention",
    "vit",
]


def __getattr__(name: str):
    """Load what needs timm on first use, so that the decoder runs without it."""
    if name in ("ViT", "ViTConfig", "vit"):
        from gkalib.models import vit

        return getattr(vit, name)
    if name == "replace_attention":
        from gkalib.models.replace import replace_attention

        return replace_attention
    raise AttributeError(f"module 'gkalib.models' has no attribute {name!r}")
