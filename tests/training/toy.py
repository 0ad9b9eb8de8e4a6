"""A short loop on random tokens that stands on a session, as the real ones do; also run as a program."""

import json
import os
import sys
import time
from pathlib import Path
from string import ascii_letters
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from gkalib import results
from gkalib.datasets.tokenizers import Characters
from gkalib.training import LanguageRun, Launch
from gkalib.training.order import Order
from gkalib.training.run import run_of
from gkalib.training.session import Session
from tests.training.runs import text_run


def toy(**changes: Any) -> LanguageRun:
    """Two blocks, an average, a clipped gradient."""
    return text_run(**{"steps": 40, "clip": 1.0, "ema": 0.9, "warmup": 4, "eval_every": 7} | changes)


def fit(run: LanguageRun, launch: Launch, *, pause: float = 0.0, poison: int | None = None) -> results.Record:
    """Train on random tokens; ``pause`` seconds a step; the loss is no number at step ``poison``."""
    size, context = run.model.vocab_size, run.model.context
    tokens = torch.randint(size, (64, context + 1), generator=torch.Generator().manual_seed(1))
    order = Order(len(tokens), run.batch, run.parts, run.seed)
    with Session(run, launch, Characters(ascii_letters[:size])) as session:
        model = session.build()
        for step in session.steps():
            session.begin(step)
            total = torch.zeros((), device=session.world.device)
            for number in session.share:
                rows = tokens[order.part(step, number).rows].to(session.world.device)
                session.seed(step, number)
                noisy = torch.where(torch.rand(rows.shape, device=rows.device) < 0.1, 0, rows)
                with session.precision():
                    logits = model(noisy[:, :-1]).float()
                    loss = cross_entropy(logits.mT, rows[:, 1:], reduction="sum") / (run.batch * context)
                if step == poison:
                    loss = loss * torch.nan
                session.backward(loss)
                total += loss.detach()
            session.update(step, total)
            time.sleep(pause)
            if session.due(step):
                session.measured(step, val_loss=float(total))
                session.sample(step, f"sample of {step}")
        return session.record({"val_loss": 1.0})


def main() -> None:
    """``toy.py RUN LAUNCH``, both JSON; TensorBoard takes seconds to import and is tested elsewhere."""
    sys.modules["torch.utils.tensorboard"] = None  # pyright: ignore
    torch.set_num_threads(1)
    options = json.loads(sys.argv[2])
    extra = {name: options.pop(name) for name in ("pause", "poison") if name in options}
    if "limit" in options:
        import resource
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        limit = options.pop("limit")
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    options["out"] = Path(options["out"])
    run = run_of(json.loads(sys.argv[1]))
    assert isinstance(run, LanguageRun)
    try:
        fit(run, Launch(**options), **extra)
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    main()
