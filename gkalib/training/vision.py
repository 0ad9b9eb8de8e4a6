"""Classifiers of images: pictures augmented, loaded ahead and mixed; the loss and what is measured."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image, ImageOps
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from gkalib import results
from gkalib.data.image_set import ImageData, Images
from gkalib.data.images import image_data
from gkalib.evaluation import accuracy_of, accuracy_sums
from gkalib.training import log
from gkalib.training.config import LaunchConfig, VisionConfig
from gkalib.training.distributed import Processes, start
from gkalib.training.loop import Trainer
from gkalib.training.sampler import Sampler, key

LATE = 0.1  # of the steps, over which the training loss of the record is the mean


def train(run: VisionConfig, launch: LaunchConfig) -> results.Record:
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
            trainer cannot begin or go on.

    References:
        Touvron et al., Training data-efficient image transformers, 2021. Chapter 21 reads it line by line.
    """
    data = data_of(run, start(launch.device))
    order = Sampler(len(data.train), run.batch, run.parts, run.seed, repeats=run.augment.repeats)
    with Trainer(run, launch) as trainer:
        model = trainer.build()
        pictures = Pictures(run, data.train, order, trainer.processes, workers=launch.workers)
        held = held_out(run, data.held_out, trainer.processes, workers=launch.workers)
        parts = pictures.parts(trainer.started)
        for step in trainer.steps():
            trainer.begin(step)
            trainer.update(step, learn(trainer, model, parts, step))
            if trainer.due(step):
                trainer.measured(step, **measure(trainer, held))
        numbers, rate = summary(trainer)
        return trainer.record(measure(trainer, held) | numbers, rate=rate)


def data_of(run: VisionConfig, processes: Processes) -> ImageData:
    """The pictures that a run reads; the main process fetches and unpacks what is then there for all.

    Raises:
        ValueError: if they are missing, or have another number of classes than the model.
    """
    made: list[ImageData] = []
    processes.first(lambda: made.append(image_data(run.data, limit=run.limit)))
    data = made[0] if made else image_data(run.data, limit=run.limit)
    if len(data.classes) != run.model.num_classes:
        raise ValueError(
            f"train: {run.data} has {len(data.classes)} classes and the model {run.model.num_classes} "
            "(model.num_classes)"
        )
    return data


def learn(
    trainer: Trainer, model: nn.Module, parts: Iterator[tuple[Tensor, Tensor]], step: int
) -> Float[Tensor, ""]:
    """Leave the gradient of a step in the parameters; returns what this process's parts have of its loss.

    The loss is the mean over all pictures of the step, wherever they are computed: each part's sum is divided
    by the batch. So parts add up, of one process or of many.
    """
    total = torch.zeros((), device=trainer.processes.device)
    for number, (images, targets) in zip(trainer.share, parts, strict=False):
        trainer.seed(step, number)
        with trainer.precision():
            loss = nats(model(images), targets) / trainer.run.batch
        trainer.backward(loss)
        total += loss.detach()
    return total


def nats(logits: Float[Tensor, "b c"], targets: Float[Tensor, "b c"]) -> Float[Tensor, ""]:
    """The sum of −Σ y ln p in float32; the targets y are distributions, as mixing makes them."""
    return -(targets * logits.float().log_softmax(-1)).sum()


def measure(trainer: Trainer, held: DataLoader) -> dict[str, int | float]:
    """Accuracy and loss on held-out pictures, over all processes, of the model and of its average."""
    found: dict[str, int | float] = {}
    for name, model in {"": trainer.model, "ema_": trainer.average}.items():
        if model is not None:
            numbers = score(trainer.run, trainer.processes, model, held)
            found |= {name + key: value for key, value in numbers.items()}
    return found


def score(run: VisionConfig, processes: Processes, model: nn.Module, held: DataLoader) -> dict[str, float]:
    """Accuracy and loss of one model on held-out pictures, over all processes."""
    with run.precision(processes.device):
        sums = accuracy_sums(model, held)
    numbers = accuracy_of(processes.total(sums))
    return {"top1": numbers["top1"], "top5": numbers["top5"], "val_loss": numbers["loss"]}


def summary(trainer: Trainer) -> tuple[dict[str, int | float], float]:
    """What a record has beside measurements, and images per second; the curve is the main process's."""
    run, late, speed = trainer.run, 0.0, 0.0
    if trainer.processes.main:
        rows = [row for row in log.read_curve(trainer.folder / log.CURVE) if row.get("loss")]
        losses = [float(row["loss"]) for row in rows if int(row["step"]) > (1 - LATE) * run.steps]
        late, speed = sum(losses) / len(losses), median(float(row["items_per_second"]) for row in rows)
    late, speed = trainer.processes.total(torch.tensor([late, speed], dtype=torch.float64)).tolist()
    parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    return {"train_loss": late, "parameters": parameters, "images": run.steps * run.batch}, speed


