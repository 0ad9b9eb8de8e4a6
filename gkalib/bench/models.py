"""Whole vision transformers: Gaussian kernel attention beside DeiT, and KArAt, at the sizes of their papers.

The full shapes are those of table 4 of the former's paper, and of table 13 of the latter's. Reduced ones are
the smallest models in small batches, for a CPU.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import sdpa_kernel
from torch.nn.functional import cross_entropy

from gkalib.bench import timing
from gkalib.bench.attention import BACKENDS, WRONG, reason_of, relative_error
from gkalib.bench.problems import Recipe
from gkalib.bench.timing import Row
from gkalib.extras import needed_by
from gkalib.layers import attention
from gkalib.models import ViTConfig, vit
from gkalib.training.recipes import recipe

MODELS = {"ti": "tiny", "s": "small", "b": "base"}
"""Sizes by the letters in DeiT's names."""
TRAINING, INFERENCE = (64, 128), (64, 256, 512)  # images in a batch
ARMS = ("deit-sdpa-cudnn", "deit-sdpa-flash", "gka-fused", "gka-dense")
ON_A_CPU = ("deit-sdpa-flash", "gka-dense")
KARAT = {
    "tiny": ("tiny-softmax", "tiny-g3b", "tiny-g3u"),
    "small": ("small-softmax", "small-g3b", "small-g3u"),
    "base": ("base-softmax", "base-g1b", "base-g1u"),
}
"""Arms of the recipe ``karat-cifar10``, whose models are trained in batches of 32 images."""
TOLERANCE = 5e-2
# Steps between two readings of the clock: a GPU's host may run ahead, as it does in training.
WINDOW = {"cuda": 10, "cpu": 2}
SECONDS = {"cuda": 1.0, "cpu": 10.0}  # of repeated windows


def shapes(scale: str, device: str) -> dict[str, Recipe]:
    """A size and a mode each."""
    small, least = scale != "full", {"smoke": [2], "reduced": [8]}.get(scale)
    found: dict[str, Recipe] = {}

    def add(name: str, mode: str, batches: Sequence[int], arms: Sequence[str], **model: str) -> None:
        sizes = {"batches": least or [*batches], "arms": [*arms], "compiled": device == "cuda"}
        where = {"device": device, "scale": scale}
        found[f"{name}-{mode}"] = {"shape": f"{name}-{mode}", **model, "mode": mode, **sizes, **where}

    for mode, batches in (("training", TRAINING), ("inference", INFERENCE)):
        for size in ("ti",) if small else MODELS:
            add(size, mode, batches, ON_A_CPU if scale == "reduced" else ARMS, size=size)
    for mode in ("training", "inference"):
        for size in ("tiny",) if small else KARAT:
            add(f"karat-{size}", mode, [32], KARAT[size], recipe="karat-cifar10")
    return found


def time_models(case: Recipe) -> list[Row]:
    """Images a second and memory of every arm at every batch size of a case, or why there are none.

    The fused model is not timed unless its logits are those of the same weights in float64.
    """
    rows: list[Row] = []
    empty = dict.fromkeys(("images_per_second", "ms", "ms_q10", "ms_q90", "peak_mib"), "")
    for arm in case["arms"]:
        checked = arm != "gka-fused"
        for batch in case["batches"]:
            row = {"arm": arm, "batch": batch, "reason": "", **empty}
            try:
                with backend(arm):
                    if not checked:
                        check(case)
                        checked = True
                    row |= _step_times(arm, batch, case)
            except AssertionError as error:
                row["reason"] = f"{WRONG}: {error}"
            except Exception as error:  # whatever keeps an arm from running is what its row says
                row["reason"] = reason_of(error)
            rows.append(row)
            timing.free()
    return rows


@contextmanager
def backend(arm: str) -> Iterator[None]:
    """Within it PyTorch's attention runs by the backend that the arm names.

    Programs that are compiled for a backend do not name it in the cache on disk: the arm does.
    """
    name = arm.removeprefix("deit-")
    if name not in BACKENDS:
        yield
        return
    config: Any = torch.compiler.config  # which has patch from PyTorch at import
    with sdpa_kernel(BACKENDS[name]), config.patch(cache_key_tag=arm):
        yield


def model(arm: str, case: Recipe) -> nn.Module:
    """DeiT as timm has it, the same with Gaussian kernel attention, or a recipe's; each block compiled, once.

    Compiling block by block costs a twelfth of compiling whole models; what lies between blocks is left out
    for both.
    """
    small, size = case["scale"] == "smoke", MODELS[case.get("size", "ti")]
    torch.manual_seed(0)
    if "recipe" in case:
        arm_run = recipe(case["recipe"]).run(arm)
        network: nn.Module = (arm_run.smoke() if small else arm_run).build()
    elif arm.startswith("deit"):
        with needed_by("bench models"):
            from timm import create_model

        tiny: dict[str, Any] = {
            "img_size": 32,
            "embed_dim": 32,
            "num_heads": 2,
            "depth": 1,
            "num_classes": 10,
        }
        network = create_model(f"deit_{size}_patch16_224", **(tiny if small else {}))
    else:
        layer = attention("gka", method=arm.removeprefix("gka-"))
        least = ViTConfig(image_size=32, dim=32, num_heads=2, depth=1, num_classes=10)
        network = vit(least if small else size, attention=layer)
    network = network.to(case["device"])
    if case["compiled"]:
        for block in network.get_submodule("blocks").children():
            block.compile(dynamic=False)
    return network


