"""The equation registry: every labeled equation names the function and the test that check it."""

from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.nodes import make_refnode

from .page import page_metadata
from .source import find_object, find_test

logger = logging.getLogger(__name__)


class Tick(nodes.General, nodes.Element):
    """Stands after an equation until the page is resolved; holds ``function``, ``test`` and ``line``."""


def faults(root: Path, label: str, entry: dict | None) -> list[str]:
    """What is wrong with an equation's entry in the registry; an empty list where nothing is."""
    if entry is None:
        return [f"{label} is not in the page's metadata (gkalib.equations): name its function and test"]
    if entry.get("definition") is True:
        return (
            [] if set(entry) == {"definition"} else [f"{label} is a definition and also names something else"]
        )
    if set(entry) != {"function", "test"}:
        return [f"{label} must name a function and a test, or say definition: true; it has {sorted(entry)}"]
    found = []
    if find_object(root, entry["function"]) is None:
        found.append(f"{label} names the function {entry['function']}, which no source file defines")
    if find_test(root, entry["test"]) is None:
        found.append(f"{label} names the test {entry['test']}, which does not exist")
    return found


def register(app: Sphinx, doctree: nodes.document) -> None:
    """Check a page's labeled equations against its metadata and leave a tick after each."""
    root = Path(app.srcdir)
    entries = dict(page_metadata(app.env).get("equations", {}))
    for block in list(doctree.findall(nodes.math_block)):
        label = block.get("label")
        if not label:
            continue
        entry = entries.pop(label, None)
        problems = faults(root, label, entry)
        for problem in problems:
            logger.warning("equations: %s", problem, location=block, type="gkalib", subtype="equations")
        if entry and not problems and "function" in entry:
            tick = Tick(
                **entry, line=find_test(root, entry["test"]), target=find_object(root, entry["function"])
            )
            block.parent.insert(block.parent.index(block) + 1, tick)
    for label in entries:
        message = "equations: %s is in the metadata but not on the page"
        logger.warning(message, label, location=app.env.docname, type="gkalib", subtype="equations")


def resolve(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Turn ticks into links to the function's reference and the test's source."""
    for tick in list(doctree.findall(Tick)):
        name = tick["function"].removeprefix("gkalib.")
        function: nodes.Node = nodes.literal(name, name)
        known = app.env.domaindata["py"]["objects"].get(tick["target"])
        if known is not None:
            function = make_refnode(app.builder, docname, known.docname, known.node_id, function)
        test_name = tick["test"].split("::")[-1]
        test: nodes.Node = nodes.literal(test_name, test_name)
        options = app.config.html_theme_options
        if options.get("repository_url"):
            file = tick["test"].split("::")[0]
            branch = options.get("repository_branch") or "main"
            url = f"{options['repository_url'].rstrip('/')}/blob/{branch}/{file}#L{tick['line']}"
            test = nodes.reference("", "", test, refuri=url, internal=False)
        line = nodes.paragraph(classes=["gk-tick"])
        line += [nodes.inline("", "\N{CHECK MARK}", classes=["gk-tick-mark"]), nodes.Text(" holds for ")]
        line += [function, nodes.Text(", checked by "), test]
        tick.replace_self(line)


def setup(app: Sphinx) -> dict:
    """Register the extension."""
    app.add_node(Tick)
    app.connect("doctree-read", register)
    app.connect("doctree-resolved", resolve)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
