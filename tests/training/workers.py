"""What processes under torchrun do together, for tests; each writes what it saw to a file of its own."""

import json
import sys
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from gkalib.models import ViTConfig
from gkalib.training import LanguageConfig, LaunchConfig
from gkalib.training.distributed import Processes, start, wrap
from tests.training import toy
from tests.training.runs import picture_run

TIED = replace(toy.toy().model, tied=True)


def small(**changes: Any) -> LanguageConfig:
    """The toy with parts enough for two processes that accumulate."""
    return toy.toy(**{"batch": 8, "steps": 6, "eval_every": 0} | changes)


def talk(processes: Processes) -> dict[str, Any]:
    """How the processes agree."""

    def refuse() -> None:
        raise ValueError("train: a reason — with a dash")

    actual: dict[str, Any] = {
        "rank": processes.rank,
        "size": processes.size,
        "share": list(processes.share(4)),
    }
    actual["total"] = processes.total(torch.tensor([1.0 + processes.rank, 10.0])).tolist()
    actual["any"] = [processes.any(processes.rank == 1), processes.any(False)]
    actual["most"] = processes.most(-5 + processes.rank)
    processes.wait()
    try:
        processes.first(refuse)
    except ValueError as error:
        actual["refused"] = str(error)
    done: list[int] = []
    processes.first(lambda: done.append(1))
    actual["did"] = len(done)
    try:
        processes.share(3)
    except ValueError as error:
        actual["uneven"] = str(error)
    return actual


def train(folder: Path, name: str, *, event: toy.Event = toy.nothing, **changes: Any) -> str:
    """Train the toy; says why it could not."""
    given = {key: changes.pop(key) for key in ("shard", "save_every") if key in changes}
    launch = LaunchConfig(**{"out": folder / name, "device": "cpu", "log_every": 1, "quiet": True} | given)
    try:
        toy.fit(small(**changes), launch, event=event)
    except ValueError as error:
        return str(error)
    return ""


def universal(processes: Processes) -> float:
    """How far gradients of a split model are from a whole one's, where blocks share an operator."""
    size = ViTConfig(image_size=8, patch_size=4, dim=16, depth=3, num_heads=2, num_classes=3)
    run = picture_run(attention="karat", options={"mode": "universal", "rank": 3}, model=size)
    torch.manual_seed(0)
    whole, images = run.build(), torch.randn(2, 3, 8, 8)
    halves = deepcopy(whole)
    wrap(processes, halves, shard=True, compiled=False)
    for model in (whole, halves):
        model(images).square().sum().backward()
    far = [
        (half.grad.full_tensor() - full.grad).abs().max() / full.grad.abs().max()
        for half, full in zip(halves.parameters(), whole.parameters(), strict=True)
        if full.grad is not None and full.grad.any() and isinstance(half.grad, DTensor)
    ]
    assert len(far) > 20
    return float(max(far))


def main() -> None:
    """``workers.py FOLDER``."""
    sys.modules["torch.utils.tensorboard"] = None  # pyright: ignore
    torch.set_num_threads(1)
    folder, processes = Path(sys.argv[1]), start("cpu")
    second = toy.At(2, "nan") if processes.rank == 1 else toy.nothing
    actual = talk(processes) | {
        "ddp": train(folder, "ddp"),
        "accumulated": train(folder, "accumulated", device_batch=1),
        "muon": train(folder, "muon", optimizer="muon"),
        "float16": train(folder, "float16", dtype="float16"),
        "fsdp": train(folder, "fsdp", shard=True),
        "fsdp-accumulated": train(folder, "fsdp-accumulated", shard=True, device_batch=1),
        "fsdp-tied": train(folder, "fsdp-tied", shard=True, model=TIED),
        "fsdp-bfloat16": train(folder, "fsdp-bfloat16", shard=True, dtype="bfloat16"),
        "fsdp-muon": train(folder, "fsdp-muon", shard=True, optimizer="muon"),
        "fsdp-float16": train(folder, "fsdp-float16", shard=True, dtype="float16"),
        "nan": train(folder, "nan", event=second),
        "halves": train(folder, "halves", shard=True),  # went on from a whole model's checkpoint
        "universal": universal(processes),
    }
    (folder / f"{processes.rank}.json").write_text(json.dumps(actual))
    # The signal reaches one of them; both end with code 0, and so does torchrun.
    train(folder, "stopped", shard=True, event=toy.At(2, "SIGTERM") if processes.rank == 1 else toy.nothing)
    raise AssertionError("went on after SIGTERM")


if __name__ == "__main__":
    main()
