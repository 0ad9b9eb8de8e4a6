"""Benchmarks over lengths refuse wrong results, measure time and memory, and keep their rows."""

import pytest

from gkalib import results
from gkalib.bench import lengths, run


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty store of results; shapes run in this process, and shortly."""
    monkeypatch.setenv("GKALIB_RESULTS", str(tmp_path))
    monkeypatch.setattr(run, "_in_fresh_process", lambda call, *arguments: call(*arguments))
    monkeypatch.setattr(lengths, "SECONDS", 0.0)


def test_a_wrong_result_is_not_timed_and_an_error(here, monkeypatch):
    monkeypatch.setitem(lengths.EAGER, "eager-matmul", lambda query, key, value: 1.01 * value)
    with pytest.raises(
        ValueError, match=r"smooth gives wrong results, .*: eager-matmul: wrong result: .* is off"
    ):
        run.run("smooth", ["eager-matmul", "dense"], scale="smoke", keep=True)
    kept = {record.arm: record.metrics for record in results.load("bench")}
    assert kept["smooth-eager-matmul"] == {"wrong": 1} and kept["smooth-dense"]["ms_64"] > 0


@pytest.mark.parametrize(("name", "shape"), [("smooth", "dense"), ("decoding", "gka-cached")])
def test_shapes_that_have_no_arms_take_none(name, shape, here):
    with pytest.raises(ValueError, match=f"{name} {shape} has no arm 'fused'. Its shapes have none: "):
        run.run(name, [shape], arms=["fused"], scale="smoke")


@pytest.mark.parametrize("arm", ["softmax-whole", "softmax-window", "gka-cached"])
def test_a_step_of_decoding_is_right_and_kept_by_its_length(arm, here, capsys):
    rows = run.run("decoding", [arm], scale="smoke", keep=True)
    assert [(row["arm"], row["n"], row["reason"]) for row in rows] == [(arm, 16, "")]
    (record,) = results.load("bench")
    assert record.arm == f"decoding-{arm}" and record.metrics["ms_16"] == rows[0]["ms"]
    assert (
        record.recipe["lengths"] == [16] and record.metrics["process_mib_16"] > record.metrics["peak_mib_16"]
    )


def test_arms_and_metrics_are_those_of_the_recorded_runs():
    for name in ("smooth", "decoding"):
        old = {run.arm: run.metrics for run in results.load("bench", scale="full", arm=f"{name}-*")}
        shapes = run.benchmark(name).shapes("full", "cpu")
        assert old.keys() == {f"{name}-{arm}" for arm in shapes}
        for arm, recipe in shapes.items():
            wanted = {f"{column}_{n}" for column in lengths.KEPT for n in recipe["lengths"]}
            assert wanted <= old[f"{name}-{arm}"].keys()
