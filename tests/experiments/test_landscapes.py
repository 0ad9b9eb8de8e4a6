"""The study of landscapes says of a short run what the library says, and keeps what is drawn."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from chapters.experiments.landscapes import Landscape, studies
from chapters.experiments.sharpness import sharpness
from gkalib import results
from gkalib.analysis.landscape import trajectory_plane
from gkalib.experiments import Study, fit, train


def smoke(arm: str) -> Study:
    """An arm of it in three steps."""
    return next(one for one in studies() if one.arm == arm).smoke()


def test_an_observer_sees_every_step_and_changes_nothing():
    seen = []
    watched, *_ = fit(smoke("softmax"), watch=lambda step, model: seen.append((step, model.training)))
    plain, *_ = fit(smoke("softmax"))
    assert seen == [(step, True) for step in range(4)]
    pairs = zip(watched.parameters(), plain.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


@pytest.mark.parametrize("arm", ["softmax", "g3u", "gka"])
def test_its_numbers_are_those_of_the_run(arm: str, store):
    study = smoke(arm)
    record = train(study, measure=Landscape, keep=True)
    found = record.metrics
    assert all(math.isfinite(value) for value in found.values())

    landscape = Landscape(study)
    model, learned, *_ = fit(study, watch=landscape.watch)
    assert landscape.steps == [0, 1, 2, 3]
    images, labels = learned.images[:32], learned.labels[:32]  # pyright: ignore
    model.eval()
    with torch.no_grad():
        assert found["fixed_loss"] == pytest.approx(cross_entropy(model(images), labels).item())
    plane = trajectory_plane(landscape.snapshots)
    assert found["explained_1"] == pytest.approx(plane.explained[0].item())
    exact = sharpness(model, lambda model: cross_entropy(model(images), labels)).largest
    assert found["sharpness"] == pytest.approx(exact, rel=1e-3)
    assert ("sharpness_rescaled" in found) == (arm != "gka")
    if arm != "gka":
        assert found["relative_sharpness_rescaled"] == pytest.approx(found["relative_sharpness"], rel=1e-3)
        assert found["sharpness_rescaled"] != pytest.approx(found["sharpness"], rel=1e-2)
    assert 1 <= found["rank_after_1_t100"] <= 17 and 0 < found["first_after_0_t0"] <= 1 + 1e-9
    assert found["weights_moved"] >= found["histogram_moved"] > 0

    rows = results.rows(record)
    tables = {name: [row for row in rows if row["table"] == name] for name in {row["table"] for row in rows}}
    assert len(tables["path_plane"]) == 25 and len(tables["far_plane"]) == 9 and len(tables["path"]) == 4
    last = tables["path"][-1]
    assert float(last["value"]) == pytest.approx(found["fixed_loss"], rel=1e-4)
    assert float(last["x"]) == float(last["y"]) == 0 and tables["shadow"][-1]["value"] == last["value"]
    ranks = [float(row["value"]) for row in tables["spectrum_after_1"] if row["step"] == "3"]
    assert len(ranks) == 17 and ranks == sorted(ranks, reverse=True)
