"""Whether runs bear out claims: outcome = arm + seed, Holm over the claims of a table, a verdict each."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy.special import fdtrc, stdtr, stdtrit

VERDICTS = ("reproduced", "as good as", "partly", "not reproduced", "undecided")
APART = 0.05  # the level, over all arms, of the test of whose spread differs
Weights = Mapping[str, int | float]
"""Of a contrast's arms: ``{"bank": 1, "rope": -1}`` is a difference, of four arms it is an interaction."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What was written down about a contrast before the run.

    Args:
        sign: 1 if the contrast is claimed to be above 0, -1 if below, 0 if to be as good as 0.
        delta: δ, the smallest effect that matters, in the unit of the outcomes.
        between: the two ends of an interval that the contrast is claimed to lie in, instead of a sign.

    Raises:
        ValueError: if a value is none that a claim may have.
    """

    sign: int = 0
    delta: int | float = 0.0
    between: Sequence[int | float] | None = None

    def __post_init__(self) -> None:
        """Refuse what is no claim."""
        if self.sign not in (-1, 0, 1):
            raise ValueError(f"verdicts: sign must be -1, 0 or 1, not {self.sign}")
        if not 0 <= self.delta < math.inf or (self.delta == 0 and self.sign == 0 and self.between is None):
            raise ValueError(f"verdicts: delta must be finite and above 0, not {self.delta}")
        if self.between is not None and (self.sign != 0 or self.between[0] >= self.between[1]):
            raise ValueError(f"verdicts: between takes the place of a sign, and ascends, not {self.between}")


@final
@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A contrast as measured.

    Args:
        value: in the unit of the outcomes.
        error: its standard error, in the same unit.
        degrees: of freedom of that error.
    """

    value: float
    error: float
    degrees: int


@final
@dataclass(frozen=True, kw_only=True)
class Judgment:
    """A verdict and the interval that it is read off.

    Args:
        verdict: one of ``VERDICTS``, but for "partly".
        estimate: of the contrast.
        low, high: the adjusted interval, in the unit of the outcomes.
    """

    verdict: str
    estimate: Estimate
    low: float
    high: float


def pooled(
    outcomes: Mapping[str, Mapping[int, int | float]], contrasts: Mapping[str, Weights]
) -> dict[str, Estimate]:
    """Contrasts of arms that share their seeds, with the residual of all arms of like spread.

    With y_as = μ + α_a + β_s + ε_as for arm a and seed s, the estimate of Σ w_a α_a is Σ w_a ȳ_a. Its
    standard error is √(MS Σ w_a² / S), where MS is the residual sum of squares over its (A − 1)(S − 1)
    degrees of freedom; A counts the arms that ``alike`` names, S the seeds. A contrast with another arm has
    the standard error of its own S values Σ w_a y_as, with S − 1 degrees; so has one whose weights do not
    sum to 0, which holds the effects of the seeds.

    Args:
        outcomes: by arm and seed, in any unit.
        contrasts: by any name.

    Raises:
        ValueError: if an arm lacks a seed that another has, there is one seed or one arm, an outcome is not
            finite, or a contrast names no arm or one that is not there.

    References:
        Scheffé, The Analysis of Variance (1959), section 4.2.
    """
    table = _complete(outcomes, contrasts)
    pool = alike(outcomes)
    square, degrees = _residual([table[arm] for arm in pool])
    found = {}
    for name, values in by_seed(outcomes, contrasts).items():
        weights, count = contrasts[name], len(values)
        value = math.fsum(values) / count
        if {*weights} <= {*pool} and abs(math.fsum(weights.values())) < 1e-9:
            variance, freedom = square * math.fsum(w * w for w in weights.values()), degrees
        else:
            variance, freedom = math.fsum((one - value) ** 2 for one in values) / (count - 1), count - 1
        found[name] = Estimate(value=value, error=math.sqrt(variance / count), degrees=freedom)
    return found


def by_seed(
    outcomes: Mapping[str, Mapping[int, int | float]], contrasts: Mapping[str, Weights]
) -> dict[str, list[float]]:
    """Each contrast seed by seed, Σ w_a y_as, in the order of the seeds; refused where ``pooled`` is."""
    table = _complete(outcomes, contrasts)
    count = len(next(iter(table.values())))
    return {
        name: [math.fsum(w * table[arm][s] for arm, w in weights.items()) for s in range(count)]
        for name, weights in contrasts.items()
    }


def alike(outcomes: Mapping[str, Mapping[int, int | float]]) -> tuple[str, ...]:
    """The arms whose residuals may be pooled: those of visibly different spread are left out, one by one.

    Of A arms, arm a is compared with the others by d_s = y_as − the others' mean at seed s. If all spread
    alike, F = [Σ (d_s − d̄)² (A − 1) / (A (S − 1))] / MS of the others has S − 1 and (A − 2)(S − 1) degrees
    of freedom, exactly for normal errors. The arm with the lowest two-sided p goes if A·p < 0.05, and the
    rest are compared again; of two arms neither can be told to be the odd one.

    References:
        Russell and Bradley, One-way variances in a two-way classification, Biometrika 45 (1958).
        Shukla, An invariant test for the homogeneity of variances, Biometrics 28 (1972).
    """
    table = _complete(outcomes, {})
    while len(table) > 2:
        chances = {arm: _chance_of_spread(arm, table) for arm in table}
        odd = min(chances, key=chances.__getitem__)
        if len(table) * chances[odd] >= APART:
            break
        del table[odd]
    return tuple(table)


