"""Figures of the book: their style, their digests, and controls that move without a kernel."""

from gkalib.viz import maps, style
from gkalib.viz.explore import Explore, explore

__all__ = ["Explore", "explore", "maps", "style"]
