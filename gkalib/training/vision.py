"""Classifiers of images: pictures augmented, loaded ahead and mixed; their loss and what is measured."""

import hashlib
import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from gkalib.data import folders
from gkalib.data.folders import Files
from gkalib.data.image_set import ImageData, Images
from gkalib.data.images import image_data
from gkalib.data.registry import checksum
from gkalib.evaluation import accuracy
from gkalib.extras import needed_by
from gkalib.training.config import LOADERS, VisionConfig
from gkalib.training.distributed import Processes
from gkalib.training.loop import Part, Workload
from gkalib.training.sampler import Sampler, key

with needed_by("a run on pictures"):
    from PIL import Image, ImageOps
    from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
    from timm.data.mixup import Mixup, mixup_target
    from timm.data.transforms_factory import create_transform
    from torchvision import transforms

MIDDLE = 4096  # bytes of its file by which a picture is known
Transform = Callable[[Image.Image], Tensor]


def load_data(config: VisionConfig, processes: Processes) -> tuple[VisionConfig, ImageData]:
    """The pictures that a run reads, and its configuration for them.

    The main process fetches and unpacks what is then there for all. A folder of one's own gives the model its
    number of classes; a measurement reads at most the pictures that are held out.

    Args:
        config: the settings.
        processes: of the run.

    Raises:
        ValueError: if the data is not here, or has other classes than the model.
    """
    data = processes.in_turn(lambda: image_data(config.data, limit=config.limit))
    classes, held_out = len(data.classes), len(data.held_out)
    if config.own_data:
        config = replace(config, model=replace(config.model, num_classes=classes))
    if classes != config.model.num_classes:
        raise ValueError(
            f"train: {config.data} has {classes} classes and the model {config.model.num_classes} "
            "(model.num_classes)"
        )
    if config.eval_images is not None and config.eval_images > held_out:
        if processes.main:
            print(
                f"train: {held_out} pictures are held out, fewer than {config.eval_images}: all are measured",
                file=sys.stderr,
            )
        config = replace(config, eval_images=None)
    return config, data


