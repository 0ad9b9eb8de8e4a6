"""Launched runs as real processes: every arm and seed, found again, stopped, killed, gone on with."""

import os
import platform
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path

import pytest

from gkalib import results
from gkalib.cli import main
from gkalib.data import registry
from gkalib.training import Launch, launch, record
from gkalib.training.background import picture, progress, train_and_kill
from gkalib.training.checkpoint import newest, step_of
from gkalib.training.distributed import LOCK
from gkalib.training.log import CURVE, read_curve
from gkalib.training.loop import NotFinite

ROOT = Path(__file__).resolve().parents[2]
STEPS = 200
ARMS, SEEDS = ("rope", "bank"), (0, 1)


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Runs and results of this test alone."""
    monkeypatch.setenv("GKALIB_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("GKALIB_RUNS", str(tmp_path / "runs"))
    return tmp_path


def smoke(arms="rope", *, start: bool = False, steps: int = STEPS, seeds=1, **options) -> Launch:
    """A decoder so small that 200 steps take seconds."""
    settings = ["--steps", str(steps), "--eval-every", str(steps), *options.pop("settings", [])]
    return launch("gpa-dickens", arms, seeds=seeds, scale="smoke", gpus=0, settings=settings, start=start)


def until(reached, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end, "nothing came of it"
        time.sleep(0.05)


def number_of(run: Launch) -> int:
    """The number of its process."""
    return int((run.folder / LOCK).read_text().split()[1])


def test_what_is_missing_is_said_with_what_to_type():
    text = str(launch("gka-imagenet-tiny", gpus=8))
    assert "state        not started, 0 of 3 runs ended" in text
    if not registry.ready("imagenet"):
        assert "missing      data: imagenet is not here. Type: python -m gkalib data get imagenet" in text
        assert "data         imagenet: not here. Get it with: python -m gkalib data get imagenet" in text
    assert "missing      cards: none here, not 8. Type one of the plan's lines" in text
    assert "cards: none here, not one at least." in str(launch("gka-imagenet-tiny", gpus=0))
    assert "cards" not in str(launch("gka-imagenet-tiny", scale="reduced", gpus=0))


@pytest.mark.slow
def test_every_arm_and_seed_is_trained_by_one_call_though_a_worker_is_killed(places, monkeypatch, capsys):
    """The kernel is a process that launches and ends at once; what it started goes on."""
    monkeypatch.setattr(sys.modules["gkalib.training.launch"], "SAVE_EVERY", "0")
    settings = ["--steps", "80", "--eval-every", "80"]
    call = (
        "import sys; from gkalib.training import launch; "
        "sys.modules['gkalib.training.launch'].SAVE_EVERY = '0'; "
        f"launch('gpa-dickens', {ARMS}, seeds=2, scale='smoke', gpus=0, settings={settings}, start=True)"
    )
    subprocess.run([sys.executable, "-c", call], check=True, cwd=ROOT)
    found = smoke(ARMS, seeds=2, steps=80)
    assert found.state == "running"
    until(lambda: found.done[1] > 20)
    os.kill(number_of(found), signal.SIGKILL)
    until(lambda: not found.running)
    assert found.state == "stopped" and found.done[0] == 80 and found.done[1] < 80 and not found.done[2]
    first = (found.folders[0] / "ended.json").stat().st_mtime_ns
    begun = step_of(newest(found.folders[1]))
    assert begun > 0

    def curve():
        """What each row says of training; the seconds tell that a step was not done again."""
        rows = read_curve(found.folders[1] / CURVE)
        return [(row["step"], row["loss"], row["seconds"]) for row in rows if row["loss"]]

    kept = [row for row in curve() if int(row[0]) <= begun]
    again = smoke(ARMS, seeds=2, steps=80, start=True)
    smoke(ARMS, seeds=2, steps=80, start=True)  # which starts no second one
    again.watch(every=0.1)
    assert again.state == "finished" and again.done == [80] * 4
    assert (found.folders[0] / "ended.json").stat().st_mtime_ns == first  # it was skipped
    rows = curve()
    steps = [int(step) for step, *_ in rows]
    assert rows[: len(kept)] == kept and steps == sorted(set(steps)) and steps[-1] == 80
    records = results.load("gpa-dickens", scale="smoke")
    assert sorted((record.arm, record.seed) for record in records) == sorted(
        (arm, seed) for arm in ARMS for seed in SEEDS
    )
    assert all(record.recipe["steps"] == 80 for record in records)
    shown = capsys.readouterr().out
    assert "rope seed 0" in shown and "ended: val_loss" in shown and "0 steps left" in shown
    assert shlex.join(again.command) in again.printed
    assert f"recorded     bank seed 1: {records[0].quality.split(',')[0].split()[0]}" in str(again)


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on(places):
    run = smoke(start=True, steps=400)
    assert (run.state, smoke(steps=400).state) == ("running", "running")  # at once, while it still imports
    until(lambda: run.done[0] > 20)
    smoke(steps=400).stop()  # as another kernel would
    until(lambda: not run.running)
    assert run.state == "stopped" and run.done[0] < 400
    assert "goes on from there" in run.printed
    with pytest.raises(ValueError, match=r"(?s)launch: the runs have stopped\..*goes on from there$"):
        run.watch()
    run.start()
    run.watch(every=0.1)
    assert run.state == "finished" and len(results.load("gpa-dickens", scale="smoke")) == 1


@pytest.mark.slow
def test_the_line_for_eight_cards_runs_in_two_processes_and_keeps_its_records(places, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    found = launch("gpa-dickens", ["rope", "bank"], scale="smoke", gpus=8)
    words = shlex.split(found.lines["8 GPUs"])
    assert words[:4] == ["torchrun", "--standalone", "--nproc-per-node", "8"]
    words = ["2" if word == "8" else word for word in words[1:] if word != "--compile"]
    command = [sys.executable, "-m", "torch.distributed.run", *words, "--device", "cpu", "--quiet"]
    for _ in range(2):  # the second time both have ended
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-2000:]
        assert [line.split()[1][:4] for line in done.stdout.splitlines()] == ["rope", "bank"]
    assert {record.arm for record in results.load("gpa-dickens", scale="smoke")} == {"rope", "bank"}
    assert found.state == "finished"


@pytest.mark.slow
def test_two_machines_compute_what_one_process_does(places, monkeypatch):
    """Each line is typed on its machine, as SLURM does; here both are this one, with a process each."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with socket.socket() as free:
        free.bind(("localhost", 0))
        first = f"localhost:{free.getsockname()[1]}"
    found = launch("gpa-dickens", "rope", scale="smoke", gpus=8, settings=["--steps", "6", "--warmup", "2"])
    line = found.lines["2 machines"].replace("--compile ", "").replace("FIRST_MACHINE:29500", first)
    torchrun, words = line.replace("--nproc-per-node 8", "--nproc-per-node 1").split(" -m gkalib ")
    words = ["-m", "gkalib", *shlex.split(words), "--device", "cpu", "--quiet"]
    assert torchrun.startswith("torchrun --nnodes 2") and f"--rdzv-endpoint {first}" in torchrun
    command = [sys.executable, "-m", "torch.distributed.run", *shlex.split(torchrun)[1:], *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    machines = [subprocess.Popen(command, cwd=ROOT, **pipes) for _ in range(2)]
    said = [machine.communicate(timeout=300) for machine in machines]
    assert [machine.returncode for machine in machines] == [0, 0], said[0][1][-2000:] + said[1][1][-2000:]
    assert sorted(out.count("gpa-dickens rope") for out, _ in said) == [0, 1]  # the first process speaks
    (two,) = results.load("gpa-dickens", scale="smoke")
    monkeypatch.setenv("GKALIB_RUNS", str(places / "alone"))
    assert main([*words[2:], "--fresh"]) == 0
    (one,) = results.load("gpa-dickens", scale="smoke")
    assert one.recipe == two.recipe and one.date >= two.date
    assert one.metrics["val_loss"] == pytest.approx(two.metrics["val_loss"], rel=1e-5)


def test_what_has_ended_is_read_and_what_is_no_number_is_left(places, monkeypatch, capsys):
    words = shlex.split("train gpa-dickens --arms rope bank --smoke --steps 4 --quiet --device cpu")
    trained = []

    def fit(workload, options):
        trained.append(workload.config.arm)
        if workload.config.arm == "rope":
            raise NotFinite("train: the loss is no number")
        return real(workload, options)

    real = record.fit
    monkeypatch.setattr(record, "fit", fit)
    for given, newly in (([], ["rope", "bank"]), (["--keep"], ["rope"]), (["--fresh"], ["rope", "bank"])):
        assert main([*words, *given]) == 2
        printed = capsys.readouterr()
        assert printed.out.startswith("gpa-dickens bank-smoke-s0") and printed.out.count("\n") == 1
        assert printed.err == "train: rope seed 0: the loss is no number\n"
        assert trained == newly
        trained.clear()
    assert [record.arm for record in results.load("gpa-dickens", scale="smoke")] == ["bank"]
    assert main([*words, "--lr", "0.1", "--arms", "bank", "--out", str(places / "other")]) == 0
    assert trained == ["bank"]  # other settings are another run


def test_a_process_that_has_the_number_of_one_that_is_gone_is_left_alone(places):
    """Or the number of one on another host that shares the folder: a launch's own process holds the lock."""
    run, other = smoke(), subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    run.folder.mkdir(parents=True)
    with other:
        for place in (platform.node(), "elsewhere"):
            (run.folder / LOCK).write_text(f"process {other.pid} on {place}")
            assert not run.running
            if place == "elsewhere":
                with pytest.raises(ValueError, match=r"started by process \d+ on elsewhere; stop it there"):
                    run.stop()
            else:
                run.stop()
            time.sleep(0.2)
            assert other.poll() is None
        other.communicate(b"\n")


def test_without_data_nothing_is_started(places, monkeypatch):
    monkeypatch.setattr(registry, "ready", lambda name: False)
    run = launch("gpa-dickens", scale="reduced", gpus=0)
    with pytest.raises(ValueError, match="Type: python -m gkalib data get dickens"):
        run.start()
    assert run.state == "not started" and not run.home.exists()


@pytest.mark.parametrize(
    ("name", "kind"), [("gpa-dickens", "text file"), ("gka-imagenet-tiny", "folder of images")]
)
def test_data_of_ones_own_that_is_not_there_is_named(places, name, kind):
    run = launch(name, scale="smoke", gpus=0, settings=["--data", str(places / "mine")])
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
        run = launch(name, scale="smoke", gpus=0, settings=["--data", str(data)])
        assert len(run.missing) == missing


def test_a_disk_that_is_too_small_is_named(places, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage(1, 1, 1000))
    (line,) = smoke().missing
    assert line.startswith("disk: checkpoints take ") and "Let GKALIB_RUNS name another place" in line


def test_how_far_runs_are_is_said_in_text_and_drawn_beside_the_papers_number(places):
    run = smoke(ARMS)
    run.folders[0].mkdir(parents=True)
    rows = [
        f"{step},{4 - step / 100},{640 * step},{'3.5' if step == 50 else ''}" for step in range(10, 60, 10)
    ]
    (run.folders[0] / CURVE).write_text("\n".join(["step,loss,items_per_second,val_loss", *rows, ""]))
    runs, paper = list(zip(run.runs, run.folders, strict=True)), {("rope", "val_loss"): 3.25}
    first, second, last = progress(runs, paper).splitlines()
    assert first.startswith("rope seed 0 ") and first.endswith("paper: val_loss 3.25")
    assert "50 of 200 steps, 125 steps/s, 0:00:01 left, loss 3.5" in first
    assert second.split()[-1] == "waits" and last == "350 steps left, 0:00:03 at this speed"
    without, with_number = picture(runs, {}), picture(runs, paper)
    assert without[:4] == b"\x89PNG" and without != with_number


@pytest.mark.slow
def test_a_killed_run_leaves_a_whole_checkpoint_of_that_step_or_later(places):
    words = ["gpa-dickens", "--arm", "bank-rope", "--smoke", "--steps", "200"]
    assert train_and_kill(words, places / "killed", step=3) == -signal.SIGKILL
    assert 3 <= step_of(newest(places / "killed")) < 200


@pytest.mark.slow
def test_a_run_that_ends_too_early_is_no_killed_one(places):
    with pytest.raises(ValueError, match="train: no-such-recipe ended with 2 before step 3"):
        train_and_kill(["no-such-recipe"], places / "killed", step=3)
