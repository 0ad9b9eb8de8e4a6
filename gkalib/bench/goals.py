"""What the fused operations are meant to reach on a GPU, and how much of it recorded runs have shown.

``python -m gkalib.bench.goals`` prints the table of the README.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from gkalib import results

WORDS = {
    "gka": "Gaussian kernel attention against PyTorch's fastest attention",
    "rbf": "RBF attention against the same, and against the padded form",
    "gpa": "a lag table with its gradient against none, and FlexAttention",
    "karat": "a learned row operator against eager, and its memory",
    "decode": "decoding from a cache of one tensor",
    "models": "whole vision transformers against DeiT",
}


@dataclass(frozen=True)
class Goal:
    """One number to reach.

    Args:
        record: the arm of the run in ``data/results/bench`` that holds it, ``<benchmark>-<shape>``.
        metric: of that run; a ratio of times is the rival's over ours.
        words: what is compared.
        bound: what the number, or where ``inverse`` its inverse, should be.
        at_most: whether the bound is an upper one.
        inverse: whether it is read as our time over the rival's.
    """

    record: str
    metric: str
    words: str
    bound: float
    at_most: bool = False
    inverse: bool = False

    @property
    def benchmark(self) -> str:
        return self.record.partition("-")[0]

    @property
    def command(self) -> str:
        """What measures it."""
        name, _, shape = self.record.partition("-")
        return f"python -m gkalib bench {name} {shape} --device cuda --keep"

    def __str__(self) -> str:
        return f"{'≤' if self.at_most else '≥'} {self.bound:g}×"

    def met(self, value: float) -> bool:
        """Whether a number is on the right side of the bound."""
        return value <= self.bound if self.at_most else value >= self.bound


def _goals() -> Iterator[Goal]:
    for size in ("ti", "s", "b"):
        yield Goal(f"gka-vit-{size}", "ratio_sdpa_forward", "forward, against SDPA", 1.5)
        yield Goal(f"gka-vit-{size}", "ratio_sdpa_both", "forward and backward, against SDPA", 1.3)
    for shape in ("text", "text-1024", "text-512"):
        yield Goal(f"gka-{shape}", "ratio_sdpa_forward", "forward, against SDPA", 1.0)
        yield Goal(f"gka-{shape}", "ratio_sdpa_both", "forward and backward, against SDPA", 0.9)
    for shape in ("article-2048", "article-8192", "text"):
        yield Goal(f"rbf-{shape}", "ratio_sdpa_forward", "forward, against SDPA", 0.9)
        yield Goal(f"rbf-{shape}", "ratio_sdpa_backward", "backward, against SDPA", 0.85)
        yield Goal(f"rbf-{shape}", "ratio_padded_both", "forward and backward, against padded", 1.3)
    for shape in ("dickens", "text"):
        without = "backward, time over that without a table"
        yield Goal(f"gpa-{shape}", "ratio_fused_no_table_backward", without, 1.5, True, True)
        yield Goal(f"gpa-{shape}", "ratio_flex_backward", "backward, against FlexAttention", 2.0)
    for size in ("ti", "s", "b"):
        yield Goal(f"karat-vit-{size}", "ratio_eager_both", "forward and backward, against eager", 5.0)
        memory = "forward and backward, memory over SDPA's"
        yield Goal(f"karat-vit-{size}", "memory_sdpa_both", memory, 1.3, True)
    yield Goal("decode-gka", "ratio_sdpa_forward", "one token, time over SDPA's", 0.6, True, True)
    for size in ("ti", "s", "b"):
        for batch in (64, 128):
            at = f"training at batch {batch}"
            yield Goal(f"models-{size}-training", f"throughput_{batch}", f"{at}, images a second", 1.15)
            yield Goal(f"models-{size}-training", f"memory_{batch}", f"{at}, memory", 0.85, True)
        yield Goal(f"models-{size}-inference", "throughput_best", "inference, images a second", 1.0)


GOALS = tuple(_goals())


@dataclass(frozen=True)
class Reached:
    """A goal beside what was measured.

    Args:
        goal: what was wanted.
        value: the number, None where there is none.
        device: on which it was measured.
    """

    goal: Goal
    value: float | None
    device: str = ""

    @property
    def state(self) -> str:
        """``"met"``, ``"missed"`` or ``"not run yet"``."""
        if self.value is None:
            return "not run yet"
        return "met" if self.goal.met(self.value) else "missed"


def reached() -> list[Reached]:
    """Every goal beside the newest run on a GPU that has its number; runs on a CPU count for none."""
    # Arm by arm: a page that shows goals is then not out of date when some other benchmark is recorded.
    runs = {arm: _runs(arm) for arm in dict.fromkeys(goal.record for goal in GOALS)}
    found = []
    for goal in GOALS:
        record = next((one for one in runs[goal.record] if goal.metric in one.metrics), None)
        if record is None:
            found.append(Reached(goal, None))
        else:
            value = record.metrics[goal.metric]
            found.append(Reached(goal, 1 / value if goal.inverse else value, record.device))
    return found


def _runs(arm: str) -> list[results.Record]:
    try:
        found = results.load("bench", scale="full", arm=arm)
    except ValueError:
        return []
    return [one for one in found if one.recipe.get("device") == "cuda"]


def markdown() -> str:
    """The README's table: how many goals of every benchmark were measured and met, and the command."""
    found = reached()
    lines = ["| what | goals | measured | met | command |", "|---|---|---|---|---|"]
    for name, words in WORDS.items():
        mine = [one for one in found if one.goal.benchmark == name]
        measured = [one for one in mine if one.value is not None]
        devices = ", ".join(dict.fromkeys(one.device for one in measured))
        met = sum(one.state == "met" for one in measured)
        columns = (
            words,
            str(len(mine)),
            f"{len(measured)} on {devices}" if measured else "not run yet",
            str(met) if measured else "",
            f"`python -m gkalib bench {name} --device cuda --keep`",
        )
        lines.append(f"| {' | '.join(columns)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown())
