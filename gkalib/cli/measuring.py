"""Commands that measure: speed, and what the fused programs do on a card."""

import os
from dataclasses import dataclass
from typing import Literal, final

from tyro.conf import Positional

from gkalib.cli.options import Device, Scale


@final
@dataclass(frozen=True)
class Bench:
    """Time what the library does on this machine."""

    name: Positional[str]  # what to time, for example smooth
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

    what: Positional[
        tuple[str, ...]
    ] = ()  # variants, recipes, trained models; gka rbf gpa softmax by default
    minutes: float = 5.0  # after so many nothing is begun; the same command goes on
    width: tuple[int, ...] = (64, 128)  # of heads, where a variant is named
    dtype: tuple[Literal["bfloat16", "float16", "float32"], ...] = ("bfloat16",)  # of tensors
    rehearse: str = (
        ""  # a chip that is not here, such as sm_89: compile for it and compare in the interpreter
    )
    show: bool = False  # print what is known of every card, and do nothing
    forget: bool = False  # delete what is known of this card, and do nothing

    def __call__(self) -> None:
        """Print a table of what came out."""
        if self.rehearse:  # before the programs are imported
            os.environ["TRITON_INTERPRET"] = "1"
        from gkalib.gpu import ready
        from gkalib.smoothing.fused import cards

        if self.show:
            for path in cards.files():
                print(path, ready.report(cards.read(path).values()), sep="\n")
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
