"""``gkalib ready``: prove, tune and switch on the fused programs on the card that is here.

Each operation that a variant or a recipe needs is compiled with several block sizes for this very card; what
does not fit its shared memory is out. The rest is compared with float64 row by row, forward and backward, at
two lengths and under four masks, and what is right is timed beside PyTorch's own methods. What comes out is a
line in the card's file (``smoothing/fused/cards.py``), by which ``auto`` goes.

Without a card ``--rehearse sm_89`` compiles for one in processes of its own, compares in Triton's interpreter
at tiny sizes and times nothing. ``auto`` never goes by such a line.
"""

import itertools
import math
import multiprocessing
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import nn
from torch._functorch import config as functorch

from gkalib import layers
from gkalib.bench import timing
from gkalib.bench.attention import by, pass_of, reason_of
from gkalib.gpu.cases import OPERATIONS, Need, compare_all
from gkalib.layers.base import Smoother
from gkalib.results import Table
from gkalib.smoothing import Problem
from gkalib.smoothing.api import ON_GPU
from gkalib.smoothing.fused import WIDTHS, cards, no_operation, operation_of
from gkalib.smoothing.fused.cards import Card, Line
from gkalib.smoothing.fused.configs import Config, forced
from gkalib.smoothing.fused.launch import Launch, interpreting

DEFAULT = "gka", "rbf", "gpa", "softmax"
LENGTHS = {"short": (77, 197), "long": (515, 1030)}
TINY = 19, 37
"""What is compared on a card, by class, and in the interpreter."""
TRIES = 3
"""Block sizes of a program that are compared and timed, at most."""
LEAST = 16
"""Rows and columns of the smallest blocks."""
FOR_A_CARD = "import os; os.environ.pop('TRITON_INTERPRET', None)"
"""Before a process imports the programs: the one that started it may be in the interpreter."""

Sizes = list[int]
"""Rows, columns, warps and stages."""


# What is asked for


def card_here(rehearse: str = "") -> Card:
    """The card that is here, or one that for instance ``sm_89`` names.

    Raises:
        ValueError: if there is none, or no fused operation runs on it.
    """
    if rehearse:
        if not interpreting():
            raise ValueError("ready: a rehearsal compares in Triton's interpreter: set TRITON_INTERPRET=1")
        return cards.card_of(rehearse)
    device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else None
    card = cards.here(device or torch.device("cpu"))
    if card is None:
        raise ValueError("ready: no CUDA card is here; --rehearse sm_89 tries one that is not")
    if reason := card.why_not():
        raise ValueError(f"ready: {reason}")
    return card


def needed(names: Sequence[str], widths: Sequence[int], dtypes: Sequence[str]) -> list[Need]:
    """What variants, recipes and trained models need; an operation may be named itself.

    Raises:
        ValueError: if a name is none of these, or no fused operation computes it.
    """
    found: list[Need] = []
    for name in names or DEFAULT:
        if name in OPERATIONS:
            pairs = [(name, width) for width in widths]
        else:
            pairs = [pair for module in _attentions(name, widths) for pair in _of(module)]
        if not pairs:
            raise ValueError(
                f"ready: no fused operation computes {name}; `gkalib variants` shows which have one"
            )
        found += [Need(operation, dtype, width) for operation, width in pairs for dtype in dtypes]
    return list(dict.fromkeys(found))


def _attentions(name: str, widths: Sequence[int]) -> Iterator[nn.Module]:
    """The layers of a variant with heads of these widths, or those of a recipe's arms, or a trained model."""
    from gkalib import training

    known, sizes = training.recipes(), []
    if name in layers.variants():
        sizes = [(layers.attention(name), 2 * width, 2) for width in widths]
    elif name in known:
        configs: list[Any] = [make() for make in known[name].arms.values()]
        sizes = [
            (each, of.model.dim, of.model.num_heads) for of in configs for each in dict.fromkeys(of.layers())
        ]
    else:
        try:
            yield training.load(name)
        except ValueError as error:
            every = ", ".join([*layers.variants(), *known, *OPERATIONS])
            raise ValueError(
                f"ready: no variant, recipe or trained model {name!r}. Known: {every}"
            ) from error
    for layer, dim, heads in sizes:  # of 32 tokens where it has to be told
        yield layer(dim, heads, **({"length": 32} if getattr(layer, "sized", False) else {}))


