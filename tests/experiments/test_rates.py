"""A rate of its own: named parameters learn at another pace, without weight decay."""

import pytest
import torch

from gkalib.experiments import Study, fit


def _trained_bank(**settings) -> dict[str, torch.Tensor]:
    study = Study(
        experiment="rates",
        arm="bank",
        task="state-of-the-union",
        attention="gpa",
        options={"num_terms": 3},
        model={"dim": 16, "depth": 1, "num_heads": 2},
        data={"context": 16, "limit": 4000, "windows": 8},
        steps=4,
        batch=2,
        warmup=0,
        weight_decay=0.5,
        **settings,
    )
    model = fit(study)[0]
    return {name: parameter.detach() for name, parameter in model.named_parameters() if ".kernel." in name}


def _moved(bank: dict[str, torch.Tensor]) -> float:
    """How far log ℓ went from log 150, at most."""
    lengths = torch.cat([value for name, value in bank.items() if "log_length" in name])
    return (lengths - torch.tensor(150.0).log()).abs().max().item()


def test_a_rate_of_zero_keeps_parameters_where_they_started():
    assert _moved(_trained_bank(rates={".kernel.": 0.0})) == 0


def test_rates_multiply_and_stop_the_decay():
    slow, fast = (
        _moved(_trained_bank(rates={".kernel.": 1.0})),
        _moved(_trained_bank(rates={".kernel.": 5.0})),
    )
    assert 3 * slow < fast < 7 * slow
    assert _moved(_trained_bank()) > 1.5 * slow  # a matrix decays, and log 150 is far from zero


def test_a_negative_rate_is_refused():
    with pytest.raises(ValueError, match="train: rates must be zero or more"):
        _trained_bank(rates={".kernel.": -1.0})
