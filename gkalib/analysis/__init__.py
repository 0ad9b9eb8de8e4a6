"""Trained models in numbers: what their attention does, how it flows, and the loss around them."""

from gkalib.analysis import landscape, spectrum
from gkalib.analysis.capture import Captured, capture_attention
from gkalib.analysis.measures import (
    bandwidths,
    banks,
    contributions,
    entropy,
    magnitudes,
    mass,
    measures,
    negative,
    neighbors,
    own,
    received,
)
from gkalib.analysis.metrics import (
    agreement_metrics,
    attention_metrics,
    landscape_rows,
    of_heads,
    picture_rows,
    residual_metrics,
    spectrum_metrics,
    text_rows,
)
from gkalib.analysis.occlusion import agreement, occlusion, residual_share, saliency
from gkalib.analysis.rollout import (
    class_row,
    discarded,
    patch_grid,
    patch_rows,
    query_patches,
    rollout,
)
from gkalib.extras import moved

__getattr__ = moved(
    __name__,
    {
        "patches": "gkalib.analysis.rollout",
        "sharpness": "chapters.experiments.sharpness",
        "slopes": "chapters.experiments.slopes",
    },
)

__all__ = [
    "Captured",
    "agreement",
    "agreement_metrics",
    "attention_metrics",
    "bandwidths",
    "banks",
    "capture_attention",
    "class_row",
    "contributions",
    "discarded",
    "entropy",
    "landscape",
    "landscape_rows",
    "magnitudes",
    "mass",
    "measures",
    "negative",
    "neighbors",
    "occlusion",
    "of_heads",
    "own",
    "patch_grid",
    "patch_rows",
    "picture_rows",
    "query_patches",
    "received",
    "residual_metrics",
    "residual_share",
    "rollout",
    "saliency",
    "spectrum",
    "spectrum_metrics",
    "text_rows",
]