def with_items(
    estimates: Mapping[str, Estimate],
    outcomes: Mapping[str, Mapping[int, Any]],
    contrasts: Mapping[str, Weights],
) -> dict[str, Estimate]:
    """Estimates whose errors count held-out items as a sample too, as they count seeds.

    With d_is = Σ_a w_a y_ais for item i and seed s, items add to the variance of the mean over S seeds and N
    items what all seeds have in common: max(0, V − M / S) / N, where V is the variance over items of their
    means over seeds and M the mean square that item and seed leave. Chance within an item, which seeds do
    not share, is in the seeds' own residual already. The degrees of freedom are Satterthwaite's, so items
    never replace seeds.

    Args:
        estimates: of means over items, from ``pooled``.
        outcomes: by arm and seed, a number of each held-out item in one order: 1 if right and 0 if wrong,
            or the loss of a document. An array or a list.
        contrasts: of the estimates, by their names.

    Raises:
        ValueError: as ``pooled``, or if runs have different numbers of items, or fewer than two.

    References:
        Cornfield and Tukey, Average values of mean squares in factorials, Annals of Mathematical Statistics
        27 (1956). Satterthwaite, An approximate distribution of estimates of variance components,
        Biometrics Bulletin 2 (1946).
    """
    sizes = {len(items) for runs in outcomes.values() for items in runs.values()}
    if len(sizes) != 1 or min(sizes) < 2:
        raise ValueError(f"verdicts: every run needs the same held-out items, not {sorted(sizes)} of them")
    means = {
        arm: {s: math.fsum(items) / len(items) for s, items in runs.items()} for arm, runs in outcomes.items()
    }
    _complete(means, contrasts)
    found = {}
    for name, weights in contrasts.items():
        seeds = sorted(outcomes[next(iter(weights))])
        d = np.sum([[w * np.asarray(outcomes[arm][s]) for s in seeds] for arm, w in weights.items()], axis=0)
        left, _ = _residual(d.tolist())
        size, one = d.shape[1], estimates[name]
        of_items = max(0.0, float(d.mean(0).var(ddof=1)) - left / len(d)) / size
        of_seeds = one.error**2
        total = of_seeds + of_items
        parts = of_seeds**2 / one.degrees + of_items**2 / (size - 1)
        degrees = int(total**2 / parts) if parts else one.degrees
        found[name] = Estimate(value=one.value, error=math.sqrt(total), degrees=degrees)
    return found


def verdicts(
    claims: Mapping[str, Claim], estimates: Mapping[str, Estimate], *, level: float = 0.05
) -> dict[str, Judgment]:
    """Judge the primary claims of one table.

    For a claim of a sign, read so that it says "above 0": *reproduced* if the interval lies above 0, else
    *not reproduced* if it lies below δ, else *undecided*. For one of no difference: *as good as* if the
    interval lies within ±δ, *not reproduced* if it lies outside, else *undecided*; and so with ``between`` in
    the place of ±δ, where the first is called *reproduced*.

    Each claim so asks two questions, whether it holds and whether it fails. Holm's procedure runs over the
    claims once for each, at half the level: of m claims, the one with the k-th lowest one-sided p is tested
    at level / 2 / (m − k + 1) as long as all before it passed, else at the level where the first failed. A
    bound of the interval has the level of the question that reads it. Of a claim of no difference either
    question reads both bounds: they have the level of the one that is answered with yes, else the lower of
    the two. With one claim the interval is Student's t with coverage 1 − level. The chance of any false
    verdict in a table is then at most the level (where an interval that is claimed is no narrower than two
    standard errors; else it can fail on either side).

    Args:
        claims: by any name.
        estimates: of the contrast of each, from ``pooled`` or ``with_items``; claims may be about different
            outcomes. A primary contrast deserves five seeds at least.
        level: the chance that is taken of any false verdict.

    Raises:
        ValueError: if there is no claim, or one without an estimate.

    References:
        Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6
        (1979). Schuirmann, A comparison of the two one-sided tests procedure, Journal of Pharmacokinetics and
        Biopharmaceutics 15 (1987), for claims of no difference.
    """
    if not claims or claims.keys() - estimates.keys():
        missing = ", ".join(sorted(claims.keys() - estimates.keys())) or "any claim"
        raise ValueError(f"verdicts: there is no estimate for {missing}")
    chances = {name: _chances(claim, estimates[name]) for name, claim in claims.items()}
    holds = _holm({name: chance[0] for name, chance in chances.items()}, level / 2)
    fails = _holm({name: chance[1] for name, chance in chances.items()}, level / 2)
    judged = {}
    for name, claim in claims.items():
        yes, no = chances[name][0] <= holds[name], chances[name][1] <= fails[name]
        lower, upper = holds[name], fails[name]
        if claim.sign == 0:  # either question reads both bounds
            lower = upper = holds[name] if yes else fails[name] if no else min(lower, upper)
        elif claim.sign < 0:
            lower, upper = upper, lower
        one = estimates[name]
        held = "reproduced" if claim.sign or claim.between else "as good as"
        judged[name] = Judgment(
            verdict=held if yes else "not reproduced" if no else "undecided",
            estimate=one,
            low=one.value + one.error * float(stdtrit(one.degrees, lower)),
            high=one.value - one.error * float(stdtrit(one.degrees, upper)),
        )
    return judged


