"""The metrics of a shape from its rows: ours beside its rivals."""

from gkalib.bench.registry import Row

LOST, WRONG = "the device was lost with", "wrong result"  # how the reason of a row begins
MEASURED = ("ms", "ms_q10", "ms_q90", "tflops", "percent", "percent_stated", "peak_mib")


def summarize(rows: list[Row]) -> dict[str, float]:
    """The metrics of a shape: ``<column>_<pass>_<arm>``, and ours beside its rivals.

    ``ratio_<rival>_<pass>`` is the rival's time over that of ``fused``, ``ratio_sdpa_<pass>`` that of the
    fastest run of softmax attention, with or without a window; ``memory_sdpa_<pass>`` is the peak of
    ``fused`` over that run's. ``drift`` is the time of the first arm at the end over its first, less one.
    """
    metrics: dict[str, float] = {}
    ran = {(row["arm"], row["pass"]): row for row in rows if row["ms"] != ""}
    for (name, one), row in ran.items():
        if name.endswith("-again"):
            metrics["drift"] = row["ms"] / ran[name.removesuffix("-again"), one]["ms"] - 1
            continue
        for column in MEASURED:
            if row[column] != "":
                metrics[f"{column}_{one}_{_key(name)}"] = row[column]
    for one in dict.fromkeys(row["pass"] for row in rows):
        ours = ran.get(("fused", one))
        if ours is None:
            continue
        for name in dict.fromkeys(row["arm"] for row in rows):
            if (name, one) in ran and name != "fused" and not name.endswith("-again"):
                metrics[f"ratio_{_key(name)}_{one}"] = ran[name, one]["ms"] / ours["ms"]
        backends = [row for (name, direction), row in ran.items() if (name[:5], direction) == ("sdpa-", one)]
        if backends:
            best = min(backends, key=lambda row: row["ms"])
            metrics[f"ratio_sdpa_{one}"] = best["ms"] / ours["ms"]
            if best["peak_mib"] not in ("", 0.0) and ours["peak_mib"] != "":
                metrics[f"memory_sdpa_{one}"] = ours["peak_mib"] / best["peak_mib"]
    for name in ("clock_mhz", "products", "memory", "exponentials"):
        if rows and rows[0][name] != "":
            metrics[name] = rows[0][name]
    wrong = {row["arm"] for row in rows if row["arm"][:5] == "fused" and row["reason"].startswith(WRONG)}
    metrics["wrong"] = float(len(wrong))
    metrics["cells"] = len([row for row in rows if not row["arm"].endswith("-again")])
    metrics["cells_run"] = len([key for key in ran if not key[0].endswith("-again")])
    return metrics


def _key(name: str) -> str:
    return name.replace("-", "_")
