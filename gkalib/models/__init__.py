"""Models whose attention is any variant, what they cost, and variants put into other people's models."""

from gkalib.models.count import Count, count
from gkalib.models.gpt import GPT, gpt
from gkalib.models.gpt_config import PRESETS, GPTConfig
from gkalib.models.overview import overview, overview_table
from gkalib.models.replace import replace_attention
from gkalib.models.saved import from_pretrained
from gkalib.models.swap import Swap
from gkalib.models.vit import ViT, ViTConfig, vit

__all__ = [
    "GPT",
    "PRESETS",
    "Count",
    "GPTConfig",
    "Swap",
    "ViT",
    "ViTConfig",
    "count",
    "from_pretrained",
    "gpt",
    "overview",
    "overview_table",
    "replace_attention",
    "vit",
]
