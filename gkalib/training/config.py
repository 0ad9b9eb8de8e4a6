"""What is trained and how: every setting that decides a run's result; and where and how it is computed."""

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, final, get_args, get_origin

import torch
from torch import nn

from gkalib.data.images import is_own_folder
from gkalib.data.tokens import is_own_text
from gkalib.layers import attention
from gkalib.models import GPTConfig, ViTConfig, gpt, vit
from gkalib.training.sampler import key

R = TypeVar("R", bound="TrainConfig")
POLICY = re.compile(r"rand(-(m|n|p|mstd|mmax|inc|t)\d+(\.\d+)?)*")
LOADERS = 15  # processes that load images, on a host of sixteen cores with one card


@dataclass(frozen=True, kw_only=True)
class TrainConfig(ABC):
    """Every setting that decides the result of a training run.

    Args:
        experiment, arm, scale, seed: what its record is called by.
        attention: the name of a variant, or a list for the layers, cycled, of names and of variants with
            options of their own, ``{"name": "gka", "sigma": 2.0}``.
        options: options of the variants given by name.
        data: the name of the data, as ``python -m gkalib data list`` prints it; ``made-up`` is random.
        batch: images or sequences per step, over all processes.
        device_batch: of those, how many go through the model at once; None is all of them. Whatever is random
            in a step is keyed by the number of such a part, not by the process that computes it.
        steps: how many steps.
        optimizer: ``adamw``, or ``muon`` for the matrices of the blocks and AdamW for the rest.
        lr: the peak of the learning rate.
        final_lr: where it ends.
        warmup: steps over which it rises in a line from ``warmup_lr``.
        warmup_lr: where it begins.
        schedule: what follows the warm-up: ``cosine``; ``trapezoid``, which stays up and falls in a line over
            the last ``cooldown`` of the steps; or ``tenth``, a cosine to a tenth of the peak.
        cooldown: a share of the steps.
        weight_decay: of matrices; biases, norms, learned tokens, positions and bandwidths have none.
        betas, eps: of AdamW.
        clip: the largest norm of the gradient; None does not clip.
        rates: factors on the learning rate of the parameters whose names contain the key.
        ema: the decay of the moving average of the weights that is evaluated beside them; None keeps none.
        dtype: of the products: ``float32``, ``bfloat16`` or ``float16``, the last with a loss scale.
        eval_every: steps between two measurements on held-out data; 0 measures at the end only.
        smaller: by the name of a smaller scale, what changes there; nested settings are merged.

    Raises:
        ValueError: if a setting has a value that no run can have.
    """

    # Tokens and positions are learned vectors whatever their shape, what a kernel learns are scales or biases
    # of lags: none of them decays.
    undecayed: ClassVar[tuple[str, ...]] = ("position", "class_token", "register_tokens", ".kernel.")
    kind: ClassVar[str] = "vision"
    unit: ClassVar[str] = "images"  # that training reads
    measured: ClassVar[str] = "eval_images"  # the setting of how many held-out items a measurement reads

    experiment: str
    arm: str
    scale: str = "full"
    seed: int = 0
    attention: Any = "softmax"
    options: dict[str, Any] = field(default_factory=dict)
    data: str
    batch: int
    device_batch: int | None = None
    steps: int
    optimizer: Literal["adamw", "muon"] = "adamw"
    lr: float
    final_lr: float = 0.0
    warmup: int = 0
    warmup_lr: float = 0.0
    schedule: Literal["cosine", "trapezoid", "tenth"] = "cosine"
    cooldown: float = 0.5
    weight_decay: float = 0.05
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    clip: float | None = None
    rates: dict[str, float] = field(default_factory=dict)
    ema: float | None = None
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    eval_every: int = 0
    smaller: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self):
        for name in ("batch", "device_batch", "steps"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise ValueError(f"train: {name} must be at least 1, not {number}")
        for name in ("seed", "lr", "final_lr", "warmup", "warmup_lr", "weight_decay", "eps", "eval_every"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"train: {name} must be zero or more, not {getattr(self, name)}")
        if self.lr and self.warmup > self.steps:  # at a rate of zero nothing warms up
            raise ValueError(f"train: warmup must be at most the run's {self.steps} steps, not {self.warmup}")
        if self.batch % self.part:
            raise ValueError(f"train: batch {self.batch} is no multiple of device_batch {self.device_batch}")
        for setting in fields(self):
            choices, value = get_args(setting.type), getattr(self, setting.name)
            if get_origin(setting.type) is Literal and value not in choices:
                raise ValueError(f"train: {setting.name} must be one of {', '.join(choices)}, not {value!r}")
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"train: clip must be above zero, not {self.clip}; None does not clip")
        if any(factor < 0 for factor in self.rates.values()):
            raise ValueError(f"train: rates must be zero or more, not {self.rates}")
        if self.ema is not None and not 0 <= self.ema < 1:
            raise ValueError(f"train: ema must be at least 0 and below 1, not {self.ema}")
        if not 0 <= self.cooldown <= 1:
            raise ValueError(f"train: cooldown must be a share of the steps from 0 to 1, not {self.cooldown}")

    @abstractmethod
    def build(self) -> nn.Module:
        """The model, untrained."""

    @property
    def own_data(self) -> bool:
        """Whether its data is a folder of pictures or a text file of one's own."""
        return is_own_folder(self.data) if self.kind == "vision" else is_own_text(self.data)

    @property
    def part(self) -> int:
        """How many images or sequences go through the model at once."""
        return self.device_batch or self.batch

    @property
    def parts(self) -> int:
        """How many parts a step has."""
        return self.batch // self.part

    @property
    def items(self) -> int:
        """Images or tokens in a step."""
        return self.batch

    @property
    def model_seed(self) -> int:
        """What the model's initial values are drawn from."""
        return key(self.seed, 4)

    def precision(self, device: torch.device) -> torch.autocast:
        """The dtype of products inside it, in training and when the model is measured."""
        return torch.autocast(device.type, getattr(torch, self.dtype), enabled=self.dtype != "float32")

    def layers(self) -> list[type[nn.Module]]:
        """The classes of its attention layers, for a model to cycle through."""
        variants = self.attention if isinstance(self.attention, list) else [self.attention]
        return [
            attention(variant, **self.options)
            if isinstance(variant, str)
            else attention(variant["name"], **{key: value for key, value in variant.items() if key != "name"})
            for variant in variants
        ]

    def smoke(self: R) -> R:
        """The same code at tiny sizes: seconds on a CPU."""
        return self._at("smoke", "smoke")

    def reduced(self: R, device: str = "cuda") -> R:
        """A stated smaller run: minutes on one GPU, or on ``"cpu"`` on two cores."""
        return self._at("reduced", "reduced-cpu" if device == "cpu" else "reduced")

    def _at(self: R, scale: str, key: str) -> R:
        if key not in self.smaller:
            raise ValueError(f"train: {self.experiment} says nothing of a {key} run")
        return replace(merged(self, self.smaller[key]), scale=scale)

    def settings(self) -> dict[str, Any]:
        """Every setting as JSON would give it back; ``config_of`` makes a configuration of it again."""
        values = {name: value for name, value in asdict(self).items() if name != "smaller"}
        return json.loads(json.dumps({"kind": self.kind, **values}))

    def recorded(self) -> dict[str, Any]:
        """The settings that a record has no field of its own for."""
        return {name: value for name, value in self.settings().items() if name not in NAMES}


