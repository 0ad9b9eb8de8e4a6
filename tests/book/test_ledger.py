"""The ledger's rules: what scales say, when figures count, and what turns where runs land."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from _ext.claims import Papers
from _ext.ledger import LOST
from _ext.proof import Judge, number

from gkalib.results import experiments, find, load, rows, save
from gkalib.results.claims import stated
from tests.book.conftest import ROOT
from tests.records import record


def test_scales_have_sizes_and_units(judge):
    proof = judge.proof(judge.papers.cells["gka"]["Table 2", "gka-ti", "Top-1 (%)"])
    assert proof.scale == "0.80M of 4.38M, 32 px, CIFAR-10, 1,000 steps of 32"
    proof = judge.proof(judge.papers.cells["gpa"]["Figures", "Figure 2, bank-rope", ""])
    assert (
        proof.scale
        == "0.82M of 12.7M, context 128, Dickens, lines of 70, 1,000 steps of 16, bank at 6 × the rate"
    )
    measured = [one for some in judge.papers.cells.values() for one in some.values()]
    for one in measured:
        proof = judge.proof(one)
        if proof.status == "reduced" and one.evidence[0][:5] in ("train", "looke", "decid"):
            assert "steps of" in proof.scale, one.name


def test_a_figure_needs_as_many_panels_as_it_claims(papers):
    judge = Judge(ROOT, papers)
    found = {
        row: judge.proof(papers.cells["gka"]["Figures", row, ""])
        for row in ("Figure 3", "Figures 5–16", "Figures 32–67")
    }
    assert [proof.status for proof in found.values()] == ["reduced", "ready", "ready"]
    assert "holds 6 of 12 panels" in found["Figures 5–16"].reason
    assert judge.proof(papers.cells["gpa"]["Figures", "Figure 4", ""]).status == "reduced"  # 16 banks


def test_banks_of_the_fourth_layer_are_as_the_ledger_says(papers):
    (looked,) = load("looking", arm="gpa-dickens-bank-rope")
    start = [float(row["value"]) for row in rows(looked) if row["figure"] == "bank" and row["column"] == "0"]
    note = papers.cells["gpa"]["Text", "§3.1: a bank of the fourth layer", ""].note
    assert f"G(0) is {min(start[12:]):.0f} to {max(start[12:]):.0f} in the four heads" in note


def test_a_share_is_shown_with_a_minus_sign_and_two_digits_more_than_are_printed(judge, papers):
    cell = papers.cells["gka"]["Table 3", "gka-ti", "Total (%)"]
    assert (cell.printed, judge.proof(cell).ours) == ("-23", "\N{MINUS SIGN}23.33")


def test_what_is_called_rounding_is(papers):
    """Printed is ours cut off, or a per cent of the rounded columns beside it."""
    for paper, some in papers.cells.items():
        value = {cell.place: cell for cell in some.values()}
        for cell in some.values():
            if cell.verdict != "rounding" or not cell.evidence[0].startswith("count"):
                continue
            arm, _, metric = cell.evidence[0].removeprefix("count ").partition("/")
            ours = find(f"counts/{arm}/{metric}")[1] / cell.unit
            if not metric.endswith("_change"):
                assert int(ours) == float(number(cell.printed)), cell.name
                continue
            column = {"parameters_change": "Parameters (M)", "flops_change": "FLOPs (G)"}[metric]
            column = "Total (M)" if paper == "gka" and metric == "parameters_change" else column
            base = "deit-ti" if paper == "gka" else f"{arm.rsplit('-', 1)[0]}-softmax"
            new, old = (float(number(value[cell.where, row, column].printed)) for row in (arm, base))
            # to one unit of the last digit, as a column may be cut off too
            digits = len(cell.printed.partition(".")[2])
            assert abs(100 * (new / old - 1) - float(number(cell.printed))) < 10**-digits, cell.name


def test_errors_of_the_papers_are_contradictions(papers):
    judge = Judge(ROOT, papers)
    cells = [cell for some in papers.cells.values() for cell in some.values()]
    wrong = {cell.name for cell in cells if cell.verdict == "paper's error"}
    assert len(wrong) == 6 and all(cell.note for cell in cells if cell.name in wrong)
    assert sum(judge.proof(cell).verdict == "rounding" for cell in cells) == 9


def landed(store: Path, arm: str, top1: float, **changes) -> None:
    """A full run of GKA's recipe lands."""
    fields = {
        "experiment": "gka-imagenet-tiny",
        "arm": arm,
        "scale": "full",
        "recipe": {"steps": 214_481},
        "device": "NVIDIA H100",
        "metrics": {"ema_top1": top1},
    }
    save(record(**fields | changes), root=store)


@pytest.mark.parametrize(
    ("top1", "changes", "status", "verdict"),
    [
        (0.7140, {}, "full", "reproduced"),
        (0.7040, {}, "full", "not reproduced"),
        (0.7140, {"recipe": {"steps": 1000}}, "reduced", ""),  # not as printed, and its baseline is not there
        (0.7140, {"clean": False}, "ready", ""),
        (0.7140, {"scale": "smoke"}, "ready", ""),
        (0.7140, {"source": "paper"}, "ready", ""),
    ],
)
def test_a_run_that_lands_turns_its_cell(store, top1, changes, status, verdict):
    papers = Papers(store)
    place = "Table 2", "gka-ti", "Top-1 (%)"
    assert Judge(ROOT, papers).proof(papers.cells["gka"][place]).status == "ready"
    landed(store, "gka", top1, **changes)
    proof = Judge(ROOT, papers).proof(papers.cells["gka"][place])
    assert (proof.status, proof.verdict) == (status, verdict)


