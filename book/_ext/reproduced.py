"""The directive ``reproduced``: a paper's printed cells with status and verdict, or what they come to."""

import html
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from .claims import PAPERS, Cell, Papers
from .proof import COUNTED, MEASURED, NO_CELL, STATUSES, TRAINED, Judge, Proof
from .tables import read, table

MARKS = {
    "agrees": "\N{CHECK MARK}",
    "reproduced": "\N{CHECK MARK}",
    "shown": "\N{CHECK MARK}",
    "as good as": "\N{CHECK MARK}",
    "partly": "\N{CIRCLE WITH LEFT HALF BLACK}",
    "consistent, other data": "\N{TILDE OPERATOR}",
    "differs": "\N{NOT EQUAL TO}",
    "not reproduced": "\N{NOT EQUAL TO}",
    "not shown": "\N{NOT EQUAL TO}",
    "undecided": "?",
    "rounding": "\N{ALMOST EQUAL TO}",
    "paper's error": "!",
    "": "",
}
WRONG = ("differs", "not reproduced", "paper's error")
ARM = " --keep --arm "
RUN = STATUSES[1:]
TEST = re.compile(r"tests/\S+\.py(::\w+)?")
COUNTED_AS = re.compile(r" \S+/\S+, counted anew$")
Judged = list[tuple[Cell, Proof]]


@cache
def judged(root: Path, store: Path) -> dict[str, dict[str, Judged]]:
    """Every cell with its proof, by paper and table; worked out once a build.

    Raises:
        ValueError: if a cell cannot be judged.
    """
    papers = Papers(store)
    judge = Judge(root, papers)
    return {
        paper: {
            where: [(cell, judge.proof(cell)) for cell in some]
            for where, some in papers.tables(paper).items()
        }
        for paper in PAPERS
    }


class Reproduced(SphinxDirective):
    """``gka`` shows a paper's cells, ``map gka`` draws them, ``summary`` and ``headlines`` sum up all."""

    required_arguments, optional_arguments = 1, 1

    def run(self) -> list[nodes.Node]:
        """Judge the cells and write them down."""
        root = Path(self.env.app.srcdir)
        try:
            known = judged(root, root / self.config.gkalib_results)
            paper, *mapped = self.arguments
            if paper == "headlines":
                return headlines(known, read(root / self.config.gkalib_results / "papers" / "headlines.csv"))
        except ValueError as error:
            raise self.error(str(error)) from error
        if paper == "summary":
            return summary(known)
        drawn = paper == "map" and mapped
        (paper,) = mapped if drawn else [paper]
        if paper not in known:
            raise self.error(f"reproduced: no paper {paper!r}. Known: {', '.join(known)}")
        if drawn:
            return [status_map(PAPERS[paper], known[paper])]
        titles = Papers(root / self.config.gkalib_results).titles
        return [section(paper, titles[paper, where], some) for where, some in known[paper].items()]


def status_map(name: str, tables: Mapping[str, Judged]) -> nodes.raw:
    """A square for each printed cell, a row for each table, by status; red where something is wrong."""
    rows, counts = [], Counter[str]()
    for where, some in tables.items():
        kinds = [
            "wrong" if proof.verdict in WRONG else proof.status
            for cell, proof in some
            for _ in range(cell.count)
            if proof.status != NO_CELL
        ]
        counts.update(kinds)
        squares = "".join(f"<i class='gk-{kind}'></i>" for kind in kinds)
        rows += [f"<p><span>{html.escape(where)}</span><span>{squares}</span></p>"] if kinds else []
    words = {kind: kind for kind in STATUSES} | {"wrong": "differs, or an error"}
    legend = "".join(
        f"<span><i class='gk-{kind}'></i> {word} {counts[kind]}</span>" for kind, word in words.items()
    )
    said = f"{name}: " + ", ".join(f"{counts[kind]} {word}" for kind, word in words.items())
    return nodes.raw(
        "",
        f"<div class='gk-map'><p class='gk-legend'>{legend}</p>"
        f"<div role='img' aria-label='{html.escape(said, quote=True)}'>{''.join(rows)}</div></div>",
        format="html",
    )


def section(paper: str, title: str, some: Judged) -> nodes.section:
    """A heading, the cells as a table or as a list, and what stands behind them."""
    where = some[0][0].where
    heading = f"{where}. {title}" if where.startswith("Table") else title
    listed = not any(cell.column for cell, _ in some)
    body = [claims(some)] if listed else [grid(some), *behind(some)]
    return nodes.section("", nodes.title("", heading), *body, ids=[nodes.make_id(f"{paper}-{where}")])


