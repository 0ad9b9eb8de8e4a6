"""Writes what light builds read in the place of code: the recipes and studies that the papers' cells name."""

import csv
import io
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "data" / "results" / "papers" / "arms.csv"


def named() -> set[tuple[str, str, str]]:
    """Kind, name and arm of all recipes, studies and benchmarks that stand behind a cell."""
    from _ext.claims import Papers

    found = set()
    for cells in Papers(ROOT / "data" / "results").cells.values():
        for text in (text for cell in cells.values() for text in cell.evidence):
            kind, _, rest = text.partition(" ")
            kind = "train" if kind in ("core", "evaluated", "look", "looked") else kind
            for key in rest.split(" < ") if kind in ("train", "study", "bench") else []:
                parts = ["bench", *key.split("/")] if kind == "bench" else key.split(" ")[0].split("/")
                found.add((kind, parts[0], parts[1]))
    return found


def listing() -> str:
    """The text of the file; the steps are those of a run at full size. What cannot be run is left out."""
    from chapters.experiments import FILES, experiment
    from gkalib.bench.goals import WORDS
    from gkalib.bench.run import benchmark
    from gkalib.experiments import Trained
    from gkalib.training import recipes

    steps = {
        ("train", recipe.name, arm): recipe.run(arm).steps
        for recipe in recipes().values()
        for arm in recipe.arms
    }
    steps |= {
        ("study", name, arm): ""
        for name in FILES
        for known in [experiment(name)]
        for arm in ([one.arm for one in known.studies()] if isinstance(known, Trained) else known.arms)
    }
    steps |= {
        ("bench", "bench", f"{name}-{shape}"): ""
        for name in WORDS
        for shape in benchmark(name).shapes("full", "cuda")
    }
    text = io.StringIO()
    write = csv.writer(text, lineterminator="\n").writerow
    write(("kind", "name", "arm", "steps"))
    for key in sorted(named() & steps.keys()):
        write((*key, steps[key]))
    return text.getvalue()


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "book")]
    FILE.write_text(listing(), encoding="utf-8")
