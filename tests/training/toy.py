"""A short loop on random tokens that stands on a trainer, as the real ones do; also run as a program."""

import json
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from string import ascii_letters
from typing import Any, final

import torch
from torch.nn.functional import cross_entropy

from gkalib import results
from gkalib.data.tokenizers import Characters
from gkalib.training import LanguageConfig, LaunchConfig, sealed
from gkalib.training.config import run_of
from gkalib.training.loop import Trainer
from gkalib.training.sampler import Sampler
from tests.training.runs import text_run

Event = Callable[[int], float]


def toy(**changes: Any) -> LanguageConfig:
    """A run with everything that a checkpoint holds but a loss scale."""
    return text_run(**{"steps": 20, "clip": 1.0, "ema": 0.9, "warmup": 4, "eval_every": 7} | changes)


def nothing(step: int) -> float:
    """No event."""
    return 1.0


def fit(run: LanguageConfig, launch: LaunchConfig, *, event: Event = nothing) -> results.Record:
    """Train on random tokens; ``event`` may do anything before a step, and gives a factor on its loss."""
    size, context = run.model.vocab_size, run.model.context
    tokens = torch.randint(size, (64, context + 1), generator=torch.Generator().manual_seed(1))
    order = Sampler(len(tokens), run.batch, run.parts, run.seed)
    with Trainer(run, launch, Characters(ascii_letters[:size])) as trainer:
        model = trainer.build()
        for step in trainer.steps():
            factor = event(step)
            trainer.begin(step)
            total = torch.zeros((), device=trainer.processes.device)
            for number in trainer.share:
                rows = tokens[order.part(step, number).rows].to(trainer.processes.device)
                trainer.seed(step, number)
                noisy = torch.where(torch.rand(rows.shape, device=rows.device) < 0.1, 0, rows)
                with trainer.precision():
                    logits = model(noisy[:, :-1]).float()
                loss = factor * cross_entropy(logits.mT, rows[:, 1:], reduction="sum") / (run.batch * context)
                trainer.backward(loss)
                total += loss.detach()
            trainer.update(step, total)
            if trainer.due(step):
                trainer.measured(step, val_loss=float(trainer.processes.total(total)))
                trainer.sample(step, f"sample of {step}")
        return trainer.record({"val_loss": 1.0})


def life(run: LanguageConfig, launch: LaunchConfig, said: Path, event: Event = nothing) -> None:
    """A whole process's life: what it says on the terminal goes to a file."""
    sys.modules["torch.utils.tensorboard"] = None  # pyright: ignore # takes seconds; tested by itself
    torch.set_num_threads(1)
    with said.open("a") as file:
        os.dup2(file.fileno(), 2)
    try:
        fit(run, launch, event=event)
    except ValueError as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(1)


def main() -> None:
    """``toy.py RUN OPTIONS [WHEN WHAT RANK]``: settings as JSON, and what happens at a step in a process."""
    options = json.loads(sys.argv[2])
    event = nothing
    if len(sys.argv) > 3 and os.environ.get("RANK", "0") == sys.argv[5]:
        event = At(int(sys.argv[3]), sys.argv[4])
    run = run_of(json.loads(sys.argv[1]))
    assert isinstance(run, LanguageConfig)
    torch.set_num_threads(1)
    sys.modules["torch.utils.tensorboard"] = None  # pyright: ignore
    try:
        fit(run, LaunchConfig(**options | {"out": Path(options["out"]), "device": "cpu"}), event=event)
    except ValueError as error:
        sys.exit(str(error))


@final
@dataclass(frozen=True)
class At:
    """Something that happens at a step: ``nan``, ``full``, or the name of a signal."""

    when: int
    what: str

    def __call__(self, step: int) -> float:
        if step != self.when:
            return 1.0
        if self.what == "nan":
            return float("nan")
        if self.what == "full":  # files may not grow past 4 KiB any more, as on a full disk
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        else:
            os.kill(os.getpid(), signal.Signals[self.what])
        return 1.0


@final
@dataclass(frozen=True)
class Dies:
    """From a step on, the process is killed in the midst of saving, before ``owner.name`` is called."""

    when: int
    owner: str
    name: str

    def __call__(self, step: int) -> float:
        if step == self.when:
            owner: Any = {"sealed": sealed, "shutil": shutil, "Path": Path}[self.owner]
            setattr(owner, self.name, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
        return 1.0


@final
@dataclass(frozen=True)
class Slow:
    """Every step takes so many seconds more."""

    seconds: float

    def __call__(self, step: int) -> float:
        time.sleep(self.seconds)
        return 1.0


if __name__ == "__main__":
    main()
