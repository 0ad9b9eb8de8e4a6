"""The ledger of four papers: nothing printed is missing, status and verdict follow from the store alone."""

import statistics
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import arms
import pytest
from _ext.claims import PAPERS, Cell, Papers
from _ext.proof import COUNTED, STATUSES, TRAINED, number
from _ext.reproduced import judged, repeated
from _ext.tables import read

from tests.book.conftest import ROOT, STORE, tiny_book

# What the papers print, counted in their text; a dash is no cell.
CELLS = {
    "gka": {
        "Table 1": 11 * 4,
        "Table 2": 6 * 6 + 3 * 2,
        "Table 3": 6 * 5 + 3 + 3 * 3,  # the σ of three models, and shares in brackets for three
        "Table 4": 6 * 7 + 3 * 6,  # the best batch stands in brackets
        "Table 5": 3 * 4,
        "Table 6": 2 * 3,
        "Table 7": 7 * 3,
        "Table 8": 2 * 4,
        "Figures": 67,
    },
    "gpa": {"Figures": 2 + 3 + 16 + 2},  # figure 2 by curve, figure 4 by bank, figure 5 in two parts
    "karat": {
        "Table 1": 9 * 7 + 6 * 4,
        "Table 2": 27,
        "Table 3": 9 * 2 + 9 * 2 + 5 * 2 + 8,
        "Table 4": 1 + 12,
        "Table 5": 10,
        "Table 6": 3 + 1 + 3 + 3,
        "Table 7": 6 + 7,
        "Table 8": 24 * 2,
        "Table 8, second part": 12 * 2,
        "Table 13": 10 + 3 * 2 + 9,
        "Table 18": 8,
        "Bases (third version)": 12 * 2,
        "Base activations (third version)": 4 * 3,
        "Figures": 1 + 1 + 2 + 2 + 3 + 1 + 1 + 4 + 1 + 4,
    },
}


def test_every_printed_cell_is_there(papers):
    for paper, tables in CELLS.items():
        found = {where: sum(cell.count for cell in some) for where, some in papers.tables(paper).items()}
        assert {where: found[where] for where in tables} == tables
        assert set(found) - set(tables) <= {"Text", "Other tables (third version)"}


def test_tables_have_the_papers_rows_and_columns(papers):
    """Every row of a table with numbers has the columns of its first."""
    for paper, where, count in (("gka", "Table 4", 9), ("gka", "Table 7", 7), ("karat", "Table 3", 31)):
        columns = defaultdict(set)
        for cell in papers.tables(paper)[where]:
            columns[cell.row].add(cell.column)
        assert len(columns) == count
    change = {"Inference batch"}
    four = papers.tables("gka")["Table 4"]
    assert {cell.column for cell in four if cell.row == "Δ s (%)"} == {cell.column for cell in four} - change


@pytest.mark.parametrize("table", ["Table 4", "Table 6", "Table 7"])
def test_what_gka_derives_from_its_own_numbers_comes_out(papers, table):
    """Differences, per cents and means round to what is printed: a check of our copy."""
    value = {cell.place[1:]: float(number(cell.printed)) for cell in papers.tables("gka")[table]}
    if table == "Table 4":
        for (row, column), printed in value.items():
            if row.startswith("Δ"):
                size = row.split()[1]
                ratio = value[f"gka-{size}", column] / value[f"deit-{size}", column]
                assert round(100 * (ratio - 1)) == printed, (row, column)
    elif table == "Table 6":
        for row in ("nanochat-d20", "nanochat-d20-gka"):
            gap = value[row, "Val BPB"] - value[row, "Train BPB"]
            assert gap == pytest.approx(value[row, "Val less train"])
    else:
        tasks = [row for row, column in value if column == "GKA" and row != "mean"]
        for column in ("Baseline", "GKA"):
            mean = statistics.mean(value[task, column] for task in tasks)
            assert round(mean, 4) == value["mean", column]
        for task in (*tasks, "mean"):
            less = value[task, "GKA"] - value[task, "Baseline"]
            assert value[task, "GKA less baseline"] == pytest.approx(less)


