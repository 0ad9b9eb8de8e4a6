"""What the fused operations are to reach on a GPU, by ``data/results/goals.csv``, and what runs have shown.

``python -m gkalib.bench.goals`` prints the table of the README and a line a goal.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from gkalib import results

WORDS = {
    "gka": "Gaussian kernel attention against PyTorch's fastest attention",
    "rbf": "RBF attention against the same, and against the padded form",
    "gpa": "a lag table with its gradient against none, and FlexAttention",
    "karat": "a learned row operator against eager, and its memory",
    "decode": "decoding from a cache of one tensor",
    "models": "whole vision transformers against DeiT",
}
NOT_RUN = "not run yet"


@final
@dataclass(frozen=True)
class Goal:
    """One number to reach: a row of the table.

    Args:
        record: the arm of the run in ``data/results/bench`` that holds it, ``<benchmark>-<shape>``.
        metric: of that run; a ratio of times is the rival's over ours.
        words: what is compared.
        goal: ``≥`` or ``≤`` and the bound of the number, or where ``inverse`` says yes of its inverse.
        inverse: whether it is read as our time over the rival's.
        arms: those that it compares, between blanks.
    """

    record: str
    metric: str
    words: str
    goal: str
    inverse: str
    arms: str

    @property
    def benchmark(self) -> str:
        return self.record.partition("-")[0]

    def value(self, runs: Sequence[results.Record]) -> tuple[float, str] | None:
        """The number in the first of the runs that has it, and the device; None where none has."""
        for run in runs:
            if run.scale == "full" and self.metric in run.metrics:
                number = run.metrics[self.metric]
                return (1 / number if self.inverse else number), run.device
        return None

    def met(self, number: float) -> bool:
        """Whether a number is on the right side of the bound."""
        sign, bound = self.goal.split()
        return number <= float(bound) if sign == "≤" else number >= float(bound)


def _rows(name: str) -> list[dict[str, str]]:
    """Of the last table of a name in the repository's ``data/results``; of none outside of it."""
    paths = sorted(((results.repository() or Path()) / "data" / "results").glob(name))
    if not paths:
        return []
    with paths[-1].open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def goals() -> list[Goal]:
    """The rows of the table."""
    return [Goal(**row) for row in _rows("goals.csv")]


def reached() -> list[tuple[Goal, tuple[float, str] | None]]:
    """Each goal with the number and the device of the newest run on a GPU that has it."""
    every = goals()
    # Arm by arm: a page that shows goals is then not out of date when some other benchmark is recorded.
    runs = {arm: _on_a_gpu(arm) for arm in dict.fromkeys(goal.record for goal in every)}
    return [(goal, goal.value(runs[goal.record])) for goal in every]


def _on_a_gpu(arm: str) -> list[results.Record]:
    """The runs of a benchmark's shape on a GPU, the newest first; processors are named by their cores."""
    try:
        records = results.load("bench", arm=arm)
    except ValueError:  # there are none
        return []
    return [record for record in records if record.device != "cpu" and "cores" not in record.device]


def markdown() -> str:
    """The README's table: how many goals of every benchmark were measured and met, and the command."""
    lines = ["| what | goals | measured | met | command |", "|---|---|---|---|---|"]
    every = reached()
    for name, words in WORDS.items():
        chosen = [(goal, found) for goal, found in every if goal.benchmark == name]
        measured = [(goal, *found) for goal, found in chosen if found]
        devices = ", ".join(dict.fromkeys(device for *_, device in measured))
        met = sum(goal.met(number) for goal, number, _ in measured)
        cells = (f"{len(measured)} on {devices}", met) if measured else (NOT_RUN, "")
        command = f"`python -m gkalib bench {name} --device cuda --keep`"
        lines.append(f"| {' | '.join(map(str, (words, len(chosen), *cells, command)))} |")
    return "\n".join(lines)


def listing() -> str:
    """A line a goal: what is wanted, what was predicted before any run on a GPU, what was measured."""
    predicted = {(row["record"], row["metric"]): row["predicted"] for row in _rows("predictions/*.csv")}
    lines = []
    for goal, found in reached():
        told = predicted.get((goal.record, goal.metric), "–")
        number = f"{found[0]:.3g}, {'met' if goal.met(found[0]) else 'missed'}" if found else NOT_RUN
        lines.append(f"{goal.record:<18}  {goal.words:<42}  {goal.goal:>6}  predicted {told:>6}  {number}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown(), listing(), sep="\n\n")
