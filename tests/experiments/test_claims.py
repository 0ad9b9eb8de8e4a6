"""The claims beside the records are about the arms, the recipes and the metrics that the code has."""

import math

import pytest

from chapters.experiments import trained
from gkalib import results
from gkalib.experiments import train
from gkalib.results.claims import stated
from gkalib.training import recipe
from tests.need import marks

DECIDED = sorted(path.parent.name for path in results.folder().glob("*/claims.json"))
AGAIN = {
    "rbf-slower-rates": ("rbf-stories", "rbf-rope")
}  # a later sweep of one arm, at full length: it decides
BESIDE = {("in-context", "mesa-slower")}  # at a rate beside the one that its sweep found, as the log declared
RARE = {"flat_minus_random"}  # measured where there is a head with a flat bank


def test_an_arm_has_the_rate_that_its_sweep_found():
    swept = [name for name in results.experiments() if name.endswith("-rates")]
    assert swept
    for name in swept:
        decided, _ = AGAIN.get(name, (name.removesuffix("-rates"), ""))
        rates = {study.arm: study.lr for study in trained(decided).studies()}
        found = results.load(name)
        if name not in AGAIN:
            arms = {record.arm for record in results.load(decided)}
            assert arms - {arm for other, arm in BESIDE if other == decided} <= {
                record.arm for record in found
            }
            found = [record for record in found if (decided, record.arm) not in AGAIN.values()]
        assert all(record.metrics["lr"] == rates[record.arm] for record in found)
        for record in found:
            tried = sorted((float(row["val_loss"]), float(row["lr"])) for row in results.rows(record))
            rates_tried = sorted(rate for _, rate in tried)
            broken = {rate / 2 for loss, rate in tried if math.isinf(loss)}
            best = next(rate for _, rate in tried if rate not in broken)
            assert record.metrics["lr"] == best and best not in (rates_tried[0], rates_tried[-1])


@pytest.mark.parametrize("name", DECIDED)
def test_claims_name_what_is_there(name):
    said = stated(name)
    recipes = {study.arm: study.recorded() for study in trained(name).studies()}
    assert said.arms == recipes and [*said.arms] == [*recipes]
    assert any(one.primary for one in said.contrasts)
    for one in said.contrasts:
        assert set(one.weights) <= set(said.arms)
        assert len(one.weights) == 1 or abs(sum(one.weights.values())) < 1e-9
        assert one.own or one.paper  # what is reproduced, a paper says
    for check in said.checks:
        assert set(check.arms) <= set(said.arms)
        assert set(check.concerns) <= {one.metric for one in said.contrasts}


@pytest.mark.parametrize("name", [name for name in DECIDED if stated(name).full])
def test_full_runs_are_those_of_the_recipe(name):
    said, config = stated(name), recipe(stated(name).full.recipe)
    assert said.full.arms.keys() <= said.arms.keys()
    for theirs, steps in said.full.arms.values():
        assert config.arms[theirs]().steps == steps


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=marks(trained(name).studies()[0].task)) for name in DECIDED]
)
def test_every_arm_of_a_contrast_has_its_metric(name):
    said, (studies, measure) = stated(name), trained(name)
    metrics = {study.arm: train(study.smoke(), measure=measure).metrics for study in studies()}
    for one in (*said.contrasts, *said.checks):
        for arm in getattr(one, "weights", None) or one.arms:
            assert one.metric in metrics[arm].keys() | RARE, (one.metric, arm)
