"""What decides an experiment stands in its file, names arms and metrics that are there, and adds up."""

from importlib import import_module

import pytest

from gkalib import experiments
from gkalib.data import registry
from gkalib.experiments.decisions import Contrast, difference

DECIDED = ("gka-pictures", "gka-stories", "gpa-bump", "gpa-novels", "rbf-stories")
RARE = {"flat_minus_random"}  # measured where there is a head with a flat bank


def test_a_contrast_is_a_weighted_sum():
    one = Contrast(claim="a is less than b", metric="loss", weights=difference("a", "b"), sign=-1)
    assert one.of({"a": {"loss": 1.0}, "b": {"loss": 1.5}}) == -0.5


@pytest.mark.parametrize("name", DECIDED)
def test_what_decides_names_what_is_there(name):
    module = import_module(f"gkalib.experiments.{name.replace('-', '_')}")
    arms = {study.arm for study in module.studies()}
    assert any(one.primary for one in module.CONTRASTS)
    for one in module.CONTRASTS:
        assert set(one.weights) <= arms
        assert len(one.weights) == 1 or abs(sum(one.weights.values())) < 1e-9
    for check in module.CHECKS:
        assert set(check.arms) <= arms


@pytest.mark.slow
@pytest.mark.parametrize("name", DECIDED)
def test_every_arm_of_a_contrast_has_its_metric(name):
    module = import_module(f"gkalib.experiments.{name.replace('-', '_')}")
    if module.studies()[0].task == "fashion-mnist" and not registry.ready("fashion_mnist"):
        pytest.skip("fashion_mnist is not here: python -m gkalib data get fashion_mnist")
    metrics = {
        study.arm: experiments.train(study.smoke(), measure=module.measure).metrics
        for study in module.studies()
    }
    for one in (*module.CONTRASTS, *module.CHECKS):
        for arm in getattr(one, "weights", None) or one.arms:
            assert one.metric in metrics[arm].keys() | RARE, (one.metric, arm)
