"""What the papers print, what is stored, and what the modules come to."""

import csv

import pytest

from book._ext.counts import verdict
from chapters.experiments.counts import models, numbers
from gkalib import results

STORE = results.folder() / "counts"
with (STORE / "printed.csv").open(encoding="utf-8", newline="") as _file:
    PRINTED = list(csv.DictReader(_file))
OURS = {record.arm: record.metrics for record in results.load("counts")}


@pytest.mark.parametrize(
    "arm",
    sorted({row["arm"] for row in PRINTED if row["printed"] and row["table"] not in ("grid", "models")}),
)
def test_what_is_stored_is_what_the_modules_come_to(arm):
    found = numbers(arm)
    assert found.keys() == OURS[arm].keys()
    for name, value in found.items():
        # the file's size depends on the version of PyTorch in its fourth digit
        assert value == pytest.approx(OURS[arm][name], rel=1e-3 if name == "file_mebibytes" else 1e-12), name


def test_every_model_is_stored():
    assert set(OURS) == set(models())


@pytest.mark.parametrize(
    "row", PRINTED, ids=lambda row: f"{row['paper']}-{row['table']}-{row['arm']}-{row['metric']}"
)
def test_a_printed_number_agrees_or_the_page_says_why_not(row):
    value = OURS[row["arm"]][row["metric"]]
    said, good = verdict(row, value)
    assert good or row["note"], f"printed {row['printed']}, ours {value}: {said}"


def test_the_disagreements_are_these():
    differ = {
        (row["paper"], row["table"], row["arm"], row["metric"])
        for row in PRINTED
        if not verdict(row, OURS[row["arm"]][row["metric"]])[1]
    }
    assert {row for row in differ if row[0] == "GKA"} == {
        ("GKA", "2", "gka-ti", "parameters_change"),
        ("GKA", "2", "gka-ti", "flops_change"),
        ("GKA", "3", "deit-s", "flops"),
        ("GKA", "8", "nanochat-d20", "parameters"),
        ("GKA", "8", "nanochat-d20-gka", "parameters"),
    }
    assert {row[1] for row in differ if row[0] == "KArAt"} == {"1", "18"}


def test_a_wrong_number_is_said_to_differ():
    row = {"printed": "2.51", "unit": "1e9", "note": ""}
    assert verdict(row, 2_507_366_400) == ("agrees", True)
    assert verdict(row, 2_497_366_400) == ("differs", False)
