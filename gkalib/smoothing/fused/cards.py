"""What is known of the fused operations on a card: a file a card, a line an operation; ``auto`` goes by it.

`gkalib ready` writes the file in the user's cache; cards/ beside this module holds files of the same format
that are shipped, and the user's lines come before theirs. A line counts as long as the operation's code and
Triton's minor version are those that it was found with.
"""

import ast
import functools
import hashlib
import json
import os
import re
import warnings
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from importlib import metadata, util
from pathlib import Path

import torch
from filelock import FileLock

from gkalib.shapes import constant

FOLDER = Path(__file__).parent
DIRECTIONS = "forward", "backward"
SHARED = {80: 163 * 1024, 86: 99 * 1024, 89: 99 * 1024, 90: 227 * 1024, 100: 227 * 1024, 120: 99 * 1024}
"""The bytes of shared memory that one program can have, by the card's compute capability."""
SHORT = 256
"""Up to so many rows a problem is short: a few blocks hold a whole head of it."""
MODULES = {
    "gka": ("symmetric",),
    "smooth": ("forward", "backward"),
    "decode": ("decode",),
    "rows": ("row_operator",),
    "lags": ("lag_bias",),
}
"""The modules that start the programs of an operation, by the words of its name."""

Key = tuple[str, str, str, int, str]
"""Operation, direction, type, width and class of length."""
Asked = tuple[str, bool, torch.dtype, int, str, torch.device]
"""Operation, gradients or not, type, width and class of length, and where the tensors lie."""


def _triton() -> str:
    """The minor version of the Triton that is installed."""
    return ".".join(metadata.version("triton").split(".")[:2]) if util.find_spec("triton") else ""


@dataclass(frozen=True)
class Card:
    """A graphics card and the Triton that compiles for it.

    Args:
        name: as PyTorch gives it.
        capability: for instance (8, 9), which compilers write as sm_89.
        shared: bytes of shared memory that one program can have.
        processors: how many it has.
        triton: the minor version.
        rocm: whether PyTorch was built for AMD's cards.
        rehearsed: whether it is not here.
    """

    name: str
    capability: tuple[int, int]
    shared: int
    processors: int = 0
    triton: str = field(default_factory=_triton)
    rocm: bool = False
    rehearsed: bool = False

    def too_old(self) -> str | None:
        """Why no program of Triton's runs on it, or None."""
        if self.rocm or self.capability >= (8, 0):
            return None
        major, minor = self.capability
        return (
            f"Triton needs a card of compute capability 8.0 or later, and {self.name} has {major}.{minor}: "
            "there take float16, for which PyTorch has its own attention"
        )

    def why_not(self) -> str | None:
        """Why no fused operation runs on it, or None."""
        if self.rocm:
            return f"{self.name} runs under ROCm, on which nobody has tried the fused operations"
        return self.too_old()

    def path(self) -> Path:
        """Its file in the user's cache."""
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gkalib" / "cards"
        name, (major, minor) = re.sub(r"\W+", "-", self.name).strip("-"), self.capability
        return cache / f"{name}-sm{major}{minor}-triton{self.triton}.json"


def card_of(chip: str) -> Card:
    """A card that is not here, by what compilers call its chip: ``sm_89``.

    Raises:
        ValueError: if its shared memory is not known.
    """
    number = chip.removeprefix("sm_").removesuffix("a")
    if not number.isdigit() or int(number) not in SHARED:
        known = ", ".join(f"sm_{each}" for each in SHARED)
        raise ValueError(f"ready: no chip {chip!r} can be rehearsed. Known: {known}")
    return Card(f"rehearsed {chip}", divmod(int(number), 10), SHARED[int(number)], rehearsed=True)


@dataclass(frozen=True)
class Line:
    """What one operation did on a card, in one direction, type and width of head, at short lengths or long.

    Args:
        operation, direction, dtype, width, length: what was tried; the width is the next power of two.
        code: the hash of the operation's code.
        verdict: ``right``, ``wrong``, or ``refused`` where it cannot run there.
        why: it is one of the latter.
        error: the worst row's, as ``ready`` measures it.
        blocks: rows, columns, warps and stages of each program.
        ms, rival, rival_ms: its time, and the fastest of PyTorch's own methods with its time.
        rehearsed: whether no card was there: then nothing is known of one.
    """

    operation: str
    direction: str
    dtype: str
    width: int
    length: str
    code: str
    verdict: str
    why: str = ""
    error: float | None = None
    blocks: dict[str, list[int]] = field(default_factory=dict)
    ms: float | None = None
    rival: str = ""
    rival_ms: float | None = None
    rehearsed: bool = False

    @property
    def key(self) -> Key:
        return self.operation, self.direction, self.dtype, self.width, self.length

    def __str__(self) -> str:
        return f"{self.operation} {self.direction}, {self.length}, {self.width} wide, {self.dtype}"


def operation(name: str, *, gaussian: bool = False, lags: bool = False, normalize: bool = True) -> str:
    """The name of what is compiled and tried together: ``gka``, ``smooth-gaussian``, ``decode-lags`` …"""
    return f"{name}{'-gaussian' * gaussian}{'-lags' * lags}{'' if normalize else '-unnormalized'}"


def length_class(length: int) -> str:
    """``short`` or ``long``."""
    return "short" if length <= SHORT else "long"


@functools.cache
def here(device: torch.device) -> Card | None:
    """The card that a device is; None for a CPU."""
    if device.type != "cuda":
        return None
    found = torch.cuda.get_device_properties(device)
    shared = getattr(found, "shared_memory_per_block_optin", 0) or found.shared_memory_per_block
    capability, rocm = (found.major, found.minor), torch.version.hip is not None
    return Card(found.name, capability, shared, found.multi_processor_count, rocm=rocm)


