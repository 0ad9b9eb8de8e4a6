"""What the experiment on the bump measures, where a bump was planted and where there is none."""

import pytest
import torch

from chapters.experiments import gpa_bump, gpa_characters
from gkalib import experiments
from gkalib.kernels import DecayingPeriodicBank
from gkalib.training.optim import learning_rate

READS = pytest.mark.data("dickens")


@pytest.fixture(scope="module")
def trained():
    """The arm wrapped at 50 after three steps."""
    studies = gpa_bump.studies()
    arm = next(study for study in studies if study.arm == "flat-50")
    return experiments.fit(arm.smoke())[:2]


def test_a_flat_bank_stays_soft_for_a_quarter_of_the_steps():
    """Adam moves a number by about the rate in a step: the sum of rates bounds how far each σ has come."""
    studies = gpa_bump.studies()
    arm = next(study for study in studies if study.arm == "flat-70")
    (factor,) = arm.rates.values()
    start = DecayingPeriodicBank(1, **arm.options)
    early = sum(learning_rate(arm, step, factor) for step in range(arm.steps // 4))
    sigma = start.sigma.detach() + early
    assert start.lag_table(1).item() == pytest.approx(1.0) and sigma.square().sum() < 11


@pytest.fixture
def planted(trained, monkeypatch):
    """The model with banks that rise by 3 at the 13 lags up to a width."""
    model, learned = trained

    def plant(width: int):
        def table(bank, length: int):
            lags = torch.arange(length)
            rise = ((lags > width - 11) & (lags < width + 3)).float()
            return 3 * rise.expand(bank.heads(), -1) - lags / 50

        monkeypatch.setattr(gpa_bump.banks(model)[0].__class__, "lag_table", table)
        return model, learned

    return plant


@READS
@pytest.mark.parametrize("width", [50, 70])
def test_a_planted_crest_is_found(planted, width):
    found = gpa_bump.measure(*planted(width))
    assert found["crest"] == width and abs(found["height"] - 3) < 0.2
    shape = {int(name[13:]): value for name, value in found.items() if name.startswith("highest_from_")}
    assert len(shape) == 32 and max(range(24, 128, 4), key=shape.__getitem__) == width - 10
    difference = found["leveled_ends"] - found["leveled_others"]
    assert found["leveled_contrast"] == pytest.approx(difference, abs=1e-6)


@READS
def test_one_rising_head_shows_in_the_highest_crest_and_not_in_their_mean(trained, monkeypatch):
    """As in trained models: banks of many decays, one of eight with an edge of a nat, five draws."""
    model, learned = trained
    banks, lags, generator = gpa_bump.banks(model), torch.arange(128), torch.Generator().manual_seed(0)
    moves = []
    for _ in range(5):
        found = {}
        for width in (50, 70):
            wiggle = 0.05 * torch.randn(8, 128, generator=generator).cumsum(-1) / 128**0.5
            tables = wiggle - (0.02 + 0.1 * torch.rand(8, 1, generator=generator)) * lags
            tables[5] += ((lags > width - 11) & (lags < width + 3)).float()
            of_bank = dict(zip(map(id, banks), tables.unflatten(0, (2, 4)), strict=True))
            table_of = lambda bank, length, of_bank=of_bank: of_bank[id(bank)][:, :length]  # noqa: E731
            monkeypatch.setattr(type(banks[0]), "lag_table", table_of)
            found[width] = gpa_bump.with_highest(model, learned)
            assert found[width]["highest_height"] > 0.25
        moves.append([found[70][name] - found[50][name] for name in ("highest_crest", "crest")])
    highest, mean = torch.tensor(moves).T
    assert (highest - 20).abs().max() <= 2 < mean.std()


@READS
def test_no_crest_has_no_height(planted, monkeypatch):
    model, learned = planted(50)
    straight = lambda bank, length: -torch.arange(length) / 50 * torch.ones(bank.heads(), 1)  # noqa: E731
    monkeypatch.setattr(gpa_bump.banks(model)[0].__class__, "lag_table", straight)
    found = gpa_bump.measure(model, learned)
    assert abs(found["height"]) < 0.1 and abs(found["leveled_contrast"]) < 1e-4


@READS
@torch.no_grad()
def test_leveling_takes_a_bump_away_and_is_undone(planted):
    model, learned = planted(50)
    bank = gpa_bump.banks(model)[0]
    level = gpa_bump.leveled(type(bank).lag_table, bank, 50, 128)
    assert gpa_characters.bump(level, 50).abs().max() < 0.1
    inputs = learned.held_out[0][:2]
    before = model(inputs)
    gpa_bump.measure(model, learned)
    assert torch.equal(model(inputs), before)


@READS
def test_line_ends_come_after_letters_late_in_a_window(trained):
    _, learned = trained
    inputs, labels = learned.held_out
    ends, others = gpa_bump.breaks(learned.characters, inputs, labels)
    assert ends.any() and others.sum() > 5 * ends.sum() and not (ends & others).any()
    assert not ends[:, : gpa_bump.CONTEXT - gpa_bump.LATE].any()
    before = {learned.characters[one] for one in inputs[ends].tolist()}
    assert all(one.isalpha() or one == "," for one in before)
