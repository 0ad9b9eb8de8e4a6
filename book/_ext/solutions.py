"""Leaves the solutions of exercises out where ``gkalib_solutions`` is false: ``make book SOLUTIONS=no``."""

from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx_exercise.nodes import solution_node


class Solutions(SphinxTransform):
    """Removes them, with the cells in them."""

    default_priority = 11  # just after sphinx-exercise has joined what stands between a start and an end

    def apply(self, **options) -> None:
        """Remove each, unless the book has them."""
        if not self.config.gkalib_solutions:
            for solution in list(self.document.findall(solution_node)):
                solution.parent.remove(solution)


def setup(app: Sphinx) -> dict:
    """Register the transform."""
    app.add_config_value("gkalib_solutions", True, "env")
    app.add_transform(Solutions)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