def _of(module: nn.Module) -> Iterator[tuple[str, int]]:
    """Operation and width of heads, for each attention layer in a module that has a fused operation."""
    for layer in module.modules():
        if isinstance(layer, Smoother):
            problem = layer.problem(torch.zeros(1, getattr(layer, "length", 32), layer.dim))
            if no_operation(problem) is None:
                widest = problem.query.shape[-1]
                yield operation_of(problem), next(width for width in WIDTHS if widest <= width)


# What is compiled


def launches(need: Need, length: int, mask: str) -> dict[str, list[Launch]]:
    """The programs that each direction starts, one token's with shared keys too; nothing runs."""
    turns = range(2 if OPERATIONS[need.operation].one == "token" else 1)
    every = [need.launches(need.problem(mask, length, turn)) for turn in turns]
    return {name: [launch for each in every for launch in each[name]] for name in need.directions}


def choices(need: Need, length: str) -> dict[str, dict[str, list[Sizes]]]:
    """For each direction the programs that have block sizes of their own, with those to be tried."""
    found: dict[str, dict[str, list[Sizes]]] = {direction: {} for direction in need.directions}
    for mask in OPERATIONS[need.operation].masks:
        started = launches(need, LENGTHS[length][-1], mask)
        for direction, programs in found.items():
            for launch in started[direction]:
                if launch.config.tries:
                    tried = programs.setdefault(launch.name.removesuffix("_kernel"), [])
                    tried += [each for each in launch.config.tries if each not in tried]
    return found


class Fit(NamedTuple):
    """What a program's machine code needs: bytes of shared memory and of spilled registers, and registers."""

    shared: int
    spills: int
    registers: int = 0
    fault: str = ""


def compiled(need: Need, program: str, sizes: Sizes, card: Card) -> Fit:
    """What a program needs with these block sizes on such a card, the most over masks and lengths.

    It runs in a process that imports the programs for a card; Triton's cache keeps what it compiles.
    """
    from triton.backends.compiler import GPUTarget

    from gkalib.gpu.ahead import build

    major, minor = card.capability
    target = GPUTarget("cuda", 10 * major + minor, 32)
    lengths, rules = [long for _, long in LENGTHS.values()], OPERATIONS[need.operation].masks
    if card.rehearsed:  # one is enough to show what a chip has room for
        lengths, rules = lengths[-1:], rules[:2][-1:]
    with forced({program: Config(*sizes)}):
        started = [launches(need, *each).values() for each in itertools.product(lengths, rules)]
    own = [
        launch
        for directions in started
        for launch in itertools.chain(*directions)
        if launch.name.removesuffix("_kernel") == program
    ]
    try:
        reports = [build(launch, target=target) for launch in own]
    except Exception as error:  # whatever the compiler says no with
        return Fit(0, 0, fault=f"{program} does not compile: {reason_of(error)}")
    needs = [(report.shared, report.spills, report.registers) for report in reports]
    return Fit(*map(max, zip(*needs, strict=True)))


