"""The directive ``ledger``: a table of every run in the results store, generated at each build."""

from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from gkalib.results import experiments, load

from .tables import table

HEADER = ("experiment", "arm", "scale", "source", "device", "seed", "commit", "date")
# Commits of late November 2026 that were lost when history was written anew; a test holds the list to it.
LOST = frozenset(
    {
        "0c5ea37baffe",
        "0d3f4441733f",
        "162147352037",
        "2db9018bf795",
        "46745ea1a770",
        "61d1fc158b2e",
        "d745a00ecc6e",
    }
)


class Ledger(SphinxDirective):
    """Lists the runs of the store, or says that there are none."""

    def run(self) -> list[nodes.Node]:
        """Read the store and write one row a run."""
        root = Path(self.env.app.srcdir) / self.config.gkalib_results
        rows = [
            (
                run.experiment,
                run.arm,
                run.scale,
                run.source,
                run.device,
                str(run.seed),
                run.commit[:7] + ", not in the history" * (run.commit in LOST),
                run.date[:10],
            )
            for experiment in experiments(root=root)
            for run in load(experiment, root=root)
        ]
        return [table(HEADER, rows) if rows else nodes.paragraph("", "The store holds no run yet.")]


def setup(app: Sphinx) -> dict:
    """Register the directive."""
    app.add_directive("ledger", Ledger)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
