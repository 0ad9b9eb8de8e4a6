"""Compile fused programs for a card on a machine without one, and read what the machine code says of them.

A problem is computed on CPU tensors under ``collected()``, which lists its launches; Triton's own rules then
specialize each argument as a launch would, and the wheel's ptxas and cuobjdump do the rest.
"""

import contextlib
import io
import re
import subprocess
import tempfile
from dataclasses import dataclass
from typing import Any

import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime.jit import create_function_from_signature

from gkalib.smoothing.fused.launch import Launch

TARGET = GPUTarget("cuda", 90, 32)
"""An H100: what is compiled for where nothing else is asked for."""


@dataclass(frozen=True)
class Report:
    """What the machine code of one program says.

    Args:
        program: its name.
        rows, columns, warps, stages: its configuration; more warps where the compiler specialized them.
        registers: of a thread.
        spills: bytes of a thread that ptxas writes to local memory and reads back for want of registers.
        shared: bytes of shared memory.
        hgmma, hmma: tensor-core instructions of a warp group (what an H100 is fast at) and of a warp.
        serialized: whether ptxas had to wait after every one of the former.
        atomics: instructions that change memory in no fixed order; exchanges publish descriptors only.
        local: loads from and stores to local memory in the hot loop.
        loops: instructions of each innermost loop that holds a tensor-core product, or for one row an
            exponential; the hot loop is the first, or the one after that of narrower blocks.
        per_score: instructions that a thread issues in the hot loop for each of its rows × columns scores.
        edge: columns of the narrower blocks at the edge, whose loop comes before the hot one; 0 without such.
        copies: loads from global to shared memory that a thread does not wait for.
        seldom: instructions of the hot loop that a branch passes over as a rule, not part of ``per_score``.
    """

    program: str
    rows: int
    columns: int
    warps: int
    stages: int
    registers: int
    spills: int
    shared: int
    hgmma: int
    hmma: int
    serialized: bool
    atomics: int
    local: int
    loops: tuple[int, ...]
    per_score: float | None
    edge: int = 0
    copies: int = 0
    seldom: int = 0

    @property
    def sizes(self) -> tuple[int, ...]:
        """Its configuration, with the columns of the narrower blocks at the edge."""
        return self.rows, self.columns, self.warps, self.stages, self.edge

    def __str__(self) -> str:
        score = "     –" if self.per_score is None else f"{self.per_score:6.2f}"
        return (
            f"{self.program:<34} {self.rows:>4}×{self.columns:<4} w{self.warps} s{self.stages}"
            f"  regs {self.registers:>3}  spills {self.spills:>4}  shared {self.shared:>6}"
            f"  HGMMA {self.hgmma:>3}  HMMA {self.hmma:>3}  LDGSTS {self.copies:>3}"
            f"  atomics {self.atomics}  local {self.local}"
            f"  instr/score {score}  loops {list(self.loops)}{'  SERIALIZED' if self.serialized else ''}"
        )


def source_of(launch: Launch, target: GPUTarget = TARGET) -> tuple[ASTSource, Any]:
    """What Triton makes of a launch on a card: each argument specialized, and the options."""
    backend, program, config = make_backend(target), launch.program, launch.config
    binder = create_function_from_signature(program.signature, program.params, backend)
    kwargs = launch.arguments | {
        "num_warps": config.warps,
        "num_stages": config.stages,
        "debug": False,
        "instrumentation_mode": "",
    }
    bound, special, rest = binder(**kwargs)
    options, signature, constants, attributes = program._pack_args(backend, kwargs, bound, special, rest)
    return ASTSource(program, signature, constants, attributes), options


_reports: dict[tuple, Report] = {}


def build(launch: Launch, target: GPUTarget = TARGET) -> Report:
    """Compile one launch and read the result, once in a process."""
    source, options = source_of(launch, target)
    key = (source.hash(), options.hash(), launch.config, target)
    if key not in _reports:
        _reports[key] = read(launch, *compiled(source, options, target))
    return _reports[key]


