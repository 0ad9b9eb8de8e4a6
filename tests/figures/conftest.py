"""Figures of chapters are drawn as those of the library are: in the book's style, and closed after a test."""

from tests.viz.conftest import _style, axes

__all__ = ["_style", "axes"]
