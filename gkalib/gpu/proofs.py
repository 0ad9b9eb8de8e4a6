"""What the correctness runs on a card prove, for ``auto`` to go by."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from gkalib import results
from gkalib.gpu import correctness, plan, tune
from gkalib.gpu.operations import OPERATIONS
from gkalib.smoothing.fused import configs, proved
from gkalib.smoothing.fused.configs import Table
from gkalib.smoothing.fused.proved import DIRECTIONS, Proof

Place = tuple[str, str, str, str]
"""A card, a type, and the versions of PyTorch and Triton."""


def by_record(stores: Sequence[Path] = ()) -> list[Proof]:
    """What the runs in these stores prove of the programs that are here.

    An operation of ``auto`` is proved in a direction where every one of OPERATIONS that bears on it was
    compared to the end and was right in each row; of several runs the newest counts. Runs of other programs
    do not count, nor those with block sizes that tuning led neither to nor from. A proof holds for the block
    sizes that the recorded times choose: a candidate is chosen only if it computes what the shipped one does.
    """
    roots = list(dict.fromkeys(stores or [results.folder()]))
    table = tune.by_record(roots)
    return sorted(
        Proof(operation, direction, device, dtype, proved.programs(), configs.blocks(table), *versions)
        for (device, dtype, *versions), right in _outcomes(roots).items()
        for operation, names in _bearing(table, dtype).items()
        for direction in DIRECTIONS
        if all(direction in right.get(name, ()) for name in names)
    )


def _bearing(table: Table, dtype: str) -> dict[str, list[str]]:
    """For each operation of ``auto`` what is checked of it, with the stand-ins that a table ships."""
    names: dict[str, list[str]] = {}
    for name, kind in OPERATIONS.items():
        stand_ins = [table.get(program, {}) for program in kind.stand_ins or ()]
        entries = [entry for widths in stand_ins for kinds in widths.values() for entry in kinds.values()]
        runs = not stand_ins or any(entry["shipped"] for entry in entries)
        if kind.ordered and runs and dtype in correctness.types_of(name, "cuda"):
            names.setdefault(kind.proves, []).append(name)
    return names


def _outcomes(roots: Sequence[Path]) -> dict[Place, dict[str, tuple[str, ...]]]:
    """For each place and each of OPERATIONS the directions that were right in the newest whole run."""
    known, found = plan.same_line(_records(plan.EXPERIMENT, roots)), {}
    runs = [(record, root) for root in roots for record in _records(correctness.EXPERIMENT, [root])]
    for record, root in sorted(runs, key=lambda run: run[0].date):
        recipe, (torch, triton) = record.recipe, (record.versions[name] for name in ("torch", "triton"))
        if recipe.get("programs") != proved.programs() or recipe.get("blocks") not in known:
            continue
        cases = list(correctness.checks(recipe["operation"], "cuda", recipe["types"]))
        whole, rows = record.metrics["cases"] == len(cases), results.rows(record, root=root)
        for dtype in {case.dtype for case in cases} if whole or record.metrics["wrong"] else ():
            right = _right([row for row in rows if row["dtype"] == dtype]) if whole else ()
            found.setdefault((record.device, dtype, torch, triton), {})[recipe["operation"]] = right
    return found


def _right(rows: Sequence[dict[str, str]]) -> tuple[str, ...]:
    """The directions in which every row is right; a gradient counts only where the output is right too."""
    if not all(int(row["right"]) for row in rows if row["what"] == "out"):
        return ()
    gradients = [int(row["right"]) for row in rows if row["what"] != "out"]
    return DIRECTIONS if gradients and all(gradients) else DIRECTIONS[:1]


def _records(experiment: str, roots: Iterable[Path]) -> list[results.Record]:
    held = [root for root in roots if experiment in results.experiments(root=root)]
    return [record for root in held for record in results.load(experiment, root=root)]


def write(proofs: Iterable[Proof], path: Path = proved.PROVED) -> None:
    """Write proofs where they are read from then on."""
    path.write_text(proved.text(proofs))
    proved.forget()