def compiled(source: ASTSource, options: Any, target: GPUTarget = TARGET) -> tuple[Any, str]:
    """What Triton compiles exactly as it would on a card, and what ptxas says of it."""
    log = io.StringIO()
    with knobs.compilation.scope(), knobs.nvidia.scope(), contextlib.redirect_stdout(log):
        knobs.compilation.always_compile = True
        knobs.nvidia.dump_ptxas_log = True
        return triton.compile(source, target=target, options=options.__dict__), log.getvalue()


def read(launch: Launch, compiled: Any, log: str) -> Report:
    """The report of compiled code, from ptxas's words and the disassembly."""
    code = disassemble(compiled.asm["cubin"])
    instructions, every_loop = [words for _, words in code], loops(code)
    config, warps = launch.config, compiled.metadata.num_warps
    # One row is no product: there the loop that computes exponentials is the hot one.
    kinds = ("HGMMA", "HMMA", "MUFU.EX2") if config.rows == 1 else ("HGMMA", "HMMA")
    per_kind = ([loop for loop in every_loop if _count(_words(loop), kind)] for kind in kinds)
    product_loops = next(filter(None, per_kind), [])
    columns = launch.arguments.get("BLOCK_EDGE", config.columns)
    edge = columns if columns < config.columns else 0
    hot = product_loops[edge > 0] if product_loops else []
    seldom = passed_over(hot)
    # Where the compiler added warps, the program's own only load.
    scores = config.rows * config.columns / (32 * (warps if warps == config.warps else warps - config.warps))
    return Report(
        program=launch.name.removesuffix("_kernel"),
        rows=config.rows,
        columns=config.columns,
        warps=warps,
        stages=config.stages,
        registers=_number(r"Used (\d+) registers", log),
        spills=_number(r"(\d+) bytes spill stores", log) + _number(r"(\d+) bytes spill loads", log),
        shared=compiled.metadata.shared,
        hgmma=_count(instructions, "HGMMA"),
        hmma=_count(instructions, "HMMA"),
        serialized="serialized" in log,
        atomics=_count(instructions, r"(RED|REDG|ATOM|ATOMG|UTMAREDG)\b(?!\S*EXCH)"),
        local=_count(_words(hot), "STL|LDL"),
        loops=tuple(len(loop) for loop in product_loops),
        per_score=round((len(hot) - seldom) / scores, 2) if hot else None,
        edge=edge,
        copies=_count(instructions, "LDGSTS"),
        seldom=seldom,
    )


def disassemble(cubin: bytes) -> list[tuple[int, str]]:
    """The instructions of a program and their addresses."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        tool = knobs.nvidia.cuobjdump.path
        text = subprocess.run([tool, "-sass", file.name], capture_output=True, text=True, check=True).stdout
    instructions = re.findall(r"^\s+/\*([0-9a-f]{4,})\*/\s+([^;]*);", text, re.MULTILINE)
    return [(int(address, 16), words.strip()) for address, words in instructions]


def loops(code: list[tuple[int, str]]) -> list[list[tuple[int, str]]]:
    """The instructions of every loop, from where a branch jumps back to up to it; shortest loop first."""
    place = {address: index for index, (address, _) in enumerate(code)}
    spans = []
    for index, (address, words) in enumerate(code):
        jump = re.search(r"\bBRA\b.*?(0x[0-9a-f]+)", words)
        if jump and int(jump[1], 16) < address:
            spans.append((place[int(jump[1], 16)], index + 1))
    return sorted((code[start:stop] for start, stop in spans), key=len)


def passed_over(loop: list[tuple[int, str]]) -> int:
    """How many instructions of a loop lie between a branch forward that has a condition and its target."""
    passed = set()
    for address, words in loop:
        jump = re.search(r"^@\S+\s+BRA\b.*?(0x[0-9a-f]+)", words)
        if jump and address < int(jump[1], 16) <= loop[-1][0]:
            passed |= {between for between, _ in loop if address < between < int(jump[1], 16)}
    return len(passed)


def _words(loop: list[tuple[int, str]]) -> list[str]:
    return [words for _, words in loop]


def _count(lines: list[str], operation: str) -> int:
    return sum(bool(re.match(rf"(@!?U?P\w+\s+)?({operation})\b", line)) for line in lines)


def _number(pattern: str, log: str) -> int:
    match = re.search(pattern, log)
    if match is None:
        raise ValueError(f"ahead: ptxas did not say {pattern!r}, but: {log}")
    return int(match[1])