Transform = Callable[[Image.Image], Tensor]


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Whatever is drawn inside comes from this seed; the generators are left as they were found.

    timm draws from the global generators of Python, NumPy and PyTorch. A run has no state of theirs to save:
    each use of them begins from a key.
    """
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        random.seed(seed)
        np.random.seed([seed & 0xFFFFFFFF, seed >> 32])
        torch.default_generator.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


def training_transform(run: VisionConfig) -> Transform:
    """From a picture to the ``[c s s]`` that is learned from: crop, flip, colors, normalization, erasing.

    Crops are resized by bicubic interpolation, and what is erased becomes normal noise pixel by pixel, as in
    DeiT. Pictures in color are normalized by ImageNet's mean and deviation whatever the data, gray ones by ½
    and ½.
    """
    # Imported here: the recipes of text need no timm.
    from timm.data.transforms_factory import create_transform
    from torchvision import transforms

    augment, size = run.augment, run.model.image_size
    stages: Any = create_transform(
        size,
        is_training=True,
        separate=True,
        scale=augment.crop or (1.0, 1.0),
        ratio=augment.ratio,
        hflip=augment.flip,
        color_jitter=augment.jitter,
        auto_augment=augment.policy,
        interpolation="bicubic",
        re_prob=augment.erase,
        re_mode="pixel",
        **_scale(run),
    )
    first, colors, last = stages
    for operation in [one for step in colors.transforms for one in getattr(step, "ops", [])]:
        if operation.name.startswith("Posterize"):
            operation.aug_fn = _posterized
    if augment.crop is None:
        whole = _resized(size)
        first = transforms.Compose([*whole, transforms.RandomHorizontalFlip(augment.flip)])
    return transforms.Compose([_mode(run), first, colors, last])


def evaluation_transform(run: VisionConfig) -> Transform:
    """From a picture to the ``[c s s]`` that is classified: resized, and its middle cut out.

    The shorter side becomes s / ``eval_crop`` pixels, by bicubic interpolation; the middle is s × s.
    """
    from timm.data.transforms_factory import create_transform
    from torchvision import transforms

    middle = create_transform(
        run.model.image_size, crop_pct=run.eval_crop, interpolation="bicubic", **_scale(run)
    )
    return transforms.Compose([_mode(run), middle])


def mixer(run: VisionConfig) -> Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]:
    r"""What mixes the pictures of a part with one another, and makes targets of their labels.

    $$\tilde x_i = \lambda x_i + (1 - \lambda) x_{n-1-i}, \qquad
    \tilde y_i = \lambda y_i + (1 - \lambda) y_{n-1-i}$$

    with one λ a part, drawn from Beta(α, α): Mixup; CutMix pastes a rectangle with the share 1 − λ of the
    area instead. y is one-hot, smoothed. The function takes pictures ``[n c s s]``, labels ``[n]`` and a key,
    and returns pictures and targets ``[n classes]``.

    Raises:
        ValueError: if parts have an odd number of pictures, which cannot be mixed in pairs.

    References:
        Zhang et al., mixup, 2018; Yun et al., CutMix, 2019; Szegedy et al., 2016, on smoothing. Chapter 21
        uses them.
    """
    from timm.data.mixup import Mixup, mixup_target

    augment, classes, smoothing = run.augment, run.model.num_classes, run.smoothing
    if not (augment.mixup or augment.cutmix):
        return lambda images, labels, _: (images, mixup_target(labels, classes, 1.0, smoothing))
    if run.device_batch % 2:
        raise ValueError(
            "train: mixup and cutmix mix the pictures of a part in pairs, so that device_batch must be even, "
            f"not {run.device_batch}"
        )
    mix = Mixup(
        mixup_alpha=augment.mixup,
        cutmix_alpha=augment.cutmix,
        prob=augment.mix,
        switch_prob=augment.switch,
        label_smoothing=smoothing,
        num_classes=classes,
    )

    def mixed(images: Tensor, labels: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        with seeded(seed):
            return mix(images, labels)

    return mixed


@final
class Pictures:
    """The parts of a run's steps that one process computes, augmented and mixed.

    What a picture looks like depends on its key in the order, and how a part is mixed on its number, so that
    it is the same whatever the number of processes and of workers.

    Args:
        run: the settings.
        images: the training pictures.
        order: which of them each part of a step reads.
        processes: which parts are this process's, and where they are computed.
        workers: processes that load ahead; 0 loads here.

    Raises:
        ValueError: if the processes cannot share the parts of a step, or parts cannot be mixed.
    """

    def __init__(
        self, run: VisionConfig, images: Images, order: Sampler, processes: Processes, *, workers: int = 0
    ):
        self.run, self.order, self.processes, self.workers = run, order, processes, workers
        self.mine = processes.share(run.parts)
        self.samples = _Samples(images, training_transform(run))
        self.mix = mixer(run)

    def parts(self, start: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Pictures ``[n c s s]`` and targets ``[n classes]`` of this process's parts, from a step on."""
        ordered = (self.order.part(*place) for place in self._places(start))
        rows = (list(zip(part.rows.tolist(), part.keys, strict=True)) for part in ordered)
        loaded = _loader(self.samples, rows, self.workers, self.processes)
        for place, (images, labels) in zip(self._places(start), loaded, strict=True):
            device = self.processes.device
            images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
            yield self.mix(images, labels, key(self.run.seed, 3, *place))

    def _places(self, start: int) -> Iterator[tuple[int, int]]:
        return ((step, number) for step in range(start, self.run.steps) for number in self.mine)