@functools.cache
def code(operation: str) -> str:
    """The first 12 digits of the SHA-256 over the modules that an operation imports, as Python parses them.

    Comments, docstrings and layout are not part of it, nor is this module.
    """
    names = {name for word in operation.split("-") for name in MODULES.get(word, ())}
    hasher, seen = hashlib.sha256(), {"cards"}
    while left := names - seen:
        seen.add(name := min(left))
        tree = ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(__package__):
                inside = (node.module or "").removeprefix(__package__).strip(".")
                names |= {inside} if inside else {each.name for each in node.names}
            if isinstance(body := getattr(node, "body", None), list):
                body[:] = [each for each in body if not _is_text(each)]
        hasher.update(f"{name}\0{ast.dump(tree)}\0".encode())
    return hasher.hexdigest()[:12]


def _is_text(node: ast.AST) -> bool:
    """Whether a statement is a docstring."""
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def read(path: Path) -> dict[Key, Line]:
    """The lines of a file; none where there is no file.

    Raises:
        ValueError: if it is damaged.
    """
    if not path.exists():
        return {}
    try:
        lines = [Line(**each) for each in json.loads(path.read_text(encoding="utf-8"))["lines"]]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"cards: {path} is damaged ({error}): delete it, gkalib ready --forget") from error
    return {line.key: line for line in lines}


def files() -> list[Path]:
    """Those that are shipped, and those in the user's cache."""
    folders = FOLDER / "cards", Card("", (0, 0), 0).path().parent
    return [path for folder in folders for path in sorted(folder.glob("*.json"))]


def write(card: Card, lines: Iterable[Line]) -> None:
    """Put lines into a card's file, in the place of older ones of the same key; others stay.

    One process writes at a time, and a file is replaced as a whole: no moment to be killed in loses a line.
    """
    path = card.path()
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):
        every = read(path) | {line.key: line for line in lines}
        head = json.dumps(asdict(card) | {"torch": torch.__version__.split("+")[0]})
        text = ",\n".join(f"  {json.dumps(asdict(every[key]))}" for key in sorted(every))
        beside = path.with_suffix(".new")
        beside.write_text(f'{head[:-1]},\n "lines": [\n{text}\n]}}\n', encoding="utf-8")
        beside.replace(path)
    forget()


@functools.cache
def known(card: Card) -> dict[Key, Line]:
    """The lines that count on a card: the user's before shipped ones, none of them old or rehearsed."""
    every = read(FOLDER / "cards" / card.path().name) | read(card.path())
    return {
        key: line for key, line in every.items() if line.code == code(line.operation) and not line.rehearsed
    }


def lines(asked: Asked) -> list[Line | None]:
    """The line of each direction that is asked for, None where there is none; nothing at all on a CPU."""
    operation, backward, dtype, width, length, device = asked
    card, kind = here(device), str(dtype).removeprefix("torch.")
    keys = [(operation, direction, kind, width, length) for direction in DIRECTIONS[: 1 + backward]]
    return [] if card is None else [known(card).get(key) for key in keys]


@functools.cache
def blocks(
    operation: str, dtype: torch.dtype, width: int, length: str, device: torch.device
) -> dict[str, list[int]]:
    """Rows, columns, warps and stages of programs, where a card's file has them."""
    found = [line for line in lines((operation, True, dtype, width, length, device)) if line is not None]
    return {name: sizes for line in found for name, sizes in line.blocks.items()}


@constant
def too_old(device: torch.device) -> str | None:
    """Why no program of Triton's runs on a card, or None."""
    card = here(device)
    return card.too_old() if card else None


@constant
def refusal(asked: Asked) -> str | None:
    """Why an operation cannot run on a card, or None."""
    return _refusal(asked)


@constant
def passed_over(asked: Asked) -> str | None:
    """Why ``auto`` takes another method than the fused operation, or None if it takes it.

    Right and, with gradients both passes together, no slower than its rival: so it has to be. For a line that
    is missing there is a warning too, once, with the command that makes it. On a CPU nothing has to be known.
    """
    return _passed_over(asked)


@functools.cache
def _refusal(asked: Asked) -> str | None:
    card = here(asked[-1])
    if card is None or card.why_not():
        return card and card.why_not()
    for line in lines(asked):
        if line is not None and line.verdict == "refused":
            return f"{line} cannot run on {card.name}: {line.why}"
    return None


@functools.cache
def _passed_over(asked: Asked) -> str | None:
    operation, _, dtype, width, _, device = asked
    card, found = here(device), lines(asked)
    if card is None:
        return None
    tried = [line for line in found if line is not None]
    if len(tried) < len(found):
        kind = str(dtype).removeprefix("torch.")
        options = "" if width in (64, 128) else f" --width {width}"
        options += "" if kind == "bfloat16" else f" --dtype {kind}"
        reason = (
            f"fused {operation}, {width} wide, in {kind} is not proved on {card.name}; "
            f"`gkalib ready {operation}{options}` does that in a few minutes"
        )
        warnings.warn(f"smooth: {reason}", stacklevel=2)
        return reason
    for line in tried:
        if line.verdict != "right":
            return f"{line} is {line.verdict} on {card.name}: {line.why}"
    ours, theirs = sum(line.ms or 0.0 for line in tried), sum(line.rival_ms or 0.0 for line in tried)
    if ours > theirs:
        return f"{tried[-1].rival} is faster on {card.name}: {theirs:.3g} ms against {ours:.3g}"
    return None


def forget() -> None:
    """Look again when next asked."""
    for cached in (here, code, known, blocks, _refusal, _passed_over):
        cached.cache_clear()
