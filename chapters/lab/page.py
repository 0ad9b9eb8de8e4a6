"""Compile a GPU kernel that is written on a page for an H100, from its own source, and run it where a GPU is.

A page runs its kernels in Triton's interpreter, on a CPU and in float64. The same process cannot compile
them, because ``TRITON_INTERPRET`` is read when ``triton.jit`` decorates a function. So a child process
without that setting gets the kernel's source and its arguments:

    print(compiled(row_kernel, q, k, v, out, scale, 1024, tile=(128, 128), warps=8, stages=2, B=128, D=64))
"""

import contextlib
import dis
import hashlib
import importlib.util
import inspect
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.runtime.cache import get_cache_manager

from gkalib.gpu import ahead
from gkalib.smoothing.fused.configs import Config
from gkalib.smoothing.fused.launch import Launch

ROOT = Path(__file__).resolve().parents[2]
_HEAD = "import triton\nimport triton.language as tl\n"


@dataclass(frozen=True)
class Compiled:
    """What came of a kernel.

    Args:
        report: what the machine code for an H100 says.
        device: the card that it ran on, None without a card.
        outputs: the tensors among its arguments after that run, by name; empty without a card.
        error: the largest difference to what was expected over its largest entry, None if nothing was
            expected or no card is here.
    """

    report: ahead.Report
    device: str | None = None
    outputs: Mapping[str, Tensor] | None = None
    error: float | None = None

    def __str__(self) -> str:
        one = self.report
        products = "wgmma" if one.hgmma else "mma" if one.hmma else "no tensor-core product"
        score = "no loop" if one.per_score is None else f"{one.per_score:.2f} instructions per score"
        spilled = f"{one.spills} bytes spilled" if one.spills else "no spills"
        words = f"{one.program}, {one.rows}×{one.columns}, {one.warps} warps, {one.stages} stages: "
        words += f"{score}, {one.registers} registers, {spilled}, {products}"
        if self.device is None:
            return words
        return (
            words
            + f"; ran on {self.device}"
            + ("" if self.error is None else f", relative error {self.error:.1e}")
        )


def compiled(
    kernel: Any,
    *arguments: Tensor | int | float | None,
    tile: tuple[int, int] = (128, 128),
    warps: int = 4,
    stages: int = 2,
    grid: int = 1,
    expected: Mapping[str, Tensor] | None = None,
    **constants: Any,
) -> Compiled:
    """Compile a kernel for sm_90a in a child process; where that finds a GPU, run the kernel there.

    Args:
        kernel: a function under ``triton.jit``, interpreted or not. Of the names that it uses, other such
            functions, modules and ``tl.constexpr`` values go along.
        arguments: as in a launch. Their types decide what is compiled; nothing is converted.
        tile: rows and columns of the scores that one iteration of the hot loop computes.
        warps, stages: of a thread block and of its pipelined loop, ``num_warps`` and ``num_stages``.
        grid: the number of program instances, where it is run.
        expected: what some arguments should hold after that run, by name.
        constants: the kernel's ``tl.constexpr`` arguments.

    Raises:
        ValueError: if it uses a name that cannot go along; if it does not compile, in the compiler's words.
    """
    source, config = source_of(kernel), Config(*tile, warps, stages)
    kept = _kept(source, arguments, config, constants)
    if (file := kept.get_file("report.pickle")) and not torch.cuda.is_available():
        return Compiled(pickle.loads(Path(file).read_bytes()))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{kernel.fn.__name__}.py"
        path.write_text(source)
        answer = _ask((str(path), arguments, config, grid, constants))
    if isinstance(answer, str):
        raise ValueError(f"compiled: {kernel.fn.__name__} does not compile: {answer}")
    kept.put(pickle.dumps(answer.report), "report.pickle")
    if expected and answer.outputs:
        errors = [relative(answer.outputs[name], one) for name, one in expected.items()]
        return replace(answer, error=max(errors))
    return answer


def _kept(source: str, arguments: tuple, config: Config, constants: Mapping[str, Any]) -> Any:
    """The place in Triton's cache of what the machine code of a source says, for arguments of these types."""
    types = [(str(one.dtype), one.data_ptr() % 16) if isinstance(one, Tensor) else one for one in arguments]
    reader = inspect.getsource(ahead)  # what it says is kept no longer than it is
    words = repr((source, types, config, sorted(constants.items()), triton.__version__, reader))
    return get_cache_manager(hashlib.sha256(words.encode()).hexdigest())


