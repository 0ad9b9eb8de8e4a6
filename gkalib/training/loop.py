"""The training loop in reading order, and the trainer it stands on, which loses nothing on the way."""

import contextlib
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from statistics import fmean, median
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler

from gkalib.training import checkpoint
from gkalib.training.config import LaunchConfig, TrainConfig
from gkalib.training.distributed import Processes, lock_folder, stop_signals, wrap
from gkalib.training.log import Log
from gkalib.training.optim import TrainState, optimizer_step, optimizers, set_rates, weight_average
from gkalib.training.sampler import key

SAVE, STOP = 1, 2  # what processes agree on after each step
LATE = 0.1  # of the steps, over which the training loss of a record is the mean

Part = tuple[Tensor, Tensor, Tensor | int]
Watch = Callable[[int, nn.Module], None]  # of the number of steps done and the model


class Workload(ABC):
    """What a loop trains on: the parts of its steps, their loss, and what is measured on held-out data.

    Args:
        config: every setting that decides the result.
        processes: who computes it.
    """

    data: Any  # ``train`` and ``held_out``
    classes: tuple[str, ...] = ()  # of pictures, by label

    def __init__(self, config: TrainConfig, processes: Processes):
        self.config, self.processes = config, processes
        self.tokenizer: str | None = None  # of text, as JSON

    def build(self) -> nn.Module:
        """The model, untrained."""
        return self.config.build()

    @property
    def share(self) -> range:
        """The parts of a step that this process computes."""
        return self.processes.share(self.config.parts)

    def checksum(self, part: Any) -> str:
        """Of ``train`` or ``held_out``; that of data which is drawn anew for each run is empty."""
        return ""

    def fingerprint(self) -> dict[str, Any]:
        """What data is read: the names of the classes, and a checksum of each part."""
        parts = {"train": self.data.train, "held_out": self.data.held_out}
        return {"classes": self.classes, **{name: self.checksum(part) for name, part in parts.items()}}

    def check(self, *, quiet: bool) -> None:
        """Look at the data once, before the first step of a run; raises a ``ValueError`` where it is bad."""

    @abstractmethod
    def parts(self, start: int) -> Iterator[Part]:
        """This process's parts of the steps from ``start`` on: inputs, labels, and a step's count of losses.

        A step's loss is the mean over those, wherever they are computed.
        """

    @abstractmethod
    def nats(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """The sum of a part's losses."""

    @abstractmethod
    def measure(self, model: nn.Module) -> dict[str, float]:
        """Numbers of a model on held-out data, over all processes."""

    def sample(self, model: nn.Module) -> str | None:
        """What a model of text writes."""
        return None

    def sizes(self) -> dict[str, int]:
        """How much a whole run reads."""
        return {self.config.unit: self.config.steps * self.config.items}


class Fitted(NamedTuple):
    """A trained model, what was measured in the end, the rows of its curve, and the seconds it took."""

    model: nn.Module
    metrics: dict[str, float]
    rows: list[dict[str, str]]
    seconds: float


def fit(workload: Workload, launch: LaunchConfig, *, watch: Watch | None = None) -> Fitted:
    """Train a model on a workload, from its start or from where it was interrupted.

    Args:
        workload: data, loss and measurements.
        launch: where and how.
        watch: called with the number of steps done and the model, before the first step and after each.

    Raises:
        ValueError: if another process writes to the folder, a checkpoint is damaged or of another run, the
            loss is no number, or the disk is full.
        SystemExit: with code 0 after SIGTERM or SIGINT, when a checkpoint is written.

    References:
        Touvron et al., Training data-efficient image transformers, 2021; Radford et al., Language models are
        unsupervised multitask learners, 2019. Chapters 22 and 23 read it line by line.
    """
    with contextlib.ExitStack() as stack:
        trainer = Trainer(workload, launch, stack)
        parts = workload.parts(trainer.started)
        watch = watch or (lambda step, model: None)
        watch(trainer.started, trainer.model)
        for step in trainer.steps():
            trainer.update(step, gradient(trainer, parts, step))
            watch(step + 1, trainer.model)
        return trainer.finish()


def gradient(trainer: "Trainer", parts: Iterator[Part], step: int) -> Tensor:
    """Leave the gradient of a step in the parameters; returns what this process's parts have of its loss.

    The loss is the mean over the whole step, wherever it is computed: each part's sum is divided by the count
    of all parts of all processes. So parts add up, of one process or of many, whatever share is padding.
    """
    processes, share, config = trainer.processes, trainer.share, trainer.config
    scaler = trainer.state.scaler
    trainer.model.zero_grad()
    total = torch.zeros((), device=processes.device)
    for number in share:
        torch.manual_seed(key(config.seed, 3, step, number))  # of what is random in a part
        inputs, labels, count = next(parts)
        module: Any = trainer.module  # which exchanges gradients after the last part alone
        alone = processes.size == 1 or number == share[-1]
        with contextlib.nullcontext() if alone else module.no_sync():
            with config.precision(total.device):
                loss = trainer.workload.nats(module(inputs), labels) / count
            total += loss.detach()
            loss = loss * processes.size  # gradients are averaged over processes, and we want their sum
            (scaler.scale(loss) if scaler else loss).backward()
    return total


@final
class NotFinite(ValueError):
    """The loss of a run, or its gradient, is no number any more."""


@final
class Trainer:
    """One process's part in a run, from its start, or from where it was interrupted, to its end.

    Its folder is locked and signals are caught until the stack that it is given is closed. The state of a run
    is its checkpoint and nothing else, since whatever is random in a step is keyed by the step's number.

    Args:
        workload: what is trained on.
        launch: where and how.
        stack: gives back what is taken here, whatever happens.

    Raises:
        ValueError: if another process writes to the folder, or its checkpoint is damaged or of another run.
    """

    def __init__(self, workload: Workload, launch: LaunchConfig, stack: contextlib.ExitStack):
        self.workload, self.launch = workload, launch
        self.config: TrainConfig = workload.config
        config, self.processes, self.share = workload.config, workload.processes, workload.share
        self.folder = checkpoint.run_folder(config, launch)
        self.started, self._earlier_seconds = 0, 0.0  # where an earlier life ended, and what it took
        self._saved_step: int | None = None
        # The first step with a number that is infinite or none; looked at now and then, for the GPU's sake.
        self._first_bad = torch.full((), config.steps + 1, device=self.processes.device)
        if not launch.in_memory:
            self.processes.first(lambda: self._take_folder(stack))
        self._signals = stack.enter_context(stop_signals(catch=not launch.in_memory))
        torch.manual_seed(config.model_seed)
        self.model = workload.build().to(self.processes.device)  # which is evaluated, as is its average
        self.module = wrap(self.processes, self.model, compiled=launch.compile)  # which is called in training
        self.state = TrainState(
            config,
            self.model,
            optimizers(config, self.model),
            average=weight_average(self.model, config.ema),
            scaler=GradScaler(self.processes.device.type) if config.dtype == "float16" else None,
            tokenizer=workload.tokenizer,
            fingerprint=None if launch.in_memory else workload.fingerprint(),
        )
        if not launch.in_memory:
            self._resume()
        if self._saved_step is None:  # no earlier life of the run has read the data
            self.processes.first(lambda: workload.check(quiet=launch.quiet))
        self._log = Log(
            None if launch.in_memory else self.folder,
            f"{config.experiment} {config.arm}",
            steps=config.steps,
            start=self.started,
            main=self.processes.main,
            quiet=launch.quiet,
        )
        stack.callback(self._log.close)
        self._start_time = self._saved_at = time.monotonic()
        if launch.snapshots and self._saved_step is None:
            self._save(0)

    def steps(self) -> Iterator[int]:
        """The numbers of the steps that are still to be done, from 0; measures and saves between them.

        Raises:
            SystemExit: with code 0 after SIGTERM or SIGINT, when the checkpoint is written.
            ValueError: if the loss is no number, or the checkpoint cannot be written.
        """
        self._mark = time.monotonic(), self.started
        every, kept_every, last = self.config.eval_every, self.launch.snapshots, self.config.steps
        self.model.train()
        for step in range(self.started, last):
            yield step
            if every and (step + 1) % every == 0 and step + 1 < last:  # after the last, ``finish`` measures
                self.measure(step + 1)
            kept = kept_every and (step + 1) % kept_every == 0
            due = time.monotonic() - self._saved_at >= self.launch.save_every and self.processes.main
            decision = self.processes.most(STOP if self._signals else SAVE if due or kept else 0)
            if decision:
                self._save(step + 1)
            if decision == STOP:
                self._stop(step + 1)
        if self._saved_step != last:
            self._save(last)

    def update(self, step: int, loss: Tensor) -> None:
        """Let the optimizers do a step at its rates.

        Args:
            step: its number, from 0.
            loss: what this process's parts had of the step's loss.
        """
        rate = set_rates(self.config, step, self.state.optimizers)
        norm = optimizer_step(self.state)
        loss = loss.detach().to(self.processes.device)
        # A gradient that is too large for float16 is no failure: the scaler leaves that step out.
        for number in [loss] if self.state.scaler else [loss, norm]:
            bad = self._first_bad.clamp(max=step + 1)
            self._first_bad = torch.where(number.isfinite(), self._first_bad, bad)
        if (step + 1) % self.launch.log_every == 0 or step + 1 == self.config.steps:
            self._row(step + 1, loss, norm, rate)
        else:
            self._log.advance(step + 1)

    def measure(self, step: int) -> dict[str, float]:
        """What is measured of the model, and of its average, after so many steps; the curve keeps it."""
        numbers: dict[str, float] = {}
        for prefix, model in {"": self.model, "ema_": self.state.average}.items():
            if model is not None:
                values = self.workload.measure(model)
                numbers |= {prefix + name: value for name, value in values.items()}
        sample = self.workload.sample(self.model)
        with self._writing():
            self._log.measured(step, numbers, sample)
        return numbers

    def finish(self) -> Fitted:
        """Measure once more, and sum up."""
        totals = torch.zeros(3, dtype=torch.float64)
        seconds = self._seconds()
        metrics = self.measure(self.config.steps)
        if self.processes.main:  # which keeps the curve
            rows = [row for row in self._log.rows if row.get("loss")]
            late = [float(row["loss"]) for row in rows if int(row["step"]) > (1 - LATE) * self.config.steps]
            totals[0] = fmean(late)
            totals[1] = median(float(row["items_per_second"]) for row in rows)
            totals[2] = seconds
        loss, rate, seconds = self.processes.total(totals).tolist()
        metrics |= {"train_loss": loss, f"{self.config.unit}_per_second": rate}
        metrics["parameters"] = sum(parameter.numel() for parameter in self.model.parameters())
        return Fitted(self.model, metrics | self.workload.sizes(), self._log.rows, seconds)

    def _take_folder(self, stack: contextlib.ExitStack) -> None:
        stack.callback(lock_folder(self.folder).release)
        checkpoint.clear(self.folder)
        if self.launch.fresh:
            checkpoint.forget(self.folder)

    def _resume(self) -> None:
        path = checkpoint.newest(self.folder)
        step = checkpoint.step_of(path) if path else 0
        if self.processes.most(step) != -self.processes.most(-step):
            raise ValueError(f"train: {self.folder} is not the same folder for every process")
        if path is not None:
            self.started, self._earlier_seconds = checkpoint.restore(path, self.state)
            self._saved_step = self.started

    def _stop(self, step: int) -> None:
        name = signal.Signals(self._signals[0]).name if self._signals else "a signal"  # of another process
        without = " without --fresh" if self.launch.fresh else ""
        self._log.say(
            f"train: stopped by {name} after step {step} of {self.config.steps}; saved to "
            f"{self.folder}/step-{step:08d}. The same command{without} goes on from there"
        )
        raise SystemExit(0)

    def _seconds(self) -> float:
        return self._earlier_seconds + time.monotonic() - self._start_time

    def _row(self, step: int, loss: Tensor, norm: Tensor, rate: float) -> None:
        total = float(self.processes.total(loss))
        self._refuse_nan(step)
        now, (then, done) = time.monotonic(), self._mark
        speed = (step - done) * self.config.items / max(now - then, 1e-9)
        self._mark = now, step
        numbers = {"loss": total, "lr": rate, "grad_norm": float(norm)}
        timings = {"items_per_second": round(speed, 1), "seconds": round(self._seconds(), 1)}
        with self._writing():
            self._log.row(step, **numbers, **timings)
        display = {"loss": f"{total:.4f}", "lr": f"{rate:.2e}", "items/s": f"{speed:,.0f}"}
        self._log.advance(step, **display)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            problem = f"train: {self.folder} cannot be written to: {error.strerror}"
            raise ValueError(f"{problem}. {self._last_checkpoint()}") from None

    def _refuse_nan(self, step: int) -> None:
        bad = -self.processes.most(-int(self._first_bad))
        if bad <= self.config.steps:
            raise NotFinite(
                f"train: the loss or its gradient is not a finite number at step {bad}; stopped after step "
                f"{step}, and nothing was saved since. {self._last_checkpoint()}. The same settings "
                "would fail again: a smaller --lr, more --warmup or --clip 1 makes it another run, with "
                "another --out"
            )

    def _last_checkpoint(self) -> str:
        if self._saved_step is None:
            return "There is no checkpoint yet"
        return f"The last checkpoint, of step {self._saved_step}, is whole"

    def _save(self, step: int) -> None:
        if not self.launch.in_memory:
            with self._writing():
                self._log.sync()
            self._refuse_nan(step)
            times = {"seconds": self._seconds(), "keep_every": self.launch.snapshots}
            self.processes.first(lambda: checkpoint.save(self.folder, self.state, step=step, **times))
            self._saved_step, self._saved_at = step, time.monotonic()
