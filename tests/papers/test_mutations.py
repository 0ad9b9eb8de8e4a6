"""The ledger's exact cells against broken code: each has to turn, and no other that does not rest on it."""

import os
import random
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
import torch

from chapters.experiments.counts import numbers
from gkalib.results import load
from tests.papers import Mutation, mutated

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "book"))

from _ext.claims import Cell, Papers  # noqa: E402
from _ext.proof import Judge, number  # noqa: E402
from _ext.results_role import agrees  # noqa: E402

SAMPLE = 10  # cells a day
PAPERS = Papers(ROOT / "data" / "results")
# What a change of the way of counting turns: all numbers that are made of it, of every model.
MODELS, COUNTS = "gkalib.models.count", "chapters.experiments.counts"
COUNTING = {
    metric: Mutation(*change)
    for metric, change in {
        "parameters": (MODELS, "sum(parameter.numel() for", "sum(parameter.ndim for"),
        "attention_parameters": (MODELS, '_ATTENTION = {"attn",', '_ATTENTION = {"mlp",'),
        "mlp_parameters": (MODELS, '_MLP = {"mlp"}', '_MLP = {"attn"}'),
        "flops": (MODELS, "flops = counter.get_total_flops()\n", "flops = counter.get_total_flops() // 2\n"),
        "mebibytes": (MODELS, "_stored(model)) / 2**20", "_stored(model)) / 10**6"),
        "activation_macs": (MODELS, "return batch * queries * getattr", "return batch * getattr"),
        "flops_per_token": (MODELS, "return 3 * (other", "return 2 * (other"),
        "sigmas": (COUNTS, 'if "log_sigma" in path', 'if "sigma.weight" in path'),
        "file_mebibytes": (COUNTS, "stored.tell() / 2**20", "stored.tell() / 10**6"),
        "training_flops": (COUNTS, '["flops_per_token"] * chosen.tokens', '["flops"] * chosen.tokens'),
        "added_parameters": (COUNTS, "counted.parameters - base.parameters", "counted.parameters"),
        "change": (COUNTS, "getattr(base, key) - 1)", "getattr(base, key))"),
    }.items()
}
MADE_OF = {
    "parameters": {"parameters_change", "added_parameters"},
    "attention_parameters": {"attention_parameters_change"},
    "flops": {"flops_change", "flops_per_token", "training_flops"},
    "flops_per_token": {"training_flops"},
    "change": {"parameters_change", "attention_parameters_change", "flops_change"},
}


def exact_cells() -> list[Cell]:
    """Every cell that the ledger calls exact and that names a test or a count of its own."""
    judge = Judge(ROOT, PAPERS)
    cells = [cell for some in PAPERS.cells.values() for cell in some.values()]
    return [cell for cell in cells if judge.proof(cell).status == "exact" and kind(cell) != "cells"]


def kind(cell: Cell) -> str:
    return cell.evidence[0].partition(" ")[0]


def named(cell: Cell) -> str:
    """The test behind a cell, as pytest names it."""
    return cell.evidence[0].removeprefix("test ")


@cache
def test_named(identifier: str) -> Callable[[], None]:
    file, _, name = identifier.partition("::")
    return getattr(import_module(file.removesuffix(".py").replace("/", ".")), name)


test_named.__test__ = False  # pyright: ignore[reportFunctionMemberAccess]


def turned(cells: list[Cell]) -> Iterator[str]:
    """The tests of these cells that fail."""
    for identifier in dict.fromkeys(named(cell) for cell in cells):
        torch.manual_seed(0)
        try:
            test_named(identifier)()
        except Exception:  # an error of the broken code is seen too
            yield identifier


def drawn(cells: list[Cell]) -> list[Cell]:
    """The day's sample."""
    return random.Random(os.environ["MUTATE"]).sample(cells, SAMPLE)


def stored_of(cell: Cell, stored: dict) -> float | None:
    """What the count is divided by, where the cell is a ratio of two."""
    _, _, below = cell.evidence[0].removeprefix("count ").partition(" / ")
    arm, _, metric = below.partition("/")
    return stored[arm][metric] if below else None


def of_tests(cells: list[Cell]) -> list[Cell]:
    return [cell for cell in cells if kind(cell) == "test"]


def test_every_asserted_cell_has_a_test_of_its_own_that_a_mutation_is_known_to_turn():
    cells = of_tests(exact_cells())
    names = [named(cell) for cell in cells]
    assert len(set(names)) == len(names), "one test, one cell"
    for name in names:
        assert name.startswith("tests/papers/"), name
        assert test_named(name).mutations and (test_named(name).__doc__ or "").endswith("."), name


def test_broken_code_turns_the_cell_that_asserts_it_and_no_other():
    every = of_tests(exact_cells())
    random.seed(os.environ["MUTATE"])
    for cell in of_tests(drawn(exact_cells())):
        mutation = random.choice(test_named(named(cell)).mutations)
        file = named(cell).partition("::")[0]
        expected = {named(cell), *(name if "::" in name else f"{file}::{name}" for name in mutation.also)}
        with mutated(mutation):
            found = set(turned(every))
        print(f"{cell.name}: {mutation} turned {', '.join(sorted(found))}")
        assert found == expected, f"MUTATE={os.environ['MUTATE']}: {cell.name}: {mutation}"
    assert not set(turned(every)), "the code is as it was"


def test_broken_counting_turns_the_counts_made_of_it_and_no_other():
    stored = {record.arm: record.metrics for record in load("counts")}
    for cell in drawn(exact_cells()):
        if kind(cell) != "count":
            continue
        arm, _, metric = cell.evidence[0].split(" ")[1].partition("/")  # of two, the first
        by = "change" if metric.endswith("_change") else metric
        with mutated(COUNTING[by]):
            found = numbers(arm)
        changed = {
            name for name, value in found.items() if value != pytest.approx(stored[arm][name], rel=1e-3)
        }
        print(f"{cell.name}: {COUNTING[by]} turned {', '.join(sorted(changed))} of {arm}")
        message = f"MUTATE={os.environ['MUTATE']}: {cell.name}: {COUNTING[by]}"
        assert {metric} <= changed <= {by, *MADE_OF.get(by, ())}, message
        ours = found[metric] / (stored_of(cell, stored) or cell.unit)
        assert not agrees(number(cell.printed), ours), message


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("no such text", "", "there 0 times"),
        ("heads", "Heads", "there .* times"),
        ('"""Each head\'s vector', '"""Every head\'s vector', "no function and no constant"),
    ],
)
def test_a_mutation_that_changes_nothing_is_a_fault(old, new, message):
    with pytest.raises(ValueError, match=message), mutated(Mutation("gkalib.layers.parts", old, new)):
        pass
