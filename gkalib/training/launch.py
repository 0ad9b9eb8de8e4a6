"""Full runs in one action: what they are, what they cost and lack here, the lines that start them."""

import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import IO, Any, final

import torch

from gkalib import results
from gkalib.data import registry
from gkalib.data.images import IMAGE_SETS
from gkalib.data.registry import where
from gkalib.data.text import TEXTS
from gkalib.data.tokens import LARGE
from gkalib.training.background import environment, printed_numbers, show, steps_done
from gkalib.training.checkpoint import KEPT, run_folder
from gkalib.training.config import LOADERS, LaunchConfig, TrainConfig, VisionConfig
from gkalib.training.cost import Cost, cost, measured_hours
from gkalib.training.distributed import LOCK
from gkalib.training.recipes import chosen_runs
from gkalib.training.recipes import recipe as find_recipe
from gkalib.training.record import ended

# Images that a core reads and augments in a second, as measured: of ImageNet's size, of 32 × 32 pixels
# enlarged to 224, and of 32 × 32.
PHOTOGRAPHS, ENLARGED_PICTURES, SMALL_PICTURES = 202, 402, 2532
PRINTED = "launch.log"  # what a process prints, in its folder
SAVE_EVERY = "20"  # seconds between checkpoints of a run below full size, which ends within minutes
BYTES = 16  # a parameter in float32, its two moments and its average
RENAMED = {"arm": 'arms: a name, a list of them or "all"', "seed": "seeds: how many, or a list of them"}


