"""Pictures in a folder of class folders, such as ImageNet's, decoded when they are asked for."""

import os
from pathlib import Path
from typing import final

import numpy as np

from gkalib.datasets.image_set import ImageData, Images, Picture
from gkalib.datasets.registry import carrier

_ENDINGS = (".jpeg", ".jpg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif")
_LAYOUT = "train/CLASS/PICTURE and val/CLASS/PICTURE"


def folder(root: Path) -> ImageData:
    """The pictures of a folder ``train/CLASS/PICTURE`` and ``val/CLASS/PICTURE``; classes in sorted order.

    Raises:
        ValueError: if it has another layout, a class has no pictures, or ``val`` has other classes.
    """
    parts = {}
    for part in ("train", "val"):
        if not (root / part).is_dir():
            raise ValueError(f"data: {root} has no folder {part}. A folder of pictures holds {_LAYOUT}")
        parts[part] = _classes(root / part)
    train, val = parts["train"], parts["val"]
    if train.keys() != val.keys():
        raise ValueError(
            f"data: {root / 'val'} has other classes than train: {_difference(set(train), set(val))}"
        )
    return ImageData(_files(root / "train", train), _files(root / "val", val), tuple(train))


def _difference(train: set[str], val: set[str]) -> str:
    """What the one has and the other has not, a few of each."""
    told = []
    for missing, where in ((train - val, "val"), (val - train, "train")):
        if missing:
            few = sorted(missing)
            told.append(
                f"{where} lacks {', '.join(few[:3])}{f' and {len(few) - 3} more' if len(few) > 3 else ''}"
            )
    return "; ".join(told)


def _classes(root: Path) -> dict[str, list[str]]:
    """The names of the pictures in every class folder, both sorted."""
    found = {
        entry.name: sorted(file.name for file in os.scandir(entry.path) if _is_picture(file.name))
        for entry in sorted(os.scandir(root), key=lambda entry: entry.name)
        if entry.is_dir() and not entry.name.startswith(".")
    }
    if not found:
        loose = sum(_is_picture(entry.name) for entry in os.scandir(root))
        raise ValueError(
            f"data: {root} has no class folders ({loose} pictures lie in it directly): "
            f"a folder of pictures holds {_LAYOUT}"
        )
    for name, files in found.items():
        if not files:
            raise ValueError(f"data: the class folder {root / name} has no pictures ({', '.join(_ENDINGS)})")
    return found


def _is_picture(name: str) -> bool:
    return name.lower().endswith(_ENDINGS) and not name.startswith(".")


def _files(root: Path, classes: dict[str, list[str]]) -> "Files":
    names = np.array(
        [os.fsencode(os.path.join(name, file)) for name, files in classes.items() for file in files]
    )
    return Files(root, names, np.repeat(np.arange(len(classes)), [len(files) for files in classes.values()]))


@final
class Files(Images):
    """Pictures that lie in files.

    Args:
        root: the folder above the class folders.
        names: ``[n]``, the path of each below it, as bytes: an array is not copied into every process.
        labels: ``[n]``.
    """

    def __init__(self, root: Path, names: np.ndarray, labels: np.ndarray):
        """Keep where they are."""
        self.root, self.names, self.labels = root, names, labels

    def picture(self, index: int) -> Picture:
        """One picture, decoded, in color."""
        path = self.root / os.fsdecode(bytes(self.names[index]))
        try:
            with carrier("PIL.Image", "pictures").open(path) as opened:
                return opened.convert("RGB")
        except OSError as failure:
            raise ValueError(f"data: {path} cannot be decoded: {failure}") from failure

    def only(self, rows: np.ndarray) -> "Files":
        """Some of them."""
        return Files(self.root, self.names[rows], self.labels[rows])
