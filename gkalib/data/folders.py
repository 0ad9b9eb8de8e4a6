"""ImageNet-1k, and any folder of class folders: pictures that are decoded when they are asked for."""

import hashlib
import io
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, final

import numpy as np

from gkalib.data.fetch import default_cache, places
from gkalib.data.hub import Hub
from gkalib.data.image_set import ImageData, Images, Picture
from gkalib.data.registry import carrier, dataset, hub

_ENDINGS = (".jpeg", ".jpg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif")
_LAYOUT = "train/CLASS/PICTURE and val/CLASS/PICTURE"
COUNTS = (1000, 1_281_167, 50_000)  # classes, pictures to train on, pictures held out
MANY = 10_000  # pictures of a part whose list is kept


def folder(root: Path) -> ImageData:
    """The pictures of a folder ``train/CLASS/PICTURE`` and ``val/CLASS/PICTURE``; classes in sorted order.

    Raises:
        ValueError: if it has another layout, a class has no pictures, or ``val`` has other classes.
    """
    parts = {}
    for part in ("train", "val"):
        if not (root / part).is_dir():
            raise ValueError(f"data: {root} has no folder {part}. A folder of pictures holds {_LAYOUT}")
        parts[part] = _listed(root / part)
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


def _listed(root: Path) -> dict[str, list[str]]:
    """The names of the pictures in every class folder, kept in the cache where there are many.

    Listing a million files takes minutes on some disks. A folder's time of change is that of the last file
    that came or went, so it says whether the list still holds.
    """
    try:
        stamps = {entry.name: entry.stat().st_mtime_ns for entry in os.scandir(root) if entry.is_dir()}
    except OSError as failure:
        raise ValueError(f"data: {root} cannot be read: {failure}") from failure
    key = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:16]
    kept = default_cache() / "lists" / f"{key}.json"
    # a list that is not there, or is damaged, is made anew
    with suppress(OSError, ValueError, KeyError, TypeError):
        known = json.loads(kept.read_text(encoding="utf-8"))
        if known["stamps"] == stamps:
            return known["classes"]
    found = _classes(root)
    if sum(map(len, found.values())) >= MANY:
        partial = kept.with_suffix(f".{os.getpid()}")
        # where the cache cannot be written, the list is made each time
        with suppress(OSError):
            kept.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(json.dumps({"stamps": stamps, "classes": found}), encoding="utf-8")
            partial.replace(kept)
    return found


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


@dataset(
    description="Photographs in a thousand classes, 1,281,167 to train on and 50,000 to test",
    source="Russakovsky et al. 2015; a folder imagenet of class folders, or the hub",
    license="research and education only, by ImageNet's terms; not redistributed here",
    sha256="",
    hub=Hub(
        repo="ILSVRC/imagenet-1k",
        revision="main",
        folder="imagenet-1k",
        files={"train": "train-*.parquet", "validation": "validation-*.parquet"},
        size="about 150 GB",
        terms="for an account that has accepted its terms (hf auth login)",
    ),
    here=lambda: _placed() is not None,
)
def imagenet() -> ImageData:
    """ImageNet-1k, out of a folder ``imagenet`` with ``train/`` and ``val/``, or out of the hub's files.

    Classes stand in the order of their WordNet numbers in both. The hub's files are written once more, in a
    form that single pictures can be read from.

    Raises:
        ValueError: if it is not here, or the folder is not whole.

    References:
        Russakovsky et al., ImageNet large scale visual recognition challenge, 2015. Chapter 21.
    """
    root = _placed()
    if root is None:
        try:
            train, held_out = (_opened(hub("imagenet", part)) for part in ("train", "validation"))
        except ValueError as failure:
            where = " or ".join(str(place / "imagenet") for place in places())
            raise ValueError(f"{failure}\n(or put its pictures as {_LAYOUT} into {where})") from failure
        data = ImageData(Rows(train), Rows(held_out), tuple(train.features["label"].names))
    else:
        data = folder(root)
    counts = (len(data.classes), len(data.train), len(data.held_out))
    if counts != COUNTS:
        have, whole = (
            "{:,} classes, {:,} pictures to train on and {:,} held out".format(*of) for of in (counts, COUNTS)
        )
        path = f". A part of it is a data set by its path: {root}" if root else ""
        raise ValueError(f"data: 'imagenet' is not whole: it has {have}, not {whole}{path}")
    return data


def _placed() -> Path | None:
    return next((place / "imagenet" for place in places() if (place / "imagenet" / "train").is_dir()), None)


def _opened(files: list[Path]) -> Any:
    """The hub's files as a table that rows can be read from in any order, pictures as the bytes of a file."""
    library = carrier("datasets", "imagenet")
    table = library.load_dataset(
        "parquet",
        data_files=[str(file) for file in files],
        split="train",
        cache_dir=str(default_cache() / "arrow"),
    )
    # Decoded by the library, pictures would be turned as their EXIF says, which a folder's are not, and the
    # one of ImageNet whose XMP is no UTF-8 (n04532106_1553) would end a run (its issue 7668).
    return table.cast_column("image", library.Image(decode=False))


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


@final
class Rows(Images):
    """Pictures in the rows of a table of the package ``datasets``.

    Args:
        table: its columns ``image``, a file's bytes or its path, and ``label``.
        rows: which of its rows; None is all.
    """

    def __init__(self, table: Any, rows: np.ndarray | None = None):
        """Read the labels."""
        self.table, self.rows = table, np.arange(len(table)) if rows is None else rows
        self.labels = np.asarray(table.with_format("numpy")["label"][:], np.int64)[self.rows]

    def picture(self, index: int) -> Picture:
        """One picture, decoded, in color."""
        row = int(self.rows[index])
        kept = self.table[row]["image"]
        try:
            source = io.BytesIO(kept["bytes"]) if kept["bytes"] is not None else kept["path"]
            with carrier("PIL.Image", "pictures").open(source) as opened:
                return opened.convert("RGB")
        except OSError as failure:
            raise ValueError(
                f"data: picture {row} of the hub's files cannot be decoded: {failure}"
            ) from failure

    def only(self, rows: np.ndarray) -> "Rows":
        """Some of them."""
        return Rows(self.table, self.rows[rows])
