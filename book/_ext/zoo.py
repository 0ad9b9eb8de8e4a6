"""The directives ``variant`` and ``variants``: the cards of the zoo, and small pictures that lead to them."""

import functools
import json
import re
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from gkalib.results import load
from gkalib.results.claims import HEADER, claims

KINDS = ("images", "text")
SLOTS = ("kernel", "normalizer", "values", "mask", "sum")
LABELS = {"sum": "work"}
READ = ("chapter", "paper")
CACHES = {"none": "none", "sums": "a state of fixed size"}
LETTERS = dict(zip("IHGFEDCBA.abcdefghi", range(-9, 10), strict=True))


class Variant(SphinxDirective):
    """A card: what a variant is, how it looks at a text and an image, what it costs, what is known of it."""

    required_arguments, optional_arguments, final_argument_whitespace = 1, 1, True
    has_content = True
    option_spec = dict.fromkeys((*SLOTS, *READ), directives.unchanged_required)

    def run(self) -> list[nodes.Node]:
        """Gather the facts and lay them out."""
        name, title = self.arguments
        root = Path(self.env.srcdir)
        store, (known, costs) = root / self.config.gkalib_results, facts(root)
        if name not in known:
            raise self.error(f"variant: {name!r} is not in the table of use-it.md")
        judged = {f"on {kind}": verdicts(store, kind).get(name) for kind in KINDS}
        compared = name == "softmax" or any(judged.values())
        rows = {
            "changes": known[name][0],
            **{LABELS.get(slot, slot): self.options.get(slot) for slot in SLOTS},
            **(judged if compared else {"verdict": "not compared with softmax attention yet"}),
            "known": known[name][1],
            "one layer": costs.get(name),
            "a step on a CPU": steps(store).get(name),
            "read": " · ".join(self.options[each] for each in READ if each in self.options),
        }
        fields = [
            nodes.field("", nodes.field_name("", label), nodes.field_body("", self.line(text)))
            for label, text in rows.items()
            if text
        ]
        when, *code = self.parse_content_to_nodes()
        card = nodes.raw("", f"<div class='gk-card'>{views(drawings(root), name)}", format="html")
        ends = nodes.raw("", "</div>", format="html")
        heading = nodes.title(title, f"{title} ", nodes.literal(name, name))
        self.env.domains["std"].note_hyperlink_target(f"zoo-{name}", self.env.docname, name, title)
        return [
            nodes.section("", heading, when, card, nodes.field_list("", *fields), ends, *code, ids=[name])
        ]

    def line(self, text: str) -> nodes.paragraph:
        """A line of the page's own syntax."""
        return nodes.paragraph(text, "", *self.parse_inline(text, lineno=self.lineno)[0])


class Variants(SphinxDirective):
    """A small picture of every variant, in the order of the table, which leads to its card."""

    def run(self) -> list[nodes.Node]:
        """Draw them from the cards' own pictures."""
        root = Path(self.env.srcdir)
        size = len(drawings(root)["words"])
        tiles = "".join(
            f"<a href='#{name}'><svg viewBox='0 0 {size} {size}' aria-hidden='true'>"
            f"<use href='#{name}-drawn'/></svg><code>{name}</code></a>"
            for name in facts(root)[0]
        )
        return [nodes.raw("", f"<div class='gk-tiles'>{tiles}</div>", format="html")]


@functools.cache
def facts(root: Path) -> tuple[dict[str, list[str]], dict[str, str]]:
    """By variant, from the tables of ``use-it.md``: what it changes and its limits; what a layer costs."""
    page = (root / "book" / "use-it.md").read_text(encoding="utf-8")
    rows = [(name, rest.split(" | ")) for name, rest in re.findall(r"^\| `(\w+)` \| (.+) \|$", page, re.M)]
    costs = {}
    for name, (parameters, _, _, cached, _, few, many) in ((name, row) for name, row in rows if len(row) > 2):
        count, *sums = cached.split(", ")
        cache = CACHES.get(count) or ", ".join([f"{count} values a token", *sums])
        costs[name] = f"{parameters} parameters; keeps {few} of 196 tokens, {many} of 784; cache: {cache}"
    return {name: row for name, row in rows if len(row) == 2}, costs


