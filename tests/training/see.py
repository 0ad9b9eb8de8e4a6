"""``see.py RUN LAUNCH``, both JSON: trains a classifier as a process of its own."""

import json
import sys
from pathlib import Path

import torch

from gkalib.training import Launch, train
from gkalib.training.run import run_of


def main() -> None:
    """TensorBoard takes seconds to import and is tested elsewhere."""
    sys.modules["torch.utils.tensorboard"] = None  # pyright: ignore
    torch.set_num_threads(1)
    options = json.loads(sys.argv[2])
    train(run_of(json.loads(sys.argv[1])), Launch(**options | {"out": Path(options["out"])}))


if __name__ == "__main__":
    main()
