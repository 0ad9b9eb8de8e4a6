"""Types of options that several commands share."""

from typing import Annotated, Literal

from tyro.constructors import PrimitiveConstructorSpec

Device = Literal["cpu", "cuda"]
Scale = Literal["smoke", "reduced", "full"]


def _positive(words: list[str]) -> int:
    try:
        number = int(words[0])
    except ValueError:
        raise ValueError(f"must be a whole number, not {words[0]!r}") from None
    if number < 1:
        raise ValueError(f"must be at least 1, not {number}")
    return number


Positive = Annotated[
    int, PrimitiveConstructorSpec(1, "N", _positive, lambda value: isinstance(value, int), lambda n: [str(n)])
]
