"""What loaders deliver is set beside what a model asks for; only a function of the step is timed."""

import pytest
import torch

from gkalib.bench import loading
from gkalib.bench.run import benchmark
from gkalib.training import recipe
from gkalib.training.launch import cost


def case(shape, scale="smoke"):
    return loading.shapes(scale, "cpu")[shape]


def test_a_row_for_each_model_with_what_it_asks_for():
    shape = "pictures-32"
    rows = loading.time_loading(case(shape))
    assert [row["arm"] for row in rows] == [f"{name}/{arm}" for name, arm, _ in loading.FED[shape]]
    for row in rows:
        assert row["ms_q10"] <= row["ms"] <= row["ms_q90"]
        assert row["items_per_second"] == pytest.approx(row["items"] / row["ms"] * 1e3)
        assert row["processes"] == pytest.approx(row["needed_per_second"] / row["items_per_second"])
        # with as many loaders as the model needs, a step starves below the time that it takes
        assert row["starves_ms"] * row["loaders"] / row["processes"] == pytest.approx(row["step_ms"])
    metrics = loading.summarize(rows)
    assert metrics["ms"] == rows[0]["ms"] and all(value > 0 for value in metrics.values())
    assert len(metrics) == 5 + 4 * len(rows)


def test_what_a_model_asks_for_is_counted_on_the_recipe():
    (row,) = loading.time_loading(case("windows"))
    counted = cost(recipe("gpa-dickens").run("rope"))
    assert row["needed_per_second"] * counted.operations / counted.items == pytest.approx(0.3 * 989e12)
    assert row["step_ms"] == pytest.approx(1e3 * 256 * 256 / row["needed_per_second"])
    assert row["loaders"] == 1 and row["items"] == 256 * 256


def test_photographs_are_files_of_the_size_that_imagenets_have(tmp_path, monkeypatch):
    monkeypatch.setattr(loading, "FILES", 2)
    monkeypatch.setattr(loading, "AT_ONCE", 2)
    load, kilobytes = loading._loader(recipe("gka-imagenet-tiny").run("deit"), "photographs", tmp_path)
    assert 90 < kilobytes < 150  # 110 on average
    images, labels = load(0)
    assert images.shape == (2, 3, 224, 224) and labels.tolist() == [0, 0]


def test_documents_are_loaded_as_the_recipe_reads_them(tmp_path):
    run = recipe("rbf-tinystories").run("standard")
    load, _ = loading._loader(run, "documents", tmp_path)
    assert loading._check(load, run) == run.device_batch * run.model.context


def test_what_is_not_a_function_of_the_step_is_not_timed():
    run = recipe("gpa-dickens").run("rope")
    shape = (run.device_batch, run.model.context)

    def careless(step):
        return torch.rand(shape), torch.zeros(shape)

    with pytest.raises(AssertionError, match="a part is not the same one twice"):
        loading._check(careless, run)
    with pytest.raises(AssertionError, match="two parts are the same"):
        loading._check(lambda step: (torch.zeros(shape), torch.zeros(shape)), run)


def test_it_is_a_benchmark_that_asks_nothing_of_a_gpu():
    assert benchmark("loading").time is loading.time_loading
    assert loading.shapes("full", "cuda") == {}
    assert loading.shapes("full", "cpu").keys() == loading.FED.keys()