def grid(some: Judged) -> nodes.table:
    """The paper's table rebuilt: in each cell what is printed, ours where it was measured, and the status."""
    columns = list(dict.fromkeys(cell.column for cell, _ in some))
    # Counts come first, in an order of their own; the paper's file has its rows in the paper's.
    own = [cell.row for cell, _ in some if not cell.evidence[0].startswith("count")]
    rows: dict[str, dict[str, nodes.entry]] = {row: {} for row in own}
    for cell, proof in some:
        rows.setdefault(cell.row, {})[cell.column] = _entry(cell, proof)
    lines = [
        [_label(row), *(found.get(column, nodes.entry()) for column in columns)]
        for row, found in rows.items()
    ]
    few = ["gk-few"] if len(columns) < 4 else []
    return table(("", *columns), lines, "gk-counts", "gk-papers", *few)


def claims(some: Judged) -> nodes.bullet_list:
    """Figures and claims, one under the other."""
    items = []
    for cell, proof in some:
        said = nodes.paragraph("", "", nodes.strong("", cell.row), nodes.Text(f": {cell.printed}"))
        items.append(nodes.list_item("", said, _line(cell, proof)))
    return nodes.bullet_list("", *items, classes=["gk-claims"])


def behind(some: Judged) -> list[nodes.Node]:
    """Under a table, folded: a line for each measured or doubtful cell, and each reason or command once."""
    lines: list[nodes.Node] = []
    reasons: dict[tuple[str, str], list[str]] = {}
    for cell, proof in some:
        if proof.status == NO_CELL:
            continue
        asserted = cell.evidence[0].startswith("test ")  # each says something of its own
        if proof.status in MEASURED or proof.verdict not in ("agrees", "") or asserted:
            said = nodes.paragraph("", "", nodes.strong("", f"{_label(cell.row)}, {cell.column}"))
            said += nodes.Text(f", printed {cell.printed}")
            lines.append(nodes.list_item("", said, _line(cell, proof)))
            continue
        for text in filter(None, (proof.reason, cell.note)):
            text = COUNTED_AS.sub(" counts of the models, counted anew", text)
            start, arm, rest = text.partition(ARM)  # arms of one recipe share a command
            reasons.setdefault((proof.status, start + arm), []).append(rest)
    for (status, text), rests in reasons.items():
        cells = f" {len(rests)} cell{'s' * (len(rests) > 1)}: "
        said = nodes.paragraph("", "", _chip(status, ""), nodes.Text(cells))
        said += _words(text + " ".join(dict.fromkeys(filter(None, rests))))
        lines.append(nodes.list_item("", said))
    if not lines:
        return []
    opening = "<details class='gk-behind'><summary>What stands behind it</summary>"
    body = nodes.bullet_list("", *lines, classes=["gk-claims"])
    return [nodes.raw("", opening, format="html"), body, nodes.raw("", "</details>", format="html")]


def repeated(known: Mapping[str, Mapping[str, Judged]]) -> str:
    """One sentence on what has not been repeated at full size; the introduction and README have it too."""
    runs = [one for some in known.values() for one in _flat(some) if one[1].status in RUN]
    timed = any(p.status in MEASURED for cell, p in runs if cell.evidence[0].startswith("bench"))
    full = sum(cell.count for cell, proof in runs if proof.status == "full")
    whole = sum(cell.count for cell, _ in runs)
    said = f"Of the {whole} cells that take training or a card, {full} have been repeated at full size"
    if not full:
        said = "No training run of the four papers has been repeated at full size"
    return said + ("." if timed else ", and none of their times has been measured on a graphics card.")


def headlines(
    known: Mapping[str, Mapping[str, Judged]], lines: Sequence[Mapping[str, str]]
) -> list[nodes.Node]:
    """Ten claims for people, and what has not been repeated.

    Raises:
        ValueError: if a line names no cell.
    """
    rows = []
    for line in lines:
        place = line["where"], line["row"], line["column"]
        found = [(cell, proof) for cell, proof in _flat(known[line["paper"]]) if cell.place == place]
        if not found:
            raise ValueError(f"reproduced: headlines.csv names no cell of {line['paper']}: {place}")
        ((cell, proof),) = found
        rows.append(
            [
                line["claim"],
                f"{PAPERS[cell.paper]}, {cell.column or cell.row}: {cell.printed}",
                proof.ours or "\N{EN DASH}",
                proof.scale or {"exact": "as printed"}.get(proof.status, "not run"),
                nodes.entry("", nodes.paragraph("", "", _chip(proof.status, proof.verdict, word=True))),
            ]
        )
    return [
        nodes.paragraph("", "", nodes.strong("", repeated(known))),
        table(("claim", "paper", "ours", "scale", "verdict"), rows, "gk-headlines"),
    ]


