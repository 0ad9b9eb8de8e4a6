"""Two real processes under torchrun compute what one does, and agree on everything else."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from gkalib.training import checkpoint
from gkalib.training.distributed import Processes, start
from gkalib.training.log import CURVE, read_curve
from tests.training import toy, workers
from tests.training.runs import by_two, launch

ALONE = Processes(0, 1, torch.device("cpu"))
# Sums over processes run in another order, and the first steps of AdamW, which divide each gradient by its
# own size, carry that into the weights. Measured: 7e-6 of the largest weight after six steps.
ROUNDING = 5e-5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes left."""
    folder = tmp_path_factory.mktemp("two")
    with pytest.raises(SystemExit):
        toy.fit(workers.small(), launch(folder / "one"), event=toy.At(2, "SIGTERM"))
    (folder / "said").write_text(by_two("workers", folder))
    return folder


@pytest.fixture(scope="module")
def actual(folder: Path) -> list[dict[str, Any]]:
    """What each of them saw."""
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


def agree(folder: Path, alone: Path) -> float:
    """Curves and weights of two runs agree up to rounding; returns the largest difference."""
    far = 0.0
    for first, second in zip(read_curve(folder / CURVE), read_curve(alone / CURVE), strict=True):
        assert first["step"] == second["step"]
        for name in ("loss", "grad_norm"):
            if second[name]:
                far = max(far, abs(float(first[name]) - float(second[name])) / abs(float(second[name])))
    paths = [checkpoint.newest(folder), checkpoint.newest(alone)]
    for name in (checkpoint.MODEL, checkpoint.AVERAGE):
        first, second = (load_file(path / name) for path in paths if path is not None)
        assert first.keys() == second.keys()
        for key in first:
            far = max(
                far, float((first[key] - second[key]).abs().max() / second[key].abs().max().clamp(min=1.0))
            )
    assert 0 < far < ROUNDING
    return far


@pytest.mark.slow
def test_they_agree(actual: list[dict[str, Any]]):
    for rank, first in enumerate(actual):
        assert (first["rank"], first["size"], first["share"]) == (rank, 2, [rank, rank + 2])
        assert first["total"] == [3.0, 20.0]
        assert first["most"] == -4
        assert first["refused"] == "train: a reason — with a dash"
        assert first["did"] == (rank == 0)
        assert first["uneven"] == (
            "train: 2 processes cannot share the 3 parts of a step evenly (a step has batch / device_batch "
            "parts). Set --device-batch so that the parts are a multiple of 2"
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("ddp", {}),
        ("bfloat16", {"dtype": "bfloat16"}),
        ("tied", {"model": workers.TIED}),
    ],
)
def test_two_processes_are_one(
    name: str, changes: dict, folder: Path, actual: list[dict[str, Any]], tmp_path: Path
):
    assert [first[name] for first in actual] == ["", ""]
    run = workers.small(**changes)
    toy.fit(run, launch(tmp_path))
    print(f"{name}: {agree(folder / name, tmp_path):.1e}")


@pytest.mark.slow
def test_a_loss_scale_is_one_for_all(folder: Path, actual: list[dict[str, Any]], tmp_path: Path):
    assert [first["float16"] for first in actual] == ["", ""]
    run = workers.small(dtype="float16")
    toy.fit(run, launch(tmp_path))
    states = [
        torch.load(path, weights_only=True)
        for home in (folder / "float16", tmp_path)
        for path in home.glob(f"step-*/{checkpoint.OPTIMIZER}")
    ]
    assert states[0]["scaler"] == states[1]["scaler"]
    assert states[0]["scaler"] is not None


@pytest.mark.slow
def test_a_checkpoint_is_that_of_any_number_of_processes(folder: Path, tmp_path: Path):
    """One process goes on where two were stopped, and two where one was."""
    (path,) = (folder / "stopped").glob("step-*")
    assert path.name == "step-00000003"
    assert (
        f"saved to {folder}/stopped/step-00000003. The same command goes on from there"
        in (folder / "said").read_text()
    )
    toy.fit(workers.small(), launch(tmp_path))
    toy.fit(workers.small(), launch(folder / "stopped"))
    agree(folder / "stopped", tmp_path)
    agree(folder / "one", tmp_path)


@pytest.mark.slow
def test_a_loss_that_is_no_number_in_one_stops_both(actual: list[dict[str, Any]]):
    for first in actual:
        assert "not a finite number at step 3; stopped after step 3" in first["nan"]


def test_alone():
    processes = start("cpu")
    assert processes == ALONE
    assert processes.main
    assert processes.share(3) == range(3)
    assert (processes.total(torch.ones(2)).tolist(), processes.most(7)) == ([1.0, 1.0], 7)
    with pytest.raises(ValueError, match="must be cpu or cuda, not 'tpu'"):
        start("tpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_no_gpu():
    with pytest.raises(ValueError, match="no GPU can be reached from here; --device cpu"):
        start("cuda")


@pytest.mark.parametrize(("size", "parts"), [(3, 4), (8, 1), (4, 6)])
def test_a_step_that_cannot_be_shared(size: int, parts: int):
    message = f"{size} processes cannot share the {parts} parts of a step evenly .* a multiple of {size}$"
    with pytest.raises(ValueError, match=message):
        Processes(0, size, torch.device("cpu")).share(parts)


def test_the_others_wait_for_the_main_process_longer_than_their_group_does(tmp_path):
    by_two("patient_workers", tmp_path)
    for rank in range(2):
        seen = json.loads((tmp_path / f"{rank}.json").read_text())
        assert seen == {"seen": True, "refused": "data: a reason — with a dash", "total": 2.0}
