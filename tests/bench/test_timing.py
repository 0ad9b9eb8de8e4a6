"""The clock is warm, rotates its inputs and replays graphs; memory is what a call takes."""

import contextlib
import math
import weakref

import pytest
import torch

from gkalib.bench import timing


def test_inputs_are_rotated_out_of_the_cache(monkeypatch):
    monkeypatch.setattr(timing, "cache_bytes", lambda device: 50)
    assert [timing.rotation(nbytes, "cpu") for nbytes in (1, 20, 100, 1000)] == [16, 10, 2, 1]
    seen = []
    monkeypatch.setattr(timing, "SECONDS", 0.0)
    times = timing.timed([lambda n=n: seen.append(n) for n in range(3)], "cpu")
    assert seen == [0, 1, 2] * (2 + len(times.ms)) and len(times.ms) == timing.FEWEST
    columns = times.columns
    assert 0 < columns["ms_q10"] <= columns["ms"] == times.median <= columns["ms_q90"] and not times.graph


def test_what_calls_return_lives_until_the_last_of_them_has_run(monkeypatch):
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

    monkeypatch.setattr(timing, "SECONDS", 0.0)
    times = timing.timed([call] * 3, "cpu")
    assert before == [0, 1, 2] * (2 + len(times.ms)) and not living


def test_a_case_has_its_time_and_its_memory():
    def prepare(case):
        return lambda: torch.zeros(case["n"], dtype=torch.float64).add_(1).sum()

    small, large = (timing.time_case(prepare, {"n": n}, seconds=0.05) for n in (1000, 30_000_000))
    assert 220 < large["peak_mib"] < 300  # 30 million numbers of 8 bytes are 229 MiB
    assert small["peak_mib"] < 20
    assert large["ms"] > small["ms"] > 0 and large["ms_q10"] <= large["ms"] <= large["ms_q90"]
    assert large["runs"] >= 3


class Clock:
    """Events of a device on which every call takes two milliseconds, and a graph of three calls four."""

    now = 0.0

    def __init__(self, **_):
        self.at = 0.0

    def record(self):
        self.at = Clock.now

    def elapsed_time(self, later):
        return later.at - self.at

    def replay(self):
        Clock.now += 4.0


@pytest.mark.parametrize("fails", [False, True])
def test_a_gpu_is_timed_by_events_and_short_calls_as_a_graph(fails, monkeypatch, as_a_user):
    captured, renewed = [], []

    @contextlib.contextmanager
    def capture(graph, stream):
        before = Clock.now
        yield
        Clock.now = before
        if fails:
            raise RuntimeError("operation not permitted when stream is capturing")
        captured.append(graph)

    def call():
        Clock.now += 1.5

    for name, fake in (("Event", Clock), ("CUDAGraph", Clock), ("graph", capture)):
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: None)
    monkeypatch.setattr(timing, "clock_mhz", lambda: 1700.0)
    monkeypatch.setattr(timing, "_renew_generator", lambda: renewed.append(Clock.now))
    times = timing.timed([call] * 3, "cuda")
    assert times.graph is not fails and len(captured) == (not fails) and len(renewed) == fails
    assert set(times.ms) == {1.5 if fails else 4 / 3} and times.clock_mhz is None
    assert timing.timed([call], "cuda", busy=True).clock_mhz == 1700
    monkeypatch.setattr(timing, "GRAPH_BELOW", 1.0)
    assert not timing.timed([call] * 3, "cuda").graph and len(captured) == 2 * (not fails)
    if fails:
        with pytest.raises(RuntimeError, match="not permitted when stream is capturing"):
            timing.timed([call], "cuda", graph=True)
    else:
        assert timing.timed([call], "cuda", graph=True).graph
    monkeypatch.setattr(timing, "GRAPH_BELOW", 9.0)
    assert not timing.timed([call], "cuda", graph=False).graph


@pytest.mark.parametrize("count", [6, 10, 20, 200, 1000])
def test_the_interval_of_a_median_holds_it_in_95_of_100_cases(count):
    """The median lies between ranks r and s if at least r and fewer than s of the times are below it."""
    low, high = timing.median_interval([float(n) for n in range(count, 0, -1)])
    inside = sum(math.comb(count, below) for below in range(int(low), int(high))) / 2**count
    assert 0.93 < inside < 0.98


def test_an_interval_needs_six_times():
    with pytest.raises(ValueError, match="six times at least, not 5"):
        timing.median_interval([1.0] * 5)
