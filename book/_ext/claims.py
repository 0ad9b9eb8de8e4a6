"""What four papers print, cell by cell, and what is to stand behind it: read from ``data/results/papers``."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import final

from .counts import printed as counted
from .tables import read

PAPERS = {"gka": "GKA", "gpa": "GPA", "rbf": "RBF", "karat": "KArAt"}
COMPARES = ("value", "order", "sign", "ratio", "slower", "setting", "formula", "nothing", "")
MISMATCHES = ("differs", "rounding", "paper's error")
# What each paper trained on, as recipes and experiments name it: elsewhere a claim is not reproduced.
DATA = {
    "gka": ("imagenet", "fineweb-edu"),
    "gpa": ("dickens",),
    "rbf": ("tinystories", "tinystories-full"),
    "karat": ("cifar10", "cifar100", "imagenet"),
}


@final
@dataclass(frozen=True, kw_only=True)
class Cell:
    """One printed number, word, picture or claim.

    Args:
        paper: a key of ``PAPERS``.
        where: its table, or "Figures" or "Text".
        row, column: its place; a figure or a claim has no column.
        printed: what is printed.
        evidence: what may stand behind it, the best kind first; ``proof`` reads it.
        unit: what a printed 1 is in the record: 0.01 for per cents that are stored as shares.
        compares: what is compared where less than the whole was run.
        baseline: the row that the sign is taken against.
        within: how far a full run may be from what is printed, in printed units.
        verdict: what a mismatch is called: "differs", unless the paper's rounding makes it or the paper
            contradicts itself; one of ``MISMATCHES``.
        note: a short reason.
        count: for how many of the paper's cells or figures it stands.
    """

    paper: str
    where: str
    row: str
    column: str = ""
    printed: str = ""
    evidence: tuple[str, ...] = ()
    unit: float = 1.0
    compares: str = ""
    baseline: str = ""
    within: float | None = None
    verdict: str = ""
    note: str = ""
    count: int = 1

    @property
    def name(self) -> str:
        """For messages."""
        return f"{PAPERS[self.paper]}, {', '.join(filter(None, self.place))}"

    @property
    def place(self) -> tuple[str, str, str]:
        """Where it stands in its paper."""
        return self.where, self.row, self.column


@final
@dataclass
class Papers:
    """Every cell of the four papers, with those that ``counts`` holds.

    Args:
        store: the folder ``data/results``.

    Raises:
        ValueError: if two cells have one place, a baseline has none, or a word is unknown.
    """

    store: Path
    titles: dict[tuple[str, str], str] = field(init=False)

    def __post_init__(self) -> None:
        """Read the titles of the tables; their order is that of the page."""
        rows = read(self.store / "papers" / "tables.csv")
        self.titles = {(row["paper"], row["where"]): row["title"] for row in rows}

    @cached_property
    def cells(self) -> dict[str, dict[tuple[str, str, str], Cell]]:
        """The cells of each paper by their place."""
        made: dict[str, dict[tuple[str, str, str], Cell]] = {paper: {} for paper in PAPERS}
        keys = {name: paper for paper, name in PAPERS.items()}
        for row in counted(self.store):
            if row["printed"] and row["table"] not in ("grid", "models"):
                _put(made, _of_counts(keys[row["paper"]], row))
        for paper in PAPERS:
            for row in read(self.store / "papers" / f"{paper}.csv"):
                place = row["where"], row["row"], row["column"]
                if not row["printed"] and place in made[paper]:  # what counts holds, called by its name
                    made[paper][place] = replace(made[paper][place], verdict=row["verdict"])
                else:
                    _put(made, _of_paper(paper, row))
        for paper, cells in made.items():
            for cell in cells.values():
                if (paper, cell.where) not in self.titles:
                    raise ValueError(f"papers: {cell.where!r} of {paper} has no title in tables.csv")
                if cell.baseline and (cell.where, cell.baseline, cell.column) not in cells:
                    raise ValueError(f"papers: {cell.name}: there is no baseline {cell.baseline!r}")
        return made

    def tables(self, paper: str) -> dict[str, list[Cell]]:
        """The cells of a paper by table, in the order of ``tables.csv``."""
        cells = self.cells[paper].values()
        found = {
            where: [cell for cell in cells if cell.where == where]
            for owner, where in self.titles
            if owner == paper
        }
        empty = [where for where, some in found.items() if not some]
        if empty:
            raise ValueError(f"papers: {empty[0]!r} of {paper} has a title and no cell")
        return found


def _put(made: dict[str, dict[tuple[str, str, str], Cell]], cell: Cell) -> None:
    if cell.place in made[cell.paper]:
        raise ValueError(f"papers: {cell.name} is there twice")
    if not cell.printed:
        raise ValueError(f"papers: {cell.name} has nothing printed")
    if cell.compares not in COMPARES or cell.verdict not in ("", *MISMATCHES):
        raise ValueError(f"papers: {cell.name} has an unknown word: {cell.compares!r}, {cell.verdict!r}")
    made[cell.paper][cell.place] = cell


def _of_counts(paper: str, row: dict[str, str]) -> Cell:
    """A cell whose printed number stands with the counts."""
    listed = row["table"] == "text"
    return Cell(
        paper=paper,
        where="Text" if listed else f"Table {row['table']}",
        row=row["column"] if listed else row["arm"],
        column="" if listed else row["column"],
        printed=row["printed"],
        evidence=(f"count {row['arm']}/{row['metric']}",),
        unit=float(row["unit"]),
        compares="value",
        note=row["note"],
    )


def _of_paper(paper: str, row: dict[str, str]) -> Cell:
    """A cell of a paper's own file; a number that is left empty has its default."""
    return Cell(
        paper=paper,
        evidence=tuple(part.strip() for part in row["evidence"].split(";") if part.strip()),
        unit=float(row["unit"] or 1),
        within=float(row["within"]) if row["within"] else None,
        count=int(row["count"] or 1),
        **{name: row[name] for name in ("where", "row", "column", "printed", "compares", "baseline")},
        **{name: row[name] for name in ("verdict", "note")},
    )
