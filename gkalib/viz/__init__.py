"""What trained models do, in numbers and figures; the book's figures: their style, digests and controls."""

from gkalib.viz import landscape, maps, portrait, sharpness, spectrum, style, walks
from gkalib.viz.bandwidths import bandwidths, heat, lines
from gkalib.viz.bank import bank
from gkalib.viz.census import agreements, census, class_row, residuals
from gkalib.viz.explore import Explore, explore
from gkalib.viz.layers import (
    Layer,
    entropy,
    layers,
    magnitudes,
    mass,
    measures,
    negative,
    neighbors,
    own,
    received,
)
from gkalib.viz.occlusion import agreement, occlusion, residual_share, saliency
from gkalib.viz.rollout import discarded, rollout

__all__ = [
    "Explore",
    "Layer",
    "agreement",
    "agreements",
    "bandwidths",
    "bank",
    "census",
    "class_row",
    "discarded",
    "entropy",
    "explore",
    "heat",
    "landscape",
    "layers",
    "lines",
    "magnitudes",
    "maps",
    "mass",
    "measures",
    "negative",
    "neighbors",
    "occlusion",
    "own",
    "portrait",
    "received",
    "residual_share",
    "residuals",
    "rollout",
    "saliency",
    "sharpness",
    "spectrum",
    "style",
    "walks",
]
