"""The time of a pass of the fused operations by arithmetic, from the programs as they are compiled.

A pass takes its graph nodes, and beside them the longer of moving its bytes and of computing: tensor cores,
special functions and other instructions one after the other, as in one group of warps. ``at_best`` takes them
all at once. Instructions are those of the compiled programs (ahead.json), at the edges too.
"""

import json
from dataclasses import dataclass
from functools import cache
from typing import Any, final

from gkalib.bench.cases import Case
from gkalib.bench.goals import PACKAGE
from gkalib.bench.roofline import CLOCK, STATED, Rates, Work, floor, visible, work

STATED_RATES = STATED["H200"]
RATES = Rates(
    0.8 * STATED_RATES.products, 0.9 * STATED_RATES.memory, STATED_RATES.exponentials, STATED_RATES.issue
)
"""Of an H200's data sheet, what a large product and a copy reach: 80 and 90 per cent."""
NODE = 1.5e-6
"""Seconds of a node of a graph, whatever it does."""
L2 = 5.5e12
"""Bytes a second that programs add to memory in the cache of 50 MB."""
SDPA = {(64, False): (184e12, 143e12), (64, True): (337e12, 280e12), (128, True): (485e12, 377e12)}
"""What PyTorch's best program is taken to reach on visible pairs, by width and causality: operations a second
forward and backward. Without a mask these are 197 tokens, whose tiles hold 1.7 pairs for each true one."""
FLEX = 0.75, 0.6
"""What FlexAttention reaches of that, forward and backward, on the tiles that a mask leaves."""
ATOMICS = 132 * CLOCK
"""Additions a second to a table of lags, as FlexAttention forms its gradient: one a clock and processor."""
SLICES = 2048
"""Of a table's gradient, over all heads, where four a head are fewer."""


@final
@dataclass(frozen=True)
class Program:
    """A program over pairs as compiled: its blocks, and the loops of instructions of its warps."""

    rows: int
    columns: int
    edge: int
    warps: int
    loops: tuple[int, ...]
    seldom: int


@final
@dataclass(frozen=True)
class Pass:
    """The microseconds of a pass: nodes of a graph, and what each resource needs.

    Args:
        design: which programs are assumed.
        nodes, memory, products, exponentials, instructions, cache: of each.
    """

    design: str
    nodes: float
    memory: float
    products: float
    exponentials: float
    instructions: float
    cache: float = 0.0

    @property
    def computing(self) -> float:
        """Tensor cores, special functions, other instructions and additions in the cache in turn."""
        return self.products + self.exponentials + self.instructions + self.cache

    @property
    def us(self) -> float:
        return self.nodes + max(self.memory, self.computing)

    @property
    def at_best(self) -> float:
        """The same with nothing waiting for anything."""
        return self.nodes + max(self.memory, self.products, self.exponentials, self.instructions, self.cache)

    @property
    def bound(self) -> str:
        """The resource that needs longest."""
        names = ("memory", "products", "exponentials", "instructions", "cache")
        return max(names, key=lambda name: getattr(self, name))

    def __str__(self) -> str:
        parts = f"{self.products:.1f} products + {self.exponentials:.1f} exponentials"
        parts += f" + {self.instructions:.1f} instructions" + (
            f" + {self.cache:.1f} L2" if self.cache else ""
        )
        return f"{self.nodes:.1f} nodes + max({self.memory:.1f} memory, {parts}) = {self.us:.1f}"


DESIGNS: dict[tuple[str, str], tuple[str, tuple[str, ...], str]] = {
    ("vit", "forward"): ("gka_forward", ("gka_forward",), "an edge tile of 16"),
    ("vit", "backward"): ("gka_backward_head", ("gka_backward_head",), "one kernel a head"),
    ("text", "forward"): ("gka_forward_described", ("gka_forward_described",), "a host's descriptor"),
    ("text", "backward"): ("gka_backward", ("gka_backward",), "seven products, two walks"),
    ("text", "unordered"): ("gka_backward_unordered", ("gka_backward_unordered",), "five products"),
    ("rbf", "forward"): ("rbf_forward", ("smooth_forward",), "a shift that seldom grows"),
    ("rbf", "backward"): ("rbf_backward", ("smooth_backward_query", "smooth_backward_key"), "two programs"),
    ("gpa", "backward"): ("gpa_backward", ("smooth_backward_query", "smooth_backward_key"), "carried lags"),
    ("plain", "backward"): (
        "softmax_backward", ("smooth_backward_query", "smooth_backward_key"), "without a table",
    ),
    ("karat", "forward"): ("row_features", ("row_operator_forward",), "one program"),
    ("karat", "backward"): ("row_features_backward", ("row_operator_query", "row_operator_key"), "two"),
}  # fmt: skip
"""The sample call of each pass, its programs over pairs, and in words what is new of them."""
SMALL = {
    "backward": {"gka_backward_head": 1, "gka_backward": 1, "gka_backward_unordered": 2, "gpa_backward": 2}
}
"""Nodes beside the programs: sums of σ's and of a table's gradient, and memory that is set to zero."""


@cache
def _rows() -> list[dict[str, Any]]:
    return json.loads((PACKAGE / "gpu" / "ahead.json").read_text(encoding="utf-8"))


