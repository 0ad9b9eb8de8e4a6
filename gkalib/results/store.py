"""Saves runs below ``data/results`` and finds them again by experiment, arm and metric."""

import csv
import io
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from gkalib.results.checkout import absent, repository
from gkalib.results.record import RUN, SCALES, Record

if TYPE_CHECKING:
    import numpy as np


def folder() -> Path:
    """Where runs are kept: ``$GKALIB_RESULTS``, else ``data/results`` of the repository or of this folder."""
    named = os.environ.get("GKALIB_RESULTS")
    return Path(named) if named else (repository() or Path()) / "data" / "results"


def missing() -> str:
    """What to type where there is neither a folder of runs nor the repository; nothing where there is one."""
    return "" if folder().is_dir() or repository() else absent()


def save(
    record: Record,
    *,
    rows: Iterable[Mapping[str, object]] = (),
    items: Mapping[str, "np.ndarray"] | None = None,
    root: Path | None = None,
) -> Path:
    """Write ``run.json`` and ``metrics.csv``; a run of the same name is replaced as a whole or not at all.

    Args:
        record: the run.
        rows: the course of the run, one mapping a row with the same keys in each, for ``metrics.csv``.
        items: the outcome of each held-out item, by the metric that is their mean, for ``items.npz``.
        root: the store; ``folder()`` where not given.

    Returns:
        The run's folder.

    Raises:
        ValueError: if rows have different keys.
    """
    rows = [dict(row) for row in rows]
    if any(row.keys() != rows[0].keys() for row in rows):
        raise ValueError(f"results: the rows of {record.run!r} do not all have the keys {', '.join(rows[0])}")
    home = (root or folder()) / record.experiment
    home.mkdir(parents=True, exist_ok=True)
    target = home / record.run
    with tempfile.TemporaryDirectory(dir=home, prefix=".saving-") as holder:
        fresh, stale = Path(holder) / "fresh", Path(holder) / "stale"
        fresh.mkdir()
        (fresh / "run.json").write_text(record.to_json(), encoding="utf-8")
        with (fresh / "metrics.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]) if rows else [], lineterminator="\n")
            if rows:
                writer.writeheader()
            writer.writerows(rows)
        if items:
            import numpy as np

            np.savez_compressed(fresh / "items.npz", allow_pickle=False, **items)
        if target.exists():
            shutil.move(target, stale)
        fresh.rename(target)
    return target


def experiments(*, root: Path | None = None) -> list[str]:
    """The names of the experiments that have a run, sorted."""
    return sorted({path.parent.parent.name for path in (root or folder()).glob("[!.]*/[!.]*/run.json")})


TRIES = 10  # at a file of a run that another process replaces

ASKED: set[str] = set()
"""What ``load`` was asked for, as ``experiment/arm``; stamps keep it to tell which runs matter."""


def load(
    experiment: str, *, scale: str | None = None, arm: str = "*", root: Path | None = None
) -> list[Record]:
    """The runs of an experiment, the largest scale first and the newest first within a scale.

    Smoke runs on made-up data show that code runs and nothing else: they are left out.

    Args:
        experiment: its name.
        scale: keep only runs of this scale.
        arm: keep only runs of these arms; ``*`` stands for any letters.
        root: the store; ``folder()`` where not given.

    Raises:
        ValueError: if the scale is unknown, or there is no such run; the message tells how to make one.
    """
    if scale is not None and scale not in SCALES:
        raise ValueError(f"results: scale must be one of {', '.join(SCALES)}, not {scale!r}")
    ASKED.add(f"{experiment}/{arm}")
    records = []
    for path in sorted((root or folder()).glob(f"{experiment}/[!.]*/run.json")):
        name = RUN.fullmatch(path.parent.name)
        if name and not fnmatchcase(name["arm"], arm):
            continue
        record = Record.from_json(_read(path), f"{experiment}/{path.parent.name}/run.json")
        if (record.experiment, record.run) != (experiment, path.parent.name):
            raise ValueError(
                f"results: {experiment}/{path.parent.name} holds the run {record.run!r} of "
                f"{record.experiment!r}"
            )
        records.append(record)
    records = [
        record
        for record in records
        if scale in (None, record.scale) and (record.scale, record.recipe.get("data")) != ("smoke", "made-up")
    ]
    if not records:
        if root is None and (why := missing()):
            raise ValueError(f"results: no run of {experiment!r}: {why}")
        kind = "run" if scale is None else f"{scale}-scale run"
        kind += "" if arm == "*" else f" of arm {arm!r}"
        raise ValueError(
            f"results: no {kind} of {experiment!r}. Make one with: python -m gkalib train {experiment}, "
            f"if that is a recipe, or python -m chapters.experiments {experiment}"
        )
    return sorted(records, key=_rank, reverse=True)


def by_arm(records: Iterable[Record], metric: str) -> dict[str, list[int | float]]:
    """A metric of each arm, one value for each run, in the order of seeds.

    Args:
        records: as ``load`` gives them.
        metric: of theirs; records without it are left out.

    Raises:
        ValueError: if no record has the metric.
    """
    values: dict[str, list[int | float]] = {}
    for record in sorted(records, key=lambda record: record.seed):
        if metric in record.metrics:
            values.setdefault(record.arm, []).append(record.metrics[metric])
    if not values:
        raise ValueError(f"results: no record has a metric {metric!r}")
    return values


def find(key: str, *, root: Path | None = None) -> tuple[Record, int | float]:
    """The record and the number that a key names.

    ``experiment/run/metric`` names one run. ``experiment/arm/metric`` takes the newest run of the largest
    scale among those that were measured from a clean tree.

    Raises:
        ValueError: if the key has another form, or names what does not exist; the message lists what does.
    """
    parts = key.split("/")
    if len(parts) != 3 or not all(parts):
        raise ValueError(f"results: a key reads experiment/arm/metric or experiment/run/metric, not {key!r}")
    experiment, name, metric = parts
    records = load(experiment, root=root)
    if RUN.fullmatch(name):
        records = [record for record in records if record.run == name]
        if not records:
            raise ValueError(f"results: no run {name!r} of {experiment!r}")
    else:
        named = [record for record in records if record.arm == name]
        if not named:
            arms = ", ".join(sorted({record.arm for record in records}))
            raise ValueError(f"results: no arm {name!r} in {experiment!r}. Arms: {arms}")
        records = [record for record in named if record.clean and record.source == "measured"]
        if not records:
            runs = ", ".join(record.run for record in named)
            raise ValueError(
                f"results: no run of {experiment}/{name} was measured from a clean tree. To quote "
                f"another, name the run: {runs}"
            )
    record = records[0]
    if metric not in record.metrics:
        known = ", ".join(sorted(record.metrics))
        raise ValueError(f"results: {experiment}/{record.run} has no metric {metric!r}. It has: {known}")
    return record, record.metrics[metric]


def rows(record: Record, *, root: Path | None = None) -> list[dict[str, str]]:
    """The course of a run from its ``metrics.csv``, one mapping a row, values as text."""
    path = (root or folder()) / record.experiment / record.run / "metrics.csv"
    return list(csv.DictReader(io.StringIO(_read(path), newline="")))


def _read(path: Path) -> str:
    """The text of a file of a run; again if another process is just replacing the run."""
    for _ in range(TRIES):
        with suppress(FileNotFoundError), path.open(encoding="utf-8", newline="") as file:
            return file.read()
        time.sleep(0.02)
    return path.read_text(encoding="utf-8")


def items(record: Record, *, root: Path | None = None) -> dict[str, "np.ndarray"]:
    """The outcome of each held-out item of a run, by the metric that is their mean; {} where none is kept."""
    path = (root or folder()) / record.experiment / record.run / "items.npz"
    if not path.exists():
        return {}
    import numpy as np  # here, since whoever only reads records needs none

    with np.load(path) as file:
        return dict(file)


def _rank(record: Record) -> tuple[int, datetime]:
    """Larger scales and newer dates rank higher; a date without a zone is read as UTC."""
    date = datetime.fromisoformat(record.date)
    return SCALES.index(record.scale), date if date.tzinfo else date.replace(tzinfo=UTC)
