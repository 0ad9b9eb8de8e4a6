"""What the experiment on kernel banks measures, on cases whose answer is known."""

import math

import pytest
import torch

from chapters.experiments import gpa_characters
from gkalib.experiments import fit


@pytest.fixture(scope="module")
def trained():
    """A bank arm after three steps."""
    studies = gpa_characters.studies()
    arm = next(study for study in studies if study.arm == "bank-rope")
    return fit(arm.smoke())[:2]


def test_a_bump_is_its_height_above_its_flanks():
    tables = torch.zeros(2, 3, 128)
    tables[1, 2, 60:73] = 2.0
    tables += 1.0  # a constant does not count
    heights = gpa_characters.bump(tables, 70)
    assert heights[1, 2] == 2 and heights.abs().sum() == 2


def test_gaps_of_a_text_of_equal_lines():
    newline = torch.zeros(7000, dtype=torch.bool)
    newline[::70] = True
    newline[1::210] = True  # every third line is followed by an empty one
    found = gpa_characters._gaps(newline)
    assert found["newline_gap"] == 70
    assert math.isclose(found["newline_at_1"], 34 / 134)
    assert found["newline_from_68"] > 0 and found["newline_from_40"] == 0


@torch.no_grad()
def test_measuring_leaves_the_model_as_it_was(trained):
    model, learned = trained
    inputs = learned.held_out[0][:4]
    before = model(inputs)
    found = gpa_characters.measure(model, learned)
    assert torch.equal(model(inputs), before)
    assert all(math.isfinite(value) for value in found.values())
    assert found["far_weight"] < found["far_weight_most"] < 1
    assert {
        f"without_{part}_{layer}_{head}" for part in ("bank", "head") for layer in (1, 2) for head in (1, 4)
    } < (found.keys())


@torch.no_grad()
def test_a_leveled_bank_is_constant_from_the_far_lags_on(trained):
    bank = trained[0].blocks[0].attn.kernel.second
    table, leveled = bank.lag_table(128), gpa_characters._leveled(type(bank).lag_table, bank, 128)
    far = gpa_characters.FAR
    assert torch.equal(leveled[:, :far], table[:, :far])
    torch.testing.assert_close(leveled[:, far:].mean(-1), table[:, far:].mean(-1))
    assert (leveled[:, far:] == leveled[:, far : far + 1]).all()
