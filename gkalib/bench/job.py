"""What a piece of GPU work is: its call, its estimate, and the code that its results depend on."""

import hashlib
import importlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from gkalib import results

PACKAGE = Path(__file__).resolve().parents[1]
FUSED = (
    "smoothing/fused",
    "smoothing/fused/configs.json",
    "smoothing/problem.py",
    "smoothing/spans.py",
    "kernels",
    "normalizers",
    "masks.py",
)
"""What the results of fused operations depend on."""
WHOLE = (".", "smoothing/fused/configs.json")
"""What any result depends on."""


@final
@dataclass(frozen=True, kw_only=True)
class Job:
    """One piece of work with a process and a time limit of its own.

    It is done on a device when the store holds the run ``reproduce/<name>`` of that device with the hash of
    the code it depends on; its results are whatever the function it calls saves through ``results.save``.

    Args:
        name: lower case with hyphens; the arm of the run that notes it.
        priority: the smallest goes first.
        seconds: how long it will take; replaced by what it took where it ran on this device before.
        call: ``"module:function"``; it is called with ``device`` (``"cuda"`` or ``"cpu"``) and the arguments.
        arguments: JSON.
        depends: files and folders below ``gkalib`` whose code decides the result; of a folder the Python.
        devices: on which kinds of device it can run.
        alone: whether its times count, so that nothing else may run meanwhile.
        warm: what is called before with the same arguments, beside other such calls, where a card is: it
            compiles what the job will start and saves nothing.
    """

    name: str
    priority: int
    seconds: float
    call: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    depends: tuple[str, ...] = (".",)
    devices: tuple[str, ...] = ("cuda",)
    alone: bool = True
    warm: str = ""

    def code(self) -> str:
        """The hash of the code it depends on, of its call and its arguments."""
        stated = results.digest({"call": self.call, **self.arguments})
        return hashlib.sha256(f"{stated} {code_hash(*self.depends)}".encode()).hexdigest()[:12]


def code_hash(*parts: str) -> str:
    """The first 12 digits of the SHA-256 over files below ``gkalib`` and the Python in folders, or WHOLE."""
    names = {path for part in parts or WHOLE for path in _sources(PACKAGE / part)}
    whole = hashlib.sha256()
    for path in sorted(names):
        whole.update(f"{path.relative_to(PACKAGE).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return whole.hexdigest()[:12]


def _sources(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from path.rglob("*.py")
    elif path.exists():
        yield path
    else:
        raise ValueError(f"reproduce: a job depends on {path.relative_to(PACKAGE)}, which is not in gkalib")


def perform() -> None:
    """What the process of a job does: import what its command line names, wait for the word, and call it."""
    stated = json.loads(sys.argv[1])
    module, function = stated["call"].split(":")
    call = getattr(importlib.import_module(module), function)
    if not sys.stdin.readline():  # whoever would have said it is gone
        return
    call(**stated["arguments"])
