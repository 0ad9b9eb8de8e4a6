"""What prepares and proves the fused operations on a GPU, and on a machine without one."""

from gkalib.extras import moved

__getattr__ = moved(
    __name__,
    {
        **{
            name: f"chapters.lab.{name}" for name in ("exact", "page", "pictures", "puzzles", "rows", "watch")
        },
        **{name: "gkalib.gpu.run" for name in ("jobs", "pack", "plan", "queue", "trainings")},
        **{name: "gkalib.gpu.ready" for name in ("candidates", "proofs", "tune")},
        "limits": "gkalib.bench.roofline",
        "samples": "gkalib.gpu.cases",
        **{name: "pytest -m gpu" for name in ("correctness", "invariance", "operations")},
    },
)
