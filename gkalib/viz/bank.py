"""The prior over lags that a bank of decaying periodic kernels has learned."""

from matplotlib.axes import Axes

from gkalib.kernels import DecayingPeriodicBank
from gkalib.viz import style
from gkalib.viz.digest import array


def bank(axes: Axes, kernel: DecayingPeriodicBank, length: int) -> None:
    """Draw G, what a bank adds to the logarithm of the weight, against the lag, one line a head.

    Args:
        axes: where to draw.
        kernel: the bank.
        length: how many lags, from 0.

    Raises:
        ValueError: if there is no lag to draw.

    References:
        Gaussian Process Attention with Kernel Modeling, equations 3 to 6. Taught in: chapter 23.
    """
    if length < 1:
        raise ValueError(f"look: a bank is drawn over at least one lag, not {length}")
    colors = list(style.PALETTE.values())
    for head, row in enumerate(array(kernel.lag_table(length))):
        axes.plot(row, color=colors[head % len(colors)], label=f"head {head}")
    axes.set(xlabel="lag (tokens)", ylabel="G, added to log κ")
