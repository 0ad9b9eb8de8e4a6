"""Fails the build for a stored output that no page can show, which would leave a silent gap.

A figure's digest travels beside its picture and is not shown; MyST-NB's own warning about it is suppressed in
``_config.yml`` in favor of this check.
"""

import json
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)
SHOWN = {
    "application/javascript",
    "application/vnd.jupyter.widget-view+json",
    "image/gif",
    "image/jpeg",
    "image/png",
    "image/svg+xml",
    "text/html",
    "text/latex",
    "text/markdown",
    "text/plain",
}


def hidden(notebook: dict) -> list[tuple[int, list[str]]]:
    """The cells, counted from 1, that display something in none of the forms that a page can show."""
    return [
        (number, sorted(output["data"]))
        for number, cell in enumerate(notebook["cells"], start=1)
        for output in cell.get("outputs", [])
        if "data" in output and not SHOWN & set(output["data"])
    ]


def check(app: Sphinx, doctree: nodes.document) -> None:
    """Look at the stored outputs of a page that is a notebook."""
    path = Path(app.env.doc2path(app.env.docname))
    if path.suffix != ".ipynb":
        return
    for number, forms in hidden(json.loads(path.read_text(encoding="utf-8"))):
        message = "outputs: cell %s displays only %s, which no page can show"
        found = ", ".join(forms)
        logger.warning(message, number, found, location=app.env.docname, type="gkalib", subtype="outputs")


def setup(app: Sphinx) -> dict:
    """Register the extension."""
    app.connect("doctree-read", check)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
