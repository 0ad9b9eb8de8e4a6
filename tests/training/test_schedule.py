"""The learning rate of every step: against its formulas, and against PyTorch's and timm's schedulers."""

import math

import pytest
import torch
from timm.scheduler.cosine_lr import CosineLRScheduler
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR

from gkalib.training.optim import learning_rate
from tests.training.runs import text_run


def _rates(**settings) -> list[float]:
    run = text_run(**settings)
    return [learning_rate(run, step) for step in range(run.steps)]


def _theirs(schedule, optimizer, steps: int) -> list[float]:
    """What a scheduler of PyTorch sets for each step."""
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return rates


def test_the_warm_up_is_a_line_and_the_rest_half_a_cosine():
    rates = _rates(steps=110, warmup=10, lr=1.0, warmup_lr=0.2, final_lr=0.1)
    assert rates[:10] == pytest.approx([0.2 + 0.08 * step for step in range(10)])
    falling = [0.1 + 0.9 * (1 + math.cos(math.pi * step / 100)) / 2 for step in range(100)]
    assert rates[10:] == pytest.approx(falling)
    assert rates[60] == pytest.approx((1.0 + 0.1) / 2)
    run = text_run(steps=110, warmup=10, lr=1.0, final_lr=0.1)
    assert learning_rate(run, 110) == learning_rate(run, 200) == pytest.approx(0.1)


def test_the_trapezoid_rises_stays_and_falls_in_lines():
    rates = _rates(steps=100, warmup=10, lr=1.0, final_lr=0.2, schedule="trapezoid", cooldown=0.4)
    assert rates[:10] == pytest.approx([0.1 * step for step in range(10)])
    assert rates[10:61] == [1.0] * 51
    assert rates[60:] == pytest.approx([1.0 - 0.8 * step / 40 for step in range(40)])
    assert learning_rate(text_run(lr=1.0, final_lr=0.2, schedule="trapezoid"), 10) == pytest.approx(0.2)


def test_without_cooldown_the_trapezoid_stays_up():
    assert _rates(steps=20, lr=0.5, schedule="trapezoid", cooldown=0.0) == [0.5] * 20


def test_pytorchs_line_and_cosine_are_the_same():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1e-3)
    rise = LinearLR(optimizer, start_factor=1e-5, total_iters=12)
    fall = CosineAnnealingLR(optimizer, T_max=38, eta_min=1e-5)
    theirs = _theirs(SequentialLR(optimizer, [rise, fall], milestones=[12]), optimizer, 50)
    ours = _rates(steps=50, warmup=12, lr=1e-3, warmup_lr=1e-8, final_lr=1e-5)
    assert ours == pytest.approx(theirs, rel=1e-9)


def test_timms_cosine_is_the_same_where_its_cosine_starts_after_the_warm_up():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1e-3)
    timm = CosineLRScheduler(
        optimizer, t_initial=45, lr_min=1e-6, warmup_t=5, warmup_lr_init=1e-6, warmup_prefix=True
    )
    theirs = []
    for step in range(50):
        timm.step(step)
        theirs.append(optimizer.param_groups[0]["lr"])
    ours = _rates(steps=50, warmup=5, lr=1e-3, warmup_lr=1e-6, final_lr=1e-6)
    assert ours == pytest.approx(theirs, rel=1e-9)
