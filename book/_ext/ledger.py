"""The directive ``ledger``: a table of every run in the results store, generated at each build."""

from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from gkalib.results import experiments, load

from .tables import table

HEADER = ("experiment", "arm", "scale", "source", "device", "seed", "commit", "date")
LENGTHS = {"commit": 7, "date": 10}  # of what is shown of it


class Ledger(SphinxDirective):
    """Lists the runs of the store, or says that there are none."""

    def run(self) -> list[nodes.Node]:
        """Read the store and write one row a run."""
        root = Path(self.env.app.srcdir) / self.config.gkalib_results
        rows = [
            [str(getattr(run, name))[: LENGTHS.get(name)] for name in HEADER]
            for experiment in experiments(root=root)
            for run in load(experiment, root=root)
        ]
        return [table(HEADER, rows) if rows else nodes.paragraph("", "The store holds no run yet.")]


def setup(app: Sphinx) -> dict:
    """Register the directive."""
    app.add_directive("ledger", Ledger)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
