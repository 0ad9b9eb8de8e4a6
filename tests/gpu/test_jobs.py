"""The jobs of the queue: each fits a command and has its code; a training run leaves a record."""

import pytest

from gkalib import results
from gkalib.bench import fused, models
from gkalib.gpu.jobs import TRAININGS, code_hash, jobs, trained, training_run
from gkalib.training import recipe


@pytest.mark.parametrize(("name", "arm"), [(name, arm) for name, arm, _ in TRAININGS])
def test_a_wanted_run_can_be_made(name, arm):
    run = training_run(name, arm, "cuda")
    assert (run.experiment, run.arm, run.scale) == (name, arm, "reduced")
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


def test_the_most_urgent_comes_first_whatever_a_job_is_called():
    known = jobs()
    assert [job.priority for job in known] == sorted(job.priority for job in known)
    assert known[0].name.startswith("correctness-")
    assert len({job.name for job in known}) == len(known)
    for job in known:
        assert job.seconds > 0 and len(job.code()) == 12


def test_the_hash_of_code_sees_a_change_and_an_absent_file(tmp_path, monkeypatch):
    monkeypatch.setattr("gkalib.gpu.jobs.PACKAGE", tmp_path)
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "one.py").write_text("a = 1\n")
    (tmp_path / "part" / "table.json").write_text("{}")
    before = code_hash("part"), code_hash("part", "part/table.json")
    (tmp_path / "part" / "table.json").write_text("{ }")
    assert code_hash("part") == before[0] and code_hash("part", "part/table.json") != before[1]
    (tmp_path / "part" / "one.py").write_text("a = 2\n")
    assert code_hash("part") != before[0]
    with pytest.raises(ValueError, match=r"depends on gone\.py, which is not in gkalib"):
        code_hash("gone.py")


def test_a_timed_job_fits_a_command_of_ten_minutes():
    for comparison in {**fused.BENCHMARKS, **models.BENCHMARKS}.values():
        for case in comparison.shapes("full", "cuda"):
            assert 0 < comparison.seconds(case) < 600
