"""Checkpoints that are damaged or foreign are refused with the reason, and nothing in them is ever run."""

import hashlib
import json
import os
import pickle
import re
import resource
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from gkalib.models import ViTConfig
from gkalib.training import TrainConfig, checkpoint
from gkalib.training.optim import TrainState, optimizers, weight_average
from tests.training import toy
from tests.training.runs import launch, picture_run

MARK, STATE = "executed", checkpoint.STATE
REMEDY = re.escape(checkpoint.REMEDY)


class Bomb:
    """What runs a program when it is unpickled: here one that leaves a file."""

    def __init__(self, folder: Path):
        self.folder = folder

    def __reduce__(self) -> tuple[Callable, tuple]:
        return Path.touch, (self.folder / MARK,)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run stopped after step 4, with checkpoints of steps 3 and 4."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    with pytest.raises(SystemExit):
        toy.fit(toy.toy(), launch(folder, save_every=0.0), event=toy.At(3, "SIGTERM"))
    return folder


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


def reseal(path: Path, **changes: Any) -> None:
    """Write ``state.json`` anew as if the files had always been as they are."""
    stored = json.loads((path / checkpoint.STATE).read_text())
    (path / checkpoint.STATE).unlink()
    checkpoint.write_state(
        path, {k: v for k, v in stored.items() if k not in ("format", "files", "seal")} | changes
    )
    if "format" in changes:
        stored = json.loads((path / checkpoint.STATE).read_text())
        assert stored["format"] == changes["format"]


