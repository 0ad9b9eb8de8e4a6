"""Where training goes and what lies around its end: paths, planes, sharpness, spectra, by variant."""

import math
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from chapters.experiments.sharpness import relative_sharpness, sharpness
from chapters.experiments.walks import random_plane, step_cosine, step_lengths, walk_shares
from gkalib import capture_attention
from gkalib.analysis.landscape import (
    Loss,
    Plane,
    Surface,
    loss_on,
    snapshot,
    trajectory_plane,
    using,
)
from gkalib.analysis.spectrum import effective_rank, kind, matrices, singular_values
from gkalib.experiments import Trained
from gkalib.experiments.loop import Observer
from gkalib.experiments.study import Study
from gkalib.experiments.tasks import Pictures

# Two layers of four heads on N = 17 tokens. KArAt as in karat-arms: G = 3, r = 12, damped, blockwise.
ARMS: dict[str, tuple[str, dict[str, Any]]] = {
    "softmax": ("softmax", {}),
    "g3b": ("karat", {}),
    "g3u": ("karat", {"mode": "universal"}),
    "g3b-rank4": ("karat", {"rank": 4}),
    "g3b-paper": ("karat", {"init": "paper"}),
    "gka": ("gka", {}),
    "qk-norm": ("qk_norm", {}),
    "rbf": ("rbf", {}),
}
SNAPSHOTS = 60  # from the start of training to its end
PICTURES = 512  # of the training part, on which the path's losses and sharpness are taken
DRAWN = 128  # the first of them: every loss of a grid
FEW = 64  # sharpness once more, on so few that it depends on them
LOOKED = 64  # held-out pictures whose attention is decomposed
POINTS = 33  # along each axis of a grid; every other one makes the grid of 17
FAR = 4.0  # how many lengths of the weights the wide random plane reaches
EQUAL = 0.3  # the loss at which sharpness is compared before the end
ALPHA = 8.0  # W_V → α W_V, W_O → W_O / α: the same function


def studies() -> list[Study]:
    """One arm a variant."""
    return [
        Study(
            experiment="landscapes",
            arm=arm,
            task="digits",
            attention=attention,
            options=options,
            steps=600,
            batch=32,
            lr=5e-3,
        )
        for arm, (attention, options) in ARMS.items()
    ]


