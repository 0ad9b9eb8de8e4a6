"""Every variant on handwritten digits, looked at on one scale: how wide, how much itself, what sinks?"""

from dataclasses import replace
from typing import Any

from gkalib import capture_attention
from gkalib.analysis import agreement_metrics, attention_metrics, residual_metrics
from gkalib.experiments.options import arms_of
from gkalib.experiments.study import Study
from gkalib.experiments.tasks import Task
from gkalib.layers import variants

PICTURES = 200  # of the held-out part, the first
REGISTERS = {"softmax": (1, 4), "gka": (1, 4)}


def studies() -> list[Study]:
    """One arm a variant, the same before training; two with registers; and GKA from a wider start."""
    settings = {"experiment": "looking", "task": "digits", "model": {"depth": 4}}
    trained = arms_of(variants(), **settings, steps=600, batch=32, lr=4e-3)
    # A step at a rate of zero: a model as it starts.
    untrained = [replace(study, arm=f"{study.arm}-untrained", steps=1, lr=0.0) for study in trained]
    with_registers = [
        replace(study, arm=f"{study.arm}-registers{count}", model={**study.model, "registers": count})
        for study in trained
        for count in REGISTERS.get(study.arm, ())
    ]
    wide = [replace(study, arm="gka-wide", options={"sigma": 3.0}) for study in trained if study.arm == "gka"]
    return [*trained, *untrained, *with_registers, *wide]


def measure(model: Any, learned: Task) -> dict[str, float]:
    """What a record keeps of the trained model's attention."""
    images, labels = (part[:PICTURES] for part in learned.held_out)
    captured = capture_attention(model, images)
    agreements = agreement_metrics(model, images, labels, captured)
    return attention_metrics(model, captured) | agreements | residual_metrics(model, images)