def test_what_karat_prints_twice_is_the_same(papers):
    first, third, fifth = (papers.tables("karat")[f"Table {number}"] for number in (1, 3, 5))
    value = {(cell.row, cell.column): cell.printed for cell in first}
    for cell in third:
        assert value.get((cell.row, cell.column), cell.printed) == cell.printed
    grid = {cell.row: cell.printed for cell in third if cell.column == "CIFAR-10, top-1"}
    for cell in fifth:
        assert grid.get(cell.row, cell.printed) == cell.printed
    for row in ("tiny-g3b", "tiny-g3u", "small-g3b", "small-g3u", "base-g1b", "base-g1u"):
        for data in ("CIFAR-10", "CIFAR-100", "ImageNet"):
            ours, plain = (
                float(value[f"karat-{one}", f"{data}, top-1"])
                for one in (row, f"{row.split('-')[0]}-softmax")
            )
            change = float(value[f"karat-{row}", f"{data}, change (%)"])
            assert abs(ours - plain) / plain * 100 == pytest.approx(change, abs=0.0051)


def test_no_number_stands_twice_with_the_counts(papers):
    every = [cell for some in papers.cells.values() for cell in some.values()]
    counted = {cell.place for cell in every if cell.evidence[0][:5] == "count"}
    for paper in PAPERS:
        for row in read(STORE / "papers" / f"{paper}.csv"):
            if not row["printed"]:
                assert (row["where"], row["row"], row["column"]) in counted and row["verdict"]


def test_what_can_be_run_is_what_the_cells_name():
    assert arms.FILE.read_text(encoding="utf-8") == arms.listing(), "write it anew: python book/arms.py"


def test_a_figure_that_a_cell_waits_for_is_drawn(papers):
    drawing = (ROOT / "gkalib" / "viz" / "figures.py").read_text(encoding="utf-8")
    for cell in (cell for some in papers.cells.values() for cell in some.values()):
        for kind, _, rest in (text.partition(" ") for text in cell.evidence):
            assert kind != "look" or f'"{rest.split(" ")[1]}' in drawing, cell.name


def test_every_cell_is_judged_in_words_that_the_summary_counts_and_none_is_left_without_a_reason(papers):
    for paper, tables in judged(ROOT, STORE).items():
        every = [one for some in tables.values() for one in some]
        assert len(every) == len(papers.cells[paper])
        for cell, proof in every:
            assert proof.status in (*STATUSES, "words"), cell.name
            assert proof.status != "open" or cell.note or proof.reason, cell.name
            assert proof.verdict in (COUNTED if proof.status == "exact" else (*TRAINED, "")), cell.name


# Read off the records and the papers by hand.
VERDICTS = [
    ("gka", "Table 2", "deit-ti", "Total (M)", "exact", "agrees"),
    ("gka", "Table 3", "deit-s", "FLOPs (G)", "exact", "paper's error"),  # 9.22 there, 9.20 in table 2
    ("gka", "Table 2", "gka-ti", "Δ FLOPs (%)", "exact", "rounding"),  # -20.85 of the exact numbers
    ("gka", "Table 2", "gka-ti", "Top-1 (%)", "reduced", ""),  # 35.68 and 38.53, one seed
    ("gka", "Table 2", "deit-ti", "Top-1 (%)", "reduced", ""),  # nothing to be above or below of
    ("gka", "Table 2", "gka-s", "Top-1 (%)", "ready", ""),
    ("gka", "Table 5", "vlt-ti", "Top-1 (%)", "reduced", ""),  # three seeds decide nothing
    ("gka", "Table 8", "nanochat-d20", "Params (M)", "exact", "rounding"),  # 896.54, cut off
    ("gka", "Table 1", "GKA", "Domain", "words", ""),
    ("gka", "Text", "§4.4: VLT-Ti leads DeiT-Ti", "", "reduced", "undecided"),
    (
        "gpa",
        "Text",
        "§3.2: the bump is the length of paragraphs",
        "",
        "reduced",
        "",
    ),  # of other files
    ("gpa", "Figures", "Figure 5 (b)", "", "ready", ""),  # what we wrapped is not found
    ("gpa", "Text", "parameters (M)", "", "exact", "differs"),  # 12.7
    ("rbf", "Figures", "Loss plot: RBF", "", "ready", ""),  # ours are nats a character
    ("rbf", "Text", "The universal sink", "", "exact", "paper's error"),
    ("rbf", "Text", "Positions", "", "exact", "differs"),  # a cross term comes with it
    ("karat", "Table 1", "karat-small-g3u", "Parameters (%)", "exact", "paper's error"),  # 0.579
    ("karat", "Table 1", "karat-tiny-g3b", "CIFAR-10, top-1", "reduced", ""),  # 38.36 and 39.29
    ("karat", "Table 5", "karat-tiny-g3b-simplex", "Top-1", "reduced", ""),
    ("karat", "Table 18", "karat-tiny-g3b-r2", "Parameters (M)", "exact", "differs"),  # 5.654
    ("karat", "Text", "§5.1: ViT-Tiny on CIFAR", "", "reduced", "undecided"),  # with 1.8 times the parameters
    ("karat", "Text", "§B.4: grids beyond 5", "", "reduced", "not reproduced"),
    ("gpa", "Text", "§3.1, §4: a head with a flat bank", "", "reduced", "undecided"),  # no bank is flat
    ("karat", "Text", "§B.6.1: projecting first is inferior", "", "reduced", "undecided"),
]


