"""How block sizes are chosen from times, with a clock that tests set."""

import functools
import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from triton.runtime.errors import OutOfResources

from gkalib.cli import main
from gkalib.gpu import run, tune
from gkalib.gpu.samples import Sample, prepared
from gkalib.gpu.tune import Timing, choose, entries, time_candidates, timings, write
from gkalib.smoothing.fused import configs, proved
from gkalib.smoothing.fused.configs import Config, config
from gkalib.smoothing.fused.launch import collected

SMALL, LARGE, WIDE = (32, 32, 4, 2), (64, 32, 4, 2), (32, 64, 4, 2)
KNOWN = {
    "gka_forward": {
        "16": {
            "32": {"shipped": [*SMALL], "candidates": [[*SMALL], [*LARGE], [*WIDE]]},
            "32 masked": {"shipped": [*SMALL], "candidates": [[*SMALL], [*LARGE]]},
            "16": {"shipped": [*SMALL], "candidates": [[*SMALL], [*LARGE]]},
        },
        "64": {"32": {"shipped": [*SMALL], "candidates": [[*SMALL]]}},
    },
    "gka_backward": {"16": {"32": {"shipped": [*SMALL], "candidates": [[*SMALL], [*WIDE]]}}},
}


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch):
    """This table in place of the one that is shipped."""
    monkeypatch.setattr(configs, "table", functools.cache(lambda: KNOWN))
    configs.forget()
    yield KNOWN
    monkeypatch.undo()
    configs.forget()


def clock(ms: Callable[[Config], float]) -> tune.Clock:
    """A clock that asks what is forced, not how long a call takes."""
    return lambda call: ms(config("gka_forward", width=16, dtype=torch.float32))


def timed(config: tuple[int, ...], ms: float, case: str = "gka_forward") -> Timing:
    return Timing("gka_forward", 16, "32", case, config, ms)


def shipped(*actual: Timing) -> tuple[int, ...]:
    return tuple(choose(KNOWN, actual)["gka_forward"]["16"]["32"]["shipped"])


def test_every_candidate_of_an_entry_with_a_choice_is_timed(known: tune.Table):
    actual = list(
        time_candidates(
            clock(lambda sizes: float(sizes.rows)), known, ["gka_forward"], bits=[32], device="cpu"
        )
    )
    assert [(timing.kind, timing.config, timing.ms) for timing in actual] == [
        ("32", SMALL, 32.0),
        ("32", LARGE, 64.0),
        ("32", WIDE, 32.0),
        ("32 masked", SMALL, 32.0),
        ("32 masked", LARGE, 64.0),
    ]
    assert {timing.case for timing in actual} == {"gka_forward"}


def test_a_candidate_that_computes_something_else_is_never_chosen(known: tune.Table, capsys):
    def computed(_) -> list[torch.Tensor]:
        sizes = config("gka_forward", width=16, dtype=torch.float32)
        return [torch.full((3,), math.nan if sizes.columns == 64 else 1.0 if sizes.rows == 32 else 1.1)]

    fastest_is_wrong = clock(lambda sizes: 1.0 / sizes.rows)
    times = list(
        time_candidates(fastest_is_wrong, known, ["gka_forward"], bits=[32], device="cpu", computed=computed)
    )
    assert [time.ms for time in times if time.kind == "32"] == [1 / 32, math.inf, math.inf]
    assert choose(known, times)["gka_forward"]["16"]["32"]["shipped"] == [*SMALL]
    said = capsys.readouterr().out
    assert "its result is off by 1.0e-01, more than 1e-03" in said and "off by nan" in said


def test_a_candidate_is_compared_with_what_is_shipped_wherever_that_stands(known: tune.Table):
    table = {"gka_forward": {"16": {"32": {"shipped": [*LARGE], "candidates": [[*SMALL], [*LARGE]]}}}}

    def computed(_) -> list[torch.Tensor]:
        return [torch.tensor(float(config("gka_forward", width=16, dtype=torch.float32).rows))]

    times = list(time_candidates(clock(lambda sizes: 1.0), table, device="cpu", computed=computed))
    assert [(time.config, time.ms) for time in times] == [(LARGE, 1.0), (SMALL, math.inf)]


