"""Takes a run that somebody else trained: its folder is checked, and its record kept like our own."""

import json
import math
import subprocess
from pathlib import Path

from gkalib import results
from gkalib.data.registry import checksum
from gkalib.training.checkpoint import ENDED, differences
from gkalib.training.config import TrainConfig
from gkalib.training.log import CURVE, read_curve, thinned
from gkalib.training.recipes import recipe
from gkalib.training.record import open_run

# What each process computes at once depends on the cards, and may differ from the recipe.
FREE = {"device_batch"}
NEEDED = {"vision": ("top1", "val_loss"), "language": ("val_loss", "bits_per_byte")}


def submit(folder: str | Path) -> Path:
    """Check a run's folder, and keep its record and curve in ``data/results`` for a pull request.

    The record has to be that of a run of a recipe's arm at its full or its reduced size, from a commit of
    this history without changes, on the registered data, with all its numbers; the curve has to lead to its
    last step, and the last checkpoint, whose files have checksums, to be the end of this very run.

    Args:
        folder: what ``train`` or ``launch`` wrote, ``runs/RECIPE/ARM-SCALE-sSEED``.

    Returns:
        The folder in ``data/results`` to commit.

    Raises:
        ValueError: if it is not taken; the message lists all reasons.
    """
    folder = Path(folder)
    if not (folder / ENDED).is_file():
        raise ValueError(f"submit: {folder} holds no run that has ended; there would be a file {ENDED}")
    content = json.loads((folder / ENDED).read_text(encoding="utf-8"))
    record = results.Record.from_json(json.dumps(content["record"]), str(folder / ENDED))
    rows = read_curve(folder / CURVE)
    found = [*faults(record), *_folder_faults(record, rows, folder)]
    if found:
        raise ValueError(f"submit: {folder} is not taken.\n" + "\n".join(f"  {fault}" for fault in found))
    return results.save(record, rows=thinned(rows))


def faults(record: results.Record) -> list[str]:
    """Why a record is not that of a run of a recipe, a line each; empty where it is."""
    try:
        full = recipe(record.experiment).run(record.arm)
    except ValueError as error:
        return [f"recipe: {str(error).removeprefix('train: ')}"]
    if record.scale == "smoke":
        return ["scale: a smoke run shows that code runs, and measures nothing"]
    found = []
    sizes = [differences(record.recipe, run.recorded()).keys() - FREE for run in _sizes(full, record.scale)]
    if differing := sorted(min(sizes, key=len)):
        found.append(f"settings: not those of the recipe: {', '.join(differing)}")
    if not record.clean or not _known(record):
        found.append(f"code: commit {record.commit} is not in this history, or there were changes beside it")
    if record.data_sha256 != checksum(record.recipe.get("data", "")):
        found.append("data: not what is registered under this name")
    if lacking := [name for name in NEEDED[full.kind] if name not in record.metrics]:
        found.append(f"metrics: without {', '.join(lacking)}")
    return found


def _sizes(full: TrainConfig, scale: str) -> list[TrainConfig]:
    """The runs of an arm at a scale: a reduced one has another size on a CPU."""
    return [full] if scale == "full" else [full.reduced(), full.reduced("cpu")]


def _known(record: results.Record) -> bool:
    """Whether git here has the commit of a record, or the library's tree in it, which outlives its name."""
    where = results.repository()

    def has(name: str, kind: str) -> bool:
        words = ["git", "cat-file", "-e", f"{name}^{{{kind}}}"]
        return where is not None and not subprocess.run(words, cwd=where, capture_output=True).returncode

    tree = record.trees.get("gkalib", "")
    return has(record.commit, "commit") or bool(tree and has(tree, "tree"))


def _folder_faults(record: results.Record, rows: list[dict[str, str]], folder: Path) -> list[str]:
    """Why a curve is not that of the whole run, or the last checkpoint not its end."""
    found, losses = [], [float(row["loss"]) for row in rows if row.get("loss")]
    steps = [int(row["step"]) for row in rows]
    if not losses or steps != sorted(steps) or steps[-1] != record.recipe.get("steps"):
        found.append(f"curve: {CURVE} does not lead to step {record.recipe.get('steps')}")
    elif not all(map(math.isfinite, losses)):
        found.append(f"curve: a loss in {CURVE} is no number")
    try:
        trained = open_run(folder)
    except ValueError as error:
        return [*found, f"files: {error}"]
    same = trained.config.recorded() == record.recipe and trained.step == trained.config.steps
    named = (trained.config.experiment, trained.config.arm, trained.config.seed)
    if not same or named != (record.experiment, record.arm, record.seed):
        found.append("files: the last checkpoint is not the end of this run")
    return found