@pytest.mark.parametrize(("paper", "where", "row", "column", "status", "verdict"), VERDICTS)
def test_verdicts_read_by_hand(judge, paper, where, row, column, status, verdict):
    proof = judge.proof(judge.papers.cells[paper][where, row, column])
    assert (proof.status, proof.verdict) == (status, verdict)


@pytest.mark.parametrize(
    ("printed", "found"),
    [
        ("0.42× of it", "0.42"),
        ("43,182", "43182"),
        ("+107", "+107"),
        ("≈ 1.51", "1.51"),
        ("3.0042e9", "3.0042e9"),
    ],
)
def test_the_number_in_what_is_printed(printed, found):
    assert number(printed) == found
    with pytest.raises(ValueError, match="no number"):
        number("a curve")


# A test without a docstring.
MUTE = "test tests/test_masks.py::test_causal"


def cell(**changes) -> Cell:
    return replace(Cell(paper="gka", where="Table 9", row="a", printed="1.0", evidence=("open",)), **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"evidence": ("test tests/test_masks.py::test_nothing",)}, "the test .* does not exist"),
        ({"evidence": ("count deit-ti/nothing",)}, "has no metric 'nothing'"),
        ({"evidence": ("count nobody/parameters",)}, "no arm 'nobody'"),
        ({"evidence": ("train gka-imagenet-tiny/nobody/ema_top1",)}, "not in arms.csv"),
        ({"evidence": ("train gka-imagenet-huge/gka/ema_top1",)}, "not in arms.csv"),
        ({"evidence": ("train gka-imagenet-tiny/gka/nothing",)}, "has no metric 'nothing'"),
        ({"evidence": ("train gka-imagenet-tiny/gka",)}, "is no key"),
        ({"evidence": ("study nothing/softmax/accuracy",)}, "not in arms.csv"),
        ({"evidence": ("bench nothing/ms",)}, "not in arms.csv"),
        ({"evidence": ("look gka-imagenet-tiny/nobody rollout rollout_00",)}, "not in arms.csv"),
        ({"evidence": ("cells Table 2|Nothing",)}, "there are no cells"),
        ({"evidence": ("decide nothing|a claim",)}, "claims: no experiment 'nothing' states what decides it"),
        ({"evidence": ("decide gpa-novels|no claim",)}, "gpa-novels decides no claim 'no claim'"),
        ({"evidence": (MUTE,)}, "does not say what it asserts"),
        (
            {"evidence": ("cells Table 3|Attn (%)",), "printed": "about 80%"},
            "says about 80%, and Table 3.* says otherwise",
        ),
        ({"evidence": ("guess it",)}, "evidence of kind 'guess' is unknown"),
        ({"evidence": ()}, "nothing is said to stand behind it"),
        (
            {"evidence": ("count deit-ti/sigmas",), "printed": "0", "verdict": "paper's error"},
            'is called "paper\'s error", but it agrees',
        ),
    ],
)
def test_evidence_that_is_not_there_is_a_fault(judge, changes, message):
    with pytest.raises(ValueError, match=message):
        judge.proof(cell(**changes))


