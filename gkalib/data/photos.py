"""Images by the name of their data set, or out of a folder, or made up: for training and for measuring."""

import os
import re
from pathlib import Path
from typing import final

import numpy as np

from gkalib.data.cifar import cifar10, cifar100
from gkalib.data.folders import folder, imagenet
from gkalib.data.idx import split
from gkalib.data.image_set import Arrays, ImageData, Images, Picture, drawn, limited
from gkalib.data.images import digits

_MADE_UP = re.compile(r"made-up(?:-(\d+)x(\d+))?")
# Names of the sets whose pictures are gray arrays.
_IDX = {"mnist": "mnist", "fashion-mnist": "fashion_mnist"}
_LOADERS = {"cifar10": cifar10, "cifar100": cifar100, "imagenet": imagenet}
NAMES = (*_LOADERS, *_IDX, "digits", "made-up")


def made_up(size: int = 32, classes: int = 10, *, train: int = 2048, held_out: int = 512) -> ImageData:
    """Pictures that need no data at hand, for tests and smoke runs: what is learned from them means nothing.

    Args:
        size: their height and width.
        classes: how many.
        train, held_out: how many pictures of each part.

    Raises:
        ValueError: if a picture cannot have that size, or there are too many classes to look different.
    """
    names = tuple(f"class {number}" for number in range(classes))
    return ImageData(MadeUp(size, classes, train, 0), MadeUp(size, classes, held_out, 1), names)


def image_data(name: str, *, limit: int | None = None) -> ImageData:
    """The pictures of a data set.

    Args:
        name: one of :data:`NAMES`; ``made-up-224x1000`` for made-up pictures of that size and number of
            classes; or the path of a folder that holds ``train/CLASS/PICTURE`` and ``val/CLASS/PICTURE``.
        limit: how many pictures to train on, always the same ones, of all classes about alike; None is all.

    Raises:
        ValueError: if there is no such set, it is not here and cannot be fetched, or is another than the
            registered one; the message says what to do.

    References:
        Chapter 21 trains on them.
    """
    data = _found(name)
    return data._replace(train=limited(data.train, limit))


def _found(name: str) -> ImageData:
    made = _MADE_UP.fullmatch(name)
    if made:
        return made_up(*(int(number) for number in made.groups() if number))
    if name == "digits":
        return _digits()
    if name in _LOADERS:
        return _LOADERS[name]()
    if name in _IDX:
        return split(_IDX[name])
    if Path(name).is_dir():
        return folder(Path(name))
    if os.sep in name or Path(name).suffix:
        raise ValueError(f"data: there is no folder {name}")
    raise ValueError(
        f"data: no images named {name!r}. Known: {', '.join(NAMES)}; "
        "or the path of a folder with train/ and val/"
    )


def _digits() -> ImageData:
    """The last fifth is held out: they stand in the order of their writers, so those are other people's."""
    images, labels = digits()
    pixels = np.round(images * 255).astype(np.uint8)
    cut = len(labels) * 4 // 5
    classes = tuple("0123456789")
    return ImageData(Arrays(pixels[:cut], labels[:cut]), Arrays(pixels[cut:], labels[cut:]), classes)


@final
class MadeUp(Images):
    """Noise over a grating whose color and direction are the class's, drawn when it is asked for.

    Channel k of pixel (x, y) is mₖ + 48 aₖ cos(8π (x cos θ + y sin θ) / size + φ) + 24 ε. The class has signs
    a, the direction θ and, from the 33rd on, the mean m; the picture has the phase φ and the noise ε.

    Args:
        size: its height and width.
        classes: how many.
        count: how many pictures.
        seed: pictures of other seeds are others; of the same class they look alike.

    Raises:
        ValueError: if a picture cannot have that size, or there are too many classes to look different.
    """

    def __init__(self, size: int, classes: int, count: int, seed: int):
        """Draw the labels."""
        if size < 1 or not 1 <= classes <= 4000:
            raise ValueError(
                f"data: made-up pictures have a size from 1 and 1 to 4000 classes, not {size} and {classes}"
            )
        self.size, self.seed = size, seed
        self.labels = np.random.default_rng([seed, 0]).permutation(np.arange(count, dtype=np.int64) % classes)
        self.numbers = np.arange(count)

    def picture(self, index: int) -> Picture:
        """The picture of that number: always the same one."""
        label = int(self.labels[index])
        own = np.random.default_rng([self.seed, 1, int(self.numbers[index])])
        signs = 1 - 2 * np.array([0, label & 1, label >> 1 & 1])
        angle, color = np.pi * (label // 4 % 8) / 8, label // 32
        mean = 128 + 24 * ((2 + color // np.array([1, 5, 25])) % 5 - 2)
        along, phase = 8 * np.pi * np.arange(self.size) / self.size, own.uniform(0, 2 * np.pi)
        wave = np.cos(along * np.cos(angle) + along[:, None] * np.sin(angle) + phase)
        noise = own.standard_normal((self.size, self.size, 3), np.float32)
        return drawn((mean + 48 * wave[..., None] * signs + 24 * noise).clip(0, 255).astype(np.uint8))

    def only(self, rows: np.ndarray) -> "MadeUp":
        """Some of them."""
        some = MadeUp(self.size, 1, 0, self.seed)
        some.labels, some.numbers = self.labels[rows], self.numbers[rows]
        return some
