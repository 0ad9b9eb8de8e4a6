"""The command line: ``python -m gkalib COMMAND``."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

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


def data(options: argparse.Namespace) -> None:
    """List, fetch or check the data sets."""
    from gkalib.datasets import registry

    names = options.name or list(registry.DATASETS)
    if options.action == "list":
        width = max(map(len, names))
        for name in names:
            state = "here" if registry.ready(name) else "to fetch"
            print(f"{name:<{width}}  {state:<8}  {registry.known(name).description}")
    else:
        act = {"get": registry.get, "check": registry.check}[options.action]
        for name in names:
            if options.action == "check" and not options.name and not registry.ready(name):
                print(f"{name}: not here, so not checked")
                continue
            act(name)
            print(f"{name}: as registered, sha256 {registry.known(name).sha256}")


def results(options: argparse.Namespace) -> None:
    """List the experiments that have recorded runs, or show the runs of one."""
    from gkalib.results import experiments, load, table

    if options.action == "table":
        print(table(options.experiment, *options.metric, scale=options.scale))
    else:
        for name in experiments():
            print(f"{name}  {len(load(name))} runs")


def explain(options: argparse.Namespace) -> None:
    """Print which smoothing methods can compute a problem, which cannot, and why."""
    import torch

    from gkalib import explain, kernels, masks, normalizers

    kernel = getattr(kernels, _class(options.kernel))
    normalizer = getattr(normalizers, _class(options.normalizer))
    mask = masks.Causal() if options.causal else None
    if options.window:
        mask = masks.Window(options.window) if mask is None else mask & masks.Window(options.window)
    like = {"dtype": getattr(torch, options.dtype), "device": options.device}
    heads, keys = options.key_heads or options.heads, options.keys or options.queries
    print(
        explain(
            torch.zeros(1, options.heads, options.queries, options.head_dim, **like),
            torch.zeros(1, heads, keys, options.head_dim, **like),
            torch.zeros(1, heads, keys, options.value_dim or options.head_dim, **like),
            kernel() if options.kernel == "exp-dot" else kernel(options.sigma),
            mask=mask,
            normalizer=normalizer(options.top) if options.normalizer == "top-k" else normalizer(),
        )
    )


def bench(options: argparse.Namespace) -> None:
    """Time what the library does and print a row a case."""
    from gkalib.bench.run import run

    run(options.name, options.shape, device=options.device, scale=options.scale, keep=options.keep)


def tune(options: argparse.Namespace) -> None:
    """Time the block sizes that fused programs may have, and ship the fastest."""
    from gkalib.bench import tuning

    if not options.recorded:
        tuning.run(options.program)
    changes = tuning.adopt()
    print(
        "\n".join([*changes, f"{len(changes)} entries changed; record the programs anew: make aot UPDATE=1"])
    )


def reproduce(options: argparse.Namespace) -> None:
    """Run the GPU work whose results are missing or stale, the most urgent first, as much as fits the time.

    Safe to stop and to repeat. With --out nothing is written to data/results; there, --unpack saves the pack.
    """
    from gkalib.bench import packing, queue

    if options.unpack is not None:
        saved = packing.unpack(options.unpack, code=queue.code_hash())
        print("\n".join([*saved, f"{len(saved)} runs saved"]))
        return
    from gkalib.bench.jobs import jobs

    known = [job for job in jobs() if options.device in job.devices]
    if options.list or not queue.present(options.device):
        print(queue.listing(known, options.device))
    if options.list:
        return
    ended = queue.reproduce(known, options.minutes, device=options.device, out=options.out, names=options.job)
    failed = [name for name, how in ended if how != "done"]
    if failed:
        raise ValueError(f"reproduce: {', '.join(failed)} did not end well; the output above says why")


def train(options: argparse.Namespace) -> None:
    """Train a recipe of a paper, or the studies that a chapter quotes.

    A recipe runs at full size unless --smoke or --reduced is given, and goes on where it was stopped. Every
    setting of it is an option too; --settings lists them. Under torchrun the work is shared.
    """
    from gkalib import studies

    if options.name in studies.experiments():
        _study(options)
    else:
        _recipe(options, studies.experiments())


def _study(options: argparse.Namespace) -> None:
    """Run an experiment's studies, keep their records and print the held-out losses."""
    from dataclasses import replace

    from gkalib import studies

    if options.settings_given or options.reduced or options.plan or options.settings:
        raise ValueError(f"train: {options.name!r} is made of studies, which take --arm, --seed and --smoke")
    known, measure = studies.experiment(options.name)
    arms = [one.arm for one in known]
    for arm in options.arm:
        if arm not in arms:
            raise ValueError(f"train: no arm {arm!r} in {options.name!r}. Known: {', '.join(arms)}")
    for one in known:
        for seed in range(options.seed, options.seed + options.seeds):
            if not options.arm or one.arm in options.arm:
                one = replace(one, seed=seed)
                record = studies.train(one.smoke() if options.smoke else one, measure=measure, keep=True)
                loss, baseline = record.metrics["val_loss"], record.metrics["baseline_loss"]
                print(f"{record.run}  val_loss {loss:.4f}  (frequencies only {baseline:.4f})", flush=True)


