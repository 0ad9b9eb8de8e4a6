"""Fails the build for an image whose alternative text is missing, a file path, or a single word."""

import re

from bs4 import BeautifulSoup
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)
PATH = re.compile(r"\S+\.(png|jpe?g|svg|gif|webp)", re.IGNORECASE)


def fault(alt: str | None) -> str | None:
    """Why a text does not describe an image; None where it may."""
    if alt is None or not alt.strip():
        return "has no alternative text"
    if PATH.fullmatch(alt.strip()):
        return f"has a file path as its alternative text ({alt})"
    if len(alt.split()) < 2:
        return f"has one word as its alternative text ({alt})"
    return None


def check(app: Sphinx, doctree: nodes.document) -> None:
    """Look at every image of a page, those in notebook outputs and raw HTML included."""
    for image in doctree.findall(nodes.image):
        report(image, image.get("uri", "an image").rsplit("/", 1)[-1], image.get("alt"))
    for raw in doctree.findall(nodes.raw):
        if "html" in raw.get("format", ""):
            for image in BeautifulSoup(raw.astext(), "html.parser").select("img"):
                report(raw, "an image in HTML", image.get("alt"))


def report(node: nodes.Node, name: str, alt: str | None) -> None:
    """Warn where a text does not do."""
    reason = fault(alt)
    if reason:
        logger.warning("alt text: %s %s", name, reason, location=node, type="gkalib", subtype="alt")


def setup(app: Sphinx) -> dict:
    """Register the extension."""
    app.connect("doctree-read", check)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