@final
class ImageWorkload(Workload):
    """Pictures of a run, augmented and mixed, and what is measured on those that were held out.

    What a picture looks like depends on its key in the order, and how a part is mixed on its number, so that
    it is the same whatever the number of processes and of workers. ``top1``, ``top5`` and ``val_loss`` are
    measured.

    Args:
        config: the settings.
        data: the pictures.
        processes: which parts are this one's, and where they are computed.
        workers: processes that load ahead; 0 loads here, None is for ``default_workers`` to say.

    Raises:
        ValueError: if the parts of a step cannot be mixed, or there are too few pictures to measure on.
    """

    config: VisionConfig
    data: ImageData

    def __init__(
        self, config: VisionConfig, data: ImageData, processes: Processes, *, workers: int | None = None
    ):
        super().__init__(config, processes)
        self.data, self.classes = data, data.classes
        self.workers = default_workers(processes) if workers is None else workers
        repeats = config.augment.repeats
        self.sampler = Sampler(len(data.train), config.batch, config.parts, config.seed, repeats=repeats)
        self.samples = Samples(data.train, training_transform(config))
        self.mix = mixer(config)
        self.held_out = held_out(config, data.held_out, processes, workers=self.workers)

    def checksum(self, part: Any) -> str:
        """The registry's of known pictures; of a folder that of names, labels, sizes, and some bytes."""
        if not self.config.own_data:
            return checksum(self.config.data)
        assert isinstance(part, Files)
        hasher = hashlib.sha256()
        for name, label in zip(map(bytes, part.names), part.labels, strict=True):
            with (part.root / os.fsdecode(name)).open("rb") as stream:
                size = stream.seek(0, os.SEEK_END)
                stream.seek(max(0, (size - MIDDLE) // 2))
                hasher.update(f"{name} {label} {size}".encode() + stream.read(MIDDLE))
        return hasher.hexdigest()

    def check(self, *, quiet: bool) -> None:
        """Decode every picture of a folder of one's own."""
        if self.config.own_data:
            folders.check_pictures(self.data, quiet=quiet)

    def parts(self, start: int) -> Iterator[Part]:
        """Pictures ``[n c s s]`` and targets ``[n classes]`` of this process's parts, from a step on."""
        parts = (self.sampler.part(*place) for place in self._places(start))
        rows = (list(zip(part.rows.tolist(), part.keys, strict=True)) for part in parts)
        batches = _loader(self.samples, rows, self.workers, self.processes)
        for place, batch in zip(self._places(start), batches, strict=True):
            images, labels = (part.to(self.processes.device, non_blocking=True) for part in batch)
            images, targets = self.mix(images, labels, key(self.config.seed, 3, *place))
            yield images, targets, self.config.batch

    def _places(self, start: int) -> Iterator[tuple[int, int]]:
        return ((step, number) for step in range(start, self.config.steps) for number in self.share)

    def nats(self, outputs: Float[Tensor, "b c"], labels: Float[Tensor, "b c"]) -> Float[Tensor, ""]:
        """The sum of −Σ y ln p in float32; the targets y are distributions, as mixing makes them."""
        return -(labels * outputs.float().log_softmax(-1)).sum()

    def measure(self, model: nn.Module) -> dict[str, float]:
        """Accuracy and loss on held-out pictures, over all processes."""
        with self.config.precision(self.processes.device):
            numbers = accuracy(model, self.held_out, total=self.processes.total)
        return {"top1": numbers["top1"], "top5": numbers["top5"], "val_loss": numbers["loss"]}


def default_workers(processes: Processes) -> int:
    """How many processes load pictures beside each that trains on a GPU; on a CPU training has the cores."""
    if processes.device.type == "cpu":
        return 0
    local_processes = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    return max(0, min(LOADERS, (os.cpu_count() or 1) // local_processes - 1))


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


def training_transform(config: VisionConfig) -> Transform:
    """From a picture to the ``[c s s]`` that is learned from: crop, flip, colors, normalization, erasing.

    Crops are resized by bicubic interpolation, and what is erased becomes normal noise pixel by pixel, as in
    DeiT. Pictures in color are normalized by ImageNet's mean and deviation whatever the data, gray ones by ½
    and ½.
    """
    augment, size = config.augment, config.model.image_size
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
        **_scale(config),
    )
    first, colors, last = stages
    for operation in [op for step in colors.transforms for op in getattr(step, "ops", [])]:
        if operation.name.startswith("Posterize"):
            operation.aug_fn = _posterize
    if augment.crop is None:
        resize = transforms.Resize(size, transforms.InterpolationMode.BICUBIC), transforms.CenterCrop(size)
        first = transforms.Compose([*resize, transforms.RandomHorizontalFlip(augment.flip)])
    return transforms.Compose([_mode(config), first, colors, last])


def evaluation_transform(config: VisionConfig) -> Transform:
    """From a picture to the ``[c s s]`` that is classified: resized, and its middle cut out.

    The shorter side becomes s / ``eval_crop`` pixels, by bicubic interpolation; the middle is s × s.
    """
    transform = create_transform(
        config.model.image_size, crop_pct=config.eval_crop, interpolation="bicubic", **_scale(config)
    )
    return transforms.Compose([_mode(config), transform])


def augmented(config: VisionConfig, image: Image.Image, seed: int) -> Float[Tensor, "c s s"]:
    """One image as a run sees it, before mixing, with random numbers from a seed. Chapter 23 shows some."""
    with seeded(seed):
        return training_transform(config)(image)


def mixer(config: VisionConfig) -> Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]:
    r"""What mixes the pictures of a part with one another, and makes targets of their labels.

    $$\tilde x_i = \lambda x_i + (1 - \lambda) x_{n-1-i}, \qquad
    \tilde y_i = \lambda y_i + (1 - \lambda) y_{n-1-i}$$

    with one λ a part, drawn from Beta(α, α): Mixup; CutMix pastes a rectangle with the share 1 − λ of the
    area instead. y is one-hot, smoothed. The function takes pictures ``[n c s s]``, labels ``[n]`` and a key,
    and returns pictures and targets ``[n classes]``.

    References:
        Zhang et al., mixup, 2018; Yun et al., CutMix, 2019; Szegedy et al., 2016, on smoothing. Chapter 23
        uses them.
    """
    augment, classes, smoothing = config.augment, config.model.num_classes, config.smoothing
    if not (augment.mixup or augment.cutmix):
        return lambda images, labels, _: (images, mixup_target(labels, classes, 1.0, smoothing))
    if config.part % 2:
        raise ValueError(
            "train: mixup and cutmix mix the pictures of a part in pairs, so that device_batch must be even, "
            f"not {config.part}"
        )
    mix = Mixup(
        mixup_alpha=augment.mixup,
        cutmix_alpha=augment.cutmix,
        prob=augment.mix,
        switch_prob=augment.switch,
        label_smoothing=smoothing,
        num_classes=classes,
    )

    def mix_part(images: Tensor, labels: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        with seeded(seed):
            return mix(images, labels)

    return mix_part


def held_out(config: VisionConfig, images: Images, processes: Processes, *, workers: int = 0) -> DataLoader:
    """This process's share of the held-out pictures, in batches of pictures and labels.

    No picture is left out or taken twice, and every process has the same number of batches: the rows are cut
    into blocks of nearly equal length, and a process takes every ``size``-th row of each.
    """
    count = len(images) if config.eval_images is None else config.eval_images
    if not processes.size <= count <= len(images):
        raise ValueError(
            f"train: of {len(images)} held-out pictures, {processes.size} processes cannot measure on {count}"
        )
    block = max(2, config.part) * processes.size
    blocks = np.array_split(np.arange(count) * len(images) // count, -(-count // block))
    rows = [[(row, 0) for row in block[processes.rank :: processes.size].tolist()] for block in blocks]
    return _loader(Samples(images, evaluation_transform(config)), rows, workers, processes)


@final
class Samples(Dataset):
    """Pictures through a transform, each drawn from a key that comes with its row."""

    def __init__(self, images: Images, transform: Transform):
        self.images, self.transform = images, transform

    def __getitem__(self, sample: tuple[int, int]) -> tuple[Tensor, int]:
        row, seed = sample
        with seeded(seed):
            return self.transform(self.images.picture(row)), int(self.images.labels[row])


def _loader(samples: Samples, rows: Any, workers: int, processes: Processes) -> DataLoader:
    """Batches of the samples named, in that order, loaded ahead by so many processes."""
    return DataLoader(
        samples,
        batch_sampler=rows,
        num_workers=workers,
        persistent_workers=workers > 0,
        pin_memory=processes.device.type == "cuda",
        generator=torch.Generator(),  # a seed for its workers, which no sample uses
    )


def _scale(config: VisionConfig) -> dict[str, Any]:
    """What values are shifted and divided by: ImageNet's mean and deviation in color, ½ and ½ in gray."""
    if config.model.channels == 3:
        return {"mean": IMAGENET_DEFAULT_MEAN, "std": IMAGENET_DEFAULT_STD}
    return {"mean": (0.5,), "std": (0.5,)}


def _mode(config: VisionConfig) -> Callable[[Image.Image], Image.Image]:
    """Gray or color, whatever the file has."""
    if config.model.channels not in (1, 3):
        raise ValueError(f"train: pictures have 1 or 3 channels, the model {config.model.channels}")
    return partial(Image.Image.convert, mode="L" if config.model.channels == 1 else "RGB")


def _posterize(picture: Image.Image, bits: int, **_: Any) -> Image.Image:
    """So many bits of each value; none is black, as RandAugment means it and Pillow 13 no longer allows."""
    if bits < 1:
        return Image.new(picture.mode, picture.size)
    return picture if bits >= 8 else ImageOps.posterize(picture, bits)
