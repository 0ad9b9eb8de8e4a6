"""What trained models do, in numbers and figures; the book's figures: their style, digests and controls."""

from gkalib.viz import maps, style
from gkalib.viz.bandwidths import bandwidths, heat, lines
from gkalib.viz.bank import bank
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
from gkalib.viz.rollout import discarded, rollout

__all__ = [
    "Explore",
    "Layer",
    "bandwidths",
    "bank",
    "discarded",
    "entropy",
    "explore",
    "heat",
    "layers",
    "lines",
    "magnitudes",
    "maps",
    "mass",
    "measures",
    "negative",
    "neighbors",
    "own",
    "received",
    "rollout",
    "style",
]
