"""Any folder of class folders, and ImageNet-1k: pictures that are decoded when they are asked for."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any, final

import numpy as np
from rich.console import Console
from rich.progress import track

from gkalib.data.fetch import LAYOUT, default_cache, few, find_pictures, say
from gkalib.data.image_set import ImageData, Images, Picture, as_picture
from gkalib.data.registry import hub_files, registered
from gkalib.extras import require

# What the folders of the two parts may be called, in any letter case; the first that is there is taken. By
# another name than the first a folder is a part only if it has class folders: else it may be a class, or
# pictures without classes.
TRAIN = ("train", "training")
HELD_OUT = ("val", "valid", "validation", "test", "testing")
COUNTS = (1000, 1_281_167, 50_000)  # classes, pictures to train on, pictures held out
EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")  # torchvision's


def image_folder(root: Path, *, as_shown: bool = True) -> ImageData:
    """The pictures of a folder, each class in a folder of its name; classes in sorted order.

    ``train/CLASS/PICTURE`` and ``val/CLASS/PICTURE`` are taken as they are; the parts may as well be called
    ``Training`` and ``Validation`` or ``Testing``. Where there is ``CLASS/PICTURE`` alone, or only ``train``,
    a fifth of each class is held out, always the same pictures, which is said. A folder that holds one other
    alone, as an unpacked archive does, stands for that one if it has several classes or the part ``train``.

    Args:
        root: the folder.
        as_shown: whether pictures are read as a viewer shows them, see :func:`read_picture`.

    Raises:
        ValueError: if it has another layout, or one file, by way of links, in two classes or parts.
    """
    root = _innermost(root)
    train_root = _part(root, TRAIN)
    val_root = _part(root, HELD_OUT if train_root else HELD_OUT[:1])
    if val_root and not train_root:
        raise ValueError(
            f"data: {root} has a folder {val_root.name} and no folder train; "
            f"it holds CLASS/PICTURE or {LAYOUT}"
        )
    taken: dict[str, str] = {}
    images, classes = _list_pictures(train_root or root, taken, as_shown)
    if val_root:
        held_out, val_classes = _list_pictures(val_root, taken, as_shown)
        lacking = {"val": {*classes} - {*val_classes}, "train": {*val_classes} - {*classes}}
        if lacks := [f"{part} lacks {few(sorted(names))}" for part, names in lacking.items() if names]:
            raise ValueError(f"data: {val_root} has other classes than train: {'; '.join(lacks)}")
        return ImageData(images, held_out, classes)
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


def check_pictures(data: ImageData, *, quiet: bool = False) -> None:
    """Decode every picture of both parts once, on all cores and with a bar: before training, not during it.

    Args:
        data: the pictures.
        quiet: whether to leave out the bar.

    Raises:
        ValueError: if some cannot be decoded, with their names.
    """
    places = [(part, row) for part in (data.train, data.held_out) for row in range(len(part))]

    def problem(place: tuple[Images, int]) -> str:
        part, row = place
        try:
            part.picture(row)
        except ValueError as failure:
            return str(failure).removeprefix("data: ")
        return ""

    bar = {"console": Console(stderr=True), "disable": quiet or not sys.stderr.isatty()}
    with ThreadPool(os.cpu_count()) as pool:
        found = pool.imap(problem, places, chunksize=64)
        problems = list(filter(None, track(found, "checking pictures", len(places), **bar)))
    if problems:
        count = f"{len(problems)} of {len(places)} pictures"
        raise ValueError(f"data: {count} cannot be read:\n" + few(problems, 10, "\n"))


def _list_pictures(root: Path, taken: dict[str, str], as_shown: bool) -> tuple["Files", tuple[str, ...]]:
    """The pictures of a folder of class folders, and the names of the classes.

    Args:
        root: the folder.
        taken: the path of each picture by the file that it is, to which these are added.
        as_shown: how they are read.
    """
    if not (folders := _folders(root)):
        raise ValueError(
            f"data: {root} has no class folders ({len(_pictures(root))} pictures lie in it directly): "
            f"a folder of pictures holds CLASS/PICTURE, or {LAYOUT}"
        )
    names, labels = [], []
    for label, folder in enumerate(folders):
        above = {*map(os.path.realpath, (*folder.absolute().parents, *folder.resolve().parents))}
        count = len(names)
        for path, file in sorted(_walk(str(folder), above), key=lambda pair: os.path.split(pair[0])):
            if not taken.setdefault(file, path).startswith(f"{folder}{os.sep}"):
                raise ValueError(f"data: {taken[file]} and {path} are one file, in two classes or parts")
            if taken[file] == path:  # else a second link to it
                names.append(os.fsencode(folder.name + path.removeprefix(str(folder))))
                labels.append(label)
        if len(names) == count:
            raise ValueError(f"data: the class folder {folder} has no pictures ({', '.join(EXTENSIONS)})")
    return Files(root, np.array(names), np.array(labels), as_shown=as_shown), tuple(f.name for f in folders)


def _folders(root: Path) -> list[Path]:
    """The folders in a folder, by name, but for those that a system hides and links that lead up."""
    above = (root.resolve(), *root.resolve().parents)
    folders = (path for path in root.iterdir() if path.is_dir() and not _is_hidden(path.name))
    return sorted(path for path in folders if path.resolve() not in above)


def _pictures(root: Path) -> list[str]:
    """The names of the pictures that lie in a folder directly."""
    return [path.name for path in root.iterdir() if _is_picture(path.name)]


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "__MACOSX"))


def _is_picture(name: str) -> bool:
    return name.lower().endswith(EXTENSIONS) and not _is_hidden(name)


def _innermost(root: Path) -> Path:
    """The folder itself; or what it holds alone, at any depth, if that has several folders or a part.

    What is read instead of the folder is said.
    """
    inner, seen = root, set()
    while len(folders := _folders(inner)) == 1 and folders[0].name.lower() not in (*TRAIN, HELD_OUT[0]):
        if inner.resolve() in seen or _pictures(inner):
            return root
        seen.add(inner.resolve())
        (inner,) = folders
    if inner == root or not folders or _pictures(inner):
        return root
    say(f"{root} holds nothing but {inner}, which is read")
    return inner


def _part(root: Path, names: tuple[str, ...]) -> Path | None:
    """The folder of one part, by the first of its names that is there."""
    for name in names:
        found = [folder for folder in _folders(root) if folder.name.lower() == name]
        found = found if name == names[0] else list(filter(_folders, found))
        if len(found) > 1:
            raise ValueError(f"data: {found[0]} and {found[1]} could both be the part {name}")
        if found:
            return found[0]
    return None


def _walk(folder: str, seen: set[str]) -> Iterator[tuple[str, str]]:
    """The pictures at any depth below a folder, each with the file that it is behind all links.

    Folders in ``seen`` are left out, and each that is met is added, so that a loop of links has an end.
    """
    place = os.path.realpath(folder)
    if place in seen:
        return
    seen.add(place)
    with os.scandir(folder) as entries:
        for entry in entries:
            if _is_hidden(entry.name):
                continue
            if entry.is_dir():
                yield from _walk(entry.path, seen)
            elif _is_picture(entry.name):
                behind = (
                    os.path.realpath(entry.path) if entry.is_symlink() else os.path.join(place, entry.name)
                )
                yield entry.path, behind


def imagenet() -> ImageData:
    """ImageNet-1k, out of a folder ``imagenet`` with ``train/`` and ``val/``, or out of the hub's files.

    Classes stand in the order of their WordNet numbers in both. The hub's files are written once more, in a
    form that single pictures can be read from. As in all published runs, no picture is turned as its EXIF
    says.

    References:
        Russakovsky et al., ImageNet large scale visual recognition challenge, 2015. Chapter 23.
    """
    hub = registered("imagenet").hub
    root = hub and find_pictures(hub)
    if root is None:
        train, held_out = (_load_table(hub_files("imagenet", part)) for part in ("train", "validation"))
        data = ImageData(HubRows(train), HubRows(held_out), tuple(train.features["label"].names))
    else:
        data = image_folder(root, as_shown=False)
    counts = (len(data.classes), len(data.train), len(data.held_out))
    if counts != COUNTS:
        actual, expected = (
            "{:,} classes, {:,} pictures to train on and {:,} held out".format(*of) for of in (counts, COUNTS)
        )
        path = f". A part of it is a data set by its path: {root}" if root else ""
        raise ValueError(f"data: 'imagenet' is not whole: it has {actual}, not {expected}{path}")
    return data


def _load_table(files: list[Path]) -> Any:
    """The hub's files as a table that rows can be read from in any order, pictures as the bytes of a file."""
    library = require("datasets", "imagenet")
    table = library.load_dataset(
        "parquet",
        data_files=[str(file) for file in files],
        split="train",
        cache_dir=str(default_cache() / "arrow"),
    )
    # Decoded by the library, pictures would be turned as their EXIF says, and the one of ImageNet whose XMP
    # is no UTF-8 (n04532106_1553) would end a run (its issue 7668).
    return table.cast_column("image", library.Image(decode=False))


