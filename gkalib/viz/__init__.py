"""What trained models do, in numbers and figures; the book's figures: their style, digests and controls."""

from gkalib.viz import landscape, maps, portrait, sharpness, sheets, spectrum, style, walks
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
from gkalib.viz.rows import banks_of, picture_rows, text_rows

__all__ = [
    "Explore",
    "Layer",
    "agreement",
    "agreements",
    "bandwidths",
    "bank",
    "banks_of",
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
    "picture_rows",
    "portrait",
    "received",
    "residual_share",
    "residuals",
    "rollout",
    "saliency",
    "sharpness",
    "sheets",
    "spectrum",
    "style",
    "text_rows",
    "walks",
]
