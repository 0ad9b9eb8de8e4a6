"""How fast pictures and text come out of the loaders, beside what a model asks for on an H100."""

import statistics
import time
from collections.abc import Callable
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import default_collate

from gkalib.bench import timing
from gkalib.bench.problems import Recipe
from gkalib.bench.timing import Row
from gkalib.data.folders import Files
from gkalib.data.image_set import Arrays, Images, as_picture
from gkalib.data.rows import Documents, Packed, Rows, Windows
from gkalib.training import recipe
from gkalib.training.config import LOADERS, LanguageConfig, TrainConfig, VisionConfig
from gkalib.training.language import ORDERS
from gkalib.training.launch import PEAK, SHARE, cost
from gkalib.training.sampler import Sampler
from gkalib.training.vision import Samples, training_transform

# Shape -> the runs that it feeds, each by recipe, arm and scale; they load alike, and the first is timed.
FED = {
    "pictures-32": [("gka-imagenet-tiny", "deit", "reduced"), ("gka-imagenet-tiny", "gka", "reduced")],
    "pictures-224": [("karat-cifar10", "tiny-softmax", "full"), ("karat-cifar10", "base-softmax", "full")],
    "photographs": [
        *(("gka-imagenet-tiny", arm, "full") for arm in ("deit", "gka")),
        *(("gka-imagenet-base", arm, "full") for arm in ("deit", "gka")),
    ],
    "windows": [("gpa-dickens", "rope", "full")],
    "documents": [("rbf-tinystories", "standard", "full")],
    "packed": [("gka-nanochat-d20", arm, "full") for arm in ("baseline", "gka")],
}
AT_ONCE = 64  # pictures of a timed call
PHOTOGRAPH = (375, 500)  # height and width of a typical picture of ImageNet
QUALITY = 90  # at which such a picture takes about as many bytes as one of ImageNet
FILES = 48
Load = Callable[[int], tuple[Tensor, Tensor]]


def shapes(scale: str, device: str) -> dict[str, Recipe]:
    """One a kind of data; none on a GPU, which loads nothing."""
    if device == "cuda":
        return {}
    names = ("pictures-32", "windows") if scale == "smoke" else FED
    seconds = {"smoke": 0.1, "reduced": 1.0, "full": 3.0}[scale]
    return {
        name: {"shape": name, "device": device, "scale": scale, "seconds": seconds, "runs": FED[name]}
        for name in names
    }


def time_loading(case: Recipe) -> list[Row]:
    """One row for each model that a kind of data feeds: what one core loads, and what the model asks for.

    Times are of one core's work, not of the clock, so that other programs do not count. ``needed_per_second``
    is an estimate: what an H100 trains on if it does 30 per cent of its dense bf16 peak. ``processes`` is how
    many cores load as much. Pictures are loaded by other processes while the model computes, LOADERS of them
    here; text is read by the training process itself. ``starves_ms`` is the time of a step below which the
    model waits for its data, ``step_ms`` the estimated time of a step.

    Raises:
        AssertionError: if what is loaded is not a function of the step, or has the wrong shape.
    """
    torch.set_num_threads(1)
    runs = [_run(*names) for names in case["runs"]]
    with TemporaryDirectory() as folder:
        load, kilobytes = _loader(runs[0], case["shape"], Path(folder))
        items = _check(load, runs[0])
        columns = timing.columns(_times(load, case["seconds"]))
    rate = 1e3 * items / columns["ms"]
    rows = []
    for (name, arm, _), run in zip(case["runs"], runs, strict=True):
        costs = cost(run)
        needed = PEAK * SHARE * costs.items / costs.operations
        step = costs.items / run.steps
        loaders = LOADERS if isinstance(run, VisionConfig) else 1
        rows.append(
            {
                "arm": f"{name}/{arm}",
                "batch": run.batch,
                **columns,
                "items_per_second": rate,
                "needed_per_second": needed,
                "processes": needed / rate,
                "starves_ms": 1e3 * step / rate / loaders,
                "step_ms": 1e3 * step / needed,
                "items": items,
                "loaders": loaders,
                "kilobytes": kilobytes,
            }
        )
    return rows


def summarize(rows: list[Row]) -> dict[str, float]:
    """What one core loads, and for each model what it asks for."""
    metrics = {name: rows[0][name] for name in ("items_per_second", "ms", "ms_q10", "ms_q90", "kilobytes")}
    for row in rows:
        arm = row["arm"].replace("-", "_").replace("/", "_")
        for name in ("needed_per_second", "processes", "starves_ms", "step_ms"):
            metrics[f"{arm}_{name}"] = row[name]
    return metrics


