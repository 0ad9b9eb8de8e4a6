"""The command line, ``gkalib COMMAND``: a class a command, its fields the arguments and options.

Nothing is imported before the command is known, so that help comes at once.
"""

import difflib
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

import gkalib

if TYPE_CHECKING:
    from gkalib.cli.library import Bench, Data, Positive, Ready, Results, Variants
    from gkalib.cli.models import Evaluate, Generate, Look, Save, Submit, Train, Trained

PROGRAM = "python -m gkalib"

# By name: the module here that has its class, and what it does, as the class says.
COMMANDS = {
    "data": ("library", "List, fetch or check the data sets, or say where they lie."),
    "results": ("library", "List the experiments that have recorded runs, or show one's runs as a table."),
    "variants": ("library", "Print what each variant of attention is and what one layer of it costs."),
    "train": ("models", "Train a recipe of a paper; without a name, list the recipes."),
    "submit": ("models", "Check a run that has ended, and keep its record for a pull request."),
    "save": ("models", "Store a finished run's model in data/models, where it is found by its name."),
    "evaluate": ("models", "Measure a trained model on its held-out data, or score one of text on tasks."),
    "generate": ("models", "Let a trained model of text write."),
    "look": ("models", "Draw what a trained model does inside: rollout, maps, bandwidths or banks, spectra."),
    "bench": ("library", "Time what the library does on this machine."),
    "ready": ("library", "Prove, tune and switch on the fused programs on the card that is here."),
}
REMOVED = {
    "explain": "which methods can compute a problem is said in Python by: gkalib.explain(query, key, value)",
    "experiment": "experiments lie beside the chapters; in a clone type: python -m chapters.experiments NAME",
    "reproduce": "whether the fused programs are right on your card: python -m gkalib ready",
    "tune": "block sizes are chosen, and proved, by: python -m gkalib ready",
}


def __getattr__(name: str) -> type:
    """Import the class of a command when it is first asked for."""
    if name not in __all__:
        raise AttributeError(f"module 'gkalib.cli' has no attribute {name!r}")
    module = "models" if name == "Trained" else COMMANDS.get(name.lower(), ("library",))[0]
    return getattr(import_module(f"{__name__}.{module}"), name)


def usage() -> str:
    """What there is, a line a command."""
    lines = [f"  {name:<12}{about}" for name, (_, about) in COMMANDS.items()]
    return "\n".join(
        [
            f"usage: {PROGRAM} [--help] [--version] COMMAND ...",
            "\nAttention as kernel regression. `COMMAND --help` says what a command takes.\n",
            *lines,
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; an error that a user can mend is one line and status 2."""
    name, *words = list(sys.argv[1:] if arguments is None else arguments) or [""]
    if said := {"-h": usage(), "--help": usage(), "--version": f"gkalib {gkalib.__version__}"}.get(name):
        print(said)
        return 0
    try:
        if name not in COMMANDS:
            known = REMOVED.get(name, f"no command {name!r}. Known: {', '.join(COMMANDS)}")
            raise ValueError(f"gkalib: {known}" if name else usage())
        import tyro

        options = {"args": words, "prog": f"{PROGRAM} {name}", "config": (tyro.conf.FlagCreatePairsOff,)}
        if name == "train":  # what it does not know are settings of the recipe
            train, settings = tyro.cli(__getattr__("Train"), return_unknown_args=True, **options)
            train(words, settings)
        else:
            tyro.cli(__getattr__(name.title()), **options)()
        sys.stdout.flush()
    except ValueError as error:
        print(f"{error}{nearest(str(error))}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # who reads, head for example, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:  # a folder that cannot be written to, a file that is missing, a full disk
        print(f"{name}: {error.filename or 'a file'}: {error.strerror or error}", file=sys.stderr)
        return 2
    return 0


def nearest(message: str) -> str:
    """Of a message that names what is not there and what is, the name that was probably meant."""
    named = re.search(r"'([^']+)'.* Known: (.+)$", message)
    near = difflib.get_close_matches(named[1], re.split(r"[,;] ", named[2]), 1) if named else []
    return f". Did you mean {near[0]!r}?" if near else ""


__all__ = [
    "Bench",
    "Data",
    "Evaluate",
    "Generate",
    "Look",
    "Positive",
    "Ready",
    "Results",
    "Save",
    "Submit",
    "Train",
    "Trained",
    "Variants",
    "main",
]