@functools.cache
def drawings(root: Path) -> dict:
    """What ``book/zoo.py`` has drawn."""
    return json.loads((root / "book" / "zoo.json").read_text(encoding="utf-8"))


@functools.cache
def steps(store: Path) -> dict[str, str]:
    """By variant, the time of a training step as a multiple of softmax attention's, by the newest records."""
    took: dict[str, float] = {}
    for record in load("one-budget-costs", root=store):
        took.setdefault(record.arm, float(record.metrics["milliseconds"]))
    found: dict[str, list[str]] = {}
    for arm in sorted(took):
        kind, name = arm.split("-", 1)
        times = took[arm] / took[f"{kind}-softmax"]
        found.setdefault(name.replace("-", "_"), []).append(f"{times:.1f} × softmax's on {kind}")
    return {name: ", ".join(some) for name, some in found.items()}


@functools.cache
def verdicts(store: Path, kind: str) -> dict[str, str]:
    """By variant, its verdict at one budget: the difference from softmax attention, interval, scale."""
    table, found = claims(f"one-budget-{kind}", root=store), {}
    for judged in table.judged:
        for cells in replace(table, judged=(judged,)).cells:
            row = dict(zip(HEADER, cells, strict=True))
            said = "**{verdict}**, {ours} ({interval}); {scale}, {seeds} seeds".format(**row)
            found[next(iter(judged[0].weights)).replace("-", "_")] = said
    return found


def views(drawn: dict, name: str) -> str:
    """The weights of all words on each other, and those of one patch of the photograph on all, as SVG."""
    text, image, words = *drawn["weights"][name].values(), drawn["words"]
    size, side = len(words), len(image)
    row, column = divmod(drawn["query"], side)
    labels = "".join(f"<text x='-.3' y='{y + 0.75}'>{word}</text>" for y, word in enumerate(words))
    blue = {shade: shade for shade in range(1, 10)}
    orange = {-shade: shade for shade in blue}
    veil = {shade: 9 - max(shade, 0) for shade in range(-9, 10)}
    return (
        f"<div class='gk-views'><svg viewBox='-4.4 0 {size + 4.4} {size}' role='img' aria-label="
        f"'Weights of {name} among the words: {' '.join(words)}'>{labels}<g id='{name}-drawn'>"
        f"{cells(text, blue, 'gk-more')}{cells(text, orange, 'gk-less')}</g></svg>"
        f"<svg class='gk-photograph' viewBox='0 0 {side} {side}' role='img' aria-label="
        f"'Weights of {name} from the right eye of a cat on the patches of its photograph'>"
        f"{cells(image, veil, 'gk-veil')}{cells(image, orange, 'gk-less')}"
        f"<rect class='gk-asks' x='{column}' y='{row}' width='1' height='1'/></svg></div>"
    )


def cells(rows: list[str], opacity: dict[int, int], kind: str) -> str:
    """The cells of each shade as one path along the rows, with an opacity in ninths."""
    paths = dict.fromkeys(opacity, "")
    for y, row in enumerate(rows):
        x = 0
        for letter, run in groupby(row):
            wide = len([*run])
            if LETTERS[letter] in paths:
                paths[LETTERS[letter]] += f"M{x} {y}h{wide}v1h-{wide}z"
            x += wide
    return "".join(
        f"<path class='{kind}' opacity='{opacity[shade] / 9:.2f}' d='{path}'/>"
        for shade, path in paths.items()
        if path and opacity[shade]
    )


def setup(app: Sphinx) -> dict:
    """Register the directives."""
    app.add_directive("variant", Variant)
    app.add_directive("variants", Variants)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
