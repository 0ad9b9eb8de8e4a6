"""What a checkpoint without part of a run's state does, and rows of packed documents."""

from typing import Literal

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from torch import Tensor
from torch.nn.functional import cross_entropy

from gkalib.models import GPTConfig, gpt
from gkalib.viz.digest import array
from gkalib.viz.style import COLUMN, PALETTE

State = Literal["generator", "optimizer"]
RATE, BATCH = 3e-3, 8


def usual_run(
    stream: Tensor, config: GPTConfig, *, steps: int, stop: int | None = None, forgets: State | None = None
) -> tuple[Tensor, list[int]]:
    """Train a decoder on excerpts that a generator draws, as loops usually do.

    Args:
        stream: the tokens of a text, ``[n]``.
        config: of the decoder, which starts from seed 0 in float64.
        steps: how many.
        stop: the step before which the run is stopped and begun again from a checkpoint.
        forgets: what this checkpoint lacks: the generator's state or the optimizer's.

    Returns:
        The weights after each step, ``[steps parameters]``, and where the first excerpt of each step begins.

    Raises:
        ValueError: if the text is shorter than an excerpt.
    """
    excerpt = config.context + 1
    if len(stream) <= excerpt:
        raise ValueError(f"usual_run: an excerpt has {excerpt} tokens, and the text only {len(stream)}")
    torch.manual_seed(0)
    model = gpt(config).double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    generator = torch.Generator().manual_seed(0)
    path, begins = [], []
    for step in range(steps):
        if step == stop and forgets == "optimizer":
            optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
        if step == stop and forgets == "generator":
            generator = torch.Generator().manual_seed(0)
        begin = torch.randint(len(stream) - excerpt, (BATCH, 1), generator=generator)
        rows = stream[begin + torch.arange(excerpt)]
        loss = cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        path.append(torch.cat([one.detach().flatten() for one in model.parameters()]))
        begins.append(int(begin[0]))
    return torch.stack(path), begins


def lost_states(stream: Tensor, config: GPTConfig, *, steps: int = 24, stop: int = 12) -> Figure:
    """What two runs read and how far their weights go from those of a run that is never stopped.

    Left, where the first excerpt of each step begins, without the generator's state and, as circles, in the
    run that is never stopped. Right, the distance of
    the weights in percent of their norm, without the state of either.

    Args:
        stream, config, steps: as for ``usual_run``.
        stop: the step before which both are stopped.

    Raises:
        ValueError: if the text is shorter than an excerpt.
    """
    unbroken, read = usual_run(stream, config, steps=steps)
    figure, (left, right) = plt.subplots(1, 2, figsize=(COLUMN, 2.9))
    done = range(1, steps + 1)
    shades: tuple[tuple[State, str], ...] = ("generator", "orange"), ("optimizer", "blue")
    for missing, shade in shades:
        path, begins = usual_run(stream, config, steps=steps, stop=stop, forgets=missing)
        away = (path - unbroken).norm(dim=1) / unbroken.norm(dim=1)
        right.plot(done, 100 * away, color=PALETTE[shade], label=f"without the {missing}'s state")
        if missing == "generator":
            left.plot(done, np.array(begins) / 1000, ".", color=PALETTE[shade])
    left.axvline(stop + 0.5, color="gray", linestyle=":")
    left.plot(done, np.array(read) / 1000, "o", color="gray", fillstyle="none", markersize=7)
    left.set(xlabel="step", ylabel="place in the text / 1,000")
    right.set(xlabel="step", ylabel="distance of the weights (%)")
    right.legend()
    return figure


def rows(axes: Axes, tokens, first: int, *, title: str = "") -> AxesImage:
    """Rows of tokens with one color per document, and a dot before each row that begins a document.

    Args:
        axes: where to draw.
        tokens: `[rows, width]`, tensor or array; −1 is padding, which is left white.
        first: the token that begins a document.
        title: above the panel.
    """
    tokens = array(tokens)
    document = np.cumsum((tokens == first).ravel()).reshape(tokens.shape)
    shades = np.where(tokens < 0, np.nan, document * 7 % 20)  # neighbors differ visibly
    image = axes.imshow(shades, aspect="auto", cmap="tab20", interpolation="nearest", vmin=0, vmax=19)
    begins = np.flatnonzero(tokens[:, 0] == first)
    axes.plot(np.full(len(begins), -5), begins, ".", color="black", clip_on=False, ms=3)
    axes.set(title=title, xlabel="token", xlim=(-8, tokens.shape[1]), yticks=[])
    axes.grid(False)
    return image
