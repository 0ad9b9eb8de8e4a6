"""Runs of others: taken where everything is what it has to be, else refused with all reasons."""

import json
import subprocess
from dataclasses import replace

import pytest

from gkalib import results
from gkalib.cli import main
from gkalib.training import recipe, recipes, submit, train
from gkalib.training.checkpoint import ENDED, newest
from gkalib.training.log import CURVE
from gkalib.training.submit import faults
from tests.training.runs import launch, recorded

COMMIT = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
RUN = replace(recipe("gpa-dickens").run("rope").smoke(), scale="reduced", steps=4, warmup=1, eval_every=0)


def change(folder, **changes):
    """Edit what a run has written down of itself."""
    content = json.loads((folder / ENDED).read_text(encoding="utf-8"))
    content["record"] |= changes
    (folder / ENDED).write_text(json.dumps(content), encoding="utf-8")


@pytest.fixture
def ended(tmp_path, monkeypatch):
    """The folder of a run that has ended, as if from a clean tree; its size is taken for a reduced one."""
    monkeypatch.setenv("GKALIB_RESULTS", str(tmp_path / "results"))
    monkeypatch.setattr(submit, "_sizes", lambda full, scale: [RUN])
    train(RUN, launch(tmp_path / "run"))
    change(tmp_path / "run", clean=True, commit=COMMIT)
    return tmp_path / "run"


def test_a_run_that_is_what_it_says_is_kept_with_its_curve(ended, capsys):
    assert main(["submit", str(ended)]) == 0
    (record,) = results.load("gpa-dickens")
    assert record.run in capsys.readouterr().out and record.recipe == RUN.recorded()
    assert [row["step"] for row in results.rows(record) if row["loss"]] == ["1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"experiment": "gpa-novels"}, "recipe: no recipe 'gpa-novels'"),
        ({"arm": "both"}, "recipe: no arm 'both' in 'gpa-dickens'"),
        ({"scale": "smoke"}, "scale: a smoke run shows that code runs"),
        ({"clean": False}, "code: commit"),
        ({"commit": "unknown", "trees": {}}, "code: commit unknown is not in this history"),
        ({"data_sha256": "0"}, "data: not what is registered under this name"),
        ({"metrics": {"val_loss": 1.0}}, "metrics: without bits_per_byte"),
        ({"seed": 3}, "files: the last checkpoint is not the end of this run"),
    ],
)
def test_what_does_not_match_is_said_and_nothing_is_kept(ended, changes, reason, capsys):
    change(ended, **changes)
    assert main(["submit", str(ended)]) == 2
    assert reason in capsys.readouterr().err and not results.experiments()


def test_settings_files_and_curve_are_compared(ended, capsys, monkeypatch):
    monkeypatch.setattr(submit, "_sizes", lambda full, scale: [replace(RUN, lr=0.5, device_batch=2)])
    last = newest(ended)
    assert last is not None
    (last / "model.safetensors").write_bytes(b"other")
    lines = (ended / CURVE).read_text().splitlines()
    (ended / CURVE).write_text("\n".join([*lines[:-2], ""]))
    assert main(["submit", str(ended)]) == 2
    said = capsys.readouterr().err
    assert "settings: not those of the recipe: lr\n" in said
    assert "curve: metrics.csv does not lead to step 4" in said and "files: " in said
    (ended / ENDED).unlink()
    assert main(["submit", str(ended)]) == 2
    assert "holds no run that has ended" in capsys.readouterr().err


def test_a_recipe_that_was_edited_after_the_run_is_no_record(ended):
    change(ended, recipe=RUN.recorded() | {"lr": 1.0})
    with pytest.raises(ValueError, match="was edited after the run"):
        submit.submit(ended)


@pytest.mark.parametrize("name", list(recipes()))
def test_a_full_or_reduced_run_of_every_recipe_is_known(name):
    arm = next(iter(recipes()[name].arms))
    for run in (recipe(name).run(arm), recipe(name).run(arm).reduced(), recipe(name).run(arm).reduced("cpu")):
        sha = submit.checksum(run.data)
        metrics = dict.fromkeys(("val_loss", "bits_per_byte", "top1"), 1.0)
        one = recorded(run, commit=COMMIT, data_sha256=sha, metrics=metrics)
        assert faults(one) == []
        assert faults(replace(one, recipe=one.recipe | {"new": 1})) == [
            "settings: not those of the recipe: new"
        ]


def test_every_full_run_that_is_kept_could_have_been_submitted():
    for name in recipes():
        if name in results.experiments():
            for record in results.load(name):
                assert record.scale != "full" or faults(record) == []
