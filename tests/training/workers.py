"""What processes under torchrun do together, for tests; each writes what it saw to a file of its own."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from gkalib.training import LanguageConfig
from gkalib.training.distributed import Processes, start
from tests.training import toy
from tests.training.runs import launch

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
    actual["most"] = processes.most(-5 + processes.rank)
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
    try:
        toy.fit(small(**changes), launch(folder / name), event=event)
    except ValueError as error:
        return str(error)
    return ""


def main() -> None:
    """``workers.py FOLDER``."""
    sys.modules["torch.utils.tensorboard"] = None  # pyright: ignore
    torch.set_num_threads(1)
    folder, processes = Path(sys.argv[1]), start("cpu")
    second = toy.At(2, "nan") if processes.rank == 1 else toy.nothing
    actual = talk(processes) | {
        "ddp": train(folder, "ddp"),
        "bfloat16": train(folder, "bfloat16", dtype="bfloat16"),
        "float16": train(folder, "float16", dtype="float16"),
        "tied": train(folder, "tied", model=TIED),
        "nan": train(folder, "nan", event=second),
        "one": train(folder, "one"),  # went on from the checkpoint of one process
    }
    (folder / f"{processes.rank}.json").write_text(json.dumps(actual))
    # The signal reaches one of them; both end with code 0, and so does torchrun.
    train(folder, "stopped", event=toy.At(2, "SIGTERM") if processes.rank == 1 else toy.nothing)
    raise AssertionError("went on after SIGTERM")


if __name__ == "__main__":
    main()
