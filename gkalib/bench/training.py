"""The training runs that chapters wait for, as jobs of the queue: reduced on a GPU, smoke on a CPU."""

from dataclasses import replace

from gkalib.bench.job import FUSED, Job
from gkalib.training import LaunchConfig, TrainConfig, recipe, train
from gkalib.training.config import VisionConfig

SEEDS = (0,)
# Recipe, arm, seconds: in the order in which chapters need them. The seconds are guesses until one has run.
WANTED = (
    *(("gpa-dickens", arm, 240.0) for arm in ("rope", "bank", "bank-rope")),
    *(("rbf-tinystories", arm, 90.0) for arm in ("standard", "rbf", "rbf-registers")),
    *(("gka-imagenet-tiny", arm, 240.0) for arm in ("deit", "gka")),
    *(("gpa-dickens", arm, 240.0) for arm in ("bank-unwrapped", "bank-rope-unwrapped")),
    *(("karat-cifar10", arm, 300.0) for arm in ("tiny-softmax", "tiny-g3b", "tiny-g3u")),
)
WORKERS = 3  # processes that load pictures for a run, where several run side by side

# A machine that is lent for its GPU has no network: stories of the 2 MiB sample, by the model of two cores in
# larger steps.
SAMPLED = {"rbf-tinystories": {"batch": 64, "device_batch": 64, "steps": 400}}


def jobs() -> list[Job]:
    """Each run that is wanted."""
    return [
        Job(
            name=f"train-{name}-{arm}",
            priority=60 + turn,
            seconds=seconds,
            call=f"{__name__}:trained",
            arguments={"name": name, "arm": arm},
            depends=(*FUSED, "training", "datasets", "models", "attention", "smoothing"),
            devices=("cuda", "cpu"),
            alone=False,
        )
        for turn, (name, arm, seconds) in enumerate(WANTED)
    ]


def trained(name: str, arm: str, *, device: str) -> None:
    """Train one arm of a recipe, reduced on ``"cuda"`` and as a smoke run on ``"cpu"``, and keep the record.

    A run that was stopped goes on from its checkpoint in the folder of runs.
    """
    for seed in SEEDS:
        run = replace(wanted(name, arm, device), seed=seed)
        on_card = device == "cuda"
        workers = WORKERS if on_card and isinstance(run, VisionConfig) else 0
        launch = LaunchConfig(device=device, compile=on_card, workers=workers, save_every=60.0)
        train(run, replace(launch, keep=True, quiet=True))


def wanted(name: str, arm: str, device: str) -> TrainConfig:
    """The run of a job; one card takes a whole step at once, which changes a result by rounding alone."""
    full = recipe(name).run(arm)
    if device == "cpu":
        return full.smoke()
    run = replace(full.reduced("cpu"), **SAMPLED[name]) if name in SAMPLED else full.reduced(device)
    return replace(run, device_batch=run.batch)
