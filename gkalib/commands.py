"""What each command of ``python -m gkalib`` does, from its options to what it prints."""

import argparse
import os
from pathlib import Path


def data(options: argparse.Namespace) -> None:
    """List, fetch or check the data sets."""
    from gkalib.data import registry

    names = options.name or list(registry.DATASETS)
    if options.action == "list":
        width = max(map(len, names))
        for name in names:
            state = "here" if registry.ready(name) else "to fetch"
            print(f"{name:<{width}}  {state:<8}  {registry.registered(name).description}")
    else:
        act = {"get": registry.get, "check": registry.check}[options.action]
        for name in names:
            if options.action == "check" and not options.name and not registry.ready(name):
                print(f"{name}: not here, so not checked")
                continue
            act(name)
            checksum = registry.registered(name).sha256
            print(f"{name}: {f'as registered, sha256 {checksum}' if checksum else 'as the hub states it'}")


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
    from gkalib.gpu import tune

    if not options.recorded:
        tune.run(options.program)
    changes = tune.adopt()
    print(
        "\n".join([*changes, f"{len(changes)} entries changed; record the programs anew: make aot UPDATE=1"])
    )


def reproduce(options: argparse.Namespace) -> None:
    """Run the GPU work whose results are missing or stale, the most urgent first, as much as fits the time.

    Safe to stop and to repeat. With --out nothing is written to data/results; there, --unpack saves the pack.
    """
    from gkalib.gpu import queue

    queue.command(
        options.job,
        minutes=options.minutes,
        out=options.out,
        device=options.device,
        show=options.list,
        unpack=options.unpack,
        reported=options.report,
    )


def train(options: argparse.Namespace) -> None:
    """Train a recipe of a paper, or the studies that a chapter quotes.

    A recipe runs at full size unless --smoke or --reduced is given, and goes on where it was stopped. Every
    setting of it is an option too; --settings lists them. Under torchrun the work is shared.
    """
    from gkalib import experiments

    if options.name in experiments.experiments():
        _study(options)
    else:
        _recipe(options, experiments.experiments())


def _study(options: argparse.Namespace) -> None:
    """Run an experiment's studies, keep their records and print the held-out losses."""
    from dataclasses import replace

    from gkalib import experiments

    if options.settings_given or options.reduced or options.plan or options.settings:
        raise ValueError(f"train: {options.name!r} is made of studies, which take --arm, --seed and --smoke")
    known, measure = experiments.experiment(options.name)
    arms = [one.arm for one in known]
    for arm in options.arm:
        if arm not in arms:
            raise ValueError(f"train: no arm {arm!r} in {options.name!r}. Known: {', '.join(arms)}")
    for one in known:
        for seed in range(options.seed, options.seed + options.seeds):
            if not options.arm or one.arm in options.arm:
                one = replace(one, seed=seed)
                record = experiments.train(one.smoke() if options.smoke else one, measure=measure, keep=True)
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
                record = training.train(run, launch_of(options))
                if os.environ.get("RANK", "0") == "0":  # under torchrun every process is here
                    found = "  ".join(f"{name} {value:.6g}" for name, value in record.metrics.items())
                    print(f"{chosen.name} {record.run}  {found}", flush=True)


def evaluate(options: argparse.Namespace) -> None:
    """Measure a trained run on its held-out data, or score a model of text on benchmark tasks."""
    from gkalib.evaluation import core
    from gkalib.training import trained
    from gkalib.training.distributed import start

    loaded = trained.opened(options.run, step=options.step, averaged=options.average)
    processes = start(options.device)
    say = print if processes.main else (lambda *words: None)
    say(f"{loaded.run.recipe}, {loaded.run.arm}, {loaded.run.scale}, step {loaded.step:,}")
    if not options.tasks:
        numbers, items, total = trained.measured(loaded, processes, whole=options.whole)
        part = "" if items == total else f", those of its record; --whole takes all {total:,}"
        say(f"on {items:,} held-out {'rows' if loaded.tokenizer_json else 'images'}{part}")
        for name, value in numbers.items():
            say(f"{name:<13} {value:.6g}")
        return
    found = trained.tasks(loaded, processes, options.tasks, limit=options.limit, shots=options.shots)
    say(f"{'task':<20}  items shots accuracy  ± s.e.  guess centered  items/s")
    for one in found:
        say(
            f"{one.name:<20} {one.items:>6} {one.shots:>5} {one.accuracy:>8.3f} {one.error:>7.3f} "
            f"{one.baseline:>6.3f} {one.centered:>8.3f}  {one.items / one.seconds:.1f}"
        )
    mean = core(found)
    say(f"mean of centered accuracies over {mean.tasks} tasks: {mean.mean:.3f} ± {mean.error:.3f}")
    if options.keep:
        say(trained.keep(loaded, processes, found, limit=options.limit).name)


def generate(options: argparse.Namespace) -> None:
    """Let a trained model of text write."""
    from gkalib.training import trained
    from gkalib.training.distributed import start

    loaded = trained.opened(options.run, step=options.step, averaged=options.average)
    settings = {"count": options.count, "temperature": options.temperature, "seed": options.seed}
    print(trained.written(loaded, start(options.device), options.prompt, **settings))


def look(options: argparse.Namespace) -> None:
    """Draw what a trained run does inside: rollout, maps of attention, bandwidths or banks, spectra.

    One picture, or one text, is read; with --held-out the numbers are those of that many held-out items.
    """
    try:
        from gkalib.look import look
    except ModuleNotFoundError as missing:
        extras = "vision,language,book"
        raise ValueError(f"look: needs {missing.name}: pip install 'gkalib[{extras}]'") from missing
    from gkalib.training import trained
    from gkalib.training.distributed import start

    loaded = trained.opened(options.run, step=options.step, averaged=options.average)
    processes, run = start(options.device), loaded.run
    if (options.picture if loaded.tokenizer_json else options.text) is not None:
        read, other = ("text", "--picture") if loaded.tokenizer_json else ("pictures", "--text")
        raise ValueError(f"look: {run.recipe} reads {read}: leave {other} out")
    said = look(
        loaded,
        processes,
        folder=options.run,
        subject=options.picture or options.text,
        held_out=options.held_out,
        out=options.out or Path("looks") / run.recipe / f"{run.arm}-{run.scale}-s{run.seed}",
        keep=options.keep,
    )
    print("\n".join(said))


def counts(options: argparse.Namespace) -> None:
    """Count the papers' models and keep a record of each."""
    from gkalib.experiments.runner import run

    run("counts")


def _class(option: str) -> str:
    """The class that an option names: ``top-k`` is ``TopK``."""
    return "".join(word.capitalize() for word in option.split("-"))
