"""The role ``res``: a number in prose with the run that it comes from, checked against the stored value."""

import html
import re
from decimal import Decimal, InvalidOperation
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst.states import Inliner
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxRole
from sphinx.writers.html import HTMLTranslator

from gkalib.results import Record, find

logger = logging.getLogger(__name__)
FORM = re.compile(r"(?P<printed>.+?)\s*<(?P<key>[^<>]+)>", re.DOTALL)


class Result(nodes.inline):
    """A printed number and the facts of its run."""


def with_minus(text: str) -> str:
    """The text with a minus sign before numbers, in the place of a hyphen."""
    return re.sub(r"(?<!\w)-(?=\d)", "\N{MINUS SIGN}", text)


def agrees(printed: str, value: float) -> bool:
    """Whether ``value`` rounds to what is printed: it lies within half a unit of the last printed digit.

    A trailing ``%`` means that the stored value is a fraction.

    Raises:
        ValueError: if what is printed is not a number.
    """
    text = (
        printed.strip()
        .replace("\N{MINUS SIGN}", "-")
        .replace(",", "")
        .replace("\N{NARROW NO-BREAK SPACE}", "")
    )
    percent = text.endswith("%")
    try:
        number = Decimal(text.removesuffix("%").strip())
    except InvalidOperation:
        raise ValueError(f"results: {printed!r} is not a number") from None
    if not number.is_finite():
        raise ValueError(f"results: {printed!r} is not a number")
    exact = Decimal(repr(float(value))) * (100 if percent else 1)
    return abs(exact - number) <= Decimal(5).scaleb(int(number.as_tuple().exponent) - 1)


def tooltip(record: Record, key: str) -> str:
    """What the reader is told of a number's origin."""
    origin = "printed in the paper" if record.source == "paper" else f"{record.scale} run"
    clean = "" if record.clean else ", tree not clean"
    commit = f"commit {record.commit[:7]}{clean}"
    return f"{key}: {origin} {record.run}, {commit}, on {record.device}, {record.date[:10]}"


class ResultRole(SphinxRole):
    """``{res}`0.944 <experiment/arm/metric>``` prints 0.944 and fails the build when the store disagrees."""

    inliner: Inliner

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Check the number and make its node."""
        match = FORM.fullmatch(self.text)
        if match is None:
            return self.fault(f"write {{res}}`number <experiment/arm/metric>`, not {self.text!r}")
        printed, key = match["printed"], match["key"]
        try:
            record, value = find(key, root=Path(self.env.app.srcdir) / self.config.gkalib_results)
            matches = agrees(printed, value)
        except ValueError as error:
            return self.fault(str(error).removeprefix("results: "))
        if not matches:
            return self.fault(
                f"{key} is {value!r} ({record.run}), which does not round to the printed {printed}"
            )
        return [Result(printed, printed, tip=tooltip(record, key))], []

    def fault(self, message: str) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Report a wrong number; the build treats every warning as an error."""
        logger.warning("results: %s", message, location=self.get_location(), type="gkalib", subtype="results")
        return [nodes.inline(self.text, self.text)], []


def visit_html(translator: HTMLTranslator, node: Result) -> None:
    """Open a focusable span that shows its origin on hover, focus or touch."""
    translator.body.append('<span class="gk-res" tabindex="0">')


def depart_html(translator: HTMLTranslator, node: Result) -> None:
    """Write the tooltip and close the span."""
    translator.body.append(f'<span class="gk-tip" role="tooltip">{html.escape(node["tip"])}</span></span>')


def setup(app: Sphinx) -> dict:
    """Register the role."""
    app.add_config_value("gkalib_results", "data/results", "env")
    app.add_node(Result, html=(visit_html, depart_html))
    app.add_role("res", ResultRole())
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
