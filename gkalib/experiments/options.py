"""Every variant in the small models of the studies: the options with which it fits, and an arm for each."""

from collections.abc import Mapping, Sequence
from typing import Any

from gkalib.experiments.study import Study

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