@final
@dataclass(frozen=True, kw_only=True)
class Augment:
    """What happens to a training picture, in timm's words.

    Args:
        crop: the least and the largest share of the picture that is kept, resized to the model's size; None
            keeps all of it.
        ratio: the least and the largest width of that crop over its height.
        flip: the probability of a mirror image.
        jitter: of brightness, contrast and saturation; timm leaves it out where ``policy`` is given.
        policy: RandAugment's, ``rand-m9-mstd0.5-inc1``; None has none.
        erase: the probability that a rectangle becomes noise.
        mixup, cutmix: α of the Beta distributions that mixing draws from; 0 leaves it out.
        mix: the probability that a part is mixed at all.
        switch: the probability of CutMix where both are on.
        repeats: how many differently augmented copies of a picture a step holds.

    Raises:
        ValueError: if ``crop`` is no range of shares, ``ratio`` none of positive numbers, or ``policy`` not
            in timm's words.
    """

    crop: tuple[float, float] | None = None
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.0
    jitter: float = 0.0
    policy: str | None = None
    erase: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0
    mix: float = 1.0
    switch: float = 0.5
    repeats: int = 1

    def __post_init__(self):
        for name, (low, high), most in (("crop", self.crop or (1, 1), 1.0), ("ratio", self.ratio, math.inf)):
            if not 0 < low <= high <= most or high == math.inf:
                bound = "to 1" if most == 1 else "on"
                raise ValueError(f"train: {name} must rise from above 0 {bound}, not be {low} {high}")
        if self.policy is not None and not POLICY.fullmatch(self.policy):  # timm skips what it cannot read
            raise ValueError(f"train: policy must read like rand-m9-mstd0.5-inc1, not {self.policy!r}")


@final
@dataclass(frozen=True, kw_only=True)
class VisionConfig(TrainConfig):
    """A classifier of images.

    Args:
        model: sizes of the transformer.
        augment: what happens to training pictures.
        smoothing: the share of a label that is spread over all classes.
        eval_crop: the share of the resized picture that evaluation looks at.
        eval_images: how many held-out pictures a measurement reads, evenly spaced; None is all.
        limit: the number of training pictures; None is all of them.
    """

    model: ViTConfig
    augment: Augment = field(default_factory=Augment)
    smoothing: float = 0.0
    eval_crop: float = 1.0
    eval_images: int | None = None
    limit: int | None = None

    def build(self) -> nn.Module:
        """The transformer, untrained."""
        return vit(self.model, attention=self.layers())


