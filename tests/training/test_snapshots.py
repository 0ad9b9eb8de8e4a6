"""Snapshots are the run's weights, whole or not there, and a kill or a resumed run leaves the same ones."""

import re
import shutil
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from gkalib.training import LaunchConfig, checkpoint, snapshots
from gkalib.training.checkpoint import checkpoints, step_of
from tests.training import lives, runs, toy

EVERY = 3
STEPS = [*range(0, 20, EVERY), 20]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was never interrupted, with a snapshot every three steps."""
    folder = tmp_path_factory.mktemp("unbroken") / "run"
    assert lives.live(toy.toy(), folder, snapshots=EVERY)[0] == 0
    return folder


def launch(folder: Path, **changes: object) -> LaunchConfig:
    """With a snapshot every three steps."""
    return runs.launch(folder, **{"snapshots": EVERY} | changes)


def files(folder: Path) -> dict[str, bytes]:
    """Everything in the folder of snapshots."""
    return {path.name: path.read_bytes() for path in (folder / checkpoint.SNAPSHOTS).iterdir()}


def test_snapshots_are_the_weights_of_their_steps(unbroken: Path, tmp_path: Path):
    """The first those of the start, the last those of the last checkpoint, and none is ever rotated away."""
    actual = snapshots.read_snapshots(unbroken)
    assert [entry.step for entry in actual] == STEPS
    assert [step_of(path) for path in checkpoints(unbroken)] == [20]
    last = load_file(unbroken / "step-00000020" / checkpoint.MODEL)
    assert actual[-1].weights.keys() == last.keys()
    assert all(torch.equal(actual[-1].weights[name], entry) for name, entry in last.items())
    with pytest.raises(SystemExit):
        toy.fit(toy.toy(), launch(tmp_path, snapshots=0), event=toy.At(8, "SIGTERM"))
    ninth = load_file(tmp_path / "step-00000009" / checkpoint.MODEL)
    assert all(torch.equal(actual[3].weights[name], entry) for name, entry in ninth.items())
    assert not torch.equal(actual[0].weights["head.weight"], actual[1].weights["head.weight"])


def test_a_run_without_them_keeps_none(tmp_path: Path):
    toy.fit(toy.toy(steps=2), launch(tmp_path, snapshots=0))
    assert snapshots.read_snapshots(tmp_path) == [] and not (tmp_path / checkpoint.SNAPSHOTS).exists()


def test_they_change_nothing_of_the_run(unbroken: Path, tmp_path: Path):
    folder = tmp_path / "run"
    assert lives.live(toy.toy(), folder)[0] == 0
    assert lives.state(folder) == lives.state(unbroken) and lives.rows(folder) == lives.rows(unbroken)


@pytest.mark.parametrize(("owner", "name"), [("snapshots", "sync"), ("Path", "replace")])
def test_a_kill_while_one_is_written(owner: str, name: str, unbroken: Path, tmp_path: Path):
    """The snapshot of step 9 is not there, what was written of it is, and the next life clears it away."""
    folder = tmp_path / "run"
    code, _ = lives.live(toy.toy(), folder, event=toy.Dies(8, owner, name), snapshots=EVERY, save_every=1e-9)
    assert code == -signal.SIGKILL
    assert [snapshot.step for snapshot in snapshots.read_snapshots(folder)] == [0, 3, 6]
    assert list((folder / checkpoint.SNAPSHOTS).glob(".step-*"))
    assert lives.live(toy.toy(), folder, snapshots=EVERY)[0] == 0
    assert files(folder) == files(unbroken)


def test_a_stopped_run_goes_on_with_them(unbroken: Path, tmp_path: Path):
    folder = tmp_path / "run"
    assert lives.live(toy.toy(), folder, event=toy.At(10, "SIGTERM"), snapshots=EVERY)[0] == 0
    assert [snapshot.step for snapshot in snapshots.read_snapshots(folder)] == [0, 3, 6, 9]
    assert lives.live(toy.toy(), folder, snapshots=EVERY)[0] == 0
    assert files(folder) == files(unbroken)


def test_an_earlier_step_forgets_the_later_ones(tmp_path: Path):
    """As the checkpoints, so that what is there is one path; a run that begins anew has none of another's."""
    with pytest.raises(SystemExit):
        toy.fit(toy.toy(), launch(tmp_path, save_every=0.0), event=toy.At(12, "SIGTERM"))
    with pytest.raises(SystemExit):
        toy.fit(toy.toy(), launch(tmp_path, from_step=12, snapshots=0), event=toy.At(12, "SIGTERM"))
    assert [snapshot.step for snapshot in snapshots.read_snapshots(tmp_path)] == [0, 3, 6, 9, 12]
    toy.fit(toy.toy(steps=4, seed=1), launch(tmp_path, fresh=True))
    assert [snapshot.step for snapshot in snapshots.read_snapshots(tmp_path)] == [0, 3, 4]
    for path in checkpoints(tmp_path):
        shutil.rmtree(path)
    toy.fit(toy.toy(steps=2, seed=2), launch(tmp_path))
    assert [snapshot.step for snapshot in snapshots.read_snapshots(tmp_path)] == [0, 2]


def test_a_full_disk(tmp_path: Path):
    folder = tmp_path / "run"
    code, said = lives.live(toy.toy(), folder, event=toy.At(7, "full"), snapshots=EVERY)
    assert code == 1
    assert re.fullmatch(
        rf"train: the snapshot of step 9 could not be written to {folder}/snapshots: .*File too large.*; "
        r"make room, and give the same command again",
        said,
    )
    assert sorted(files(folder)) == [f"step-{step:08d}.safetensors" for step in (0, 3, 6)]


def test_weights_that_are_no_numbers_are_not_kept(tmp_path: Path):
    with pytest.raises(ValueError, match="not a finite number at step 9"):
        toy.fit(toy.toy(), launch(tmp_path), event=toy.At(8, "nan"))
    assert [snapshot.step for snapshot in snapshots.read_snapshots(tmp_path)] == [0, 3, 6]


def test_a_damaged_one_is_named(unbroken: Path, tmp_path: Path):
    folder = Path(shutil.copytree(unbroken, tmp_path / "run"))
    path = folder / checkpoint.SNAPSHOTS / "step-00000006.safetensors"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match=rf"^train: snapshot {path} is damaged"):
        snapshots.read_snapshots(folder)
