"""Figures of floors: what limits each shape, how near published programs come, what is predicted."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from gkalib.bench.goals import Goal
from gkalib.bench.predictions import Prediction
from gkalib.bench.roofline import Floor, Rates
from gkalib.viz.style import COLUMN, PALETTE

PARTS = {"products": "blue", "exponentials": "orange", "memory": "black"}
PROGRAMS = {"FlashAttention-3": "blue", "cuDNN": "green", "FlashAttention-2": "orange"}


def floors(shapes: Mapping[str, Floor]) -> Figure:
    """The microseconds that each resource needs, a group of bars for each shape; the longest is dark.

    Args:
        shapes: by name.

    Taught in: chapter 19.
    """
    figure, axes = plt.subplots(figsize=(COLUMN, 4.0))
    for row, floor in enumerate(shapes.values()):
        for shift, (part, shade) in enumerate(PARTS.items()):
            style = {"color": PALETTE[shade], "alpha": 1 if part == floor.bound else 0.35}
            axes.barh(row + 0.26 * (shift - 1), 1e6 * getattr(floor, part), 0.24, **style)
    for part, shade in PARTS.items():
        axes.barh(0, 0, color=PALETTE[shade], label=part)
    axes.set_yticks(range(len(shapes)), list(shapes))
    axes.set(xscale="log", xlabel="µs at least", xlim=(0.1, 400))
    axes.invert_yaxis()
    axes.legend(fontsize=8)
    return figure


def predicted(goals: Sequence[Goal], rows: Mapping[tuple[str, str], Prediction]) -> Figure:
    """A line for each goal, from the ratio predicted to that at best, with the goal as a tick.

    Args:
        goals: ratios of times, the rival's over ours.
        rows: the predictions by record and metric.

    Raises:
        ValueError: if a goal has no prediction.

    Taught in: chapter 19.
    """
    if missing := [goal.record for goal in goals if (goal.record, goal.metric) not in rows]:
        raise ValueError(f"predicted: there is no prediction for {', '.join(missing)}")
    figure, axes = plt.subplots(figsize=(COLUMN, 4.2))
    for place, goal in enumerate(goals):
        row = rows[goal.record, goal.metric]
        ends = [float(row["predicted"]), float(row["at_best"])]
        axes.plot(ends, [place, place], color=PALETTE["blue"])
        axes.plot(ends[0], place, "o", color=PALETTE["blue"])
        axes.plot(goal.bound, place, "|", color=PALETTE["orange"], ms=11, mew=2)
    names = [f"{goal.record}, {goal.metric.rpartition('_')[2]}" for goal in goals]
    axes.set_yticks(range(len(goals)), names, fontsize=8)
    axes.axvline(1, color="gray", lw=0.8)
    axes.invert_yaxis()
    axes.set(xlabel="time of SDPA / time of ours")
    return figure


def shares(
    published: Mapping[tuple[str, int], Sequence[int]], lengths: Sequence[int], rates: Rates
) -> Figure:
    r"""Floor over time of softmax attention without a mask in two bytes, from published rates.

    $$\frac{t_0}{t} = \max\Big(\frac{4dn}{R_F}, \frac{n}{R_E}, \frac{8d}{R_M}\Big) \cdot \frac{R}{4dn}$$

    Args:
        published: R in TFLOP/s at each length, by program and width d of a head. Widths of 128 are drawn as
            circles, others as squares.
        lengths: n, numbers of tokens.
        rates: of the device.

    Raises:
        ValueError: if a program has not one rate for each length.

    Taught in: chapter 19.
    """
    figure, axes = plt.subplots(figsize=(COLUMN, 2.9))
    for (name, d), found in published.items():
        if len(found) != len(lengths):
            raise ValueError(f"shares: {name} has {len(found)} rates for {len(lengths)} lengths")
        line = []
        for n, rate in zip(lengths, found, strict=True):
            operations, moved = 4 * d * n, 8 * d  # of one query and its n pairs
            times = operations / rates.products, n / rates.exponentials, moved / rates.memory
            line.append(max(times) * rate * 1e12 / operations)
        label = name if d == 128 else None
        mark = "o-" if d == 128 else "s-"
        axes.plot(lengths, line, mark, color=PALETTE[PROGRAMS[name]], ms=4, label=label)
    axes.set(xscale="log", xlabel="tokens", ylabel="floor / time", ylim=(0, 1))
    axes.set_xticks(lengths, [str(n) for n in lengths])
    axes.minorticks_off()
    axes.legend(fontsize=8)
    return figure