def together(found: Iterable[str]) -> str:
    """The verdict on a claim from those on its subclaims: *partly* if some hold and others do not."""
    found = [*found]
    unknown = {*found} - {*VERDICTS}
    if unknown or not found:
        raise ValueError(f"verdicts: subclaims need verdicts, {', '.join(VERDICTS)}, not {found}")
    if len({*found}) == 1:
        return found[0]
    held = [one in ("reproduced", "as good as") for one in found]
    if all(held):
        return "reproduced"
    return "partly" if any(held) or "partly" in found else "undecided"


def _complete(
    outcomes: Mapping[str, Mapping[int, int | float]], contrasts: Mapping[str, Weights]
) -> dict[str, list[float]]:
    """The outcomes of each arm in the order of the seeds, refused unless every cell is there."""
    seeds = sorted({seed for runs in outcomes.values() for seed in runs})
    for arm, runs in outcomes.items():
        missing = [seed for seed in seeds if seed not in runs]
        if missing:
            raise ValueError(f"verdicts: arm {arm!r} has no seed {missing[0]}, which another arm has")
        if not all(math.isfinite(value) for value in runs.values()):
            raise ValueError(f"verdicts: an outcome of arm {arm!r} is not finite")
    if len(outcomes) < 2 or len(seeds) < 2:
        raise ValueError(
            f"verdicts: {len(outcomes)} arms and {len(seeds)} seeds tell no spread; two of each are needed"
        )
    for name, weights in contrasts.items():
        if not any(weights.values()):
            raise ValueError(f"verdicts: the contrast {name!r} has no weight that is not 0")
        for arm in weights:
            if arm not in outcomes:
                known = ", ".join(outcomes)
                raise ValueError(f"verdicts: the contrast {name!r} names an arm {arm!r}. Known: {known}")
    return {arm: [float(runs[seed]) for seed in seeds] for arm, runs in outcomes.items()}


def _residual(table: Sequence[Sequence[float]]) -> tuple[float, int]:
    """The mean square that arm and seed leave, and its degrees of freedom."""
    columns = list(zip(*table, strict=True))
    arms = [math.fsum(row) / len(columns) for row in table]
    seeds = [math.fsum(column) / len(table) for column in columns]
    mean = math.fsum(arms) / len(table)
    degrees = (len(table) - 1) * (len(columns) - 1)
    total = math.fsum(
        (value - arm - seed + mean) ** 2
        for row, arm in zip(table, arms, strict=True)
        for value, seed in zip(row, seeds, strict=True)
    )
    return total / max(degrees, 1), degrees


def _chance_of_spread(arm: str, table: Mapping[str, Sequence[float]]) -> float:
    """The two-sided p of ``alike`` for one arm."""
    others = [values for name, values in table.items() if name != arm]
    center = [math.fsum(column) / len(others) for column in zip(*others, strict=True)]
    square, degrees = _residual(others)
    # Of two rows the mean square is half the variance of their difference; here it is that of A and A − 1.
    own, few = _residual([table[arm], center])
    own *= 2 * len(others) / len(table)
    if own == square:
        return 1.0
    above = float(fdtrc(few, degrees, own / square)) if square else 0.0
    return 2 * min(above, 1 - above)


def _chances(claim: Claim, found: Estimate) -> tuple[float, float]:
    """One-sided p that a claim holds, and that it fails."""
    if claim.sign:
        value = claim.sign * found.value
        return _tail(value, found), _tail(claim.delta - value, found)
    low, high = claim.between or (-claim.delta, claim.delta)
    inside = min(found.value - low, high - found.value)
    return _tail(inside, found), _tail(-inside, found)


def _holm(chances: Mapping[str, float], level: float) -> dict[str, float]:
    """The level at which each is tested; it passes if its p is no higher."""
    order = sorted(chances, key=chances.__getitem__)
    count = len(order)
    passed = next((k for k, name in enumerate(order) if chances[name] > level / (count - k)), count)
    return {name: level / (count - min(k, passed)) for k, name in enumerate(order)}


def _tail(value: float, found: Estimate) -> float:
    """P(T > value / error) for Student's t."""
    if found.error == 0:
        return float(value <= 0)
    return float(stdtr(found.degrees, -value / found.error))
