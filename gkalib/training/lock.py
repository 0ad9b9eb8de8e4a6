"""One process at a time writes to a run's folder."""

import fcntl
import os
import platform
from pathlib import Path

FILE = ".lock"
_held: set[int] = set()


def lock(folder: Path) -> int:
    """Take a folder for this process, which keeps it until ``unlock`` or its end, however it ends.

    Raises:
        ValueError: if another process has it; the message names that process.
    """
    handle = os.open(folder / FILE, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.read(handle, 200).decode(errors="replace").strip() or "another process"
        os.close(handle)
        raise ValueError(
            f"train: {folder} is being written to by {holder}. Wait for it, stop it, or choose another "
            "folder with --out"
        ) from None
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"process {os.getpid()} on {platform.node()}\n".encode(), 0)
    _held.add(handle)
    return handle


def unlock(handle: int) -> None:
    """Give a folder back."""
    _held.discard(handle)
    os.close(handle)


def _let_go() -> None:
    """A child, such as one that loads data, must not keep the folder when this process is gone."""
    for handle in _held:
        os.close(handle)
    _held.clear()


os.register_at_fork(after_in_child=_let_go)