def cut(path: Path) -> None:
    """Lose the second half of a file."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path, place: int) -> None:
    """Change one bit of a file."""
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(bytes(data))


def reshape(path: Path) -> None:
    """Let the head have another row, and everything say so."""
    tensors = load_file(path / checkpoint.MODEL)
    tensors["head.weight"] = torch.zeros(12, 16)
    save_file(tensors, path / checkpoint.MODEL)
    reseal(path)


def resettle(path: Path, **changes: Any) -> None:
    """Let it be of a run with other settings."""
    reseal(path, settings=toy.toy(**changes).settings())


def bomb(path: Path) -> None:
    """A pickle in place of the weights, resealed by who put it there."""
    (path / checkpoint.MODEL).write_bytes(pickle.dumps(Bomb(path)))
    reseal(path)


def bomb_of_torch(path: Path, name: str) -> None:
    """What ``torch.save`` makes of it."""
    torch.save(Bomb(path), path / name)
    reseal(path)


def scribble(path: Path) -> None:
    """Something else in place of the weights, resealed."""
    (path / checkpoint.MODEL).write_bytes(b"x" * 99)
    reseal(path)


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "truncated model": (
        lambda path: cut(path / checkpoint.MODEL),
        r"is damaged: model\.safetensors has changed since it was written",
    ),
    "truncated optimizer": (
        lambda path: cut(path / checkpoint.OPTIMIZER),
        r"is damaged: optimizer\.pt has changed since it was written",
    ),
    "flipped bit in the model": (
        lambda path: flip(path / checkpoint.MODEL, -5),
        r"is damaged: model\.safetensors has changed since it was written",
    ),
    "flipped bit in the state": (
        lambda path: flip(
            path / checkpoint.STATE, (path / checkpoint.STATE).read_text().index('"seconds": ') + 13
        ),
        r"is damaged: state\.json has changed since it was written",
    ),
    "state that is no JSON": (
        lambda path: cut(path / checkpoint.STATE),
        r"is damaged: state\.json is not JSON",
    ),
    "missing file": (
        lambda path: (path / checkpoint.AVERAGE).unlink(),
        r"is damaged: average\.safetensors is missing",
    ),
    "missing state": (lambda path: (path / checkpoint.STATE).unlink(), r"has no state\.json"),
    "wrong shapes": (
        reshape,
        r"does not fit the model: model\.safetensors: size mismatch for head\.weight: .*12, 16.*11, 16",
    ),
    "other recipe": (
        lambda path: resettle(path, experiment="gpa-dickens"),
        r'is of another run: experiment was "gpa-dickens" there and is "tiny" here',
    ),
    "other settings": (
        lambda path: resettle(path, lr=0.5, model=replace(toy.toy().model, depth=2)),
        r"is of another run: lr was 0\.5 there and is 0\.01 here; model\.depth was 2 there and is 1 here",
    ),
    "pickle": (bomb, r"is damaged: model\.safetensors holds no tensors"),
    "pickle of torch.save": (
        lambda path: bomb_of_torch(path, checkpoint.MODEL),
        r"is damaged: model\.safetensors holds no tensors",
    ),
    "pickle in the optimizer": (
        lambda path: bomb_of_torch(path, checkpoint.OPTIMIZER),
        r"is refused: optimizer\.pt holds more than tensors and numbers",
    ),
    "no tensors": (scribble, r"is damaged: model\.safetensors holds no tensors"),
    "unknown format": (
        lambda path: reseal(path, format=7),
        r"has format 7, and this version of gkalib reads format 1",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_refused(damage: str, folder: Path):
    spoil, message = DAMAGES[damage]
    path = folder / "step-00000004"
    spoil(path)
    with pytest.raises(ValueError, match=rf"^train: checkpoint {path} {message}.*\. {REMEDY}$"):
        toy.fit(toy.toy(), launch(folder))
    assert not list(folder.rglob(MARK))


def test_what_is_offered_works(folder: Path, trained: Path, tmp_path: Path):
    """Without the damaged one the run goes on from the whole one before, to what would have come out."""
    shutil.rmtree(folder / "step-00000004")
    with pytest.raises(SystemExit):
        toy.fit(toy.toy(), launch(folder), event=toy.At(3, "SIGTERM"))
    for name in (checkpoint.MODEL, checkpoint.AVERAGE, checkpoint.OPTIMIZER):
        assert (folder / "step-00000004" / name).read_bytes() == (
            trained / "step-00000004" / name
        ).read_bytes()


def test_the_pickle_is_a_live_one(tmp_path: Path):
    """Read by ``pickle`` the same bytes do run: the test above can fail."""
    pickle.loads(pickle.dumps(Bomb(tmp_path)))
    assert (tmp_path / MARK).exists()


def test_the_tokenizer_is_part_of_it(folder: Path):
    path = folder / "step-00000004"
    (path / checkpoint.TOKENIZER).write_text("{}")
    reseal(path)
    with pytest.raises(ValueError, match="was trained with another tokenizer of the same size"):
        toy.fit(toy.toy(), launch(folder))


def test_a_model_is_loaded_from_its_settings(folder: Path):
    loaded = checkpoint.load_checkpoint(folder)
    assert (loaded.step, loaded.config) == (4, toy.toy())
    assert loaded.tokenizer_json is not None and "characters" in loaded.tokenizer_json
    stored = load_file(folder / "step-00000004" / checkpoint.MODEL)
    assert loaded.model.state_dict().keys() == stored.keys()
    for name, tensor in loaded.model.state_dict().items():
        assert torch.equal(tensor, stored[name])
    averaged = checkpoint.load_checkpoint(folder, averaged=True).model
    saved = load_file(folder / "step-00000004" / checkpoint.AVERAGE)
    assert torch.equal(averaged.state_dict()["head.weight"], saved["module.head.weight"])
    assert not torch.equal(averaged.state_dict()["head.weight"], stored["head.weight"])
    assert (
        checkpoint.load_checkpoint(folder, step=3).step
        == checkpoint.load_checkpoint(folder / "step-00000003").step
        == 3
    )


def test_what_cannot_be_loaded(folder: Path, tmp_path: Path):
    with pytest.raises(ValueError, match=f"there is no checkpoint in {tmp_path}"):
        checkpoint.load_checkpoint(tmp_path)
    bomb(folder / "step-00000004")
    with pytest.raises(ValueError, match="holds no tensors"):
        checkpoint.load_checkpoint(folder)
    with pytest.raises(ValueError, match=r"no checkpoint of step 5\. It has: 3, 4"):
        checkpoint.load_checkpoint(folder, step=5)
    assert not list(folder.rglob(MARK))
    training = TrainState(toy.toy(ema=None), toy.toy().build(), [])
    path = checkpoint.save(tmp_path, training, step=1, seconds=0.0)
    with pytest.raises(ValueError, match="keeps no moving average"):
        checkpoint.load_checkpoint(path, averaged=True)


def test_a_disk_that_fills_up_with_the_optimizer(tmp_path: Path):
    run = toy.toy()
    model = run.build()
    training = TrainState(run, model, optimizers(run, model), weight_average(model, run.ema))
    model(torch.zeros(1, 8, dtype=torch.long)).square().sum().backward()
    training.optimizers[0].step()
    path = checkpoint.save(tmp_path, training, step=1, seconds=0.0)
    sizes = [(path / name).stat().st_size for name in (checkpoint.AVERAGE, checkpoint.OPTIMIZER)]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (sum(sizes) // 2, before[1]))
    try:
        with pytest.raises(ValueError, match=r"step 2 could not be written .* File too large .* 1 is whole"):
            checkpoint.save(tmp_path, training, step=2, seconds=0.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == [path]
    assert checkpoint.save(tmp_path, training, step=2, seconds=0.0).is_dir()


def tied() -> TrainConfig:
    """A decoder whose head is its embedding."""
    return toy.toy(model=replace(toy.toy().model, tied=True), ema=0.5)


def universal() -> TrainConfig:
    """A classifier whose blocks share one operator."""
    size = ViTConfig(image_size=8, patch_size=4, dim=16, depth=3, num_heads=2, num_classes=3)
    options = {"mode": "universal", "rank": 3}
    return picture_run(attention="karat", options=options, model=size, ema=0.5)


@pytest.mark.parametrize("make", [tied, universal])
def test_what_is_shared_is_stored_once_and_stays_shared(make: Callable[[], TrainConfig], tmp_path: Path):
    run = make()
    model = run.build()
    parts = optimizers(run, model)
    training = TrainState(run, model, parts, weight_average(model, run.ema))
    given = torch.randint(11, (2, 8)) if make is tied else torch.randn(2, 3, 8, 8)
    model(given).square().sum().backward()
    parts[0].step()
    assert training.average is not None
    training.average.update_parameters(model)
    path = checkpoint.save(tmp_path, training, step=1, seconds=0.0)
    named = model.state_dict(keep_vars=True)
    stored = load_file(path / checkpoint.MODEL)
    assert len(stored) == len({tensor.data_ptr() for tensor in named.values()})
    if make is tied:
        assert len(stored) == len(named) - 1
    loaded = checkpoint.load_checkpoint(tmp_path).model
    again = loaded.state_dict(keep_vars=True)
    for name, tensor in named.items():
        assert torch.equal(again[name], tensor)
    sharing = [[again[a] is again[b] for a in named] for b in named]
    assert sharing == [[named[a] is named[b] for a in named] for b in named]
    assert torch.equal(loaded.eval()(given), model.eval()(given))

    other = run.build()
    fresh = TrainState(run, other, optimizers(run, other), weight_average(other, run.ema))
    assert checkpoint.restore(path, fresh) == (1, 0.0)
    for parameter, twin in zip(model.parameters(), other.parameters(), strict=True):
        saved, restored = parts[0].state[parameter], fresh.optimizers[0].state[twin]
        assert saved.keys() == restored.keys()
        assert all(torch.equal(saved[key], restored[key]) for key in saved)
    assert fresh.average is not None
    assert all(
        torch.equal(a, b)
        for a, b in zip(
            checkpoint.tensors_of(fresh.average).values(),
            checkpoint.tensors_of(training.average).values(),
            strict=True,
        )
    )


def test_all_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """First what is in a file and a folder, then the name: a machine that stops leaves nothing half."""
    synced: list[int] = []
    before: dict[Path, int] = {}  # how many

    def recorded(move: Callable[[Path, Path], Path]) -> Callable[[Path, Path], Path]:
        return lambda path, target: before.update({target: len(synced)}) or move(path, target)

    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_ino))
    for name in ("rename", "replace"):
        monkeypatch.setattr(Path, name, recorded(getattr(Path, name)))
    toy.fit(toy.toy(steps=1), launch(tmp_path))
    for path in checkpoint.checkpoints(tmp_path):
        assert {entry.stat().st_ino for entry in [path, *path.glob("*")]} <= {*synced[: before[path]]}
        assert path.parent.stat().st_ino in synced[before[path] :]


def test_the_seal_is_the_hash_of_each_file(folder: Path):
    path = folder / "step-00000004"
    files = json.loads((path / checkpoint.STATE).read_text())["files"]
    assert sorted(files) == sorted(file.name for file in path.iterdir() if file.name != checkpoint.STATE)
    for name, written in files.items():
        assert hashlib.sha256((path / name).read_bytes()).hexdigest() == written["sha256"]
