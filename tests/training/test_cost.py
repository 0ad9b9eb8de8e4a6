"""Hours of a run: above what no program can beat, near what the GKA paper's cards did, and as recorded."""

import csv
from dataclasses import replace

import pytest

from gkalib import results
from gkalib.training import cost, launch, recipe
from gkalib.training.cost import CARDS, measured_hours
from tests.training.runs import recorded

with (results.folder() / "papers" / "gka.csv").open(encoding="utf-8", newline="") as file:
    PRINTED = {
        (row["row"], row["column"]): float(row["printed"].replace(",", ""))
        for row in csv.DictReader(file)
        if row["where"] == "Table 4" and row["column"].endswith("(img/s)") and row["row"][0] in "dg"
    }


def images_a_second(arm: str, size: str, batch: int) -> list[float]:
    """On the paper's seven cards, at the bound and as expected."""
    name = {"ti": "tiny", "s": "small", "b": "base"}[size]
    run = replace(recipe(f"gka-imagenet-{name}").run(arm), batch=7 * batch, device_batch=batch)
    spent = cost(run)
    return [spent.items / hours / 3600 for hours in spent.hours("RTX 5090", 7)]


@pytest.mark.parametrize("size", ["ti", "s", "b"])
@pytest.mark.parametrize("batch", [64, 128])
def test_hours_are_those_of_the_papers_throughputs(size, batch):
    """DeiT's within an eighth; GKA's program stores all weights and is up to 3.1 times as slow."""
    bound, expected = images_a_second("deit", size, batch)
    printed = PRINTED[f"deit-{size}", f"Training, {batch} (img/s)"]
    assert printed < bound and expected == pytest.approx(printed, rel=1 / 8)
    bound, expected = images_a_second("gka", size, batch)
    printed = PRINTED[f"gka-{size}", f"Training, {batch} (img/s)"]
    assert printed < expected < 3.1 * printed and expected < bound


def test_the_papers_run_of_seven_cards():
    """384 million images at the printed 13,678 a second are 7.8 hours."""
    spent = cost(recipe("gka-imagenet-tiny").run("gka"))
    printed = spent.items / PRINTED["gka-ti", "Training, 128 (img/s)"] / 3600
    low, high = spent.hours("RTX 5090", 7)
    assert printed == pytest.approx(7.8, abs=0.05) and low < high < printed


def test_what_bounds_a_run_is_its_type_its_memory_or_its_blocks():
    nanochat = cost(recipe("gka-nanochat-d20").run("baseline"))
    assert nanochat.operations == pytest.approx(3.0042e9 * 4.5686e9, rel=1e-4)
    low, high = nanochat.hours("H100")
    assert low == pytest.approx(nanochat.operations / 989e12 / 3600)  # its products
    assert high == pytest.approx(low / 0.57)
    karat = cost(recipe("karat-cifar10").run("tiny-softmax"))
    low, high = karat.hours("H100", 2)
    assert low == pytest.approx(karat.operations / 2 / 67e12 / 3600)  # in float32, without tensor cores
    assert high == pytest.approx(156_250 * 12 * 3.5e-3 / 3600)  # twelve blocks, however small
    rbf = cost(recipe("rbf-tinystories").run("rbf"))
    logits = 33_088 * 64 * 256 * 50_257 * 12 / 3.35e12 / 3600  # read and written six times, 2 bytes each
    assert rbf.operations / 989e12 / 3600 < logits < rbf.hours()[0]


def test_a_card_that_lacks_the_type_is_refused():
    with pytest.raises(ValueError, match="a T4 multiplies no bfloat16; give --dtype float16"):
        _ = launch("gpa-dickens", "rope", gpus=1, card="T4").plan
    with pytest.raises(ValueError, match=r"no card 'H10O'\. Known: H200, H100"):
        _ = launch("gpa-dickens", "rope", gpus=1, card="H10O").plan
    half = launch("gpa-dickens", "rope", gpus=1, card="T4", settings=["--dtype", "float16"])
    assert "hours on 1 T4" in half.plan
    assert all(card.memory < card.single < card.half for card in CARDS.values())


def test_what_was_recorded_on_such_a_card_is_said_instead(tmp_path, monkeypatch):
    monkeypatch.setenv("GKALIB_RESULTS", str(tmp_path))
    run = recipe("gpa-dickens").run("rope")
    assert measured_hours(run, "H100", 1) is None
    results.save(recorded(run, device="NVIDIA H100 80GB HBM3", wall_seconds=5400))
    results.save(recorded(run, device="8 x NVIDIA H100 80GB HBM3", wall_seconds=900))
    assert measured_hours(run, "H100", 1) == 1.5 and measured_hours(run, "H100", 8) == 0.25
    assert measured_hours(replace(run, steps=9_000), "H100", 1) is measured_hours(run, "A100", 1) is None
    plan = launch("gpa-dickens", "rope", seeds=2, gpus=1).plan
    assert "1.5, measured" in plan and "together     3 to 3 hours on 1 H100" in plan
