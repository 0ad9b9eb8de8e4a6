"""A checkpoint's files: sealed with their SHA-256 when written, checked before they are read."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

MODEL, AVERAGE, OPTIMIZER = "model.safetensors", "average.safetensors", "optimizer.safetensors"
TOKENIZER, STATE = "tokenizer.json", "state.json"
FORMAT = 1
PICKLES = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")  # torch.save's, new and old


def seal(holder: Path, state: Mapping[str, Any]) -> None:
    """Write ``state.json`` beside the files of a folder, with what tells whether they are whole.

    Everything is on the disk when it returns.
    """
    files = {
        path.name: {"bytes": path.stat().st_size, "sha256": _digest(path)}
        for path in sorted(holder.iterdir())
    }
    sealed = {"format": FORMAT, **state, "files": files}
    text = json.dumps(sealed | {"seal": _seal(sealed)}, indent=1)
    (holder / STATE).write_text(text + "\n", encoding="utf-8")
    for path in holder.iterdir():
        sync(path)
    sync(holder)


def sync(path: Path) -> None:
    """Wait until a file, or what a folder lists, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def state(path: Path) -> dict[str, Any]:
    """What ``state.json`` of a checkpoint says.

    Raises:
        ValueError: if it is missing, or changed since it was written, or in a format that is not ours.
    """
    try:
        stored = json.loads((path / STATE).read_bytes())
    except FileNotFoundError:
        raise ValueError(f"train: checkpoint {path} has no {STATE}") from None
    except ValueError:  # no JSON, or no text
        raise ValueError(f"train: checkpoint {path} is damaged: {STATE} is not JSON") from None
    if not isinstance(stored, dict) or "format" not in stored:
        raise ValueError(f"train: checkpoint {path} is damaged: {STATE} does not say its format")
    if stored["format"] != FORMAT:
        raise ValueError(
            f"train: checkpoint {path} has format {stored['format']!r}, and this version of gkalib reads "
            f"format {FORMAT}"
        )
    seal = stored.pop("seal", None)
    if seal != _seal(stored):
        raise ValueError(f"train: checkpoint {path} is damaged: {STATE} has changed since it was written")
    return stored


def whole(path: Path, stored: Mapping[str, Any], names: Iterable[str]) -> None:
    """Refuse a checkpoint in which one of these files is not as it was written.

    Raises:
        ValueError: if it is missing, cut short, changed, or a pickle, which is not opened.
    """
    for name in names:
        if name not in stored["files"]:
            raise ValueError(f"train: checkpoint {path} was written without {name}")
        file, written = path / name, stored["files"][name]
        if not file.is_file():
            raise ValueError(f"train: checkpoint {path} is damaged: {name} is missing")
        with file.open("rb") as opened:
            start = opened.read(4)
        if start.startswith(PICKLES):
            raise ValueError(
                f"train: checkpoint {path} is refused: {name} is a pickle, which may run any program when it "
                "is read. It was not opened"
            )
        size = file.stat().st_size
        if size < written["bytes"]:
            raise ValueError(
                f"train: checkpoint {path} is damaged: {name} is cut short, {size:,} bytes of "
                f"{written['bytes']:,}"
            )
        if size > written["bytes"] or _digest(file) != written["sha256"]:
            raise ValueError(f"train: checkpoint {path} is damaged: {name} has changed since it was written")


def tensors(path: Path, name: str) -> dict[str, Tensor]:
    """What a file of tensors holds.

    Raises:
        ValueError: if it is none.
    """
    try:
        return load_file(path / name)
    except SafetensorError as error:
        raise ValueError(f"train: checkpoint {path} is damaged: {name} holds no tensors ({error})") from None


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """In which settings a checkpoint differs from the run that wants it, in words."""
    old, new = _flat(there), _flat(here)
    names = ("recipe", "arm", "scale", "seed")
    if any(old.get(name) != new.get(name) for name in names):
        said = [", ".join(f"{name} {one.get(name)}" for name in names) for one in (old, new)]
        return [f"it belongs to {said[0]}, and this run is {said[1]}"]
    vocabulary = "model.vocab_size"
    if old.get(vocabulary) != new.get(vocabulary):
        return [f"its vocabulary has {old.get(vocabulary)} entries, that of this run {new.get(vocabulary)}"]
    return [
        f"{name} was {json.dumps(old.get(name))} there and is {json.dumps(new.get(name))} here"
        for name in dict.fromkeys([*old, *new])
        if old.get(name) != new.get(name)
    ]


def _flat(settings: Any, prefix: str = "") -> dict[str, Any]:
    """Nested settings by names with dots; a mapping with nothing in it is a value."""
    if not isinstance(settings, Mapping) or not settings:
        return {prefix: settings}
    made: dict[str, Any] = {}
    for name, value in settings.items():
        made |= _flat(value, f"{prefix}.{name}" if prefix else name)
    return made


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _seal(stored: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(stored, sort_keys=True).encode()).hexdigest()
