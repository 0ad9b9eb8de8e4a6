"""What prepares and proves the fused operations on a GPU, and on a machine without one."""

MOVED = {name: "gkalib.gpu.run" for name in ("jobs", "pack", "plan", "proofs", "queue", "trainings")}
MOVED |= {name: "pytest -m gpu" for name in ("correctness", "invariance", "operations")}


def __getattr__(name: str):
    """Say where what was here is now."""
    if name in MOVED:
        raise ImportError(f"gkalib.gpu.{name} is gone; in its place: {MOVED[name]}")
    raise AttributeError(f"module 'gkalib.gpu' has no attribute {name!r}")
