"""``python -m chapters.experiments NAME ARM …`` runs an experiment that chapters quote, and records it."""

import argparse
import sys
from collections.abc import Sequence

from chapters.experiments import FILES, experiment
from gkalib.cli import nearest
from gkalib.experiments import run


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one experiment; an error that a user can mend is one line and status 2."""
    parser = argparse.ArgumentParser(prog="python -m chapters.experiments", description=__doc__)
    parser.add_argument("name", nargs="?", help="of an experiment; without one, all are listed")
    parser.add_argument("arm", nargs="*", help="an arm of it; all of them where none is named")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (%(default)s)")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds (%(default)s)")
    parser.add_argument("--smoke", action="store_true", help="what is trained takes a few steps")
    parser.add_argument("--missing", action="store_true", help="only what has no record of its recipe")
    parser.add_argument(
        "--rates", type=float, nargs="*", help="choose each arm's learning rate instead, from these or five"
    )
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch, in training (%(default)s)")
    chosen = vars(parser.parse_args(arguments))
    if chosen["name"] is None:
        print(*FILES, sep="\n")
        return 0
    try:
        run(experiment(chosen.pop("name")), chosen.pop("arm"), **chosen)
    except ValueError as error:
        print(f"{error}{nearest(str(error))}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
