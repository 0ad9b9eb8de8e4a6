"""The jobs of the queue: each fits a command and has its code; a training run leaves a record."""

import pytest

from gkalib import results
from gkalib.bench import fused, models, timing
from gkalib.bench.arms import arms
from gkalib.bench.cases import shapes
from gkalib.gpu.jobs import arms_of, code_hash, jobs, measured
from gkalib.gpu.trainings import TRAININGS, trained, training_run
from gkalib.training import recipe


@pytest.mark.parametrize(("name", "arm"), [(name, arm) for name, arm, _ in TRAININGS])
def test_a_wanted_run_can_be_made(name, arm):
    run = training_run(name, arm, "cuda")
    assert (run.experiment, run.arm, run.scale) == (name, arm, "reduced")
    assert run.device_batch == run.batch, "one card need not take a step in parts"
    assert run.steps < recipe(name).run(arm).steps and run.data in ("dickens", "cifar10", "tinystories")


def test_training_comes_after_the_batches_and_before_what_may_hang():
    places = {job.name: place for place, job in enumerate(jobs())}
    first = min(place for name, place in places.items() if name.startswith("train-"))
    assert first > max(place for place, job in enumerate(jobs()) if job.batch)
    assert first > places["bench-gka-vit-ti"] and places["train-gpa-dickens-rope"] == first
    assert first < places["rivals-gka-text"] < places["correctness-gka-specialized-bfloat16"]


def test_a_shape_is_timed_with_the_rivals_that_its_goals_name():
    assert arms_of("gka-vit-ti") == ["fused", "sdpa-cudnn", "sdpa-flash"]
    assert arms_of("karat-vit-s") == ["fused", "eager", "sdpa-cudnn", "sdpa-flash"]
    assert arms_of("gpa-dickens") == ["fused", "flex", "fused-no-table"]
    assert arms_of("rbf-text") == ["fused", "fused-unordered", "padded", "sdpa-cudnn", "sdpa-flash"]
    softmax = ["sdpa-cudnn-unwindowed", "sdpa-flash-unwindowed", "flex-softmax"]
    assert arms_of("gka-text-512") == ["fused", "fused-unordered", *softmax]
    both = ["fused-unordered", "fused-plain", "fused-described"]
    assert arms_of("gka-text") == ["fused", *both, "sdpa-cudnn", "sdpa-flash"]
    for job in jobs():
        if job.name.startswith("bench-gka") and "arms" in job.arguments:
            (case,) = (
                case for case in shapes("gka", "smoke", "cpu") if case["shape"] == job.arguments["shape"]
            )
            assert {*arms({**case, "arms": job.arguments["arms"]})} == {*job.arguments["arms"]}


def test_a_rehearsal_on_a_cpu_times_a_small_form_with_the_chosen_arms(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GKALIB_RESULTS", str(tmp_path / "store"))
    monkeypatch.setattr(timing, "SECONDS", 0.0)
    measured("decode", "gka", ["fused", "sdpa-flash"], device="cpu")
    (record,) = results.load("bench")
    assert record.scale == "smoke" and record.metrics["ratio_sdpa_forward"] > 0
    assert {row["arm"] for row in results.rows(record)} == {"fused", "sdpa-flash", "fused-again"}
    measured("rbf", "article-8192", ["fused"], device="cpu")
    assert "rbf article-8192 has no small form" in capsys.readouterr().out


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
