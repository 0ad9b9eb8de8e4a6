"""Figures that a reader drags: data under a stored picture, which a script of the page draws anew."""

import base64
import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import torch

from gkalib.kernels import Dot, ExpDot, Gaussian, Kernel
from gkalib.masks import Causal
from gkalib.normalizers import Unnormalized
from gkalib.smoothing import Memory, MemoryProblem, attention_weights, compute_output, make_problem
from gkalib.viz import style
from gkalib.viz.digest import MIME, array, digest

KERNELS = {"Gaussian": Gaussian, "ExpDot": lambda sigma: ExpDot(1 / sigma**2)}
RULES = {
    "adding": ("gated", "blue", "--"),
    "delta": ("delta", "green", "-"),
    "ridge": ("mesa", "orange", ":"),
}
# As in drag.js: a line's width for a flow of 1, the cells of a field along an axis, the levels of its shades,
# the ridge of a memory.
WIDEST = 80.0
CELLS = 60
LEVELS = (0.05, 0.2, 0.5, 0.8, 0.95)
RIDGE = 1e-3
WORDS = {"x": "x", "y": "y", "sigma": "bandwidth σ", "key": "key", "query": "query"}


def drag(
    *,
    alt: str,
    keys,
    values=None,
    query: Sequence[float | int] | None = None,
    sigma: Sequence[float | int],
    kernels: Sequence[str] = ("Gaussian",),
    limits: Sequence[Sequence[float | int]],
    labels: Mapping[str, str] | None = None,
    walk: bool = False,
    field: bool = False,
    memory: bool = False,
    process: float | None = None,
) -> "Drag":
    """Draw a kernel smoother whose keys, query and bandwidth a reader drags on the page.

    Keys on a line are drawn against their values, with the fit; keys in the plane are drawn as points, once
    for each kernel, and their values are the keys. What is stored is a picture; the script
    `book/_static/drag.js` replaces it where it is loaded, so that plain Jupyter shows the picture.

    Args:
        alt: what the figure shows, for readers who do not see it.
        keys: `[m, 1]` on a line or `[m, 2]` in the plane.
        values: `[m, 1]`, with keys on a line only.
        query: where it starts; without one a key asks, the first until the reader chooses another.
        sigma: the bandwidth shown first, the smallest and the largest.
        kernels: `Gaussian` is `kernels.Gaussian(σ)`, `ExpDot` is `kernels.ExpDot(1 / σ²)`; one on a line.
        limits: of both axes; nothing can be dragged past them.
        labels: words of the page: of the axes `x` and `y`, and for `sigma`, `key` and `query`.
        walk: whether to join every pair of keys by a line whose width is the share of its steps that a random
            walk with these weights takes from one to the other, in the long run. The keys lie in the plane,
            and the kernel is the Gaussian.
        field: whether to shade the plane, for each kernel, by the weight that the chosen key would get from a
            query at each place, a shade for each of ``LEVELS``. The keys lie in the plane, with a query.
        memory: whether each key is the angle, in degrees, of a unit vector, and each curve what a memory
            recalls there of the pairs, read in their order; ``kernels`` are then of ``adding``, ``delta``
            and ``ridge``, ``sigma`` is the rate of ``delta``, and there is no query.
        process: the variance of the noise on the values where they are seen from a Gaussian process whose
            covariance is the kernel. It is drawn as its mean and two standard deviations to either side,
            with the average by the same kernel, and a click adds a point. The keys lie on a line, the
            kernel is the Gaussian, and there is no query.

    Raises:
        ValueError: with an empty alt text, an unknown kernel or label, a bandwidth outside its range, keys,
            values and query that do not fit together, a walk of anything but keys under a Gaussian, a
            field of anything but keys in the plane with a query, a memory of anything but keys on a line,
            or a process of anything but keys on a line under a Gaussian with noise.

    Taught in: chapters 01, 03, 04, 07 and 15.
    """
    keys, values = array(keys), None if values is None else array(values)
    if memory and (
        query is not None or keys.ndim != 2 or keys.shape[1] != 1 or not set(kernels) <= set(RULES)
    ):
        raise ValueError(f"drag: memory needs keys on a line without a query, and kernels of {list(RULES)}")
    given = query is None and values is not None and tuple(kernels) == ("Gaussian",)
    if process is not None and not (given and process > 0):
        raise ValueError("drag: process needs noise, keys on a line without a query, and the Gaussian alone")
    alone = memory or process is not None
    _validate(keys.shape, None if values is None else values.shape, [0] if alone else query)
    labels, (start, low, high) = dict(labels or {}), sigma
    if not alt.strip():
        raise ValueError("drag: alt is empty; say what the figure shows")
    if not memory and (not kernels or not set(kernels) <= set(KERNELS) or keys.shape[1] < len(kernels)):
        raise ValueError(
            f"drag: kernels {list(kernels)}; there are {list(KERNELS)}, and on a line one is drawn"
        )
    if walk and (query is not None or keys.shape[1] == 1 or tuple(kernels) != ("Gaussian",)):
        raise ValueError("drag: walk needs keys in the plane without a query, and the Gaussian alone")
    if field and (query is None or keys.shape[1] == 1):
        raise ValueError("drag: field needs keys in the plane and a query")
    if not set(labels) <= set(WORDS):
        raise ValueError(f"drag: labels {sorted(labels)}; there are {sorted(WORDS)}")
    if not 0 < low <= start <= high:
        raise ValueError(f"drag: the bandwidth {start} is not between {low} and {high}, both positive")
    data = {
        "alt": alt,
        "keys": keys.tolist(),
        "values": None if values is None else values.tolist(),
        "query": None if query is None else list(query),
        "sigma": start,
        "sigmas": [low, high],
        "kernels": list(kernels),
        "x": list(limits[0]),
        "y": list(limits[1]),
        "labels": {**WORDS, **labels},
        "walk": walk,
        "field": field,
    }
    if memory:
        data["memory"] = True
    if process is not None:
        data["process"] = process
    return _stored(data)


