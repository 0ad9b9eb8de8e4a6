"""The experiments that chapters quote: ``python -m chapters.experiments NAME`` runs one and records it."""

from importlib import import_module

from gkalib.experiments import Measured, Trained

# By name, the file that defines it.
FILES = {
    "approximations": "approximations",
    "counts": "counts",
    "estimators": "estimators",
    "feature-arms": "feature_arms",
    "feature-times": "feature_times",
    "gka-pictures": "gka",
    "gka-sigma": "gka",
    "gka-stories": "gka",
    "gpa-bump": "gpa_bump",
    "gpa-bump-highest": "gpa_bump",
    "gpa-characters": "gpa_characters",
    "gpa-novels": "gpa_novels",
    "gpa-novels-1000": "gpa_novels",
    "gpa-novels-3000": "gpa_novels",
    "in-context": "recall",
    "kan-cifar": "kan",
    "kan-cifar100": "kan",
    "kan-mlp": "kan",
    "karat-perceptrons": "kan",
    "karat-arms": "karat",
    "karat-pictures": "karat",
    "karat-rank": "karat_rank",
    "krause-arms": "krause_arms",
    "landscapes": "landscapes",
    "line-times": "line_times",
    "looking": "variants",
    "memories": "memories",
    "one-budget-costs": "one_budget",
    "one-budget-images": "one_budget",
    "one-budget-images-faster": "one_budget",
    "one-budget-text": "one_budget",
    "rate-sensitivity": "rate_sensitivity",
    "rbf-arms": "rbf",
    "rbf-stories": "rbf",
    "recall": "recall",
    "structure": "structure",
    "sweep-lengths": "sweep_lengths",
    "traps": "traps",
    "variants-digits": "variants",
    "variants-text": "variants",
}


def experiment(name: str) -> Trained | Measured:
    """The experiment of a name.

    Raises:
        ValueError: if there is none; the message lists those that there are.
    """
    if name not in FILES:
        raise ValueError(f"experiment: no experiment {name!r}. Known: {', '.join(FILES)}")
    return import_module(f"{__name__}.{FILES[name]}").EXPERIMENTS[name]


def trained(name: str) -> Trained:
    """The experiment of a name whose arms are trained: its studies and what is measured of each.

    Raises:
        ValueError: if there is none, or its arms are measured.
    """
    found = experiment(name)
    if not isinstance(found, Trained):
        raise ValueError(f"experiment: {name} is measured, not trained")
    return found
