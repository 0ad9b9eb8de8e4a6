"""Two real processes that share the questions of two tasks find, to the bit, what one does."""

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import torch

from gkalib.data.tokenizers import Characters
from gkalib.evaluation import Choice, evaluate, scorer
from gkalib.evaluation.tasks import Task
from gkalib.models import gpt
from gkalib.training.distributed import start

TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def answer(folder: Path) -> None:
    """What each process does: it answers, and writes what it found into a file of its own."""
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
    (folder / f"{processes.rank}-of-{processes.size}.json").write_text(json.dumps(results))


def test_two_processes_find_what_one_finds(tmp_path):
    started = [
        subprocess.Popen(
            [sys.executable, *words, "-m", "tests.evaluation.test_shared", str(tmp_path)],
            cwd=Path(__file__).parents[2],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for words in ([], TORCHRUN)
    ]
    try:
        said = [process.communicate(timeout=300)[0] for process in started]
    finally:
        for process in started:
            process.terminate()  # then torchrun ends both of its own
    assert [process.returncode for process in started] == [0, 0], said
    alone, *both = (
        json.loads((tmp_path / f"{name}.json").read_text()) for name in ("0-of-1", "0-of-2", "1-of-2")
    )
    assert both == [alone, alone]
    assert [result["items"] for result in alone] == [22, 22]
    assert all(0 < result["accuracy"] < 1 for result in alone)


if __name__ == "__main__":
    answer(Path(sys.argv[1]))