def relative(actual: Tensor, expected: Tensor) -> float:
    """The largest difference over the largest expected entry, in float64."""
    actual, expected = actual.double().cpu(), expected.double().cpu()
    return float((actual - expected).abs().max() / expected.abs().max())


def source_of(kernel: Any) -> str:
    """A module that holds a kernel and what it uses.

    Raises:
        ValueError: if it uses a value that is neither a function under ``triton.jit``, a module nor a
            ``tl.constexpr``.
    """
    parts: dict[str, str] = {}
    _collect(kernel.fn, parts)
    return _HEAD + "\n\n".join(parts.values()) + "\n"


def _collect(function: Any, parts: dict[str, str]) -> None:
    """Add what a function uses, then the function."""
    named = (one.argval for one in dis.get_instructions(function) if one.opname == "LOAD_GLOBAL")
    for name in dict.fromkeys(named):
        value = function.__globals__.get(name)
        if value is None or name in parts or name in ("triton", "tl"):
            continue
        if isinstance(value, ModuleType):
            parts[name] = f"import {value.__name__} as {name}"
        elif isinstance(value, tl.constexpr):
            parts[name] = f"{name} = tl.constexpr({value.value!r})"
        elif not hasattr(value, "fn"):
            raise ValueError(f"compiled: {function.__name__} uses {name}, which is no tl.constexpr")
        elif value.fn.__module__ == function.__module__:
            _collect(value.fn, parts)
        else:
            whole = hashlib.sha256(inspect.getsource(sys.modules[value.fn.__module__]).encode()).hexdigest()
            parts[name] = f"from {value.fn.__module__} import {value.fn.__name__} as {name}  # {whole}"
    parts[function.__name__] = inspect.getsource(function)


def _ask(order: tuple) -> Compiled | str:
    """The child's answer to an order: what came of it, or what went wrong."""
    child = _child()
    assert child.stdin is not None and child.stdout is not None
    pickle.dump(order, child.stdin)
    child.stdin.flush()
    try:
        return pickle.load(child.stdout)
    except EOFError:
        _child.cache_clear()
        return f"the compiler ended with exit status {child.wait()}"


@cache
def _child() -> subprocess.Popen:
    """A process that compiles, started once; it ends when this one does."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "chapters.lab.page"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=ROOT)


def _carry_out(path: str, arguments: tuple, config: Config, grid: int, constants: dict) -> Compiled:
    """Compile, and run where a GPU is."""
    name = Path(path).stem
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kernel = getattr(module, name)
    named = dict(zip(kernel.arg_names, arguments, strict=False)) | constants
    report = ahead.build(Launch(kernel, grid, config, named))
    if not torch.cuda.is_available():
        return Compiled(report)
    triton.set_allocator(_allocate)
    on_card = {key: one.cuda() if isinstance(one, Tensor) else one for key, one in named.items()}
    kernel[(grid,)](**on_card, num_warps=config.warps, num_stages=config.stages)
    outputs = {key: one.cpu() for key, one in on_card.items() if isinstance(one, Tensor)}
    return Compiled(report, torch.cuda.get_device_name(), outputs)


def _allocate(size: int, alignment: int, stream: int | None) -> Any:
    """Memory for the tensor descriptors that a kernel makes."""
    return torch.empty(size, dtype=torch.int8, device="cuda")


def main() -> None:
    """Answer orders from the standard input until it ends."""
    answers = sys.stdout.buffer
    while True:
        try:
            order = pickle.load(sys.stdin.buffer)
        except (EOFError, KeyboardInterrupt):  # the parent has ended, or is ending
            return
        try:
            with contextlib.redirect_stdout(sys.stderr):
                answer: Compiled | str = _carry_out(*order)
        except Exception as error:  # whatever the compiler raises is the answer
            cause = error.__cause__ or error
            answer = " ".join(str(cause).split()) or repr(error)
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    # Under its own name, so that the parent can read what this process answers.
    from chapters.lab import page

    page.main()
