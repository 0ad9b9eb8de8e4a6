"""Nothing of a run is lost: kills, signals, full disks, numbers that are none, two runs in one folder."""

import random
import re
import signal
from pathlib import Path

import pytest
import torch

from gkalib import results
from gkalib.training import LaunchConfig, log
from gkalib.training.checkpoint import OPTIMIZER, checkpoints, step_of
from gkalib.training.log import CURVE
from tests.training import lives, toy
from tests.training.runs import launch


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was never interrupted."""
    folder = tmp_path_factory.mktemp("unbroken") / "run"
    assert lives.live(toy.toy(), folder)[0] == 0
    return folder


def same(folder: Path, other: Path) -> None:
    """Weights, average, optimizer, curve and samples agree to the bit."""
    assert lives.state(folder) == lives.state(other)  # with the SHA-256 of every file
    assert lives.rows(folder) == lives.rows(other)
    assert (folder / "samples.txt").read_text() == (other / "samples.txt").read_text()


def scale(folder: Path) -> float | None:
    """The loss scale of the newest checkpoint."""
    scaler = torch.load(checkpoints(folder)[-1] / OPTIMIZER)["scaler"]
    return scaler and scaler["scale"]


def steps(folder: Path) -> list[int]:
    """Which checkpoints there are."""
    return [step_of(path) for path in checkpoints(folder)]


@pytest.mark.slow
def test_ten_kills_leave_no_trace(unbroken: Path, tmp_path: Path):
    """Killed at ten random moments, a run ends as if it had not been."""
    folder, chance = tmp_path / "run", random.Random(0)
    for step in sorted(chance.sample(range(1, 20), 10)):
        process = lives.begin(toy.toy(), folder, event=toy.Slow(0.01), save_every=0.0)
        lives.kill(process, folder, step=step, seconds=chance.uniform(0, 0.03))
        assert process.exitcode == -signal.SIGKILL
    assert lives.live(toy.toy(), folder)[0] == 0
    same(folder, unbroken)


@pytest.mark.parametrize(
    ("owner", "name", "left"),
    [
        ("checkpoint", "write_state", [9, 10]),  # the tensors are written, the state is not
        ("Path", "rename", [9, 10]),  # all is written, under the temporary name
        ("shutil", "rmtree", [10, 11]),  # all is done but for the files of the oldest
    ],
)
def test_a_kill_while_a_checkpoint_is_written(
    owner: str, name: str, left: list[int], unbroken: Path, tmp_path: Path
):
    folder = tmp_path / "run"
    code, _ = lives.live(toy.toy(), folder, event=toy.Dies(10, owner, name), save_every=0.0)
    assert code == -signal.SIGKILL
    assert steps(folder) == left
    assert list(folder.glob(".step-*"))
    assert lives.live(toy.toy(), folder)[0] == 0
    assert not list(folder.glob(".step-*"))
    same(folder, unbroken)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_saves_and_ends_well(name: str, unbroken: Path, tmp_path: Path):
    folder = tmp_path / "run"
    code, said = lives.live(toy.toy(), folder, event=toy.At(8, name))
    assert code == 0
    assert said == (
        f"train: stopped by {name} after step 9 of 20; saved to {folder}/step-00000009. The same command "
        "goes on from there"
    )
    assert steps(folder) == [9]
    assert lives.live(toy.toy(), folder)[0] == 0
    same(folder, unbroken)


def test_a_second_interrupt_ends_at_once(tmp_path: Path):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it

    def event(step: int) -> float:
        if step == 3:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        return 1.0

    try:
        with pytest.raises(KeyboardInterrupt):
            toy.fit(toy.toy(), launch(tmp_path), event=event)
    finally:
        signal.signal(signal.SIGINT, before)
    assert steps(tmp_path) == []


def test_signals_are_given_back(tmp_path: Path):
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    toy.fit(toy.toy(steps=2), launch(tmp_path))
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_a_full_disk(unbroken: Path, tmp_path: Path):
    """The last checkpoint stays, nothing half is left, and with room again the run ends as ever."""
    folder = tmp_path / "run"
    code, said = lives.live(toy.toy(), folder, event=toy.At(8, "full"), save_every=0.0)
    assert code == 1
    assert re.fullmatch(
        rf"train: the checkpoint of step 9 could not be written to {folder}: File too large \(os error 27\) "
        r"\([\d.]+ MiB are free\)\. That of step 8 is whole; make room, and give "
        r"the same command again",
        said,
    )
    assert steps(folder) == [7, 8]
    assert not list(folder.glob(".step-*"))
    assert lives.live(toy.toy(), folder)[0] == 0
    same(folder, unbroken)


def test_a_loss_that_is_no_number(tmp_path: Path):
    """Nothing is saved after it, though it is looked at only now and then."""
    with pytest.raises(ValueError, match="not a finite number at step 9; stopped after step 10"):
        toy.fit(toy.toy(), launch(tmp_path, log_every=10), event=toy.At(8, "nan"))
    assert steps(tmp_path) == []
    with pytest.raises(ValueError, match=r"at step 9; stopped after step 9.*checkpoint, of step 8, is whole"):
        toy.fit(toy.toy(), launch(tmp_path, save_every=0.0, log_every=10), event=toy.At(8, "nan"))
    assert steps(tmp_path) == [7, 8]


def test_two_runs_in_one_folder(tmp_path: Path):
    folder = tmp_path / "run"
    process = lives.begin(toy.toy(), folder, event=toy.Slow(0.05))
    while not (folder / CURVE).exists():
        assert process.is_alive()
    with pytest.raises(ValueError, match=f"{folder} is being written to by process {process.pid} on "):
        toy.fit(toy.toy(), launch(folder))
    process.kill()
    process.join()
    toy.fit(toy.toy(), launch(folder))  # its lock went with it


def test_a_finished_run_is_not_trained_again(tmp_path: Path):
    record = toy.fit(toy.toy(steps=3), launch(tmp_path))
    files = {path: path.read_bytes() for path in tmp_path.rglob("*.*") if path.is_file() and path.suffix}

    def event(step: int) -> float:
        raise AssertionError(f"step {step} again")

    again = toy.fit(toy.toy(steps=3), launch(tmp_path), event=event)
    assert {path: path.read_bytes() for path in files} == files
    assert again.metrics["val_loss"] == record.metrics["val_loss"]


def test_beginning_anew(unbroken: Path, tmp_path: Path):
    folder = tmp_path / "run"
    assert lives.live(toy.toy(seed=1), folder)[0] == 0
    code, said = lives.live(toy.toy(), folder)
    assert (code, "seed was 1 there and is 0 here" in said) == (1, True)
    assert lives.live(toy.toy(), folder, fresh=True)[0] == 0
    same(folder, unbroken)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_resumes_to_the_bit(dtype: str, tmp_path: Path):
    """float16 has a loss scale, whose growth is part of the checkpoint."""
    run = toy.toy(dtype=dtype, steps=6, eval_every=2)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    record = toy.fit(run, launch(whole))
    with pytest.raises(SystemExit, match="0"):
        toy.fit(run, launch(broken), event=toy.At(2, "SIGTERM"))
    assert toy.fit(run, launch(broken)).recipe == record.recipe
    same(broken, whole)
    assert bool(scale(whole)) == (dtype == "float16")


def test_a_step_too_large_for_float16_is_left_out(tmp_path: Path):
    """The scale halves, the weights stay, the run goes on."""

    def event(step: int) -> float:
        return 1e6 if step == 1 else 1.0  # times the first scale of 65536, more than float16 can hold

    run = toy.toy(dtype="float16", steps=3, clip=None)
    with pytest.raises(SystemExit):
        toy.fit(run, launch(tmp_path, save_every=0.0), event=toy.At(0, "SIGTERM"))
    before = scale(tmp_path)
    toy.fit(run, launch(tmp_path, save_every=0.0), event=event)
    assert scale(tmp_path) == before / 2


def test_every_part_of_every_step_has_chances_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """So no two have the same mask of a dropout or a drop-path."""
    drawn, nats = [], toy.Toy.nats
    monkeypatch.setattr(toy.Toy, "nats", lambda *args: drawn.append(float(torch.rand(()))) or nats(*args))
    toy.fit(toy.toy(steps=3), launch(tmp_path))
    assert len(set(drawn)) == len(drawn) == 6  # two parts a step


def test_two_optimizers_resume_to_the_bit(tmp_path: Path):
    """Muon keeps a momentum a matrix, AdamW two moments and a count."""
    run = toy.toy(optimizer="muon", steps=6, eval_every=2)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    toy.fit(run, launch(whole))
    with pytest.raises(SystemExit, match="0"):
        toy.fit(run, launch(broken), event=toy.At(2, "SIGTERM"))
    toy.fit(run, launch(broken))
    same(broken, whole)


def test_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GKALIB_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("GKALIB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(log, "ROWS", 10)
    record = toy.fit(toy.toy(steps=60), LaunchConfig(device="cpu", log_every=1, keep=True, quiet=True))
    assert (tmp_path / "runs/tiny/softmax-full-s0/metrics.csv").exists()
    assert (record.experiment, record.arm, record.scale, record.seed) == ("tiny", "softmax", "full", 0)
    assert record.recipe["model"]["dim"] == 16
    assert not {"recipe", "arm", "scale", "seed"} & record.recipe.keys()
    assert re.fullmatch(r"\d+ cores \w+", record.device)
    assert record.metrics["tokens_per_second"] > 0
    (stored,) = results.load("tiny")
    assert stored == record
    rows = results.rows(record)
    assert len(rows) < 10 + 60 // 7 + 2
    assert [row["step"] for row in rows] == sorted({row["step"] for row in rows}, key=int)
    measured = [int(row["step"]) for row in rows if row["val_loss"]]
    assert measured == [*range(7, 60, 7), 60]
