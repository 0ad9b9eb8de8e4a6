"""The role ``chapter``: mentions a chapter by its number, and links it once the chapter is in the book.

Chapters from 16 on had numbers two lower until November 2026: pages at those addresses lead to the new ones.
"""

import re
from pathlib import Path

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxRole

_LEAD_ON = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>This chapter has moved</title>
<meta http-equiv="refresh" content="0; url={page}"><link rel="canonical" href="{page}"></head>
<body><p>This chapter has moved: <a href="{page}">{page}</a></p></body></html>
"""


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


def lead_on(app: Sphinx, error: Exception | None) -> None:
    """Write a page at the old address of each chapter that has moved."""
    if error or app.builder.format != "html":
        return
    for name in app.env.found_docs:
        moved = re.fullmatch(r"chapters/(\d\d)(-.+)", name)
        if moved and int(moved[1]) >= 16:
            old = Path(app.outdir, f"chapters/{int(moved[1]) - 2}{moved[2]}.html")
            old.write_text(_LEAD_ON.format(page=f"{moved[1]}{moved[2]}.html"), encoding="utf-8")


def setup(app: Sphinx) -> dict:
    """Register the extension."""
    app.add_role("chapter", ChapterRole())
    app.connect("build-finished", lead_on)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