def test_a_candidate_that_cannot_run_is_never_chosen(known: tune.Table, capsys: pytest.CaptureFixture):
    def ms(sizes: Config) -> float:
        if sizes.rows == 64:
            raise OutOfResources(300_000, 232_448, "shared memory")
        return 1.0

    actual = list(time_candidates(clock(ms), known, ["gka_forward"], widths=[16], bits=[16], device="cpu"))
    assert [timing.ms for timing in actual] == [1.0, math.inf]
    assert "is out with [64, 32, 4, 2]: out of resource: shared memory" in capsys.readouterr().out
    assert choose(KNOWN, actual)["gka_forward"]["16"]["16"]["shipped"] == [*SMALL]


def test_the_fastest_is_shipped_if_it_is_worth_it():
    assert shipped(timed(SMALL, 2.0), timed(LARGE, 1.0), timed(WIDE, 1.5)) == LARGE
    assert shipped(timed(SMALL, 2.0), timed(LARGE, 1.99)) == SMALL
    assert shipped(timed(SMALL, math.inf), timed(LARGE, 9.0), timed(WIDE, 8.0)) == WIDE
    assert shipped(timed(LARGE, math.inf)) == SMALL
    assert shipped() == SMALL


def test_cases_count_by_their_ratios():
    """One case takes a hundred times as long; the other gains more than it loses."""
    slow = [timed(SMALL, 100.0, "rbf_forward"), timed(LARGE, 110.0, "rbf_forward")]
    quick = [timed(SMALL, 1.0, "gpa_forward"), timed(LARGE, 0.5, "gpa_forward")]
    assert shipped(*slow, *quick) == LARGE


def test_a_choice_leaves_the_table_and_other_entries_alone():
    before = json.dumps(KNOWN)
    changed = choose(KNOWN, [timed(SMALL, 2.0), timed(LARGE, 1.0)])
    assert json.dumps(KNOWN) == before
    changed["gka_forward"]["16"]["32"]["shipped"] = [*SMALL]
    assert json.dumps(changed) == before


def test_a_written_table_is_the_one_that_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(configs, "TABLE", tmp_path / "configs.json")
    changed = choose(KNOWN, [timed(SMALL, 2.0), timed(LARGE, 1.0)])
    write(changed, tmp_path / "configs.json")
    try:
        assert configs.table() == changed
    finally:
        configs.forget()


def test_the_shipped_table_is_written_as_it_stands(tmp_path: Path):
    write(configs.table(), tmp_path / "configs.json")
    assert (tmp_path / "configs.json").read_text() == configs.TABLE.read_text()


def test_times_survive_a_record():
    actual = [timed(SMALL, 2.0), timed(LARGE, math.inf)]
    written = [{key: str(value) for key, value in row.items()} for row in tune.rows(actual)]
    assert timings(written) == actual


def test_entries_can_be_named():
    assert list(entries(KNOWN, widths=[16], bits=[32])) == [
        ("gka_backward", 16, "32"),
        ("gka_forward", 16, "32"),
        ("gka_forward", 16, "32 masked"),
    ]
    with pytest.raises(ValueError, match="no program 'gka' in the table"):
        list(entries(KNOWN, ["gka"]))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a card here")
def test_without_a_card_nothing_is_tuned(capsys: pytest.CaptureFixture):
    assert main(["tune"]) == 2
    assert (
        capsys.readouterr().err == "tune: block sizes are chosen on a CUDA device, and there is none here\n"
    )


