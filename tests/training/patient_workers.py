"""The main process takes longer than the group's timeout, for a test; each writes what it saw to a file."""

import json
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from gkalib.training.distributed import start

TIMEOUT, WORK = 5.0, 7.0  # seconds; processes may start seconds apart


def main() -> None:
    """``patient_workers.py FOLDER``."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=TIMEOUT))
    folder, processes = Path(sys.argv[1]), start("cpu")
    seen = folder / "prepared"

    def prepare() -> None:
        time.sleep(WORK)
        seen.touch()

    def fail() -> None:
        raise ValueError("data: a reason — with a dash")

    processes.first(prepare)
    actual = {"seen": seen.exists()}
    try:
        processes.first(fail)
    except ValueError as error:
        actual["refused"] = str(error)
    actual["total"] = processes.total(torch.tensor(1.0)).item()
    (folder / f"{processes.rank}.json").write_text(json.dumps(actual))
    dist.destroy_process_group()  # who began the group ends it: its threads may not outlast the interpreter


if __name__ == "__main__":
    main()
