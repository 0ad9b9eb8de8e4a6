"""Runs of results as one file, to carry from the machine that made them to the one that keeps them."""

import io
import tarfile
import tempfile
import time
import zlib
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from gkalib import results

NAME = "results.tar.gz"
CODE = "code.txt"  # the hash of the code that made the runs
TRIES = 20  # at a run that another process replaces


def pack(store: Path, folder: Path, *, code: str) -> Path:
    """Write all runs of a store into ``results.tar.gz`` in a folder, as a whole or not at all.

    Args:
        store: as ``gkalib.results`` lays it out.
        folder: where the pack goes; one of this name there is replaced.
        code: the hash of the code that made the runs.
    """
    fresh = folder / f"{NAME}.part"
    with tarfile.open(fresh, "w:gz") as archive:
        files = {CODE: code.encode()}
        for path in sorted(store.glob("[!.]*/[!.]*/run.json")):
            files |= {
                file.relative_to(store).as_posix(): content for file, content in _read_run(path).items()
            }
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return fresh.replace(folder / NAME)


def unpack(pack: Path, *, root: Path | None = None, code: str = "") -> list[str]:
    """Save the runs of a pack in a store, unless it has them as new or newer.

    Args:
        pack: what ``pack`` wrote.
        root: the store; ``results.folder()`` where not given.
        code: the hash of the code that is here. Where it is that of the pack and the tree is clean, runs that
            were made outside a repository get the commit that is checked out, also those unpacked before.

    Returns:
        The runs that were saved, as ``experiment/run``.
    """
    root, saved, here = root or results.folder(), [], results.provenance()
    with tempfile.TemporaryDirectory() as temporary:
        store = Path(temporary)
        try:
            with tarfile.open(pack, "r:gz") as archive:
                archive.extractall(store, filter="data")
        except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
            raise ValueError(f"reproduce: {pack} is no pack of results ({error})") from error
        stored_code = store / CODE
        same = code != "" and stored_code.exists() and stored_code.read_text() == code and here["clean"]
        for path in sorted(store.glob("*/*/run.json")):
            record = results.Record.from_json(path.read_text(encoding="utf-8"), str(path))
            label = f"{record.experiment}/{record.run}"
            if path.parent != store / label:
                raise ValueError(f"reproduce: {pack} holds the run {label} as {path.relative_to(store)}")
            if not path.with_name("metrics.csv").exists():
                raise ValueError(f"reproduce: {pack} holds the run {label} without its metrics.csv")
            if record.commit == "unknown" and same:
                record = replace(record, commit=here["commit"], clean=True)
            if not _is_present(record, root / label / "run.json"):
                results.save(record, rows=results.rows(record, root=store), root=root)
                saved.append(label)
    return saved


def _is_present(record: results.Record, path: Path) -> bool:
    """Whether a store has a run as new or newer, and with a commit if this one has one."""
    if not path.exists():
        return False
    old = results.Record.from_json(path.read_text(encoding="utf-8"), str(path))
    if "unknown" == old.commit != record.commit and old.date == record.date:
        return False
    return datetime.fromisoformat(old.date) >= datetime.fromisoformat(record.date)


def _read_run(path: Path) -> dict[Path, bytes]:
    """Both files of a run; again if a process is just replacing it, and nothing if it stays away."""
    for _ in range(TRIES):
        try:
            return {file: file.read_bytes() for file in (path, path.with_name("metrics.csv"))}
        except FileNotFoundError:
            time.sleep(0.05)
    return {}
