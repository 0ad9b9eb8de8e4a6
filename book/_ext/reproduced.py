"""The directive ``reproduced``: a paper's printed cells with status and verdict, or how many there are."""

import html
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from .claims import PAPERS, VERDICTS, Cell, Papers
from .proof import MEASURED, STATUSES, Judge, Proof

MARKS = {
    "agrees": "\N{CHECK MARK}",
    "differs": "\N{NOT EQUAL TO}",
    "undecided": "?",
    "paper's error": "!",
    "": "",
}
ARM = " --keep --arm "
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
    """``{reproduced} gka`` shows the cells of a paper, ``{reproduced} summary`` how many there are."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Judge the cells and write them down."""
        root = Path(self.env.app.srcdir)
        try:
            known = judged(root, root / self.config.gkalib_results)
        except ValueError as error:
            raise self.error(str(error)) from error
        (paper,) = self.arguments
        if paper == "summary":
            return summary(known)
        if paper not in known:
            raise self.error(f"reproduced: no paper {paper!r}. Known: {', '.join(known)}")
        titles = Papers(root / self.config.gkalib_results).titles
        return [table(paper, titles[paper, where], some) for where, some in known[paper].items()]


def table(paper: str, title: str, some: Judged) -> nodes.section:
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
    header = [_plain(name) for name in ("", *columns)]
    lines = [
        [_plain(_label(row)), *(found.get(column, nodes.entry()) for column in columns)]
        for row, found in rows.items()
    ]
    few = ["gk-few"] if len(columns) < 4 else []
    return _table(header, lines, ["gk-ledger", "gk-counts", "gk-papers", *few])


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
        if proof.status in MEASURED or proof.verdict not in ("agrees", ""):
            said = nodes.paragraph("", "", nodes.strong("", f"{_label(cell.row)}, {cell.column}"))
            said += nodes.Text(f", printed {cell.printed}")
            lines.append(nodes.list_item("", said, _line(cell, proof)))
            continue
        for text in filter(None, (proof.reason, cell.note)):
            start, arm, rest = text.partition(ARM)  # arms of one recipe share a command
            reasons.setdefault((proof.status, start + arm), []).append(rest)
    for (status, text), rests in reasons.items():
        said = nodes.paragraph("", "", _chip(status, ""), nodes.Text(f" {_cells(len(rests))}: "))
        said += _words(text + " ".join(dict.fromkeys(filter(None, rests))))
        lines.append(nodes.list_item("", said))
    if not lines:
        return []
    opening = "<details class='gk-behind'><summary>What stands behind it</summary>"
    body = nodes.bullet_list("", *lines, classes=["gk-claims"])
    return [nodes.raw("", opening, format="html"), body, nodes.raw("", "</details>", format="html")]


def summary(known: dict[str, dict[str, Judged]]) -> list[nodes.Node]:
    """Bars of statuses, how many cells have which, and how many of those done have which verdict."""
    cells = {paper: [one for some in tables.values() for one in some] for paper, tables in known.items()}
    counts = {
        paper: tally((proof.status, cell.count) for cell, proof in some) for paper, some in cells.items()
    }
    bars = "".join(_bar(PAPERS[paper], count) for paper, count in counts.items())
    header = [_plain(""), *(_plain(PAPERS[paper]) for paper in known)]
    statuses = [
        [
            nodes.entry("", nodes.paragraph("", "", _chip(name, ""))),
            *(_plain(str(c[name])) for c in counts.values()),
        ]
        for name in STATUSES
    ]
    statuses.append([_plain("all"), *(_plain(str(sum(count.values()))) for count in counts.values())])
    verdicts = []
    for word in (*VERDICTS, ""):
        line = [_plain(f"{word} {MARKS[word]}".strip() or "not compared")]
        for some in cells.values():
            of = [(proof.status, cell.count) for cell, proof in some if proof.verdict == word]
            said = tally(of)
            line.append(_plain(f"{said['exact']} + {sum(said[name] for name in MEASURED)}"))
        verdicts.append(line)
    return [
        nodes.raw("", f"<div class='gk-bars'>{bars}</div>", format="html"),
        _table(header, statuses, ["gk-ledger", "gk-summary"]),
        nodes.paragraph("", "What came out, for exact cells + measured ones:"),
        _table([one.deepcopy() for one in header], verdicts, ["gk-ledger", "gk-summary"]),
    ]


def tally(pairs: Iterable[tuple[str, int]]) -> Counter[str]:
    """How many there are of each word."""
    found: Counter[str] = Counter()
    for word, count in pairs:
        found[word] += count
    return found


def _bar(name: str, count: Counter[str]) -> str:
    """A bar whose parts are as wide as the shares of the statuses."""
    whole = sum(count.values())
    parts = "".join(
        f"<span class='gk-{status}' style='flex-grow:{count[status]}'>"
        f"{count[status] if count[status] > 0.07 * whole else ''}</span>"
        for status in STATUSES
        if count[status]
    )
    said = html.escape(
        f"{name}: " + ", ".join(f"{count[status]} {status}" for status in STATUSES), quote=True
    )
    return f"<p>{name}</p><div class='gk-bar' role='img' aria-label='{said}'>{parts}</div>"


def _entry(cell: Cell, proof: Proof) -> nodes.entry:
    """What is printed, ours under it where it was measured or does not agree, and the status."""
    entry = nodes.entry("", nodes.paragraph("", cell.printed, classes=["gk-printed"]))
    if proof.ours and (proof.status in MEASURED or proof.verdict not in ("agrees", "")):
        entry += nodes.paragraph("", proof.ours, classes=["gk-ours"])
    entry += nodes.paragraph("", "", _chip(proof.status, proof.verdict))
    return entry


def _line(cell: Cell, proof: Proof) -> nodes.paragraph:
    """Status, verdict, what was compared, ours and why."""
    line = nodes.paragraph("", "", _chip(proof.status, proof.verdict, word=True), classes=["gk-proof"])
    if proof.verdict and proof.status in MEASURED:
        line += nodes.Text(f" in {proof.compares}.")
    if proof.ours:
        line += nodes.Text(f" Ours: {proof.ours}.")
    for text in filter(None, (cell.note, proof.reason)):
        line += [nodes.Text(" "), *_words(text), nodes.Text(".")]
    return line


def _words(text: str) -> list[nodes.Node]:
    """Text, in which a command is a literal."""
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
    kind = "gk-wrong" if verdict in ("differs", "paper's error") else f"gk-{status}"
    return nodes.inline("", text, classes=["gk-status", kind])


def _cells(count: int) -> str:
    return "1 cell" if count == 1 else f"{count} cells"


def _label(row: str) -> str:
    """A row's name without that of its paper."""
    return row.removeprefix("karat-")


def _plain(text: str) -> nodes.entry:
    return nodes.entry("", nodes.paragraph("", text))


def _table(header: list[nodes.entry], lines: list[list[nodes.entry]], classes: list[str]) -> nodes.table:
    group = nodes.tgroup(cols=len(header))
    group += [nodes.colspec(colwidth=1) for _ in header]
    group += nodes.thead("", nodes.row("", *header))
    group += nodes.tbody("", *[nodes.row("", *line) for line in lines])
    return nodes.table("", group, classes=classes)


def setup(app: Sphinx) -> dict:
    """Register the directive."""
    app.add_directive("reproduced", Reproduced)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
