"""Pictures to denoise and digits to classify, carried by the libraries that the book uses anyway."""

from functools import partial
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int64

from gkalib.data.registry import DATASETS, Dataset, carrier, dataset, verified

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


def picture(name: str) -> Float[np.ndarray, "height width *channels"]:
    """A photograph with values from 0 to 1, ``[height, width]`` if gray and ``[height, width, 3]`` in color.

    Args:
        name: one of camera, astronaut, cat, coffee, coins, brick, grass, gravel.

    Raises:
        ValueError: if there is no picture of that name, or scikit-image is missing or carries another.

    References:
        scikit-image's ``skimage.data``. Chapter 5 denoises some.
    """
    if name not in _PICTURES:
        raise ValueError(f"datasets: no picture named {name!r}. Known: {', '.join(_PICTURES)}")
    carrier("skimage", name)
    with (files("skimage") / "data" / _PICTURES[name][0]).open("rb") as stream:
        pixels = carrier("PIL.Image", name).open(stream)
        return verified(name, np.asarray(pixels, np.float64) / 255)


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

    Raises:
        ValueError: if scikit-learn carries other data.

    References:
        Alpaydin and Kaynak, Optical recognition of handwritten digits, 1998. Chapters 7 and 9 train on it.
    """
    from sklearn.datasets import load_digits  # training elsewhere needs no scikit-learn

    pixels, labels = map(np.asarray, load_digits(return_X_y=True))
    return verified("digits", Labeled(pixels.reshape(-1, 8, 8) / 16, labels.astype(np.int64)))
