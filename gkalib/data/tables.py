"""Small tables to smooth: one or several numbers that predict another."""

from importlib.resources import files
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from gkalib.data.registry import verified
from gkalib.extras import require


class Table(NamedTuple):
    """A regression problem.

    Args:
        x: what is known, one row a case.
        y: what is to be predicted.
        features: the names of the columns of ``x``, with units.
        target: the name of ``y``, with its unit.
    """

    x: Float64[np.ndarray, "n d"]
    y: Float64[np.ndarray, " n"]
    features: tuple[str, ...]
    target: str


def random_splits(table: Table, count: int) -> tuple[np.ndarray, ...]:
    """Random quarters of a table left out, standardized by the mean and deviation of what stays.

    The same ones every time.

    Args:
        table: what to split.
        count: how many splits.

    Returns:
        x and y of what stays, ``[count n d]`` and ``[count n 1]``, then x and y of what is left out.

    Raises:
        ValueError: if no case would be left out, or there is no split.

    References:
        Chapter 2 compares metrics on such splits.
    """
    left_out = len(table.y) // 4
    if not left_out or count < 1:
        raise ValueError(f"random_splits: {count} splits of {len(table.y)} cases, a quarter left out")
    rng, parts = np.random.default_rng(0), []
    for _ in range(count):
        test, fit = np.split(rng.permutation(len(table.y)), [left_out])
        both = np.column_stack([table.x, table.y])
        both = (both - both[fit].mean(axis=0)) / both[fit].std(axis=0)
        parts.append((both[fit, :-1], both[fit, -1:], both[test, :-1], both[test, -1:]))
    return tuple(np.stack(part) for part in zip(*parts, strict=True))


def mcycle() -> Table:
    """Acceleration of a crash dummy's helmet against the time after the impact.

    x is milliseconds ``[133, 1]``, y is multiples of g; several readings share a time.

    References:
        Silverman, Some aspects of the spline smoothing approach to non-parametric regression curve fitting,
        1985. Chapter 1 smooths it.
    """
    require("statsmodels", "mcycle")
    # statsmodels keeps it among the inputs of its tests and has no loader for it
    text = files("statsmodels") / "gam" / "tests" / "results" / "motorcycle.csv"
    if not text.is_file():
        raise ValueError("data: this statsmodels came without its tests' data, which holds 'mcycle'")
    rows = np.loadtxt(text.read_text().splitlines(), delimiter=",", skiprows=1)
    return verified("mcycle", Table(rows[:, :1], rows[:, 1], ("time (ms)",), "acceleration (g)"))


def sunspots() -> Table:
    """Sunspot numbers by year: x is the year ``[309, 1]``, y the number, with a cycle of about eleven years.

    References:
        Chapter 3 fits products of decaying and periodic kernels to it.
    """
    frame = require("statsmodels.datasets.sunspots", "sunspots").load_pandas().data
    x, y = frame["YEAR"].to_numpy(np.float64)[:, None], frame["SUNACTIVITY"].to_numpy(np.float64)
    return verified("sunspots", Table(x, y, ("year",), "sunspot number"))


def diabetes() -> Table:
    """Progression of diabetes one year on, from age, sex, body mass, blood pressure and six blood values.

    x is in the units of the measurements, unscaled ``[442, 10]``; y is the authors' score.

    References:
        Efron et al., Least angle regression, 2004. Chapter 2 shows the curse of dimension on it.
    """
    from sklearn.datasets import load_diabetes  # training elsewhere needs no scikit-learn

    x, y = map(np.asarray, load_diabetes(return_X_y=True, scaled=False))
    features = ("age (years)", "sex", "body mass index", "blood pressure")
    return verified("diabetes", Table(x, y, (*features, *(f"serum {i}" for i in range(1, 7))), "progression"))


def california_schools() -> Table:
    """Share of ninth-graders above the national median in mathematics, by Californian school district.

    x is eight figures of the district ``[303, 8]``; y is a share between 0 and 1. The source's four columns
    on pupils' and teachers' descent and its products of columns are left out.

    References:
        Gill, Generalized linear models: a unified approach, 2000. Chapter 2 learns a metric on it.
    """
    frame = require("statsmodels.datasets.star98", "california_schools").load_pandas().data
    columns = {
        "LOWINC": "low-income pupils (%)",
        "AVYRSEXP": "teachers' experience (years)",
        "AVSALK": "teachers' salary (k$)",
        "PERSPENK": "spending per pupil (k$)",
        "PTRATIO": "pupils per teacher",
        "PCTAF": "in college-preparatory courses (%)",
        "PCTCHRT": "charter schools (%)",
        "PCTYRRND": "year-round schools (%)",
    }
    above, below = frame["NABOVE"].to_numpy(np.float64), frame["NBELOW"].to_numpy(np.float64)
    table = Table(
        frame[list(columns)].to_numpy(np.float64),
        above / (above + below),
        tuple(columns.values()),
        "share above the national median",
    )
    return verified("california_schools", table)
