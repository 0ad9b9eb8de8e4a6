"""Small runs that tests of training start from."""

from typing import Any

from gkalib.models import GPTConfig, ViTConfig
from gkalib.training import LanguageConfig, VisionConfig


def text_run(**changes: Any) -> LanguageConfig:
    """A decoder of three thousand parameters on the fixture."""
    settings: dict[str, Any] = {
        "experiment": "tiny",
        "arm": "softmax",
        "data": "state-of-the-union",
        "batch": 4,
        "device_batch": 2,
        "steps": 10,
        "lr": 1e-2,
        "model": GPTConfig(vocab_size=11, context=8, dim=16, depth=1, num_heads=2),
    }
    return LanguageConfig(**settings | changes)


def picture_run(**changes: Any) -> VisionConfig:
    """A classifier of made-up pictures of 8 × 8 pixels."""
    settings: dict[str, Any] = {
        "experiment": "tiny",
        "arm": "softmax",
        "data": "made-up",
        "batch": 4,
        "device_batch": 2,
        "steps": 10,
        "lr": 1e-2,
        "model": ViTConfig(image_size=8, patch_size=4, dim=16, depth=1, num_heads=2, num_classes=3),
    }
    return VisionConfig(**settings | changes)