def read_picture(file: str | Path | io.BytesIO, *, name: str = "", as_shown: bool = True) -> Picture:
    """A picture of 8 bits in color out of a file; of 16 bits the upper eight are taken.

    Args:
        file: its path, or its bytes.
        name: what it is called in errors; its path where not given.
        as_shown: as a viewer shows it, turned as the camera noted in EXIF, on white where it is transparent;
            a TIFF file is turned in any case, as Pillow does when it decodes one.

    Raises:
        ValueError: if it cannot be decoded, or has values of 32 bits, of which no white is known.
    """
    library = require("PIL.Image", "a picture")
    try:
        # A stream: Pillow maps a path into memory, and turns an uncompressed gray TIFF wrong then.
        with (
            nullcontext(file) if isinstance(file, io.BytesIO) else open(file, "rb") as source,
            library.open(source) as image,
        ):
            image.load()
            picture = _upright(image) if as_shown else image
            if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
                values = np.asarray(picture)
                picture = as_picture((values >> 8).astype(np.uint8))
                if (clear := image.info.get("transparency")) is not None:  # the value that is transparent
                    picture.putalpha(as_picture((values != clear).astype(np.uint8) * 255))
            elif image.mode in ("I", "F"):
                raise ValueError("its values have 32 bits, and no white is known; store it with 8 or 16 bits")
            return (_on_white(picture) if as_shown else picture).convert("RGB")
    except Exception as failure:  # the readers of formats share no class of errors
        raise ValueError(f"data: {name or file} cannot be decoded: {failure}") from failure


