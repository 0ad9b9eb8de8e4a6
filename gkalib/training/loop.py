"""The training loop: from settings to a model that trains, and nothing lost on the way."""

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler

from gkalib import results
from gkalib.data.tokenizers import Tokenizer
from gkalib.training import checkpoint, log, trajectory
from gkalib.training.checkpoint import Training
from gkalib.training.config import LanguageConfig, LaunchConfig, TrainConfig
from gkalib.training.distributed import RunLock, exchange, farewell, folder_of, split, start, wrap
from gkalib.training.log import Log
from gkalib.training.optim import FiniteCheck, average, descend, optimizers, set_rates
from gkalib.training.record import items, record_of
from gkalib.training.sampler import key

SAVE, STOP = 1, 2  # what processes agree on after each step


@final
class Trainer:
    """One process's part in a run, from its start, or from where it was interrupted, to its record.

    It is a context: the folder is locked and signals are caught inside it. The state of a run is its
    checkpoint and nothing else, since whatever is random in a step is keyed by the step's number.

    Args:
        run: every setting that decides the result.
        launch: where and how.
        tokenizer: kept in the checkpoints, for text.

    Raises:
        ValueError: if another process writes to the folder, the processes cannot share a step, or the
            tokenizer is of another size than the model's vocabulary.

    Chapter 20 reads a loop that stands on it.
    """

    def __init__(self, run: TrainConfig, launch: LaunchConfig, tokenizer: Tokenizer | None = None):
        if isinstance(run, LanguageConfig) and tokenizer and tokenizer.vocab_size != run.model.vocab_size:
            raise ValueError(
                f"train: the tokenizer has {tokenizer.vocab_size} tokens and the model a vocabulary of "
                f"{run.model.vocab_size} (model.vocab_size)"
            )
        self.run, self.launch = run, launch
        self.tokenizer = tokenizer.to_json() if tokenizer else None
        self.folder = folder_of(run, launch)
        self.processes = start(launch.device)
        self.share = self.processes.share(run.parts)
        self.started = 0
        self.model: nn.Module
        self.average: Any = None
        self._module: nn.Module
        self._training: Training
        self._log: Log | None = None
        self._guard: RunLock | None = None
        self._watch = FiniteCheck(self.processes)
        self._before = 0.0  # seconds of earlier lives
        self._began = self._saved_at = time.monotonic()
        self._saved_step: int | None = None

    def __enter__(self) -> "Trainer":
        """Take the folder and the signals."""
        self.processes.first(self._take)
        self._guard = self._guard or RunLock(self.folder, locks=False)
        self._guard.listen()
        return self

    def __exit__(self, *_: object) -> None:
        """Give them back."""
        if self._log is not None:
            with contextlib.suppress(OSError):
                self._log.close()
        if self._guard is not None:
            self._guard.close()

    def build(self) -> nn.Module:
        """The run's model from its seed, prepared."""
        torch.manual_seed(key(self.run.seed, 4))
        return self.prepare(self.run.build())

    def prepare(self, model: nn.Module) -> nn.Module:
        """Put the model on the device, make what trains it, and go on from a checkpoint if there is one.

        Returns:
            The module to call in training; ``model`` and ``average`` are those to evaluate.

        Raises:
            ValueError: if the checkpoint is damaged or of another run.
        """
        run, launch = self.run, self.launch
        if launch.shard and (run.optimizer == "muon" or run.dtype == "float16"):
            raise ValueError(
                "train: --shard does not go with the Muon optimizer, which needs whole matrices, nor with "
                "float16, whose loss scale must be one for all; leave it out, or use adamw and bfloat16"
            )
        self.model = model.to(self.processes.device)
        self.average = average(self.model, run.ema)
        self._module = wrap(self.processes, self.model, shard=launch.shard, compiled=launch.compile)
        if launch.shard and self.average is not None:
            split(self.processes, self.average.module)
        scaler = GradScaler(self.processes.device.type) if run.dtype == "float16" else None
        made = optimizers(run, self.model)
        self._training = Training(run, self.model, made, self.average, scaler, self.tokenizer)
        self._resume()
        self._log = Log(self.folder, run, self.processes, launch, self.started)
        self._began = self._saved_at = time.monotonic()
        return self._module

    def steps(self) -> Iterator[int]:
        """The numbers of the steps that are still to be done, from 0; saves between them.

        Raises:
            SystemExit: with code 0 after SIGTERM or SIGINT, when the checkpoint is written.
            ValueError: if the loss is no number, or the checkpoint cannot be written.
        """
        self._mark = time.monotonic(), self.started
        for step in range(self.started, self.run.steps):
            yield step
            self._snapshot(step + 1)
            due = time.monotonic() - self._saved_at >= self.launch.save_every and self.processes.main
            agreed = self.processes.most(STOP if self._asked() else SAVE if due else 0)
            if agreed:
                self._save(step + 1)
            if agreed == STOP:
                self._stop(step + 1)
        if self._saved_step != self.run.steps:
            self._save(self.run.steps)

    def begin(self, step: int) -> None:
        """Set the rates of a step; gradients start from nothing."""
        self._rate = set_rates(self.run, step, self._training.optimizers)
        for optimizer in self._training.optimizers:
            optimizer.zero_grad()

    def seed(self, step: int, number: int) -> None:
        """Before a part's forward pass: what is random in it, and whether gradients are exchanged."""
        torch.manual_seed(key(self.run.seed, 3, step, number))
        exchange(self._module, number == self.share[-1])

    def precision(self) -> contextlib.AbstractContextManager:
        """The dtype of products inside it."""
        return self.run.precision(self.processes.device)

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of a part's share of the step's loss; all parts of a step add up to its mean."""
        loss = loss * self.processes.size  # gradients are averaged over processes, and we want their sum
        scaler = self._training.scaler
        (scaler.scale(loss) if scaler else loss).backward()

    def update(self, step: int, loss: Tensor) -> None:
        """Let the optimizers do a step.

        Args:
            step: its number, from 0.
            loss: what this process's parts had of the step's loss.

        Raises:
            ValueError: if it is no number; nothing is saved then.
        """
        norm = descend(self._training)
        loss = loss.detach().to(self.processes.device)
        # A gradient that is too large for float16 is no failure: the scaler leaves that step out.
        self._watch.see(step + 1, *([loss] if self._training.scaler else [loss, norm]))
        if (step + 1) % self.launch.log_every == 0 or step + 1 == self.run.steps:
            self._row(step + 1, loss, norm)
        elif self._log:
            self._log.advance(step + 1)

    def due(self, step: int) -> bool:
        """Whether to measure on held-out data after this step; after the last, the record does."""
        every = self.run.eval_every
        return bool(every) and (step + 1) % every == 0 and step + 1 < self.run.steps

    def measured(self, step: int, **numbers: int | float) -> None:
        """Add what was measured after a step to the curve."""
        self._logged("row", step + 1, **numbers)

    def sample(self, step: int, text: str) -> None:
        """Keep a text that the model wrote after a step."""
        self._logged("sample", step + 1, text)

    def record(self, metrics: dict[str, int | float], rate: float | None = None) -> results.Record:
        """The run's record, which every process gets, kept in the store if the launch says so.

        Args:
            metrics: what was measured after the last step; it becomes the curve's last row.
            rate: images or tokens per second of training; None takes them over the whole run.
        """
        rows = log.read_curve(self.folder / log.CURVE) if self.processes.main else []
        last = [row for row in rows if row["step"] == str(self.run.steps)]
        if not any(row.get(name) for row in last for name in metrics):
            self._logged("row", self.run.steps, **metrics)
        mine = self._seconds() if self.processes.main else 0.0
        seconds = float(self.processes.total(torch.tensor(mine, dtype=torch.float64)))
        rate = rate or round(self.run.steps * items(self.run) / seconds, 1)
        made = record_of(self.run, self.processes, metrics, rate=rate, seconds=seconds)
        if self.launch.keep:
            rows = log.thinned_curve(self.folder / log.CURVE) if self.processes.main else []
            self.processes.first(lambda: results.save(made, rows=rows))
        return made

    def _take(self) -> None:
        self._guard = RunLock(self.folder, locks=True)
        checkpoint.clear(self.folder)

    def _resume(self) -> None:
        launch = self.launch
        if launch.fresh and launch.from_step is not None:
            raise ValueError("train: --fresh deletes the checkpoints that --from-step would go on from")
        path = None if launch.fresh else checkpoint.newest(self.folder, launch.from_step)
        found = checkpoint.step_of(path) if path else 0
        if self.processes.any(found != self.processes.most(found)):
            raise ValueError(f"train: {self.folder} is not the same folder for every process")
        if path is None:
            self.processes.first(lambda: checkpoint.forget(self.folder))  # there may be snapshots
            self._snapshot(0)
            return
        state = checkpoint.restore(path, self._training)
        self.started, self._before, self._saved_step = state.step, state.seconds, state.step
        self.processes.first(lambda: checkpoint.forget(self.folder, after=state.step))

    def _seconds(self) -> float:
        return self._before + time.monotonic() - self._began

    def _row(self, step: int, loss: Tensor, norm: Tensor) -> None:
        total = float(self.processes.total(loss))
        self._refuse_nan(step)
        now = time.monotonic()
        then, done = self._mark
        speed = (step - done) * items(self.run) / max(now - then, 1e-9)
        self._mark = now, step
        numbers = {"loss": total, "lr": self._rate, "grad_norm": float(norm)}
        timings = {"items_per_second": round(speed, 1), "seconds": round(self._seconds(), 1)}
        self._logged("row", step, **numbers, **timings)
        shown = {"loss": f"{total:.4f}", "lr": f"{self._rate:.2e}", "items/s": f"{speed:,.0f}"}
        if self._log:
            self._log.advance(step, **shown)

    def _logged(self, what: str, *given: Any, **numbers: Any) -> None:
        assert self._log is not None
        try:
            getattr(self._log, what)(*given, **numbers)
        except OSError as error:
            said = f"train: {self.folder} cannot be written to: {error.strerror}. {self._last()}"
            raise ValueError(said) from None

    def _refuse_nan(self, step: int) -> None:
        bad = self._watch.first()
        if bad is not None:
            raise ValueError(
                f"train: the loss or its gradient is not a finite number at step {bad}; stopped after step "
                f"{step}, and nothing was saved since. {self._last()}. The same settings would fail again: "
                "a smaller --lr, more --warmup or --clip 1 makes it another run, with another --out"
            )

    def _last(self) -> str:
        if self._saved_step is None:
            return "There is no checkpoint yet"
        return f"The last checkpoint, of step {self._saved_step}, is whole"

    def _save(self, step: int) -> None:
        self._logged("sync")
        self._write(partial(checkpoint.save, seconds=self._seconds()), step)
        self._saved_step, self._saved_at = step, time.monotonic()

    def _snapshot(self, step: int) -> None:
        if trajectory.due(step, every=self.launch.snapshots, last=self.run.steps):
            self._write(trajectory.keep, step)

    def _write(self, what: Callable[..., object], step: int) -> None:
        self._refuse_nan(step)
        # Every process takes part where parameters are split; only the main one can fail.
        problem = ""
        try:
            what(self.folder, self._training, step=step)
        except ValueError as error:
            problem = str(error)
        self.processes.refuse(problem)

    def _asked(self) -> int:
        """The signal that this process was sent, 0 for none."""
        return self._guard.signal if self._guard else 0

    def _stop(self, step: int) -> None:
        if self._log:
            self._log.say(farewell(self.run, self.launch, step=step, number=self._asked()))
        raise SystemExit(0)
