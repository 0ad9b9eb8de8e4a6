"""The runs behind a printed cell: those of one recipe, and what is said of them."""

from _ext.runs import Runs

from gkalib.results import save
from tests.records import record


def test_seeds_of_another_recipe_are_not_compared(tmp_path):
    """Those of the newest are; a recipe that has something empty beyond another is the same."""
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "arms.csv").write_text("kind,name,arm,steps\ntrain,tiny,gka,20\n")
    for seed, recipe in enumerate(({"steps": 10}, {"steps": 20}, {"steps": 20, "rates": {}})):
        of = {"experiment": "tiny", "arm": "gka", "scale": "reduced", "recipe": recipe, "seed": seed}
        save(record(date=f"2027-01-0{seed + 1}", load=0.5, **of), root=tmp_path)
    runs = Runs(tmp_path)
    assert [run.seed for run in runs.newest("tiny", "gka")] == [1, 2]
    series = runs.series("train", "tiny/gka/loss")
    assert series is not None and [*series.values] == [1, 2]
    assert series.said == "in tiny/gka (CPU, a busy machine, 2 seeds)"
