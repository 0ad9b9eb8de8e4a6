"""The weights of every few steps stay, and a kill or a resumed run leaves the same ones."""

import shutil
import signal
from pathlib import Path

import pytest
import torch

from gkalib.training import LaunchConfig, checkpoint
from gkalib.training.checkpoint import MODEL, OPTIMIZER, checkpoints, step_of, trajectory
from tests.training import lives, runs, toy

EVERY = 3
STEPS = [*range(0, 20, EVERY), 20]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was never interrupted, with the weights of every third step."""
    folder = tmp_path_factory.mktemp("unbroken") / "run"
    assert lives.live(toy.toy(), folder, snapshots=EVERY)[0] == 0
    return folder


def launch(folder: Path, **changes: object) -> LaunchConfig:
    return runs.launch(folder, **{"snapshots": EVERY} | changes)


def steps(folder: Path) -> list[int]:
    return [step_of(path) for path in checkpoints(folder)]


def weights(folder: Path) -> dict[str, bytes]:
    return {path.name: (path / MODEL).read_bytes() for path in checkpoints(folder)}


def test_the_weights_of_their_steps_stay(unbroken: Path, tmp_path: Path):
    """The first are those of the start; training goes on from the last two alone."""
    assert steps(unbroken) == STEPS and len(trajectory(unbroken)) == len(STEPS)
    assert [(path / OPTIMIZER).exists() for path in checkpoints(unbroken)] == [False] * 6 + [True] * 2
    assert {path.name for path in (unbroken / "step-00000003").iterdir()} == {
        *(MODEL, checkpoint.TOKENIZER, checkpoint.STATE)
    }
    with pytest.raises(SystemExit):
        toy.fit(toy.toy(), launch(tmp_path, snapshots=0), event=toy.At(8, "SIGTERM"))
    assert weights(tmp_path)["step-00000009"] == weights(unbroken)["step-00000009"]
    third = checkpoint.load_checkpoint(unbroken, step=3).model
    assert all(torch.equal(trajectory(unbroken)[1][name], each) for name, each in third.state_dict().items())
    assert len(trajectory(unbroken / "step-00000003")) == len(STEPS)


def test_a_trajectory_is_read_whole_or_not_at_all(unbroken: Path, tmp_path: Path):
    folder = Path(shutil.copytree(unbroken, tmp_path / "run"))
    kept = folder / "step-00000003" / MODEL
    kept.write_bytes(kept.read_bytes()[:99])
    assert trajectory(folder, least=len(STEPS) + 1) == []
    with pytest.raises(ValueError, match=r"checkpoint .*00003 is damaged: model\.safetensors has changed"):
        trajectory(folder)


def test_they_change_nothing_of_the_run(unbroken: Path, tmp_path: Path):
    folder = tmp_path / "run"
    assert lives.live(toy.toy(), folder)[0] == 0
    assert lives.state(folder) == lives.state(unbroken) and lives.rows(folder) == lives.rows(unbroken)
    assert steps(folder) == [20]


@pytest.mark.parametrize(("owner", "name", "left"), [("Path", "rename", 6), ("Path", "unlink", 9)])
def test_a_kill_while_one_is_kept(owner: str, name: str, left: int, unbroken: Path, tmp_path: Path):
    """Before it has its name, and when its optimizer's state is about to go."""
    folder = tmp_path / "run"
    code, _ = lives.live(toy.toy(), folder, event=toy.Dies(8, owner, name), snapshots=EVERY)
    assert code == -signal.SIGKILL and steps(folder) == list(range(0, left + 1, 3))
    assert lives.live(toy.toy(), folder, snapshots=EVERY)[0] == 0
    assert weights(folder) == weights(unbroken)
    assert [(path / OPTIMIZER).exists() for path in checkpoints(folder)] == [False] * 6 + [True] * 2


def test_a_run_that_begins_anew_forgets_the_old_ones(tmp_path: Path):
    """So that what is there is one path; and from weights alone training cannot go on."""
    with pytest.raises(SystemExit):
        toy.fit(toy.toy(), launch(tmp_path), event=toy.At(13, "SIGTERM"))
    assert steps(tmp_path) == [0, 3, 6, 9, 12, 14]
    for path in checkpoints(tmp_path)[-2:]:
        shutil.rmtree(path)
    with pytest.raises(
        ValueError, match=r"is damaged: average.safetensors is missing; --snapshots keeps the"
    ):
        toy.fit(toy.toy(), launch(tmp_path))
    toy.fit(toy.toy(steps=4, seed=1), launch(tmp_path, fresh=True))
    assert steps(tmp_path) == [0, 3, 4]
    for path in checkpoints(tmp_path):
        shutil.rmtree(path)
    toy.fit(toy.toy(steps=2, seed=2), launch(tmp_path))
    assert steps(tmp_path) == [0, 2]


def test_weights_that_are_no_numbers_are_not_kept(tmp_path: Path):
    with pytest.raises(ValueError, match="not a finite number at step 9"):
        toy.fit(toy.toy(), launch(tmp_path), event=toy.At(8, "nan"))
    assert steps(tmp_path) == [0, 3, 6]
