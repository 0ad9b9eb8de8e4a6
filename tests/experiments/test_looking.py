"""The study of looks: its arms, and that a look's numbers reach the record."""

import math

import pytest

from chapters.experiments.variants import looking, measure
from gkalib.experiments import train
from gkalib.layers import variants
from tests.variants import only_causal


def chosen(arm: str):
    return next(one for one in looking() if one.arm == arm), measure


def test_every_variant_is_looked_at_before_and_after():
    arms = {one.arm for one in looking()}
    names = {name.replace("_", "-") for name in variants() if not only_causal(name)}
    assert names | {f"{name}-untrained" for name in names} < arms
    assert arms - names - {f"{name}-untrained" for name in names} == {
        "gka-wide",
        *(f"{name}-registers{count}" for name in ("softmax", "gka") for count in (1, 4)),
    }


def test_an_untrained_arm_is_the_model_as_it_starts():
    study, measure = chosen("gka-untrained")
    record = train(study, measure=measure)
    start = 8**0.25  # heads of 8 channels
    sigmas = [value for name, value in record.metrics.items() if name.startswith("sigma")]
    assert sigmas == pytest.approx([start] * 16)


@pytest.mark.parametrize("arm", ["softmax-registers4", "karat", "nystrom"])
def test_a_look_is_in_the_record(arm: str):
    study, measure = chosen(arm)
    metrics = train(study.smoke(), measure=measure).metrics
    tokens = 21 if "registers" in arm else 17
    for name in ("neighbors", "entropy", "own", "largest", "token", "patch", "mass", "negative"):
        assert f"{name}_3_3" in metrics
    assert 1 <= metrics["neighbors_3_3"] <= tokens
    assert 0 <= metrics["entropy_0_0"] <= math.log(tokens) + 1e-5
    assert ("register3_0_0" in metrics) == ("registers4" in arm)
    assert ("rollout_occlusion_00" in metrics) == ("registers4" in arm)
    assert "residual_3" in metrics
