"""The directive ``counts``: sizes that a paper prints beside what our modules come to, generated at each build."""

import csv
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from gkalib.results import find

from .results_role import agrees

HEADER = ("model", "column", "printed", "ours", "verdict")


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
    with (root / "counts" / "printed.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


class Counts(SphinxDirective):
    """``{counts} GKA 2``: one table of a paper."""

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        """Read what is printed and what was counted, and set them side by side."""
        root = Path(self.env.app.srcdir) / self.config.gkalib_results
        paper, number = self.arguments
        rows = [row for row in printed(root) if (row["paper"], row["table"]) == (paper, number)]
        if not rows:
            raise self.error(f"counts: nothing of table {number!r} of {paper!r} is stored")
        group = nodes.tgroup(cols=len(HEADER))
        group += [nodes.colspec(colwidth=1) for _ in HEADER]
        head, body = nodes.thead(), nodes.tbody()
        head += _row(HEADER)
        for row in rows:
            _, value = find(f"counts/{row['arm']}/{row['metric']}", root=root)
            said, good = verdict(row, value)
            line = _row((row["arm"], row["column"], row["printed"], shown(value), said))
            line["classes"] += [] if good else ["gk-differs"]
            body += line
        group += [head, body]
        return [nodes.table("", group, classes=["gk-ledger"])]


def _row(cells: tuple[str, ...]) -> nodes.row:
    row = nodes.row()
    row += [nodes.entry("", nodes.paragraph("", cell)) for cell in cells]
    return row


def setup(app: Sphinx) -> dict:
    """Register the directive."""
    app.add_directive("counts", Counts)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
