"""What each data set is, where it comes from, under which terms, and how its content is checked."""

import hashlib
import lzma
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gkalib.data import fetch as files
from gkalib.data.fetch import Archive, Folder, Hub

Content = TypeVar("Content")


@dataclass(frozen=True)
class Dataset:
    """One data set, a table of ``sets.toml``.

    Args:
        name: the name of its loader in ``gkalib.data``, or what its loader is given.
        description: what it holds, in one line.
        source: who measured or wrote it, and the package that carries it.
        license: the terms of the data.
        loader: reads, checks and returns it; in the table, the function of ``gkalib.data`` that takes its
            name, where there is none of that name.
        sha256: of the decoded content, see :func:`digest`; empty where the hub states each file's.
        archives: what can be fetched as one file, in the order in which it is tried; none if this library or
            another carries the data. In the table, ``shares`` names a set whose archives hold this one too.
        folder: the files that no package carries and that have to be put in place by hand.
        hub: its files on the Hugging Face hub, which may as well lie in a folder here.
        classes: the names of the classes of its pictures by label, where none need be read to know them.
    """

    name: str
    description: str
    source: str
    license: str
    loader: Callable[[], Any]
    sha256: str = ""
    archives: tuple[Archive, ...] = ()
    folder: Folder | None = None
    hub: Hub | None = None
    classes: tuple[str, ...] = ()


def _load(name: str, loader: str) -> Any:
    """A data set by its function in ``gkalib.data``, which is given the name where it has another."""
    from gkalib import data  # whose modules import this one

    return getattr(data, loader)(*([] if loader == name else [name]))


def _read_sets() -> dict[str, Dataset]:
    """The data sets of ``sets.toml`` by name, in its order."""
    tables = tomllib.loads((package_files("gkalib.data") / "sets.toml").read_text(encoding="utf-8"))
    sets = {}
    for name, table in tables.items():
        fields = {field: value for field, value in table.items() if field not in ("loader", "shares")}
        archives = tables[table.get("shares", name)].get("archives", ())
        fields["archives"] = tuple(Archive(**archive) for archive in archives)
        fields["classes"] = tuple(table.get("classes", ()))
        for field, kind in (("folder", Folder), ("hub", Hub)):
            if field in table:
                fields[field] = kind(**table[field])
        sets[name] = Dataset(name=name, loader=partial(_load, name, table.get("loader", name)), **fields)
    return sets


DATASETS = _read_sets()


def registered(name: str) -> Dataset:
    """The data set of that name."""
    key = name.replace("-", "_")
    if key not in DATASETS:
        raise ValueError(f"data: no data set named {name!r}. Known: {', '.join(DATASETS)}")
    return DATASETS[key]


def checksum(name: str) -> str:
    """The sha256 that a data set's content was checked against; empty where the registry has none for it."""
    entry = DATASETS.get(name.replace("-", "_"))
    return entry.sha256 if entry else ""


def digest(content: Any) -> str:
    """The sha256 of decoded content: arrays by type, shape and bytes, text as UTF-8, the rest by parts."""
    hasher = hashlib.sha256()
    _absorb(hasher, content)
    return hasher.hexdigest()


def _absorb(hasher, content: Any) -> None:
    if isinstance(content, np.ndarray):
        array = np.ascontiguousarray(content, content.dtype.newbyteorder("<"))
        hasher.update(f"{array.dtype.str}{array.shape}".encode())
        hasher.update(array.data)
    elif isinstance(content, str | bytes):
        hasher.update(content.encode() if isinstance(content, str) else content)
    elif isinstance(content, Mapping):
        for key in sorted(content):
            _absorb(hasher, key)
            _absorb(hasher, content[key])
    else:
        for part in content:
            _absorb(hasher, part)


def verified(name: str, content: Content) -> Content:
    """The content as it is, if its checksum is the registry's."""
    expected, sha256 = registered(name).sha256, digest(content)
    if sha256 != expected:
        raise ValueError(
            f"data: the content of {name!r} has sha256 {sha256}, not {expected}: "
            f"another version of its source? ({registered(name).source})"
        )
    return content


def absent(name: str, *failures: str) -> ValueError:
    """The error that a data set is not here: what to do, where it is looked for, and what was tried."""
    lines = [f"data: {name!r} is not here. {_remedy(name)}", *filter(None, ["; ".join(failures)])]
    return ValueError("\n".join(lines))


