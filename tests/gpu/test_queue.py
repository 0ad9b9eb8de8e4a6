"""The queue of GPU work: what runs, in which order, and what is left after a crash, a hang and a stop."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gkalib import results
from gkalib.gpu import pack, plan, queue, tune
from gkalib.gpu.jobs import Job
from gkalib.gpu.plan import State
from gkalib.smoothing.fused import configs
from tests.bare import BARE, only

ROOT = Path(__file__).resolve().parents[2]
WORK = """
import os, pathlib, subprocess, sys, time
from gkalib import results

def save(name, *, device):
    record = results.Record(
        experiment="trial", arm=name, scale="smoke", recipe={}, seed=0, device=device, wall_seconds=0,
        metrics={"pid": os.getpid()}, commit="unknown", clean=False, date="2026-01-01T00:00:00+00:00",
    )
    results.save(record, rows=[{"step": 1, "loss": 0.5}])

def crash(*, device):
    print("about to crash", flush=True)
    os.abort()

def hang(name, *, device):
    save(name, device=device)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print(f"child {child.pid}", flush=True)
    time.sleep(600)

def meet(name, others, *, device):
    # ends well only if the others run at the same time
    folder = pathlib.Path(os.environ["GKALIB_RESULTS"]).parent
    (folder / name).touch()
    for _ in range(600):
        if all((folder / other).exists() for other in others):
            return save(name, device=device)
        time.sleep(0.1)
    sys.exit(3)

def warm(*, device, **arguments):
    folder = pathlib.Path(os.environ["GKALIB_RESULTS"]).parent
    (folder / "warmed").touch()
    print(f"threads {os.environ['OMP_NUM_THREADS']}", flush=True)

def need_warmth(name, *, device):
    folder = pathlib.Path(os.environ["GKALIB_RESULTS"]).parent
    assert (folder / "warmed").exists()
    save(name, device=device)

def wait(name, flag, *, device):
    save(name, device=device)
    pathlib.Path(flag).with_suffix(".seen").touch()
    while not pathlib.Path(flag).exists():
        time.sleep(0.1)