def _run(name: str, arm: str, scale: str) -> TrainConfig:
    full = recipe(name).run(arm)
    return full.reduced("cuda") if scale == "reduced" else full


def _loader(run: TrainConfig, shape: str, folder: Path) -> tuple[Load, float]:
    """What loads the part of a step with that number, and the size of a stored item in kB."""
    random = np.random.default_rng(0)
    if isinstance(run, VisionConfig):
        images, kilobytes = (_photographs if shape == "photographs" else _arrays)(random, folder)
        return _of_pictures(run, images), kilobytes
    assert isinstance(run, LanguageConfig)
    context, vocabulary = run.model.context, min(run.model.vocab_size, 50_000)
    kind = np.uint8 if run.rows == "windows" else np.uint16
    if run.rows == "windows":
        rows: Rows = Windows(random.integers(0, vocabulary, 12_000_000, dtype=kind), context)
    else:
        # more rows than the steps of a measurement read, so that it reads each once, as training does
        table = random.integers(0, vocabulary, (40_960_000 // context, context + 1), dtype=kind)
        np.save(folder / "rows.npy", table)
        array = np.load(folder / "rows.npy", mmap_mode="r")
        rows = Packed(array) if run.rows == "packed" else Documents(array)
    return _of_text(run, rows), context * np.dtype(kind).itemsize / 1e3


def _of_pictures(run: VisionConfig, images: Images) -> Load:
    """What a process that loads does for one part, and the training process to number its pictures."""
    order = Sampler(len(images), AT_ONCE, 1, run.seed)
    augmented = Samples(images, training_transform(run))

    def load(step: int) -> tuple[Tensor, Tensor]:
        part = order.part(step, 0)
        samples = [augmented[key] for key in zip(part.rows.tolist(), part.keys, strict=True)]
        images, labels = default_collate(samples)
        return images, labels

    return load


def _of_text(run: LanguageConfig, rows: Rows) -> Load:
    order = Sampler(len(rows), run.batch, run.parts, run.seed, ORDERS[run.rows])
    return lambda step: rows.batch(order.part(step, 0).rows)


def _arrays(random: np.random.Generator, _: Path) -> tuple[Images, float]:
    """As many pictures as CIFAR has to train on, of its size."""
    pixels = random.integers(0, 256, (50_000, 32, 32, 3), dtype=np.uint8)
    return Arrays(pixels, np.zeros(len(pixels), np.int64)), pixels[0].nbytes / 1e3


def _photographs(random: np.random.Generator, folder: Path) -> tuple[Images, float]:
    """JPEG files whose spectra fall as those of photographs do, as large as ImageNet's are on average."""
    height, width = PHOTOGRAPH
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width))
    frequency[0, 0] = np.inf
    names = [f"{number}.jpeg" for number in range(FILES)]
    for name in names:
        waves = np.fft.rfft2(random.standard_normal((3, height, width))) / frequency
        field = np.fft.irfft2(waves, s=(height, width))
        # channels go together, as in nature: mostly gray
        field = field[0] + 0.3 * field
        pixels = 128 + 55 * (field - field.mean()) / field.std()
        picture = as_picture(pixels.clip(0, 255).astype(np.uint8).transpose(1, 2, 0))
        picture.save(folder / name, quality=QUALITY)
    size = statistics.mean((folder / name).stat().st_size for name in names)
    labels = np.zeros(FILES, np.int64)
    return Files(folder, np.array([name.encode() for name in names]), labels), size / 1e3


def _check(load: Load, run: TrainConfig) -> int:
    """How many pictures or tokens a part has, once it is clear that loading is a function of the step."""
    (inputs, labels), repeat, other = load(0), load(0), load(1)
    assert torch.equal(inputs, repeat[0]) and torch.equal(labels, repeat[1]), (
        "a part is not the same one twice"
    )
    assert not torch.equal(inputs, other[0]), "two parts are the same"
    if isinstance(run, VisionConfig):
        side = run.model.image_size
        assert inputs.shape == (AT_ONCE, run.model.channels, side, side), f"pictures of shape {inputs.shape}"
        return AT_ONCE
    assert inputs.shape == labels.shape and len(inputs) == run.part, f"rows of shape {inputs.shape}"
    return prod(inputs.shape)


def _times(load: Load, seconds: float) -> list[float]:
    """One core's work for each of several parts, by its own clock, so that other programs do not count."""
    ms: list[float] = []
    while len(ms) < 5 or (sum(ms) < 1e3 * seconds and len(ms) < 400):
        start = time.process_time()
        load(2 + len(ms))
        ms.append(1e3 * (time.process_time() - start))
    return ms
