"""Where a data set lies on this machine, or would be looked for."""

from pathlib import Path

from gkalib.data.fetch import places
from gkalib.data.registry import DATASETS, ready, registered


def where(name: str) -> list[str]:
    """The path of a data set, or those that are looked for, a line each.

    ImageNet may lie as torchvision and timm have it, ``imagenet/train/nXXXXXXXX`` and
    ``imagenet/val/nXXXXXXXX`` below one of the places.

    Args:
        name: as ``python -m gkalib data list`` prints it, or the path of one's own.

    Raises:
        ValueError: if there is no such data set.
    """
    if Path(name).exists() and name.replace("-", "_") not in DATASETS:
        return [f"{name}: here, {Path(name).absolute()}"]
    entry = registered(name)
    if entry.carried:
        return [f"{name}: here, {entry.carried}"]
    names = [archive.file for archive in entry.archives]
    names += [entry.folder.name] if entry.folder else []
    if entry.hub is not None:
        names += [part for part in (entry.hub.pictures, entry.hub.folder) if part]
    if not names:
        return [f"{name}: here, inside an installed library"]
    paths = [place / part for part in names for place in places()]
    if ready(name):
        return [f"{name}: here, {path}" for path in paths if path.exists()][:1]
    layout = " with train/CLASS/PICTURE and val/CLASS/PICTURE"
    pictures = entry.hub.pictures if entry.hub is not None else ""
    return [
        f"{name}: not here; looked for as",
        *(f"  {path}{layout if path.name == pictures else ''}" for path in paths),
        f"To fetch it type: python -m gkalib data get {name}; GKALIB_DATA names another place",
    ]