def smaller(sizes: Sizes) -> Sizes | None:
    """Half the columns, as long as there are more than the least; then half the rows; then one stage."""
    rows, columns, warps, stages = sizes
    if columns > LEAST:
        return [rows, columns // 2, warps, stages]
    if rows > LEAST:
        return [rows // 2, columns, min(warps, 4), stages]
    return [rows, columns, warps, 1] if stages > 1 else None


def for_a_card(processes: int | None = None) -> ProcessPoolExecutor:
    """Processes that import the programs for a card, whatever this one did; one a core unless told."""
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(processes or os.cpu_count(), spawn, initializer=exec, initargs=(FOR_A_CARD,))


class Compiler:
    """Compiles for a card in processes of their own, each thing once."""

    def __init__(self, card: Card, processes: int | None = None):
        self.card, self.asked = card, dict[tuple, Future[Fit]]()
        self.pool = for_a_card(processes)

    def ask_all(
        self, wanted: Sequence[tuple[Need, str, str]], *, most: int | None
    ) -> dict[tuple[Need, str, str], dict[str, list[Sizes]]]:
        """For each need, class of length and direction the block sizes to be tried of each program.

        All of them are asked for at once, so that no process waits.
        """
        pairs = dict.fromkeys((need, length) for need, length, _ in wanted)
        found = dict(zip(pairs, self.pool.map(choices, *zip(*pairs, strict=True)), strict=True))
        tried = {}
        for need, length, direction in wanted:
            programs = found[need, length][direction]
            tried[need, length, direction] = {name: every[:most] for name, every in programs.items()}
            for name, every in programs.items():
                for sizes in every[:most]:
                    self.ask(need, name, sizes)
        return tried

    def ask(self, need: Need, program: str, sizes: Sizes) -> Future[Fit]:
        """What it needs, once that is known."""
        key = need, program, *sizes
        if key not in self.asked:
            self.asked[key] = self.pool.submit(compiled, need, program, sizes, self.card)
        return self.asked[key]

    def fitting(self, need: Need, program: str, tried: list[Sizes]) -> tuple[list[Sizes], str]:
        """Those block sizes that fit the card and spill nothing, some at most; smaller ones where none does.

        Where all spill it is the one that spills least; where none fits there is none, and the reason.
        """
        spilling: list[tuple[int, Sizes]] = []
        while True:
            fits = [(self.ask(need, program, sizes).result(), sizes) for sizes in tried]
            fitting = [
                (fit.spills, sizes) for fit, sizes in fits if not fit.fault and fit.shared <= self.card.shared
            ]
            good = [sizes for spills, sizes in fitting if not spills]
            if good:
                return good[:TRIES], ""
            spilling += fitting
            least, sizes = min(fits)
            less = smaller(sizes)
            if less is None:
                break
            tried = [less]
        if spilling:
            return [min(spilling)[1]], ""
        return (
            [],
            least.fault or f"{program} needs {least.shared} bytes of shared memory of {self.card.shared}",
        )


# What is measured


def timed(given: Problem, method: str, direction: str) -> float:
    """Milliseconds of a pass by a method; infinite where it does not run."""
    try:
        return timing.columns(timing.times([pass_of(direction, by(method), given)], "cuda"))["ms"]
    except Exception as error:  # no memory, or nothing that runs here: no rival then
        print(f"ready: {method} does not run: {reason_of(error)}", flush=True)
        return math.inf


def rival(given: Problem, direction: str) -> tuple[str, float]:
    """The fastest of ``auto``'s other methods and its time; ``dense`` counts where there is no other."""
    able = [each.name for each in ON_GPU if each.name != "fused" and each.refuses(given) is None]
    times = {name: timed(given, name, direction) for name in able if name != "dense" or able == ["dense"]}
    name = min(times, key=times.__getitem__)
    return name, times[name]


def large(need: Need, length: str, card: Card) -> Problem:
    """A problem that fills a card: pictures without a mask, or text under a causal one, or a cache."""
    of, many, long = OPERATIONS[need.operation], max(card.processors, 16), length == "long"
    if of.one == "token":
        return need.problem("all", 4096 if long else 200, batch=max(1, many // 8), heads=16, device="cuda")
    if long:
        return need.problem(of.masks[:2][-1], 2048, batch=max(1, many // 32), heads=16, device="cuda")
    return need.problem("all", 197, batch=4 * many, heads=6, device="cuda")


def prove(blank: Line, need: Need, fitting: dict[str, list[Sizes]], card: Card) -> Line:
    """Compare each combination of block sizes with float64, time those that are right, keep the fastest."""
    line = blank
    if blank.rehearsed:  # the interpreter pays by the block: there they are small, whatever they would be
        posed = [(given, need.exact(given)) for given in need.problems(TINY, batch=1, heads=2)]
        error, why = compare_all(posed, blank.direction, need.dtype)
        blocks = {program: sizes[0] for program, sizes in fitting.items()}
        return replace(blank, verdict="wrong" if why else "right", why=why, error=error, blocks=blocks)
    posed = [(given, need.exact(given)) for given in need.problems(LENGTHS[blank.length], device="cuda")]
    example = large(need, blank.length, card)
    for combination in itertools.product(*fitting.values()):
        blocks = dict(zip(fitting, combination, strict=True))
        with forced({program: Config(*sizes) for program, sizes in blocks.items()}):
            error, why = compare_all(posed, blank.direction, need.dtype)
            ms = math.inf if why else timed(example, "fused", blank.direction)
        if ms < (line.ms or math.inf):
            line = replace(blank, verdict="right", error=error, blocks=blocks, ms=ms)
        elif line.verdict != "right":
            line = replace(blank, verdict="wrong", error=error, why=why or "it does not run at full size")
    if line.verdict == "right":
        name, ms = rival(example, blank.direction)
        line = replace(line, rival=name, rival_ms=ms if math.isfinite(ms) else None)
    return line


def run(card: Card, needs: Sequence[Need], *, minutes: float = 5.0) -> int:
    """Make the lines that are missing from the card's file, as many as fit the minutes.

    Args:
        card: the one that is here, or that is rehearsed.
        needs: what is asked for.
        minutes: after so many no line is begun.

    Returns:
        How many lines are left; the same call goes on with them.
    """
    from rich.progress import Progress

    functorch.donated_buffer = False  # a backward pass is timed many times over one forward
    end, lengths = time.monotonic() + 60 * minutes, ["long"] if card.rehearsed else [*LENGTHS]
    there = cards.read(card.path()) if card.rehearsed else cards.known(card)
    left: list[tuple[Need, Line]] = []
    for need, length in itertools.product(needs, lengths):
        for direction in need.directions:
            key = need.operation, direction, need.dtype, need.width, length
            blank = Line(*key, cards.code(need.operation), "wrong", rehearsed=card.rehearsed)
            old = there.get(blank.key)
            left += [(need, blank)] if old is None or old.code != blank.code else []
    compiler, most = Compiler(card), 1 if card.rehearsed else None
    with compiler.pool, Progress(transient=True) as progress:
        bar = progress.add_task("compiles", total=len(left))
        tried = compiler.ask_all([(need, blank.length, blank.direction) for need, blank in left], most=most)
        while left and time.monotonic() < end:
            need, blank = left[0]
            progress.update(bar, description=str(blank))
            programs = tried[need, blank.length, blank.direction]
            fits = {name: compiler.fitting(need, name, sizes) for name, sizes in programs.items()}
            why = next((why for _, why in fits.values() if why), "")
            if why:
                line = replace(blank, verdict="refused", why=why)
            else:
                line = prove(blank, need, {program: sizes for program, (sizes, _) in fits.items()}, card)
            cards.write(card, [line])
            left.pop(0)
            progress.advance(bar)
        compiler.pool.shutdown(wait=False, cancel_futures=True)
    return len(left)


def report(lines: Iterable[Line]) -> Table:
    """Lines as a table; those that no longer count say so."""
    header = "operation", "direction", "type", "width", "length", "verdict", "error", "ms", "rival", "blocks"
    rows = []
    for line in sorted(lines, key=lambda line: line.key):
        stale = "" if line.code == cards.code(line.operation) else ", of older code"
        verdict = f"{line.verdict}{', rehearsed' * line.rehearsed}{stale}{': ' * bool(line.why)}{line.why}"
        error, ms = ("" if number is None else f"{number:.2g}" for number in (line.error, line.ms))
        against = "" if line.rival_ms is None else f"{line.rival} {line.rival_ms:.2g}"
        blocks = ", ".join(f"{name} {'×'.join(map(str, sizes))}" for name, sizes in line.blocks.items())
        rows.append((*map(str, line.key), verdict, error, ms, against, blocks))
    return Table(header, rows, "gkalib-ready")