def check(case: Recipe) -> None:
    """The logits of the fused model against those of the same weights in float64 by the definition.

    Raises:
        AssertionError: if they are off.
    """
    images = _images(2, case)
    with torch.no_grad():
        logits = _autocast(case, model("gka-fused", case).eval())(images)
        exact = model("gka-reference", {**case, "compiled": False}).double().eval()(images.double())
    error = relative_error(logits, exact)
    assert error <= TOLERANCE, f"gka-fused: logits are off by {error:.1e}, more than {TOLERANCE:.0e}"


def _autocast(case: Recipe, forward: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """In bfloat16 on a GPU, as models are trained; as it is on a CPU."""

    def run(images: Tensor) -> Tensor:
        with torch.autocast(case["device"], torch.bfloat16, enabled=case["device"] == "cuda"):
            return forward(images)

    return run


def _images(batch: int, case: Recipe) -> Tensor:
    side = 32 if case["scale"] == "smoke" else 224
    return torch.randn(batch, 3, side, side, device=case["device"])


def _step_times(arm: str, batch: int, case: Recipe) -> dict[str, Any]:
    """One arm at one batch size, in windows of steps."""
    network, device = model(arm, case), case["device"]
    images = [_images(batch, case) for _ in range(2)]
    step = _training(network, case) if case["mode"] == "training" else _inference(network, case)

    def window() -> None:
        for turn in range(WINDOW[device]):
            step(images[turn % 2])

    windows = timing.times([window], device, seconds=SECONDS[device])
    columns = timing.columns([ms / WINDOW[device] for ms in windows])
    # On a GPU all that is allocated at the peak of a step, weights and optimizer included. On a CPU the
    # process holds much besides: what the step takes beyond that.
    taken, held = timing.peak_mib(lambda: step(images[0]), device)
    peak = held if device == "cuda" else taken
    return {"images_per_second": 1e3 * batch / columns["ms"], **columns, "peak_mib": peak}


def _inference(network: nn.Module, case: Recipe) -> Callable[[Tensor], Tensor]:
    network.eval()
    if case["device"] == "cuda":
        network = network.bfloat16()
    dtype = next(network.parameters()).dtype
    return torch.no_grad()(lambda images: network(images.to(dtype)))


def _training(network: nn.Module, case: Recipe) -> Callable[[Tensor], None]:
    """One step of AdamW on random labels."""
    network.train()
    forward = _autocast(case, network)
    on_gpu = case["device"] == "cuda"
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4, fused=on_gpu)
    labels = torch.randint(10, (max(case["batches"]),), device=case["device"])  # which every model has

    def step(images: Tensor) -> None:
        loss = cross_entropy(forward(images).float(), labels[: len(images)])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def summarize(rows: list[Row]) -> dict[str, float]:
    """``images_per_second_<arm>_<batch>`` and ``peak_mib_<arm>_<batch>``; over the batches, the best.

    ``throughput_<batch>`` is ``gka-fused``, where there is no row of it ``gka-dense``, over the faster DeiT,
    ``memory_<batch>`` its peak over that one's; ``best`` in the place of a batch is each model at its
    fastest batch size.
    """
    metrics: dict[str, float] = {}
    timed = {(row["arm"], row["batch"]): row for row in rows if row["ms"] != ""}
    gka = "gka-fused" if any(row["arm"] == "gka-fused" for row in rows) else "gka-dense"
    for (arm, batch), row in timed.items():
        for column in ("images_per_second", "peak_mib"):
            if row[column] != "":
                metrics[f"{column}_{arm.replace('-', '_')}_{batch}"] = row[column]
    for batch in (*dict.fromkeys(row["batch"] for row in rows), "best"):
        chosen = [row for key, row in timed.items() if batch in ("best", key[1])]
        sides = [[row for row in chosen if row["arm"].startswith(side)] for side in (gka, "deit")]
        if all(sides):
            ours, deit = (max(side, key=lambda row: row["images_per_second"]) for side in sides)
            metrics[f"throughput_{batch}"] = ours["images_per_second"] / deit["images_per_second"]
            if ours["peak_mib"] != "":
                metrics[f"memory_{batch}"] = ours["peak_mib"] / deit["peak_mib"]
            if batch == "best":
                metrics |= {"best_batch_gka": ours["batch"], "best_batch_deit": deit["batch"]}
    metrics["wrong"] = float(any(str(row["reason"]).startswith(WRONG) for row in rows))
    metrics["cells"], metrics["cells_run"] = len(rows), len(timed)
    return metrics