@final
class Landscape(Observer):
    """Snapshots of a run, and what they tell when it has ended."""

    def __init__(self, study: Study):
        super().__init__(study)
        self.every = max(1, study.steps // SNAPSHOTS)
        self.points = 5 if study.scale == "smoke" else POINTS
        self.counts = (8, 16, 32) if study.scale == "smoke" else (FEW, DRAWN, PICTURES)
        self.steps: list[int] = []
        self.snapshots: list[dict[str, Tensor]] = []
        self.table: list[dict[str, Any]] = []

    def watch(self, step: int, model: nn.Module) -> None:
        if step % self.every == 0:
            self.steps.append(step)
            self.snapshots.append(snapshot(model))

    def measure(self, model: Any, learned: Any) -> dict[str, float]:
        """Of the path, of the planes through its end, of sharpness, and of spectra at four times.

        ``explained_K`` is the share of the path's K-th component, ``walk_K`` that of a walk with its steps'
        lengths, ``step_cosine`` the mean cosine of successive steps, ``off_plane`` the share of the squared
        distances to the end that is off the plane. ``fixed_loss`` is the loss on 512 training pictures;
        grids have that of the first 128. ``minima_PLANE_POINTS`` and ``roughness_PLANE_POINTS`` are of grids:
        ``path``, the path's plane; ``filter`` and ``far``, filter-normalized at random, which reach 1 and 4
        lengths of the weights; ``fresh``, as ``filter`` with 32 other pictures at every point.
        ``(relative_)sharpness`` is at the end on all 512, ``…_64`` on the first 64, ``…_rescaled`` after
        W_V → 8 W_V and W_O → W_O / 8, ``…_equal`` at the first snapshot with a loss of 0.3 or less.
        ``rank_before_L_tP``, of the scores of layer L at P percent of training, and ``rank_after_L_tP``, of
        the weights, are mean effective ranks, ``first_…`` the mean share of the largest squared singular
        value, ``value_…`` the mean largest. ``rank_KIND_tP`` is of weight matrices, ``histogram_moved`` the
        Wasserstein distance of all parameters from half of training to its end, ``weights_moved`` the mean
        change of one.
        """
        assert isinstance(learned, Pictures)
        metrics: dict[str, float] = {}
        few, grid_loss, loss = (_on(learned.images[:n], learned.labels[:n]) for n in self.counts)
        metrics |= self._path(model, loss)
        metrics |= self._planes(model, grid_loss, learned)
        metrics |= _sharp(model, loss)
        metrics |= {f"{name}_{FEW}": number for name, number in _sharp(model, few).items()}
        metrics |= _rescaled(model, loss)
        metrics |= self._equal(model, loss)
        metrics |= self._spectra(model, learned.held_out[0][:LOOKED])
        return metrics

    def rows(self, course: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """``table, step, x, y, value``: the course of the loss, the path, its shares, grids, spectra."""
        losses = [_row("train_loss", row["train_loss"], step=row["step"]) for row in course]
        return [*losses, *self.table]

    def _path(self, model: nn.Module, loss: Loss) -> dict[str, float]:
        self.plane = plane = trajectory_plane(self.snapshots)
        walk = walk_shares(step_lengths(self.snapshots))
        places = plane.coordinates[:, :2].tolist()
        self.losses = [_at(model, weights, loss) for weights in self.snapshots]
        for step, (x, y), value in zip(self.steps, places, self.losses, strict=True):
            self.table.append(_row("path", value, step=step, x=x, y=y))
            self.table.append(_row("shadow", _at(model, plane.at(x, y), loss), step=step, x=x, y=y))
        for number in range(min(10, len(walk))):
            self.table.append(_row("explained", float(plane.explained[number]), x=number + 1))
            self.table.append(_row("walk", float(walk[number]), x=number + 1))
        near = plane.coordinates[:, :2].square().sum() / plane.distances.square().sum()
        return {
            **{f"explained_{k + 1}": float(plane.explained[k]) for k in range(min(6, len(walk)))},
            **{f"walk_{k + 1}": float(walk[k]) for k in range(min(6, len(walk)))},
            "step_cosine": step_cosine(self.snapshots),
            "off_plane": 1 - float(near),
            "fixed_loss": self.losses[-1],
        }

    def _planes(self, model: nn.Module, loss: Loss, learned: Pictures) -> dict[str, float]:
        around = random_plane(self.snapshots[-1], seed=0)
        fresh = torch.Generator().manual_seed(0)

        def other(model: nn.Module) -> Tensor:
            chosen = torch.randint(len(learned.images), (32,), generator=fresh)
            return _on(learned.images[chosen], learned.labels[chosen])(model)

        wanted: dict[str, tuple[Plane, Loss, int, float | None]] = {
            "path": (self.plane, loss, self.points, None),
            "filter": (around, loss, self.points, 1.0),
            "far": (around, loss, self.points // 2 + 1, FAR),
            "fresh": (around, other, self.points // 2 + 1, 1.0),
        }
        metrics: dict[str, float] = {}
        for name, (plane, loss, points, span) in wanted.items():
            surface = loss_on(plane, model, loss, points=points, span=span)
            grids = [surface] if points < self.points else [surface, _coarse(surface)]
            for grid in grids:
                metrics[f"minima_{name}_{len(grid.first)}"] = float(grid.minima())
                metrics[f"roughness_{name}_{len(grid.first)}"] = roughness(grid)
            grid = surface if name == "path" else grids[-1]
            for i, x in enumerate(grid.first.tolist()):
                for j, y in enumerate(grid.second.tolist()):
                    self.table.append(_row(f"{name}_plane", float(grid.losses[i, j]), x=x, y=y))
        return metrics

    def _equal(self, model: nn.Module, loss: Loss) -> dict[str, float]:
        """Sharpness where the loss is first as low as it is asked to be; nothing where it never is."""
        for step, weights, value in zip(self.steps, self.snapshots, self.losses, strict=True):
            if value <= EQUAL:
                with using(model, weights):
                    metrics = {f"{name}_equal": number for name, number in _sharp(model, loss).items()}
                return {**metrics, "step_equal": float(step), "fixed_loss_equal": value}
        return {}

    def _spectra(self, model: nn.Module, images: Tensor) -> dict[str, float]:
        metrics: dict[str, float] = {}
        last = len(self.snapshots) - 1
        for percent in (0, 25, 50, 100):
            weights = self.snapshots[last * percent // 100]
            step = self.steps[last * percent // 100]
            with using(model, weights):
                captured = capture_attention(model, images)
            for number, layer in enumerate(captured):
                problem = layer.problems[0]
                before = problem.scores(problem.query, problem.grouped_key)
                for name, rows in (("before", before), ("after", layer.weights)):
                    values = singular_values(rows)
                    where = f"{name}_{number}_t{percent}"
                    metrics[f"rank_{where}"] = effective_rank(values).mean().item()
                    squares = values.square()
                    metrics[f"first_{where}"] = (squares[..., 0] / squares.sum(-1)).mean().item()
                    metrics[f"value_{where}"] = values[..., 0].mean().item()
                    for index, value in enumerate(values.flatten(0, -2).mean(0).tolist(), start=1):
                        self.table.append(_row(f"spectrum_{name}_{number}", value, step=step, x=index))
            ranks: dict[str, list[float]] = {}
            for name, matrix in matrices(weights).items():
                ranks.setdefault(kind(name), []).append(effective_rank(singular_values(matrix)).item())
            for name, each in ranks.items():
                metrics[f"rank_{name.replace(' ', '_')}_t{percent}"] = math.fsum(each) / len(each)
        half, end = (_flat(self.snapshots[place]) for place in (last // 2, last))
        metrics["histogram_moved"] = (half.sort().values - end.sort().values).abs().mean().item()
        metrics["weights_moved"] = (half - end).abs().mean().item()
        return metrics


def _on(images: Tensor, labels: Tensor) -> Loss:
    """The cross-entropy of a model on these pictures."""
    return lambda model: cross_entropy(model(images), labels)


@torch.no_grad()
def _at(model: nn.Module, weights: dict[str, Tensor], loss: Loss) -> float:
    with using(model, weights):
        return loss(model).item()


def _sharp(model: nn.Module, loss: Loss) -> dict[str, float]:
    return {
        "sharpness": sharpness(model, loss).largest,
        "relative_sharpness": relative_sharpness(model, loss).largest,
    }


def _rescaled(model: nn.Module, loss: Loss) -> dict[str, float]:
    """Sharpness of the same function with other weights, where the variant has values to scale."""
    changed = {}
    for name, tensor in snapshot(model).items():
        if ".attn.value." in name:
            changed[name] = ALPHA * tensor
        elif name.endswith(".attn.proj.weight"):
            changed[name] = tensor / ALPHA
    if not any(".attn.value." in name for name in changed):
        return {}
    with using(model, changed):
        return {f"{name}_rescaled": number for name, number in _sharp(model, loss).items()}


def roughness(surface: Surface) -> float:
    r"""How far a point is from the mean of the four around it, in units of the grid's own deviation.

    $$\sqrt{\operatorname{mean}\big(f_{ij} - \tfrac14 \textstyle\sum f_{\text{around}}\big)^2} \big/
    \operatorname{std} f$$

    Of a smooth surface it falls with the square of the distance between points; of noise it stays near
    √(5/4).
    """
    losses = surface.losses
    around = (losses[:-2, 1:-1] + losses[2:, 1:-1] + losses[1:-1, :-2] + losses[1:-1, 2:]) / 4
    rough = (losses[1:-1, 1:-1] - around).square().mean().sqrt()
    return float(rough / losses.std(correction=0))


def _coarse(surface: Surface) -> Surface:
    """Every other point."""
    return Surface(surface.first[::2], surface.second[::2], surface.losses[::2, ::2])


def _flat(weights: dict[str, Tensor]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in weights.values()]).double()


def _row(
    table: str, value: float, *, step: int = 0, x: float | int = 0, y: float | int = 0
) -> dict[str, Any]:
    """Numbers with five digits: a table is for drawing."""
    return {"table": table, "step": step, "x": f"{x:.5g}", "y": f"{y:.5g}", "value": f"{value:.5g}"}


EXPERIMENTS = {"landscapes": Trained(studies, Landscape)}
