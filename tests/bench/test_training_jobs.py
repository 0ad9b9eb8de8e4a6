"""The training runs of the queue: each exists, has a reduced size, and its job leaves a record."""

import pytest

from gkalib import results
from gkalib.bench.jobs import jobs
from gkalib.bench.training import WANTED, trained, wanted
from gkalib.training import recipe


@pytest.mark.parametrize(("name", "arm"), [(name, arm) for name, arm, _ in WANTED])
def test_a_wanted_run_can_be_made(name, arm):
    run = wanted(name, arm, "cuda")
    assert (run.recipe, run.arm, run.scale) == (name, arm, "reduced")
    assert run.device_batch == run.batch, "one card need not take a step in parts"
    assert run.steps < recipe(name).run(arm).steps and run.data in ("dickens", "cifar10", "tinystories")


def test_training_comes_after_the_benchmarks_of_fused_operations():
    places = {job.name: place for place, job in enumerate(jobs())}
    first = min(place for name, place in places.items() if name.startswith("train-"))
    assert first > max(place for name, place in places.items() if name.startswith("correctness-"))
    assert first > places["bench-gka-vit-ti"] and places["train-gpa-dickens-rope"] == first


def test_a_job_on_a_cpu_leaves_the_record_of_a_smoke_run(tmp_path, monkeypatch):
    monkeypatch.setenv("GKALIB_RESULTS", str(tmp_path / "store"))
    monkeypatch.setenv("GKALIB_RUNS", str(tmp_path / "runs"))
    trained("gpa-dickens", "bank", device="cpu")
    (record,) = results.load("gpa-dickens", root=tmp_path / "store")
    assert (record.arm, record.scale, record.recipe["data"]) == ("bank", "smoke", "state-of-the-union")
