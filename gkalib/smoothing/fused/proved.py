"""Which fused operations were right on which cards: ``auto`` takes no other.

proved.json beside this file holds a line for each operation, direction, card and type that a run of
``python -m gkalib.gpu.run`` found right. A line counts as long as the programs, their block
sizes, PyTorch and Triton are those of the run.
"""

import functools
import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import torch

from gkalib.smoothing.fused import configs

PROVED = Path(__file__).with_name("proved.json")
DIRECTIONS = "forward", "backward"


@dataclass(frozen=True, order=True)
class Proof:
    """That an operation was right on a card, in every case that was compared with float64.

    Args:
        operation: as ``operation_of`` names it.
        direction: ``"forward"``, or ``"backward"`` for its gradients.
        device: the card's name.
        dtype: of query, key and value.
        programs, blocks: hashes of the code and of the block sizes that ran.
        torch, triton: versions.
    """

    operation: str
    direction: str
    device: str
    dtype: str
    programs: str
    blocks: str
    torch: str
    triton: str


@torch.compiler.assume_constant_result
def why_unproved(operation: str, backward: bool, dtype: torch.dtype, device: torch.device) -> str | None:
    """Why no proof covers an operation on a device, or None if one does; its gradients too, if asked."""
    return _why(operation, backward, dtype, device)


@functools.cache
def _why(operation: str, backward: bool, dtype: torch.dtype, device: torch.device) -> str | None:
    card, kind, known = torch.cuda.get_device_name(device), str(dtype).removeprefix("torch."), read()
    for direction in DIRECTIONS[: 1 + backward]:
        if Proof(operation, direction, card, kind, **surroundings()) not in known:
            return f"no run has shown that the {direction} pass of {operation} in {kind} is right on {card}"
    return None


@functools.cache
def read() -> frozenset[Proof]:
    """What proved.json holds, or in its place the file that GKALIB_PROVED names: what is not yet shipped."""
    lines = json.loads(Path(os.environ.get("GKALIB_PROVED") or PROVED).read_text())
    return frozenset(Proof(**line) for line in lines)


def text(proofs: Iterable[Proof]) -> str:
    """Proofs as JSON, one a line."""
    lines = ",\n".join(f" {json.dumps(asdict(proof))}" for proof in sorted(proofs))
    return f"[\n{lines}\n]\n" if lines else "[]\n"


@functools.cache
def surroundings() -> dict[str, str]:
    """The fields of a proof that say what ran: here and now."""
    versions = {name: metadata.version(name) for name in ("torch", "triton")}
    return {"programs": programs(), "blocks": configs.blocks(), **versions}


def programs() -> str:
    """The first 12 digits of the SHA-256 over the Python of this folder."""
    hasher = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        hasher.update(f"{path.name}\0".encode() + path.read_bytes() + b"\0")
    return hasher.hexdigest()[:12]


def forget() -> None:
    """Read the files again when they are next asked for."""
    for cached in (_why, read, surroundings):
        cached.cache_clear()
