"""Roles that Sphinx and its extensions write into a page and that a screen reader cannot use."""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

# A list of references holds no list items, and its entries' role is no longer part of ARIA.
# A signature over several lines is a definition list without terms.
REPLACED = (
    ('<div role="list" class="citation-list">', '<div class="citation-list">'),
    (' role="doc-biblioentry"', ""),
    ("<dl>\n<dd>", '<dl role="none">\n<dd>'),
)


def mend(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Replace them in the page's body."""
    for old, new in REPLACED:
        context["body"] = context.get("body", "").replace(old, new)


def setup(app: Sphinx) -> dict:
    """Register the extension."""
    app.connect("html-page-context", mend)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
