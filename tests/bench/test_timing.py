"""Times are of warm calls on inputs in turn; memory is what a call takes."""

import math
import weakref

import pytest
import torch

from gkalib.bench import timing


def test_inputs_are_rotated_out_of_the_cache(monkeypatch):
    monkeypatch.setattr(timing, "cache_bytes", lambda device: 50)
    assert [timing.rotation(nbytes, "cpu") for nbytes in (1, 20, 100, 1000)] == [16, 10, 2, 1]
    seen: list[int] = []
    ms = timing.times([lambda n=n: seen.append(n) for n in range(3)], "cpu", seconds=0.0)
    assert seen == [0, 1, 2] * (len(seen) // 3) and len(ms) >= 1 and min(ms) > 0
    columns = timing.columns([3.0, 1.0, 2.0])
    assert columns == {"ms": 2.0, "ms_q10": 1.2, "ms_q90": 2.8}


def test_a_number_on_a_cpu_is_the_mean_of_a_call_in_a_block_of_runs():
    seen: list[int] = []
    ms = timing.times([lambda: seen.append(0)] * 2, "cpu", seconds=0.01)
    assert len(seen) > 20 * len(ms) > 0


def test_what_calls_return_lives_until_the_last_of_them_has_run():
    """Else the second would write where the first has, and find its memory in the cache."""
    living: weakref.WeakSet = weakref.WeakSet()
    before = []

    class Result:
        pass

    def call():
        before.append(len(living))
        result = Result()
        living.add(result)
        return result

    timing.times([call] * 3, "cpu", seconds=0.0)
    assert max(before[:3]) == 2 and before[:3] == [0, 1, 2]


def test_a_card_is_timed_by_triton_which_clears_the_cache(monkeypatch):
    asked = []
    monkeypatch.setattr("triton.testing.do_bench", lambda call, **options: asked.append(options) or [call()])
    assert timing.times([lambda: 2.0, lambda: 3.0], "cuda", seconds=0.5) == [2.0]
    assert asked == [{"rep": 500, "return_mode": "all"}]


def test_memory_is_what_a_call_takes():
    def call(n):
        return lambda: torch.zeros(n, dtype=torch.float64).add_(1).sum()

    small, large = (timing.peak_mib(call(n), "cpu")[0] for n in (1000, 30_000_000))
    assert 220 < large < 300  # 30 million numbers of 8 bytes are 229 MiB
    assert small < 20


@pytest.mark.parametrize("count", [6, 10, 20, 200, 1000])
def test_the_interval_of_a_median_holds_it_in_95_of_100_cases(count):
    """The median lies between ranks r and s if at least r and fewer than s of the times are below it."""
    low, high = timing.median_interval([float(n) for n in range(count, 0, -1)])
    inside = sum(math.comb(count, below) for below in range(int(low), int(high))) / 2**count
    assert 0.93 < inside < 0.98


def test_an_interval_needs_six_times():
    with pytest.raises(ValueError, match="six times at least, not 5"):
        timing.median_interval([1.0] * 5)