HEADER = "where,row,column,printed,unit,evidence,compares,baseline,within,verdict,note,count\n"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("Table 1,a,b,1,,open,,,,,,\nTable 1,a,b,2,,open,,,,,,\n", "is there twice"),
        ("Table 1,a,b,,,open,,,,,,\n", "has nothing printed"),
        ("Table 1,a,b,1,,open,guess,,,,,\n", "has an unknown word"),
        ("Table 1,a,b,1,,open,,,,perhaps,,\n", "has an unknown word"),
        ("Table 1,a,b,1,,open,,c,,,,\n", "there is no baseline 'c'"),
        ("Table 2,a,b,1,,open,,,,,,\n", "'Table 2' of gpa has no title"),
    ],
)
def test_cells_that_contradict_each_other_are_a_fault(tmp_path, rows, message):
    store = made_up(tmp_path, gpa=rows)
    with pytest.raises(ValueError, match=message):
        _ = Papers(store).cells


def made_up(store: Path, **papers: str) -> Path:
    """A store with a few cells and no run."""
    for folder in ("papers", "counts"):
        (store / folder).mkdir(parents=True)
    (store / "counts" / "printed.csv").write_text("paper,table,arm,column,metric,unit,printed,note\n")
    (store / "papers" / "arms.csv").write_text("kind,name,arm,steps\n")
    (store / "papers" / "tables.csv").write_text("paper,where,title\ngpa,Table 1,Losses\n")
    for paper in PAPERS:
        (store / "papers" / f"{paper}.csv").write_text(HEADER + papers.get(paper, ""))
    return store


def test_a_page_is_written_and_a_fault_fails_the_build(tmp_path):
    tiny = tiny_book(tmp_path / "tiny")
    row = "Table 1,RoPE,Loss,1.5,,test tests/test_inner.py::{},formula,,,,,\n"
    row += "Table 1,Bank,Loss,1.4,,open,,,,,no file,\n"
    tiny.write("tests/test_inner.py", 'def test_double():\n    """Twice two is four."""\n')
    store = made_up(tiny.root / "data" / "results", gpa=row.format("test_double"))
    (store / "papers" / "headlines.csv").write_text(
        "paper,where,row,column,claim\ngpa,Table 1,RoPE,Loss,the loss\n"
    )
    shown = "".join(
        f"```{{reproduced}} {name}\n```\n\n" for name in ("headlines", "summary", "map gpa", "gpa")
    )
    tiny.page(f"# Page\n\n## One\n\n{shown}")
    done = tiny.build()
    assert done.returncode == 0, done.stderr
    html = tiny.html()
    assert "aria-label='GPA: 1 agrees, 0 differs, 0 rounding, 0 paper&#x27;s error'" in html
    assert "aria-label='GPA: 0 full, 0 reduced, 0 ready, 1 open'" in html
    squares = "<p><span>Table 1</span><span><i class='gk-exact'></i><i class='gk-open'></i></span></p>"
    assert (
        "GPA: 1 exact, 0 full, 0 reduced, 0 ready, 1 open, 0 differs, or an error" in html and squares in html
    )
    assert "No training run of the four papers has been repeated" in html and "the loss" in html
    assert "tests/test_inner.py::test_double" in html and "Twice two is four" in html
    assert 'id="gpa-table-1"' in html and "Table 1. Losses" in html
    assert 'class="gk-status gk-exact">exact \N{CHECK MARK}' in html and "No file" in html
    (store / "papers" / "gpa.csv").write_text(HEADER + row.format("test_gone"))
    done = tiny.build()
    assert done.returncode != 0 and "the test tests/test_inner.py::test_gone does not exist" in done.stderr


def test_the_readme_and_the_introduction_say_what_the_ledger_says():
    """The sentence on what has not been repeated is worked out from the store."""
    sentence = repeated(judged(ROOT, STORE))
    for file in ("README.md", "book/intro.md"):
        assert sentence in " ".join((ROOT / file).read_text(encoding="utf-8").split()), f"{file}: {sentence}"
