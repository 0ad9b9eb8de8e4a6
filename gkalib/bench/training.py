"""The training runs that chapters wait for, as jobs of the queue: reduced on a GPU, smoke on a CPU."""

from dataclasses import replace

from gkalib.bench.job import FUSED, Job
from gkalib.training import Launch, Run, recipe, train

SEEDS = (0,)
# Recipe, arm, seconds: in the order in which chapters need them. The seconds are guesses until one has run.
WANTED = (
    *(("gpa-dickens", arm, 420.0) for arm in ("rope", "bank", "bank-rope")),
    *(("gpa-dickens", arm, 420.0) for arm in ("bank-unwrapped", "bank-rope-unwrapped")),
    *(("gka-imagenet-tiny", arm, 420.0) for arm in ("deit", "gka")),
    *(("rbf-tinystories", arm, 60.0) for arm in ("standard", "rbf", "rbf-registers")),
    *(("karat-cifar10", arm, 480.0) for arm in ("tiny-softmax", "tiny-g3b", "tiny-g3u")),
)

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
        )
        for turn, (name, arm, seconds) in enumerate(WANTED)
    ]


def trained(name: str, arm: str, *, device: str) -> None:
    """Train one arm of a recipe, reduced on ``"cuda"`` and as a smoke run on ``"cpu"``, and keep the record.

    A run that was stopped goes on from its checkpoint in the folder of runs.
    """
    for seed in SEEDS:
        run = replace(wanted(name, arm, device), seed=seed)
        train(run, Launch(device=device, compile=device == "cuda", save_every=60.0, keep=True, quiet=True))


def wanted(name: str, arm: str, device: str) -> Run:
    """The run of a job."""
    full = recipe(name).run(arm)
    if device == "cpu":
        return full.smoke()
    return replace(full.reduced("cpu"), **SAMPLED[name]) if name in SAMPLED else full.reduced(device)
