"""Any folder of class folders, and ImageNet-1k: pictures that are decoded when they are asked for."""

import io
import os
from pathlib import Path
from typing import Any, final

import numpy as np

from gkalib.data.fetch import Hub, default_cache, places, say
from gkalib.data.image_set import ImageData, Images, Picture
from gkalib.data.registry import dataset, hub_files
from gkalib.extras import require

_LAYOUT = "train/CLASS/PICTURE and val/CLASS/PICTURE"
COUNTS = (1000, 1_281_167, 50_000)  # classes, pictures to train on, pictures held out


def image_folder(root: Path) -> ImageData:
    """The pictures of a folder, each class in a folder of its name; classes in sorted order.

    ``train/CLASS/PICTURE`` and ``val/CLASS/PICTURE`` are taken as they are. Where there is ``CLASS/PICTURE``
    alone, or no ``val``, a fifth of each class is held out, always the same pictures, which is said.
    """
    if (root / "val").is_dir() and (root / "train").is_dir():
        (train, classes), (held_out, val_classes) = (_list_pictures(root / part) for part in ("train", "val"))
        if classes != val_classes:
            raise ValueError(
                f"data: {root / 'val'} has other classes than train: "
                f"{_difference(set(classes), set(val_classes))}"
            )
        return ImageData(train, held_out, classes)
    if (root / "val").is_dir():
        raise ValueError(
            f"data: {root} has a folder val and no folder train; it holds CLASS/PICTURE or {_LAYOUT}"
        )
    images, classes = _list_pictures(root / "train" if (root / "train").is_dir() else root)
    order = np.random.default_rng(0).permutation(len(images))
    by_class = [order[images.labels[order] == label] for label in range(len(classes))]
    chosen = np.concatenate([rows[: max(len(rows) // 5, int(len(rows) > 1))] for rows in by_class])
    if not len(chosen):
        raise ValueError(f"data: {root} has one picture of each class, so that none can be held out")
    say(
        f"{root} has no folder val: {len(chosen)} of its {len(images)} pictures are held out, "
        "a fifth of each class, always the same ones"
    )
    rest = np.setdiff1d(np.arange(len(images)), chosen)
    return ImageData(images.only(rest), images.only(np.sort(chosen)), classes)


def _difference(train: set[str], val: set[str]) -> str:
    """What the one has and the other has not, a few of each."""
    lacks = []
    for missing, where in ((train - val, "val"), (val - train, "train")):
        if missing:
            few, more = sorted(missing)[:3], len(missing) - 3
            lacks.append(f"{where} lacks {', '.join(few)}{f' and {more} more' if more > 0 else ''}")
    return "; ".join(lacks)


def _list_pictures(root: Path) -> tuple["Files", tuple[str, ...]]:
    """The pictures of a folder of class folders, and the names of the classes."""
    library = require("torchvision.datasets.folder", "a folder of pictures")

    def is_picture(path: str) -> bool:
        return library.is_image_file(path) and not os.path.basename(path).startswith(".")

    folders = sorted(path.name for path in root.iterdir() if path.is_dir() and path.name[0] != ".")
    if not folders:
        loose = sum(is_picture(path.name) for path in root.iterdir())
        raise ValueError(
            f"data: {root} has no class folders ({loose} pictures lie in it directly): "
            f"a folder of pictures holds CLASS/PICTURE, or {_LAYOUT}"
        )
    labels = {name: label for label, name in enumerate(folders)}
    samples = library.make_dataset(str(root), labels, is_valid_file=is_picture, allow_empty=True)
    if empty := set(range(len(folders))) - {label for _, label in samples}:
        raise ValueError(
            f"data: the class folder {root / folders[min(empty)]} has no pictures "
            f"({', '.join(library.IMG_EXTENSIONS)})"
        )
    names = np.array([os.fsencode(path[len(str(root)) + 1 :]) for path, _ in samples])
    return Files(root, names, np.array([label for _, label in samples])), tuple(folders)


@dataset(
    description="Photographs in a thousand classes, 1,281,167 to train on and 50,000 to test",
    source="Russakovsky et al. 2015; a folder imagenet of class folders, or the hub",
    license="research and education only, by ImageNet's terms; not redistributed here",
    sha256="",
    hub=Hub(
        repo="ILSVRC/imagenet-1k",
        revision="49e2ee26f3810fb5a7536bbf732a7b07389a47b5",
        folder="imagenet-1k",
        files={"train": "train-*.parquet", "validation": "validation-*.parquet"},
        size="about 150 GB",
        terms="for an account that has accepted its terms (hf auth login)",
    ),
    here=lambda: _find_imagenet() is not None,
)
def imagenet() -> ImageData:
    """ImageNet-1k, out of a folder ``imagenet`` with ``train/`` and ``val/``, or out of the hub's files.

    Classes stand in the order of their WordNet numbers in both. The hub's files are written once more, in a
    form that single pictures can be read from.

    References:
        Russakovsky et al., ImageNet large scale visual recognition challenge, 2015. Chapter 21.
    """
    root = _find_imagenet()
    if root is None:
        try:
            train, held_out = (_load_table(hub_files("imagenet", part)) for part in ("train", "validation"))
        except ValueError as failure:
            where = " or ".join(str(place / "imagenet") for place in places())
            raise ValueError(f"{failure}\n(or put its pictures as {_LAYOUT} into {where})") from failure
        data = ImageData(HubRows(train), HubRows(held_out), tuple(train.features["label"].names))
    else:
        data = image_folder(root)
    counts = (len(data.classes), len(data.train), len(data.held_out))
    if counts != COUNTS:
        actual, expected = (
            "{:,} classes, {:,} pictures to train on and {:,} held out".format(*of) for of in (counts, COUNTS)
        )
        path = f". A part of it is a data set by its path: {root}" if root else ""
        raise ValueError(f"data: 'imagenet' is not whole: it has {actual}, not {expected}{path}")
    return data


def _find_imagenet() -> Path | None:
    return next((place / "imagenet" for place in places() if (place / "imagenet" / "train").is_dir()), None)


def _load_table(files: list[Path]) -> Any:
    """The hub's files as a table that rows can be read from in any order, pictures as the bytes of a file."""
    library = require("datasets", "imagenet")
    table = library.load_dataset(
        "parquet",
        data_files=[str(file) for file in files],
        split="train",
        cache_dir=str(default_cache() / "arrow"),
    )
    # Decoded by the library, pictures would be turned as their EXIF says, which a folder's are not, and the
    # one of ImageNet whose XMP is no UTF-8 (n04532106_1553) would end a run (its issue 7668).
    return table.cast_column("image", library.Image(decode=False))


def _decode(source: Any, name: str) -> Picture:
    """A picture out of a file, in color."""
    try:
        with require("PIL.Image", "a picture").open(source) as image:
            return image.convert("RGB")
    except OSError as failure:
        raise ValueError(f"data: {name} cannot be decoded: {failure}") from failure


@final
class Files(Images):
    """Pictures that lie in files.

    Args:
        root: the folder above the class folders.
        names: ``[n]``, the path of each below it, as bytes: an array is not copied into every process.
        labels: ``[n]``.
    """

    def __init__(self, root: Path, names: np.ndarray, labels: np.ndarray):
        self.root, self.names, self.labels = root, names, labels

    def picture(self, index: int) -> Picture:
        """One picture, decoded, in color."""
        path = self.root / os.fsdecode(bytes(self.names[index]))
        return _decode(path, str(path))

    def only(self, rows: np.ndarray) -> "Files":
        """Some of them."""
        return Files(self.root, self.names[rows], self.labels[rows])


@final
class HubRows(Images):
    """Pictures in the rows of a table of the package ``datasets``.

    Args:
        table: its columns ``image``, a file's bytes or its path, and ``label``.
        rows: which of its rows; None is all.
    """

    def __init__(self, table: Any, rows: np.ndarray | None = None):
        self.table, self.rows = table, np.arange(len(table)) if rows is None else rows
        self.labels = np.asarray(table.with_format("numpy")["label"][:], np.int64)[self.rows]

    def picture(self, index: int) -> Picture:
        """One picture, decoded, in color."""
        row = int(self.rows[index])
        image = self.table[row]["image"]
        source = io.BytesIO(image["bytes"]) if image["bytes"] is not None else image["path"]
        return _decode(source, f"picture {row} of the hub's files")

    def only(self, rows: np.ndarray) -> "HubRows":
        """Some of them."""
        return HubRows(self.table, self.rows[rows])
