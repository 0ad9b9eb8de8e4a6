"""Commands that say what there is, data, records, variants, and those that measure the library."""

import os
from dataclasses import dataclass
from typing import Annotated, Literal, final

from tyro.conf import Positional
from tyro.constructors import PrimitiveConstructorSpec

Device = Literal["cpu", "cuda"]
Scale = Literal["smoke", "reduced", "full"]


def _positive(words: list[str]) -> int:
    try:
        number = int(words[0])
    except ValueError:
        raise ValueError(f"must be a whole number, not {words[0]!r}") from None
    if number < 1:
        raise ValueError(f"must be at least 1, not {number}")
    return number


Positive = Annotated[
    int, PrimitiveConstructorSpec(1, "N", _positive, lambda value: isinstance(value, int), lambda n: [str(n)])
]


@final
@dataclass(frozen=True)
class Data:
    """List, fetch or check the data sets, or say where they lie.

    Its actions: list says what there is, and what of it is on this machine; where says its place, or those
    where it is looked for; get fetches what is missing, and checks it; check compares what is here with the
    registered checksums, and fetches nothing.
    """

    action: Positional[Literal["list", "where", "get", "check"]]
    name: Positional[tuple[str, ...]] = ()  # data sets; all of them where none is named

    def __call__(self) -> None:
        """Print a line a data set."""
        from gkalib.data import registry

        names = self.name or tuple(registry.DATASETS)
        if self.action == "where":
            print(*(line for name in names for line in registry.where(name)), sep="\n")
            return
        if self.action == "list":
            width = max(map(len, names))
            for name in names:
                state = "here" if registry.ready(name) else "to fetch"
                print(f"{name:<{width}}  {state:<8}  {registry.registered(name).description}")
            return
        for name in names:
            if self.action == "check" and not self.name and not registry.ready(name):
                print(f"{name}: not here, so not checked")
                continue
            (registry.get if self.action == "get" else registry.check)(name)
            checksum = registry.registered(name).sha256
            print(f"{name}: {f'as registered, sha256 {checksum}' if checksum else 'as the hub states it'}")


@final
@dataclass(frozen=True)
class Results:
    """List the experiments that have recorded runs, or show one's runs as a table."""

    action: Positional[Literal["list", "table"]]
    experiment: Positional[str] = ""  # its name, as list prints it
    metric: Positional[tuple[str, ...]] = ()  # columns to show; all of them where none is named
    scale: Scale | None = None  # only runs of this scale

    def __call__(self) -> None:
        """Print the list or the table."""
        from gkalib.results import experiments, load, table

        if self.action == "table":
            print(table(self.experiment, *self.metric, scale=self.scale))
        else:
            for name in experiments():
                print(f"{name}  {len(load(name))} runs")


@final
@dataclass(frozen=True)
class Variants:
    """Print what each variant of attention is and what one layer of it costs.

    The table is in Markdown.
    """

    dim: Positive = 192  # width of a token; ViT-Ti's
    heads: Positive = 3  # how many
    tokens: tuple[Positive, ...] = (196, 784)  # numbers of tokens at which memory is measured

    def __call__(self) -> None:
        """Print the table."""
        from gkalib.models import overview, overview_table

        print(overview_table(overview(self.dim, self.heads, self.tokens)))


@final
@dataclass(frozen=True)
class Bench:
    """Time what the library does on this machine."""

    name: Positional[str]  # what to time, for example gka
    shape: Positional[tuple[str, ...]] = ()  # shapes of it; all of them where none is named
    arm: tuple[str, ...] = ()  # arms of a shape, where it has some; all of them where none is named
    device: Device = "cpu"  # where
    scale: Scale = "full"  # how much of it
    keep: bool = False  # keep the rows in data/results

    def __call__(self) -> None:
        """Print a row a case."""
        from gkalib.bench.run import run

        run(self.name, self.shape, arms=self.arm, device=self.device, scale=self.scale, keep=self.keep)


@final
@dataclass(frozen=True)
class Ready:
    """Prove, tune and switch on the fused programs on the card that is here.

    What was right there and no slower than PyTorch's own methods is what ``auto`` takes from then on.
    """

    what: Positional[tuple[str, ...]] = ()  # variants, recipes, models; gka rbf gpa softmax by default
    minutes: float = 5.0  # after so many nothing is begun; the same command goes on
    width: tuple[int, ...] = (64, 128)  # of heads, where a variant is named
    dtype: tuple[Literal["bfloat16", "float16", "float32"], ...] = ("bfloat16",)  # of tensors
    rehearse: str = ""  # a chip that is not here, such as sm_89: compile for it, compare in the interpreter
    show: bool = False  # print what is known of every card, and do nothing
    forget: bool = False  # delete what is known of this card, and do nothing

    def __call__(self) -> None:
        """Print a table of what came out."""
        if self.rehearse:  # before the programs are imported
            os.environ["TRITON_INTERPRET"] = "1"
        from gkalib.gpu import ready
        from gkalib.smoothing.fused import cards

        if self.show:
            known = [f"{path}\n{ready.report(cards.read(path).values())}" for path in cards.files()]
            print(*known or ["ready: nothing is known of any card"], sep="\n")
            return
        card = ready.card_here(self.rehearse)
        if self.forget:
            card.path().unlink(missing_ok=True)
            return
        what = self.what or (ready.DEFAULT[:1] if self.rehearse else ready.DEFAULT)
        widths = self.width[:1] if self.rehearse else self.width
        left = ready.run(card, ready.needed(what, widths, self.dtype), minutes=self.minutes)
        print(card.path(), ready.report(cards.read(card.path()).values()), sep="\n")
        if left:
            print(f"{left} are left: the same command goes on with them")