def _recipe(options: argparse.Namespace, studies: list[str]) -> None:
    """Train the chosen arms of a recipe, one after the other."""
    from dataclasses import replace

    from gkalib import training
    from gkalib.training.launch import device_of, launch_of, overridden, plan

    known = training.recipes()
    if options.name not in known:
        raise ValueError(
            f"train: no recipe {options.name!r}. Recipes: {', '.join(known)}. Studies: {', '.join(studies)}"
        )
    chosen = known[options.name]
    for arm in options.arm or [None]:
        for seed in range(options.seed, options.seed + options.seeds):
            run = replace(chosen.run(arm), seed=seed)
            if options.smoke or options.reduced:
                run = run.smoke() if options.smoke else run.reduced(device_of(options.device))
            run = overridden(run, options.settings_given, show=options.settings)
            if options.plan:
                print(plan(chosen, run))
            else:
                training.train(run, launch_of(options))


def counts(options: argparse.Namespace) -> None:
    """Count the papers' models and keep a record of each."""
    from gkalib.bench.counts import keep

    keep()


def _class(option: str) -> str:
    """The class that an option names: ``top-k`` is ``TopK``."""
    return "".join(word.capitalize() for word in option.split("-"))


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number


def parser() -> argparse.ArgumentParser:
    """The commands and their options; a test holds them as they are."""
    top = argparse.ArgumentParser(prog="python -m gkalib", description="Attention as kernel regression.")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(name: str, call, help: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=help, description=call.__doc__)
        added.set_defaults(call=call)
        return added

    one = command("data", data, "list, fetch or check the data sets")
    actions = one.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    for action, what in (
        ("list", "what there is, and what of it is on this machine"),
        ("get", "fetch what is missing, and check it"),
        ("check", "compare what is here with the registered checksums; fetches nothing"),
    ):
        added = actions.add_parser(action, help=what, description=what.capitalize() + ".")
        added.add_argument("name", nargs="*", help="a data set; all of them where none is named")

    one = command("results", results, "list the recorded runs, or show those of one experiment")
    actions = one.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    actions.add_parser("list", help="what has runs", description="The experiments that have runs.")
    added = actions.add_parser("table", help="the runs of one", description="The runs of one experiment.")
    added.add_argument("experiment", help="its name, as `results list` prints it")
    added.add_argument("metric", nargs="*", help="a column to show; all of them where none is named")
    added.add_argument("--scale", choices=SCALES, help="only runs of this scale")

    one = command("explain", explain, "which methods can compute a problem, which cannot, and why")
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

    one = command("reproduce", reproduce, "run the GPU work whose results are missing")
    one.add_argument("job", nargs="*", help="a job, as --list names it; all of them where none is named")
    option = one.add_argument
    option("--minutes", type=float, default=10.0, metavar="M", help="the time there is (%(default)s)")
    option("--out", type=Path, metavar="DIR", help="a folder for one packed file (the store of results)")
    option("--device", choices=DEVICES, default="cuda", help="where; on a cpu a small form (%(default)s)")
    option("--list", action="store_true", help="show the jobs, their estimates and what is missing")
    option("--unpack", type=Path, metavar="FILE", help="save the runs of a packed file in data/results")

    one = command("tune", tune, "choose the block sizes of the fused programs by time, on a CUDA device")
    one.add_argument("program", nargs="*", help="as configs.json names it; all of them where none is named")
    one.add_argument("--recorded", action="store_true", help="choose by the recorded times, and time nothing")

    one = command("train", train, "train a recipe of a paper, or the studies that a chapter quotes")
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
    option("--fresh", action="store_true", help="begin anew, and delete what is in its folder")
    option("--from-step", type=int, metavar="STEP", help="go on from this checkpoint (the newest)")
    option("--keep", action="store_true", help="keep the record in data/results")
    option("--quiet", action="store_true", help="no progress bar")

    command("counts", counts, "count the papers' models: parameters, operations, bytes")

    one = command("bench", bench, "time what the library does on this machine")
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
    if rest and options.call is not train:
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
