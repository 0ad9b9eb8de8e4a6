"""Runs of results as one file, to carry from the machine that made them to the one that keeps them."""

import csv
import io
import tarfile
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path, PurePosixPath

from gkalib import results

NAME = "results.tar.gz"
CODE = "code.txt"  # the hash of the code that made the runs
TRIES = 20  # at a run that another process replaces
LARGEST = 2**24  # bytes of a file in the pack


def pack(store: Path, folder: Path, *, code: str) -> Path:
    """Write all runs of a store into ``results.tar.gz`` in a folder, as a whole or not at all.

    Args:
        store: as ``gkalib.results`` lays it out.
        folder: where the pack goes; one of this name there is replaced.
        code: the hash of the code that made the runs.
    """
    fresh = folder / f"{NAME}.part"
    with tarfile.open(fresh, "w:gz") as archive:
        _add(archive, CODE, code.encode())
        for path in sorted(store.glob("[!.]*/[!.]*/run.json")):
            for one, content in _whole(path).items():
                _add(archive, one.relative_to(store).as_posix(), content)
    return fresh.replace(folder / NAME)


def unpack(pack: Path, *, root: Path | None = None, code: str = "") -> list[str]:
    """Save the runs of a pack in a store, unless it has them as new or newer.

    Args:
        pack: what ``pack`` wrote.
        root: the store; ``results.folder()`` where not given.
        code: the hash of the code that is here. Where it is that of the pack and the tree is clean, runs that
            were made outside a repository get the commit that is checked out.

    Returns:
        The runs that were saved, as ``experiment/run``.

    Raises:
        ValueError: if it is no such pack.
    """
    root, saved = root or results.folder(), []
    try:
        with tarfile.open(pack, "r:gz") as archive:
            files = {member.name: _read(archive, member) for member in archive if member.isfile()}
    except (OSError, tarfile.TarError) as error:
        raise ValueError(f"reproduce: {pack} is no pack of results ({error})") from error
    here = results.provenance()
    same = code != "" and files.get(CODE) == code and here["clean"]
    for name, text in files.items():
        if PurePosixPath(name).name != "run.json":
            continue
        record = results.Record.from_json(text, name)
        if record.commit == "unknown" and same:
            record = replace(record, commit=here["commit"], clean=True)
        label = f"{record.experiment}/{record.run}"
        if name != f"{label}/run.json":
            raise ValueError(f"reproduce: {pack} holds the run {label} as {name}")
        kept = root / label / "run.json"
        if kept.exists():
            old = results.Record.from_json(kept.read_text(encoding="utf-8"), str(kept))
            if datetime.fromisoformat(old.date) >= datetime.fromisoformat(record.date):
                continue
        rows = csv.DictReader(io.StringIO(files[f"{label}/metrics.csv"], newline=""))
        results.save(record, rows=rows, root=root)
        saved.append(label)
    return saved


def _whole(path: Path) -> dict[Path, bytes]:
    """Both files of a run; again if a process is just replacing it, and nothing if it stays away."""
    for _ in range(TRIES):
        try:
            return {one: one.read_bytes() for one in (path, path.with_name("metrics.csv"))}
        except FileNotFoundError:
            time.sleep(0.05)
    return {}


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def _read(archive: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    file = archive.extractfile(member)
    if file is None or member.size > LARGEST:
        raise ValueError(f"reproduce: {member.name} of a pack of results is too large to be one")
    return file.read().decode()