def _validate(keys: tuple[int, ...], values: tuple[int, ...] | None, query) -> None:
    if len(keys) != 2 or keys[1] not in (1, 2):
        raise ValueError(f"drag: keys have shape {keys}; it must be (m, 1) or (m, 2)")
    expected = (keys[0], 1) if keys[1] == 1 else None
    if values != expected:
        raise ValueError(f"drag: values have shape {values}; with keys {keys} it must be {expected}")
    if query is None and keys[1] == 1:
        raise ValueError("drag: keys on a line need a query")
    if query is not None and len(query) != keys[1]:
        raise ValueError(f"drag: the query has {len(query)} coordinates, a key has {keys[1]}")


def _stored(data: dict) -> "Drag":
    import matplotlib.pyplot as plt

    if "memory" in data or "process" in data:
        figure, axes = plt.subplots(figsize=(style.COLUMN, 3.4))
        (_memories if "memory" in data else _process)(axes, data)
        _framed(axes, data)
        axes.legend()
    else:
        line, count = data["values"] is not None, len(data["kernels"])
        heights = (25, 7) if line else (1,)  # as in drag.js
        size = (style.COLUMN, 4.4 if line else 3.4)
        figure, panels = plt.subplots(len(heights), count, figsize=size, height_ratios=heights, squeeze=False)
        for axes, name in zip(panels[0], data["kernels"], strict=True):
            _panel(axes, data, KERNELS[name](data["sigma"]))
            axes.set_title(name if count > 1 else "")
        if line:
            _stems(panels[1, 0], data, KERNELS[data["kernels"][0]](data["sigma"]))
    drawn = Drag(data, style.png(figure), digest(figure))
    plt.close(figure)  # pyplot would show it below the cell as well
    return drawn


def _framed(axes, data: dict) -> None:
    axes.set(xlabel=data["labels"]["x"], ylabel=data["labels"]["y"], xlim=data["x"], ylim=data["y"])