def _remedy(name: str) -> str:
    """What to do about a data set that is not here, and in parentheses where it is looked for."""
    entry, where = registered(name), " or ".join(map(str, files.places()))
    if entry.folder is not None:
        lacking = [file for file in entry.folder.files if files.find_text(entry.folder, file) is None]
        return (
            f"No package carries it: put {', '.join(lacking)}, as it is or packed by xz, into the folder "
            f"{entry.folder.name} of {where}. It is to be had from {entry.folder.source}"
        )
    known = f"looked for {' and '.join(archive.file for archive in entry.archives)} in {where}"
    if entry.hub is not None:
        terms = f", {entry.hub.terms}" if entry.hub.terms else ""
        known = (
            f"{entry.hub.size} of the hub's data set {entry.hub.repo}{terms}; or {files.by_hand(entry.hub)}"
        )
    return f"Get it with: python -m gkalib data get {name}\n({known})"


def unpacked(name: str, *patterns: str) -> dict[str, bytes]:
    """The files of a data set's archive whose paths match a pattern, by their paths.

    The archive is in $GKALIB_DATA, else in the default cache, else it is fetched. Where it has several
    sources, what is here comes before what would have to be fetched.
    """
    failures = []
    for source in (files.find, files.fetch):
        for archive in registered(name).archives:
            try:
                if path := source(archive):
                    return files.members(path, *patterns)
            except (ValueError, OSError) as failure:
                failures.append(str(failure))
        if failures:  # what is here is damaged
            break
    raise absent(name, *failures)


def folder_text(name: str) -> str:
    """The text of the files that were put in place by hand for a data set, one after the other, checked."""
    folder, texts = registered(name).folder, []
    assert folder is not None
    for file, expected in folder.files.items():
        path = files.find_text(folder, file)
        if path is None:
            raise absent(name)
        content = path.read_bytes()
        text = files.plain(lzma.decompress(content) if path.suffix == ".xz" else content, str(path))
        if (sha256 := digest(text)) != expected:
            raise ValueError(f"data: {path} holds a text with sha256 {sha256}, not {expected}: replace it")
        texts.append(text)
    return "".join(texts)


def hub_files(name: str, part: str) -> list[Path]:
    """The files of one part of a data set of the hub, by name."""
    hub = registered(name).hub
    assert hub is not None
    if paths := files.find_hub(hub, part):
        return paths
    raise absent(name)


def ready(name: str) -> bool:
    """Whether a data set loads without fetching anything."""
    entry = registered(name)
    if entry.hub is not None:
        parts = all(files.find_hub(entry.hub, part) for part in entry.hub.files)
        return parts or files.find_pictures(entry.hub) is not None
    if entry.folder is not None:
        return all(files.find_text(entry.folder, file) for file in entry.folder.files)
    return not entry.archives or any(map(files.find, entry.archives))


def get(name: str) -> None:
    """Make a data set ready: fetch what is missing, load it, and compare its content with the registry."""
    entry = registered(name)
    if entry.hub is not None and not ready(name):
        files.fetch_hub(entry.hub)
    entry.loader()


def check(name: str) -> None:
    """Load a data set that is here and compare its content with the registry; fetch nothing."""
    if not ready(name):
        raise absent(name)
    entry = registered(name)
    if entry.hub is not None:
        files.verify_hub(entry.hub)
    entry.loader()


def where(name: str) -> list[str]:
    """The path of a data set; or that it is not here, and what to do, in lines.

    ImageNet may lie as torchvision and timm have it, ``imagenet/train/nXXXXXXXX`` and
    ``imagenet/val/nXXXXXXXX`` below one of the places.

    Args:
        name: as ``python -m gkalib data list`` prints it, or the path of one's own.

    Raises:
        ValueError: if there is no such data set.
    """
    if Path(name).exists() and name.replace("-", "_") not in DATASETS:
        return [f"{name}: here, {Path(name).absolute()}"]
    if not ready(name):
        lines = f"{name}: not here. {_remedy(name)}".splitlines()
        return [*lines, "GKALIB_DATA names another place"]
    entry = registered(name)
    parts = [archive.file for archive in entry.archives]
    parts += [entry.folder.name] if entry.folder else []
    parts += [entry.hub.pictures, entry.hub.folder] if entry.hub else []
    return [f"{name}: here, {files.here(*filter(None, parts)) or 'inside an installed library'}"]
