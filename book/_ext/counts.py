"""The directive ``counts``: sizes that a paper prints above what our modules come to."""

from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from gkalib.results import find

from .results_role import agrees
from .tables import read, table


def shown(value: float) -> str:
    """A count in full, or a share to two decimals."""
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"


def verdict(row: dict[str, str], value: float) -> tuple[str, bool]:
    """Whether ours rounds to what is printed, and the note where there is one."""
    if not row["printed"]:
        return "not printed", True
    good = agrees(row["printed"], value / float(row["unit"]))
    word = "agrees" if good else "differs"
    return (f"{word}: {row['note']}" if row["note"] else word), good


def printed(root: Path) -> list[dict[str, str]]:
    """The printed numbers, one row each."""
    return read(root / "counts" / "printed.csv")


class Counts(SphinxDirective):
    """``{counts} GKA 2``: one table of a paper, ours under what is printed, and notes where they differ."""

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        """Read what is printed and what was counted, and set them side by side."""
        root = Path(self.env.app.srcdir) / self.config.gkalib_results
        paper, number = self.arguments
        rows = [row for row in printed(root) if (row["paper"], row["table"]) == (paper, number)]
        if not rows:
            raise self.error(f"counts: nothing of table {number!r} of {paper!r} is stored")
        columns = list(dict.fromkeys(row["column"] for row in rows))
        cells: dict[str, dict[str, nodes.entry]] = {}
        notes: list[nodes.Node] = []
        for row in rows:
            _, value = find(f"counts/{row['arm']}/{row['metric']}", root=root)
            said, good = verdict(row, value)
            cells.setdefault(row["arm"], {})[row["column"]] = _cell(row["printed"], shown(value), good)
            if not good or row["note"]:
                text = (
                    f"{row['arm']}, {row['column']}: printed {row['printed']}, ours {shown(value)}; {said}."
                )
                notes.append(nodes.list_item("", nodes.paragraph("", text)))
        lines = [
            [arm, *(found.get(column, nodes.entry()) for column in columns)] for arm, found in cells.items()
        ]
        shown_table = table(("model", *columns), lines, "gk-counts")
        return [shown_table, nodes.bullet_list("", *notes)] if notes else [shown_table]


def _cell(given: str, ours: str, good: bool) -> nodes.entry:
    """What is printed, and ours below it; marked where they differ."""
    entry = nodes.entry()
    if given:
        mark = "" if good else " \N{NOT EQUAL TO}"
        entry += nodes.paragraph(
            "", given + mark, classes=["gk-printed"] if good else ["gk-printed", "gk-differs"]
        )
    entry += nodes.paragraph("", ours, classes=["gk-ours"])
    return entry


def setup(app: Sphinx) -> dict:
    """Register the directive."""
    app.add_directive("counts", Counts)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