def recalled(rule: str, keys, values, rate: float | int, at) -> torch.Tensor:
    """What a memory in the plane recalls at angles, once it has read all pairs of an angle and a number."""
    angles = torch.deg2rad(torch.as_tensor([*keys, *at], dtype=torch.float64))
    vectors = torch.stack([angles.cos(), angles.sin()], -1)[None, None]
    read = torch.arange(len(angles)) < len(keys)  # the others only ask
    told = torch.zeros(1, 1, len(angles), 1, dtype=torch.float64)
    told[0, 0, : len(keys), 0] = torch.as_tensor(values, dtype=torch.float64)
    slots = {"mask": Causal(), "normalizer": Unnormalized()}
    problem = make_problem(vectors, vectors * read[:, None], told, Dot(), **slots)
    gates = {"rate": angles.new_full((1, 1, len(angles)), rate), "ridge": angles.new_full((1,), RIDGE)}
    method = Memory(RULES[rule][0], "recurrent")
    return compute_output(MemoryProblem.of(problem, **gates), method)[0, 0, len(keys) :, 0]


def _memories(axes, data: dict) -> None:
    keys, values = ([row[0] for row in data[name]] for name in ("keys", "values"))
    grid = torch.linspace(data["x"][0], data["x"][1], 201, dtype=torch.float64).tolist()
    for name in data["kernels"]:
        curve = recalled(name, keys, values, data["sigma"], grid)
        axes.plot(grid, curve, RULES[name][2], color=style.PALETTE[RULES[name][1]], label=name)
    axes.plot(keys, values, "o", color="black")
    for number, place in enumerate(zip(keys, values, strict=True), start=1):
        axes.annotate(f"{number}", place, (5, 5), textcoords="offset points")


def posterior(kernel: Kernel, keys, values, noise: float, at) -> tuple[torch.Tensor, torch.Tensor]:
    r"""The mean and the standard deviation of a Gaussian process at places on a line, given noisy values.

    $$m(x) = k(x)^\top (K + \lambda I)^{-1} y$$
    $$s^2(x) = \kappa(x, x) - k(x)^\top (K + \lambda I)^{-1} k(x)$$

    Args:
        kernel: its covariance.
        keys, values: where it was seen, and what was seen there, ``[n]``.
        noise: λ, the variance of the noise on the values.
        at: the places.
    """
    keys, values, at = (torch.as_tensor(one, dtype=torch.float64)[:, None] for one in (keys, values, at))
    seen, between, own = (
        kernel(one[None, None], other[None, None])[0, 0]
        for one, other in ((keys, keys), (keys, at), (at, at))
    )
    solved = torch.linalg.solve(seen + noise * torch.eye(len(keys), dtype=torch.float64), between)
    variance = own.diagonal() - (between * solved).sum(0)
    return (solved.mT @ values)[:, 0], variance.clamp_min(0).sqrt()


def _process(axes, data: dict) -> None:
    keys, values = ([row[0] for row in data[name]] for name in ("keys", "values"))
    low, high = data["x"]
    grid, kernel = torch.linspace(low, high, 201, dtype=torch.float64), Gaussian(data["sigma"])
    mean, deviation = posterior(kernel, keys, values, data["process"], grid)
    blue = style.PALETTE["blue"]
    axes.fill_between(grid, mean - 2 * deviation, mean + 2 * deviation, color=blue, alpha=0.14, linewidth=0)
    axes.plot(grid, mean, color=blue, label="process")
    places, told = (torch.tensor(data[name], dtype=torch.float64) for name in ("keys", "values"))
    average = attention_weights(grid[:, None], places, kernel) @ told
    axes.plot(grid, average[:, 0], "--", color=style.PALETTE["orange"], label="average")
    axes.plot(keys, values, "o", color="black")