def test_records_decide(
    known: tune.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    """The times of a card, as its records bring them, rewrite the table."""
    from gkalib import results

    monkeypatch.setenv("GKALIB_RESULTS", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A card")
    monkeypatch.setattr(tune, "_clock", clock(lambda sizes: 100.0 / sizes.rows))
    monkeypatch.setattr(tune, "_computed", lambda call: [])
    written = {}
    monkeypatch.setattr(tune, "write", written.update)
    monkeypatch.setattr(run, "prove", lambda: 0)
    tune.run(["gka_forward"], bits=[32], device="cpu")
    assert results.load("tuning")[0].metrics == {"entries": 2, "timings": 5, "changes": 2}
    assert main(["tune", "--recorded"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "gka_forward 16 32: [32, 32, 4, 2] to [64, 32, 4, 2]" in lines
    assert lines[-2].startswith("2 entries changed")
    assert lines[-1] == "0 proofs written"
    assert written["gka_forward"]["16"]["32"]["shipped"] == [*LARGE]
    assert written["gka_backward"] == KNOWN["gka_backward"]


PLAIN, STAND_IN = (128, 64, 4, 2), (128, 128, 4, 2)
EITHER = {
    "gka_forward": {"64": {"16": {"shipped": [*PLAIN], "candidates": [[*PLAIN]]}}},
    "gka_forward_specialized": {"64": {"16": {"shipped": [], "candidates": [[], [*STAND_IN]]}}},
}


@pytest.fixture
def either(monkeypatch: pytest.MonkeyPatch):
    """A table with one program that may stand in for another."""
    monkeypatch.setattr(configs, "table", functools.cache(lambda: EITHER))
    configs.forget()
    yield EITHER
    monkeypatch.undo()
    configs.forget()


def test_plain_and_specialized_programs_are_timed_against_each_other(either: tune.Table):
    ((program, width, kind),) = entries(either)
    (case,) = tune.cases(program, width, kind)
    call, actual = prepared(case), {}  # its tensors lie in memory that nobody touches
    for sizes in either[program][str(width)][kind]["candidates"]:
        with collected() as launched, tune.choice(either, program, width, kind, sizes):
            call()
        actual[tuple(sizes)] = [(launch.name, launch.config) for launch in launched][1:]
    assert actual == {
        (): [("gka_forward_kernel", Config(*PLAIN))],
        STAND_IN: [("gka_forward_specialized_kernel", Config(*STAND_IN))],
    }
    slow, fast = (
        [Timing("gka_forward_specialized", 64, "16", "gka_forward", sizes, ms) for sizes, ms in times]
        for times in (((((), 1.0), (STAND_IN, 1.2))), (((), 1.0), (STAND_IN, 0.8)))
    )
    assert choose(either, slow) == either
    entry = choose(either, fast)["gka_forward_specialized"]["64"]["16"]
    assert entry["shipped"] == [*STAND_IN]
    written = [{key: str(value) for key, value in row.items()} for row in tune.rows(fast)]
    assert timings(written) == fast


@pytest.mark.parametrize("shipped", [[], [*STAND_IN]])
def test_what_the_table_ships_runs(shipped: list, monkeypatch: pytest.MonkeyPatch):
    entry = {"64": {"16 short": {"shipped": shipped, "candidates": [[], [*STAND_IN]]}}}
    changed = EITHER | {"gka_forward_specialized": entry}
    monkeypatch.setattr(configs, "table", functools.cache(lambda: changed))
    configs.forget()
    try:
        for length, special in ((40, bool(shipped)), (300, False)):
            with collected() as actual:
                prepared(Sample("gka_forward", 64, torch.float16, length=length))()
            assert actual[-1].name == f"gka_forward{'_specialized' if special else ''}_kernel"
        with collected() as actual:
            prepared(Sample("gka_forward", 64, torch.float32, length=40))()
        assert actual[-1].name == "gka_forward_kernel"
    finally:
        monkeypatch.undo()
        configs.forget()


@pytest.mark.parametrize("program", ["gka_forward_described", "gka_forward_specialized"])
@pytest.mark.parametrize("wrong", [(), (1,), (0,), (1, 0), (0, 1)], ids=str)
def test_what_stands_in_is_shipped_only_if_it_was_right_on_a_card(
    wrong: tuple[int, ...], program: str, either: tune.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from gkalib import results

    def keep(experiment: str, arm: str, rows: list, number: int = 0, **metrics: float) -> None:
        record = results.Record(
            experiment=experiment, arm=arm, scale="full", recipe={"programs": proved.programs()}, seed=0,
            device="A card", commit="0" * 12, clean=True, date=f"2026-01-0{1 + number}T00:00:00+00:00",
            versions={"torch": "2", "triton": "3"}, wall_seconds=1.0, metrics=metrics,
        )  # fmt: skip
        results.save(record, rows=rows, root=tmp_path / str(number))

    monkeypatch.setitem(either, program, either["gka_forward_specialized"])
    times = [
        Timing(program, 64, "16", "gka_forward", sizes, ms) for sizes, ms in (((), 1.0), (STAND_IN, 0.5))
    ]
    keep("tuning", program.replace("_", "-"), tune.rows(times))
    for number, count in enumerate(wrong):
        keep("correctness", "tests", [], number, wrong=count)
    shipped = tune.by_record([tmp_path / "0", tmp_path / "1"])[program]["64"]["16"]["shipped"]
    right = wrong[-1:] == (0,) and program == "gka_forward_described"  # no test runs a specialized program
    assert shipped == ([*STAND_IN] if right else [])
