"""The learning rate of every step is its formula's."""

import math

import pytest

from gkalib.training.optim import learning_rate
from tests.training.runs import text_run


def _rates(**settings) -> list[float]:
    run = text_run(**settings)
    return [learning_rate(run, step) for step in range(run.steps)]


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