def summary(known: Mapping[str, Mapping[str, Judged]]) -> list[nodes.Node]:
    """Bars and tables: counts, settings and formulas by verdict, and apart from them what takes a run."""
    cells = {PAPERS[paper]: _flat(tables) for paper, tables in known.items()}
    exact, runs, decided = (
        {
            paper: Counter(
                getattr(proof, word)
                for cell, proof in some
                if proof.status in counted
                for _ in range(cell.count)
            )
            for paper, some in cells.items()
        }
        for word, counted in (("verdict", ("exact",)), ("status", RUN), ("verdict", MEASURED))
    )
    return [
        nodes.paragraph("", "Counts, settings and formulas, which arithmetic or a test decides:"),
        _bars(exact, COUNTED, dict(zip(COUNTED, ("exact", "wrong", "open", "wrong"), strict=True))),
        _tallies(exact, COUNTED),
        nodes.paragraph("", "What takes training, a picture of a trained model, or a card:"),
        _bars(runs, RUN, {word: word for word in RUN}),
        _tallies(runs, RUN),
        nodes.paragraph("", "Verdicts on what was measured:"),
        _tallies(decided, (*TRAINED, "")),
    ]


def _flat(tables: Mapping[str, Judged]) -> Judged:
    return [one for some in tables.values() for one in some]


def _bars(counts: Mapping[str, Counter[str]], words: Sequence[str], kinds: Mapping[str, str]) -> nodes.raw:
    bars = "".join(_bar(paper, count, words, kinds) for paper, count in counts.items())
    return nodes.raw("", f"<div class='gk-bars'>{bars}</div>", format="html")


def _tallies(counts: Mapping[str, Counter[str]], words: Sequence[str]) -> nodes.table:
    """How many cells of each paper have each word."""
    lines = [
        [
            f"{word} {MARKS.get(word, '')}".strip() or "no verdict",
            *(str(count[word]) for count in counts.values()),
        ]
        for word in words
    ]
    lines.append(["all", *(str(sum(count.values())) for count in counts.values())])
    return table(("", *counts), lines, "gk-summary")


def _bar(name: str, count: Counter[str], words: Sequence[str], kinds: Mapping[str, str]) -> str:
    """A bar whose parts are as wide as the shares of the words."""
    whole = sum(count.values())
    parts = "".join(
        f"<span class='gk-{kinds[word]}' style='flex-grow:{count[word]}'>"
        f"{count[word] if count[word] > 0.07 * whole else ''}</span>"
        for word in words
        if count[word]
    )
    said = html.escape(f"{name}: " + ", ".join(f"{count[word]} {word}" for word in words), quote=True)
    return f"<p>{name}</p><div class='gk-bar' role='img' aria-label='{said}'>{parts}</div>"


def _entry(cell: Cell, proof: Proof) -> nodes.entry:
    """What is printed, ours and its scale where it was measured or does not agree, and the status."""
    entry = nodes.entry("", nodes.paragraph("", cell.printed, classes=["gk-printed"]))
    if proof.ours and (proof.status in MEASURED or proof.verdict not in ("agrees", "")):
        entry += nodes.paragraph("", proof.ours, classes=["gk-ours"])
    if proof.scale:
        entry += nodes.paragraph("", ", ".join(proof.scale.split(", ")[:3]), classes=["gk-ours"])
    if proof.status != NO_CELL:
        entry += nodes.paragraph("", "", _chip(proof.status, proof.verdict))
    return entry


def _line(cell: Cell, proof: Proof) -> nodes.paragraph:
    """Status, verdict, what was compared, ours and why."""
    line = nodes.paragraph("", "", _chip(proof.status, proof.verdict, word=True), classes=["gk-proof"])
    if proof.verdict in ("reproduced", "not reproduced") and proof.compares == "value":
        line += nodes.Text(" in value.")
    if proof.ours:
        line += nodes.Text(f" Ours: {proof.ours}.")
    for text in filter(None, (cell.note, proof.reason)):
        line += [nodes.Text(" "), *_words(text), nodes.Text(".")]
    return line


def _words(text: str) -> list[nodes.Node]:
    """Text, in which a command or a test is a literal."""
    named = TEST.search(text)
    if named:
        before, after = text[: named.start()], text[named.end() :]
        return [nodes.Text(before[:1].upper() + before[1:]), nodes.literal("", named[0]), nodes.Text(after)]
    before, command, after = text.partition("python -m gkalib")
    if not command:
        return [nodes.Text(text[0].upper() + text[1:])]
    typed, comma, rest = after.partition(", ")
    shown: list[nodes.Node] = [nodes.literal("", command + typed), nodes.Text(comma + rest)]
    return [nodes.Text(before), *shown] if before else shown


def _chip(status: str, verdict: str, *, word: bool = False) -> nodes.inline:
    text = f"{status} {MARKS[verdict]}".strip()
    if word and verdict:
        text = f"{status} {MARKS[verdict]} {verdict}"
    kind = "gk-wrong" if verdict in WRONG else f"gk-{status}"
    return nodes.inline("", text, classes=["gk-status", kind])


def _label(row: str) -> str:
    """A row's name without that of its paper."""
    return row.removeprefix("karat-")


def setup(app: Sphinx) -> dict:
    """Register the directive."""
    app.add_directive("reproduced", Reproduced)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