def _upright(image: Picture) -> Picture:
    """A picture turned as its file notes; a note that cannot be read turns nothing."""
    library = require("PIL.ImageOps", "a picture")
    try:
        return library.exif_transpose(image)
    except Exception:  # the note is broken, not the picture
        return image


def _on_white(picture: Picture) -> Picture:
    """A picture with what is transparent in it laid on white."""
    if not picture.has_transparency_data:
        return picture
    picture = picture.convert("RGBA")
    white = require("PIL.Image", "a picture").new("RGBA", picture.size, "white")
    white.alpha_composite(picture)
    return white


@final
class Files(Images):
    """Pictures that lie in files.

    Args:
        root: the folder above the class folders.
        names: ``[n]``, the path of each below it, as bytes: an array is not copied into every process.
        labels: ``[n]``.
        as_shown: how they are read, see :func:`read_picture`.
    """

    def __init__(self, root: Path, names: np.ndarray, labels: np.ndarray, *, as_shown: bool = True):
        self.root, self.names, self.labels, self.as_shown = root, names, labels, as_shown

    def picture(self, index: int) -> Picture:
        """One picture, decoded, in color."""
        return read_picture(self.root / os.fsdecode(bytes(self.names[index])), as_shown=self.as_shown)

    def only(self, rows: np.ndarray) -> "Files":
        """Some of them."""
        return Files(self.root, self.names[rows], self.labels[rows], as_shown=self.as_shown)


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
        return read_picture(source, name=f"picture {row} of the hub's files", as_shown=False)

    def only(self, rows: np.ndarray) -> "HubRows":
        """Some of them."""
        return HubRows(self.table, self.rows[rows])
