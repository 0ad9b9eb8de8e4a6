"""The badge row under a chapter's title: what reading and running it costs, and when it was last run."""

import html
import math
from collections.abc import Mapping

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

from .page import page_metadata

logger = logging.getLogger(__name__)
NEEDED = ("minutes_to_read", "gpu")
STAMPED = ("seconds", "peak_mib", "date")


def badges(facts: Mapping) -> list[tuple[str, str, str]]:
    """Icon, label and value of each badge, from a notebook's ``gkalib`` metadata."""
    stamp = facts["stamp"]
    memory = stamp["peak_mib"]
    peak = f"{memory / 1024:.1f} GiB" if memory >= 1024 else f"{math.ceil(memory)} MiB"
    gpu = {"no": "not needed", "yes": "needed"}.get(str(facts["gpu"]), str(facts["gpu"]))
    return [
        ("fa-book-open", "reading", f"{facts['minutes_to_read']} min"),
        ("fa-stopwatch", "running on CPU", f"{math.ceil(stamp['seconds'])} s"),
        ("fa-microchip", "GPU", gpu),
        ("fa-memory", "peak memory", peak),
        ("fa-circle-check", "last verified", stamp["date"][:10]),
    ]


def row(facts: Mapping) -> str:
    """The row as HTML."""
    items = "".join(
        f'<li><i class="fa-solid {icon}" aria-hidden="true"></i> {html.escape(label)} '
        f"<strong>{html.escape(value)}</strong></li>"
        for icon, label, value in badges(facts)
    )
    return f'<ul class="gk-badges" aria-label="About this chapter">{items}</ul>'


def missing(facts: Mapping) -> list[str]:
    """The metadata keys that a chapter lacks."""
    stamp = facts.get("stamp", {})
    lacks = [key for key in NEEDED if key not in facts]
    return lacks + [f"stamp.{key}" for key in STAMPED if key not in stamp]


def insert(app: Sphinx, doctree: nodes.document) -> None:
    """Put the row under the title of every chapter that is a notebook."""
    if not app.env.docname.startswith("chapters/") or not app.env.doc2path(app.env.docname).endswith(
        ".ipynb"
    ):
        return
    facts = page_metadata(app.env)
    lacks = missing(facts)
    if lacks:
        message = "badges: the notebook's metadata lacks %s; write the stamp with: python book/execute.py %s"
        slug = app.env.docname.removeprefix("chapters/")
        found = ", ".join(f"gkalib.{key}" for key in lacks)
        logger.warning(message, found, slug, location=app.env.docname, type="gkalib", subtype="badges")
        return
    title = next(iter(doctree.findall(nodes.title)), None)
    if title is not None:
        title.parent.insert(title.parent.index(title) + 1, nodes.raw("", row(facts), format="html"))


def setup(app: Sphinx) -> dict:
    """Register the extension."""
    app.connect("doctree-read", insert)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
