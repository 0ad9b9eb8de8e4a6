"""The table of a comparison at one budget, and the costs in it."""

import re
import statistics

import pytest
import torch

from chapters.experiments.one_budget import (
    STUDIES,
    TEXT_RATES,
    costs,
    images,
    kept,
    outcomes,
    standings,
    step_costs,
)
from gkalib import results
from gkalib.experiments.tasks import task
from tests.records import record
from tests.results.test_claims import keep


def rows(name: str) -> dict[str, dict[str, str]]:
    table = standings(name)
    return {row[0]: dict(zip(table.header, row, strict=True)) for row in table.cells}


def test_without_runs_each_variant_has_its_name_and_rate_alone(store):
    found = rows("one-budget-text")
    assert found["softmax"].pop("rate") == f"{TEXT_RATES['softmax']:g}"
    for name, row in found.items():
        row.pop("rate", None)
        assert set(row.values()) == {name, "–"}


def test_a_row_has_the_outcome_the_difference_and_the_costs(store):
    keep("one-budget-images", "accuracy", {"softmax": 0.8, "gka": 0.75})
    metrics = {"parameters": 12_345, "flops": 2_500_000, "milliseconds": 30.4, "mebibytes": 1.25}
    results.save(record(experiment="one-budget-costs", arm="images-gka", scale="reduced", metrics=metrics))
    found = rows("one-budget-images")
    gka, softmax = found["gka"], found["softmax"]
    assert float(gka["accuracy, %"]) == pytest.approx(75, abs=0.2)
    assert float(softmax["accuracy, %"]) == pytest.approx(80, abs=0.2)
    runs = [run.metrics["accuracy"] for run in results.load("one-budget-images", arm="gka")]
    assert gka["minus softmax"][:2] in ("−5", "−4")
    assert gka["verdict"] == "behind" and re.fullmatch(r"−\d\.\d to −\d\.\d", gka["interval"])
    assert [gka[name] for name in ("parameters", "Mflop", "ms", "MiB")] == ["12,345", "2.5", "30", "1.2"]
    assert softmax["verdict"] == softmax["parameters"] == "–"
    assert step_costs("one-budget-images") == {"gka": metrics} and step_costs("one-budget-text") == {}
    found = outcomes("one-budget-images")["gka"]
    assert list(found) == [*range(5)] and sorted(found.values()) == sorted(runs)


def test_a_lower_loss_is_ahead(store):
    keep("one-budget-text", "val_loss", {"softmax": 1.5, "gka": 1.2, "vlt": 1.8}, spread=0.02)
    found = rows("one-budget-text")
    runs = outcomes("one-budget-text")["gka"].values()
    assert found["gka"]["spread"] == f"{statistics.stdev(runs):.3f}"
    assert [found[arm]["verdict"] for arm in ("gka", "vlt")] == ["ahead", "behind"]


@pytest.mark.parametrize("read", [standings, outcomes, step_costs])
def test_another_experiment_is_no_comparison_at_one_budget(read):
    with pytest.raises(ValueError, match="no comparison 'gka-pictures'"):
        read("gka-pictures")


def test_costs_are_those_of_the_models_that_are_trained():
    assert {name.split("-", 1)[0] for name in STUDIES} == {"images", "text"}
    study = next(study for study in images() if study.arm == "gka")
    found = costs(study, task("digits", train=64, test=8))
    model = study.model_of(task("digits", train=64, test=8))
    assert found["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    assert found["flops"] > 2 * found["parameters"] and found["milliseconds"] > 0


def test_what_the_forward_pass_keeps_is_counted_once_and_without_parameters():
    """A linear map keeps its input, which a second one does not store again."""

    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = torch.nn.Linear(256, 10), torch.nn.Linear(256, 10)

        def forward(self, x):
            return self.a(x) + self.b(x)

    x = torch.zeros(1024, 256)
    assert kept(lambda: Two()(x)) == x.nbytes
