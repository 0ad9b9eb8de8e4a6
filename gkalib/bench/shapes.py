"""The shapes on which fused operations are timed: those of the models that the papers train."""

from collections.abc import Iterator
from typing import Any

from gkalib.bench.registry import Case

PASSES = ("forward", "backward", "both")
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
