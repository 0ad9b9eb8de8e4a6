"""The command line, ``python -m gkalib COMMAND``: a class a command, its fields the arguments and options."""

import os
import sys
from collections.abc import Sequence

import tyro

from gkalib.cli.inventory import Data, Explain, Results, Variants
from gkalib.cli.measuring import Bench, Experiment, Reproduce, Tune
from gkalib.cli.models import Evaluate, Generate, Look, Save, Train, Trained
from gkalib.cli.options import PROGRAM, Positive

EVERY = (
    *(Data, Results, Explain, Variants, Train, Save, Evaluate, Generate, Look),
    *(Experiment, Bench, Tune, Reproduce),
)
COMMANDS: dict[str, type] = {command.__name__.lower(): command for command in EVERY}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; an error that a user can mend is one line and status 2."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    config = (tyro.conf.FlagCreatePairsOff,)
    try:
        if words[:1] == ["train"]:  # what it does not know are settings of the recipe
            train, rest = tyro.cli(
                Train, args=words[1:], prog=f"{PROGRAM} train", config=config, return_unknown_args=True
            )
            train(rest)
        else:
            about = "Attention as kernel regression."
            tyro.extras.subcommand_cli_from_dict(
                COMMANDS, args=words, prog=PROGRAM, description=about, config=config
            )()
        sys.stdout.flush()
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    except BrokenPipeError:  # who reads, head for example, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


__all__ = [
    "Bench",
    "Data",
    "Evaluate",
    "Experiment",
    "Explain",
    "Generate",
    "Look",
    "Positive",
    "Reproduce",
    "Results",
    "Save",
    "Train",
    "Trained",
    "Tune",
    "Variants",
    "main",
]