def held_out(run: VisionConfig, images: Images, processes: Processes, *, workers: int = 0) -> DataLoader:
    """This process's share of the held-out pictures, in batches of pictures and labels.

    No picture is left out or taken twice, and every process has the same number of batches: the rows are cut
    into blocks of nearly equal length, and a process takes every ``size``-th row of each.

    Raises:
        ValueError: if there are fewer pictures than processes, or than ``eval_images``.
    """
    count = len(images) if run.eval_images is None else run.eval_images
    if not processes.size <= count <= len(images):
        raise ValueError(
            f"train: of {len(images)} held-out pictures, {processes.size} processes cannot measure on {count}"
        )
    block = max(2, run.device_batch) * processes.size
    blocks = np.array_split(np.arange(count) * len(images) // count, -(-count // block))
    rows = [[(row, 0) for row in block[processes.rank :: processes.size].tolist()] for block in blocks]
    return _loader(_Samples(images, evaluation_transform(run)), rows, workers, processes)


@final
class _Samples(Dataset):
    """Pictures through a transform, each drawn from a key that comes with its row."""

    def __init__(self, images: Images, transform: Transform):
        self.images, self.transform = images, transform

    def __getitem__(self, sample: tuple[int, int]) -> tuple[Tensor, int]:
        row, seed = sample
        with seeded(seed):
            return self.transform(self.images.picture(row)), int(self.images.labels[row])


def _loader(samples: _Samples, rows: Any, workers: int, processes: Processes) -> DataLoader:
    """Batches of the samples named, in that order, loaded ahead by so many processes."""
    return DataLoader(
        samples,
        batch_sampler=rows,
        num_workers=workers,
        persistent_workers=workers > 0,
        pin_memory=processes.device.type == "cuda",
        generator=torch.Generator(),  # a seed for its workers, which no sample uses
    )


def _scale(run: VisionConfig) -> dict[str, Any]:
    """What values are shifted and divided by: ImageNet's mean and deviation in color, ½ and ½ in gray."""
    from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD

    if run.model.channels == 3:
        return {"mean": IMAGENET_DEFAULT_MEAN, "std": IMAGENET_DEFAULT_STD}
    return {"mean": (0.5,), "std": (0.5,)}


def _mode(run: VisionConfig) -> Callable[[Image.Image], Image.Image]:
    """Gray or color, whatever the file has."""
    if run.model.channels not in (1, 3):
        raise ValueError(f"train: pictures have 1 or 3 channels, the model {run.model.channels}")
    mode = "L" if run.model.channels == 1 else "RGB"
    return partial(_converted, mode)


def _converted(mode: str, picture: Image.Image) -> Image.Image:
    return picture if picture.mode == mode else picture.convert(mode)


def _posterized(picture: Image.Image, bits: int, **_: Any) -> Image.Image:
    """So many bits of each value; none is black, as RandAugment means it and Pillow 13 no longer allows."""
    if bits < 1:
        return Image.new(picture.mode, picture.size)
    return picture if bits >= 8 else ImageOps.posterize(picture, bits)


def _resized(size: int) -> list[Callable[[Any], Any]]:
    from torchvision import transforms

    bicubic = transforms.InterpolationMode.BICUBIC
    return [transforms.Resize(size, bicubic), transforms.CenterCrop(size)]
