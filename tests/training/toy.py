"""A short loop on random tokens that stands on a trainer, as the real ones do."""

import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from string import ascii_letters
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from gkalib import results
from gkalib.data.tokenizers import Characters
from gkalib.training import LanguageConfig, LaunchConfig, checkpoint, loop
from gkalib.training.distributed import Processes, start
from gkalib.training.log import thinned
from gkalib.training.loop import Part, Workload
from gkalib.training.record import record_of
from gkalib.training.sampler import Sampler
from tests.training.runs import text_run

Event = Callable[[int], float]


def toy(**changes: Any) -> LanguageConfig:
    """A run with everything that a checkpoint holds but a loss scale."""
    given = {"steps": 20, "clip": 1.0, "ema": 0.9, "eval_every": 7} | changes
    return text_run(**{"warmup": min(4, given["steps"])} | given)


def nothing(step: int) -> float:
    """No event."""
    return 1.0


@final
class Toy(Workload):
    """Random tokens, a tenth of them masked; an event before each step gives its loss a factor."""

    def __init__(self, config: LanguageConfig, processes: Processes, event: Event):
        super().__init__(config, processes)
        size, context = config.model.vocab_size, config.model.context
        self.tokenizer = Characters(ascii_letters[:size]).to_json()
        self.tokens = torch.randint(size, (64, context + 1), generator=torch.Generator().manual_seed(1))
        self.sampler = Sampler(len(self.tokens), config.batch, config.parts, config.seed)
        self.event, self.factor = event, 1.0

    def fingerprint(self) -> dict[str, Any]:
        return {"classes": (), "train": "drawn", "held_out": "drawn"}

    def parts(self, start: int) -> Iterator[Part]:
        for step in range(start, self.config.steps):
            self.factor = self.event(step)
            for number in self.share:
                rows = self.tokens[self.sampler.part(step, number).rows].to(self.processes.device)
                noisy = torch.where(torch.rand(rows.shape, device=rows.device) < 0.1, 0, rows)
                yield noisy[:, :-1], rows[:, 1:], self.config.items

    def nats(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return self.factor * cross_entropy(outputs.float().mT, labels, reduction="sum")

    @torch.no_grad()
    def measure(self, model: nn.Module) -> dict[str, float]:
        with self.config.precision(self.processes.device):
            logits = model(self.tokens[:8, :-1].to(self.processes.device))
        return {"val_loss": float(cross_entropy(logits.float().mT, self.tokens[:8, 1:].to(logits.device)))}

    def sample(self, model: nn.Module) -> str:
        return f"a text of loss {self.measure(model)['val_loss']}"


def fit(run: LanguageConfig, launch: LaunchConfig, *, event: Event = nothing) -> results.Record:
    """Train on random tokens."""
    workload = Toy(run, start(launch.device), event)
    fitted = loop.fit(workload, launch)
    record = record_of(workload, fitted)
    if launch.keep:
        results.save(record, rows=thinned(fitted.rows))
    return record


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
            owner: Any = {"checkpoint": checkpoint, "shutil": shutil, "Path": Path}[self.owner]
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