@final
@dataclass(frozen=True, kw_only=True)
class LanguageConfig(TrainConfig):
    """A decoder of text.

    Args:
        model: sizes of the decoder; its ``vocab_size`` must be the tokenizer's.
        tokenizer: ``characters``, ``gpt2``, or ``bpe``, trained on the data.
        rows: how the text is cut: ``windows`` at any offset, ``documents`` of one row each, cut off or
            padded, or ``packed``, rows that begin with a document and are filled by best fit.
        wrap: the width at which lines are wrapped first; None leaves them.
        limit: how many characters of the text are used; None is all.
        prompt: what samples begin with.
        eval_rows: how many held-out rows a measurement reads, evenly spaced; None is all.
    """

    model: GPTConfig
    tokenizer: Literal["characters", "gpt2", "bpe"] = "characters"
    rows: Literal["windows", "documents", "packed"] = "windows"
    wrap: int | None = None
    limit: int | None = None
    prompt: str = ""
    eval_rows: int | None = None

    kind: ClassVar[str] = "language"
    unit: ClassVar[str] = "tokens"
    measured: ClassVar[str] = "eval_rows"

    @property
    def items(self) -> int:
        """Tokens in a step."""
        return self.batch * self.model.context

    def build(self) -> nn.Module:
        """The decoder, untrained."""
        return gpt(self.model, attention=self.layers())


@final
@dataclass(frozen=True, kw_only=True)
class LaunchConfig:
    """Where and how a run is computed: nothing here changes its result but for rounding.

    Args:
        out: its folder, for checkpoints, curves and samples; one below $GKALIB_RUNS or ./runs if not given.
        device: ``cpu`` or ``cuda``; None takes the GPU where there is one.
        workers: processes that load images beside each training process, where a run has images; None is one
            less than its share of the cores, at most 15, beside a GPU, and none on a CPU, where training has
            the cores.
        compile: whether the model goes through ``torch.compile``.
        save_every: seconds between checkpoints; there is one at the end in any case.
        log_every: steps between rows of the curve.
        snapshots: steps between checkpoints whose weights are kept for good, from the start on; 0 keeps none
            but the newest two.
        fresh: whether to delete the checkpoints that are there and begin anew.
        keep: whether the record goes to ``data/results``.
        quiet: whether to leave out the progress bar.
        in_memory: whether to write no file; a run that is stopped is then lost.

    Raises:
        ValueError: if a number is below zero, or ``log_every`` below one.
    """

    out: Path | None = None
    device: str | None = None
    workers: int | None = None
    compile: bool = False
    save_every: float = 600.0
    log_every: int = 10
    snapshots: int = 0
    fresh: bool = False
    keep: bool = False
    quiet: bool = False
    in_memory: bool = False

    def __post_init__(self):
        for name in ("workers", "save_every", "log_every", "snapshots"):
            number, least = getattr(self, name), int(name == "log_every")
            if number is not None and not number >= least:
                raise ValueError(f"train: {name} must be at least {least}, not {number}")


@final
@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The runs of one experiment.

    Args:
        name: what ``python -m gkalib train`` is given.
        paper: its key in the bibliography.
        summary: what is compared, in one line.
        expects: what the paper prints, in one line.
        arms: what makes the run of each arm at full size; the first is the default.
    """

    name: str
    paper: str
    summary: str
    expects: str
    arms: Mapping[str, Callable[[], TrainConfig]]

    def run(self, arm: str | None = None) -> TrainConfig:
        """The run of an arm at full size.

        Raises:
            ValueError: if there is no such arm.
        """
        arm = arm or next(iter(self.arms))
        if arm not in self.arms:
            raise ValueError(f"train: no arm {arm!r} in {self.name!r}. Known: {', '.join(self.arms)}")
        return self.arms[arm]()


NAMES = ("kind", "experiment", "arm", "scale", "seed")  # what a record has fields of its own for


def config_of(settings: Mapping[str, Any]) -> TrainConfig:
    """The configuration that ``TrainConfig.settings`` gave."""
    try:
        kind = {one.kind: one for one in (VisionConfig, LanguageConfig)}[settings["kind"]]
        return _from_json(kind, {name: value for name, value in settings.items() if name != "kind"})
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"these are not the settings of a run ({error})") from None


def _from_json(kind: Any, settings: Mapping[str, Any]) -> Any:
    """A dataclass of what JSON has of it: lists in the place of pairs, but those of layers stay lists."""
    types = {setting.name: setting.type for setting in fields(kind)}
    values: dict[str, Any] = {}
    for name, value in settings.items():
        if is_dataclass(types.get(name)):
            values[name] = _from_json(types[name], value)
        else:
            values[name] = tuple(value) if isinstance(value, list) and name != "attention" else value
    return kind(**values)


def merged(settings: Any, changes: Mapping[str, Any]) -> Any:
    """A dataclass with changed fields; a mapping given for a field that is a dataclass is merged into it."""
    values = {}
    for name, value in changes.items():
        old = getattr(settings, name)
        values[name] = merged(old, value) if is_dataclass(old) and isinstance(value, Mapping) else value
    return replace(settings, **values)