"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty store of results, and the functions that jobs call on the path."""
    (tmp_path / "work.py").write_text(WORK)
    monkeypatch.setenv("GKALIB_RESULTS", str(tmp_path / "store"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(queue, "START", 3.0)
    return tmp_path / "store"


def job(name: str, function: str = "save", priority: int = 1, seconds: float = 1.0, **arguments) -> Job:
    """A job of this file; one that saves does so under its own name."""
    if function != "crash":
        arguments = {"name": name, **arguments}
    return Job(
        name=name,
        priority=priority,
        seconds=seconds,
        call=f"work:{function}",
        arguments=arguments,
        depends=("results/table.py",),
        devices=("cpu",),
    )


def saved(store: Path) -> set[str]:
    """The arms of the runs that jobs saved."""
    return {record.arm for record in results.load("trial", root=store)}


def test_what_fits_runs_in_order_and_what_is_done_is_skipped(store, capsys):
    known = [job("first"), job("long", seconds=600.0), job("last")]
    assert queue.reproduce(known, 1.0, device="cpu") == [("first", "done"), ("last", "done")]
    printed = capsys.readouterr().out
    assert re.search(r"long +600 s  missing: \d+ s are left, not enough", printed)
    assert saved(store) == {"first", "last"}
    assert queue.reproduce(known, 1.0, device="cpu") == []
    assert re.search(r"first .* done\n", capsys.readouterr().out)


def test_other_code_makes_a_job_stale_and_its_last_time_the_estimate(store):
    queue.reproduce([job("first")], 1.0, device="cpu")
    device = queue.device_name("cpu")

    def state(one: Job) -> State:
        return plan.states([one], device, [store])[0]

    done = state(job("first", seconds=50.0))
    assert done.state == "done" and done.seconds < 50
    other = Job(**{**vars(job("first")), "depends": ("results/store.py",)})
    assert state(other).state == "stale"
    assert state(job("first", function="hang")).state == "stale"
    assert plan.states([job("first")], "another device", [store])[0].state == "missing"
    assert queue.reproduce([other], 1.0, device="cpu") == [("first", "done")]
    assert state(other).state == "done"


def test_a_crash_takes_nothing_with_it(store, capsys):
    ended = dict(queue.reproduce([job("bad", "crash"), job("good")], 1.0, device="cpu"))
    assert ended == {"bad": f"failed with status {-signal.SIGABRT}", "good": "done"}
    assert "about to crash" in capsys.readouterr().out
    assert [state.state for state in plan.states([job("bad", "crash"), job("good")], None, [store])] == [
        "missing",
        "done",
    ]


def test_a_hang_is_stopped_with_what_it_started_and_what_it_saved_is_kept(store, capsys):
    ended = queue.reproduce([job("stuck", "hang", seconds=1.0), job("good")], 1.0, device="cpu")
    assert ended == [("stuck", "stopped at its limit of 6 s"), ("good", "done")]
    (child,) = re.findall(r"child (\d+)", capsys.readouterr().out)
    status = Path(f"/proc/{child}/stat")
    assert not status.exists() or status.read_text().split()[2] in "ZX"
    assert saved(store) == {"stuck", "good"}
    assert plan.states([job("stuck", "hang")], None, [store])[0].state == "missing"


@pytest.fixture
def like_a_card(monkeypatch):
    """Jobs run here as they do where a card is: side by side."""
    monkeypatch.setattr(queue, "AT_ONCE", ("cpu",))
    monkeypatch.setattr(os, "cpu_count", lambda: 4)


def beside(job: Job, **changes) -> Job:
    return Job(**{**vars(job), "alone": False, **changes})


def test_jobs_that_are_not_timed_run_side_by_side_after_what_warms_and_before_the_others(
    store, like_a_card, capsys
):
    both = ["left", "right"]
    known = [
        *(beside(job(name, "meet", others=both)) for name in both),
        Job(**{**vars(job("timed", "need_warmth", priority=2)), "warm": "work:warm"}),
        job("later", priority=3),
    ]
    ended = queue.reproduce(known, 2.0, device="cpu")
    assert sorted(ended[:2]) == [("left", "done"), ("right", "done")]
    assert ended[2:] == [("timed", "done"), ("later", "done")]
    printed = capsys.readouterr().out
    assert "threads 1" in printed and re.search(r"timed: warmed, done after \d+ s", printed)
    assert saved(store) == {"left", "right", "timed", "later"}
    assert queue.reproduce(known, 2.0, device="cpu") == []


def test_what_does_not_fit_is_not_warmed(store, like_a_card, capsys):
    long = Job(**{**vars(job("long", "need_warmth", seconds=600.0)), "warm": "work:warm"})
    assert queue.reproduce([long, job("short")], 1.0, device="cpu") == [("short", "done")]
    assert "warmed" not in capsys.readouterr().out


def test_a_crash_beside_others_takes_nothing_with_it(store, like_a_card):
    known = [beside(job("bad", "crash")), beside(job("good")), job("timed", priority=2)]
    ended = dict(queue.reproduce(known, 1.0, device="cpu"))
    assert ended == {"bad": f"failed with status {-signal.SIGABRT}", "good": "done", "timed": "done"}


def test_what_is_not_timed_and_comes_later_waits_for_what_is(store, like_a_card):
    known = [job("timed"), *(beside(job(name, "meet", others=["a", "b"]), priority=2) for name in "ab")]
    ended = queue.reproduce(known, 1.0, device="cpu")
    assert ended[0] == ("timed", "done") and {name for name, _ in ended} == {"timed", "a", "b"}


def test_first_words_name_jobs(store):
    known = [job("bench-gka-text"), job("bench-gkan"), job("tune")]
    assert queue.reproduce(known, 1.0, device="cpu", names=["bench-gka"]) == [("bench-gka-text", "done")]
    with pytest.raises(ValueError, match=r"reproduce: no job 'ben'\. Known: bench-gka-text"):
        queue.reproduce(known, 1.0, device="cpu", names=["ben"])


def until_seen(flag: Path, command: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    """A process that has come to the job that waits for the flag."""
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    patience = time.monotonic() + 120
    while not flag.with_suffix(".seen").exists():
        assert process.poll() is None and time.monotonic() < patience
        time.sleep(0.1)
    return process


def test_stopped_and_repeated(store, tmp_path):
    out, flag = tmp_path / "out", tmp_path / "flag"
    code = f"""
import sys
from pathlib import Path
from gkalib.gpu import queue
from gkalib.gpu.jobs import Job
known = [
    Job(name=name, priority=1, seconds=30, call=call, arguments=arguments, depends=("results/table.py",),
        devices=("cpu",))
    for name, call, arguments in (
        ("first", "work:save", {{"name": "first"}}),
        ("second", "work:wait", {{"name": "second", "flag": {str(flag)!r}}}),
    )
]
print(queue.reproduce(known, 5, device="cpu", out=Path({str(out)!r})))
"""
    command = [sys.executable, "-c", code]
    whole = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    process = until_seen(flag, command, whole)
    process.send_signal(signal.SIGTERM)
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert "first: done" in printed
    assert sorted(path.name for path in out.iterdir()) == ["log.txt", pack.NAME]
    assert not store.exists()
    flag.touch()
    done = subprocess.run(command, env=whole, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines()[-1] == "[('second', 'done')]"
    assert set(pack.unpack(out / pack.NAME, root=store)) > {"trial/first-smoke-s0-cpu"}
    assert saved(store) == {"first", "second"}
    assert {note.arm for note in results.load("reproduce", root=store)} == {"first", "second"}


def test_a_missing_device_is_named(store, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ValueError, match=r"no CUDA device is here.*--list"):
        queue.reproduce([], 1.0, device="cuda")
    assert "No CUDA device is here" in plan.listing([job("first")], "cuda")


def test_a_bare_checkout_lists_runs_and_unpacks(tmp_path):
    environment = only(tmp_path, *BARE)
    out = tmp_path / "out"

    def run(*words: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "gkalib.gpu.queue", *words]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)

    listed = run("--list")
    assert listed.returncode == 0, listed.stderr
    for name in ("correctness-gka-bfloat16", "bench-gka-vit-ti", "bench-models-ti-training"):
        assert re.search(rf"{name} +\d+ s  missing", listed.stdout), listed.stdout
    done = run("--device", "cpu", "--out", str(out), "correctness-decode")
    assert done.returncode == 0, done.stdout + done.stderr
    for operation in ("decode", "decode-gpa"):
        assert f"{operation}: 15 of 15 right" in done.stdout
    unpacked = run("--unpack", str(out / pack.NAME))
    assert unpacked.returncode == 0 and "4 runs saved" in unpacked.stdout, unpacked.stderr
    for record in results.load("correctness", root=tmp_path / "store"):
        assert (record.commit, record.clean) == ("unknown", False)
        assert record.metrics["wrong"] == 0 and 0 < record.metrics["error_float64"] < 1e-12
    assert re.search(r"correctness-decode .* done", run("--device", "cpu", "--list").stdout)


def test_a_job_with_a_limit_of_its_own_is_stopped_there(store):
    hangs = Job(**{**vars(job("stuck", "hang", seconds=100.0)), "limit": 2.0})
    assert queue.reproduce([hangs], 2.0, device="cpu") == [("stuck", "stopped at its limit of 2 s")]


def test_a_batch_that_is_killed_goes_on_where_it_was(store, tmp_path):
    """Not asked to end but ended, as at the limit of a machine that is lent: what was done is in the pack."""
    out, flag = tmp_path / "out", tmp_path / "flag"
    code = f"""
from pathlib import Path
from gkalib.gpu import queue
from gkalib.gpu.jobs import Job
known = [
    Job(name=name, priority=priority, seconds=30, call=call, arguments=arguments, batch=1,
        depends=("results/table.py",), devices=("cpu",))
    for priority, (name, call, arguments) in enumerate((
        ("first", "work:save", {{"name": "first"}}),
        ("second", "work:wait", {{"name": "second", "flag": {str(flag)!r}}}),
        ("third", "work:save", {{"name": "third"}}),
    ))
]
queue.jobs = lambda: known
queue.command(batch=1, device="cpu", out=Path({str(out)!r}))
"""
    command = [sys.executable, "-c", code]
    whole = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    process = until_seen(flag, command, whole)
    process.kill()
    process.communicate(timeout=60)
    flag.touch()  # what the killed one left behind ends now
    done = subprocess.run(command, env=whole, capture_output=True, text=True, timeout=120, check=True)
    started = re.findall(r"(\w+) +\d+ s +\w+: starts", done.stdout)
    assert started == ["second", "third"], done.stdout
    pack.unpack(out / pack.NAME, root=store)
    assert saved(store) == {"first", "second", "third"}


TUNED = """
import json, os, pathlib
from gkalib.smoothing.fused.configs import blocks
from gkalib.gpu import tune
from gkalib.smoothing.fused import configs

def choose(*, device):
    # what a card would have found: the second candidate is twice as fast
    import torch
    torch.cuda.is_available, torch.cuda.get_device_name = lambda: True, lambda: "A card"
    def clock(calls):
        chosen = configs.config("gka_forward", width=64, dtype=torch.bfloat16)
        return 1.0 if [chosen.rows, chosen.columns, chosen.warps, chosen.stages] == second else 2.0
    second = configs.table()["gka_forward"]["64"]["16"]["candidates"][1]
    tune._clock = clock
    configs.triton.knobs.runtime.interpret = False  # a card's block sizes are not made small
    times = list(tune.time_candidates(clock, configs.table(), ["gka_forward"], [64], [16], device="cpu"))
    from gkalib.bench.timing import keep
    keep("tuning", "gka-forward", {}, tune.rows(times), device="cpu", recipe={}, scale="full", wall_seconds=1)

def use(*, device):
    where = pathlib.Path(os.environ["GKALIB_RESULTS"]).parent
    entry = configs.table()["gka_forward"]["64"]["16"]
    (where / "used.json").write_text(json.dumps([entry["shipped"], entry["candidates"][1], blocks()]))
"""


def test_block_sizes_are_used_by_the_jobs_behind_and_adopting_them_later_makes_nothing_stale(
    store, tmp_path, monkeypatch
):
    (tmp_path / "tuned.py").write_text(TUNED)
    whole = {"seconds": 20.0, "depends": ("results/table.py",), "devices": ("cpu",)}
    known = [
        job("before"),
        Job(name="choosing", priority=2, call="tuned:choose", **whole),
        Job(name="using", priority=3, call="tuned:use", **whole),
    ]
    assert queue.reproduce(known, 5.0, device="cpu") == [
        ("before", "done"), ("choosing", "done"), ("using", "done"),
    ]  # fmt: skip
    shipped, second, used = json.loads((tmp_path / "used.json").read_text())
    before = configs.blocks()
    assert shipped == second and used != before

    def found() -> list[str]:
        return [state.state for state in plan.states(known, queue.device_name("cpu"), [store])]

    assert found() == ["done"] * 3
    (note,) = results.load("reproduce", arm="using", root=store)
    assert (note.recipe["shipped"], note.recipe["used"]) == (before, used)
    monkeypatch.setattr(configs, "TABLE", tmp_path / "configs.json")
    try:
        adopted = tune.by_record([store])
        tune.write(adopted, tmp_path / "configs.json")
        assert configs.blocks() == used and found() == ["done"] * 3
        adopted["gka_forward"]["64"]["16"]["shipped"] = [16, 16, 4, 2]
        tune.write(adopted, tmp_path / "configs.json")
        assert found() == ["stale"] * 3, "a table that no run led to"
    finally:
        monkeypatch.undo()
        configs.forget()
