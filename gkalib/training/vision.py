"""The training loop of classifiers of images, in reading order, from a run to a record."""

from collections.abc import Iterator
from statistics import median

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.data import DataLoader

from gkalib import results
from gkalib.data.image_set import ImageData
from gkalib.data.photos import image_data
from gkalib.evaluation import accuracy_of, accuracy_sums
from gkalib.training import curve
from gkalib.training.distributed import World, start
from gkalib.training.order import Order
from gkalib.training.pictures import Pictures, held_out
from gkalib.training.run import Launch, VisionRun
from gkalib.training.session import Session

LATE = 0.1  # of the steps, over which the training loss of the record is the mean


def train(run: VisionRun, launch: Launch) -> results.Record:
    """Train a classifier of images and measure it on pictures that were held out.

    The record has ``top1``, ``top5`` and ``val_loss`` of the weights after the last step and, with ``ema_``
    before them, of the weights' moving average; ``train_loss``, in mixed and smoothed targets, over the last
    tenth of the steps; how many ``parameters`` there are, how many ``images`` were read, and how many of them
    a second between measurements, in the median.

    Args:
        run: every setting that decides the result.
        launch: where and how.

    Raises:
        ValueError: if pictures are missing, have other classes than the model, or cannot be mixed, or the
            session cannot begin or go on.

    References:
        Touvron et al., Training data-efficient image transformers, 2021. Chapter 21 reads it line by line.
    """
    data = data_of(run, start(launch.device))
    order = Order(len(data.train), run.batch, run.parts, run.seed, repeats=run.augment.repeats)
    with Session(run, launch) as session:
        model = session.build()
        pictures = Pictures(run, data.train, order, session.world, workers=launch.workers)
        held = held_out(run, data.held_out, session.world, workers=launch.workers)
        parts = pictures.parts(session.started)
        for step in session.steps():
            session.begin(step)
            session.update(step, learn(session, model, parts, step))
            if session.due(step):
                session.measured(step, **measure(session, held))
        numbers, rate = summary(session)
        return session.record(measure(session, held) | numbers, rate=rate)


def data_of(run: VisionRun, world: World) -> ImageData:
    """The pictures that a run reads; the main process fetches and unpacks what is then there for all.

    Raises:
        ValueError: if they are missing, or have another number of classes than the model.
    """
    made: list[ImageData] = []
    world.first(lambda: made.append(image_data(run.data, limit=run.limit)))
    data = made[0] if made else image_data(run.data, limit=run.limit)
    if len(data.classes) != run.model.num_classes:
        raise ValueError(
            f"train: {run.data} has {len(data.classes)} classes and the model {run.model.num_classes} "
            "(model.num_classes)"
        )
    return data


def learn(
    session: Session, model: nn.Module, parts: Iterator[tuple[Tensor, Tensor]], step: int
) -> Float[Tensor, ""]:
    """Leave the gradient of a step in the parameters; returns what this process's parts have of its loss.

    The loss is the mean over all pictures of the step, wherever they are computed: each part's sum is divided
    by the batch. So parts add up, of one process or of many.
    """
    total = torch.zeros((), device=session.world.device)
    for number, (images, targets) in zip(session.share, parts, strict=False):
        session.seed(step, number)
        with session.precision():
            loss = nats(model(images), targets) / session.run.batch
        session.backward(loss)
        total += loss.detach()
    return total


def nats(logits: Float[Tensor, "b c"], targets: Float[Tensor, "b c"]) -> Float[Tensor, ""]:
    """The sum of −Σ y ln p in float32; the targets y are distributions, as mixing makes them."""
    return -(targets * logits.float().log_softmax(-1)).sum()


def measure(session: Session, held: DataLoader) -> dict[str, int | float]:
    """Accuracy and loss on held-out pictures, over all processes, of the model and of its average."""
    found: dict[str, int | float] = {}
    for name, model in {"": session.model, "ema_": session.average}.items():
        if model is not None:
            numbers = score(session.run, session.world, model, held)
            found |= {name + key: value for key, value in numbers.items()}
    return found


def score(run: VisionRun, world: World, model: nn.Module, held: DataLoader) -> dict[str, float]:
    """Accuracy and loss of one model on held-out pictures, over all processes."""
    with run.precision(world.device):
        sums = accuracy_sums(model, held)
    numbers = accuracy_of(world.total(sums))
    return {"top1": numbers["top1"], "top5": numbers["top5"], "val_loss": numbers["loss"]}


def summary(session: Session) -> tuple[dict[str, int | float], float]:
    """What a record has beside measurements, and images per second; the curve is the main process's."""
    run, late, speed = session.run, 0.0, 0.0
    if session.world.main:
        rows = [row for row in curve.read(session.folder / curve.FILE) if row.get("loss")]
        losses = [float(row["loss"]) for row in rows if int(row["step"]) > (1 - LATE) * run.steps]
        late, speed = sum(losses) / len(losses), median(float(row["items_per_second"]) for row in rows)
    late, speed = session.world.total(torch.tensor([late, speed], dtype=torch.float64)).tolist()
    parameters = sum(parameter.numel() for parameter in session.model.parameters())
    return {"train_loss": late, "parameters": parameters, "images": run.steps * run.batch}, speed
