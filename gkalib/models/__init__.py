"""Models whose attention is any variant, and what they cost."""

from gkalib.models.count import Count, count
from gkalib.models.gpt import GPT, PRESETS, GPTConfig, gpt
from gkalib.models.vit import ViT, ViTConfig, vit

__all__ = ["GPT", "PRESETS", "Count", "GPTConfig", "ViT", "ViTConfig", "count", "gpt", "vit"]
