"""Writes what light builds read in the place of code: what the papers' cells name, and what decides them."""

import csv
import io
import json
import sys
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "data" / "results" / "papers" / "arms.csv"
CONTRASTS = FILE.with_name("contrasts.json")


def named() -> set[tuple[str, str, str]]:
    """Kind, name and arm of all recipes, studies and benchmarks that stand behind a cell."""
    from _ext.claims import Papers

    found = set()
    for cells in Papers(ROOT / "data" / "results").cells.values():
        for text in (text for cell in cells.values() for text in cell.evidence):
            kind, _, rest = text.partition(" ")
            kind = "train" if kind in ("core", "look", "looked") else kind
            for key in rest.split(" < ") if kind in ("train", "study", "bench") else []:
                parts = ["bench", *key.split("/")] if kind == "bench" else key.split(" ")[0].split("/")
                found.add((kind, parts[0], parts[1]))
    return found


def listing() -> str:
    """The text of the file; the steps are those of a run at full size. What cannot be run is left out."""
    from gkalib import experiments
    from gkalib.gpu.jobs import jobs
    from gkalib.training import recipes

    steps = {
        ("train", recipe.name, arm): recipe.run(arm).steps
        for recipe in recipes().values()
        for arm in recipe.arms
    }
    steps |= {
        ("study", name, study.arm): ""
        for name in experiments.experiments()
        for study in experiments.experiment(name)[0]
    }
    timed = [job.name.partition("-")[2] for job in jobs() if job.name.startswith(("bench-", "rivals-"))]
    steps |= {("bench", "bench", name): "" for name in timed}
    text = io.StringIO()
    write = csv.writer(text, lineterminator="\n").writerow
    write(("kind", "name", "arm", "steps"))
    for key in sorted(named() & steps.keys()):
        write((*key, steps[key]))
    return text.getvalue()


def deciding() -> list[str]:
    """The experiments that cells name."""
    from _ext.claims import Papers

    cells = [cell for some in Papers(ROOT / "data" / "results").cells.values() for cell in some.values()]
    named = [
        text.removeprefix("decide ") for cell in cells for text in cell.evidence if text.startswith("decide ")
    ]
    return sorted({text.split("|")[0] for text in named})


def contrasts() -> str:
    """The text of ``contrasts.json``: what each experiment decides."""
    from gkalib.experiments import experiment

    known = {}
    for name in deciding():
        module, studies = import_module(f"gkalib.experiments.{name.replace('-', '_')}"), experiment(name)[0]
        known[name] = {
            "data": studies[0].task,
            "arms": [study.arm for study in studies],
            "contrasts": [asdict(contrast) for contrast in module.CONTRASTS],
            "checks": [asdict(check) for check in module.CHECKS],
        }
    return json.dumps(known, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "book")]
    FILE.write_text(listing(), encoding="utf-8")
    CONTRASTS.write_text(contrasts(), encoding="utf-8")
