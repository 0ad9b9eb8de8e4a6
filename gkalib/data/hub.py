"""Data sets of the Hugging Face hub: files found here or fetched, each with the hub's checksum."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from gkalib.data.download import TIMEOUT
from gkalib.data.fetch import default_cache, places, sha256_of
from gkalib.data.progress import say

SUMS = "SHA256SUMS"  # as `sha256sum` writes it, so that it also checks what was copied by hand


@dataclass(frozen=True)
class Hub:
    """Files of one data set of the hub; a folder with the same files is as good.

    Args:
        repo: owner and name.
        revision: the commit or branch.
        folder: where the files lie, in any of the places, at any depth.
        files: the pattern of the file names of each part, such as ``{"train": "train-*.parquet"}``.
        size: of what is fetched, in words.
        wanted: which files are fetched, as patterns of paths; those of all parts where it is empty.
        terms: what has to be done before anything can be fetched.
    """

    repo: str
    revision: str
    folder: str
    files: Mapping[str, str]
    size: str
    wanted: tuple[str, ...] = ()
    terms: str = ""


def parts(hub: Hub, part: str) -> list[Path]:
    """The files of one part on this machine, by name, from the first place that has any.

    A folder that a fetch has begun and not ended has none.
    """
    for place in places():
        folder = place / hub.folder
        if (folder / ".cache").is_dir() and not (folder / SUMS).is_file():
            continue
        found = sorted(folder.rglob(hub.files[part]), key=lambda path: path.name)
        if found:
            return found
    return []


def lacks(hub: Hub) -> str:
    """What to do where the files are not here."""
    terms = f", {hub.terms}" if hub.terms else ""
    return f"{hub.size} of the hub's data set {hub.repo}{terms}; or {_by_hand(hub)}"


def _by_hand(hub: Hub) -> str:
    patterns, where = " and ".join(hub.files.values()), " or ".join(map(str, places()))
    return f"put its files {patterns} into the folder {hub.folder} of {where}"


def download(hub: Hub) -> Path:
    """Fetch the wanted files into the default cache, going on where an earlier attempt stopped.

    The checksums that the hub states are written beside the files, and the files compared with them.

    Raises:
        ValueError: if huggingface_hub is not installed, the hub does not answer or refuses, or a file has
            another checksum.
    """
    try:
        client = import_module("huggingface_hub")
    except ModuleNotFoundError as missing:
        raise ValueError("datasets: the hub needs huggingface_hub: pip install 'gkalib[hub]'") from missing
    wanted = list(hub.wanted) or [f"*{pattern}" for pattern in hub.files.values()]
    source = {"repo_id": hub.repo, "repo_type": "dataset", "revision": hub.revision}
    folder = default_cache() / hub.folder
    say(f"fetching {hub.repo} from the hub ({hub.size})")
    try:
        # asked first because it fails at once: what follows tries a silent hub again for half a minute
        client.HfApi().repo_info(**source, timeout=TIMEOUT)
        tree = client.HfApi().list_repo_tree(**source, recursive=True)
        sums = {file.path: file.lfs.sha256 for file in tree if getattr(file, "lfs", None)}
        client.snapshot_download(**source, allow_patterns=wanted, local_dir=folder)
    except Exception as failure:  # its errors share no class: no network, no such set, no access, disk full
        reason = str(failure).strip().splitlines()[0] if str(failure).strip() else type(failure).__name__
        raise ValueError(
            f"datasets: the hub's {hub.repo} could not be fetched: {reason}; if it cannot be reached "
            f"from here, {_by_hand(hub)}"
        ) from failure
    sums = {path: sha256 for path, sha256 in sorted(sums.items()) if (folder / path).is_file()}
    _compare(folder, sums)
    lines = [f"{sha256}  {path}\n" for path, sha256 in sums.items()]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")
    return folder


def verify(hub: Hub) -> int:
    """Compare the files here with the checksums beside them; how many there were to compare.

    Raises:
        ValueError: if one has another.
    """
    compared = 0
    for file in (place / hub.folder / SUMS for place in places()):
        if file.is_file():
            lines = [line.split(maxsplit=1) for line in file.read_text(encoding="utf-8").splitlines() if line]
            sums = {path.lstrip("*"): sha256 for sha256, path in lines}
            compared += _compare(file.parent, sums)
    return compared


def _compare(folder: Path, sums: Mapping[str, str]) -> int:
    here = {folder / path: sha256 for path, sha256 in sums.items() if (folder / path).is_file()}
    for path, expected in here.items():
        if (found := sha256_of(path)) != expected:
            raise ValueError(
                f"datasets: {path} has sha256 {found}, not {expected}: delete it and get it again"
            )
    return len(here)
