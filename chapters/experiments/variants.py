"""Every variant in small models: does it learn at all, how wide does it look, what sinks?"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gkalib import capture_attention
from gkalib.analysis import agreement_metrics, attention_metrics, residual_metrics
from gkalib.experiments import Trained
from gkalib.experiments.study import Study
from gkalib.experiments.tasks import Task
from gkalib.layers import attention, variants

SMALL = {
    "mixed": {"heads": {"gka": 3, "softmax": 1}},
}


def arms_of(
    names: Sequence[str],
    *,
    options: Mapping[str, Mapping[str, Any]] = SMALL,
    learning_rates: Mapping[str, float] | None = None,
    **settings: Any,
) -> list[Study]:
    """One arm a variant.

    Args:
        names: of the variants; an arm has dashes where its variant has underscores.
        options: of variants that need some.
        learning_rates: of arms that have one of their own; the others have the study's.
        settings: of every study.
    """
    arms = {name.replace("_", "-"): name for name in names}
    rates: dict[str, dict[str, Any]] = {arm: {"lr": rate} for arm, rate in (learning_rates or {}).items()}
    return [
        Study(arm=arm, attention=name, options=dict(options.get(name, {})), **settings, **rates.get(arm, {}))
        for arm, name in arms.items()
    ]


def causal() -> list[str]:
    """The variants that fit into a decoder."""
    return [name for name in variants() if getattr(attention(name), "causal", True)]


def seeing_all() -> list[str]:
    """The variants that fit into a classifier of pictures, where each token sees every other."""
    return [name for name in variants() if not getattr(attention(name), "only_causal", False)]


PICTURES = 200  # of the held-out part, the first
REGISTERS = {"softmax": (1, 4), "gka": (1, 4)}


def looking() -> list[Study]:
    """One arm a variant on handwritten digits, the same before training; two with registers; a wider GKA."""
    settings = {"experiment": "looking", "task": "digits", "model": {"depth": 4}}
    trained = arms_of(seeing_all(), **settings, steps=600, batch=32, lr=4e-3)
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


def digits() -> list[Study]:
    """One arm a variant on handwritten digits."""
    return arms_of(seeing_all(), experiment="variants-digits", task="digits", steps=300, batch=32)


def text() -> list[Study]:
    """One arm a causal variant on addresses of a president."""
    return arms_of(causal(), experiment="variants-text", task="state-of-the-union", steps=300, batch=16)


EXPERIMENTS = {
    "looking": Trained(looking, measure),
    "variants-digits": Trained(digits),
    "variants-text": Trained(text),
}
