"""A model answers two tasks, alone and under torchrun, for a test; each process writes what it found."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

import torch

from gkalib.data.tokenizers import Characters
from gkalib.evaluation import Choice, evaluate, scorer
from gkalib.evaluation.tasks import Task
from gkalib.models import gpt
from gkalib.training.distributed import start


def main() -> None:
    """``core_workers.py FOLDER``."""
    torch.set_num_threads(1)
    processes, letters = start("cpu"), "abcdefgh Answ:\nr"
    scorer.BLOCK = 4
    items = [
        Choice(letters[n % 8] * (n % 5 + 1), (letters[n % 7], letters[(3 * n + 1) % 8] * 2), gold=n % 2)
        for n in range(22)
    ]
    Task.items = lambda task, limit=None: items[:limit]
    tokens = Characters(letters)
    torch.manual_seed(0)
    model = gpt("gpa-dickens", vocab_size=tokens.vocab_size, context=24, dim=32, depth=2, num_heads=2)
    torch.nn.init.normal_(model.head.weight)
    share = processes.rank, processes.size
    actual = evaluate(model, tokens, ["copa", "arc_easy"], shots=2, share=share, total=processes.total)
    results = [{**asdict(result), "seconds": result.seconds > 0} for result in actual]
    (Path(sys.argv[1]) / f"{processes.rank}-of-{processes.size}.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main()
