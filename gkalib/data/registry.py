"""What each data set is, where it comes from, under which terms, and how its content is checked."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gkalib.data import fetch as files
from gkalib.data.fetch import Archive, Folder, Hub, Url
from gkalib.results import repository

Content = TypeVar("Content")
Loader = TypeVar("Loader", bound=Callable)


@dataclass(frozen=True)
class Dataset:
    """One data set as a row of the registry.

    Args:
        name: the name of its loader in ``gkalib.data``.
        description: what it holds, in one line.
        source: who measured or wrote it, and the package that carries it.
        license: the terms of the data.
        sha256: of the decoded content, see :func:`digest`; empty where the hub states each file's.
        loader: reads, checks and returns it.
        url: its public address, which is tried before the archive.
        archive: what has to be fetched first; None if a dependency carries the data.
        folder: the files that no package carries and that have to be put in place by hand.
        needs: those of them that the loader reads when it is called without arguments.
        fixture: the file in the repository's data/fixtures that holds the content, so that nothing has to be
            fetched there.
        hub: its files on the Hugging Face hub, which may as well lie in a folder here.
        here: whether it is on this machine, where its loader reads more than these.
    """

    name: str
    description: str
    source: str
    license: str
    sha256: str
    loader: Callable[[], Any]
    url: Url | None = None
    archive: Archive | None = None
    folder: Folder | None = None
    needs: tuple[str, ...] = ()
    fixture: str = ""
    hub: Hub | None = None
    here: Callable[[], bool] | None = None

    @property
    def sources(self) -> list[Url | Archive]:
        """What can be fetched as one file, in the order in which it is tried."""
        return [source for source in (self.url, self.archive) if source is not None]

    @property
    def carried(self) -> Path | None:
        """The fixture's file, where the repository is at hand."""
        root = repository() if self.fixture else None
        return root / "data" / "fixtures" / self.fixture if root else None


# Every data set by name, in the order of the modules that define the loaders.
DATASETS: dict[str, Dataset] = {}


def dataset(**fields: Any) -> Callable[[Loader], Loader]:
    """Register the decorated loader under its own name; the arguments are the fields of :class:`Dataset`."""

    def register(loader: Loader) -> Loader:
        DATASETS[loader.__name__] = Dataset(name=loader.__name__, loader=loader, **fields)
        return loader

    return register


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


def archive_path(name: str) -> Path:
    """The archive of a data set: in $GKALIB_DATA, else in the default cache, else fetched.

    Where it has several sources, what is here comes before what would have to be fetched.
    """
    sources, failures = registered(name).sources, []
    if not sources:
        raise ValueError(f"data: {name!r} has no archive, it comes from {registered(name).source}")
    try:
        if here := next(filter(None, map(files.find, sources)), None):
            return here
    except (ValueError, OSError) as damaged:
        failures.append(str(damaged))
        sources = []
    for source in sources:
        try:
            return files.fetch(source)
        except (ValueError, OSError) as failure:
            failures.append(str(failure))
    names = " and ".join(source.file for source in registered(name).sources)
    raise ValueError(
        f"data: {name!r} is not here. Get it with: python -m gkalib data get {name}\n"
        f"(looked for {names} in {' and '.join(map(str, files.places()))}; {'; '.join(failures)})"
    )


def folder_text(name: str, file: str) -> str:
    """The text of one of the files that were put in place by hand for a data set."""
    folder = registered(name).folder
    if folder is None or file not in folder.files:
        names = "none" if folder is None else ", ".join(folder.files)
        raise ValueError(f"data: {name!r} has no file {file!r}. Its files: {names}")
    try:
        return files.read_file(folder, file)
    except (ValueError, OSError) as failure:
        raise ValueError(f"data: {name!r} is not here: {failure}") from failure


def hub_files(name: str, part: str) -> list[Path]:
    """The files of one part of a data set of the hub, by name."""
    source = registered(name).hub
    if source is None or part not in source.files:
        names = "none" if source is None else ", ".join(source.files)
        raise ValueError(f"data: {name!r} has no part {part!r} on the hub. Its parts: {names}")
    if not (paths := files.find_hub(source, part)):
        raise ValueError(
            f"data: {name!r} is not here. Get it with: python -m gkalib data get {name}\n"
            f"({files.hub_instructions(source)})"
        )
    return paths


def ready(name: str) -> bool:
    """Whether a data set loads without fetching anything."""
    entry = registered(name)
    if entry.here is not None and entry.here():
        return True
    if entry.hub is not None:
        return all(files.find_hub(entry.hub, part) for part in entry.hub.files)
    if entry.folder is not None:
        return not files.missing_files(entry.folder, entry.needs)
    if not entry.sources or entry.carried:
        return True
    return any(files.find(source) for source in entry.sources)


def get(name: str) -> None:
    """Make a data set ready: fetch what is missing, load it, and compare its content with the registry."""
    entry = registered(name)
    if entry.hub is not None and not ready(name):
        files.fetch_hub(entry.hub)
    entry.loader()


def check(name: str) -> None:
    """Load a data set that is here and compare its content with the registry; fetch nothing."""
    if not ready(name):
        raise ValueError(f"data: {name!r} is not here. Get it with: python -m gkalib data get {name}")
    entry = registered(name)
    if entry.hub is not None:
        files.verify_hub(entry.hub)
    entry.loader()


def as_table() -> str:
    """The registry as the Markdown table of ``data/README.md``."""
    lines = [
        "| set | what | source | license | fetched with | sha256 of the content |",
        "|---|---|---|---|---|---|",
    ]
    for _, entry in sorted(DATASETS.items()):
        addresses = [entry.url.url] if entry.url else []
        addresses += [f"{entry.archive.client}: `{entry.archive.package}`"] if entry.archive else []
        access = ", then ".join(addresses)
        if entry.folder:
            access = f"by hand into `{entry.folder.name}/`: {entry.folder.source}"
        if entry.hub:
            access = f"hub: `{entry.hub.repo}` at `{entry.hub.revision[:7]}`, {entry.hub.size}"
        if entry.fixture:
            access = f"`data/fixtures/{entry.fixture}`, cut from {access}"
        cells = (
            f"`{entry.name}`",
            entry.description,
            entry.source,
            entry.license,
            access,
            f"`{entry.sha256}`" if entry.sha256 else "of each file, as the hub states it",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
