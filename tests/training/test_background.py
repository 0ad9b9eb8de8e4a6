"""A run launched from a notebook, as real processes: found again, stopped, killed, gone on with, refused."""

import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path

import pytest
from filelock import FileLock

from gkalib import results
from gkalib.data import registry
from gkalib.training import Launch, background, launch
from gkalib.training.background import train_and_kill
from gkalib.training.checkpoint import newest, step_of
from gkalib.training.distributed import HOLDER, LOCK, write_holder
from gkalib.training.log import CURVE, read_curve

ROOT = Path(__file__).resolve().parents[2]
STEPS = 400


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Runs and results of this test alone."""
    monkeypatch.setenv("GKALIB_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("GKALIB_RUNS", str(tmp_path / "runs"))
    return tmp_path


def smoke(*, start: bool = False, steps: int = STEPS, **options) -> Launch:
    """A decoder so small that 400 steps take seconds."""
    settings = ["--steps", str(steps), "--eval-every", str(steps)]
    return launch("gpa-dickens", scale="smoke", device="cpu", settings=settings, start=start, **options)


def until(reached, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end, "nothing came of it"
        time.sleep(0.05)


def test_a_plan_says_what_it_costs_and_what_is_missing():
    text = str(launch("gka-imagenet-tiny", device="cuda"))
    assert "hours of one H100" in text and "torchrun --standalone --nproc-per-node 8" in text
    assert "sbatch" in text and "state        not started, 0 of" in text
    assert "recorded     no run\n" in text
    if not registry.ready("imagenet"):
        assert "missing      data: imagenet is not here. Type: python -m gkalib data get imagenet" in text


@pytest.mark.slow
def test_a_run_outlives_its_kernel_and_is_found_again(places, capsys):
    """The kernel is a process that launches and ends at once; what it started goes on to its record."""
    call = "from gkalib.training import launch; launch('gpa-dickens', scale='smoke', device='cpu', "
    settings = ["--steps", str(STEPS), "--eval-every", str(STEPS)]
    subprocess.run([sys.executable, "-c", f"{call}settings={settings}, start=True)"], check=True, cwd=ROOT)
    until(lambda: smoke().step > 0)
    again = smoke(start=True)  # which starts no second one
    again.watch()
    assert (again.state, again.step, again._process) == ("finished", STEPS, None)
    (record,) = results.load("gpa-dickens", scale="smoke")
    assert record.recipe["steps"] == STEPS and record.metrics["val_loss"] > 0
    assert f"recorded     seed 0: val_loss {record.metrics['val_loss']:.4g}" in str(again)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_run_that_was_stopped_goes_on(places, how):
    run = smoke(start=True)
    until(lambda: run.step > 20)
    assert run.state == "running"
    if how == "stop":
        run.stop()
    else:
        os.kill(run._process.pid, signal.SIGKILL)
    until(lambda: not run.running)
    assert run.state == "stopped" and run.step < STEPS
    with pytest.raises(ValueError, match=r"launch: the run has stopped\."):
        run.watch()
    again = smoke(start=True)
    again.watch()
    assert again.state == "finished" and len(results.load("gpa-dickens", scale="smoke")) == 1
    printed = (again.folder / "launch.log").read_text()
    assert ("goes on from there" in printed) == (how == "stop")


@pytest.mark.slow
def test_a_run_that_still_imports_is_running_to_another_kernel_too(places):
    """Asked at once, before the process has locked its folder; and it can be stopped."""
    started, other = smoke(start=True), smoke()
    assert not (started.folder / LOCK).exists()
    assert (other.state, other.running) == ("running", True)
    other.start()  # which starts no second one
    assert other._process is None
    other.stop()
    until(lambda: not other.running)
    started._process.wait()
    assert other.state == "stopped"


@pytest.mark.parametrize(
    "holder",
    [
        "",
        "process",
        "process {pid} on elsewhere\n{start}",
        "process {pid} on {host}\n1",
        "process {pid} on {host}",
    ],
)
def test_a_process_that_is_not_the_runs_for_certain_is_left_alone(places, holder):
    """It may be of another host that shares the folder, or have got the number of one that is gone."""
    run, other = smoke(), subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    run.folder.mkdir(parents=True)
    write_holder(run.folder, other.pid)
    start = (run.folder / HOLDER).read_text().split("\n")[1]
    with other, FileLock(run.folder / LOCK):
        (run.folder / HOLDER).write_text(holder.format(pid=other.pid, host=platform.node(), start=start))
        with pytest.raises(ValueError, match="no process here is that one for certain: stop it where it was"):
            run.stop()
        assert other.poll() is None
        write_holder(run.folder, other.pid)
        run.stop()
        assert other.wait(60) == -signal.SIGTERM


def test_a_run_that_ended_before_a_clock_was_set_back_has_ended(places):
    run = smoke(steps=4)
    run.folder.mkdir(parents=True)
    (run.folder / LOCK).touch()
    (run.folder / CURVE).write_text("step,loss\n4,0.5\n")
    assert run.running  # its record is awaited
    for days in (-1, 1):
        os.utime(run.folder / CURVE, (time.time() + 86_400 * days,) * 2)
        assert not run.running


@pytest.mark.slow
def test_a_small_run_that_is_killed_goes_on_from_its_last_checkpoint(places, monkeypatch):
    monkeypatch.setattr(background, "SAVE_EVERY", 0)
    run = smoke(start=True, steps=80)
    until(lambda: run.step > 20)
    os.kill(run._process.pid, signal.SIGKILL)
    until(lambda: not run.running)
    begun = step_of(newest(run.folder))
    assert 0 < begun < 80

    def curve():
        """What each row says of training; the seconds tell that a step was not done again."""
        rows = read_curve(run.folder / CURVE)
        return [(row["step"], row["loss"], row["seconds"]) for row in rows if row["loss"]]

    kept = [row for row in curve() if int(row[0]) <= begun]
    again = smoke(start=True, steps=80)
    again.watch()
    assert again.state == "finished"
    rows = curve()
    steps = [int(step) for step, *_ in rows]
    assert rows[: len(kept)] == kept and steps == sorted(set(steps)) and steps[-1] == 80
    (record,) = results.load("gpa-dickens", scale="smoke")
    assert record.recipe["steps"] == 80


def test_only_a_run_of_full_size_saves_seldom(places):
    small, full = smoke(), launch("gpa-dickens", device="cuda")
    assert "--save-every" in small.command and "--save-every" not in full.command


def test_without_data_nothing_is_started(places, monkeypatch):
    monkeypatch.setattr(registry, "ready", lambda name: False)
    run = launch("gpa-dickens", scale="reduced", device="cpu")
    with pytest.raises(ValueError, match="Type: python -m gkalib data get dickens"):
        run.start()
    assert run.state == "not started" and not run.folder.exists()


@pytest.mark.parametrize(
    ("name", "kind"), [("gpa-dickens", "text file"), ("gka-imagenet-tiny", "folder of images")]
)
def test_data_of_ones_own_that_is_not_there_is_named(places, name, kind):
    run = launch(name, scale="smoke", device="cpu", settings=["--data", str(places / "mine")])
    assert run.missing == [f"data: there is no data set and no {kind} called {str(places / 'mine')!r}"]


def test_data_of_ones_own_is_taken(places, monkeypatch):
    """A run of images wants a folder, one of text a file, and neither what only the other kind reads."""
    text, images = places / "novel.txt", places / "photos"
    text.write_text("It was the best of times.\n" * 9, encoding="utf-8")
    images.mkdir()
    (places / "grass").mkdir()  # as a photograph of the registry is called
    monkeypatch.chdir(places)
    for name, data, missing in (
        ("gpa-dickens", text, 0),
        ("gka-imagenet-tiny", images, 0),
        ("gpa-dickens", images, 1),
        ("gka-imagenet-tiny", text, 1),
        ("gka-imagenet-tiny", "grass", 0),
        ("gka-imagenet-tiny", "coffee", 1),
        ("gka-imagenet-tiny", "made-up-16x4", 1),
        ("gpa-dickens", "digits", 1),
        ("gpa-dickens", "made-up", 0),
    ):
        run = launch(name, scale="smoke", device="cpu", settings=["--data", str(data)])
        assert len(run.missing) == missing


def test_a_disk_that_is_too_small_is_named(places, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage(1, 1, 1000))
    (line,) = smoke().missing
    assert line.startswith("disk: checkpoints take ") and "Choose another folder with out=" in line


def test_what_is_no_run_is_refused():
    with pytest.raises(ValueError, match="train: scale must be smoke, reduced or full, not 'tiny'"):
        launch("gpa-dickens", scale="tiny")
    with pytest.raises(ValueError, match="'bnak'"):
        launch("gpa-dickens", "bnak")


@pytest.mark.slow
def test_a_killed_run_leaves_a_whole_checkpoint_of_that_step_or_later(places):
    words = ["gpa-dickens", "--arm", "bank-rope", "--smoke", "--steps", "200"]
    assert train_and_kill(words, places / "killed", step=3) == -signal.SIGKILL
    assert 3 <= step_of(newest(places / "killed")) < 200


@pytest.mark.slow
def test_a_run_that_ends_too_early_is_no_killed_one(places):
    with pytest.raises(ValueError, match="train: no-such-recipe ended with 2 before step 3"):
        train_and_kill(["no-such-recipe"], places / "killed", step=3)
