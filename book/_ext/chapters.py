"""The role ``chapter``: mentions a chapter by its number, and links it once the chapter is in the book."""

import re

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxRole


class ChapterRole(SphinxRole):
    """``{chapter}`Chapter 3``` prints its text and links it to ``chapters/03-...`` if the book holds that."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Link the text if its chapter is written."""
        number = re.search(r"\d+", self.text)
        if number is None:
            message = self.inliner.reporter.error(f"chapter: no number in {self.text!r}", line=self.lineno)
            return [], [message]
        start = f"chapters/{int(number[0]):02d}-"
        found = [name for name in self.env.found_docs if name.startswith(start)]
        text = nodes.inline("", self.text)
        if not found:
            return [text], []
        options = {"refdomain": "std", "reftype": "doc", "reftarget": f"/{found[0]}", "refexplicit": True}
        return [pending_xref("", text, refdoc=self.env.docname, refwarn=True, **options)], []


def setup(app: Sphinx) -> dict:
    """Register the extension."""
    app.add_role("chapter", ChapterRole())
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