def _panel(axes, data: dict, kernel) -> None:
    orange, blue = style.PALETTE["orange"], style.PALETTE["blue"]
    keys = torch.tensor(data["keys"], dtype=torch.float64)[None, None]
    values = keys if data["values"] is None else torch.tensor(data["values"], dtype=torch.float64)[None, None]
    query = torch.tensor([data["query"] or data["keys"][0]], dtype=torch.float64)[None, None]
    row = attention_weights(query, keys, kernel)
    estimate = (row @ values)[0, 0, 0]
    line = data["values"] is not None
    x, y = (keys[0, 0, :, 0], values[0, 0, :, 0]) if line else keys[0, 0].T
    axes.scatter(x, y, s=900 * row[0, 0, 0], color=orange, alpha=0.4, linewidths=0)
    axes.plot(x, y, "o", color="black")
    if line:
        grid = torch.linspace(data["x"][0], data["x"][1], 201, dtype=torch.float64)
        fit = attention_weights(grid[None, None, :, None], keys, kernel) @ values
        axes.plot(grid, fit[0, 0, :, 0], color=blue)
        axes.axvline(data["query"][0], color=orange, linestyle="--", linewidth=1)
        estimate = torch.stack([query[0, 0, 0, 0], estimate[0]])
    else:
        if data["walk"]:
            affinity = kernel(keys, keys)[0, 0]
            for i, j in torch.combinations(torch.arange(len(x))).tolist():
                width = WIDEST * float(affinity[i, j] / affinity.sum())
                axes.plot(x[[i, j]], y[[i, j]], color=blue, alpha=0.6, linewidth=width, zorder=0)
        if data["field"]:
            _shade(axes, data, keys, kernel)
            axes.plot(x[0], y[0], "o", color=orange, markersize=6, markeredgecolor="black")
        axes.plot(*query[0, 0, 0], "+", color=orange, markersize=12, markeredgewidth=2)
    axes.plot(*estimate, "o", color=blue, markersize=9, fillstyle="none")
    _framed(axes, data)


def _stems(axes, data: dict, kernel) -> None:
    """A vertical line for the weight of each key on a line."""
    keys = torch.tensor(data["keys"], dtype=torch.float64)[None, None]
    query = torch.tensor([data["query"]], dtype=torch.float64)[None, None]
    row = attention_weights(query, keys, kernel)[0, 0, 0]
    axes.vlines(keys[0, 0, :, 0], 0, row, color=style.PALETTE["blue"])
    axes.set(xlabel=data["labels"]["x"], ylabel="weight", xlim=data["x"], ylim=(0, 1))


def _shade(axes, data: dict, keys: torch.Tensor, kernel) -> None:
    """A shade for each level that the first key's weight exceeds, from a query in the middle of each cell."""
    across, up = (
        low + (torch.arange(CELLS, dtype=torch.float64) + 0.5) / CELLS * (high - low)
        for low, high in (data["x"], data["y"])
    )
    places = torch.stack(torch.meshgrid(across, up, indexing="xy"), dim=-1).reshape(1, 1, -1, 2)
    share = attention_weights(places, keys, kernel)[0, 0, :, 0].reshape(CELLS, CELLS)
    for level in LEVELS:
        shade = {"colors": [style.PALETTE["blue"]], "alpha": 0.14, "zorder": 0}  # under the disks
        axes.contourf(across, up, share, levels=[level, 1.01], **shade)


@final
@dataclass(frozen=True)
class Drag:
    """A figure whose keys, query and bandwidth a reader drags: the data, the stored picture and its digest.

    Taught in: chapter 01.
    """

    data: dict
    png: bytes
    digest: dict[str, list[str]]

    def to_html(self) -> str:
        """Return the data and the picture as one piece of HTML."""
        data = html.escape(json.dumps(self.data, ensure_ascii=False))
        source = f"data:image/png;base64,{base64.b64encode(self.png).decode('ascii')}"
        alt = html.escape(self.data["alt"])
        image = f'<img class="dark-light" alt="{alt}" src="{source}">'
        return f'<div class="gk-drag" data-drag="{data}">{image}</div>'

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        return {
            "text/plain": f"drag({len(self.data['keys'])} keys)",
            "text/html": self.to_html(),
            MIME: self.digest,
        }
