"""One run written down: what was run, on what, and the numbers that came out."""

import hashlib
import json
import math
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, final

CPUINFO = Path("/proc/cpuinfo")
TREES = ("gkalib", "chapters/experiments")  # what a run's numbers come from
BUSY = 0.25  # of each core, beyond which what is timed is disturbed
SCALES = ("smoke", "reduced", "full")
SOURCES = ("measured", "paper")
QUALITY = ("val_loss", "bits_per_byte", "top1", "ema_top1")
NAME = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")
RUN = re.compile(r"(?P<arm>.+)-(?P<scale>smoke|reduced|full)-s(?P<seed>\d+)-(?P<device>.+)")


def digest(recipe: Mapping[str, Any]) -> str:
    """The first 12 hexadecimal digits of the SHA-256 of a recipe, whatever the order of its keys."""
    text = json.dumps(recipe, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def provenance(*packages: str, root: Path | None = None) -> dict[str, Any]:
    """The code, the date, the software and the processor of a run, for a ``Record``: ``commit`` to ``cpu``.

    Where there is no history, $GKALIB_COMMIT names the commit. Threads and instructions are PyTorch's, where
    it is imported. Trees are those of the commit: git names a folder's content by a hash, which stays when
    history is written anew and commits get other names.

    Args:
        packages: names of distributions whose versions matter to the run, where they are installed.
        root: a folder inside the repository; the one that holds this file where not given. Files below
            ``data/results`` and ``data/models`` do not make the tree unclean: runs write there.
    """
    where = root or Path(__file__).parent

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", *words], cwd=where, capture_output=True, text=True)
        except FileNotFoundError:  # a machine without git
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    torch = sys.modules.get("torch")
    written = (f":(exclude,top)data/{name}" for name in ("results", "models"))
    changes = git("status", "--porcelain", "--", ":/", *written)
    return {
        "commit": git("rev-parse", "--short=12", "HEAD") or os.environ.get("GKALIB_COMMIT", "unknown"),
        "clean": changes == "",
        "trees": {
            name: tree
            for name in TREES
            if (tree := git("rev-parse", "--short=12", "--verify", f"HEAD:{name}"))
        },
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {name: version for name in packages if (version := _version(name))},
        "python": platform.python_version(),
        "threads": torch.get_num_threads() if torch else None,
        "cpu": ", ".join(filter(None, [_model(), torch.backends.cpu.get_cpu_capability() if torch else ""])),
    }


def _model() -> str:
    """The processor's model, or nothing where the system does not say."""
    words = CPUINFO.read_text(errors="replace") if CPUINFO.exists() else ""
    found = re.search(r"^model name\s*: (.+)$", words, re.MULTILINE)
    return found[1] if found else platform.processor()


def _version(distribution: str) -> str:
    """Which version is installed, or nothing."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def processor() -> str:
    """This machine's processor in words, as records name it."""
    return f"{os.cpu_count()} cores {platform.machine()}"


def load_average() -> float | None:
    """How many programs wanted each core in the last minute; None where the system does not say.

    To be asked before anything is timed, since what is timed adds to it.
    """
    return round(os.getloadavg()[0] / (os.cpu_count() or 1), 2) if hasattr(os, "getloadavg") else None


@final
@dataclass(frozen=True, kw_only=True)
class Record:
    """One run: its recipe, its surroundings and its metrics.

    Its name is ``<arm>-<scale>-s<seed>-<device>``, in lower case with hyphens.

    Args:
        experiment: what was compared, for example ``"gpa-dickens"``.
        arm: which of the things compared this is, for example ``"bank-rope"``.
        scale: ``"smoke"``, ``"reduced"`` or ``"full"``.
        source: ``"measured"`` by us, or printed in a ``"paper"``.
        recipe: every setting of the run, as JSON.
        seed: the seed that the run started from.
        device: what it ran on, for example ``"cpu"`` or ``"NVIDIA H100"``.
        commit: the commit of the code.
        clean: whether the working tree held nothing beyond that commit.
        trees: folder to git's hash of its content at that commit; empty in runs from before it was kept.
        date: when the run ended, ISO 8601.
        versions: distribution name to version.
        python: Python's version; like the next four it is empty in runs from before it was kept.
        threads: how many PyTorch computed with.
        cpu: the processor's model, and the instructions that PyTorch used of it: another rounds otherwise.
        data_sha256: the checksum of the data, where it has one.
        load: ``load_average()`` before anything was timed, where times are what was measured.
        wall_seconds: how long it took; 0 for a paper's number.
        metrics: metric name to number.

    Raises:
        ValueError: if a field has a value that it may not have.
    """

    experiment: str
    arm: str
    scale: str
    source: str = "measured"
    recipe: dict[str, Any]
    seed: int
    device: str
    commit: str
    clean: bool
    trees: dict[str, str] = field(default_factory=dict)
    date: str
    versions: dict[str, str] = field(default_factory=dict)
    python: str = ""
    threads: int | None = None
    cpu: str = ""
    data_sha256: str = ""
    load: int | float | None = None
    wall_seconds: int | float
    metrics: dict[str, int | float]

    def __post_init__(self) -> None:
        """Refuse a record that could not be found again or quoted."""
        for name in ("experiment", "arm"):
            if not NAME.fullmatch(getattr(self, name)):
                raise ValueError(
                    f"results: {name} must be words in lower case joined by hyphens, not "
                    f"{getattr(self, name)!r}"
                )
        for name, known in (("scale", SCALES), ("source", SOURCES)):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"results: {name} must be one of {', '.join(known)}, not {getattr(self, name)!r}"
                )
        if RUN.fullmatch(self.arm):
            raise ValueError(f"results: arm {self.arm!r} reads like the name of a run")
        try:
            datetime.fromisoformat(self.date)
        except ValueError:
            raise ValueError(f"results: date must be ISO 8601, not {self.date!r}") from None
        for name, value in self.metrics.items():
            if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
                raise ValueError(
                    f"results: metric {name!r} of {self.run!r} must be a finite number, not {value!r}"
                )

    @property
    def run(self) -> str:
        """The run's name, which is also its folder's."""
        device = re.sub(r"[^a-z0-9]+", "-", self.device.lower()).strip("-")
        return f"{self.arm}-{self.scale}-s{self.seed}-{device}"

    @property
    def quality(self) -> str:
        """What held-out data say of a trained model, in words."""
        return ", ".join(f"{name} {self.metrics[name]:.4g}" for name in QUALITY if name in self.metrics)

    @property
    def recipe_hash(self) -> str:
        """What tells two recipes apart."""
        return digest(self.recipe)

    @property
    def settings(self) -> dict[str, Any]:
        """The recipe without what is empty, as a setting is in new runs that old ones did not have."""
        return {name: value for name, value in self.recipe.items() if value not in (None, {}, [])}

    @property
    def busy(self) -> bool:
        """Whether other programs disturbed what was timed."""
        return self.load is not None and self.load > BUSY

    def to_json(self) -> str:
        """The text of ``run.json``."""
        return json.dumps({**asdict(self), "recipe_hash": self.recipe_hash}, indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str, origin: str = "run.json") -> "Record":
        """Read a record back.

        Args:
            text: the text of ``run.json``.
            origin: where it came from, for the message if it is wrong.

        Raises:
            ValueError: if it is no object of JSON, a key is missing or unknown, or the recipe is not the one
                that was hashed.
        """
        try:
            fields = json.loads(text)
            if not isinstance(fields, dict):
                raise TypeError(f"{type(fields).__name__} instead of names and values")
            stated = fields.pop("recipe_hash", None)
            record = cls(**fields)
        except (TypeError, AttributeError, json.JSONDecodeError) as error:
            raise ValueError(f"results: {origin} is not a record ({error})") from None
        if stated != record.recipe_hash:
            raise ValueError(
                f"results: the recipe in {origin} was edited after the run (its hash is "
                f"{record.recipe_hash}, the record says {stated})"
            )
        return record