@pytest.mark.parametrize(
    ("changes", "status", "verdict"),
    [
        ({}, "full", "reproduced"),
        ({"recipe": {"limit": 100}}, "reduced", ""),
        ({"scale": "reduced"}, "reduced", ""),
    ],
)
def test_scores_are_compared_in_value_where_the_run_and_the_tasks_are_whole(store, changes, status, verdict):
    metrics = {"copa_centered": 0.30}
    landed(
        store,
        "gka-nanochat-d20-gka",
        0.0,
        **{"experiment": "core", "recipe": {}, "metrics": metrics} | changes,
    )
    papers = Papers(store)
    proof = Judge(ROOT, papers).proof(papers.cells["gka"]["Table 7", "copa", "GKA"])
    assert (proof.status, proof.verdict) == (status, verdict)


def test_two_runs_that_land_are_shown_without_a_verdict(store):
    for arm, top1 in (("gka", 0.50), ("deit", 0.45)):
        landed(store, arm, top1, scale="reduced", recipe={"steps": 10})
    papers = Papers(store)
    proof = Judge(ROOT, papers).proof(papers.cells["gka"]["Table 2", "gka-ti", "Top-1 (%)"])
    assert (proof.status, proof.verdict, proof.ours) == ("reduced", "", "50 against 45")


def novels(store: Path, seeds: int, gains: dict[str, float], **changes) -> None:
    """Runs of the experiment on Dickens land: each arm's loss beside 1.5, with a little noise."""
    for number_of_arm, (arm, recipe) in enumerate(stated("gpa-novels-3000").arms.items()):
        for seed in range(seeds):
            loss = 1.5 - gains.get(arm, 0.0) + 1e-3 * ((3 * seed + 5 * number_of_arm) % 7)
            landed(
                store,
                arm,
                0.0,
                **{
                    "experiment": "gpa-novels-3000",
                    "scale": "reduced",
                    "seed": seed,
                    "recipe": dict(recipe),
                    "metrics": {"val_loss": loss, "parameters": 820_000, "flat_heads": 1},
                    **changes,
                },
            )


CLAIM = "Text", "Abstract, §3: both together have the lowest loss", ""


@pytest.mark.parametrize(
    ("seeds", "gains", "status", "verdict"),
    [
        (0, {}, "ready", ""),
        (3, {"both": 0.1, "both-fast": 0.1}, "reduced", "undecided"),  # too few seeds, whatever they say
        (5, {"both": 0.1, "both-fast": 0.1}, "reduced", "reproduced"),
        (5, {"both": 0.1, "both-fast": -0.1}, "reduced", "partly"),
        (5, {"both": -0.1, "both-fast": -0.1}, "reduced", "not reproduced"),
    ],
)
def test_an_experiment_that_lands_decides_its_claims(store, seeds, gains, status, verdict):
    novels(store, seeds, gains)
    papers = Papers(store)
    proof = Judge(ROOT, papers).proof(papers.cells["gpa"][CLAIM])
    assert (proof.status, proof.verdict) == (status, verdict)
    assert "gpa-novels-3000" in proof.reason and "beside rotary positions (both)" in proof.reason
    if seeds:
        assert (
            "0.82M of 12.7M, context 128, Dickens, lines of 70, 3,000 steps of 16" in proof.reason
            and f"{seeds} seeds" in proof.reason
        )


def test_on_other_data_a_claim_is_not_reproduced(store):
    """The same contrasts under a paper that trained on something else."""
    novels(store, 5, {"both": 0.1, "both-fast": 0.1})
    papers = Papers(store)
    claim = replace(papers.cells["gpa"][CLAIM], paper="gka", row="elsewhere")
    assert Judge(ROOT, papers).proof(claim).verdict == "consistent, other data"


@pytest.mark.parametrize(
    ("arm", "status", "verdict"),
    [
        ("bank", "reduced", "reproduced"),  # the claim does not compare it
        ("both-fast", "ready", ""),  # half of the claim has runs
        ("rope", "ready", ""),
    ],
)
def test_a_claim_needs_every_arm_that_it_compares(store, arm, status, verdict):
    novels(store, 5, {"both": 0.1, "both-fast": 0.1})
    for run in (store / "gpa-novels-3000").glob(f"{arm}-reduced-*"):
        shutil.rmtree(run)
    papers = Papers(store)
    proof = Judge(ROOT, papers).proof(papers.cells["gpa"][CLAIM])
    assert (proof.status, proof.verdict) == (status, verdict)


def test_a_benchmark_turns_its_ratio_on_a_card_only(store):
    names = ("images_per_second_gka_dense_64", "images_per_second_deit_sdpa_flash_64")
    for device, status, verdict in (("cpu", "ready", ""), ("cuda", "reduced", "reproduced")):
        landed(
            store,
            "models-ti-training",
            0.0,
            experiment="bench",
            recipe={"device": device},
            metrics=dict(zip(names, (60.0, 100.0), strict=True)),
        )
        papers = Papers(store)
        cell = papers.cells["gka"]["Table 4", "Δ ti (%)", "Training, 64 (img/s)"]
        proof = Judge(ROOT, papers).proof(cell)
        assert (proof.status, proof.verdict) == (status, verdict)


def test_commits_that_the_history_lacks_are_named():
    """In a clone with all of history: the commits of runs that are not in it, and no others."""
    git = ("git", "-C", str(ROOT))
    shallow = subprocess.run([*git, "rev-parse", "--is-shallow-repository"], capture_output=True, text=True)
    if shallow.stdout.strip() != "false":
        pytest.skip("there is no whole history here")
    known = subprocess.run([*git, "rev-list", "HEAD"], capture_output=True, text=True, check=True).stdout
    there = {one[:12] for one in known.split()}
    recorded = {run.commit for name in experiments() for run in load(name)}
    assert recorded - there == LOST
