"""What the experiments of claims measure, on planted cases: flat banks, lines, gaps, initial weights."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from chapters.experiments import gka, gpa_novels, trained
from gkalib.analysis import banks
from gkalib.analysis.removal import written
from gkalib.experiments import Study, task
from gkalib.experiments.loop import StudyWorkload


def study(name: str, arm: str) -> Study:
    (one,) = (one for one in trained(name).studies() if one.arm == arm)
    return one.smoke()


def built(one: Study):
    torch.manual_seed(one.seed)
    return StudyWorkload(one).build()


@pytest.fixture(scope="module")
def novels():
    """A model of wrapped novels, untrained, and its task on a short text."""
    one = study("gpa-novels", "both")
    one = replace(one, data=one.data | {"limit": 60_000, "windows": 16}, model=one.model | {"dim": 32})
    return built(one).eval(), task(one.task, **one.data)


@pytest.mark.data("dickens")
def test_a_flat_bank_is_found_and_no_flat_bank_is_not(novels, monkeypatch):
    model, learned = novels
    monkeypatch.setattr(gpa_novels, "CHARACTERS", 400)
    monkeypatch.setattr(gpa_novels, "STREAMS", 4)
    assert gpa_novels.measure(model, learned)["flat_heads"] == 0  # of the paper's start
    with torch.no_grad():
        banks(model)[2].sigma[1] = 0.0
        before = model(learned.held_out[0][:2])
    found = gpa_novels.measure(model, learned)
    assert (found["flat_heads"], found["flat_layer"], found["flat_head"]) == (1, 3, 2)
    assert found["flat_minus_random"] == found["without_flat"] - found["without_random"]
    assert found["gap_lines_with"] >= 0 <= found["gap_lines_without"]
    with torch.no_grad():
        assert torch.equal(model(learned.held_out[0][:2]), before)


@pytest.mark.data("dickens")
def test_as_many_characters_are_generated_as_asked(novels):
    model, learned = novels
    assert written(model, learned.held_out[0][:3], 300).shape == (3, 100)


@pytest.mark.data("tinystories")
def test_bits_per_byte_of_an_even_guess():
    learned: Any = task("tinystories-pieces", context=32, limit=60_000, tokens=300, windows=16)
    found = gka.per_byte(lambda ids: torch.zeros(*ids.shape, 300), learned)
    labels = learned.held_out[1]
    expected = labels.numel() * math.log2(300) / learned.byte_lengths[labels].sum().item()
    assert found["bits_per_byte"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.data("tinystories")
def test_a_planted_gap_is_found():
    learned: Any = task("tinystories-pieces", context=32, limit=60_000, tokens=300, windows=16)
    seen = {tuple(ids.tolist()) for ids in learned.windows_of(learned.ids, 32, 16)[0]}

    def knows(ids):
        known = torch.tensor([tuple(one.tolist()) in seen for one in ids], dtype=torch.float32)
        after = ids.roll(-1, dims=1)
        return 5.0 * known[:, None, None] * torch.nn.functional.one_hot(after, 300)

    found = gka.per_byte(knows, learned)
    assert found["gap"] > 0.5 and found["gap_errors"] > 3
    assert abs(gka.per_byte(lambda ids: torch.zeros(*ids.shape, 300), learned)["gap_errors"]) < 3


def test_logistic_regression_learns_what_a_line_parts():
    digits = task("digits")
    assert gka.logistic(digits) > 0.9


@pytest.mark.data("tinystories")
@pytest.mark.parametrize("name", ["gka-stories", "rbf-stories"])
def test_arms_share_initial_weights_where_shapes_match(name):
    data = {"limit": 60_000, "windows": 16}
    studies = [replace(one, data=one.data | data) for one in trained(name).studies()]
    first, *others = (dict(built(one).named_parameters()) for one in studies)
    shared = 0
    for other in others:
        for key, value in other.items():
            if key in first and first[key].shape == value.shape:
                assert torch.equal(first[key], value), key
                shared += 1
    assert shared > 20 * len(others) / 2


def test_the_recipe_says_that_weights_are_shared():
    one = study("rbf-stories", "dot-rope")
    assert one.recorded()["shared"] is True
    assert "shared" not in replace(one, shared=False).recorded()
