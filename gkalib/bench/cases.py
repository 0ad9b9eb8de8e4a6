"""What is timed, as data: the two kinds of benchmarks, and the shapes of the models that the papers train."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, final

Case = dict[str, Any]
"""One thing to time, as JSON; it names its ``device``."""
Row = dict[str, Any]
"""What was measured of an arm."""

LOST, WRONG = "the device was lost with", "wrong result"  # how the reason of a row begins


def reason_of(error: Exception) -> str:
    """The first line of an error, without paths of this machine, for the row of what did not run."""
    text = re.sub(r"(?<![\w.])/[\w./-]+", "…", str(error).strip().split("\n")[0])
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__


@final
@dataclass(frozen=True)
class Sweep:
    """A benchmark of arms over sizes, each case in a process of its own.

    Args:
        cases: from a scale and a device to the cases, each with an ``arm`` and a size ``n``.
        prepare: from a case to the function to time; inputs are made here, outside the clock. It is sent to
            another process, so it is a function of a module.
        gate: raises ``AssertionError`` if the results on a device are not right; then nothing is timed.
        against: arms that every row is set beside, as the metric ``ratio_<arm>``: their time over the row's.
    """

    cases: Callable[[str, str], list[Case]]
    prepare: Callable[[Case], Callable[[], object]]
    gate: Callable[[str], None]
    against: tuple[str, ...] = ()


@final
@dataclass(frozen=True)
class Comparison:
    """A benchmark of several arms on one shape, all in one process, so that ratios of times are of one run.

    A shape's run becomes one record, ``bench/<benchmark>-<shape>``, whose ``metrics.csv`` has a row for every
    arm and pass, with the reason where an arm did not run.

    Args:
        shapes: from a scale and a device to the cases, each with the name of its ``shape``.
        time: from a case to its rows, each with the reason where an arm did not run or was wrong. It is sent
            to another process, so it is a function of a module.
        summarize: from the rows to the record's metrics.
        seconds: how long a case takes on the device it names: an estimate.
        rehearse: compiles, for a case, what ``time`` will start, where that is worth a call of its own.
    """

    shapes: Callable[[str, str], list[Case]]
    time: Callable[[Case], list[Row]]
    summarize: Callable[[list[Row]], dict[str, float]]
    seconds: Callable[[Case], float]
    rehearse: Callable[[Case], None] | None = None


PASSES = ("forward", "backward", "both")
MODELS = {"ti": ("tiny", 192, 3), "s": ("small", 384, 6), "b": ("base", 768, 12)}
"""Whole models by DeiT's names for them: our name, width and heads."""
TRAINING = (64, 128)  # images in a batch of a whole model
VIT = {"vit-ti": 3, "vit-s": 6, "vit-b": 12}  # heads of DeiT's sizes; 196 patches and a class token


def _case(shape: str, batch: int, heads: int, length: int, width: int, **more: Any) -> Case:
    causal = more.pop("causal", False)
    return {
        "shape": shape,
        "batch": batch,
        "heads": heads,
        "queries": length,
        "keys": length,
        "width": width,
        "causal": causal,
        "window": None,
        "dtype": "bfloat16",
        "passes": list(PASSES),
        **more,
    }


def _gka() -> Iterator[Case]:
    for name, heads in VIT.items():
        yield _case(name, 256, heads, 197, 64)
    # nanochat at depth 20; its window of S keeps S + 1 keys, which differs from these by one in a thousand
    yield _case("text", 8, 10, 2048, 128, causal=True)
    for window in (1024, 512):
        yield _case(f"text-{window}", 8, 10, 2048, 128, causal=True, window=window)
    for dtype in ("float16", "float32"):
        yield _case(f"vit-ti-{dtype}", 256, 3, 197, 64, dtype=dtype)


def _rbf() -> Iterator[Case]:
    for length in (2048, 8192):  # batch, heads, width and type of the article's own profile
        yield _case(f"article-{length}", 4, 8, length, 64, causal=True, dtype="float16")
    yield _case("text", 8, 10, 2048, 128, causal=True)


def _gpa() -> Iterator[Case]:
    yield _case("dickens", 256, 4, 256, 128, causal=True)
    yield _case("text", 8, 10, 2048, 128, causal=True)
    yield _case("encoder", 32, 12, 512, 64)  # T5-base reads both ways


def _karat() -> Iterator[Case]:
    for name, heads in VIT.items():
        yield _case(name, 256, heads, 197, 64)


def _decode() -> Iterator[Case]:
    for kernel in ("gka", "rbf", "gpa"):
        yield _case(kernel, 8, 10, 2048, 128, queries=1, passes=["forward"])


FAMILIES = {"gka": _gka, "rbf": _rbf, "gpa": _gpa, "karat": _karat, "decode": _decode}


def shapes(family: str, scale: str, device: str) -> list[Case]:
    """The cases of a family.

    Full ones are for a GPU. Reduced ones keep lengths and widths, have small batches and few heads and are in
    float32, so that a CPU can run them; smoke ones only show that everything runs.

    Raises:
        ValueError: for full ones on a CPU.
    """
    if scale == "full" and device == "cpu":
        raise ValueError(
            f"bench: {family} at full scale is sized for a GPU: name --device cuda, or --scale reduced"
        )
    kernel = {"family": family, "device": device, "scale": scale}
    cases = [{**kernel, **case} for case in FAMILIES[family]()]
    if family == "decode":
        cases = [{**case, "family": case["shape"]} for case in cases]
    if scale == "full":
        return cases
    return [
        _smaller(case)
        for case in cases
        if case["keys"] <= 2048 and not case["shape"].endswith(("float16", "float32"))
    ]


def _smaller(case: Case) -> Case:
    small = {"batch": 1, "heads": 2, "dtype": "float32"}
    if case["scale"] == "reduced":
        return {**case, "dtype": "float32", "batch": 4} if case["keys"] < 1024 else {**case, **small}
    return {
        **case,
        **small,
        "queries": 1 if case["queries"] == 1 else 20,
        "keys": 20,
        "width": 16,
        "window": None if case["window"] is None else 7,
    }