@final
class Launch:
    """Runs of a recipe, one after another: their plan and what is missing here, as text; their process.

    The process is in a session of its own and holds the lock of a file, which says its number and machine,
    until it ends, however it ends: one that has got the number of one that is gone is left alone.

    Args:
        runs: every setting of each.
        words: of ``python -m gkalib train``, as they were given, which choose them.
        gpus: on how many cards of this machine; 0 is one process on the CPU.
        card: whose hours the plan shows.
    """

    def __init__(self, runs: Sequence[TrainConfig], words: Sequence[str], *, gpus: int, card: str = "H100"):
        self.words, self.gpus, self.card, self._first = list(words), gpus, card, runs[0]
        self.runs = [replace(run, **self._sharing(gpus)) for run in runs]
        self.folders = [run_folder(run, LaunchConfig()).absolute() for run in self.runs]
        self.scale, self.home = runs[0].scale, self.folders[0].parent
        self._placed = list(zip(self.runs, self.folders, strict=True))
        settings = {folder.name: run.recorded() for run, folder in self._placed}
        self.folder = self.home / f"launch-{self.scale}-{results.digest(settings)}"

    def _sharing(self, gpus: int) -> dict[str, int]:
        """The setting with which so many processes can share a step: the largest parts that they can."""
        batch, part, processes = self._first.batch, self._first.part, max(1, gpus)
        if self._first.parts % processes == 0:
            return {}
        sizes = [size for size in range(1, part + 1) if batch % (size * processes) == 0]
        return {"device_batch": sizes[-1]} if sizes else {"batch": processes * part}

    def arguments(self, gpus: int) -> list[str]:
        """What Python is called with on so many cards: the words as given, models compiled, records kept."""
        compiled = ["--compile"] if self.scale != "smoke" else []  # which takes longer than such runs
        own = [*(compiled if gpus else ["--device", "cpu"]), "--keep"]
        words = ["-m", "gkalib", "train", *self.words, *(word for word in own if word not in self.words)]
        if self.scale != "full" and "--save-every" not in words:
            words += ["--save-every", SAVE_EVERY]
        for name, size in self._sharing(gpus).items():
            words += [f"--{name.replace('_', '-')}", str(size)]
        return words

    @property
    def command(self) -> list[str]:
        """The command of this machine."""
        several = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(self.gpus)]
        return [sys.executable, *(several if self.gpus > 1 else []), *self.arguments(self.gpus)]

    @property
    def lines(self) -> dict[str, str]:
        """The command on one GPU, on several, and on each of two machines of so many; or on the CPU."""
        if self.gpus == 0 and self.scale != "full":
            return {"CPU": shlex.join(["python", *self.arguments(0)])}
        cards = self.gpus if self.gpus > 1 else 8
        one, several, two = (shlex.join(self.arguments(gpus)) for gpus in (1, cards, 2 * cards))
        nodes = f"torchrun --nnodes 2 --nproc-per-node {cards} --rdzv-backend c10d --rdzv-endpoint"
        first = "$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)"
        wrapped = shlex.quote(f"srun {nodes} {first}:29500 {two}")
        return {
            "one GPU": f"python {one}",
            f"{cards} GPUs": f"torchrun --standalone --nproc-per-node {cards} {several}",
            "2 machines": f"{nodes} FIRST_MACHINE:29500 {two}",
            "SLURM": f"sbatch --nodes 2 --ntasks-per-node 1 --gpus-per-node {cards} --wrap {wrapped}",
        }

    @cached_property
    def costs(self) -> dict[str, Cost]:
        """What one run of each arm costs."""
        return {arm: cost(run) for arm, run in {run.arm: run for run in self.runs}.items()}

    def hours(self, run: TrainConfig) -> tuple[float, float, str]:
        """Of a run on as many cards as it is for: between which bounds, or as measured; and in words."""
        gpus = max(1, self.gpus)
        if (seen := measured_hours(run, self.card, gpus)) is not None:
            return seen, seen, f"{seen:.2g}, measured"
        low, high = self.costs[run.arm].hours(self.card, gpus)
        return low, high, f"{low:.2g} to {high:.2g}"

    @property
    def plan(self) -> str:
        """What the runs are, what they cost, and how to start them, the same on every machine."""
        recipe, arms = find_recipe(self.runs[0].experiment), {run.arm: run for run in self.runs}
        seeds = ", ".join(str(seed) for seed in dict.fromkeys(run.seed for run in self.runs))
        first, paper = self.runs[0], printed_numbers(recipe.name)
        low, high = (sum(bound) for bound in zip(*(self.hours(run)[:2] for run in self.runs), strict=True))
        table = [
            f"{'arm':<20}{'parameters':>12}{'of attention':>14}{'steps':>9}{'batch':>7}"
            f"{first.unit:>11}{'operations':>12}  {'hours':<14}  in the paper"
        ]
        for arm, run in arms.items():
            spent, counts = self.costs[arm], self.costs[arm].count
            numbers = [f"  {metric} {number:.4g}" for (of, metric), number in paper.items() if of == arm]
            table.append(
                f"{arm:<20}{counts.parameters:>12,}{counts.attention_parameters:>14,}{run.steps:>9,}"
                f"{run.batch:>7,}{spent.items:>11.4g}{spent.operations:>12.4g}  {self.hours(run)[2]:<14}"
                f"{''.join(numbers[:1])}".rstrip()
            )
        cards = f"{max(1, self.gpus)} {self.card}"
        lines = [
            f"{recipe.name}: {recipe.summary}",
            f"paper        {recipe.paper}: {recipe.expects}",
            f"runs         {len(self.runs)}, {self.scale} scale, seeds {seeds}, data {first.data}",
            *table,
            f"together     {low:.2g} to {high:.2g} hours on {cards}, without loading and measuring:",
            "             no program needs less than the first; with the second a step does as well as",
            "             those in table 4 of the GKA paper",
        ]
        if isinstance(first, VisionConfig):
            workers, small = LOADERS * max(1, self.gpus), first.model.image_size <= 64
            enlarged = ENLARGED_PICTURES if first.data.startswith("cifar") else PHOTOGRAPHS
            rate = workers * (SMALL_PICTURES if small else enlarged)
            loading = first.steps * first.batch / rate / 3600
            lines.append(f"loading      {loading:.2g} hours a run for {workers} cores that load images")
        return "\n".join([*lines, *(f"{place:<11}  {line}" for place, line in self.lines.items())])

    @property
    def missing(self) -> list[str]:
        """What the runs lack on this machine, a line each with what to type or to do."""
        found, cards = _lacking_data(self.runs[0]), torch.cuda.device_count()
        if self.gpus > cards or (self.gpus == 0 and self.scale == "full"):
            found.append(
                f"cards: {cards or 'none'} here, not {self.gpus or 'one at least'}. Type one of the plan's "
                "lines where they are, or launch with scale='reduced'"
            )
        states = {arm: BYTES * spent.count.parameters for arm, spent in self.costs.items()}
        largest = max(states.values())
        if 0 < self.gpus <= cards:
            free = min(torch.cuda.mem_get_info(card)[0] for card in range(self.gpus))
            if largest > free:
                found.append(
                    f"memory: its state alone takes {largest / 1e9:.2g} GB, and {free / 1e9:.2g} of a card "
                    "are free. End what else runs on it"
                )
        waiting = [run for run, done in zip(self.runs, self.done, strict=True) if done < run.steps]
        needed = sum(KEPT * states[run.arm] for run in waiting) + largest
        place = next(path for path in (self.home, *self.home.parents) if path.exists())
        if needed > (free := shutil.disk_usage(place).free):
            found.append(
                f"disk: checkpoints take {needed / 1e9:.2g} GB, and {free / 1e9:.2g} are free in {place}. "
                "Let GKALIB_RUNS name another place"
            )
        return found

    @property
    def running(self) -> bool:
        """Whether their process runs, which holds its lock."""
        path = self.folder / LOCK
        if not path.exists():
            return False
        with path.open() as lock:  # shared, so that two who look do not see each other
            return not _locked(lock, exclusive=False)

    @property
    def printed(self) -> str:
        """What it has printed."""
        path = self.folder / PRINTED
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    @property
    def done(self) -> list[int]:
        """How many steps of each run are done; all of them once its record is written, and not before."""
        return [steps_done(run, folder) for run, folder in self._placed]

    @property
    def state(self) -> str:
        """``running``, ``finished``, ``stopped`` or ``not started``."""
        if self.running:
            return "running"
        if self.done == [run.steps for run in self.runs]:
            return "finished"
        return "stopped" if any(self.done) or self.printed else "not started"

    def check(self) -> None:
        """Refuse where something is missing.

        Raises:
            ValueError: with what to type.
        """
        if missing := self.missing:
            raise ValueError("launch: the runs cannot start here.\n" + "\n".join(missing))

    def start(self) -> None:
        """Start in a process that outlives this one, or go on where it stopped; nothing while it runs.

        What it prints goes to ``launch.log`` in its folder, the record of each run to ``data/results``.

        Raises:
            ValueError: if something is missing; the message says what to do.
        """
        if self.state in ("running", "finished"):
            return
        self.check()
        self.folder.mkdir(parents=True, exist_ok=True)
        lock, printed = (self.folder / LOCK).open("a"), (self.folder / PRINTED).open("ab", buffering=0)
        with lock, printed:
            while not _locked(lock, exclusive=True):  # who looks at it has it for a moment
                if self.running:  # another kernel was faster
                    return
            lock.truncate(0)
            printed.write(f"{shlex.join(self.command)}\n".encode())
            process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                env=environment(),
                start_new_session=True,
                pass_fds=[lock.fileno()],
            )
            lock.write(f"process {process.pid} on {platform.node()}")
            process.returncode = 0  # nobody waits for it

    def stop(self) -> None:
        """Ask it to save and to end, as SIGTERM does; nothing where it has ended.

        Raises:
            ValueError: if it was started on another machine.
        """
        path = self.folder / LOCK
        words = path.read_text(encoding="utf-8") if path.exists() else ""
        holder = re.fullmatch(r"process (\d+) on (.+)", words)
        if holder and holder[2] != platform.node():
            raise ValueError(f"launch: {self.folder} was started by {words}; stop it there")
        if holder and self.running:
            os.kill(int(holder[1]), signal.SIGTERM)

    def watch(self, every: float = 2.0) -> None:
        """Show the curves until the process ends; an interrupt ends the watching, not the runs.

        In a notebook they are a picture, in a terminal text: steps a second, the time that is left, the loss,
        and what the paper prints, as a line.

        Args:
            every: seconds between two looks.

        Raises:
            ValueError: if the process ends before the last run; the message is the end of what it printed.
        """
        show(lambda: self.running, self._placed, printed_numbers(self.runs[0].experiment), every)
        if self.state != "finished":
            last = self.printed.splitlines()[-10:]
            raise ValueError("launch: the runs have stopped.\n" + "\n".join(last))

    def __repr__(self) -> str:
        lines = [self.plan]
        with suppress(ValueError):  # what is made up lies nowhere
            lines += [f"data         {line}" for line in where(self.runs[0].data)]
        lines += [f"missing      {line}" for line in self.missing] or ["missing      nothing"]
        records = [ended(run, folder) for run, folder in self._placed]
        lines += [f"recorded     {one.arm} seed {one.seed}: {one.quality}" for one in records if one]
        lines.append(
            f"state        {self.state}, {len(list(filter(None, records)))} of {len(records)} runs ended"
        )
        return "\n".join([*lines, f"folder       {self.home}"])


