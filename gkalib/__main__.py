"""The command line: ``python -m gkalib COMMAND``."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from gkalib import commands

KERNELS = [
    "gaussian",
    "exp-dot",
    "laplace",
    "matern",
    "rational-quadratic",
    "epanechnikov",
    "boxcar",
    "tricube",
]
NORMALIZERS = ["row-sum", "unnormalized", "top-k", "simplex"]
SCALES = ["smoke", "reduced", "full"]
DTYPES = ["float64", "float32", "bfloat16", "float16"]
DEVICES = ["cpu", "cuda"]


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number


def parser() -> argparse.ArgumentParser:
    """The commands and their options; a test holds them as they are."""
    top = argparse.ArgumentParser(prog="python -m gkalib", description="Attention as kernel regression.")
    under = top.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(name: str, call, help: str) -> argparse.ArgumentParser:
        added = under.add_parser(name, help=help, description=call.__doc__)
        added.set_defaults(call=call)
        return added

    one = command("data", commands.data, "list, fetch or check the data sets")
    actions = one.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    for action, what in (
        ("list", "what there is, and what of it is on this machine"),
        ("get", "fetch what is missing, and check it"),
        ("check", "compare what is here with the registered checksums; fetches nothing"),
    ):
        added = actions.add_parser(action, help=what, description=what.capitalize() + ".")
        added.add_argument("name", nargs="*", help="a data set; all of them where none is named")

    one = command("results", commands.results, "list the recorded runs, or show those of one experiment")
    actions = one.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    actions.add_parser("list", help="what has runs", description="The experiments that have runs.")
    added = actions.add_parser("table", help="the runs of one", description="The runs of one experiment.")
    added.add_argument("experiment", help="its name, as `results list` prints it")
    added.add_argument("metric", nargs="*", help="a column to show; all of them where none is named")
    added.add_argument("--scale", choices=SCALES, help="only runs of this scale")

    one = command("explain", commands.explain, "which methods can compute a problem, which cannot, and why")
    option = one.add_argument
    option("--kernel", choices=KERNELS, default="gaussian", help="similarity function (%(default)s)")
    option("--sigma", type=float, default=1.0, help="its bandwidth (%(default)s)")
    option("--normalizer", choices=NORMALIZERS, default="row-sum", help="scores to weights (%(default)s)")
    option("--top", type=_positive, default=8, metavar="K", help="keys that top-k keeps (%(default)s)")
    option("--causal", action="store_true", help="mask the keys after the query")
    option("--window", type=_positive, metavar="SIZE", help="mask the keys SIZE or more positions away")
    option("--queries", type=_positive, default=1024, metavar="N", help="queries (%(default)s)")
    option("--keys", type=_positive, metavar="M", help="keys (as many as queries)")
    option("--heads", type=_positive, default=4, metavar="H", help="heads (%(default)s)")
    option("--key-heads", type=_positive, metavar="H", help="heads of keys and values (as many as heads)")
    option("--head-dim", type=_positive, default=64, metavar="D", help="width of a head (%(default)s)")
    option("--value-dim", type=_positive, metavar="E", help="width of a value (that of a head)")
    option("--dtype", choices=DTYPES, default="float32", help="element type (%(default)s)")
    option("--device", choices=DEVICES, default="cpu", help="where (%(default)s)")

    one = command("reproduce", commands.reproduce, "run the GPU work whose results are missing")
    one.add_argument("job", nargs="*", help="a job, as --list names it; all of them where none is named")
    option = one.add_argument
    option("--minutes", type=float, default=10.0, metavar="M", help="the time there is (%(default)s)")
    option("--out", type=Path, metavar="DIR", help="a folder for one packed file (the store of results)")
    option("--device", choices=DEVICES, default="cuda", help="where; on a cpu a small form (%(default)s)")
    option("--list", action="store_true", help="show the jobs, their estimates and what is missing")
    option("--unpack", type=Path, metavar="FILE", help="save the runs of a packed file in data/results")
    option("--report", action="store_true", help="show what has run on a GPU, beside the goals")

    one = command(
        "tune", commands.tune, "choose the block sizes of the fused programs by time, on a CUDA device"
    )
    one.add_argument("program", nargs="*", help="as configs.json names it; all of them where none is named")
    one.add_argument("--recorded", action="store_true", help="choose by the recorded times, and time nothing")

    one = command("train", commands.train, "train a recipe of a paper, or the studies that a chapter quotes")
    option = one.add_argument
    option("name", help="a recipe, for example gpa-dickens, or a study, for example variants-digits")
    option("--arm", nargs="+", default=[], metavar="ARM", help="an arm of it (a recipe's first; all studies)")
    size = one.add_mutually_exclusive_group()
    size.add_argument("--smoke", action="store_true", help="the same code at tiny sizes: seconds on a CPU")
    size.add_argument("--reduced", action="store_true", help="minutes on one GPU, or smaller on two cores")
    option("--seed", type=int, default=0, help="the first seed (%(default)s)")
    option("--seeds", type=_positive, default=1, help="how many seeds (%(default)s)")
    option("--plan", action="store_true", help="show sizes, cost and launch lines, and train nothing")
    option("--settings", action="store_true", help="list every setting that can be given, and train nothing")
    option("--out", type=Path, metavar="DIR", help="its folder (runs/RECIPE/ARM-SCALE-sSEED)")
    option("--device", choices=DEVICES, help="where (a GPU where there is one)")
    option("--workers", type=int, default=0, metavar="N", help="processes that load data (%(default)s)")
    option("--compile", action="store_true", help="put the model through torch.compile")
    option("--shard", action="store_true", help="split parameters over the processes (FSDP2)")
    option(
        "--save-every", type=float, default=600.0, metavar="S", help="seconds to a checkpoint (%(default)s)"
    )
    option("--log-every", type=_positive, default=10, metavar="N", help="steps to a row (%(default)s)")
    option("--snapshots", type=_positive, default=0, metavar="N", help="steps to a copy of weights (none)")
    option("--fresh", action="store_true", help="begin anew, and delete what is in its folder")
    option("--from-step", type=int, metavar="STEP", help="go on from this checkpoint (the newest)")
    option("--keep", action="store_true", help="keep the record in data/results")
    option("--quiet", action="store_true", help="no progress bar")

    one = command("evaluate", commands.evaluate, "measure a trained run, or score it on benchmark tasks")
    one.add_argument("run", type=Path, help="a run's folder, or one of its checkpoints")
    option = one.add_argument
    option(
        "--tasks", nargs="+", metavar="TASK", help="CORE's tasks, for example hellaswag (the held-out data)"
    )
    option("--whole", action="store_true", help="all held-out data (what the run's record is of)")
    option("--limit", type=_positive, metavar="N", help="questions of a task at most (all)")
    option("--shots", type=int, metavar="K", help="examples before each question (as CORE has it)")
    option("--step", type=int, help="which checkpoint (the newest)")
    option("--average", action="store_true", help="take the moving average of the weights")
    option("--device", choices=DEVICES, help="where (a GPU where there is one)")
    option("--keep", action="store_true", help="keep the record of the tasks in data/results")

    one = command("generate", commands.generate, "let a trained model of text write")
    one.add_argument("run", type=Path, help="a run's folder, or one of its checkpoints")
    option = one.add_argument
    option("--prompt", default="", metavar="TEXT", help="what it begins with")
    option("--count", type=_positive, default=200, metavar="N", help="tokens to write (%(default)s)")
    option("--temperature", type=float, default=0.8, metavar="T", help="0 takes the likeliest (%(default)s)")
    option("--seed", type=int, default=0, help="of the draws (%(default)s)")
    option("--step", type=int, help="which checkpoint (the newest)")
    option("--average", action="store_true", help="take the moving average of the weights")
    option("--device", choices=DEVICES, help="where (a GPU where there is one)")

    one = command("look", commands.look, "draw what a trained run does inside, and keep its numbers")
    one.add_argument("run", type=Path, help="a run's folder, or one of its checkpoints")
    option = one.add_argument
    what = one.add_mutually_exclusive_group()
    what.add_argument("--picture", metavar="NAME", help="astronaut, camera, cat, coffee, or a file (cat)")
    what.add_argument("--text", metavar="TEXT", help="what a model of text reads (a sentence of Dickens)")
    option("--held-out", type=_positive, default=0, metavar="N", help="numbers of N held-out items (of one)")
    option("--out", type=Path, metavar="DIR", help="a folder for the figures (looks/RECIPE/ARM-SCALE-sSEED)")
    option("--step", type=int, help="which checkpoint (the newest)")
    option("--average", action="store_true", help="take the moving average of the weights")
    option("--device", choices=DEVICES, help="where (a GPU where there is one)")
    option("--keep", action="store_true", help="keep the record in data/results")

    command("counts", commands.counts, "count the papers' models: parameters, operations, bytes")

    one = command("bench", commands.bench, "time what the library does on this machine")
    one.add_argument("name", help="what to time, for example smooth")
    one.add_argument("shape", nargs="*", help="a shape of it; all of them where none is named")
    one.add_argument("--device", choices=DEVICES, default="cpu", help="where (%(default)s)")
    one.add_argument("--scale", choices=SCALES, default="full", help="how much of it (%(default)s)")
    one.add_argument("--keep", action="store_true", help="keep the rows in data/results")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; an error that a user can mend is one line and status 2."""
    known = parser()
    options, rest = known.parse_known_args(arguments)
    if rest and options.call is not commands.train:
        known.error(f"unrecognized arguments: {' '.join(rest)}")
    options.settings_given = rest
    try:
        options.call(options)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