def compiled(call: str, case: Case) -> tuple[dict[str, Program], int]:
    """The programs of a sample call as they are compiled for a case, and how many it starts."""
    wanted = {"case": call, "width": case["width"], "dtype": case["dtype"]}
    for mask in ("band", "all") if case["causal"] else ("all",):
        for dtype in (case["dtype"], "bfloat16"):
            for length in (197, 1024) if case["keys"] <= 256 else (1024, 197):
                found = wanted | {"mask": mask, "length": length, "dtype": dtype}
                rows = [row for row in _rows() if found.items() <= row.items()]
                if rows:
                    names = ("rows", "columns", "edge", "warps", "seldom")
                    programs = {
                        row["program"]: Program(
                            loops=tuple(row["loops"]), **{name: row[name] for name in names}
                        )
                        for row in rows
                    }
                    return programs, len(rows)
    raise ValueError(f"predictions: {call} at width {case['width']} is not in ahead.json")


def blocks(case: Case, program: Program) -> tuple[int, int]:
    """The whole blocks and those at the edge, 16 columns or whole ones too, that a head's pairs touch."""
    length, columns = case["keys"], program.columns
    whole = edges = 0
    for start in range(0, case["queries"], program.rows):
        last = min(start + program.rows, case["queries"]) - 1
        low = 0 if case["window"] is None else max(0, start - case["window"] + 1)
        high = last + 1 if case["causal"] else length
        if not case["causal"] and length % columns and program.edge:
            whole += length // columns
            edges += -(-(length % columns) // program.edge)
            continue
        begin, end = -(-low // columns), min(high, length if not case["causal"] else start + 1) // columns
        every = (high - 1) // columns - low // columns + 1
        inside = max(0, end - begin)
        whole += inside
        edges += every - inside
    return whole, edges


def walked(case: Case, program: Program, walks: int = 1) -> tuple[float, float]:
    """Pairs of a head in the blocks that a program forms, and instructions of a lane for all of them."""
    whole, edges = blocks(case, program)
    narrow = program.edge if program.edge and not case["causal"] else program.columns
    pairs = program.rows * (whole * program.columns + edges * narrow)
    lanes = 32 * program.warps
    # Loops come shortest first: of narrow blocks before the whole ones, or of whole blocks before the edges.
    hot = program.loops[walks - 1 + (program.edge > 0)] if walks == 1 else sum(program.loops[:walks])
    hot = (hot - program.seldom) if walks == 1 else hot
    if program.edge and not case["causal"]:
        edge = program.loops[0]
    else:
        edge = sum(program.loops[walks : 2 * walks]) - program.seldom if len(program.loops) > walks else hot
    return float(pairs), float(lanes * (whole * hot + edges * edge))


def ours(case: Case, family: str, direction: str) -> Pass:
    """A pass of ours."""
    call, names, words = DESIGNS[family, direction]
    programs, nodes = compiled(call, case)
    heads = case["batch"] * case["heads"]
    pass_ = "backward" if direction == "unordered" else direction
    kind = {"vit": "gka", "text": "gka", "karat": "karat"}.get(family, "softmax")
    done = work(case, pass_, kind, designed=True)
    two_walks = call == "gka_backward" and case["causal"]
    pairs, instructions = 0.0, 0.0
    for name in names:
        own, lanes = walked(case, programs[name], 2 if two_walks else 1)
        pairs, instructions = pairs + own / len(names), instructions + lanes
    waste = heads * pairs / done.pairs
    exponentials, flops, moved, cached = done.exponentials, done.flops, float(done.bytes), 0.0
    if direction == "unordered":
        flops, exponentials = flops * 5 / 7, exponentials / 2
        tensor = heads * case["keys"] * case["width"] * 4
        moved += 3 * tensor  # set to zero, added to, read
        program = programs[names[0]]
        cached = 4 * case["width"] * heads * pairs / program.rows
    if family == "gpa":
        table = programs["smooth_backward_query"]
        slices = min(-(-case["queries"] // table.rows), max(4, SLICES // heads))
        moved += 3 * 4 * heads * slices * (case["queries"] + case["keys"])
    least = floor(Work(done.pairs, flops * waste, exponentials * waste, moved, heads * instructions), RATES)
    nodes += SMALL.get(pass_, {}).get(call, 0)
    seconds = (nodes * NODE, least.memory, least.products, least.exponentials, least.issue, cached / L2)
    return Pass(words, *(1e6 * each for each in seconds))


def pairs_of(case: Case) -> int:
    """The pairs of query and key that a case's mask allows, over all heads."""
    heads = case["batch"] * case["heads"]
    return heads * visible(case["queries"], case["keys"], causal=case["causal"], window=case["window"])


def sdpa(case: Case, direction: str) -> float:
    """Microseconds of PyTorch's best program for softmax attention on a case's shape without its window."""
    rates = SDPA[case["width"], case["causal"]]
    flops = 4 * case["width"] * pairs_of({**case, "window": None})
    times = 1e6 * flops / rates[0] + NODE * 1e6, 1e6 * 2.5 * flops / rates[1] + 3 * NODE * 1e6
    return {"forward": times[0], "backward": times[1], "both": sum(times)}[direction]


def softmax(case: Case, direction: str) -> float:
    """The same with its window: of that and FlexAttention the faster."""
    whole = sdpa(case, direction)
    if case["window"] is None:
        return whole
    share = pairs_of(case) / pairs_of({**case, "window": None})
    directions = ("forward", "backward") if direction == "both" else (direction,)
    skipping = sum(
        sdpa(case, each) * share * 1.1 / FLEX[each == "backward"] for each in directions
    )  # 1.1: whole blocks of 128 at the window's end
    return min(whole, skipping)
