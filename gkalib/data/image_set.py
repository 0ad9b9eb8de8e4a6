"""What pictures to train a classifier on are, wherever they lie: counted, labeled, and decoded one by one."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np

from gkalib.extras import require

# Pillow comes with the extra `vision`: who loads text alone does without it.
if TYPE_CHECKING:
    from PIL.Image import Image as Picture
else:
    Picture = Any


def as_picture(pixels: np.ndarray) -> Picture:
    """A picture of bytes ``[height, width]`` or ``[height, width, 3]``."""
    return require("PIL.Image", "a picture").fromarray(np.ascontiguousarray(pixels))


class Images(ABC):
    """Labeled pictures by number.

    Args:
        labels: ``[n]``, the class of each from 0, int64.
    """

    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def picture(self, index: int) -> Picture:
        """One of them: 8 bits, three channels (``RGB``) or one (``L``)."""

    @abstractmethod
    def only(self, rows: np.ndarray) -> "Images":
        """Some of them, in this order."""


class ImageData(NamedTuple):
    """Pictures to train on and pictures to measure on.

    Args:
        train: what a model is trained on.
        held_out: what it is measured on; none of them is in ``train``.
        classes: the names of the classes, by label.
    """

    train: Images
    held_out: Images
    classes: tuple[str, ...]


@final
class Arrays(Images):
    """Pictures of one size that lie in an array, which may be memory-mapped.

    Args:
        pixels: bytes, ``[n, height, width]`` if gray and ``[n, height, width, 3]`` in color.
        labels: ``[n]``.
    """

    def __init__(self, pixels: np.ndarray, labels: np.ndarray):
        assert pixels.dtype == np.uint8 and len(pixels) == len(labels)
        self.pixels, self.labels = pixels, np.asarray(labels, np.int64)

    def picture(self, index: int) -> Picture:
        """One picture, copied out of the array."""
        return as_picture(self.pixels[index])

    def only(self, rows: np.ndarray) -> "Arrays":
        """Some of them, copied."""
        return Arrays(self.pixels[rows], self.labels[rows])
