"""Which rows of the data a step reads: a function of the seed and the step, whoever computes it."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple, final

import numpy as np

Kind = Literal["shuffled", "random", "sequential"]


def key(*numbers: int) -> int:
    """A seed of 63 bits made from several numbers, such as the run's seed, the step and a part of it."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))


class Part(NamedTuple):
    """What goes through the model at once.

    Args:
        rows: ``[device_batch]``, numbers of rows of the data.
        keys: ``[device_batch]``, a seed for each of them, never used twice in a run.
    """

    rows: np.ndarray
    keys: list[int]


@final
@dataclass(frozen=True)
class Sampler:
    """The rows of every step of a run, as an endless stream that a step takes ``batch`` of.

    Args:
        length: how many rows there are.
        batch: rows per step.
        parts: into how many parts a step is divided: part g has every ``parts``-th row, from the g-th.
        seed: of the run.
        kind: ``shuffled`` reads all rows in a new order in each epoch, ``random`` draws each row anew,
            ``sequential`` reads them as they stand, over and over.
        repeats: how many times in a row an epoch takes each row; it is as long as without, so that it sees
            fewer rows (repeated augmentation).

    Raises:
        ValueError: if there are no rows.

    References:
        Repeated augmentation: Hoffer et al., Augment your batch, 2020.
    """

    length: int
    batch: int
    parts: int
    seed: int
    kind: Kind = "shuffled"
    repeats: int = 1

    def __post_init__(self):
        if self.length < 1:
            raise ValueError("train: the data has no rows to train on")

    def part(self, step: int, number: int) -> Part:
        """One part of one step."""
        places = step * self.batch + np.arange(number, self.batch, self.parts)
        return Part(self._rows(step, number, places), [key(self.seed, 1, int(place)) for place in places])

    def times(self, steps: int) -> np.ndarray:
        """How often each row is read in so many steps, ``[length]``, in an order that draws none anew."""
        assert self.kind != "random" and self.repeats == 1
        whole, rest = divmod(steps * self.batch, self.length)
        counts = np.full(self.length, whole)
        last = _shuffled(self.length, self.seed, whole) if self.kind == "shuffled" else np.arange(self.length)
        counts[last[:rest]] += 1
        return counts

    def _rows(self, step: int, number: int, places: np.ndarray) -> np.ndarray:
        if self.kind == "random":
            rows = np.random.default_rng([self.seed, 2, step]).integers(self.length, size=self.batch)
            return rows[number :: self.parts]
        if self.kind == "sequential":
            return places % self.length
        epochs, inside = np.divmod(places, self.length)
        return np.array(
            [
                _shuffled(self.length, self.seed, int(e))[i // self.repeats]
                for e, i in zip(epochs, inside, strict=True)
            ]
        )


@lru_cache(maxsize=2)
def _shuffled(length: int, seed: int, epoch: int) -> np.ndarray:
    return np.random.default_rng([seed, 0, epoch]).permutation(length)