def launch(
    recipe: str = "",
    arms: str | Sequence[str] = "all",
    *,
    seeds: int | Sequence[int] = 1,
    gpus: int | None = None,
    scale: str = "full",
    settings: Sequence[str] | None = None,
    card: str = "H100",
    start: bool = False,
    **old: Any,
) -> Launch:
    """Full runs in one action: what they are and cost, and what they lack here; with ``start`` they begin.

    Every arm and seed is trained, one after another, in a process that a notebook's end does not stop: by
    torchrun on more than one card, compiled on cards, each record kept in ``data/results``. The same call
    again finds the process; after a stop or a crash it goes on from the last checkpoint and skips the runs
    that have ended. In a terminal: ``python -m gkalib train RECIPE --arms all --seeds 5 --gpus 8``.

    Args:
        recipe: its name.
        arms: one of its arms, several, or ``"all"``.
        seeds: how many, from 0 on; or a list of them.
        gpus: on how many cards; all that are here where not given, and on a machine without one the CPU, as
            with 0.
        scale: ``"full"``, ``"reduced"`` or ``"smoke"``.
        settings: further words of the command line, ``["--lr", "3e-4"]``.
        card: whose hours the plan shows, for example ``"A100"``.
        start: whether to start.

    Raises:
        ValueError: if there is no such recipe, arm, setting or card, or a start lacks something.
        TypeError: if an argument has another name now; the message says which.
    """
    for name in old:
        known = f"is now {RENAMED[name]}" if name in RENAMED else "is no argument"
        raise TypeError(f"launch: {name}= {known}")
    gpus = torch.cuda.device_count() if gpus is None else gpus
    arms, seeds = [arms] if isinstance(arms, str) else arms, range(seeds) if isinstance(seeds, int) else seeds
    if gpus < 0 or not len(seeds) or not len(arms):
        raise ValueError("launch: of gpus there are 0 or more, of arms and seeds one at least")
    device = "cuda" if gpus else "cpu"
    runs = chosen_runs(recipe, arms, seeds, scale=scale, device=device, words=settings or [])
    words = [recipe, "--arms", *arms]
    if list(seeds) == list(range(len(seeds))):
        words += ["--seeds", str(len(seeds))] if len(seeds) > 1 else []
    else:
        words += ["--seed", *map(str, seeds)]
    words += [*([] if scale == "full" else [f"--{scale}"]), *(settings or [])]
    found = Launch(runs, words, gpus=gpus, card=card)
    if start:
        found.start()
    return found


def _locked(file: IO[str], *, exclusive: bool) -> bool:
    """Whether an open file could be locked, for as long as a process that was given it keeps it open."""
    import fcntl  # imported here: a plan is shown on Windows too

    try:
        fcntl.flock(file, fcntl.LOCK_NB | (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH))
    except BlockingIOError:
        return False
    return True


def _lacking_data(config: TrainConfig) -> list[str]:
    """What to type where the data of a run is not here."""
    name = config.data.replace("_", "-")
    if isinstance(config, VisionConfig):
        known, kind = config.data in IMAGE_SETS, "folder of images"
    else:
        known, kind = name in (*TEXTS, *LARGE), "text file"
    if known and name.replace("-", "_") in registry.DATASETS and not registry.ready(name.replace("-", "_")):
        return [f"data: {name} is not here. Type: python -m gkalib data get {name}"]
    if known or config.own_data:
        return []
    return [f"data: there is no data set and no {kind} called {config.data!r}"]
