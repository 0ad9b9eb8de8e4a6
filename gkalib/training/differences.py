"""In which settings a checkpoint differs from the run that wants to go on from it."""

import json
from collections.abc import Mapping
from typing import Any

from gkalib.training.config import NAMES


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """In which settings a checkpoint differs from the run that wants it, in words; the first three."""
    old, new = _flat(there), _flat(here)
    changed = [name for name in dict.fromkeys([*old, *new]) if old.get(name) != new.get(name)]
    if {*NAMES} & {*changed}:
        theirs, ours = (
            ", ".join(f"{name} {settings.get(name)}" for name in NAMES[1:]) for settings in (old, new)
        )
        return f"it belongs to {theirs}, and this run is {ours}"
    if (size := "model.vocab_size") in changed:
        return f"its vocabulary has {old.get(size)} entries, that of this run {new.get(size)}"
    pairs = ((name, json.dumps(old.get(name)), json.dumps(new.get(name))) for name in changed[:3])
    return "; ".join(f"{name} was {was} there and is {now} here" for name, was, now in pairs)


def _flat(settings: Any, prefix: str = "") -> dict[str, Any]:
    """Nested settings by names with dots; a mapping with nothing in it is a value."""
    if not isinstance(settings, Mapping) or not settings:
        return {prefix: settings}
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        flat |= _flat(value, f"{prefix}.{name}" if prefix else name)
    return flat
